package ir

import (
	"math"

	"github.com/spark-compile/spark-compile/internal/minifloat"
)

// GradRule builds the gradients of a node's inputs; nil stands for zero. A rule may return a gradient of the
// broadcast shape: the caller sums it down to the operand's shape.
type GradRule = func(g *Gradient, n *Node) []*Value

// flat is the rule of steps: their slope is 0 wherever they have one.
func flat(*Gradient, *Node) []*Value { return nil }

// through passes the gradient on as if the op were the identity.
func through(g *Gradient, _ *Node) []*Value { return []*Value{g.Dy[0]} }

// slope is the rule of functions of one operand, by their derivative.
func slope(f func(g *Gradient, x, y *Value) *Value) GradRule {
	return func(g *Gradient, n *Node) []*Value {
		return []*Value{g.op("Mul", g.Dy[0], f(g, n.Inputs[0], n.Outputs[0]))}
	}
}

// slopeOver is slope of functions whose derivative is one over something.
func slopeOver(f func(g *Gradient, x, y *Value) *Value) GradRule {
	return func(g *Gradient, n *Node) []*Value {
		return []*Value{g.op("Div", g.Dy[0], f(g, n.Inputs[0], n.Outputs[0]))}
	}
}

// plus adds a number.
func (x *Expansion) plus(v *Value, number float64) *Value { return x.op("Add", v, x.Like(v, number)) }

// less1 is one less v.
func (x *Expansion) less1(v *Value) *Value { return x.op("Sub", x.Like(v, 1), v) }

func (x *Expansion) square(v *Value) *Value { return x.op("Mul", v, v) }

var (
	gradNeg  = func(g *Gradient, _ *Node) []*Value { return []*Value{g.op("Neg", g.Dy[0])} }
	gradAbs  = slope(func(g *Gradient, x, _ *Value) *Value { return g.op("Sign", x) })
	gradSqrt = slopeOver(func(g *Gradient, _, y *Value) *Value { return g.times(y, 2) })
	gradExp  = slope(func(_ *Gradient, _, y *Value) *Value { return y })
	gradLog  = slopeOver(func(_ *Gradient, x, _ *Value) *Value { return x })

	gradLog1p = slopeOver(func(g *Gradient, x, _ *Value) *Value { return g.plus(x, 1) })
	gradSin   = slope(func(g *Gradient, x, _ *Value) *Value { return g.op("Cos", x) })
	gradCos   = slope(func(g *Gradient, x, _ *Value) *Value { return g.op("Neg", g.op("Sin", x)) })
	gradTan   = slope(func(g *Gradient, _, y *Value) *Value { return g.plus(g.square(y), 1) })
	gradAsin  = slopeOver(func(g *Gradient, x, _ *Value) *Value { return g.op("Sqrt", g.less1(g.square(x))) })
	gradAcos  = slopeOver(func(g *Gradient, x, _ *Value) *Value { return g.op("Neg", g.op("Sqrt", g.less1(g.square(x)))) })
	gradAtan  = slopeOver(func(g *Gradient, x, _ *Value) *Value { return g.plus(g.square(x), 1) })
	gradSinh  = slope(func(g *Gradient, x, _ *Value) *Value { return g.op("Cosh", x) })
	gradCosh  = slope(func(g *Gradient, x, _ *Value) *Value { return g.op("Sinh", x) })
	gradTanh  = slope(func(g *Gradient, _, y *Value) *Value { return g.less1(g.square(y)) })
	gradAsinh = slopeOver(func(g *Gradient, x, _ *Value) *Value { return g.op("Sqrt", g.plus(g.square(x), 1)) })
	gradAcosh = slopeOver(func(g *Gradient, x, _ *Value) *Value { return g.op("Sqrt", g.plus(g.square(x), -1)) })
	gradAtanh = slopeOver(func(g *Gradient, x, _ *Value) *Value { return g.less1(g.square(x)) })
	gradErf   = slope(func(g *Gradient, x, _ *Value) *Value {
		return g.times(g.op("Exp", g.op("Neg", g.square(x))), 2/math.SqrtPi)
	})
	gradSigmoid = slope(func(g *Gradient, _, y *Value) *Value { return g.op("Mul", y, g.less1(y)) })
	gradSilu    = slope(func(g *Gradient, x, _ *Value) *Value {
		s := g.op("Sigmoid", x)
		return g.op("Mul", s, g.plus(g.op("Mul", x, g.less1(s)), 1))
	})
)

