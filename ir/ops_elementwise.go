package ir

import (
	"fmt"
	"math"
)

// Elementwise ops: inputs broadcast as in NumPy; the output has the broadcast shape. Unless a summary says otherwise
// all inputs and the output have one element type.
var _ = register(
	Op{Name: "Abs", In: "x number", Exact: true, Cost: 1, Summary: "|x|", Grad: gradAbs, Infer: pointwise, One: math.Abs, ScalarInt: absInt},
	Op{Name: "Neg", In: "x number", Exact: true, Cost: 1,
		Summary: "-x",
		Grad:    gradNeg, Infer: pointwise, One: func(x float64) float64 { return -x }, ScalarInt: int1(func(x int64) int64 { return -x })},
	Op{Name: "Sign", In: "x number", Exact: true, Steps: true, Summary: "-1, 0 or 1; NaN stays", Grad: flat, Infer: pointwise, One: signFloat, ScalarInt: signInt},
	Op{Name: "Ceil", In: "x float", Exact: true, Steps: true, Summary: "least integer ≥ x", Grad: flat, Infer: pointwise, One: math.Ceil},
	Op{Name: "Floor", In: "x float", Exact: true, Steps: true, Summary: "greatest integer ≤ x", Grad: flat, Infer: pointwise, One: math.Floor},
	Op{Name: "Round", In: "x float", Exact: true, Steps: true, Summary: "nearest integer, ties to even", Grad: flat, Infer: pointwise, One: math.RoundToEven},
	Op{Name: "Reciprocal", In: "x float", Summary: "1/x", Infer: pointwise, Expand: func(x *Expansion, n *Node) []*Value {
		return []*Value{x.Add("Div", nil, x.Like(n.Inputs[0], 1), n.Inputs[0])}
	}},
	Op{Name: "Sqrt", Cost: 20, In: "x float", Summary: "square root", Grad: gradSqrt, Infer: pointwise, One: math.Sqrt},
	Op{Name: "Exp", Cost: 20, In: "x float", Summary: "e^x", Grad: gradExp, Infer: pointwise, One: exp},
	Op{Name: "Log", Cost: 20, In: "x float", Summary: "natural logarithm", Grad: gradLog, Infer: pointwise, One: log},
	Op{Name: "Log1p", In: "x float", Summary: "log(1+x), exact near 0", Grad: gradLog1p, Infer: pointwise, One: log1p},
	Op{Name: "Sin", In: "x float", Summary: "sine", Grad: gradSin, Infer: pointwise, One: sin},
	Op{Name: "Cos", In: "x float", Summary: "cosine", Grad: gradCos, Infer: pointwise, One: cos},
	Op{Name: "Tan", In: "x float", Summary: "tangent", Grad: gradTan, Infer: pointwise, One: tan},
	Op{Name: "Asin", In: "x float", Summary: "arc sine", Grad: gradAsin, Infer: pointwise, One: asin},
	Op{Name: "Acos", In: "x float", Summary: "arc cosine", Grad: gradAcos, Infer: pointwise, One: acos},
	Op{Name: "Atan", In: "x float", Summary: "arc tangent", Grad: gradAtan, Infer: pointwise, One: atan},
	Op{Name: "Sinh", In: "x float", Summary: "hyperbolic sine", Grad: gradSinh, Infer: pointwise, One: sinh},
	Op{Name: "Cosh", In: "x float", Summary: "hyperbolic cosine", Grad: gradCosh, Infer: pointwise, One: cosh},
	Op{Name: "Tanh", Cost: 20, In: "x float", Summary: "hyperbolic tangent", Grad: gradTanh, Infer: pointwise, One: tanh},
	Op{Name: "Asinh", In: "x float", Summary: "inverse hyperbolic sine", Grad: gradAsinh, Infer: pointwise, One: asinh},
	Op{Name: "Acosh", In: "x float", Summary: "inverse hyperbolic cosine", Grad: gradAcosh, Infer: pointwise, One: acosh},
	Op{Name: "Atanh", In: "x float", Summary: "inverse hyperbolic tangent", Grad: gradAtanh, Infer: pointwise, One: atanh},
	Op{Name: "Erf", Cost: 48, In: "x float", Summary: "error function", Grad: gradErf, Infer: pointwise, One: erf},
	Op{Name: "Sigmoid", Cost: 20, In: "x float", Summary: "1/(1+e^-x)", Grad: gradSigmoid, Infer: pointwise, One: sigmoid},
	Op{Name: "Relu", In: "x number", Exact: true, Cost: 1, Summary: "max(x, 0); NaN stays", Grad: gradRelu, Infer: pointwise, One: reluFloat, ScalarInt: reluInt},
	Op{Name: "Silu", Cost: 20, In: "x float", Summary: "x·sigmoid(x)", Grad: gradSilu, Infer: pointwise, One: func(x float64) float64 { return x * sigmoid(x) }},
	Op{Name: "Gelu", Cost: 48, In: "x float",
		Attrs:   []Attr{{Name: "sqrt2", Default: 1.4142135623730951}, {Name: "tanh", Default: false}},
		Summary: "0.5·x·(1+erf(x/sqrt2)), with the file's √2; tanh: the approximation with √(2/π)(x+0.044715x³)",
		Grad:    gradGelu, Infer: pointwise, Scalar: gelu},
	Op{Name: "Not", In: "x bool", Cost: 1, Summary: "logical not of bool", Infer: pointwise, ScalarInt: int1(func(x int64) int64 { return x ^ 1 })},
	Op{Name: "BitNot", In: "x integer", Cost: 1, Summary: "bitwise not of integers", Infer: pointwise, ScalarInt: int1(func(x int64) int64 { return ^x })},
	Op{Name: "IsNaN", In: "x float",
		Summary: "float → bool",
		Infer:   predicate, One: func(x float64) float64 { return choose(math.IsNaN(x), 1.0, 0) }},
	Op{Name: "IsInf", In: "x float",
		Attrs:   []Attr{{Name: "negative", Default: true}, {Name: "positive", Default: true}},
		Summary: "float → bool",
		Infer:   predicate, Scalar: isInf},
	Op{Name: "Cast", Cost: 1,
		Attrs:   []Attr{{Name: "to", Default: Invalid, Required: true}, {Name: "saturate", Default: true}, {Name: "round", Default: "nearest"}},
		Summary: "conversion; float→int truncates, out of range 32 and 64 bits saturate and narrower types keep the low bits of the i32; saturate concerns 8-bit floats, round (nearest|up|down) e8m0 (ONNX Cast 25)",
		Grad:    through, Infer: inferCast, Eval: evalCast},
	Op{Name: "Detach", Exact: true, Cost: 1, Summary: "x, as a constant to gradients: none passes through it", Grad: flat,
		Infer: pointwise, Expand: func(_ *Expansion, n *Node) []*Value { return []*Value{n.Inputs[0]} }},
	Op{Name: "BitCast", Cost: 1,
		Attrs:   []Attr{{Name: "to", Default: Invalid, Required: true}},
		Summary: "same bits as another type of the same width (ONNX BitCast 26)",
		Infer:   inferBitCast, Eval: evalBitCast},

	Op{Name: "Add", Commutative: true, Cost: 1, In: "a number, b a",
		Summary: "a+b",
		Grad:    gradAdd, Infer: pointwise, Two: func(a, b float64) float64 { return a + b }, ScalarInt: int2(func(a, b int64) int64 { return a + b })},
	Op{Name: "Sub", Cost: 1, In: "a number, b a",
		Summary: "a-b",
		Grad:    gradSub, Infer: pointwise, Two: func(a, b float64) float64 { return a - b }, ScalarInt: int2(func(a, b int64) int64 { return a - b })},
	Op{Name: "Mul", Commutative: true, Cost: 1, In: "a number, b a",
		Summary: "a·b",
		Grad:    gradMul, Infer: pointwise, Two: func(a, b float64) float64 { return a * b }, ScalarInt: int2(func(a, b int64) int64 { return a * b })},
	Op{Name: "Div", Cost: 20, In: "a number, b a",
		Summary: "a/b; integers truncate; integer division by zero yields 0",
		Grad:    gradDiv, Infer: pointwise, Two: func(a, b float64) float64 { return a / b }, ScalarInt: divInt},
	Op{Name: "Mod", In: "a number, b a", Steps: true,
		Attrs:   []Attr{{Name: "fmod", Default: false}},
		Summary: "remainder with the divisor's sign, with fmod the dividend's",
		Grad:    gradMod, Infer: pointwise, Scalar: modFloat, ScalarInt: modInt},
	Op{Name: "Pow", Cost: 20, In: "a number, b number", Summary: "a^b in a's type; b may have another type", Grad: gradPow, Infer: pointwise, Two: pow, ScalarInt: powInt},
	Op{Name: "Min", Commutative: true, Exact: true, Cost: 1, In: "a number, b a",
		Summary: "lesser; NaN wins",
		Grad:    gradChosen, Infer: pointwise, Two: func(a, b float64) float64 { return min(a, b) }, ScalarInt: minInt},
	Op{Name: "Max", Commutative: true, Exact: true, Cost: 1, In: "a number, b a",
		Summary: "greater; NaN wins",
		Grad:    gradChosen, Infer: pointwise, Two: func(a, b float64) float64 { return max(a, b) }, ScalarInt: maxInt},
	Op{Name: "And", Commutative: true, Cost: 1, In: "a bool, b a", Summary: "bool and", Infer: pointwise, ScalarInt: int2(func(a, b int64) int64 { return a & b })},
	Op{Name: "Or", Commutative: true, Cost: 1, In: "a bool, b a", Summary: "bool or", Infer: pointwise, ScalarInt: int2(func(a, b int64) int64 { return a | b })},
	Op{Name: "Xor", Commutative: true, Cost: 1, In: "a bool, b a", Summary: "bool exclusive or", Infer: pointwise, ScalarInt: int2(func(a, b int64) int64 { return a ^ b })},
	Op{Name: "BitAnd", Commutative: true, Cost: 1, In: "a integer, b a", Summary: "bitwise and", Infer: pointwise, ScalarInt: int2(func(a, b int64) int64 { return a & b })},
	Op{Name: "BitOr", Commutative: true, Cost: 1, In: "a integer, b a", Summary: "bitwise or", Infer: pointwise, ScalarInt: int2(func(a, b int64) int64 { return a | b })},
	Op{Name: "BitXor", Commutative: true, Cost: 1, In: "a integer, b a", Summary: "bitwise exclusive or", Infer: pointwise, ScalarInt: int2(func(a, b int64) int64 { return a ^ b })},
	Op{Name: "ShiftLeft", In: "a integer, b a", Summary: "a << b, 0 from the width on", Infer: pointwise, ScalarInt: shift(true)},
	Op{Name: "ShiftRight", In: "a integer, b a", Summary: "a >> b, 0 from the width on", Infer: pointwise, ScalarInt: shift(false)},
	Op{Name: "Equal", Commutative: true, Cost: 1, In: "a any, b a",
		Summary: "a = b → bool",
		Infer:   predicate, Scalar: compare(func(a, b float64) bool { return a == b }), ScalarInt: compareInt(func(order int) bool { return order == 0 })},
	Op{Name: "Less", Cost: 1, In: "a number, b a",
		Summary: "a < b → bool",
		Infer:   predicate, Scalar: compare(func(a, b float64) bool { return a < b }), ScalarInt: compareInt(func(order int) bool { return order < 0 })},
	Op{Name: "LessEqual", Cost: 1, In: "a number, b a",
		Summary: "a ≤ b → bool",
		Infer:   predicate, Scalar: compare(func(a, b float64) bool { return a <= b }), ScalarInt: compareInt(func(order int) bool { return order <= 0 })},
	Op{Name: "Greater", Cost: 1, In: "a number, b a", Summary: "a > b → bool", Infer: predicate, Expand: mirrored("Less")},
	Op{Name: "GreaterEqual", Cost: 1, In: "a number, b a", Summary: "a ≥ b → bool", Infer: predicate, Expand: mirrored("LessEqual")},
	Op{Name: "Where", Exact: true, Cost: 1, In: "cond bool, a, b a", Summary: "cond ? a : b; cond is bool", Grad: gradWhere, Infer: inferWhere, Scalar: where[float64], ScalarInt: where[int64]},
)

