package passes

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

var recogniseSoftmax = Pass{
	Name:    "recognise-softmax",
	Summary: "exp(x-max)/Σ, with or without the maximum, becomes Softmax; its logarithm LogSoftmax",
	After: map[string]string{
		"simplify": "matching sees through no casts or expansions",
	},
	Run: func(_ *Context, g *ir.Graph) error {
		return rewriteToFixpoint(g, func(s *sweep, n *ir.Node) {
			switch n.Op.Name {
			case "Div":
				softmaxOf(s, n, n.Inputs[0], n.Inputs[1])
			case "Mul":
				mirrored(n, func(e, r *ir.Value) bool {
					rec := defOp(r, "Reciprocal")
					return rec != nil && softmaxOf(s, n, e, rec.Inputs[0])
				})
			case "Log":
				logOfSoftmax(s, n)
			case "Sub":
				logSoftmaxOf(s, n)
			}
		})
	},
}

// softmaxOf replaces n, which divides e by sum, if e = exp(x) or exp(x-max x) and sum = Σ e.
func softmaxOf(s *sweep, n *ir.Node, e, sum *ir.Value) bool {
	exp := defOp(e, "Exp")
	axis, ok := rowReduction(sum, "ReduceSum", e)
	if exp == nil || !ok || !e.Type.Equal(n.Outputs[0].Type) {
		return false
	}
	x := withoutMax(exp.Inputs[0], axis)
	s.replace(n.Outputs[0], s.add("Softmax", n.Name, ir.Attrs{"axis": axis}, x))
	return true
}

// logOfSoftmax matches log(softmax(x)).
func logOfSoftmax(s *sweep, n *ir.Node) {
	if sm := defOp(n.Inputs[0], "Softmax"); sm != nil {
		s.replace(n.Outputs[0], s.add("LogSoftmax", n.Name, ir.Attrs{"axis": sm.Attrs.Int("axis", 0)}, sm.Inputs[0]))
	}
}

// logSoftmaxOf matches x - log(Σ exp(x)), x possibly less its maximum.
func logSoftmaxOf(s *sweep, n *ir.Node) {
	log := defOp(n.Inputs[1], "Log")
	if log == nil {
		return
	}
	sum := defOp(log.Inputs[0], "ReduceSum")
	if sum == nil {
		return
	}
	exp := defOp(sum.Inputs[0], "Exp")
	if exp == nil || exp.Inputs[0] != n.Inputs[0] {
		return
	}
	if axis, ok := rowReduction(log.Inputs[0], "ReduceSum", sum.Inputs[0]); ok {
		x := withoutMax(n.Inputs[0], axis)
		s.replace(n.Outputs[0], s.add("LogSoftmax", n.Name, ir.Attrs{"axis": axis}, x))
	}
}

// withoutMax returns y if x = y - max(y) along axis, else x.
func withoutMax(x *ir.Value, axis int) *ir.Value {
	sub := defOp(x, "Sub")
	if sub == nil {
		return x
	}
	y := sub.Inputs[0]
	if a, ok := rowReduction(sub.Inputs[1], "ReduceMax", y); ok && a == axis && y.Type.Equal(x.Type) {
		return y
	}
	return x
}

// rowReduction reports the one axis along which v reduces x by op in such a way that v broadcasts back over x.
func rowReduction(v *ir.Value, op string, x *ir.Value) (int, bool) {
	n := defOp(v, op)
	if n == nil || n.Inputs[0] != x {
		return 0, false
	}
	axes := n.Attrs.Ints("axes")
	if len(axes) != 1 {
		return 0, false
	}
	// Without keepdims the result still lines up with x if the axis is the first one.
	return axes[0], n.Attrs.Bool("keepdims") || axes[0] == 0
}

// trailingAxes returns the first of a set of axes that reaches to the last dimension without a gap.
func trailingAxes(axes []int, rank int) (int, bool) {
	if len(axes) == 0 {
		return 0, false
	}
	first := rank - len(axes)
	want := make([]int, len(axes))
	for i := range want {
		want[i] = first + i
	}
	return first, slices.Equal(axes, want)
}
