package onnx

import (
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/ir"
)

// microsoft is the domain of operators that ONNX Runtime's optimiser and quantiser write. What they compute is said in
// docs/ContribOperators.md of its repository; where that is silent, they follow what its CPU kernels return.
const microsoft = "com.microsoft"

// microsoftOperators replace several operators of ai.onnx by one. Two of them ONNX Runtime puts into ai.onnx itself.
var microsoftOperators = []operator{
	{name: "SimplifiedLayerNormalization", since: 7, convert: simplifiedLayerNormalization},
	{domain: microsoft, name: "Gelu", since: 1, convert: gelu(false)},
	{domain: microsoft, name: "BiasGelu", since: 1, convert: gelu(false)},
	{domain: microsoft, name: "FastGelu", since: 1, convert: gelu(true)},
	{domain: microsoft, name: "QuickGelu", since: 1, convert: elementwise("x * sigmoid(x*alpha)", defaults{"alpha": 1.702})},
	{domain: microsoft, name: "SkipLayerNormalization", since: 1, convert: skipLayerNormalization("LayerNorm")},
	{domain: microsoft, name: "SkipSimplifiedLayerNormalization", since: 1, convert: skipLayerNormalization("RMSNorm")},
	{domain: microsoft, name: "EmbedLayerNormalization", since: 1, convert: embedLayerNormalization},
	{domain: microsoft, name: "FusedMatMul", since: 1, convert: fusedMatMul},
	{domain: microsoft, name: "TransposeMatMul", since: 1, convert: fusedMatMul},
	{domain: microsoft, name: "FusedGemm", since: 1, convert: fusedGemm},
	{domain: microsoft, name: "FusedConv", since: 1, convert: fusedConv},
	{domain: microsoft, name: "MatMulNBits", since: 1, convert: matMulNBits},
	{domain: microsoft, name: "Attention", since: 1, convert: packedAttention},
	{domain: microsoft, name: "MultiHeadAttention", since: 1, convert: multiHeadAttention},
	{domain: microsoft, name: "GroupQueryAttention", since: 1, shapes: []int{6}, convert: groupQueryAttention},
	{domain: microsoft, name: "GatherBlockQuantized", since: 1, convert: gatherBlockQuantized},
	{domain: microsoft, name: "RotaryEmbedding", since: 1, convert: microsoftRotaryEmbedding},
}

// apply converts an operator of ai.onnx, of the newest opset, as a part of this node, and returns its first output.
func (s *site) apply(op string, attrs []Attr, in ...*ir.Value) *ir.Value {
	n := &onnxpb.NodeProto{Name: proto.String(nodeLabel(s.n)), OpType: proto.String(op), Output: []string{"y"}}
	for _, a := range attrs {
		p, err := attribute(a)
		s.check(err)
		n.Attribute = append(n.Attribute, p)
	}
	inner := &scope{prefix: s.sc.prefix, values: map[string]*ir.Value{}, used: map[string]bool{"y": true}, opsets: map[string]int64{"": MaxOpset}}
	for i, v := range in {
		n.Input = append(n.Input, strconv.Itoa(i))
		inner.values[n.Input[i]] = v
	}
	s.check(s.im.node(inner, n))
	return inner.values["y"]
}

// gelu is Gelu of x, or of x and a bias.
func gelu(tanh bool) func(*site) {
	return func(s *site) {
		x := s.in(0)
		v := s.wide(x)
		if bias := s.opt(1); bias != nil {
			v = s.op("Add", v, s.wide(bias))
		}
		s.out(0, s.cast(s.add("Gelu", ir.Attrs{"tanh": tanh}, v), x.Type.DType))
	}
}

func simplifiedLayerNormalization(s *site) {
	x := s.in(0)
	axis := s.axisOf(x, -1)
	s.out(0, s.add("RMSNorm", ir.Attrs{"axis": axis, "epsilon": s.epsilon()}, x, s.cast(s.in(1), x.Type.DType)))
	if s.wants(1) {
		w := s.wide(x)
		square := s.reduce("ReduceMean", s.op("Mul", w, w), iotaInts(x.Type.Rank())[axis:], true)
		s.out(1, s.eval("reciprocal(sqrt(x + y))", square, s.like(square, s.epsilon())))
	}
}

// skipLayerNormalization normalises the sum of x, skip and bias by LayerNorm, which has a shift, or by RMSNorm.
// Output 3 is the sum.
func skipLayerNormalization(norm string) func(*site) {
	return func(s *site) {
		x, skip := s.in(0), s.in(1)
		d := x.Type.DType
		bias, params := s.opt(3), []*ir.Value{s.wide(s.in(2))}
		if norm == "LayerNorm" {
			bias = s.opt(4)
			if shift := s.opt(3); shift != nil {
				params = append(params, s.wide(shift))
			}
		}
		sum := s.op("Add", s.wide(x), s.wide(skip))
		if bias != nil {
			sum = s.op("Add", sum, s.wide(bias))
		}
		if !slices.Equal(sum.Type.Shape, x.Type.Shape) {
			s.fail("skip %v does not broadcast to %v", skip.Type, x.Type)
		}
		y := s.add(norm, ir.Attrs{"axis": s.rank(x, 1) - 1, "epsilon": s.float("epsilon", skipEpsilon)}, append([]*ir.Value{sum}, params...)...)
		s.out(0, s.cast(y, d))
		s.out(3, s.cast(sum, d))
	}
}

