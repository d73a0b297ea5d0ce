package passes

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// Site is a region whose weights can be quantised: a contraction of an activation with a constant matrix.
type Site struct {
	Node      *ir.Node // the region
	Anchor    *ir.Node
	X         int // input of the region: activations
	Weight    int // input of the region: weights
	Members   int // at least 1
	N, K      int // output channels; elements summed for each of them
	BlockAxis int // of a member's weights, along which blocks of 16 lie
	// ChannelAxis is that of the output channels.
	ChannelAxis int
	MACs        int64
	Direct      bool // X reaches the anchor unmoved
}

// Sites returns the sites of a graph of regions, in order.
func Sites(g *ir.Graph) []Site {
	var out []Site
	for _, n := range g.Nodes {
		if s, ok := SiteOf(n); ok {
			out = append(out, s)
		}
	}
	return out
}

// SiteOf returns the site of a region, if it is one.
func SiteOf(n *ir.Node) (Site, bool) {
	if !n.IsFamily(ir.FamilyContraction) && !n.IsFamily(ir.FamilyLoop) {
		return Site{}, false
	}
	r := n.Region
	a := r.Anchor()
	if a == nil || len(a.Inputs) < 2 {
		return Site{}, false
	}
	s := Site{Node: n, Anchor: a, Members: r.Count(), MACs: n.MACs()}
	w := a.Inputs[1]
	switch a.Op.Name {
	case "Conv":
		if a.Depthwise() {
			return Site{}, false
		}
		s.N, s.K, s.BlockAxis = w.Type.Shape[0], w.Type.Numel()/w.Type.Shape[0], 1
	case "MatMul":
		if w.Type.Rank() != 2 {
			return Site{}, false
		}
		s.K, s.N, s.ChannelAxis = w.Type.Shape[0], w.Type.Shape[1], 1
		if a.Attrs.Bool("transB") {
			s.N, s.K, s.BlockAxis, s.ChannelAxis = w.Type.Shape[0], w.Type.Shape[1], 1, 0
		}
	case "SegmentedMatVec":
		s.N, s.K, s.BlockAxis = w.Type.Shape[0], w.Type.Shape[1], 1
	default:
		return Site{}, false
	}
	s.Weight = slices.Index(r.Body.Inputs, w)
	if s.Weight < 0 || !n.Inputs[s.Weight].IsConst() || r.Members > 0 && !r.Operands[s.Weight].Stacked {
		return Site{}, false
	}
	x := a.Inputs[0]
	s.Direct = x.Def == nil
	for x.Def != nil {
		x = x.Def.Inputs[0]
	}
	s.X = slices.Index(r.Body.Inputs, x)
	return s, s.X >= 0
}

// Weights returns the constant.
func (s *Site) Weights() *ir.Value { return s.Node.Inputs[s.Weight] }

// Name is the key of the site in a Quantisation.
func (s *Site) Name() string { return s.Node.Outputs[0].Name }

// At is the position of weight k of output channel n of a member in the constant. Channels are counted through groups; k
// runs over the dimensions behind the channel as they lie.
func (s *Site) At(member, n, k int) int {
	base := 0
	if s.Node.Region.Members > 0 {
		base = member * s.N * s.K
	}
	if s.Anchor.Op.Name == "MatMul" && !s.Anchor.Attrs.Bool("transB") {
		return base + k*s.N + n
	}
	return base + n*s.K + k
}

// Block is the block of 16 in which weight k of a channel lies, of Blocks(), and BlockAt its position in the constant of
// scales.
func (s *Site) Block(k int) int {
	taps := s.taps()
	return k/taps/BlockSize*taps + k%taps
}

// Blocks is the number of blocks of an output channel.
func (s *Site) Blocks() int {
	taps := s.taps()
	return (s.K/taps + BlockSize - 1) / BlockSize * taps
}

// BlockAt is the position of a block's scale.
func (s *Site) BlockAt(member, n, block int) int {
	base := 0
	if s.Node.Region.Members > 0 {
		base = member * s.N * s.Blocks()
	}
	if s.Anchor.Op.Name == "MatMul" && !s.Anchor.Attrs.Bool("transB") {
		return base + block*s.N + n
	}
	return base + n*s.Blocks() + block
}

// BlockShape is the shape of the constant of scales.
func (s *Site) BlockShape() []int {
	shape := slices.Clone(s.Weights().Type.Shape)
	axis := s.BlockAxis
	if s.Node.Region.Members > 0 {
		axis++
	}
	shape[axis] = (shape[axis] + BlockSize - 1) / BlockSize
	return shape
}

// taps is the number of weights of one input channel.
func (s *Site) taps() int {
	if s.Anchor.Op.Name != "Conv" {
		return 1
	}
	return ir.Type{Shape: s.Anchor.Inputs[1].Type.Shape[2:]}.Numel()
}

// Storage says how pass narrow would store the values of a graph of regions in 16 bits.
type Storage struct{ w *narrower }

// StorageOf looks at a graph of f32 regions.
func StorageOf(g *ir.Graph) *Storage {
	w := newNarrower(&Context{}, g)
	w.choose()
	return &Storage{w}
}

// Group returns the value that stands for all that share bytes with v: views and what they view.
func (s *Storage) Group(v *ir.Value) *ir.Value { return s.w.find(v) }

// Narrow reports whether v is stored in 16 bits.
func (s *Storage) Narrow(v *ir.Value) bool {
	d, _ := s.w.storage(v)
	return d != v.Type.DType
}

// Matrix reports whether input i of a region is an activation that its anchor multiplies as a matrix.
func (s *Storage) Matrix(n *ir.Node, i int) bool {
	return !n.Inputs[i].IsConst() && isMatrixInput(n, i)
}

// OnlyFront reports whether nothing but the way to the anchor reads input i of a region.
func OnlyFront(n *ir.Node, i int) bool {
	return n.Region.Anchor() != nil && !n.Region.ReadBehind(i)
}

// OutputChannels is the number of channels of the anchor's output to which a correction can be added, or 0.
func OutputChannels(a *ir.Node) int {
	switch a.Op.Name {
	case "Conv", "SegmentedMatVec":
		return a.Inputs[1].Type.Shape[0]
	case "MatMul":
		if a.Inputs[1].Type.Rank() == 2 {
			return a.Outputs[0].Type.Shape[a.Outputs[0].Type.Rank()-1]
		}
	}
	return 0
}
