package passes

import (
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// Site is a region whose weights can be quantised: a contraction of an activation with a constant matrix.
type Site struct {
	Node    *ir.Node // the region
	Anchor  *ir.Node
	X       int // input of the region: activations
	Weight  int // input of the region: weights
	Members int // at least 1
	N, K    int // output channels; elements summed for each of them
	MACs    int64
	Direct  bool // X reaches the anchor unmoved
	// Geometry is that of the weights of a member. Blocks of 16 lie along the input channels.
	Geometry ir.Weights
}

// Sites returns the sites of a graph of regions, in order, including those of fused parts.
func Sites(g *ir.Graph) []Site {
	var out []Site
	for _, n := range g.Nodes {
		for _, part := range n.Parts() {
			if s, ok := SiteOf(part); ok {
				out = append(out, s)
			}
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
	if a == nil {
		return Site{}, false
	}
	g, ok := a.Weights()
	// Kernels have weights of other formats in matrices and in SegmentedMatVec.
	if !ok || g.RowAxis > 0 || a.Depthwise() || g.InAxis >= 0 && !slices.Contains(a.Op.Matrix, 1) {
		return Site{}, false
	}
	s := Site{Node: n, Anchor: a, Members: r.Count(), MACs: n.MACs(), Geometry: g, N: g.Outputs(), K: g.Rows}
	if g.ByOutput {
		s.K = g.Columns * g.Taps
	}
	w := a.Inputs[1]
	s.Weight = slices.Index(r.Body.Inputs, w)
	if s.Weight < 0 || !n.Inputs[s.Weight].IsConst() || r.Members > 0 && !r.Operands[s.Weight].Batched {
		return Site{}, false
	}
	x := a.Inputs[0]
	s.Direct = x.Def == nil
	for x.Def != nil {
		x = x.Def.Inputs[0]
	}
	s.X = slices.Index(r.Body.Inputs, x)
	return s, s.X >= 0 && unquantisable(n, a) == ""
}

// Unquantisable returns why the layer of a region keeps its element types in every precision: its weights are constant,
// but no format of fewer bits can stand for its numbers. It returns "" for a site and for what is no layer.
func Unquantisable(n *ir.Node) string {
	if !n.IsFamily(ir.FamilyContraction) && !n.IsFamily(ir.FamilyLoop) {
		return ""
	}
	a := n.Region.Anchor()
	if a == nil {
		return ""
	}
	if _, ok := a.Weights(); !ok {
		return ""
	}
	w := slices.Index(n.Region.Body.Inputs, a.Inputs[1])
	if w < 0 || !n.Inputs[w].IsConst() {
		return ""
	}
	return unquantisable(n, a)
}

func unquantisable(n, anchor *ir.Node) string {
	for _, v := range []*ir.Value{anchor.Inputs[0], anchor.Inputs[1], anchor.Outputs[0]} {
		if v.Type.DType != ir.Float32 {
			return fmt.Sprintf("it multiplies %v, and formats of fewer bits stand for f32", v.Type.DType)
		}
	}
	x := anchor.Inputs[0]
	for x.Def != nil {
		x = x.Def.Inputs[0]
	}
	if at := slices.Index(n.Region.Body.Inputs, x); at >= 0 && n.Inputs[at].IsConst() {
		return "its activations are constant"
	}
	return ""
}

// Weights returns the constant.
func (s *Site) Weights() *ir.Value { return s.Node.Inputs[s.Weight] }

// Name is the key of the site in a Quantisation.
func (s *Site) Name() string { return s.Node.Outputs[0].Name }

// Segmented reports whether each row of weights reads a part of the activations of its own, which keep 16 bits.
func (s *Site) Segmented() bool { return s.Geometry.InAxis < 0 }

// At is the position of weight k of output channel n of a member in the constant. Channels are counted across groups;
// k indexes the dimensions after the channel, in row-major order.
func (s *Site) At(member, n, k int) int { return s.at(member, n, k, s.K) }

// at is the position of element k of the size elements that an output channel has.
func (s *Site) at(member, n, k, size int) int {
	if s.Geometry.ByOutput {
		return (member*s.N+n)*size + k
	}
	return (member*size+k)*s.N + n
}

// Rows are elements of the constant, of a site without members, as [N, in, taps] of the first `in` input channels.
func (s *Site) Rows(elements []float64, in int) []float64 {
	row := in * s.Geometry.Taps
	out := make([]float64, s.N*row)
	for i := range out {
		out[i] = elements[s.At(0, i/row, i%row)]
	}
	return out
}

// Block is the block of 16 in which weight k of a channel lies, of Blocks(), and BlockAt its position in the constant
// of scales.
func (s *Site) Block(k int) int {
	taps := s.Geometry.Taps
	return k/taps/ir.BlockSize*taps + k%taps
}

// Blocks is the number of blocks of an output channel.
func (s *Site) Blocks() int {
	taps := s.Geometry.Taps
	return (s.K/taps + ir.BlockSize - 1) / ir.BlockSize * taps
}

// BlockAt is the position of a block's scale.
func (s *Site) BlockAt(member, n, block int) int { return s.at(member, n, block, s.Blocks()) }

// BlockShape is the shape of the constant of scales.
func (s *Site) BlockShape() []int {
	shape := slices.Clone(s.Weights().Type.Shape)
	axis := s.Geometry.InputAxis()
	if s.Node.Region.Members > 0 {
		axis++
	}
	shape[axis] = (shape[axis] + ir.BlockSize - 1) / ir.BlockSize
	return shape
}

// Storage says how pass assign-storage would store the values of a graph of regions in 16 bits.
type Storage struct{ w *storageAssigner }

// StorageOf looks at a graph of f32 regions.
func StorageOf(g *ir.Graph) *Storage {
	w := newStorageAssigner(&Context{}, g)
	w.choose()
	return &Storage{w}
}

// Group returns the value that stands for all that share bytes with v: views and what they view.
func (s *Storage) Group(v *ir.Value) *ir.Value { return s.w.find(v) }

// Is16Bit reports whether v is stored in 16 bits.
func (s *Storage) Is16Bit(v *ir.Value) bool {
	return s.w.storage(v).DType != v.Type.DType
}

// Matrix reports whether input i of a region is an activation that its anchor multiplies as a matrix.
func (s *Storage) Matrix(n *ir.Node, i int) bool {
	return !n.Inputs[i].IsConst() && isMatrixInput(n, i)
}

// OnlyPrologueReads reports whether nothing but the way to the anchor reads input i of a region.
func OnlyPrologueReads(n *ir.Node, i int) bool {
	return n.Region.Anchor() != nil && !n.Region.ReadByEpilogue(i)
}
