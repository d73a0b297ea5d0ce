package passes

import (
	"github.com/spark-compile/spark-compile/ir"
)

var _ = register(Pass{
	Name:    "recognise-quantised",
	Summary: "DequantizeLinear of a QuantizeLinear of the same scale becomes one FakeQuantize",
	After:   map[string]string{"promote-f32": "its patterns expect f32 scales and values"},
	Run: func(ctx *Context, g *ir.Graph) error {
		return rewriteToFixpoint(g, func(s *sweep, n *ir.Node) {
			if n.Op.Name == "DequantizeLinear" && dequantised(s, n) {
				ctx.quantisedFile = true
			}
		})
	},
})

// dequantised replaces DequantizeLinear(QuantizeLinear(x)) of one scale and zero point. Of constants pass fold keeps
// what they were stored as.
func dequantised(s *sweep, n *ir.Node) bool {
	q := defOp(n.Inputs[0], "QuantizeLinear")
	if q == nil || q.Inputs[0].IsConst() || n.Attrs.DType("to") != ir.Float32 || q.Inputs[0].Type.DType != ir.Float32 {
		return false
	}
	scale, ok := scalarOf(q.Inputs[1])
	back, ok2 := scalarOf(n.Inputs[1])
	zero, ok3 := zeroOf(q)
	zeroBack, ok4 := zeroOf(n)
	d := q.Attrs.DType("to")
	if !ok || !ok2 || !ok3 || !ok4 || scale != back || zero != zeroBack || scale <= 0 ||
		!(d == ir.Float8E4M3FN && zero == 0) && !(d.IsInt() && d.Bits() <= 8) {
		return false
	}
	attrs := ir.Attrs{"to": d, "scale": scale, "zero": zero, "saturate": q.Flag("saturate")}
	s.replace(n.Outputs[0], s.add("FakeQuantize", n.Name, attrs, q.Inputs[0]))
	return true
}

// zeroOf returns the only zero point of a Quantize- or DequantizeLinear.
func zeroOf(n *ir.Node) (float64, bool) {
	if n.In(2) == nil {
		return 0, true
	}
	return scalarOf(n.Inputs[2])
}
