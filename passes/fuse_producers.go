package passes

import (
	"cmp"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

var _ = register(Pass{
	Name:    "fuse-producers",
	Summary: "fuse a window, a contraction or a small loop with its producers into one kernel, where that is predicted to be faster",
	After: map[string]string{
		"assign-storage":   "the fused kernel rounds the value between producer and consumer to its storage",
		"fuse":             "regions are fused",
		"batch-isomorphic": "fused regions are not batched",
		"views":            "a window whose operand turns out to be a view has no window for a producer",
	},
	Needs: []string{"fuse"},
	Run:   fuseProducers,
})

// FuseProducersOptions say which regions become one kernel.
type FuseProducersOptions struct {
	// Benefit predicts how many microseconds a fused region saves over its parts as separate launches. If nil, nothing
	// is fused.
	Benefit func(n *ir.Node) float64
	// Unfused names regions that stay launches of their own.
	Unfused []string
}

// fuseProducers fuses pairs of windows, such as the two depthwise convolutions of a RepMixer block; a contraction
// with the producers of its operand; and loops. The first of two windows or of a run of loops may have other readers:
// its results then become results of the fused region. The pass runs after all that look into regions, so that
// calibration, storage and traces only see regions with one anchor. Candidates that share a region are taken in order
// of benefit, so that fusing two of three launches never blocks fusing all three.
func fuseProducers(ctx *Context, g *ir.Graph) error {
	if ctx.Benefit == nil {
		return nil
	}
	uses := g.Uses()
	at := make(map[*ir.Node]int, len(g.Nodes))
	for i, n := range g.Nodes {
		at[n] = i
	}
	var list []*row
	consider := func(r *row) error {
		ok, err := r.straight(uses)
		if err != nil || !ok || ir.CheckFusion(r.joined) != nil || r.late(at) {
			return err
		}
		if r.gain = ctx.Benefit(ir.NewFused(r.joined, r.kept)); r.gain > 0 {
			list = append(list, r)
		}
		return nil
	}
	for _, last := range g.Nodes {
		if err := ctx.fusionsEndingAt(last, uses, consider); err != nil {
			return err
		}
	}
	slices.SortStableFunc(list, func(a, b *row) int { return cmp.Compare(b.gain, a.gain) })
	gone := map[*ir.Node]bool{}
	for _, r := range list {
		if slices.ContainsFunc(r.parts, func(n *ir.Node) bool { return gone[n] }) || r.late(at) {
			continue
		}
		n, first := ir.NewFused(r.joined, r.kept), r.parts[0]
		for k, v := range n.Outputs {
			v.Def, v.Index = n, k
		}
		for _, m := range slices.Concat(r.parts, r.views) {
			gone[m] = true
		}
		g.Nodes[at[first]], at[n] = n, at[first]
	}
	g.Nodes = slices.DeleteFunc(g.Nodes, func(n *ir.Node) bool { return gone[n] })
	return nil
}

// row is a run of regions that could be fused.
type row struct {
	parts  []*ir.Node
	joined []*ir.Node // the same with what views between them do in their bodies
	views  []*ir.Node // that nobody else reads
	kept   bool       // the first's outputs have other readers
	gain   float64
}

// Longest rows, of loops and of others.
const (
	longestLoops = 6
	longest      = 3
)

// fusionsEndingAt passes to consider the runs of regions that end with last, each of which reads its predecessor.
// Only the first may have other readers. A run of loops without benefit is not extended: what another predecessor
// would save, it also saves when fused with fewer of them.
func (ctx *Context) fusionsEndingAt(last *ir.Node, uses map[*ir.Value][]ir.Use, consider func(r *row) error) error {
	var extend func(parts []*ir.Node) error
	extend = func(parts []*ir.Node) error {
		next, most := parts[0], longest
		if next.IsFamily(ir.FamilyLoop) {
			most = longestLoops
		}
		if len(parts) == most || len(parts) > 1 && !reads(parts[1], next, uses) {
			return nil
		}
		var seen []*ir.Node
		for _, y := range next.Inputs {
			n := y.Def
			kept := len(uses[y]) > 1
			if next.IsFamily(ir.FamilyLoop) && wholeView(n) || next.IsFamily(ir.FamilyContraction) && reshaped(y, uses) != nil {
				n = n.Inputs[0].Def
			}
			if n != nil && (n == y.Def || !next.IsFamily(ir.FamilyContraction)) {
				kept = !reads(next, n, uses)
			}
			if n == nil || slices.Contains(seen, n) || n.IsFamily(ir.FamilyFused) || ctx.unfused(n, last) {
				continue
			}
			seen = append(seen, n)
			r := &row{parts: append([]*ir.Node{n}, parts...), kept: kept}
			if err := consider(r); err != nil {
				return err
			}
			if r.gain <= 0 && next.IsFamily(ir.FamilyLoop) {
				continue
			}
			if err := extend(r.parts); err != nil {
				return err
			}
		}
		return nil
	}
	return extend([]*ir.Node{last})
}

// reads reports whether a region alone reads what another computes, itself or through views that nobody else reads.
func reads(n, producer *ir.Node, uses map[*ir.Value][]ir.Use) bool {
	for _, v := range producer.Outputs {
		for _, u := range uses[v] {
			if u.Node != n && !(wholeView(u.Node) && reads(n, u.Node, uses)) {
				return false
			}
		}
	}
	return true
}

// wholeView reports whether a region gives a value another shape.
func wholeView(n *ir.Node) bool {
	if n == nil || !n.IsFamily(ir.FamilyView) || len(n.Inputs) != 1 || n.Inputs[0].Type.Numel() != n.Outputs[0].Type.Numel() {
		return false
	}
	return !slices.ContainsFunc(n.Region.Body.Nodes, func(m *ir.Node) bool { return m.Op.Name != "Reshape" })
}

// straight takes views between the regions into their bodies, and reports whether that is possible.
func (r *row) straight(uses map[*ir.Value][]ir.Use) (ok bool, err error) {
	r.joined = slices.Clone(r.parts)
	for i, n := range r.parts[1:] {
		producer := r.joined[i]
		for k, v := range n.Inputs {
			view := v.Def
			if n.IsFamily(ir.FamilyContraction) && view != r.parts[i] {
				if shaped := reshaped(v, uses); shaped != nil && view.Inputs[0].Def == r.parts[i] {
					r.joined[i], r.views = shaped, append(r.views, view)
				}
				continue
			}
			if !wholeView(view) || view.Inputs[0].Def != r.parts[i] {
				continue
			}
			base, only := view.Inputs[0], len(uses[v]) == 1
			switch {
			case !n.Region.Operands[k].Batched && !slices.Contains(r.joined[i+1].Inputs, base):
				r.joined[i+1], err = reshapedInput(r.joined[i+1], k, base)
			case only && len(uses[base]) == 1 && len(producer.Outputs) == 1 && producer.Region.Members == 0:
				r.joined[i], err = reshapedOutput(producer, v)
			default:
				return false, nil
			}
			if err != nil {
				return false, err
			}
			if only {
				r.views = append(r.views, view)
			}
		}
	}
	return true, nil
}

// reshapedInput is a region that reads a value in place of the one of another shape that its input k is.
func reshapedInput(n *ir.Node, k int, v *ir.Value) (*ir.Node, error) {
	m := *n
	m.Inputs, m.Region = slices.Clone(n.Inputs), n.Region.Clone()
	m.Inputs[k] = v
	body := m.Region.Body
	old := body.Inputs[k]
	in := &ir.Value{Name: old.Name, Type: ir.Type{DType: old.Type.DType, Shape: slices.Clone(v.Type.Shape)}}
	body.Inputs[k] = in
	move, err := body.NewNode("Reshape", "", ir.Attrs{"shape": slices.Clone(old.Type.Shape)}, in)
	if err != nil {
		return nil, err
	}
	body.ReplaceAll(old, move.Outputs[0])
	body.Nodes = slices.Insert(body.Nodes, 0, move)
	return &m, nil
}

// reshapedOutput is a region that yields a value of another shape than its only output.
func reshapedOutput(n *ir.Node, v *ir.Value) (*ir.Node, error) {
	m := *n
	m.Outputs, m.Region = []*ir.Value{v}, n.Region.Clone()
	body := m.Region.Body
	move, err := body.Add("Reshape", "", ir.Attrs{"shape": slices.Clone(v.Type.Shape)}, body.Outputs[0])
	if err != nil {
		return nil, err
	}
	body.Outputs[0] = move.Outputs[0]
	return &m, nil
}

// late reports whether a part reads a value computed after the first part, whose place in the list the fused region
// takes.
func (r *row) late(at map[*ir.Node]int) bool {
	var own []*ir.Value
	for _, n := range r.joined {
		if slices.ContainsFunc(n.Inputs, func(v *ir.Value) bool {
			return v.Def != nil && !slices.Contains(own, v) && at[v.Def] > at[r.parts[0]]
		}) {
			return true
		}
		own = append(own, n.Outputs...)
	}
	return false
}

// unfused reports whether two regions are to stay launches of their own.
func (ctx *Context) unfused(first, second *ir.Node) bool {
	return slices.Contains(ctx.Unfused, first.Name) || slices.Contains(ctx.Unfused, second.Name)
}

// reshaped is a contraction whose result, all of it in its order, is read as another shape by one view alone: the
// contraction with that shape. It is nil where y is no such view.
func reshaped(y *ir.Value, uses map[*ir.Value][]ir.Use) *ir.Node {
	view := y.Def
	if !view.IsFamily(ir.FamilyView) || y.Index > 0 {
		return nil
	}
	first, shape := view.Inputs[0].Def, y.Type.Shape
	if !first.IsFamily(ir.FamilyContraction) || !slices.Equal(view.Inputs, first.Outputs) ||
		slices.ContainsFunc(view.Inputs, func(v *ir.Value) bool { return len(uses[v]) != 1 }) || !whole(view) {
		return nil
	}
	r := first.Region.Clone()
	if r.Members > 0 && (len(shape) == 0 || shape[0] != r.Members) {
		return nil
	}
	if r.Members > 0 {
		shape = shape[1:]
	}
	n, err := r.Body.Add("Reshape", view.Name, ir.Attrs{"shape": slices.Clone(shape)}, r.Body.Outputs[0])
	if err != nil {
		return nil
	}
	r.Body.Outputs = slices.Clone(n.Outputs)
	if s := &r.Results[0]; s.Block > 0 {
		s.BlockAxis = len(shape) - 1
	}
	return &ir.Node{Op: first.Op, Name: first.Name, Attrs: first.Attrs, Inputs: first.Inputs, Outputs: view.Outputs, Region: r, From: first.From}
}

// whole reports whether a view is all of a value in its order; of blocks, which have no such span, by its nodes.
func whole(view *ir.Node) bool {
	if len(view.Outputs) == 2 {
		return !slices.ContainsFunc(view.Region.Body.Nodes, func(m *ir.Node) bool { return m.Op.Name != "Reshape" })
	}
	x := view.Inputs[0]
	return spanOf(view.Outputs[0]) == span{x, 0, x.Type.Numel()}
}
