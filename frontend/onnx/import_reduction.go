package onnx

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

var reductionOperators = slices.Concat(
	reductions("ReduceSum", 13, reduceOp("ReduceSum")),
	reductions("ReduceMean", 18, reduceOp("ReduceMean")),
	reductions("ReduceMax", 18, reduceExtreme("ReduceMax")),
	reductions("ReduceMin", 18, reduceExtreme("ReduceMin")),
	reductions("ReduceProd", 18, reduceOp("ReduceProd")),
	reductions("ReduceL1", 18, reduceSum("abs(x)", "x", false)),
	reductions("ReduceL2", 18, reduceSum("x*x", "sqrt(x)", true)),
	reductions("ReduceLogSum", 18, reduceSum("x", "log(x)", true)),
	reductions("ReduceLogSumExp", 18, reduceLogSumExp),
	reductions("ReduceSumSquare", 18, reduceSum("x*x", "x", false)),
	alongAxis("Softmax", softmaxOf("Softmax")),
	alongAxis("LogSoftmax", softmaxOf("LogSoftmax")),
	alongAxis("Hardmax", hardmax),
	[]operator{
		{name: "ArgMax", since: 7, convert: arg("ArgMax")},
		{name: "ArgMin", since: 7, convert: arg("ArgMin")},
		{name: "CumSum", since: 11, shapes: []int{1}, convert: cumulate("CumSum")},
		{name: "CumProd", since: 26, shapes: []int{1}, convert: cumulate("CumProd")},
		{name: "TopK", since: 7, until: 9, convert: topK(func(s *site) int { return s.int("k", 0) })},
		{name: "TopK", since: 10, shapes: []int{1}, convert: topK(func(s *site) int { return s.knownInt(1, "k", 0) })},
	},
)

// reductions are the rows of one ReduceX: axes are an attribute before version inputSince, an input from there on.
func reductions(name string, inputSince int64, reduce func(s *site, axes []int, keep bool)) []operator {
	return listOperator(name, inputSince, "axes", func(s *site, axes []int) {
		r := s.in(0).Type.Rank()
		if len(axes) == 0 && (s.opset < inputSince || !s.bool("noop_with_empty_axes", false)) {
			axes = iotaInts(r)
		}
		reduce(s, s.axes(axes, r), s.bool("keepdims", true))
	})
}

func reduceOp(op string) func(*site, []int, bool) {
	return func(s *site, axes []int, keep bool) { s.out(0, s.reduce(op, s.in(0), axes, keep)) }
}

// reduceExtreme is ReduceMax or ReduceMin, which take bool from opset 20 on.
func reduceExtreme(op string) func(*site, []int, bool) {
	return func(s *site, axes []int, keep bool) {
		x := s.in(0)
		d := x.Type.DType
		if d == ir.Bool {
			x = s.cast(x, ir.Uint8)
		}
		s.out(0, s.cast(s.reduce(op, x, axes, keep), d))
	}
}

// reduceSum applies one formula to each element and another to their sum, in the wide type; with inFloat it computes
// integers in floating point.
func reduceSum(each, total string, inFloat bool) func(*site, []int, bool) {
	before, after := parseFormula(each, nil), parseFormula(total, nil)
	return func(s *site, axes []int, keep bool) {
		x := s.in(0)
		w := s.wide(x)
		if inFloat {
			w = s.inFloat(x)
		}
		sum := s.reduce("ReduceSum", before.on(s, w), axes, keep)
		s.out(0, s.cast(after.on(s, sum), x.Type.DType))
	}
}

// inFloat is v in the wide type, integers in a floating-point type that holds them.
func (s *site) inFloat(v *ir.Value) *ir.Value {
	switch d := v.Type.DType; {
	case d.IsFloat():
		return s.wide(v)
	case d.Bits() >= 32:
		return s.cast(v, ir.Float64)
	}
	return s.cast(v, ir.Float32)
}

// reduceLogSumExp is m + log Σ e^(x-m) with the maximum m, or 0 where that is infinite.
func reduceLogSumExp(s *site, axes []int, keep bool) {
	x := s.inFloat(s.in(0))
	m := s.reduce("ReduceMax", x, axes, true)
	m = s.where(s.op("IsInf", m), s.like(m, 0), m)
	y := s.op("Log", s.reduce("ReduceSum", s.op("Exp", s.op("Sub", x, m)), axes, keep))
	s.out(0, s.cast(s.op("Add", y, s.reshape(m, y.Type.Shape...)), s.in(0).Type.DType))
}

func arg(op string) func(*site) {
	return oneOp(op, func(s *site) ir.Attrs {
		return ir.Attrs{
			"axis":     s.axisOf(s.in(0), 0),
			"keepdims": s.bool("keepdims", true),
			"last":     s.bool("select_last_index", false),
		}
	})
}

func cumulate(op string) func(*site) {
	return oneOp(op, func(s *site) ir.Attrs {
		return ir.Attrs{
			"axis":      s.axis(s.knownInt(1, "axis", 0), s.in(0).Type.Rank()),
			"exclusive": s.bool("exclusive", false),
			"reverse":   s.bool("reverse", false),
		}
	})
}

func topK(k func(*site) int) func(*site) {
	return oneOp("TopK", func(s *site) ir.Attrs {
		return ir.Attrs{"k": k(s), "axis": s.axisOf(s.in(0), -1), "largest": s.bool("largest", true)}
	})
}

// alongAxis are the rows of an operator that works along one axis, by default the last. Before opset 13 x was a matrix
// whose rows begin at axis, by default 1.
func alongAxis(name string, f func(*site, *ir.Value, int) *ir.Value) []operator {
	return []operator{
		{name: name, since: 7, until: 12, convert: flattened(f)},
		{name: name, since: 13, convert: alongLast(f)},
	}
}

func alongLast(f func(*site, *ir.Value, int) *ir.Value) func(*site) {
	return func(s *site) {
		x := s.in(0)
		if x.Type.Rank() == 0 { // a single row of one element
			s.out(0, s.reshape(f(s, s.reshape(x, 1), 0)))
			return
		}
		s.out(0, f(s, x, s.axisOf(x, -1)))
	}
}

func flattened(f func(*site, *ir.Value, int) *ir.Value) func(*site) {
	return func(s *site) {
		x := s.in(0)
		axis := s.int("axis", 1)
		if r := x.Type.Rank(); axis != r {
			axis = s.axis(axis, r)
		}
		s.out(0, s.reshape(f(s, s.flatten(x, axis), 1), x.Type.Shape...))
	}
}

func softmaxOf(op string) func(*site, *ir.Value, int) *ir.Value {
	return func(s *site, x *ir.Value, axis int) *ir.Value { return s.add(op, ir.Attrs{"axis": axis}, x) }
}

// hardmax is 1 at the first maximum along axis, 0 elsewhere.
func hardmax(s *site, x *ir.Value, axis int) *ir.Value {
	at := s.add("ArgMax", ir.Attrs{"axis": axis, "keepdims": true}, x)
	hit := s.op("Equal", s.iota(ir.Int64, x.Type.Shape[axis], axis, x.Type.Rank()), at)
	return s.cast(hit, x.Type.DType)
}
