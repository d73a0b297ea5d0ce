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
		return rewriteToFixpoint(g, func(s *sweep, n *ir.Node) {
			if n.Op.Name == "Mul" || n.Op.Name == "Div" {
				gelu(s, n)
			}
		})
	},
})

// gelu matches a product whose factors, however associated, are x, 1+f(x) and constants that multiply to one half.
func gelu(s *sweep, n *ir.Node) {
	p := flattenProduct(s, n)
	if len(p.factors) != 2 {
		return
	}
	for i := range p.factors {
		x, gate := p.factors[i], p.factors[1-i]
		half, f := onePlus(s, gate)
		if f == nil || !near(float64(half*p.constant), 0.5, 1e-6) || !x.Type.Equal(n.Outputs[0].Type) {
			continue
		}
		attrs := geluAttrs(s, x, f)
		if attrs != nil {
			s.replace(n.Outputs[0], s.add("Gelu", n.Name, attrs, x))
			return
		}
	}
}

// geluAttrs reads the constants of f, the inner function of a Gelu of x, or returns nil.
func geluAttrs(s *sweep, x *ir.Value, f *ir.Node) ir.Attrs {
	switch f.Op.Name {
	case "Erf":
		p := flattenProductOf(s, f.Inputs[0], x)
		if len(p.factors) != 1 || p.factors[0] != x {
			return nil
		}
		sqrt2 := 1 / p.constant
		if p.divisor != 0 {
			sqrt2 = p.divisor
		}
		if !near(sqrt2, math.Sqrt2, 1e-2) {
			return nil
		}
		return ir.Attrs{"sqrt2": sqrt2}
	case "Tanh":
		c, ok := cubicOf(s, f.Inputs[0], x)
		k := math.Sqrt(2 / math.Pi)
		if !ok || c[0] != 0 || c[2] != 0 || !near(c[1], k, 1e-6) || !near(c[3], float64(k*0.044715), 1e-6) {
			return nil
		}
		return ir.Attrs{"tanh": true}
	}
	return nil
}

// onePlus matches c·(1 + f), written c + c·f, and returns c and the node of f, an Erf or a Tanh.
func onePlus(s *sweep, v *ir.Value) (float64, *ir.Node) {
	add := defOp(v, "Add")
	if add == nil || !s.only(v) {
		return 0, nil
	}
	var half float64
	var f *ir.Node
	mirrored(add, func(c, w *ir.Value) bool {
		scalar, ok := scalarOf(c)
		if !ok {
			return false
		}
		p := flattenProductOf(s, w, nil)
		if len(p.factors) != 1 || !near(p.constant, scalar, 1e-6) {
			return false
		}
		if n := defOp(p.factors[0], "Erf", "Tanh"); n != nil && s.only(p.factors[0]) {
			half, f = scalar, n
			return true
		}
		return false
	})
	return half, f
}

// cubicOf reads v as a polynomial of degree ≤ 3 in x: coefficients by degree.
func cubicOf(s *sweep, v, x *ir.Value) ([4]float64, bool) {
	var none [4]float64
	if v == x {
		return [4]float64{1: 1}, true
	}
	if c, ok := scalarOf(v); ok {
		return [4]float64{0: c}, true
	}
	n := defOp(v, "Add", "Mul", "Div", "Pow")
	if n == nil {
		return none, false
	}
	a, ok := cubicOf(s, n.Inputs[0], x)
	if !ok {
		return none, false
	}
	b, ok := cubicOf(s, n.Inputs[1], x)
	if !ok {
		return none, false
	}
	switch n.Op.Name {
	case "Add":
		for i := range a {
			a[i] += b[i]
		}
		return a, true
	case "Mul":
		return mulCubic(a, b)
	}
	if b != [4]float64{b[0]} {
		return none, false
	}
	if n.Op.Name == "Div" {
		for i := range a {
			a[i] /= b[0]
		}
		return a, b[0] != 0
	}
	power := [4]float64{1}
	for range int(b[0]) {
		if power, ok = mulCubic(power, a); !ok {
			return none, false
		}
	}
	return power, b[0] == 2 || b[0] == 3
}

// mulCubic multiplies two polynomials; false if the product's degree exceeds 3.
func mulCubic(a, b [4]float64) (out [4]float64, ok bool) {
	for i, x := range a {
		for j, y := range b {
			switch {
			case x == 0 || y == 0:
			case i+j > 3:
				return out, false
			default:
				out[i+j] += float64(x * y)
			}
		}
	}
	return out, true
}

// product is a chain of Mul and Div by scalars, flattened.
type product struct {
	factors  []*ir.Value // not constant
	constant float64
	divisor  float64 // the constant, if the chain is one division by it: 1/(1/c) need not be c
}

// flattenProduct flattens the product that n is the root of. Only nodes that nothing else reads are looked into.
func flattenProduct(s *sweep, n *ir.Node) product {
	p := product{constant: 1}
	p.enter(s, n, nil)
	return p
}

// flattenProductOf flattens the product that makes v, not looking into stop.
func flattenProductOf(s *sweep, v, stop *ir.Value) product {
	p := product{constant: 1}
	p.multiply(s, v, stop)
	return p
}

func (p *product) multiply(s *sweep, v, stop *ir.Value) {
	if c, ok := scalarOf(v); ok {
		p.constant = float64(p.constant * c)
		p.divisor = 0
		return
	}
	n := defOp(v, "Mul", "Div")
	if v == stop || n == nil || !s.only(v) {
		p.factors = append(p.factors, v)
		return
	}
	p.enter(s, n, stop)
}

func (p *product) enter(s *sweep, n *ir.Node, stop *ir.Value) {
	if n.Op.Name == "Mul" {
		p.multiply(s, n.Inputs[0], stop)
		p.multiply(s, n.Inputs[1], stop)
		return
	}
	c, ok := scalarOf(n.Inputs[1])
	if !ok {
		p.factors = append(p.factors, n.Outputs[0])
		return
	}
	p.multiply(s, n.Inputs[0], stop)
	first := p.constant == 1
	p.constant /= c
	if p.divisor = 0; first {
		p.divisor = c
	}
}

// near reports whether a is b up to a relative tolerance.
func near(a, b, tolerance float64) bool { return math.Abs(a-b) <= tolerance*math.Abs(b) }
