package passes

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

var _ = register(Pass{
	Name:    "chain",
	Summary: "join a window and the one that reads it, or what a contraction multiplies and the contraction, into a region for one kernel, where that is predicted to be faster than two",
	Runs:    []Place{{stageRegions, every}},
	Last:    true, // narrow says how the value between is stored: windows that it has seen apart round it so
	After: map[string]string{
		"fuse":  "chain joins regions",
		"stack": "windows with members join as they are, those of a chain would have to be stacked as chains",
		"views": "a window whose operand turns out to be a view reads no window",
	},
	Needs: []string{"fuse"},
	Run:   chain,
})

// chain joins pairs of windows, as the two depthwise convolutions of a RepMixer block. What the first computes may have other
// readers: it is then a result of the chain too. It runs behind all passes that look into regions, so that calibration, storage and
// traces know regions of one anchor only.
func chain(ctx *Context, g *ir.Graph) error {
	if ctx.Chained == nil {
		return nil
	}
	uses := g.Uses()
	at := make(map[*ir.Node]int, len(g.Nodes))
	for i, n := range g.Nodes {
		at[n] = i
	}
	gone := map[*ir.Node]bool{}
	for _, second := range g.Nodes {
		for _, y := range second.Inputs {
			first := y.Def
			if first == nil || gone[first] || ctx.apart(first, second) || ir.Chains(first, second, len(uses[y]) > 1) != nil {
				continue
			}
			// The chain stands where the first stood, so it must not wait for anything computed since.
			if slices.ContainsFunc(second.Inputs, func(v *ir.Value) bool { return v.Def != nil && v.Def != first && at[v.Def] > at[first] }) {
				continue
			}
			n := ir.NewChain(first, second, len(uses[y]) > 1)
			if !ctx.Chained(n) {
				continue
			}
			for k, v := range n.Outputs {
				v.Def, v.Index = n, k
			}
			g.Nodes[at[first]], at[n], gone[second] = n, at[first], true
			break
		}
	}
	g.Nodes = slices.DeleteFunc(g.Nodes, func(n *ir.Node) bool { return gone[n] })
	return nil
}

// apart reports whether two regions are to stay launches of their own.
func (ctx *Context) apart(first, second *ir.Node) bool {
	return slices.Contains(ctx.Apart, first.Name) || slices.Contains(ctx.Apart, second.Name)
}
