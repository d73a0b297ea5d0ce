package compile

import (
	"github.com/spark-compile/spark-compile/codegen/contraction"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/window"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

// multiplies reports whether a chain is a contraction behind what it multiplies.
func multiplies(n *ir.Node) bool { return n.Parts()[1].IsFamily(ir.FamilyContraction) }

// lowerChain is the kernel of a chain, of the family of its second part.
func lowerChain(n *ir.Node, ctx *kernel.Context) (*kernel.Spec, error) {
	if multiplies(n) {
		return contraction.Lower(n, ctx)
	}
	return window.LowerChain(n, ctx)
}

// faster reports whether the kernel of a chain is predicted to be faster than those of its parts, gaps between launches included. Weights
// of a contraction are taken to be in L2: they stay there, or earlier launches bring them, in either case.
func faster(n *ir.Node, t *target.Target) bool {
	if !multiplies(n) {
		return window.Faster(n, t)
	}
	ctx, m := &kernel.Context{Target: t, Unpacked: true}, cost.Of(t)
	us := func(n *ir.Node) (float64, bool) {
		spec, err := familiesOf(nil)[n.Region.Family](n, ctx)
		if err != nil || spec.Work == nil {
			return 0, false
		}
		w := *spec.Work
		w.DRAMBytes = 0
		return m.Estimate(&w).US, true
	}
	together, ok := us(n)
	apart := 0.0
	for _, part := range n.Parts() {
		x, known := us(part)
		apart, ok = apart+x, ok && known
	}
	return ok && together < apart
}
