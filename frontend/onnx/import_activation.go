package onnx

import (
	"math"

	"github.com/spark-compile/spark-compile/ir"
)

var activationOperators = []operator{
	{name: "Relu", since: 7, convert: unaryOp("Relu")},
	{name: "Sigmoid", since: 7, convert: unaryOp("Sigmoid")},
	{name: "Tanh", since: 7, convert: unaryOp("Tanh")},
	{name: "LeakyRelu", since: 7, convert: composite(leakyRelu)},
	{name: "Elu", since: 7, convert: composite(elu)},
	{name: "Selu", since: 7, convert: composite(selu)},
	{name: "Celu", since: 12, convert: composite(celu)},
	{name: "PRelu", since: 7, convert: pRelu},
	{name: "HardSigmoid", since: 7, convert: composite(func(s *site, x *ir.Value) *ir.Value {
		return s.hardSigmoid(x, s.float("alpha", float64(float32(0.2))), s.float("beta", 0.5))
	})},
	{name: "HardSwish", since: 14, convert: composite(func(s *site, x *ir.Value) *ir.Value {
		return s.op("Mul", x, s.hardSigmoid(x, 1.0/6, 0.5))
	})},
	{name: "Softplus", since: 7, convert: composite((*site).softplus)},
	{name: "Softsign", since: 7, convert: composite(func(s *site, x *ir.Value) *ir.Value {
		return s.op("Div", x, s.op("Add", s.op("Abs", x), s.like(x, 1)))
	})},
	{name: "ThresholdedRelu", since: 10, convert: composite(func(s *site, x *ir.Value) *ir.Value {
		return s.where(s.op("Greater", x, s.like(x, s.float("alpha", 1))), x, s.like(x, 0))
	})},
	{name: "Mish", since: 18, convert: composite(func(s *site, x *ir.Value) *ir.Value {
		return s.op("Mul", x, s.op("Tanh", s.softplus(x)))
	})},
	{name: "Shrink", since: 9, convert: shrink},
	{name: "Gelu", since: 20, convert: func(s *site) {
		s.out(0, s.add("Gelu", ir.Attrs{"tanh": s.choice("approximate", "none", "tanh") == "tanh"}, s.in(0)))
	}},
	{name: "Swish", since: 24, convert: composite(func(s *site, x *ir.Value) *ir.Value {
		return s.swish(x, s.float("alpha", 1))
	})},
	{name: "SwiGLU", since: 28, convert: func(s *site) {
		a, b := s.in(0), s.in(1)
		y := s.op("Mul", s.swish(s.wide(a), s.float("alpha", 1)), s.wide(b))
		s.out(0, s.cast(y, a.Type.DType))
	}},
	{name: "Clip", since: 7, until: 10, convert: clipAttributes},
	{name: "Clip", since: 11, convert: clip},
	{name: "Dropout", since: 7, until: 11, convert: dropoutAttribute},
	{name: "Dropout", since: 12, shapes: []int{2}, convert: dropout},
}

// composite converts an operator of one operand that becomes several ops: it computes in the wide type and rounds to
// the operand's once, at the end.
func composite(f func(*site, *ir.Value) *ir.Value) func(*site) {
	return func(s *site) {
		x := s.in(0)
		s.out(0, s.cast(f(s, s.wide(x)), x.Type.DType))
	}
}

func leakyRelu(s *site, x *ir.Value) *ir.Value {
	alpha := s.like(x, s.float("alpha", float64(float32(0.01))))
	return s.where(s.op("Less", x, s.like(x, 0)), s.op("Mul", x, alpha), x)
}

// expm1Below is e^x-1 where x is negative; clamped, so that a large x of the other branch cannot overflow.
func (s *site) expm1Below(x *ir.Value) *ir.Value {
	return s.op("Sub", s.op("Exp", s.op("Min", x, s.like(x, 0))), s.like(x, 1))
}

func elu(s *site, x *ir.Value) *ir.Value {
	y := s.op("Mul", s.like(x, s.float("alpha", 1)), s.expm1Below(x))
	return s.where(s.op("Less", x, s.like(x, 0)), y, x)
}

func selu(s *site, x *ir.Value) *ir.Value {
	alpha := s.float("alpha", float64(float32(1.67326319217681884765625)))
	gamma := s.float("gamma", float64(float32(1.05070102214813232421875)))
	y := s.op("Mul", s.like(x, alpha), s.expm1Below(x))
	return s.op("Mul", s.like(x, gamma), s.where(s.op("Greater", x, s.like(x, 0)), x, y))
}

