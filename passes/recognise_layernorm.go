package passes

import "github.com/spark-compile/spark-compile/ir"

var _ = register(Pass{
	Name:    "recognise-layernorm",
	Summary: "recognise (x-mean)/√(var+ε)·scale+bias as LayerNorm and x/√(mean x²+ε)·scale as RMSNorm",
	After: map[string]string{
		"simplify": "patterns do not look through casts or expansions",
		"cse":      "exporters write x-mean twice; it must be one value to match",
	},
	Run: func(_ *Context, g *ir.Graph) error {
		d := bind("d")
		square := either(op("Mul", d, d), op("Pow", d, number(2)))
		variance := op("Add", anyNumber("epsilon"), reduced("ReduceMean", "axis", keptTrailingAxes, square))
		root := op("Sqrt", variance)
		rootInverse := either(op("Reciprocal", root), op("Sqrt", op("Reciprocal", variance)), op("Div", number(1), root), op("Pow", variance, number(-0.5)))
		normalised := either(op("Div", d, root), op("Mul", d, rootInverse))
		return rewriteToFixpoint(g, func(s *sweep, n *ir.Node) {
			if b := match(normalised, n.Outputs[0]); b != nil && normalise(s, n, b) {
				return
			}
			switch n.Op.Name {
			case "Mul":
				normParameter(s, n, 1, "LayerNorm", "RMSNorm")
			case "Add":
				normParameter(s, n, 2, "LayerNorm")
			}
		})
	},
})

// normalise replaces n = d/√(mean(d²)+ε): by LayerNorm of x if d = x - mean(x), else by RMSNorm of d.
func normalise(s *sweep, n *ir.Node, b *bindings) bool {
	d, axis := b.values["d"], b.axes["axis"]
	if !d.Type.Equal(n.Outputs[0].Type) || !d.Type.DType.IsFloat() {
		return false
	}
	to, x := "RMSNorm", bind("x")
	centred := match(op("Sub", x, reduced("ReduceMean", "axis", keptTrailingAxes, x)), d)
	if centred != nil && centred.axes["axis"] == axis && centred.values["x"].Type.Equal(d.Type) {
		to, d = "LayerNorm", centred.values["x"]
	}
	s.replace(n.Outputs[0], s.add(to, n.Name, ir.Attrs{"axis": axis, "epsilon": b.numbers["epsilon"]}, d))
	return true
}

// keptTrailingAxes is the first axis of a reduction over the last dimensions whose result broadcasts back.
func keptTrailingAxes(n *ir.Node) (int, bool) {
	axis, ok := trailingAxes(n.Attrs.Ints("axes"), n.Inputs[0].Type.Rank())
	return axis, ok && n.Attrs.Bool("keepdims")
}

// normParameter takes a constant over the normalised dimensions into a norm: a factor as its scale, input 1; a term
// as its bias, input 2.
func normParameter(s *sweep, n *ir.Node, input int, norms ...string) {
	mirrored(n, func(x, c *ir.Value) bool {
		norm := defOp(x, norms...)
		if norm == nil || !s.only(x) || norm.In(input) != nil || norm.In(2) != nil || !fitsNorm(norm, c) {
			return false
		}
		inputs := []*ir.Value{norm.Inputs[0], norm.In(1), c}
		if input == 1 {
			inputs = []*ir.Value{norm.Inputs[0], c}
		}
		s.replace(n.Outputs[0], s.add(norm.Op.Name, n.Name, norm.Attrs, inputs...))
		return true
	})
}

// fitsNorm reports whether c is a constant of the norm's type that varies along normalised dimensions only.
func fitsNorm(norm *ir.Node, c *ir.Value) bool {
	x := norm.Inputs[0].Type
	return c.IsConst() && c.Type.DType == x.DType && ir.BroadcastsTo(c.Type.Shape, x.Shape[norm.Attrs.Int("axis", 0):])
}
