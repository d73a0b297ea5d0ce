package passes

import (
	"slices"

	"github.com/spark-compile/spark-compile/internal/minifloat"
	"github.com/spark-compile/spark-compile/ir"
)

var recogniseQuantised = Pass{
	Name:    "recognise-quantised",
	Summary: "QuantizeLinear and DequantizeLinear of one scale become the rounding that they mean; the scale moves into the weights of its readers",
	After: map[string]string{
		"widen": "scales and values are f32 then",
		"fold":  "quantised weights are f32 constants then, to which a scale can be applied",
	},
	Run: func(ctx *Context, g *ir.Graph) error {
		return rewriteToFixpoint(g, func(s *sweep, n *ir.Node) {
			switch {
			case n.Op.Name == "DequantizeLinear":
				if dequantised(s, n) {
					ctx.quantisedFile = true
				}
			case ctx.quantisedFile && (n.Op.Name == "Conv" || n.Op.Name == "MatMul"):
				scaleIntoWeights(s, n)
			}
		})
	},
}

// dequantised replaces DequantizeLinear(QuantizeLinear(x)) of one scale by s·q(x/s). The zero point drops out: of integers
// it only shifts the range to which the quotient is clamped. What travels between regions is then the quotient: an e4m3
// number, or an integer that f16 holds exactly.
func dequantised(s *sweep, n *ir.Node) bool {
	q := defOp(n.Inputs[0], "QuantizeLinear")
	if q == nil || n.Attrs.DType("to") != ir.Float32 || q.Inputs[0].Type.DType != ir.Float32 {
		return false
	}
	scale, ok := scalarOf(q.Inputs[1])
	back, ok2 := scalarOf(n.Inputs[1])
	zero, ok3 := zeroOf(q)
	zeroBack, ok4 := zeroOf(n)
	if !ok || !ok2 || !ok3 || !ok4 || scale != back || zero != zeroBack || scale <= 0 {
		return false
	}
	d := q.Attrs.DType("to")
	ratio := s.add("Div", q.Name, nil, q.Inputs[0], s.scalar("scale", ir.Float32, scale))
	var y *ir.Value
	switch {
	case d == ir.Float8E4M3FN && zero == 0:
		y = s.add("Cast", q.Name, ir.Attrs{"to": d, "saturate": q.Attrs["saturate"] == nil || q.Attrs.Bool("saturate")}, ratio)
		y = s.add("Cast", n.Name, ir.Attrs{"to": ir.Float32}, y)
	case d.IsInt() && d.Bits() <= 8:
		lo, hi := minifloat.Range(d.Bits(), d.IsSigned())
		y = s.add("Round", q.Name, nil, ratio)
		y = s.add("Max", q.Name, nil, y, s.scalar("least", ir.Float32, float64(lo)-zero))
		y = s.add("Min", n.Name, nil, y, s.scalar("greatest", ir.Float32, float64(hi)-zero))
	default:
		return false
	}
	s.replace(n.Outputs[0], s.add("Mul", n.Name, nil, y, s.scalar("scale", ir.Float32, scale)))
	return true
}

// zeroOf returns the only zero point of a Quantize- or DequantizeLinear.
func zeroOf(n *ir.Node) (float64, bool) {
	if n.In(2) == nil {
		return 0, true
	}
	return scalarOf(n.Inputs[2])
}

// scaleIntoWeights makes a product with s·q one of q with the weights times s. q is a rounded number: of nothing else is
// that an improvement.
func scaleIntoWeights(s *sweep, n *ir.Node) {
	m := defOp(n.Inputs[0], "Mul")
	if m == nil || !n.Inputs[1].IsConst() || defOp(m.Inputs[0], "Cast", "Min") == nil {
		return
	}
	scale, ok := scalarOf(m.Inputs[1])
	if !ok || m.Inputs[1].Type.Rank() != 0 {
		return
	}
	w := n.Inputs[1].Const
	xs := w.Floats()
	for i := range xs {
		xs[i] *= scale
	}
	s.setInput(n, 1, s.g.Constant(n.Inputs[1].Name, ir.FromFloats(ir.Type{DType: w.DType, Shape: slices.Clone(w.Shape)}, xs)))
	s.setInput(n, 0, m.Inputs[0])
}
