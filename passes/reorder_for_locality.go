package passes

import (
	"cmp"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

var _ = register(Pass{
	Name:    "reorder-for-locality",
	Summary: "in a training step, run regions that read much and write little right after their producers, while those results are in L2",
	After: map[string]string{
		"fuse":             "regions are ordered",
		"batch-isomorphic": "a region with members waits for all that its members read",
		"views":            "views say what a region reads",
	},
	Needs: []string{"fuse"},
	Run:   reorderForLocality,
})

// shrinks is how many times as large as all that a region writes its largest operand is, if the region is to run
// earlier: little more is then alive than was, and mostly less.
const shrinks = 4

// reorderForLocality orders the regions of a program that trains. Gradients of weights come last in its graph, since
// only the optimizer reads them, when the gradient of the layer's result has long gone to DRAM; they are a thousandth
// of it. Regions that write about as much as they read stay in their order.
func reorderForLocality(ctx *Context, g *ir.Graph) error {
	if !ctx.Siblings {
		return nil
	}
	at := make(map[*ir.Node]int, len(g.Nodes))
	for i, n := range g.Nodes {
		last, largest, written := -1, 0, 0
		for _, v := range n.Inputs {
			if v == nil || v.Def == nil {
				continue
			}
			last, largest = max(last, at[v.Def]), max(largest, v.Type.Bytes())
		}
		for _, v := range n.Outputs {
			written += v.Type.Bytes()
		}
		if at[n] = i; last >= 0 && (n.IsFamily(ir.FamilyView) || shrinks*written <= largest) {
			at[n] = last
		}
	}
	slices.SortStableFunc(g.Nodes, func(a, b *ir.Node) int { return cmp.Compare(at[a], at[b]) })
	return nil
}
