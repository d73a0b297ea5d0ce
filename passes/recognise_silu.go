package passes

import "github.com/spark-compile/spark-compile/ir"

var recogniseSilu = Pass{
	Name:    "recognise-silu",
	Summary: "x·sigmoid(x) becomes Silu; 1/(1+exp(-x)) becomes Sigmoid",
	After: map[string]string{
		"simplify": "matching sees through no casts or expansions",
	},
	Run: func(_ *Context, g *ir.Graph) error {
		return rewriteToFixpoint(g, func(s *sweep, n *ir.Node) {
			switch n.Op.Name {
			case "Mul":
				silu(s, n)
			case "Div":
				if one, ok := scalarOf(n.Inputs[0]); ok && one == 1 {
					sigmoid(s, n, n.Inputs[1])
				} else {
					siluByDivision(s, n)
				}
			case "Reciprocal":
				sigmoid(s, n, n.Inputs[0])
			}
		})
	},
}

func silu(s *sweep, n *ir.Node) {
	mirrored(n, func(x, gate *ir.Value) bool {
		if sig := defOp(gate, "Sigmoid"); sig == nil || sig.Inputs[0] != x {
			return false
		}
		s.replace(n.Outputs[0], s.add("Silu", n.Name, nil, x))
		return true
	})
}

// siluByDivision matches x/(1+exp(-x)).
func siluByDivision(s *sweep, n *ir.Node) {
	if x := n.Inputs[0]; onePlusExpOf(n.Inputs[1]) == x {
		s.replace(n.Outputs[0], s.add("Silu", n.Name, nil, x))
	}
}

// sigmoid replaces n by Sigmoid(x) if denominator is 1+exp(-x).
func sigmoid(s *sweep, n *ir.Node, denominator *ir.Value) {
	if x := onePlusExpOf(denominator); x != nil && x.Type.Equal(n.Outputs[0].Type) {
		s.replace(n.Outputs[0], s.add("Sigmoid", n.Name, nil, x))
	}
}

// onePlusExpOf returns x if v is 1+exp(-x), else nil.
func onePlusExpOf(v *ir.Value) *ir.Value {
	add := defOp(v, "Add")
	if add == nil {
		return nil
	}
	var x *ir.Value
	mirrored(add, func(one, e *ir.Value) bool {
		c, ok := scalarOf(one)
		exp := defOp(e, "Exp")
		if !ok || c != 1 || exp == nil {
			return false
		}
		if neg := defOp(exp.Inputs[0], "Neg"); neg != nil {
			x = neg.Inputs[0]
		} else if mul := defOp(exp.Inputs[0], "Mul"); mul != nil {
			mirrored(mul, func(c, w *ir.Value) bool {
				k, ok := scalarOf(c)
				if ok && k == -1 {
					x = w
				}
				return x != nil
			})
		}
		return x != nil
	})
	return x
}
