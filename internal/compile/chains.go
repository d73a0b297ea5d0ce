package compile

import (
	"math"

	"github.com/spark-compile/spark-compile/codegen"
	"github.com/spark-compile/spark-compile/codegen/contraction"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/loop"
	"github.com/spark-compile/spark-compile/codegen/window"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

// lowerChains are the kernels of chains, each of the family of its last part.
func lowerChains(products *contraction.Choices, loops *loop.Choices) codegen.Lower {
	return func(n *ir.Node, ctx *kernel.Context) (*kernel.Spec, error) {
		switch n.LastPart().Region.Family {
		case ir.FamilyContraction:
			return products.Lower(n, ctx)
		case ir.FamilyLoop:
			return loops.LowerChain(n, ctx)
		}
		return window.LowerChain(n, ctx)
	}
}

// gain is how many microseconds less the kernel of a chain is predicted to take than those of its parts, gaps between launches included; 0 or less
// if it is no faster, or that is not known. It is the least of two: with weights in L2, where they stay or earlier launches bring them, and where DRAM
// serves some that came too late. Round trips take longer then, and a chain may have more of them one after the other.
func (w *works) gain(n *ir.Node, t *target.Target) float64 {
	if n.LastPart().IsFamily(ir.FamilyWindow) {
		return window.Gain(n, t)
	}
	together, apart, ok := w.of(n, t), []*cost.Work(nil), true
	for _, part := range n.Parts() {
		one := w.of(part, t)
		apart, ok = append(apart, one), ok && one != nil
	}
	if !ok || together == nil {
		return 0
	}
	m := cost.Of(t)
	us := func(w *cost.Work, dram float64) float64 {
		served := *w
		served.DRAMBytes = min(served.DRAMBytes, dram)
		return m.Estimate(&served).US + m.Alone(&served)
	}
	least := math.Inf(1)
	for _, dram := range []float64{0, 1} {
		sum := 0.0
		for _, w := range apart {
			sum += us(w, dram)
		}
		least = min(least, sum-us(together, dram))
	}
	return least
}

// works are those of the kernels that were weighed, by target and signature: networks repeat their blocks.
type works struct {
	families codegen.Families
	known    map[string]*cost.Work
}

func newWorks(c *choices) *works {
	if c == nil {
		return &works{familiesOf(nil), map[string]*cost.Work{}}
	}
	if c.works == nil {
		c.works = map[string]*cost.Work{}
	}
	return &works{familiesOf(c), c.works}
}

// of is what the kernel of a region is planned to do; nil where it has none.
func (w *works) of(n *ir.Node, t *target.Target) *cost.Work {
	ctx := &kernel.Context{Target: t, Unpacked: true}
	key := ctx.Signature(n.Region.Family, t.Name, n)
	work, known := w.known[key]
	if !known {
		if spec, err := w.families[n.Region.Family](n, ctx); err == nil {
			work = spec.Work
		}
		w.known[key] = work
	}
	return work
}