// mirrored stands for an op with its two operands swapped.
func mirrored(op string) func(x *Expansion, n *Node) []*Value {
	return func(x *Expansion, n *Node) []*Value { return []*Value{x.Add(op, nil, n.Inputs[1], n.Inputs[0])} }
}

// pointwise is the rule of elementwise ops whose output has the type of the first input.
func pointwise(n *Node) ([]Type, error) { return n.broadcast(n.Inputs[0].Type.DType) }

// predicate is the rule of elementwise ops that yield bools.
func predicate(n *Node) ([]Type, error) { return n.broadcast(Bool) }

// broadcast is the rule of ops whose output has element type d and the inputs' common shape.
func (n *Node) broadcast(d DType) ([]Type, error) {
	shapes := make([][]int, len(n.Inputs))
	for i, v := range n.Inputs {
		shapes[i] = v.Type.Shape
	}
	shape, err := Broadcast(shapes...)
	if err != nil {
		return nil, err
	}
	return one(d, shape...)
}

func inferWhere(n *Node) ([]Type, error) { return n.broadcast(n.Inputs[1].Type.DType) }

func inferCast(n *Node) ([]Type, error) {
	to := n.Attrs.DType("to")
	if !to.valid() {
		return nil, fmt.Errorf("to is not an element type")
	}
	if err := n.oneOf("round", "nearest", "nearest", "up", "down"); err != nil {
		return nil, err
	}
	return one(to, n.Inputs[0].Type.Shape...)
}

