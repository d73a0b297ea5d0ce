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
	reductions("ReduceL1", 18, reduceComposite(func(s *site, x *ir.Value, r reducer) *ir.Value {
		return r("ReduceSum", s.op("Abs", x), true)
	})),
	reductions("ReduceL2", 18, reduceComposite(func(s *site, x *ir.Value, r reducer) *ir.Value {
		return s.op("Sqrt", r("ReduceSum", s.op("Mul", x, x), true))
	})),
	reductions("ReduceLogSum", 18, reduceComposite(func(s *site, x *ir.Value, r reducer) *ir.Value {
		return s.op("Log", r("ReduceSum", x, true))
	})),
	reductions("ReduceLogSumExp", 18, reduceComposite(reduceLogSumExp)),
	reductions("ReduceSumSquare", 18, reduceComposite(func(s *site, x *ir.Value, r reducer) *ir.Value {
		return r("ReduceSum", s.op("Mul", x, x), true)
	})),
	[]operator{
		{name: "ArgMax", since: 7, convert: arg("ArgMax")},
		{name: "ArgMin", since: 7, convert: arg("ArgMin")},
		{name: "CumSum", since: 11, shapes: []int{1}, convert: cumulate("CumSum")},
		{name: "CumProd", since: 26, shapes: []int{1}, convert: cumulate("CumProd")},
		{name: "TopK", since: 7, until: 9, convert: func(s *site) { topK(s, s.int("k", 0)) }},
		{name: "TopK", since: 10, shapes: []int{1}, convert: func(s *site) { topK(s, s.knownInt(1, "k", 0)) }},
		{name: "Softmax", since: 7, until: 12, convert: flattened(softmaxOf("Softmax"))},
		{name: "Softmax", since: 13, convert: alongLast(softmaxOf("Softmax"))},
		{name: "LogSoftmax", since: 7, until: 12, convert: flattened(softmaxOf("LogSoftmax"))},
		{name: "LogSoftmax", since: 13, convert: alongLast(softmaxOf("LogSoftmax"))},
		{name: "Hardmax", since: 7, until: 12, convert: flattened(hardmax)},
		{name: "Hardmax", since: 13, convert: alongLast(hardmax)},
	},
)

// reductions are the rows of one ReduceX: axes are an attribute before version inputSince, an input from there on.
func reductions(name string, inputSince int64, reduce func(s *site, axes []int, keep bool)) []operator {
	return []operator{
		{name: name, since: 7, until: inputSince - 1, convert: func(s *site) {
			s.reduceAxes(s.ints("axes"), false, reduce)
		}},
		{name: name, since: inputSince, shapes: []int{1}, convert: func(s *site) {
			s.reduceAxes(s.knownInts(1, "axes"), s.bool("noop_with_empty_axes", false), reduce)
		}},
	}
}

func (s *site) reduceAxes(axes []int, noop bool, reduce func(s *site, axes []int, keep bool)) {
	r := s.in(0).Type.Rank()
	if len(axes) == 0 && !noop {
		axes = iotaInts(r)
	}
	reduce(s, s.axes(axes, r), s.bool("keepdims", true))
}

func reduceOp(op string) func(*site, []int, bool) {
	return func(s *site, axes []int, keep bool) { s.out(0, s.reduce(op, s.in(0), axes, keep)) }
}

// reduceExtreme is ReduceMax or ReduceMin, which take bool from opset 20 on.
func reduceExtreme(op string) func(*site, []int, bool) {
	return func(s *site, axes []int, keep bool) {
		x := s.in(0)
		if x.Type.DType != ir.Bool {
			s.out(0, s.reduce(op, x, axes, keep))
			return
		}
		s.out(0, s.cast(s.reduce(op, s.cast(x, ir.Uint8), axes, keep), ir.Bool))
	}
}

// reducer reduces over the axes of the node. They stay as 1 unless it is the final reduction, where keepdims decides.
type reducer func(op string, x *ir.Value, final bool) *ir.Value

// reduceComposite computes in the wide type; integers in a floating-point type that holds them.
func reduceComposite(f func(*site, *ir.Value, reducer) *ir.Value) func(*site, []int, bool) {
	return func(s *site, axes []int, keep bool) {
		x := s.in(0)
		w := s.wide(x)
		if d := x.Type.DType; d.IsInt() && s.n.GetOpType() != "ReduceL1" && s.n.GetOpType() != "ReduceSumSquare" {
			w = s.cast(x, floatFor(d))
		}
		y := f(s, w, func(op string, x *ir.Value, final bool) *ir.Value {
			return s.reduce(op, x, axes, keep || !final)
		})
		s.out(0, s.cast(y, x.Type.DType))
	}
}

// floatFor is a floating-point type in which integers of type d are computed.
func floatFor(d ir.DType) ir.DType {
	if d.Bits() >= 32 {
		return ir.Float64
	}
	return ir.Float32
}

// reduceLogSumExp is m + log Σ e^(x-m) with the maximum m, or 0 where that is infinite.
func reduceLogSumExp(s *site, x *ir.Value, r reducer) *ir.Value {
	m := r("ReduceMax", x, false)
	m = s.where(s.op("IsInf", m), s.like(m, 0), m)
	y := s.op("Log", r("ReduceSum", s.op("Exp", s.op("Sub", x, m)), true))
	return s.op("Add", y, s.reshape(m, y.Type.Shape...))
}

func arg(op string) func(*site) {
	return func(s *site) {
		x := s.in(0)
		attrs := ir.Attrs{
			"axis":     s.axisOf(x, 0),
			"keepdims": s.bool("keepdims", true),
			"last":     s.bool("select_last_index", false),
		}
		s.out(0, s.add(op, attrs, x))
	}
}

func cumulate(op string) func(*site) {
	return func(s *site) {
		x := s.in(0)
		attrs := ir.Attrs{
			"axis":      s.axis(s.knownInt(1, "axis", 0), x.Type.Rank()),
			"exclusive": s.bool("exclusive", false),
			"reverse":   s.bool("reverse", false),
		}
		s.out(0, s.add(op, attrs, x))
	}
}

func topK(s *site, k int) {
	x := s.in(0)
	attrs := ir.Attrs{"k": k, "axis": s.axisOf(x, -1), "largest": s.bool("largest", true)}
	outs := s.addAll("TopK", attrs, x)
	s.out(0, outs[0])
	s.out(1, outs[1])
}

// alongLast works along one axis, by default the last.
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

// flattened is the rule before opset 13: x is a matrix whose rows begin at axis, by default 1.
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
