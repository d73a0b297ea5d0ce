package passes

import "github.com/spark-compile/spark-compile/ir"

var _ = register(Pass{
	Name:    "recognise-silu",
	Summary: "recognise x·sigmoid(x) as Silu and 1/(1+exp(-x)) as Sigmoid",
	After: map[string]string{
		"simplify": "patterns do not look through casts or expansions",
	},
	Run: func(_ *Context, g *ir.Graph) error {
		x := bind("x")
		onePlusExp := op("Add", number(1), op("Exp", either(op("Neg", x), op("Mul", number(-1), x))))
		patterns := []struct {
			op   string
			from pattern
		}{
			{"Silu", op("Mul", x, op("Sigmoid", x))},
			{"Sigmoid", op("Div", number(1), onePlusExp)},
			{"Silu", op("Div", x, onePlusExp)},
			{"Sigmoid", op("Reciprocal", onePlusExp)},
		}
		return rewriteToFixpoint(g, func(s *sweep, n *ir.Node) {
			for _, p := range patterns {
				if b := match(p.from, n.Outputs[0]); b != nil && b.values["x"].Type.Equal(n.Outputs[0].Type) {
					s.replace(n.Outputs[0], s.add(p.op, n.Name, nil, b.values["x"]))
					return
				}
			}
		})
	},
})
