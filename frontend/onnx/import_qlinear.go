package onnx

import (
	"github.com/spark-compile/spark-compile/ir"
)

// qLinearOperators are the com.microsoft operators that ONNX Runtime's quantiser writes, and that its optimiser
// produces.
var qLinearOperators = []operator{
	{domain: microsoft, name: "QuantizeLinear", since: 1, convert: quantizeLinear},
	{domain: microsoft, name: "DequantizeLinear", since: 1, convert: dequantizeLinear},
	{domain: microsoft, name: "QLinearAdd", since: 1, convert: qLinearBinary("Add")},
	{domain: microsoft, name: "QLinearMul", since: 1, convert: qLinearBinary("Mul")},
	{domain: microsoft, name: "QLinearWhere", since: 1, convert: qLinearWhere},
	{domain: microsoft, name: "QLinearConcat", since: 1, convert: qLinearConcat},
	{domain: microsoft, name: "QLinearSigmoid", since: 1, convert: qLinear(func(s *site, x *ir.Value) *ir.Value { return s.op("Sigmoid", x) })},
	{domain: microsoft, name: "QLinearLeakyRelu", since: 1, convert: qLinear(func(s *site, x *ir.Value) *ir.Value {
		return parseFormula("where(x < 0, x*alpha, x)", defaults{"alpha": 0.01}).on(s, x)
	})},
	{domain: microsoft, name: "QLinearSoftmax", since: 1, convert: func(s *site) {
		x := s.in(0)
		// ONNX Runtime multiplies by the whole part of 1/scale: 254 for a scale of 1/255.
		scale := s.eval("1/floor(1/x)", s.number(s.in(3)))
		s.out(0, s.quantized(qLinearSoftmax(s, s.dequantized(x, s.in(1), s.opt(2))), x.Type.DType, scale, s.opt(4)))
	}},
	{domain: microsoft, name: "QLinearGlobalAveragePool", since: 1, convert: qLinear(channelsFirst(func(s *site, x *ir.Value) *ir.Value {
		return s.apply("GlobalAveragePool", nil, x)
	}))},
	{domain: microsoft, name: "QLinearAveragePool", since: 1, convert: qLinear(channelsFirst(func(s *site, x *ir.Value) *ir.Value {
		return s.apply("AveragePool", s.windowAttributes("count_include_pad"), x)
	}))},
	{domain: microsoft, name: "QLinearConv", since: 1, convert: qLinearConv},
	{domain: microsoft, name: "NhwcMaxPool", since: 1, convert: func(s *site) {
		x := s.in(0)
		s.out(0, s.fromLast(x, func(x *ir.Value) *ir.Value { return s.apply("MaxPool", s.windowAttributes(), x) }))
	}},
	{domain: microsoft, name: "QGemm", since: 1, convert: qGemm},
	{domain: microsoft, name: "MatMulIntegerToFloat", since: 1, convert: matMulIntegerToFloat},
	{domain: microsoft, name: "DynamicQuantizeMatMul", since: 1, convert: dynamicQuantizeMatMul},
	{domain: microsoft, name: "DynamicQuantizeLSTM", since: 1, convert: dynamicQuantizeLSTM},
	{domain: microsoft, name: "QAttention", since: 1, convert: qAttention},
	{domain: microsoft, name: "QEmbedLayerNormalization", since: 1, convert: qEmbedLayerNormalization},
}

// number reshapes a scale or zero point of one element to a scalar; nil stays nil.
func (s *site) number(v *ir.Value) *ir.Value {
	switch {
	case v == nil:
		return nil
	case v.Type.Numel() != 1:
		s.fail("a scale or zero point is %v, want one element", v.Type)
	}
	return s.reshape(v)
}

// dequantized is (x-zero)·scale with one scale.
func (s *site) dequantized(x, scale, zero *ir.Value) *ir.Value {
	scale = s.number(scale)
	return s.add("DequantizeLinear", ir.Attrs{"to": scale.Type.DType}, x, scale, s.number(zero))
}

// quantized rounds to a type with one scale.
func (s *site) quantized(x *ir.Value, to ir.DType, scale, zero *ir.Value) *ir.Value {
	return s.add("QuantizeLinear", ir.Attrs{"to": to}, x, s.number(scale), s.number(zero))
}

