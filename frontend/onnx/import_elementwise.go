package onnx

import (
	"math"

	"github.com/spark-compile/spark-compile/ir"
)

var elementwiseOperators = []operator{
	{name: "Abs", since: 7, convert: unaryOp("Abs")},
	{name: "Neg", since: 7, convert: unaryOp("Neg")},
	{name: "Sign", since: 9, convert: unaryOp("Sign")},
	{name: "Ceil", since: 7, convert: unaryOp("Ceil")},
	{name: "Floor", since: 7, convert: unaryOp("Floor")},
	{name: "Round", since: 11, convert: unaryOp("Round")},
	{name: "Reciprocal", since: 7, convert: unaryOp("Reciprocal")},
	{name: "Sqrt", since: 7, convert: unaryOp("Sqrt")},
	{name: "Exp", since: 7, convert: unaryOp("Exp")},
	{name: "Log", since: 7, convert: unaryOp("Log")},
	{name: "Sin", since: 7, convert: unaryOp("Sin")},
	{name: "Cos", since: 7, convert: unaryOp("Cos")},
	{name: "Tan", since: 7, convert: unaryOp("Tan")},
	{name: "Asin", since: 7, convert: unaryOp("Asin")},
	{name: "Acos", since: 7, convert: unaryOp("Acos")},
	{name: "Atan", since: 7, convert: unaryOp("Atan")},
	{name: "Sinh", since: 9, convert: unaryOp("Sinh")},
	{name: "Cosh", since: 9, convert: unaryOp("Cosh")},
	{name: "Asinh", since: 9, convert: unaryOp("Asinh")},
	{name: "Acosh", since: 9, convert: unaryOp("Acosh")},
	{name: "Atanh", since: 9, convert: unaryOp("Atanh")},
	{name: "Erf", since: 9, convert: unaryOp("Erf")},
	{name: "Not", since: 7, convert: unaryOp("Not")},
	{name: "BitwiseNot", since: 18, convert: unaryOp("BitNot")},
	{name: "IsNaN", since: 9, convert: unaryOp("IsNaN")},
	{name: "IsInf", since: 10, convert: isInf},

	{name: "Add", since: 7, convert: binaryOp("Add")},
	{name: "Sub", since: 7, convert: binaryOp("Sub")},
	{name: "Mul", since: 7, convert: binaryOp("Mul")},
	{name: "Div", since: 7, convert: binaryOp("Div")},
	{name: "Pow", since: 7, convert: binaryOp("Pow")},
	{name: "Mod", since: 10, convert: mod},
	{name: "And", since: 7, convert: binaryOp("And")},
	{name: "Or", since: 7, convert: binaryOp("Or")},
	{name: "Xor", since: 7, convert: binaryOp("Xor")},
	{name: "BitwiseAnd", since: 18, convert: binaryOp("BitAnd")},
	{name: "BitwiseOr", since: 18, convert: binaryOp("BitOr")},
	{name: "BitwiseXor", since: 18, convert: binaryOp("BitXor")},
	{name: "BitShift", since: 11, convert: bitShift},
	{name: "Equal", since: 7, convert: binaryOp("Equal")},
	{name: "Less", since: 7, convert: binaryOp("Less")},
	{name: "Greater", since: 7, convert: binaryOp("Greater")},
	{name: "LessOrEqual", since: 12, convert: binaryOp("LessEqual")},
	{name: "GreaterOrEqual", since: 12, convert: binaryOp("GreaterEqual")},
	{name: "Where", since: 9, convert: func(s *site) { s.out(0, s.where(s.in(0), s.in(1), s.in(2))) }},

	{name: "Min", since: 7, convert: pairwise("Min")},
	{name: "Max", since: 7, convert: pairwise("Max")},
	{name: "Sum", since: 7, convert: sum},
	{name: "Mean", since: 7, convert: mean},

	{name: "Cast", since: 7, convert: castTo},
	{name: "CastLike", since: 15, convert: castLike},
	{name: "BitCast", since: 26, convert: func(s *site) {
		s.out(0, s.add("BitCast", ir.Attrs{"to": s.dtype("to", ir.Invalid)}, s.in(0)))
	}},
}

// unaryOp converts operators that are one op of one operand.
func unaryOp(op string) func(*site) {
	return func(s *site) { s.out(0, s.op(op, s.in(0))) }
}

