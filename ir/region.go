package ir

import (
	"fmt"
	"maps"
	"slices"
)

// Region is what a Region node computes, and how its operands and results are stored. Pass fuse builds it,
// batch-isomorphic gives it members, and assign-storage fills in the storage.
//
// The body computes one member on values; storage says how these values are stored. Explicit spells storage out as
// nodes. A node's inputs are the operands in the order of the body's inputs, then, in the same order, their scale
// tensors: of channels, then of blocks. Its outputs are the results, each followed by its block scales if it has
// them.
type Region struct {
	Family   string
	Members  int // how often the body is applied; 0: once, and no operand or result has a dimension for it
	Body     *Graph
	Operands []Operand // one for each input of the body
	Results  []Storage // one for each output of the body
}

// Operand says how the value of a body's input is read.
type Operand struct {
	// Batched operands have a leading dimension of Members; of others all members read the same.
	Batched bool
	Storage
	// Read, if its DType is set, is what the anchor sees: the value, rounded to numbers of that type times Read.Scale
	// on the way. Other readers see the value. It has a Scale and Terms only.
	Read Storage
}

// Storage says what stands for a value in memory: an element is a number of type DType, times the Scale, times the
// factor of its channel, times the factor of its block.
type Storage struct {
	DType DType
	Scale float64 // of all elements; 0 means 1
	// PerChannel: a constant f64 vector, one for each index along ChannelAxis, of each member if the operand is
	// batched. Only of the weights of an anchor, along its output channels.
	PerChannel  bool
	ChannelAxis int
	// Block > 0: a tensor of BlockScale, one for each Block neighbours along BlockAxis; the last block may be short.
	Block, BlockAxis int
	// SplitTerms = 2, only of what an anchor sees: the sum of the nearest number and the one nearest to what that
	// leaves.
	SplitTerms int
}

// Factor is the Scale, 1 where there is none.
func (s Storage) Factor() float64 {
	if s.Scale == 0 {
		return 1
	}
	return s.Scale
}

// plain reports whether a value of type d is stored as it is.
func (s Storage) plain(d DType) bool { return s == Storage{DType: d} }

// blocksShape is the shape of the scales of blocks of a value.
func (s Storage) blocksShape(shape []int) []int {
	out := slices.Clone(shape)
	out[s.BlockAxis] = (out[s.BlockAxis] + s.Block - 1) / s.Block
	return out
}

// check says why a value of type t cannot be stored so, or nil.
func (s Storage) check(t Type) error {
	scaled := s != Storage{DType: s.DType}
	switch {
	case !s.DType.valid():
		return fmt.Errorf("no storage for %v", t)
	case (s.DType != t.DType || scaled) && !(s.DType.IsFloat() && t.DType == Float32):
		return fmt.Errorf("%v stored as %v", t, s)
	case s.Scale < 0:
		return fmt.Errorf("scale %v", s.Scale)
	case s.PerChannel && (s.ChannelAxis < 0 || s.ChannelAxis >= t.Rank()):
		return fmt.Errorf("channels along dimension %d of %v", s.ChannelAxis, t)
	case s.Block < 0 || s.Block > 0 && (s.BlockAxis < 0 || s.BlockAxis >= t.Rank()):
		return fmt.Errorf("blocks of %d along dimension %d of %v", s.Block, s.BlockAxis, t)
	}
	return nil
}

// NewRegion makes a Region node without appending it, with one member, whose operands and results are stored as the
// types of the body say. Its inputs are those of the body, in order.
func (g *Graph) NewRegion(family, name string, body *Graph, inputs ...*Value) (*Node, error) {
	r := &Region{Family: family, Body: body}
	for _, v := range body.Inputs {
		r.Operands = append(r.Operands, Operand{Storage: Storage{DType: v.Type.DType}})
	}
	for _, v := range body.Outputs {
		r.Results = append(r.Results, Storage{DType: v.Type.DType})
	}
	return g.RegionNode(name, r, inputs...)
}

// RegionNode makes the node of a region without appending it.
func (g *Graph) RegionNode(name string, r *Region, inputs ...*Value) (*Node, error) {
	n := &Node{Op: LookupOp("Region"), Name: name, Attrs: Attrs{}, Inputs: inputs, Region: r}
	if err := g.typeOutputs(n); err != nil {
		return nil, err
	}
	return n, nil
}

// Clone returns a copy that shares only what Graph.Clone shares.
func (r *Region) Clone() *Region {
	c, _ := r.CloneMapped()
	return c
}

// CloneMapped is Clone; it also returns the copy of every value of the body.
func (r *Region) CloneMapped() (*Region, map[*Value]*Value) {
	c := *r
	body, to := r.Body.CloneMapped()
	c.Body, c.Operands, c.Results = body, slices.Clone(r.Operands), slices.Clone(r.Results)
	return &c, to
}