// qLinear converts an operator of one operand between two quantisations: inputs are x, its scale and zero point, and
// those of the result.
func qLinear(f func(s *site, x *ir.Value) *ir.Value) func(*site) {
	return func(s *site) {
		x := s.in(0)
		s.out(0, s.quantized(f(s, s.dequantized(x, s.in(1), s.opt(2))), x.Type.DType, s.in(3), s.opt(4)))
	}
}

func qLinearBinary(op string) func(*site) {
	return func(s *site) {
		a, b := s.dequantized(s.in(0), s.in(1), s.opt(2)), s.dequantized(s.in(3), s.in(4), s.opt(5))
		s.out(0, s.quantized(s.op(op, a, b), s.in(0).Type.DType, s.in(6), s.opt(7)))
	}
}

func qLinearWhere(s *site) {
	a, b := s.dequantized(s.in(1), s.in(2), s.in(3)), s.dequantized(s.in(4), s.in(5), s.in(6))
	s.out(0, s.quantized(s.where(s.in(0), a, b), s.in(1).Type.DType, s.in(7), s.in(8)))
}

// qLinearConcat has the result's scale and zero point first, then three inputs for each operand.
func qLinearConcat(s *site) {
	if n := len(s.n.Input); n < 5 || n%3 != 2 {
		s.fail("%d inputs, want two and three for each operand", n)
	}
	var parts []*ir.Value
	for i := 2; i < len(s.n.Input); i += 3 {
		parts = append(parts, s.dequantized(s.in(i), s.in(i+1), s.in(i+2)))
	}
	s.need("axis")
	s.out(0, s.quantized(s.concat(s.axisOf(parts[0], 0), parts...), s.in(1).Type.DType, s.in(0), s.in(1)))
}

// qLinearSoftmax runs over all dimensions from axis on in files whose attribute opset is below 13.
func qLinearSoftmax(s *site, x *ir.Value) *ir.Value {
	axis := s.axisOf(x, -1)
	if s.int("opset", MaxOpset) >= 13 {
		return s.add("Softmax", ir.Attrs{"axis": axis}, x)
	}
	shape := x.Type.Shape
	y := s.add("Softmax", ir.Attrs{"axis": 1}, s.reshape(x, product(shape[:axis]), product(shape[axis:])))
	return s.reshape(y, shape...)
}

// channelsFirst applies f, which has channels as dimension 1, where attribute channels_last says that they are the
// last one.
func channelsFirst(f func(*site, *ir.Value) *ir.Value) func(*site, *ir.Value) *ir.Value {
	return func(s *site, x *ir.Value) *ir.Value {
		if s.bool("channels_last", false) {
			return s.fromLast(x, func(x *ir.Value) *ir.Value { return f(s, x) })
		}
		return f(s, x)
	}
}

// fromLast applies f to x with its last dimension as dimension 1, and moves dimension 1 of the result to the end.
func (s *site) fromLast(x *ir.Value, f func(*ir.Value) *ir.Value) *ir.Value {
	r := s.rank(x, 3)
	first := append([]int{0, r - 1}, iotaInts(r - 1)[1:]...)
	last := append(append([]int{0}, iotaInts(r)[2:]...), 1)
	return s.transpose(f(s.transpose(x, first...)), last...)
}

// windowAttributes are the node's attributes of a pool, and of more names, for apply.
func (s *site) windowAttributes(more ...string) []Attr {
	attrs := []Attr{A("auto_pad", s.string("auto_pad", "NOTSET"))}
	for _, name := range []string{"kernel_shape", "strides", "pads", "dilations"} {
		if v := s.ints(name); v != nil {
			attrs = append(attrs, A(name, v))
		}
	}
	for _, name := range append(more, "ceil_mode") {
		attrs = append(attrs, A(name, s.int(name, 0)))
	}
	return attrs
}

// qGemm is α·A'·B'+C in integers, C having the scale α·a·b; the result is f32 unless it has a scale.
func qGemm(s *site) {
	a, b := s.exactly(s.in(0), 2), s.exactly(s.in(3), 2)
	transA, transB := s.bool("transA", false), s.bool("transB", false)
	column := 1
	if transB {
		column = 0
	}
	acc := s.add("MatMul", ir.Attrs{"transA": transA, "transB": transB}, s.shifted(a, s.in(2), 0), s.shifted(b, s.in(5), column))
	if c := s.opt(6); c != nil {
		acc = s.op("Add", acc, c)
	}
	scale := s.op("Mul", s.number(s.in(1)), s.parameter(s.in(4), 1, 2))
	scale = s.op("Mul", scale, s.like(scale, s.float("alpha", 1)))
	if s.opt(7) == nil {
		s.out(0, s.op("Mul", s.cast(acc, scale.Type.DType), scale))
		return
	}
	s.out(0, s.requantize(acc, scale, s.in(7), s.in(8)))
}