// binaryOp converts operators that are one op of two operands.
func binaryOp(op string) func(*site) {
	return func(s *site) { s.out(0, s.op(op, s.in(0), s.in(1))) }
}

// pairwise applies a binary op that does not round to all operands.
func pairwise(op string) func(*site) {
	return func(s *site) {
		vs := s.all()
		y := vs[0]
		for _, v := range vs[1:] {
			y = s.op(op, y, v)
		}
		s.out(0, y)
	}
}

func sum(s *site) {
	y := s.sumOf(s.all())
	s.out(0, s.cast(y, s.in(0).Type.DType))
}

// sumOf adds values up in the wide type; two of them need no wider one, since that is one op.
func (s *site) sumOf(vs []*ir.Value) *ir.Value {
	if len(vs) == 2 {
		return s.op("Add", vs[0], vs[1])
	}
	y := s.wide(vs[0])
	for _, v := range vs[1:] {
		y = s.op("Add", y, s.wide(v))
	}
	return y
}

func mean(s *site) {
	vs := s.all()
	y := s.wide(vs[0])
	for _, v := range vs[1:] {
		y = s.op("Add", y, s.wide(v))
	}
	if len(vs) > 1 {
		y = s.op("Div", y, s.like(y, float64(len(vs))))
	}
	s.out(0, s.cast(y, vs[0].Type.DType))
}

func isInf(s *site) {
	attrs := ir.Attrs{"negative": s.bool("detect_negative", true), "positive": s.bool("detect_positive", true)}
	s.out(0, s.add("IsInf", attrs, s.in(0)))
}

func mod(s *site) {
	fmod := s.bool("fmod", false)
	if s.in(0).Type.DType.IsFloat() && !fmod && s.opset < 28 {
		s.fail("floating-point operands need fmod=1 before opset 28")
	}
	s.out(0, s.add("Mod", ir.Attrs{"fmod": fmod}, s.in(0), s.in(1)))
}

// bitShift follows BitShift 28 for signed elements too: shifts of the width and more, and negative ones, leave what the
// sign extends to. The ops shift by 0 … width-1 or yield 0.
func bitShift(s *site) {
	x, y := s.in(0), s.in(1)
	switch dir := s.string("direction", ""); dir {
	case "LEFT":
		s.out(0, s.op("ShiftLeft", x, y))
		return
	case "RIGHT":
	default:
		s.fail("direction is %q, want \"LEFT\" or \"RIGHT\"", dir)
	}
	v := s.op("ShiftRight", x, y)
	if d := x.Type.DType; d.IsSigned() {
		bits := s.scalar(d, float64(d.Bits()))
		zero := s.scalar(d, 0)
		far := s.op("Or", s.op("Less", y, zero), s.op("GreaterEqual", y, bits))
		sign := s.where(s.op("Less", x, zero), s.scalar(d, -1), zero)
		v = s.where(far, sign, v)
	}
	s.out(0, v)
}

func castTo(s *site) {
	to := s.dtype("to", ir.Invalid)
	if to == ir.Invalid {
		s.fail("attribute \"to\" is missing")
	}
	attrs := ir.Attrs{"to": to}
	if !s.bool("saturate", true) {
		attrs["saturate"] = false
	}
	if to == ir.Float8E8M0 {
		attrs["round"] = s.roundMode()
	}
	s.castWith(attrs)
}

// roundMode is Cast's rounding for float8e8m0; the format's default is up.
func (s *site) roundMode() string { return s.choice("round_mode", "up", "down", "nearest") }

func castLike(s *site) {
	attrs := ir.Attrs{"to": s.in(1).Type.DType}
	if !s.bool("saturate", true) {
		attrs["saturate"] = false
	}
	if s.in(1).Type.DType == ir.Float8E8M0 {
		attrs["round"] = s.roundMode()
	}
	s.castWith(attrs)
}

func (s *site) castWith(attrs ir.Attrs) {
	x := s.in(0)
	if x.Type.DType == attrs["to"] {
		s.out(0, x)
		return
	}
	s.out(0, s.add("Cast", attrs, x))
}

// negInf is -∞: what a mask adds.
func (s *site) negInf(d ir.DType) *ir.Value { return s.scalar(d, math.Inf(-1)) }