// gradRelu is 0 at 0, as PyTorch's.
func gradRelu(g *Gradient, n *Node) []*Value {
	x := n.Inputs[0]
	return []*Value{g.op("Where", g.op("Greater", x, g.Like(x, 0)), g.Dy[0], g.Like(g.Dy[0], 0))}
}

func gradGelu(g *Gradient, n *Node) []*Value {
	x := n.Inputs[0]
	half := func(bent *Value) *Value { return g.times(g.plus(bent, 1), 0.5) }
	if n.Attrs.Bool("tanh") {
		const cubic = 0.044715
		k := math.Sqrt(2 / math.Pi)
		xx := g.square(x)
		t := g.op("Tanh", g.op("Mul", g.times(x, k), g.plus(g.times(xx, cubic), 1)))
		inner := g.times(g.plus(g.times(xx, 3*cubic), 1), k/2)
		d := g.op("Add", half(t), g.op("Mul", g.op("Mul", x, inner), g.less1(g.square(t))))
		return []*Value{g.op("Mul", g.Dy[0], d)}
	}
	root := n.Attrs.Float("sqrt2", math.Sqrt2)
	u := g.times(x, 1/root)
	bell := g.times(g.op("Exp", g.op("Neg", g.square(u))), 1/(root*math.SqrtPi))
	return []*Value{g.op("Mul", g.Dy[0], g.op("Add", half(g.op("Erf", u)), g.op("Mul", x, bell)))}
}

func gradAdd(g *Gradient, _ *Node) []*Value { return []*Value{g.Dy[0], g.Dy[0]} }

func gradSub(g *Gradient, _ *Node) []*Value { return []*Value{g.Dy[0], g.op("Neg", g.Dy[0])} }

func gradMul(g *Gradient, n *Node) []*Value {
	return []*Value{g.op("Mul", g.Dy[0], n.Inputs[1]), g.op("Mul", g.Dy[0], n.Inputs[0])}
}

func gradDiv(g *Gradient, n *Node) []*Value {
	da := g.op("Div", g.Dy[0], n.Inputs[1])
	return []*Value{da, g.op("Neg", g.op("Mul", da, n.Outputs[0]))}
}

// gradMod: a less b times a whole number, which does not move.
func gradMod(g *Gradient, n *Node) []*Value {
	times := g.op("Round", g.op("Div", g.op("Sub", n.Inputs[0], n.Outputs[0]), n.Inputs[1]))
	return []*Value{g.Dy[0], g.op("Neg", g.op("Mul", g.Dy[0], times))}
}

// gradPow: a base of 0 under an exponent of 0 has slope 0; the exponent of a base that is not positive has none.
func gradPow(g *Gradient, n *Node) []*Value {
	a, b, dy := n.Inputs[0], g.cast(n.Inputs[1], n.Inputs[0].Type.DType), g.Dy[0]
	zero := g.Like(a, 0)
	da := g.op("Mul", b, g.op("Pow", a, g.plus(b, -1)))
	da = g.op("Mul", dy, g.op("Where", g.op("Equal", b, zero), zero, da))
	if !g.Wants(1) {
		return []*Value{da}
	}
	positive := g.op("Greater", a, zero)
	log := g.op("Where", positive, g.op("Log", g.op("Where", positive, a, g.Like(a, 1))), zero)
	return []*Value{da, g.op("Mul", dy, g.op("Mul", n.Outputs[0], log))}
}

