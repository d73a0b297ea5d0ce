package passes

import (
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
)

var _ = register(Pass{
	Name:    "expand",
	Summary: "unroll short GRU, LSTM and RNN layers, with one MatMul for the inputs of all steps; split Einsum into MatMuls and the gradient of an attention that no kernel computes into its products, long CumSum and CumProd into blocks",
	Run: func(ctx *Context, g *ir.Graph) error {
		_, err := rewrite(g, func(s *sweep, n *ir.Node) {
			switch {
			case n.Op.Name == "CumSum" || n.Op.Name == "CumProd":
				if y := scanByBlocks(s, n); y != nil {
					s.replace(n.Outputs[0], y)
				}
				return
			case n.Op.Expand == nil || n.Role() == ir.RoleContraction && ctx.onTensorCores():
				return
			case n.Op.Kind == ir.KindScan && n.Inputs[0].Type.Shape[0]*n.Inputs[1].Type.Shape[0] <= maxSteps:
			case n.Op.Kind == ir.KindContraction:
			default:
				return
			}
			nodes, outs, err := n.Expand(g)
			if err != nil {
				s.err = err
				return
			}
			for _, m := range nodes {
				s.place(m)
			}
			for i, v := range outs {
				s.replace(n.Outputs[i], v)
			}
		})
		return err
	},
})

// maxSteps bounds the unrolled steps of one layer, both directions together.
const maxSteps = 256

// onTensorCores reports whether anchors multiply 16 bits or fewer, which narrow stores, on tensor cores. A composite
// that is an anchor has a kernel for these alone.
func (ctx *Context) onTensorCores() bool {
	p, err := precision.Lookup(ctx.Precision)
	return err == nil && pipelineOf(p)&narrowed != 0
}