// celu is max(0,x) + min(0, α·(e^(x/α)-1)).
func celu(s *site, x *ir.Value) *ir.Value {
	alpha := s.like(x, s.float("alpha", 1))
	low := s.op("Mul", alpha, s.op("Sub", s.op("Exp", s.op("Div", x, alpha)), s.like(x, 1)))
	return s.op("Add", s.op("Max", x, s.like(x, 0)), s.op("Min", low, s.like(x, 0)))
}

func pRelu(s *site) {
	x, slope := s.in(0), s.in(1)
	w := s.wide(x)
	y := s.where(s.op("Less", w, s.like(w, 0)), s.op("Mul", w, s.wide(slope)), w)
	if y.Type.Rank() != x.Type.Rank() || y.Type.Numel() != x.Type.Numel() {
		s.fail("slope %v does not broadcast to x %v", slope.Type, x.Type)
	}
	s.out(0, s.cast(y, x.Type.DType))
}

// hardSigmoid is max(0, min(1, αx+β)).
func (s *site) hardSigmoid(x *ir.Value, alpha, beta float64) *ir.Value {
	y := s.op("Add", s.op("Mul", x, s.like(x, alpha)), s.like(x, beta))
	return s.op("Max", s.op("Min", y, s.like(x, 1)), s.like(x, 0))
}

// softplus is log(1+e^x) as max(x,0) + log1p(e^-|x|), which does not overflow.
func (s *site) softplus(x *ir.Value) *ir.Value {
	e := s.op("Exp", s.op("Neg", s.op("Abs", x)))
	return s.op("Add", s.op("Max", x, s.like(x, 0)), s.op("Log1p", e))
}

// swish is x·sigmoid(αx).
func (s *site) swish(x *ir.Value, alpha float64) *ir.Value {
	if alpha == 1 {
		return s.op("Silu", x)
	}
	return s.op("Mul", x, s.op("Sigmoid", s.op("Mul", x, s.like(x, alpha))))
}

// shrink follows Shrink 9 for integers too, whose arithmetic wraps.
func shrink(s *site) {
	x := s.in(0)
	bias, lambd := s.float("bias", 0), s.float("lambd", 0.5)
	w := x
	if !x.Type.DType.IsFloat() {
		w = s.cast(x, ir.Float32)
	}
	w = s.wide(w)
	low := s.op("Less", w, s.like(w, -lambd))
	high := s.op("Greater", w, s.like(w, lambd))
	y := s.where(low, s.op("Add", w, s.like(w, bias)),
		s.where(high, s.op("Sub", w, s.like(w, bias)), s.like(w, 0)))
	s.out(0, s.cast(y, x.Type.DType))
}

func clipAttributes(s *site) {
	y := s.in(0)
	if v := s.float("min", -math.MaxFloat32); v > -math.MaxFloat32 {
		y = s.op("Max", y, s.like(y, v))
	}
	if v := s.float("max", math.MaxFloat32); v < math.MaxFloat32 {
		y = s.op("Min", y, s.like(y, v))
	}
	s.out(0, y)
}

func clip(s *site) {
	y := s.in(0)
	for i, op := range []string{1: "Max", 2: "Min"} {
		if i == 0 || s.opt(i) == nil {
			continue
		}
		bound := s.in(i)
		if bound.Type.Numel() != 1 {
			s.fail("a bound is %v, want a scalar", bound.Type)
		}
		y = s.op(op, y, s.reshape(bound))
	}
	s.out(0, y)
}

// dropoutAttribute is Dropout 7 and 10, which does nothing at inference. Its mask has x's type before opset 10.
func dropoutAttribute(s *site) {
	x := s.in(0)
	s.out(0, x)
	d := ir.Bool
	if s.opset < 10 {
		d = x.Type.DType
	}
	s.out(1, s.fill(d, 1, x.Type.Shape...))
}

func dropout(s *site) {
	x := s.in(0)
	if t := s.known(2, "training_mode"); t != nil && t.Numel() == 1 && t.IntAt(0) != 0 {
		ratio := s.opt(1)
		if ratio == nil || !ratio.IsConst() || ratio.Type.Numel() != 1 || ratio.Const.FloatAt(0) != 0 {
			s.refuse("training_mode drops elements at random")
		}
	}
	s.out(0, x)
	s.out(1, s.fill(ir.Bool, 1, x.Type.Shape...))
}