// Origins are the nodes of the file that a region computes, in the file's order.
func (r *Region) Origins() (from []Origin) {
	for _, m := range r.Body.Nodes {
		of := m.From
		if m.Region != nil {
			of = m.Region.Origins()
		}
		from = JoinOrigins(from, of)
	}
	return from
}

// IsFamily reports whether n is a region of the family; n may be nil.
func (n *Node) IsFamily(family string) bool {
	return n != nil && n.Region != nil && n.Region.Family == family
}

// Count is the number of members, at least 1.
func (r *Region) Count() int { return max(1, r.Members) }

// Anchor returns the node that a kernel feeds straight from memory: the contraction or window of the body; nil if
// there is none.
func (r *Region) Anchor() *Node {
	for _, n := range r.Body.Nodes {
		if n.Op.Kind == KindContraction || n.Op.Kind == KindWindow {
			return n
		}
	}
	return nil
}

// Source follows v, a value of the body, through nodes that only move elements to the operand that it comes from: its
// number, and the nodes from there to v. Without such an operand ok is false.
func (r *Region) Source(v *Value) (operand int, path []*Node, ok bool) {
	from, path := v.Origin()
	operand = slices.Index(r.Body.Inputs, from)
	return operand, path, operand >= 0
}

// Origin is the value whose elements nodes of one operand move to v, and these nodes in order.
func (v *Value) Origin() (from *Value, path []*Node) {
	for from = v; from.Def != nil && from.Def.Op.Kind == KindMovement && len(from.Def.Inputs) == 1; from = from.Def.Inputs[0] {
		path = append(path, from.Def)
	}
	slices.Reverse(path)
	return from, path
}

// prologue is the anchor, if there is one, and the nodes on the way from inputs to it.
func (r *Region) prologue() map[*Node]bool {
	prologue := map[*Node]bool{}
	var walk func(n *Node)
	walk = func(n *Node) {
		if n == nil || prologue[n] {
			return
		}
		prologue[n] = true
		for _, v := range n.Inputs {
			if v != nil {
				walk(v.Def)
			}
		}
	}
	walk(r.Anchor())
	return prologue
}

// ReadByEpilogue reports whether any node outside the prologue reads operand i, or it is a result.
func (r *Region) ReadByEpilogue(i int) bool { return r.readOutside(r.Body.Inputs[i], r.prologue()) }

func (r *Region) readOutside(v *Value, set map[*Node]bool) bool {
	return slices.Contains(r.Body.Outputs, v) || slices.ContainsFunc(r.Body.Nodes, func(n *Node) bool { return !set[n] && slices.Contains(n.Inputs, v) })
}

// ReadByPrologue reports whether the anchor, or a node before it, reads operand i.
func (r *Region) ReadByPrologue(i int) bool { return r.readInside(r.Body.Inputs[i], r.prologue()) }

func (r *Region) readInside(v *Value, set map[*Node]bool) bool {
	return slices.ContainsFunc(r.Body.Nodes, func(n *Node) bool { return set[n] && slices.Contains(n.Inputs, v) })
}

// ChannelScales returns the factors of operand i's channels, or nil.
func (n *Node) ChannelScales(i int) *Value {
	if !n.Region.Operands[i].PerChannel {
		return nil
	}
	return n.Inputs[n.Region.extra(i)]
}

// BlockScales returns the scales of operand i's blocks, or nil.
func (n *Node) BlockScales(i int) *Value {
	o := n.Region.Operands[i]
	if o.Block == 0 {
		return nil
	}
	at := n.Region.extra(i)
	if o.PerChannel {
		at++
	}
	return n.Inputs[at]
}

// extra is the position among the node's inputs of the first tensor of scales of operand i or later ones.
func (r *Region) extra(i int) int {
	at := len(r.Operands)
	for _, o := range r.Operands[:i] {
		at += o.tensors()
	}
	return at
}

// tensors is the number of tensors of scales.
func (s Storage) tensors() int {
	n := 0
	if s.PerChannel {
		n++
	}
	if s.Block > 0 {
		n++
	}
	return n
}

// BySize are loops that together compute what n does, one for the results of each number of elements: for a region of
// another family whose kernel is refused, since a loop computes results of one size. They read the operands that they
// need, share n's outputs, which stay n's, and belong to no graph. Results of one size are computed by n itself.
func (n *Node) BySize() []*Node {
	sizes := map[int][]int{}
	for i, v := range n.Region.Body.Outputs {
		sizes[v.Type.Numel()] = append(sizes[v.Type.Numel()], i)
	}
	if len(sizes) == 1 {
		return []*Node{n}
	}
	var parts []*Node
	for _, size := range slices.Backward(slices.Sorted(maps.Keys(sizes))) {
		parts = append(parts, n.only(sizes[size]))
	}
	return parts
}

