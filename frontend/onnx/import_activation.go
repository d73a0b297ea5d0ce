package onnx

import (
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

type defaults = map[string]float64

var activationOperators = slices.Concat(sameOp(7, "Relu", "Sigmoid", "Tanh"), []operator{
	{name: "LeakyRelu", since: 7, convert: elementwise("where(x < 0, x*alpha, x)", defaults{"alpha": 0.01})},
	{name: "PRelu", since: 7, convert: elementwise("where(x < 0, x*y, x)", nil)},
	// Clamped, so that e^x of the branch that is not taken cannot overflow.
	{name: "Elu", since: 7, convert: elementwise("where(x < 0, alpha*(exp(min(x, 0)) - 1), x)", defaults{"alpha": 1})},
	{name: "Selu", since: 7, convert: elementwise("gamma * where(x > 0, x, alpha*(exp(min(x, 0)) - 1))",
		defaults{"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875})},
	{name: "Celu", since: 12, convert: elementwise("max(x, 0) + min(alpha*(exp(x/alpha) - 1), 0)", defaults{"alpha": 1})},
	{name: "HardSigmoid", since: 7, convert: elementwise("max(min(x*alpha + beta, 1), 0)", defaults{"alpha": 0.2, "beta": 0.5})},
	{name: "HardSwish", since: 14, convert: elementwise("x * max(min(x*(1.0/6) + 0.5, 1), 0)", nil)},
	// log(1+e^x), in a form that does not overflow
	{name: "Softplus", since: 7, convert: elementwise("max(x, 0) + log1p(exp(-abs(x)))", nil)},
	{name: "Mish", since: 18, convert: elementwise("x * tanh(max(x, 0) + log1p(exp(-abs(x))))", nil)},
	{name: "Softsign", since: 7, convert: elementwise("x / (abs(x) + 1)", nil)},
	{name: "ThresholdedRelu", since: 10, convert: elementwise("where(x > alpha, x, 0)", defaults{"alpha": 1})},
	{domain: "ai.onnx.ml", name: "Binarizer", since: 1, convert: elementwise("x > threshold", defaults{})},
	{name: "Shrink", since: 9, convert: elementwise("where(x < -lambd, x + bias, where(x > lambd, x - bias, 0))", defaults{"lambd": 0.5})},
	{name: "Gelu", since: 20, convert: oneOp("Gelu", func(s *site) ir.Attrs {
		return ir.Attrs{"tanh": s.choice("approximate", "none", "tanh") == "tanh"}
	})},
	{name: "Swish", since: 24, convert: elementwise("x * sigmoid(x*alpha)", defaults{"alpha": 1})},
	{name: "SwiGLU", since: 28, convert: elementwise("x * sigmoid(x*alpha) * y", defaults{"alpha": 1})},
	{name: "Clip", since: 7, until: 10, convert: clipAttributes},
	{name: "Clip", since: 11, convert: clip},
	{name: "Dropout", since: 7, until: 11, convert: dropoutAttribute},
	{name: "Dropout", since: 12, shapes: []int{2}, convert: dropout},
})

// composite converts an operator that becomes several ops of one operand: it computes in the wide type and rounds to
// the operand's once, at the end.
func composite(f func(*site, *ir.Value) *ir.Value) func(*site) {
	return func(s *site) {
		x := s.in(0)
		s.out(0, s.cast(f(s, s.wide(x)), x.Type.DType))
	}
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
	for i, op := range []string{"Max", "Min"} {
		bound := s.opt(1 + i)
		if bound == nil {
			continue
		}
		if bound.Type.Numel() != 1 {
			s.fail("a bound is %v, want a scalar", bound.Type)
		}
		y = s.op(op, y, s.reshape(bound))
	}
	s.out(0, y)
}

// dropoutAttribute is Dropout 7 and 10, which does nothing at inference. Its mask has x's type before opset 10; ONNX
// leaves it open at inference, and ONNX Runtime's is 0.
func dropoutAttribute(s *site) {
	x := s.in(0)
	s.out(0, x)
	d := ir.Bool
	if s.opset < 10 {
		d = x.Type.DType
	}
	s.out(1, s.fill(d, 0, x.Type.Shape...))
}

func dropout(s *site) {
	x := s.in(0)
	if t := s.known(2, "training_mode"); t != nil && t.Numel() == 1 && t.IntAt(0) != 0 {
		ratio := s.opt(1)
		if ratio == nil || !ratio.IsConst() || ratio.Type.Numel() != 1 || ratio.Const.FloatAt(0) != 0 {
			s.refuse("export the model for inference", "training_mode drops elements at random")
		}
	}
	s.out(0, x)
	s.out(1, s.fill(ir.Bool, 1, x.Type.Shape...))
}
