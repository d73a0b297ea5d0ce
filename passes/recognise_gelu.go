package passes

import (
	"math"

	"github.com/spark-compile/spark-compile/ir"
)

var _ = register(Pass{
	Name:    "recognise-gelu",
	Summary: "recognise 0.5·x·(1+erf(x/√2)) and its tanh approximation, in any order, as Gelu with the file's value of √2",
	After: map[string]string{
		"simplify": "patterns do not look through casts or expansions",
	},
	Tolerance: 1e-6, // the tanh form's constants have few digits in files
	Run: func(_ *Context, g *ir.Graph) error {
		p := geluPattern()
		_, err := rewrite(g, func(s *sweep, n *ir.Node) {
			if b := match(p, n.Outputs[0]); b != nil && b.values["x"].Type.Equal(n.Outputs[0].Type) {
				if attrs := geluAttrs(b.numbers); attrs != nil {
					s.replace(n.Outputs[0], s.add("Gelu", n.Name, attrs, b.values["x"]))
				}
			}
		})
		return err
	},
})

func geluPattern() pattern {
	x, half, k := bind("x"), number(0.5), anyNumber("cubed")
	square := op("Mul", x, x)
	cubed := either(op("Mul", k, op("Pow", x, number(3))), op("Mul", k, op("Mul", square, x)), op("Mul", op("Mul", op("Mul", k, x), x), x))
	squared := either(op("Mul", k, square), op("Mul", op("Mul", k, x), x))
	f := either(
		op("Erf", either(op("Div", x, anyNumber("sqrt2")), op("Mul", x, anyNumber("inverse")))),
		op("Tanh", either(op("Mul", anyNumber("linear"), op("Add", x, cubed)),
			op("Mul", op("Mul", x, anyNumber("linear")), op("Add", number(1), squared)))))
	gate, halfGate := op("Add", number(1), f), op("Add", half, op("Mul", half, f))
	return either(op("Mul", op("Mul", x, half), gate), op("Mul", half, op("Mul", x, gate)), op("Mul", x, op("Mul", half, gate)), op("Mul", x, halfGate))
}

// geluAttrs reads the constants of a Gelu, or returns nil if they are those of another function.
func geluAttrs(numbers map[string]float64) ir.Attrs {
	sqrt2 := numbers["sqrt2"]
	if inverse, ok := numbers["inverse"]; ok {
		sqrt2 = 1 / inverse
	}
	linear := math.Sqrt(2 / math.Pi)
	switch {
	case near(sqrt2, math.Sqrt2, 1e-2):
		return ir.Attrs{"sqrt2": sqrt2}
	case near(numbers["linear"], linear, 1e-6) && near(float64(numbers["linear"]*numbers["cubed"]), float64(linear*0.044715), 1e-6):
		return ir.Attrs{"tanh": true}
	}
	return nil
}

// near reports whether a is b up to a relative tolerance.
func near(a, b, tolerance float64) bool { return math.Abs(a-b) <= tolerance*math.Abs(b) }
