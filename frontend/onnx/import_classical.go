package onnx

import (
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// classical is the domain of what scikit-learn's and other models of tables are exported to.
const classical = "ai.onnx.ml"

// classicalOperators stand around trees and linear models: they scale features and scores, and name classes.
var classicalOperators = []operator{
	{domain: classical, name: "Scaler", since: 1, convert: scaler},
	{domain: classical, name: "Normalizer", since: 1, convert: normalizer},
	{domain: classical, name: "LinearClassifier", since: 1, convert: linearClassifier},
	{domain: classical, name: "LinearRegressor", since: 1, convert: linearRegressor},
	{domain: classical, name: "LabelEncoder", since: 2, convert: labelEncoder},
}

// postTransforms are the functions of scores that classical operators apply at their end.
var postTransforms = []string{"NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT"}

// postTransform is a function of scores [B,C]. One score has neither a softmax nor a logistic
// function, as in ONNX Runtime.
func (s *site) postTransform(y *ir.Value, name string) *ir.Value {
	one := y.Type.Shape[1] == 1
	switch {
	case name == "LOGISTIC" && !one:
		return s.op("Sigmoid", y)
	case name == "SOFTMAX" && !one:
		return s.add("Softmax", ir.Attrs{"axis": 1}, y)
	case name == "SOFTMAX_ZERO" && !one: // of the scores that are not 0
		e := s.op("Exp", s.op("Sub", y, s.reduce("ReduceMax", y, []int{1}, true)))
		near := s.op("LessEqual", s.op("Abs", y), s.like(y, float64(float32(1e-7))))
		e = s.where(near, s.like(y, 0), e)
		sum := s.reduce("ReduceSum", e, []int{1}, true)
		return s.op("Div", e, s.where(s.op("Equal", sum, s.like(sum, 0)), s.like(sum, 1), sum))
	case name == "PROBIT":
		// √2·erf⁻¹(2y-1), where erf⁻¹ is Winitzki's approximation with a = 0.147, as in ONNX Runtime.
		x := s.eval("2*x - 1", y)
		log := s.eval("log((1-x) * (1+x))", x)
		v := s.eval("x/2 + y", log, s.like(y, 2/(math.Pi*0.147)))
		root := s.eval("sqrt(sqrt(x*x - y/0.147) - x)", v, log)
		return s.eval("x*y*z", s.op("Sign", x), root, s.like(y, math.Sqrt2))
	}
	return y
}

// classLabels are the labels of a classifier, which must be integers if they are read.
func (s *site) classLabels() []int {
	for _, name := range []string{"classlabels_int64s", "classlabels_ints"} {
		if labels := s.ints(name); len(labels) > 0 {
			return labels
		}
	}
	names := s.strings("classlabels_strings")
	if len(names) == 0 {
		s.fail("it has no class labels")
	}
	if s.wants(0) {
		s.refuse("train it with classes that are integers, or remove the output of labels",
			"the labels of its classes are strings")
	}
	return iotaInts(len(names))
}

// label sets output 0 to the labels of classes, i64 [B].
func (s *site) label(labels []int, class *ir.Value) {
	table := s.intsConst(mapped(labels, func(v int) int64 { return int64(v) }), len(labels))
	s.out(0, s.add("Gather", ir.Attrs{"axis": 0}, table, class))
}

// scaler is (x - offset)·scale, of one number or one a feature, in f32.
func scaler(s *site) {
	y := s.inFloat(s.in(0))
	apply := func(op, name string) {
		list := s.floats(name)
		if len(list) == 0 {
			return
		}
		if n := y.Type.Shape[s.rank(y, 1)-1]; len(list) != 1 && len(list) != n {
			s.fail("attribute %q has %d entries, want 1 or %d", name, len(list), n)
		}
		y = s.op(op, y, s.floatsConst(y.Type.DType, list, len(list)))
	}
	apply("Sub", "offset")
	apply("Mul", "scale")
	s.out(0, s.cast(y, ir.Float32))
}

// normalizer divides the rows of x [B,C] by their largest element, as ONNX Runtime does, the sum of their magnitudes,
// or their length. A row of zeros stays.
func normalizer(s *site) {
	x := s.inFloat(s.in(0))
	axes := []int{s.rank(x, 1) - 1}
	var size *ir.Value
	switch s.choice("norm", "MAX", "L1", "L2") {
	case "MAX":
		size = s.reduce("ReduceMax", x, axes, true)
	case "L1":
		size = s.reduce("ReduceSum", s.op("Abs", x), axes, true)
	default:
		size = s.op("Sqrt", s.reduce("ReduceSum", s.op("Mul", x, x), axes, true))
	}
	y := s.op("Div", x, s.where(s.op("Equal", size, s.like(size, 0)), s.like(size, 1), size))
	s.out(0, s.cast(y, ir.Float32))
}

// linearScores is x·coefficients' + intercepts for n classes or targets, [B,n].
func (s *site) linearScores(n int) *ir.Value {
	x := s.inFloat(s.features(s.in(0)))
	coefficients, features := s.floats("coefficients"), x.Type.Shape[1]
	if n < 1 || len(coefficients) != n*features {
		s.fail("%d coefficients, want %d for x %v", len(coefficients), n*features, x.Type)
	}
	y := s.add("MatMul", ir.Attrs{"transB": true}, x, s.floatsConst(x.Type.DType, coefficients, n, features))
	if list := s.floats("intercepts"); len(list) > 0 {
		if len(list) != n {
			s.fail("%d intercepts, want %d", len(list), n)
		}
		y = s.op("Add", y, s.floatsConst(x.Type.DType, list, n))
	}
	return s.cast(y, ir.Float32)
}

func linearRegressor(s *site) {
	s.out(0, s.postTransform(s.linearScores(s.int("targets", 1)), s.choice("post_transform", postTransforms...)))
}

// linearClassifier labels by the largest score. One row of coefficients for two classes is the score of the second one.
func linearClassifier(s *site) {
	labels := s.classLabels()
	x := s.features(s.in(0))
	rows := len(labels)
	if rows == 2 && len(s.floats("coefficients")) == x.Type.Shape[1] {
		rows = 1
	}
	y, post := s.linearScores(rows), s.choice("post_transform", postTransforms...)
	if rows < len(labels) {
		s.binaryScores(labels, y, true, post)
		return
	}
	s.label(labels, s.add("ArgMax", ir.Attrs{"axis": 1, "keepdims": false}, y))
	s.out(1, s.postTransform(y, post))
}

// maxKeys limits the keys of a LabelEncoder, each of which is compared with every element.
const maxKeys = 1 << 12

// labelEncoder maps numbers to numbers.
func labelEncoder(s *site) {
	x := s.in(0)
	keys, from := s.labelTable("keys")
	values, to := s.labelTable("values")
	if len(keys) != len(values) {
		s.fail("%d keys and %d values", len(keys), len(values))
	}
	if len(keys) > maxKeys {
		s.refuse("use Gather of a table", "it has %d keys, more than %d", len(keys), maxKeys)
	}
	if len(keys) == 0 || from != x.Type.DType {
		s.fail("its keys are of type %v, x is %v", from, x.Type)
	}
	def := s.fallbackLabel(to)
	r := x.Type.Rank()
	column := s.unsqueeze(x, r)
	equal := s.op("Equal", column, s.numbers(from, keys, len(keys)))
	if from.IsFloat() && s.opset >= 4 { // from there on, NaN is a key like others
		number := s.numbers(from, keys, len(keys))
		equal = s.op("Or", equal, s.op("And", s.op("IsNaN", column), s.op("IsNaN", number)))
	}
	place := s.where(equal, s.iota(ir.Int32, len(keys), r, r+1), s.scalar(ir.Int32, float64(len(keys))))
	which := s.reduce("ReduceMin", place, []int{r}, false)
	table := s.numbers(to, append(slices.Clone(values), def), len(keys)+1)
	s.out(0, s.add("Gather", ir.Attrs{"axis": 0}, table, which))
}

// labelTable is the list of keys or values of a LabelEncoder, and its type.
func (s *site) labelTable(name string) ([]float64, ir.DType) {
	if s.hasAttr(name + "_strings") {
		s.refuse("encode labels outside of the model", "its %s are strings", name)
	}
	if list := s.ints(name + "_int64s"); list != nil {
		for _, v := range list {
			if v != int(float64(v)) {
				s.refuse("use labels below 2^53", "its %s are as large as %d", name, v)
			}
		}
		return mapped(list, func(v int) float64 { return float64(v) }), ir.Int64
	}
	if list := s.floats(name + "_floats"); list != nil {
		return list, ir.Float32
	}
	t := s.tensorAttr(name + "_tensor")
	if t == nil {
		s.fail("it has no %s", name)
	}
	s.bound(t.Shape...)
	return t.Floats(), t.DType
}

// fallbackLabel is what a LabelEncoder yields for what is no key.
func (s *site) fallbackLabel(d ir.DType) float64 {
	if t := s.tensorAttr("default_tensor"); t != nil {
		if t.Numel() != 1 {
			s.fail("default_tensor is %v, want one element", t.Type)
		}
		return t.FloatAt(0)
	}
	if d.IsFloat() {
		return s.float("default_float", 0)
	}
	return float64(s.int("default_int64", -1))
}
