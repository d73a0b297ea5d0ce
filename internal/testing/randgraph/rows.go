package randgraph

import (
	"math"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/ir"
)

// row says how to draw nodes of one operator, with its domain before its name.
type row struct {
	op     string
	weight int // how often, against 1 of most
	draw   func(b *build, op string)
}

// rowsFor are rows that share a function.
func rowsFor(weight int, draw func(b *build, op string), ops ...string) []row {
	var rows []row
	for _, op := range ops {
		rows = append(rows, row{op, weight, draw})
	}
	return rows
}

// left are the operators of the import table without a row, and why.
var left = map[string]string{
	"Constant":                          "any graph may have such nodes: they are one of the ways in which it has its constants",
	"SimplifiedLayerNormalization":      "it is ONNX Runtime's, not ONNX's, and has tests with its other operators",
	"NonMaxSuppression":                 "data decides how many outputs it has: it needs a bound on the command line, and has tests of its own",
	"Unique":                            "data decides how many outputs it has: it needs a bound on the command line, and has tests of its own",
	"ai.onnx.ml.LabelEncoder":           scikit,
	"ai.onnx.ml.LinearClassifier":       scikit,
	"ai.onnx.ml.LinearRegressor":        scikit,
	"ai.onnx.ml.Normalizer":             scikit,
	"ai.onnx.ml.Scaler":                 scikit,
	"ai.onnx.ml.TreeEnsemble":           scikit,
	"ai.onnx.ml.TreeEnsembleClassifier": scikit,
	"ai.onnx.ml.TreeEnsembleRegressor":  scikit,
	"ConcatFromSequence":                sequences,
	"SequenceAt":                        sequences,
	"SequenceConstruct":                 sequences,
	"SequenceEmpty":                     sequences,
	"SequenceErase":                     sequences,
	"SequenceInsert":                    sequences,
	"SequenceLength":                    sequences,
	"SplitToSequence":                   sequences,
	"ai.onnx.preview.FlexAttention":     "neither ONNX Runtime nor the onnx package's evaluator has it; its node cases are run",
}

const scikit = "it has long lists of attributes, and random cases of its own in internal/backendtest"

const sequences = "it reads or yields a sequence, where graphs here have tensors; it has cases in internal/backendtest"

// table has the rows of all kinds.
var table = slices.Concat(elementwiseRows, movementRows, indexingRows, reductionRows, normalizationRows, windowRows, linearRows,
	quantizationRows, sequenceRows, samplingRows, otherRows)

// available are the rows that the import table has at an opset, each as often as its weight.
func available(opset int64) []*row {
	var out []*row
	main, ml := onnx.Operators("", opset), onnx.Operators("ai.onnx.ml", 3)
	for i := range table {
		r := &table[i]
		name, other := strings.CutPrefix(r.op, "ai.onnx.ml.")
		if other && !slices.Contains(ml, name) || !other && !slices.Contains(main, name) {
			continue
		}
		for range r.weight {
			out = append(out, r)
		}
	}
	return out
}

// a is an attribute.
func a(name string, value any) onnx.Attr { return onnx.A(name, value) }

// maybe gives each attribute with a probability of one half.
func (b *build) maybe(attrs ...onnx.Attr) []onnx.Attr {
	var out []onnx.Attr
	for _, x := range attrs {
		if b.chance(.5) {
			out = append(out, x)
		}
	}
	return out
}

func (b *build) number(lo, hi float64) float64 { return lo + (hi-lo)*float64(b.r.IntN(17))/16 }