// only is a loop that computes some results of n, of which none is in blocks.
func (n *Node) only(results []int) *Node {
	r := n.Region.Clone()
	whole := *r
	body := *r.Body
	r.Family, r.Body, r.Results = FamilyLoop, &body, nil
	part := &Node{Op: n.Op, Name: n.Name, Attrs: n.Attrs, Region: r, From: n.From}
	body.Outputs = nil
	for _, i := range results {
		body.Outputs = append(body.Outputs, whole.Body.Outputs[i])
		r.Results = append(r.Results, whole.Results[i])
		part.Outputs = append(part.Outputs, n.Outputs[i])
	}
	body.RemoveDead()
	uses := body.Uses()
	body.Inputs, r.Operands = nil, nil
	var scales []*Value
	for i, v := range whole.Body.Inputs {
		if len(uses[v]) == 0 {
			continue
		}
		body.Inputs, r.Operands = append(body.Inputs, v), append(r.Operands, whole.Operands[i])
		part.Inputs = append(part.Inputs, n.Inputs[i])
		for _, s := range []*Value{n.ChannelScales(i), n.BlockScales(i)} {
			if s != nil {
				scales = append(scales, s)
			}
		}
	}
	part.Inputs = append(part.Inputs, scales...)
	return part
}

// batchedType is the type of all members of a value.
func (r *Region) batchedType(t Type, batched bool) Type {
	if r.Members == 0 || !batched {
		return t
	}
	return Type{t.DType, slices.Concat([]int{r.Members}, t.Shape)}
}

// InputTypes are the types that the node's inputs have.
func (r *Region) InputTypes() []Type {
	var types, scales []Type
	for i, o := range r.Operands {
		t := r.Body.Inputs[i].Type
		types = append(types, r.batchedType(Type{o.DType, t.Shape}, o.Batched))
		if o.PerChannel {
			scales = append(scales, r.batchedType(Type{Float64, []int{t.Shape[o.ChannelAxis]}}, o.Batched))
		}
		if o.Block > 0 {
			scales = append(scales, r.batchedType(Type{BlockScale, o.blocksShape(t.Shape)}, o.Batched))
		}
	}
	return append(types, scales...)
}

// outputTypes are the types that the node's outputs have.
func (r *Region) outputTypes() []Type {
	var types []Type
	for i, s := range r.Results {
		t := r.Body.Outputs[i].Type
		types = append(types, r.batchedType(Type{s.DType, slices.Clone(t.Shape)}, true))
		if s.Block > 0 {
			types = append(types, r.batchedType(Type{BlockScale, s.blocksShape(t.Shape)}, true))
		}
	}
	return types
}

func inferRegion(n *Node) ([]Type, error) {
	r := n.Region
	if r == nil || r.Body == nil {
		return nil, fmt.Errorf("it has no body")
	}
	if contracts[r.Family] == nil {
		return nil, fmt.Errorf("family=%q, want one of %v", r.Family, slices.Sorted(maps.Keys(contracts)))
	}
	if r.Members < 0 {
		return nil, fmt.Errorf("members=%d", r.Members)
	}
	if len(r.Body.Outputs) == 0 {
		return nil, fmt.Errorf("its body has no outputs")
	}
	if len(r.Operands) != len(r.Body.Inputs) || len(r.Results) != len(r.Body.Outputs) {
		return nil, fmt.Errorf("storage of %d operands and %d results, the body has %d and %d", len(r.Operands), len(r.Results), len(r.Body.Inputs), len(r.Body.Outputs))
	}
	for i, o := range r.Operands {
		if err := o.check(r.Body.Inputs[i].Type); err != nil {
			return nil, fmt.Errorf("operand %d: %w", i, err)
		}
	}
	for i, s := range r.Results {
		if err := s.check(r.Body.Outputs[i].Type); err != nil {
			return nil, fmt.Errorf("result %d: %w", i, err)
		}
	}
	want := r.InputTypes()
	if len(want) != len(n.Inputs) {
		return nil, fmt.Errorf("%d inputs, its body and their storage want %d", len(n.Inputs), len(want))
	}
	for i, v := range n.Inputs {
		if !v.Type.Equal(want[i]) {
			return nil, fmt.Errorf("input %d is %v, its body wants %v", i, v.Type, want[i])
		}
	}
	return r.outputTypes(), nil
}

// diff describes the first difference between two regions, or returns "".
func (r *Region) diff(q *Region) string {
	switch {
	case r.Family != q.Family || r.Members != q.Members:
		return fmt.Sprintf("a %s of %d members against a %s of %d", r.Family, r.Members, q.Family, q.Members)
	case !slices.Equal(r.Operands, q.Operands):
		return fmt.Sprintf("operands stored as %v against %v", r.Operands, q.Operands)
	case !slices.Equal(r.Results, q.Results):
		return fmt.Sprintf("results stored as %v against %v", r.Results, q.Results)
	}
	return r.Body.Diff(q.Body)
}