func inferBitCast(n *Node) ([]Type, error) {
	to, from := n.Attrs.DType("to"), n.Inputs[0].Type.DType
	if !to.valid() || to.Bits() != from.Bits() {
		return nil, fmt.Errorf("%v and %v differ in width", from, to)
	}
	return one(to, n.Inputs[0].Type.Shape...)
}

func compare(f func(a, b float64) bool) func(*Node, []float64) float64 {
	return func(_ *Node, x []float64) float64 { return choose(f(x[0], x[1]), 1.0, 0) }
}

func int1(f func(int64) int64) func(*Node, []int64) int64 {
	return func(_ *Node, x []int64) int64 { return f(x[0]) }
}

func int2(f func(a, b int64) int64) func(*Node, []int64) int64 {
	return func(_ *Node, x []int64) int64 { return f(x[0], x[1]) }
}

// compareInt lifts a test of the three-way comparison of two operands.
func compareInt(f func(order int) bool) func(*Node, []int64) int64 {
	return func(n *Node, x []int64) int64 {
		return choose[int64](f(orderInts(n.Inputs[0].Type.DType, x[0], x[1])), 1, 0)
	}
}

// orderInts compares two integers of type d: uint64 operands are bits.
func orderInts(d DType, a, b int64) int {
	if d == Uint64 {
		a, b = a^math.MinInt64, b^math.MinInt64
	}
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func signFloat(x float64) float64 {
	switch {
	case x > 0:
		return 1
	case x < 0:
		return -1
	}
	return x + 0 // NaN stays, -0 becomes 0
}

func signInt(n *Node, x []int64) int64 { return int64(orderInts(n.Inputs[0].Type.DType, x[0], 0)) }

func reluFloat(x float64) float64 {
	if x <= 0 {
		return 0
	}
	return x
}

func reluInt(n *Node, x []int64) int64 {
	if n.Inputs[0].Type.DType.IsSigned() {
		return max(x[0], 0)
	}
	return x[0]
}

func absInt(n *Node, x []int64) int64 {
	if n.Inputs[0].Type.DType.IsSigned() && x[0] < 0 {
		return -x[0]
	}
	return x[0]
}

func gelu(n *Node, x []float64) float64 {
	v := x[0]
	if n.Attrs.Bool("tanh") {
		cube := float64(float64(v*v) * v)
		inner := math.Sqrt(2/math.Pi) * (v + float64(0.044715*cube))
		return 0.5 * v * (1 + tanh(inner))
	}
	return 0.5 * v * (1 + erf(v/n.Attrs.Float("sqrt2", math.Sqrt2)))
}

func isInf(n *Node, x []float64) float64 {
	return choose(math.IsInf(x[0], 1) && n.Flag("positive") || math.IsInf(x[0], -1) && n.Flag("negative"), 1.0, 0)
}

func divInt(n *Node, x []int64) int64 {
	a, b := x[0], x[1]
	switch {
	case b == 0:
		return 0
	case n.Inputs[0].Type.DType == Uint64:
		return int64(uint64(a) / uint64(b))
	}
	return a / b
}

func modFloat(n *Node, x []float64) float64 {
	r := math.Mod(x[0], x[1])
	if !n.Attrs.Bool("fmod") && r != 0 && math.Signbit(r) != math.Signbit(x[1]) {
		r += x[1]
	}
	return r
}

func modInt(n *Node, x []int64) int64 {
	a, b := x[0], x[1]
	switch {
	case b == 0:
		return 0
	case n.Inputs[0].Type.DType == Uint64:
		return int64(uint64(a) % uint64(b))
	}
	r := a % b
	if !n.Attrs.Bool("fmod") && r != 0 && (r < 0) != (b < 0) {
		r += b
	}
	return r
}

// powInt is exact modulo 2^64; a negative exponent gives the truncated quotient.
func powInt(n *Node, x []int64) int64 {
	b, e := x[0], uint64(x[1])
	if x[1] < 0 && n.Inputs[1].Type.DType.IsSigned() {
		switch {
		case b == 1 || b == -1 && x[1]&1 == 0:
			return 1
		case b == -1:
			return -1
		}
		return 0
	}
	p := int64(1)
	for ; e > 0; e >>= 1 {
		if e&1 == 1 {
			p *= b
		}
		b *= b
	}
	return p
}

func minInt(n *Node, x []int64) int64 {
	return choose(orderInts(n.Inputs[0].Type.DType, x[0], x[1]) <= 0, x[0], x[1])
}

func maxInt(n *Node, x []int64) int64 {
	return choose(orderInts(n.Inputs[0].Type.DType, x[0], x[1]) >= 0, x[0], x[1])
}

// shift gives 0 from the width on; a count is read as unsigned.
func shift(left bool) func(*Node, []int64) int64 {
	return func(n *Node, x []int64) int64 {
		d := n.Inputs[0].Type.DType
		if uint64(x[1]) >= uint64(d.Bits()) {
			return 0
		}
		switch {
		case left:
			return x[0] << x[1]
		case d == Uint64:
			return int64(uint64(x[0]) >> x[1])
		}
		return x[0] >> x[1]
	}
}

func where[E int64 | float64](_ *Node, x []E) E { return choose(x[0] != 0, x[1], x[2]) }

func choose[E any](first bool, a, b E) E {
	if first {
		return a
	}
	return b
}