var elementwiseRows = slices.Concat(
	rowsFor(2, unary, "Relu", "Sigmoid", "Tanh", "Exp", "Neg", "Abs", "Sqrt", "Erf"),
	rowsFor(1, unary, "Ceil", "Floor", "Reciprocal", "Log", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Not", "Sign", "Sinh", "Cosh",
		"Asinh", "Acosh", "Atanh", "IsNaN", "Round", "BitwiseNot", "HardSwish", "Softplus", "Mish", "Softsign"),
	rowsFor(4, binary, "Add", "Sub", "Mul"),
	rowsFor(2, binary, "Div"),
	rowsFor(1, binary, "And", "Or", "Xor", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "BitwiseAnd", "BitwiseOr", "BitwiseXor"),
	rowsFor(1, variadic, "Min", "Max", "Sum", "Mean"),
	rowsFor(1, withAttributes(
		func(b *build) []onnx.Attr { return b.maybe(a("alpha", b.number(-.5, 1))) }), "LeakyRelu", "Elu", "ThresholdedRelu", "Swish"),
	[]row{
		{"Celu", 1, withAttributes(func(b *build) []onnx.Attr { return b.maybe(a("alpha", b.number(.25, 2))) })},
		{"Selu", 1, withAttributes(func(b *build) []onnx.Attr { return b.maybe(a("alpha", b.number(.5, 2)), a("gamma", b.number(.5, 2))) })},
		{"HardSigmoid", 1, withAttributes(func(b *build) []onnx.Attr { return b.maybe(a("alpha", b.number(.1, 1)), a("beta", b.number(0, 1))) })},
		{"Shrink", 1, withAttributes(func(b *build) []onnx.Attr { return b.maybe(a("lambd", b.number(0, 1)), a("bias", b.number(-1, 1))) })},
		{"Gelu", 1, withAttributes(func(b *build) []onnx.Attr { return b.maybe(a("approximate", oneOf(b, "none", "tanh"))) })},
		{"IsInf", 1, withAttributes(func(b *build) []onnx.Attr {
			return b.maybe(a("detect_negative", b.chance(.5)), a("detect_positive", b.chance(.5)))
		})},
		{"ai.onnx.ml.Binarizer", 1, withAttributes(func(b *build) []onnx.Attr { return []onnx.Attr{a("threshold", b.number(-1, 1))} })},
		{"SwiGLU", 1, func(b *build, op string) {
			x := b.x()
			b.one(op, []*value{x, b.exactly(x.DType, x.Shape...)}, b.maybe(a("alpha", b.number(-.5, 2)))...)
		}},
		{"PRelu", 1, func(b *build, op string) {
			x := b.x()
			b.one(op, []*value{x, b.given(b.plain(x.DType, b.unidirectional(x.Shape)...))})
		}},
		{"Pow", 1, pow},
		{"Mod", 1, func(b *build, op string) {
			x := b.x()
			y := b.given(b.plain(x.DType, b.broadcast(x.Shape)...))
			for i, v := range y.data.I { // not by 0
				if v == 0 {
					y.data.I[i] = 3
				}
			}
			fmod := b.chance(.3)
			if x.DType.IsFloat() {
				fmod = true
			}
			b.one(op, []*value{x, y}, a("fmod", fmod))
		}},
		{"BitShift", 1, func(b *build, op string) {
			x := b.x()
			t := ir.T(x.DType, b.broadcast(x.Shape)...)
			y := b.given(tensorOf(t, func(int) float64 { return float64(b.r.IntN(x.DType.Bits())) }))
			b.one(op, []*value{x, y}, a("direction", oneOf(b, "LEFT", "RIGHT")))
		}},
		{"Where", 2, func(b *build, op string) {
			x := b.tensor(b.types(1), 0, 5)
			y := b.partner(x.DType, x.Shape)
			s, err := ir.Broadcast(x.Shape, y.Shape)
			if err != nil {
				b.redraw()
			}
			b.one(op, []*value{b.partner(ir.Bool, s), x, y})
		}},
		{"Cast", 3, func(b *build, op string) {
			to := oneOf(b, b.types(0)...)
			if b.chance(.4) {
				to = b.main
			}
			b.castable(b.x(), func(x *value) { b.one(op, []*value{x}, a("to", to)) }, to)
		}},
		{"CastLike", 1, func(b *build, op string) {
			like := b.tensor(b.types(1), 0, 4)
			b.castable(b.x(), func(x *value) { b.one(op, []*value{x, like}) }, like.DType)
		}},
		{"BitCast", 1, func(b *build, op string) {
			x := b.x()
			var to []ir.DType
			for _, d := range b.types(0) {
				if d.Bits() == x.DType.Bits() && !d.IsFloat() && d != ir.Bool && x.DType != ir.Bool {
					to = append(to, d)
				}
			}
			b.one(op, []*value{x}, a("to", oneOf(b, to...)))
		}},
		{"Clip", 2, func(b *build, op string) {
			x := b.x()
			if b.opset < 11 {
				b.one(op, []*value{x}, b.maybe(a("min", b.number(-2, 0)), a("max", b.number(.5, 2)))...)
				return
			}
			in := []*value{x, nil, nil}
			if b.chance(.6) {
				in[1] = b.given(tensorOf(ir.T(x.DType), func(int) float64 { return float64(b.between(-3, 0) * sign(x.DType)) }))
			}
			if b.chance(.6) {
				in[2] = b.given(tensorOf(ir.T(x.DType), func(int) float64 { return float64(b.between(1, 4)) }))
			}
			b.one(op, in)
		}},
		{"Dropout", 1, func(b *build, op string) {
			x := b.x()
			outs := b.between(1, 2)
			if b.opset < 12 {
				b.node(op, []*value{x}, outs, b.maybe(a("ratio", b.number(0, 1)))...)
				return
			}
			in := []*value{x, nil, nil}
			if b.chance(.5) {
				in[1] = b.constant(ir.ScalarFloat(ir.Float32, .25))
			}
			if b.chance(.3) {
				in[2] = b.constant(ir.ScalarInt(ir.Bool, 0))
			}
			b.node(op, in, outs)
		}},
	},
)

