package passes

import "github.com/spark-compile/spark-compile/ir"

var expandRecurrent = Pass{
	Name:    "expand-recurrent",
	Summary: "short GRU, LSTM and RNN are unrolled; the product with the inputs becomes one MatMul over all steps",
	Run: func(_ *Context, g *ir.Graph) error {
		_, err := rewrite(g, func(s *sweep, n *ir.Node) {
			if n.Op.Kind != ir.KindScan || n.Op.Expand == nil || n.Inputs[0].Type.Shape[0]*n.Inputs[1].Type.Shape[0] > maxSteps {
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
}

// maxSteps bounds the unrolled steps of one layer, both directions together.
const maxSteps = 256
