package passes

import (
	"cmp"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

var _ = register(Pass{
	Name:    "sooner",
	Summary: "in a training step, put regions that read much and write little right behind what they read, while it is in L2",
	After: map[string]string{
		"fuse":  "sooner orders regions",
		"stack": "a region with members waits for all that its members read",
		"views": "views say what a region reads",
	},
	Needs: []string{"fuse"},
	Run:   sooner,
})

// shrinks is how many times as large as all that a region writes its largest operand is, if the region is to run sooner: little more is
// then alive than was, and mostly less.
const shrinks = 4

// sooner orders the regions of a program that trains. Gradients of weights come last in its graph, since only the optimizer reads
// them, when the gradient of the layer's result has long gone to DRAM; they are a thousandth of it. Regions that write about as much as
// they read stay in their order.
func sooner(ctx *Context, g *ir.Graph) error {
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