// integerProduct is (a-zero)·(b-zero)·scale+bias in floating point; b's scale and zero point are one or one a column.
func (s *site) integerProduct(a, aScale, aZero, b, bScale, bZero, bias *ir.Value) *ir.Value {
	r := b.Type.Rank()
	acc := s.op("MatMul", s.shifted(a, aZero, max(0, a.Type.Rank()-2)), s.shifted(b, bZero, r-1))
	scale := s.op("Mul", s.number(aScale), s.parameter(bScale, acc.Type.Rank()-1, acc.Type.Rank()))
	y := s.op("Mul", s.cast(acc, scale.Type.DType), scale)
	if bias != nil {
		y = s.op("Add", y, bias)
	}
	return y
}

func matMulIntegerToFloat(s *site) {
	s.out(0, s.integerProduct(s.in(0), s.in(2), s.opt(4), s.in(1), s.in(3), s.opt(5), s.opt(6)))
}

func dynamicQuantizeMatMul(s *site) {
	a, scale, zero := s.dynamicQuantized(s.in(0))
	s.out(0, s.integerProduct(a, scale, zero, s.in(1), s.in(2), s.opt(3), s.opt(4)))
}

// dynamicQuantizeLSTM is an LSTM whose weights, [dirs,inputs,4·H], are 8-bit integers, and whose inputs and hidden
// states are rounded to 8 bits: the inputs of all steps by one scale, the state of each step by its own.
func dynamicQuantizeLSTM(s *site) {
	x := s.exactly(s.in(0), 3)
	rounded := s.dequantized(s.dynamicQuantized(x))
	weights := func(w, scale, zero *ir.Value) *ir.Value {
		s.exactly(w, 3)
		each := func(v *ir.Value) *ir.Value { // [dirs] or [dirs,4·H]
			dirs := w.Type.Shape[0]
			return s.reshape(v, dirs, 1, v.Type.Numel()/max(dirs, 1))
		}
		v := s.op("Sub", s.cast(w, ir.Int32), s.cast(each(zero), ir.Int32))
		return s.swapAxes(s.op("Mul", s.cast(v, scale.Type.DType), each(scale)), 1, 2)
	}
	attrs := s.recurrentAttrs("LSTM")
	attrs["dynamic"] = true
	outs := s.addAll("LSTM", attrs, rounded, weights(s.in(1), s.in(8), s.in(9)), weights(s.in(2), s.in(10), s.in(11)),
		s.opt(3), s.opt(4), s.opt(5), s.opt(6), s.opt(7))
	for i, y := range outs {
		s.out(i, y)
	}
}

// qAttention is Attention with integers for inputs and weights.
func qAttention(s *site) {
	s.need("num_heads")
	qkv := s.integerProduct(s.exactly(s.in(0), 3), s.in(3), s.opt(6), s.exactly(s.in(1), 2), s.in(4), s.opt(7), s.in(2))
	s.selfAttention(qkv, s.opt(5), s.opt(8), nil)
}

// qEmbedLayerNormalization is EmbedLayerNormalization with 8-bit tables and parameters.
func qEmbedLayerNormalization(s *site) {
	ids := s.exactly(s.in(0), 2)
	// parameter i is word, position, segment, gamma or beta
	each := func(i int, ids *ir.Value) *ir.Value {
		v := s.in(2 + i)
		if ids != nil {
			v = s.add("Gather", ir.Attrs{"axis": 0}, v, ids)
		}
		return s.dequantized(v, s.in(8+i), s.in(13+i))
	}
	sum := s.op("Add", each(0, ids), each(1, s.iota(ir.Int64, ids.Type.Shape[1], 1, 2)))
	if segments := s.opt(1); segments != nil {
		sum = s.op("Add", sum, each(2, segments))
	}
	s.out(0, s.add("LayerNorm", ir.Attrs{"axis": 2, "epsilon": s.float("epsilon", skipEpsilon)}, sum, each(3, nil), each(4, nil)))
	s.embeddingMask(ids, s.opt(7))
}
