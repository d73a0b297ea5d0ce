package passes

import (
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

var _ = register(Pass{
	Name:    "group-gemv",
	Summary: "group linear layers of one vector and equal depth, with their transposes, biases and activations, into one SegmentedMatVec",
	Run:     groupGEMV,
})

// groupGEMV turns M = 1 linear layers (a row times a constant matrix, plus bias, activation) into SegmentedMatVec
// nodes, one for all layers of the same depth: layers that do not depend on each other become one launch.
//
//	group_gemv.go          what a linear layer is, which ones go together
//	group_gemv_build.go    rows → SegmentedMatVec, activations, slices of its output
//	group_gemv_movement.go transposes before a layer, into its weights
func groupGEMV(_ *Context, g *ir.Graph) error {
	// A layer that reads one row of a norm needs no other row normalised.
	if err := rewriteToFixpoint(g, func(s *sweep, n *ir.Node) { sliceBeforeRowOp(s, n) }); err != nil {
		return err
	}
	s := newGEMVGrouper(g)
	for _, n := range g.Nodes {
		if u := s.layerAt(n); u != nil {
			s.units = append(s.units, u)
			s.core[n] = u
		}
	}
	if len(s.units) == 0 {
		return nil
	}
	s.absorbMovement()
	s.passThrough()
	byDepth := map[int][]*layer{}
	deepest := 0
	for _, u := range s.units {
		u.depth = s.depth(u.node)
		deepest = max(deepest, u.depth)
		byDepth[u.depth] = append(byDepth[u.depth], u)
	}
	for _, p := range s.passing {
		byDepth[p.depth] = append(byDepth[p.depth], p)
	}
	for d := 1; d <= deepest; d++ {
		if err := s.buildDepth(byDepth[d]); err != nil {
			return err
		}
	}
	return s.finish()
}

// layer is rows of out = act(W·x + b): each row reads length consecutive elements of x.
type layer struct {
	node   *ir.Node    // MatMul or Conv; nil for rows that only pass values on
	from   []ir.Origin // nodes of the file that it computes
	x      *ir.Value   // read as a flat vector
	rows   []matRow
	hasB   bool
	act    []*ir.Node // unary nodes after the sum, in order
	out    *ir.Value  // what the rows replace; nil for passed-on values but the last
	depth  int
	feeds  *layer // of passed-on values: the next one
	offset int    // of the base that x views, filled in while building
}

// matRow is one row of weights; rows of a splat share theirs.
type matRow struct {
	offset int
	w      []float32
	bias   float64
}

type gemvGrouper struct {
	g       *ir.Graph
	uses    map[*ir.Value][]ir.Use
	pos     map[*ir.Node]int
	units   []*layer
	passing []*layer
	core    map[*ir.Node]*layer
	depths  map[*ir.Node]int
	order   map[*ir.Value]int // position among the operands of Concats, from 1
	to      map[*ir.Value]*ir.Value
	placed  map[*ir.Value]bool
	made    *constPool
	rows    map[rowsKey][][]float32 // of weights that several nodes read
}

type rowsKey struct {
	w          *ir.Tensor
	transposed bool
}

func newGEMVGrouper(g *ir.Graph) *gemvGrouper {
	s := &gemvGrouper{g: g, uses: g.Uses(), pos: map[*ir.Node]int{}, core: map[*ir.Node]*layer{}, depths: map[*ir.Node]int{},
		order: map[*ir.Value]int{}, to: map[*ir.Value]*ir.Value{}, placed: map[*ir.Value]bool{}, made: newConstPool(), rows: map[rowsKey][][]float32{}}
	for i, n := range g.Nodes {
		s.pos[n] = i
		if !n.IsFlatConcat() {
			continue
		}
		for _, v := range n.Inputs {
			base := viewedWhole(v)
			s.placed[base] = true
			if s.order[v] == 0 {
				s.order[v] = len(s.order) + 1
			}
		}
	}
	return s
}

// layerAt recognises a layer at its MatMul or Conv and follows it to its activation.
func (s *gemvGrouper) layerAt(n *ir.Node) *layer {
	l := linearOp(n)
	if l == nil || n.Inputs[0].Type.DType != ir.Float32 || !l.isMatVec() {
		return nil
	}
	key := rowsKey{l.w, !l.ByOutput}
	if s.rows[key] == nil {
		w := l.w
		if key.transposed {
			w = transposeTensor(w.Reshaped(l.Rows, l.Columns), []int{1, 0})
		}
		s.rows[key] = rowsOf(w, l.Outputs(), l.Inputs())
	}
	u := &layer{node: n, from: n.From, x: n.Inputs[0], out: n.Outputs[0]}
	for _, row := range s.rows[key] {
		u.rows = append(u.rows, matRow{w: row})
	}
	if b := n.Bias(); b != nil && !s.addBias(u, b) {
		return nil
	}
	s.follow(u)
	return u
}

// isMatVec reports whether the op is a vector times a matrix: each operand and each result is one channel.
func (l *weights) isMatVec() bool {
	return l.Taps == 1 && l.Group == 1 && !l.padded && l.w.Numel() > 0 &&
		l.node.Inputs[0].Type.Numel() == l.Inputs() && l.node.Outputs[0].Type.Numel() == l.Outputs()
}

// rowsOf returns an f32 constant as a matrix of the given size.
func rowsOf(t *ir.Tensor, rows, cols int) [][]float32 {
	stored := rows * cols
	if t.Splat {
		stored = cols
	}
	xs := make([]float32, stored)
	for i := range xs {
		xs[i] = float32(t.FloatAt(i))
	}
	list := make([][]float32, rows)
	for j := range list {
		if list[j] = xs; !t.Splat {
			list[j] = xs[j*cols : (j+1)*cols]
		}
	}
	return list
}

// addBias takes a constant that has one number for each row, or one for all.
func (s *gemvGrouper) addBias(u *layer, b *ir.Value) bool {
	if u.hasB || !b.IsConst() || b.Type.DType != ir.Float32 {
		return false
	}
	if n := b.Type.Numel(); n != 1 && n != len(u.rows) {
		return false
	}
	for j := range u.rows {
		u.rows[j].bias = b.Const.FloatAt(j % b.Type.Numel())
	}
	u.hasB = true
	return true
}

// follow absorbs the bias, reshapes and unary nodes after u, as long as each result has a single reader.
func (s *gemvGrouper) follow(u *layer) {
	for {
		uses := s.uses[u.out]
		if len(uses) != 1 || uses[0].Node == nil || len(uses[0].Node.Outputs) != 1 {
			return
		}
		n := uses[0].Node
		y := n.Outputs[0]
		if y.Type.Numel() != len(u.rows) || y.Type.DType != ir.Float32 {
			return
		}
		switch {
		case n.Op.Name == "Reshape":
		case n.Op.Name == "Add" && len(u.act) == 0 && s.addBias(u, n.Inputs[1-uses[0].Index]):
		case isUnary(n, uses[0].Index):
			u.act = append(u.act, n)
		default:
			return
		}
		u.out, u.from = y, ir.JoinOrigins(u.from, n.From)
	}
}

// isUnary reports whether an elementwise node depends on its input i alone: every other one is a single number.
func isUnary(n *ir.Node, i int) bool {
	if !n.Op.Pointwise() {
		return false
	}
	for j, v := range n.Inputs {
		if j == i {
			continue
		}
		if _, ok := scalarOf(v); !ok {
			return false
		}
	}
	return true
}

// depth is the number of linear layers on the longest way to n, n included. Layers of equal depth are independent.
func (s *gemvGrouper) depth(n *ir.Node) int {
	if n == nil {
		return 0
	}
	if d, ok := s.depths[n]; ok {
		return d
	}
	d := 0
	for _, v := range n.Inputs {
		if v != nil {
			d = max(d, s.depth(v.Def))
		}
	}
	if s.core[n] != nil {
		d++
	}
	s.depths[n] = d
	return d
}

// maxPassed bounds the number of values passed through the layers to a following Concat.
const maxPassed = 32

// passThrough finds operands of a Concat of layers that are not layers but scaled elements of a vector that layers of
// the first depth read, and passes them on by rows of one element: they need no kernel then.
func (s *gemvGrouper) passThrough() {
	made := map[*ir.Value]*layer{}
	for _, u := range s.units {
		made[u.out] = u
	}
	for _, n := range s.g.Nodes {
		if !n.IsFlatConcat() {
			continue
		}
		last := 0
		for _, v := range n.Inputs {
			if u := made[v]; u != nil {
				last = max(last, s.depth(u.node))
			}
		}
		if last == 0 {
			continue
		}
		for _, v := range n.Inputs {
			if made[v] == nil && v.Type.Numel() <= maxPassed && s.depth(v.Def) == 0 {
				s.passOne(v, last)
			}
		}
	}
}

// passOne makes rows at depths 1…last that end in v, if v is a multiple of consecutive elements of a vector that
// a layer of depth 1 reads.
func (s *gemvGrouper) passOne(v *ir.Value, last int) {
	if v.Type.DType != ir.Float32 || len(s.uses[v]) != 1 {
		return
	}
	scale, offset, at := 1.0, 0, v
	var from []ir.Origin
	for !s.isLayerInput(at) {
		n := at.Def
		if n == nil {
			return
		}
		from = ir.JoinOrigins(from, n.From)
		switch {
		case n.IsView():
			if n.Op.Name == "Slice" {
				o, _ := n.SliceOffset()
				offset += o
			}
			at = n.Inputs[0]
		case n.Op.Name == "Mul" && scale == 1:
			x, c := withConst(n)
			factor, ok := scalarOf(c)
			if !ok || x.Type.Numel() != at.Type.Numel() {
				return
			}
			scale, at = factor, x
		default:
			return
		}
	}
	var next *layer
	for d := last; d >= 1; d-- {
		p := &layer{depth: d, feeds: next, from: from}
		for i := range v.Type.Numel() {
			row := matRow{offset: i, w: []float32{1}}
			if d == 1 {
				row = matRow{offset: offset + i, w: []float32{float32(scale)}}
			}
			p.rows = append(p.rows, row)
		}
		if next == nil {
			p.out = v
		}
		next = p
		s.passing = append(s.passing, p)
	}
	next.x = at
}

func (s *gemvGrouper) isLayerInput(v *ir.Value) bool {
	for _, u := range s.uses[v] {
		if u.Node != nil && s.core[u.Node] != nil && u.Index == 0 {
			return true
		}
	}
	return false
}

// finish sorts the new nodes and replaces Concats of adjacent slices by one slice.
func (s *gemvGrouper) finish() error {
	substitute(s.g, s.to)
	if err := s.g.Toposort(); err != nil {
		return fmt.Errorf("after merging layers: %w", err)
	}
	s.g.RemoveDead()
	_, err := rewrite(s.g, func(w *sweep, n *ir.Node) { joinSlices(w, n) })
	return err
}

// substitute replaces values everywhere; a graph output's replacement takes its name.
func substitute(g *ir.Graph, to map[*ir.Value]*ir.Value) {
	old := slices.Clone(g.Outputs)
	g.Substitute(to)
	for i, v := range g.Outputs {
		if v != old[i] && v.Def != nil {
			old[i].Name, v.Name = g.Fresh(old[i].Name), old[i].Name
		}
	}
}
