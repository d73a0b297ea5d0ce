package passes

import "github.com/spark-compile/spark-compile/ir"

var _ = register(Pass{
	Name:    "recognise-softmax",
	Summary: "recognise exp(x-max)/Σ, with or without the maximum, as Softmax and its logarithm as LogSoftmax",
	After: map[string]string{
		"simplify": "patterns do not look through casts or expansions",
	},
	Run: func(_ *Context, g *ir.Graph) error {
		e := bind("e")
		sum := reduced("ReduceSum", "axis", rowAxis, e)
		patterns := []struct {
			op   string
			from pattern
		}{
			{"Softmax", op("Div", e, sum)},
			{"Softmax", op("Mul", e, op("Reciprocal", sum))},
			{"LogSoftmax", op("Log", as("softmax", op("Softmax", bind("x"))))},
			{"LogSoftmax", op("Sub", bind("x"), op("Log", reduced("ReduceSum", "axis", rowAxis, as("e", op("Exp", bind("x"))))))},
		}
		return rewriteToFixpoint(g, func(s *sweep, n *ir.Node) {
			for _, p := range patterns {
				if b := match(p.from, n.Outputs[0]); b != nil && softmaxOf(s, n, p.op, b) {
					return
				}
			}
		})
	},
})

// softmaxOf replaces n by the softmax, or its logarithm, of x less its maximum or of x, where e = exp(x).
func softmaxOf(s *sweep, n *ir.Node, to string, b *bindings) bool {
	x, axis := b.values["x"], b.axes["axis"]
	if sm := b.values["softmax"]; sm != nil {
		axis = sm.Def.Attrs.Int("axis", 0)
	} else {
		exp := defOp(b.values["e"], "Exp")
		if exp == nil || !exp.Outputs[0].Type.Equal(n.Outputs[0].Type) {
			return false
		}
		x = withoutMax(exp.Inputs[0], axis)
	}
	s.replace(n.Outputs[0], s.add(to, n.Name, ir.Attrs{"axis": axis}, x))
	return true
}

// withoutMax returns y if x = y - max(y) along axis, else x.
func withoutMax(x *ir.Value, axis int) *ir.Value {
	y := bind("y")
	b := match(op("Sub", y, reduced("ReduceMax", "axis", rowAxis, y)), x)
	if b != nil && b.axes["axis"] == axis && b.values["y"].Type.Equal(x.Type) {
		return b.values["y"]
	}
	return x
}

// rowAxis is the one axis of a reduction whose result broadcasts back over its operand.
func rowAxis(n *ir.Node) (int, bool) {
	axes := n.Attrs.Ints("axes")
	if len(axes) != 1 {
		return 0, false
	}
	// Without keepdims the result still lines up with x if the axis is the first one.
	return axes[0], n.Attrs.Bool("keepdims") || axes[0] == 0
}

// trailingAxes returns the first of a set of axes that reaches to the last dimension without a gap.
func trailingAxes(axes []int, rank int) (int, bool) {
	first := rank - len(axes)
	for i, a := range axes {
		if a != first+i {
			return 0, false
		}
	}
	return first, len(axes) > 0
}