// sign is 0 for types without negative numbers.
func sign(d ir.DType) int {
	if d.IsFloat() || d.IsSigned() {
		return 1
	}
	return 0
}

// castable keeps casts to what ONNX defines: numbers that the type holds. From f64 to f16 ONNX Runtime rounds twice.
func (b *build) castable(x *value, cast func(*value), to ir.DType) {
	if to.IsInt() && x.DType.IsFloat() || to.Bits() < 8 {
		limit := 100.0
		if to.Bits() < 8 {
			limit = 2
		}
		for _, f := range x.data.Floats() {
			if f > limit || f < -limit || f < 0 && !to.IsSigned() {
				b.redraw()
			}
		}
	}
	cast(x)
}

func unary(b *build, op string) {
	x := b.x()
	// Where most numbers are outside of the function's domain, it gets numbers of its own.
	switch op {
	case "Log", "Sqrt", "Reciprocal":
		if b.chance(.6) {
			x = b.inRange(.1, 4)
		}
	case "Asin", "Acos", "Atanh":
		if b.chance(.8) {
			x = b.inRange(-.95, .95)
		}
	case "Acosh":
		x = b.inRange(1.05, 4)
	case "Tan":
		x = b.inRange(-1.3, 1.3)
	case "Exp", "Sinh", "Cosh":
		if b.chance(.5) {
			x = b.inRange(-3, 3)
		}
	}
	b.one(op, []*value{x})
}

// inRange is a value all of whose numbers lie between two.
func (b *build) inRange(lo, hi float64) *value {
	return b.pick(func(v *value) bool {
		return slices.Contains(b.types(0), v.DType) && v.DType.IsFloat() && slices.Min(v.data.F) >= lo && slices.Max(v.data.F) <= hi
	}, func() *value { return b.uniform(b.dtype(b.types(0)), lo, hi, b.shape(0, 5)...) })
}

func withAttributes(attrs func(b *build) []onnx.Attr) func(b *build, op string) {
	return func(b *build, op string) { b.one(op, []*value{b.x()}, attrs(b)...) }
}

func binary(b *build, op string) {
	x := b.x()
	y := b.partner(x.DType, x.Shape)
	if op == "Div" {
		for _, v := range y.data.Floats() {
			if v > -.05 && v < .05 {
				y = b.divisor(x)
				break
			}
		}
	}
	if b.chance(.3) && op != "Div" {
		x, y = y, x
	}
	b.one(op, []*value{x, y})
}

// divisor is away from 0.
func (b *build) divisor(x *value) *value {
	t := ir.T(x.DType, b.broadcast(x.Shape)...)
	return b.given(tensorOf(t, func(int) float64 { return float64(1+b.r.IntN(7)) * float64(1-2*b.r.IntN(1+sign(x.DType))) }))
}

func pow(b *build, op string) {
	x := b.x()
	if x.DType.IsFloat() && b.chance(.5) {
		x = b.inRange(.2, 3)
	}
	d := x.DType
	if b.opset >= 12 && b.chance(.3) {
		d = b.dtype(b.types(1))
	}
	var y *value
	if b.chance(.5) || !d.IsFloat() || !x.DType.IsFloat() {
		e := b.between(0, 3)
		for _, v := range x.data.I { // what leaves the type is ONNX Runtime's in one way and ours in another
			if math.Pow(math.Abs(float64(v)), float64(e)) >= math.Exp2(float64(min(x.DType.Bits(), 53)-1)) {
				b.redraw()
			}
		}
		y = b.given(tensorOf(ir.T(d), func(int) float64 { return float64(e) }))
	} else {
		y = b.uniform(d, 0, 2.5, b.broadcast(x.Shape)...)
	}
	b.one(op, []*value{x, y})
}

// variadic takes one to four values.
func variadic(b *build, op string) {
	list := []*value{b.x()}
	shape := list[0].Shape
	for n := b.between(0, 3); len(list) <= n; {
		v := b.exactly(list[0].DType, shape...)
		if b.opset >= 8 {
			v = b.partner(list[0].DType, shape)
		}
		list = append(list, v)
		s, err := ir.Broadcast(shape, v.Shape)
		if err != nil {
			b.redraw()
		}
		shape = s
	}
	b.one(op, list)
}

// unidirectional is a shape that broadcasts to another one.
func (b *build) unidirectional(shape []int) []int {
	s := slices.Clone(shape[b.between(0, len(shape)):])
	for i := range s {
		if b.chance(.25) {
			s[i] = 1
		}
	}
	return s
}
