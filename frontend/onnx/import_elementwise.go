package onnx

import (
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

var elementwiseOperators = slices.Concat(
	sameOp(7, "Abs", "Neg", "Ceil", "Floor", "Reciprocal", "Sqrt", "Exp", "Log", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Not",
		"Add", "Sub", "Mul", "Div", "Pow", "And", "Or", "Xor", "Equal", "Less", "Greater"),
	sameOp(9, "Sign", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "Erf", "IsNaN", "Where"),
	sameOp(11, "Round"),
	[]operator{
		{name: "LessOrEqual", since: 12, convert: oneOp("LessEqual")},
		{name: "GreaterOrEqual", since: 12, convert: oneOp("GreaterEqual")},
		{name: "BitwiseNot", since: 18, convert: oneOp("BitNot")},
		{name: "BitwiseAnd", since: 18, convert: oneOp("BitAnd")},
		{name: "BitwiseOr", since: 18, convert: oneOp("BitOr")},
		{name: "BitwiseXor", since: 18, convert: oneOp("BitXor")},
		{name: "BitShift", since: 11, convert: bitShift},
		{name: "IsInf", since: 10, convert: oneOp("IsInf", func(s *site) ir.Attrs {
			return ir.Attrs{"negative": s.bool("detect_negative", true), "positive": s.bool("detect_positive", true)}
		})},
		{name: "Mod", since: 10, convert: oneOp("Mod", func(s *site) ir.Attrs {
			fmod := s.bool("fmod", false)
			if s.in(0).Type.DType.IsFloat() && !fmod && s.opset < 28 {
				s.fail("floating-point operands need fmod=1 before opset 28")
			}
			return ir.Attrs{"fmod": fmod}
		})},
		{name: "Min", since: 7, convert: pairwise("Min")},
		{name: "Max", since: 7, convert: pairwise("Max")},
		{name: "Sum", since: 7, convert: sum},
		{name: "Mean", since: 7, convert: mean},
		{name: "Cast", since: 7, convert: func(s *site) {
			s.need("to")
			s.castTo(s.dtype("to", ir.Invalid))
		}},
		{name: "CastLike", since: 15, convert: func(s *site) { s.castTo(s.in(1).Type.DType) }},
		{name: "BitCast", since: 26, convert: oneOp("BitCast", func(s *site) ir.Attrs { return ir.Attrs{"to": s.dtype("to", ir.Invalid)} })},
	},
)

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
	vs := s.all()
	if len(vs) == 2 { // one op, which needs no wider type
		s.out(0, s.op("Add", vs[0], vs[1]))
		return
	}
	s.out(0, s.cast(s.total(vs), vs[0].Type.DType))
}

// total adds values up in the wide type.
func (s *site) total(vs []*ir.Value) *ir.Value {
	y := s.wide(vs[0])
	for _, v := range vs[1:] {
		y = s.op("Add", y, s.wide(v))
	}
	return y
}

func mean(s *site) {
	vs := s.all()
	y := s.total(vs)
	if len(vs) > 1 {
		y = s.op("Div", y, s.like(y, float64(len(vs))))
	}
	s.out(0, s.cast(y, vs[0].Type.DType))
}

// bitShift follows BitShift 28, which also allows signed elements: a shift to the right by the width or more, or by a
// negative amount, leaves only copies of the sign bit. The ops shift by 0 … width-1 and yield 0 otherwise.
func bitShift(s *site) {
	x, y := s.in(0), s.in(1)
	dir := s.string("direction", "")
	op := map[string]string{"LEFT": "ShiftLeft", "RIGHT": "ShiftRight"}[dir]
	if op == "" {
		s.fail("direction is %q, want \"LEFT\" or \"RIGHT\"", dir)
	}
	v := s.op(op, x, y)
	if d := x.Type.DType; dir == "RIGHT" && d.IsSigned() {
		v = s.eval("where(y < 0 || y >= z, where(x < 0, -1, 0), u)", x, y, s.scalar(d, float64(d.Bits())), v)
	}
	s.out(0, v)
}

func (s *site) castTo(to ir.DType) {
	x := s.in(0)
	attrs := ir.Attrs{"to": to}
	if !s.bool("saturate", true) {
		attrs["saturate"] = false
	}
	if to == ir.Float8E8M0 {
		attrs["round"] = s.choice("round_mode", "up", "down", "nearest") // the format's default is up
	}
	if x.Type.DType != to {
		x = s.add("Cast", attrs, x)
	}
	s.out(0, x)
}

// negInf is -∞: what a mask adds.
func (s *site) negInf(d ir.DType) *ir.Value { return s.scalar(d, math.Inf(-1)) }
