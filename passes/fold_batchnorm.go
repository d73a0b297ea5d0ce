package passes

import (
	"math"

	"github.com/spark-compile/spark-compile/ir"
)

var _ = register(Pass{
	Name:    "fold-batchnorm",
	Summary: "replace BatchNorm by a Mul and an Add with constants, for fold-scale and merge-branches to fold into weights",
	After: map[string]string{
		"fold": "the statistics must be constants",
	},
	Tolerance: 1e-5, // new constants are rounded to the graph's type
	Run: func(_ *Context, g *ir.Graph) error {
		_, err := rewrite(g, func(s *sweep, n *ir.Node) {
			if n.Op.Name == "BatchNorm" {
				decomposeBatchNorm(s, n)
			}
		})
		return err
	},
})

// decomposeBatchNorm writes (x-mean)/√(var+ε)·scale+bias as x·a + b.
func decomposeBatchNorm(s *sweep, n *ir.Node) {
	x := n.Inputs[0]
	for _, p := range n.Inputs[1:] {
		if !p.IsConst() {
			return
		}
	}
	scale, bias := n.Inputs[1].Const.Floats(), n.Inputs[2].Const.Floats()
	mean, variance := n.Inputs[3].Const.Floats(), n.Inputs[4].Const.Floats()
	epsilon := n.Attrs.Float("epsilon", 1e-5)
	a, b := make([]float64, len(scale)), make([]float64, len(scale))
	for i := range a {
		a[i] = scale[i] / math.Sqrt(variance[i]+epsilon)
		b[i] = bias[i] - float64(mean[i]*a[i])
	}
	// (x-mean)·a is about as large as scale and bias. If b is much larger, x·a and b cancel, yet fold-scale would fold
	// a b below greatestTerm: it assumes that b joins values of about 1. Keep BatchNorm then. After a linear op both
	// go into its weights and bias, with no rounding in between.
	if term, left := greatestOf(b), max(greatestOf(scale), greatestOf(bias)); term <= greatestTerm && term > greatestTerm*left && !s.fromLinear(x) {
		return
	}
	shape := shaped1(x.Type.Rank(), n.Attrs.Int("axis", 1), len(a))
	y := s.add("Mul", n.Name, nil, x, s.constant(n.Name, x.Type.DType, shape, a))
	s.replace(n.Outputs[0], s.add("Add", n.Name, nil, y, s.constant(n.Name, x.Type.DType, shape, b)))
}