// skipEpsilon is the default of normalisations that ONNX Runtime fuses, the float32 nearest to 1e-12.
const skipEpsilon = float64(float32(1e-12))

// embedLayerNormalization is LayerNorm of the sum of embeddings of words, positions and segments. Output 1 counts the
// tokens that the mask keeps, output 2 is the sum.
func embedLayerNormalization(s *site) {
	ids := s.exactly(s.in(0), 2)
	row := func(table, ids *ir.Value) *ir.Value {
		return s.wide(s.add("Gather", ir.Attrs{"axis": 0}, s.exactly(table, 2), ids))
	}
	positions := s.opt(8)
	if positions == nil {
		positions = s.iota(ir.Int64, ids.Type.Shape[1], 1, 2)
	}
	sum := s.op("Add", row(s.in(2), ids), row(s.in(3), positions))
	if segments := s.opt(1); segments != nil {
		sum = s.op("Add", sum, row(s.in(4), segments))
	}
	d := s.in(2).Type.DType
	y := s.add("LayerNorm", ir.Attrs{"axis": 2, "epsilon": s.float("epsilon", skipEpsilon)}, sum, s.wide(s.in(5)), s.wide(s.in(6)))
	s.out(0, s.cast(y, d))
	s.embeddingMask(ids, s.opt(7))
	s.out(2, s.cast(sum, d))
}

// embeddingMask sets output 1 to the number of tokens that the mask keeps, 0 without one.
func (s *site) embeddingMask(ids, mask *ir.Value) {
	count := s.fill(ir.Int32, 0, ids.Type.Shape[0])
	if mask != nil {
		count = s.reduce("ReduceSum", s.cast(mask, ir.Int32), []int{1}, false)
	}
	s.out(1, count)
}

// fusedMatMul is α·A'·B'. transBatchA moves dimension 0 of A after the other batch dimensions, before transA
// exchanges the last two.
func fusedMatMul(s *site) {
	operand := func(i int, trans, batch string) (*ir.Value, bool) {
		v := s.in(i)
		r := v.Type.Rank()
		if r >= 3 && s.bool(batch, false) {
			perm := append(append(iotaInts(r - 1)[1:], 0), r-1)
			v = s.transpose(v, perm...)
		}
		return v, r >= 2 && s.bool(trans, false)
	}
	a, transA := operand(0, "transA", "transBatchA")
	b, transB := operand(1, "transB", "transBatchB")
	attrs := ir.Attrs{"transA": transA, "transB": transB}
	alpha := s.float("alpha", 1)
	if alpha == 1 {
		s.out(0, s.add("MatMul", attrs, a, b))
		return
	}
	y := s.add("MatMul", attrs, s.wide(a), s.wide(b))
	s.out(0, s.cast(s.op("Mul", y, s.like(y, alpha)), a.Type.DType))
}

// fusedGemm is Gemm with an activation, whose attributes have the prefix activation_.
func fusedGemm(s *site) {
	var attrs []Attr
	for _, name := range []string{"alpha", "beta", "gamma"} {
		if s.hasAttr("activation_" + name) {
			attrs = append(attrs, A(name, s.float("activation_"+name, 0)))
		}
	}
	s.out(0, s.activated(s.string("activation", ""), attrs, s.gemm()))
}

// fusedConv is a convolution, plus input 3 if it is there, with an activation.
func fusedConv(s *site) {
	y := s.conv(s.in(0), s.in(1), s.opt(2))
	if z := s.opt(3); z != nil {
		y = s.op("Add", y, z)
	}
	activation, params := s.string("activation", ""), s.floats("activation_params")
	names := map[string][]string{"LeakyRelu": {"alpha"}, "HardSigmoid": {"alpha", "beta"}, "Clip": {"min", "max"}}[activation]
	if len(params) != len(names) {
		s.fail("activation_params=%v of activation %q, want %d", params, activation, len(names))
	}
	var attrs []Attr
	for i, name := range names {
		attrs = append(attrs, A(name, params[i]))
	}
	s.out(0, s.activated(activation, attrs, y))
}

// activated applies the activation of a fused operator; "" is none.
func (s *site) activated(op string, attrs []Attr, y *ir.Value) *ir.Value {
	switch op {
	case "":
		return y
	case "Clip": // whose bounds are inputs in the newest opset
		bound := func(i int) *ir.Value { return s.like(y, attrs[i].Value.(float64)) }
		return s.op("Min", s.op("Max", y, bound(0)), bound(1))
	case "Elu", "HardSigmoid", "LeakyRelu", "Relu", "Selu", "Sigmoid", "Softplus", "Softsign", "Tanh", "ThresholdedRelu":
		return s.apply(op, attrs, y)
	}
	s.refuse("save it without fused activations", "activation %q is not supported", op)
	return nil
}