// gradChosen is the rule of Min and Max: equal operands share the gradient, as PyTorch's and JAX's do.
func gradChosen(g *Gradient, n *Node) []*Value {
	a, b, dy := n.Inputs[0], n.Inputs[1], g.Dy[0]
	wins := g.op("Less", a, b)
	if n.Op.Name == "Max" {
		wins = g.op("Less", b, a)
	}
	whole, half, none := g.Like(dy, 1), g.Like(dy, 0.5), g.Like(dy, 0)
	share := g.op("Where", wins, whole, g.op("Where", g.op("Equal", a, b), half, none))
	return []*Value{g.op("Mul", dy, share), g.op("Mul", dy, g.less1(share))}
}

func gradWhere(g *Gradient, n *Node) []*Value {
	cond, dy := n.Inputs[0], g.Dy[0]
	none := g.Like(dy, 0)
	return []*Value{nil, g.op("Where", cond, dy, none), g.op("Where", cond, none, dy)}
}

// scaleOf is a quantisation's scale or zero point as floats of v's type, under a shape that broadcasts to the operand.
func (g *Gradient) scaleOf(n *Node, i int, like *Value) *Value {
	x, s := n.Inputs[0].Type, g.cast(n.Inputs[i], like.Type.DType)
	if g.err != nil || s.Type.Numel() == 1 {
		return g.shaped(s)
	}
	axis, block := n.Attrs.Int("axis", 1), n.Attrs.Int("block", 0)
	if block == 0 {
		shape := make([]int, x.Rank())
		for k := range shape {
			shape[k] = 1
		}
		shape[axis] = x.Shape[axis]
		return g.shaped(s, shape...)
	}
	shape := append(append(append([]int{}, s.Type.Shape[:axis+1]...), 1), s.Type.Shape[axis+1:]...)
	s = g.Reshape(s, shape...)
	shape[axis+1] = block
	s = g.Add("Expand", Attrs{"shape": shape}, s)
	flat := append(append(append([]int{}, shape[:axis]...), shape[axis]*block), shape[axis+2:]...)
	return g.Add("Slice", Attrs{"starts": make([]int, x.Rank()), "sizes": x.Shape}, g.Reshape(s, flat...))
}

// gradQuantize is the straight-through estimator (Bengio, Léonard and Courville 2013): the slope of x/scale where the
// code is not clipped, else 0.
func gradQuantize(g *Gradient, n *Node) []*Value {
	if g.Wants(1) {
		return g.Refuse("the scale of a quantisation has no gradient")
	}
	x, dy := n.Inputs[0], g.Dy[0]
	scale := g.scaleOf(n, 1, x)
	code := g.op("Div", x, scale)
	if n.In(2) != nil {
		code = g.op("Add", code, g.scaleOf(n, 2, x))
	}
	return []*Value{g.op("Div", g.unclipped(g.cast(dy, x.Type.DType), code, n.Attrs.DType("to")), scale)}
}

// unclipped is dy where the code, before it is rounded to type d, rounds to a number of d; else 0.
func (g *Gradient) unclipped(dy, code *Value, d DType) *Value {
	var least, most float64
	if d.IsFloat() {
		least, most = -d.Format().Max(), d.Format().Max()
	} else {
		lo, hi := minifloat.Range(d.Bits(), d.IsSigned())
		least, most, code = float64(lo), float64(hi), g.op("Round", code)
	}
	in := g.op("And", g.op("LessEqual", g.Like(code, least), code), g.op("LessEqual", code, g.Like(code, most)))
	return g.op("Where", in, dy, g.Like(dy, 0))
}

// gradDequantize carries the gradient to the codes.
func gradDequantize(g *Gradient, n *Node) []*Value {
	if g.Wants(1) {
		return g.Refuse("the scale of a quantisation has no gradient")
	}
	return []*Value{g.op("Mul", g.Dy[0], g.scaleOf(n, 1, g.Dy[0]))}
}

func gradFakeQuantize(g *Gradient, n *Node) []*Value {
	scale, zero := n.Attrs.Float("scale", 1), n.Attrs.Float("zero", 0)
	code := g.plus(g.op("Div", n.Inputs[0], g.Like(n.Inputs[0], scale)), zero)
	dy := g.unclipped(g.Dy[0], code, n.Attrs.DType("to"))
	if n.Attrs.Bool("codes") {
		dy = g.times(dy, 1/scale)
	}
	return []*Value{dy}
}
