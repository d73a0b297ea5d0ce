package onnx

import (
	"github.com/spark-compile/spark-compile/ir"
)

var quantizationOperators = []operator{
	{name: "QuantizeLinear", since: 10, convert: quantizeLinear},
	{name: "DequantizeLinear", since: 10, convert: dequantizeLinear},
	{name: "DynamicQuantizeLinear", since: 11, convert: dynamicQuantizeLinear},
}

// quantizationAttrs are the attributes that both directions share. An axis matters only where the scale has one.
func (s *site) quantizationAttrs(x, scale *ir.Value, to ir.DType) ir.Attrs {
	attrs := ir.Attrs{"to": to}
	if r := x.Type.Rank(); scale.Type.Rank() > 0 && r > 0 && (scale.Type.Numel() != 1 || scale.Type.Rank() > 1) {
		attrs["axis"] = s.axis(s.int("axis", 1), r)
	}
	if b := s.int("block_size", 0); b != 0 {
		attrs["block"] = b
	}
	return attrs
}

func quantizeLinear(s *site) {
	x, scale, zero := s.in(0), s.in(1), s.opt(2)
	to := s.dtype("output_dtype", ir.Invalid)
	switch {
	case zero != nil && to != ir.Invalid && zero.Type.DType != to:
		s.fail("output_dtype is %v, but the zero point %v", to, zero.Type)
	case zero != nil:
		to = zero.Type.DType
	case to == ir.Invalid:
		to = ir.Uint8
	}
	attrs := s.quantizationAttrs(x, scale, to)
	if !s.bool("saturate", true) {
		attrs["saturate"] = false
	}
	// The op divides in the type of its scale. A file may name one from opset 23 on; where none is named ONNX Runtime
	// divides in f32, whatever the types of x and scale.
	division := ir.Float32
	if s.int("precision", 0) != 0 {
		division = s.dtype("precision", division)
	}
	s.out(0, s.add("QuantizeLinear", attrs, x, s.cast(scale, division), s.zeroLike(zero, scale)))
}

func dequantizeLinear(s *site) {
	x, scale, zero := s.in(0), s.in(1), s.opt(2)
	to := s.dtype("output_dtype", scale.Type.DType)
	s.out(0, s.add("DequantizeLinear", s.quantizationAttrs(x, scale, to), x, scale, s.zeroLike(zero, scale)))
}

// zeroLike gives a zero point of one element the scale's shape; files have both [] and [1].
func (s *site) zeroLike(zero, scale *ir.Value) *ir.Value {
	if zero == nil || zero.Type.Numel() != scale.Type.Numel() {
		return zero
	}
	return s.reshape(zero, scale.Type.Shape...)
}

func dynamicQuantizeLinear(s *site) {
	y, scale, zero := s.dynamicQuantized(s.in(0))
	s.out(0, y)
	s.out(1, scale)
	s.out(2, zero)
}

// dynamicQuantized follows the function body of DynamicQuantizeLinear 11: the range includes 0, the zero point is
// rounded and saturated to u8.
func (s *site) dynamicQuantized(x *ir.Value) (y, scale, zero *ir.Value) {
	axes := iotaInts(x.Type.Rank())
	lo := s.eval("min(x, 0)", s.reduce("ReduceMin", x, axes, false))
	scale = s.eval("(max(x, 0) - y) / 255", s.reduce("ReduceMax", x, axes, false), lo)
	scale = s.eval("where(x == 0, 1, x)", scale) // all elements 0: any scale gives 0s; ONNX Runtime's is 1
	zero = s.cast(s.eval("round(min(max(0 - x/y, 0), 255))", lo, scale), ir.Uint8)
	return s.add("QuantizeLinear", ir.Attrs{"to": ir.Uint8}, x, scale, zero), scale, zero
}
