package ir

// Role is the part that a node may play in a region.
type Role uint8

// Roles. Rows say only what their Kind does not: elementwise and movement are light, others heavy.
const (
	RoleLight       Role = iota // elementwise or movement: fuses freely
	RoleHeavy                   // the one node of a loop region that is more than index arithmetic and scalar functions
	RoleContraction             // anchor of a contraction
	RoleWindow                  // anchor of a window region
	RoleRegion                  // a region already
)

// Role is the part that n may play in a region, by its op, types and layout.
func (n *Node) Role() Role {
	if n.Op.Role != nil {
		return n.Op.Role(n)
	}
	switch n.Op.Kind {
	case KindElementwise, KindMovement:
		return RoleLight
	case KindRegion:
		return RoleRegion
	}
	return RoleHeavy
}

// Sources are the inputs that a movement takes elements from, and fill, what it puts where it takes none: every
// element of its output is one of theirs, or fill. ok is false for other nodes, and for movement that is heavy
// (Resize that interpolates).
func (n *Node) Sources() (from []*Value, fill float64, ok bool) {
	if n.Op.Kind != KindMovement || n.Role() != RoleLight {
		return nil, 0, false
	}
	for i, v := range n.Inputs {
		if n.Op.input(i).Type != "index" {
			from = append(from, v)
		}
	}
	if n.Op.Fill != "" {
		fill = n.Attrs.Float(n.Op.Fill, 0)
	}
	return from, fill, true
}

// PullsSame reports whether an element of a light node's output reads input i at the same place in memory alone, or a
// smaller input.
func (n *Node) PullsSame(i int) bool {
	return n.Op.Pointwise() || n.Op.Name == "Reshape" || n.Op.Name == "Gather" && i == 1 && n.Inputs[0].Type.Rank() == 1
}

// WritesEach reports whether n is a scatter whose updates all go to different places, each over one element.
func (n *Node) WritesEach() bool {
	return n.Op.Name == "ScatterElements" && n.Attrs.String("reduction", "none") == "none" &&
		n.Inputs[1].Type.Shape[n.Attrs.Int("axis", 0)] == 1
}

func alwaysHeavy(*Node) Role { return RoleHeavy }

// minMatrixRows is the least number of rows for which tensor tiles beat a row-by-row product.
const minMatrixRows = 2

// matMulRole makes f32 products of matrices with more than one row and column anchors.
func matMulRole(n *Node) Role {
	a, b, y := n.Inputs[0].Type, n.Inputs[1].Type, n.Outputs[0].Type
	r := y.Rank()
	if y.DType != Float32 || a.Rank() < 2 || b.Rank() < 2 || y.Numel() == 0 || a.Numel() == 0 ||
		y.Shape[r-2] < minMatrixRows || y.Shape[r-1] < minMatrixRows {
		return RoleHeavy
	}
	return RoleContraction
}

func attentionRole(n *Node) Role {
	if n.Inputs[0].Type.DType != Float32 {
		return RoleHeavy
	}
	return RoleContraction
}

// A kernel of AttentionGrad holds one head in the shared memory of a block.
const (
	mostHeadRows = 64
	mostHeadSize = 128
)

// attentionGradRole makes small heads anchors.
func attentionGradRole(n *Node) Role {
	s := n.Outputs[0].Type.Shape
	if attentionRole(n) == RoleHeavy || s[3] > mostHeadRows || s[4] > mostHeadSize {
		return RoleHeavy
	}
	return RoleContraction
}

func convRole(n *Node) Role {
	if r := windowRole(n); r == RoleHeavy || n.Depthwise() {
		return r
	}
	return RoleContraction
}

// windowRole makes convolutions and pools of f32 images with channels last anchors.
func windowRole(n *Node) Role {
	x := n.Inputs[0].Type
	if x.DType != Float32 || x.Rank() != 4 || x.Numel() == 0 || n.Outputs[0].Type.Numel() == 0 || len(n.Outputs) > 1 ||
		n.Attrs.String("layout", "NCHW") != "NHWC" {
		return RoleHeavy
	}
	return RoleWindow
}

func resizeRole(n *Node) Role {
	if n.Attrs.String("mode", "nearest") == "nearest" {
		return RoleLight
	}
	return RoleHeavy
}

// ChannelAxis is the dimension of n's output along which its channels lie: 1 for images of layout NCHW, else the last.
func (n *Node) ChannelAxis() int {
	if n.Op.HasAttr("layout") && n.Attrs.String("layout", "NCHW") == "NCHW" {
		return 1
	}
	return n.Outputs[0].Type.Rank() - 1
}

// ChannelShape is the shape in which a vector of k elements broadcasts over the channels of n's output.
func (n *Node) ChannelShape(k int) []int {
	shape := []int{k}
	for range n.Outputs[0].Type.Rank() - 1 - n.ChannelAxis() {
		shape = append(shape, 1)
	}
	return shape
}

// Bias is the input that is added to each output channel, or nil.
func (n *Node) Bias() *Value {
	if n.Op.Bias == 0 {
		return nil
	}
	return n.In(n.Op.Bias)
}

// MACs is the number of multiply-accumulates of a contraction, or of all of them in a region with its members; 0 for
// other ops.
func (n *Node) MACs() int64 {
	if n.Op.MACs == nil {
		return 0
	}
	return n.Op.MACs(n)
}

func matMulMACs(n *Node) int64 {
	a := n.Inputs[0].Type.Shape
	k := a[len(a)-1]
	if n.Attrs.Bool("transA") {
		k = a[len(a)-2]
	}
	return int64(n.Outputs[0].Type.Numel()) * int64(k)
}

func matMulSumMACs(n *Node) int64 {
	a, c := n.Inputs[0].Type.Shape, n.Inputs[2].Type.Shape
	return int64(n.Outputs[0].Type.Numel()) * int64(a[len(a)-1]+c[len(c)-1])
}

func convMACs(n *Node) int64 {
	w := n.Inputs[1].Type
	return int64(n.Outputs[0].Type.Numel()) * int64(w.Numel()/max(w.Shape[0], 1))
}

func convTransposeMACs(n *Node) int64 {
	w := n.Inputs[1].Type
	return int64(n.Inputs[0].Type.Numel()) * int64(w.Numel()/max(w.Shape[0], 1))
}

func einsumMACs(n *Node) int64 {
	e, err := parseEinsum(n)
	if err != nil {
		return 0
	}
	macs := int64(len(e.in) - 1)
	for _, d := range e.size {
		macs *= int64(d)
	}
	return macs
}

func attentionMACs(n *Node) int64 {
	q, keys := n.Inputs[0].Type, n.Inputs[1].Type.Shape[2]
	return int64(q.Numel()+n.Outputs[0].Type.Numel()) * int64(keys)
}

// attentionGradMACs are those of the scores, which are computed again, and of four products of their size.
func attentionGradMACs(n *Node) int64 {
	q, v, keys := n.Inputs[0].Type, n.Inputs[3].Type, n.Inputs[1].Type.Shape[2]
	return int64(3*q.Numel()+2*v.Numel()) * int64(keys)
}

func segmentedMatVecMACs(n *Node) int64 { return int64(n.Inputs[1].Type.Numel()) }

func regionMACs(n *Node) int64 {
	total := int64(0)
	for _, m := range n.Region.Body.Nodes {
		total += m.MACs()
	}
	return total * int64(n.Region.Count())
}
