package randgraph

import (
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/ir"
)

var reductionRows = slices.Concat(
	rowsFor(2, reduce(13), "ReduceSum"),
	rowsFor(2, reduce(18), "ReduceMean", "ReduceMax"),
	rowsFor(1, reduce(18), "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"),
	rowsFor(2, alongAxis, "Softmax"),
	rowsFor(1, alongAxis, "LogSoftmax", "Hardmax"),
	rowsFor(1, arg, "ArgMax", "ArgMin"),
	rowsFor(1, cumulate, "CumSum", "CumProd"),
	[]row{{"TopK", 1, func(b *build, op string) {
		x := b.tensor(b.types(0), 1, 4)
		axis := b.axis(x.Rank())
		k := b.between(1, x.Shape[(axis+x.Rank())%x.Rank()])
		if b.opset < 10 {
			b.node(op, []*value{x}, 2, a("axis", axis), a("k", k))
			return
		}
		attrs := []onnx.Attr{a("axis", axis)}
		if b.opset >= 11 {
			attrs = append(attrs, b.maybe(a("largest", b.chance(.5)))...)
		}
		b.node(op, []*value{x, b.ints(k)}, 2, attrs...)
	}}},
)

// reduce is a ReduceX, whose axes are an attribute before an opset.
func reduce(since int64) func(b *build, op string) {
	return func(b *build, op string) {
		x := b.x()
		var axes []int
		if b.chance(.8) {
			axes = b.axes(x.Rank(), 1)
			for i, ax := range axes {
				if b.opset < 11 && ax < 0 {
					axes[i] += x.Rank()
				}
			}
		}
		if len(axes) == 0 {
			axes = nil
		}
		if op == "ReduceLogSumExp" && !x.DType.IsFloat() { // a logarithm cut to a whole number
			b.redraw()
		}
		if op == "ReduceProd" {
			b.holds(x)
		}
		if op == "ReduceLogSum" {
			x = b.inRange(.2, 3)
			axes = nil
		}
		attrs := b.maybe(a("keepdims", b.chance(.5)))
		if b.opset >= since && b.chance(.2) {
			attrs = append(attrs, a("noop_with_empty_axes", b.chance(.5)))
		}
		b.listInput(op, x, since, "axes", axes, 1, attrs...)
	}
}

// holds redraws where products of integers may leave their type: ONNX Runtime saturates there, others wrap.
func (b *build) holds(x *value) {
	bits := 0.0
	for _, v := range x.data.I {
		bits += math.Log2(max(1, math.Abs(float64(v))))
	}
	if bits >= float64(x.DType.Bits()-1) {
		b.redraw()
	}
}

func alongAxis(b *build, op string) {
	x := b.tensor(b.types(0), 1, 4)
	attrs := []onnx.Attr{a("axis", b.axis(x.Rank()))}
	if x.Rank() > 1 || b.opset >= 13 { // else the default, 1, is out of range
		attrs = b.maybe(attrs...)
	}
	b.one(op, []*value{x}, attrs...)
}

func arg(b *build, op string) {
	x := b.tensor(b.types(0), 1, 4)
	attrs := b.maybe(a("axis", b.axis(x.Rank())), a("keepdims", b.chance(.5)))
	if b.opset >= 12 {
		attrs = append(attrs, b.maybe(a("select_last_index", b.chance(.5)))...)
	}
	b.one(op, []*value{x}, attrs...)
}

func cumulate(b *build, op string) {
	x := b.tensor(b.types(0), 1, 4)
	if op == "CumProd" {
		b.holds(x)
	}
	axis := b.constant(tensorOf(ir.T(oneOf(b, ir.Int32, ir.Int64)), constantly(b.axis(x.Rank()))))
	b.one(op, []*value{x, axis}, b.maybe(a("exclusive", b.chance(.5)), a("reverse", b.chance(.5)))...)
}

func constantly(x int) func(int) float64 { return func(int) float64 { return float64(x) } }

var normalizationRows = []row{
	{"BatchNormalization", 3, func(b *build, op string) {
		x := b.tensor(b.types(0), 2, 5)
		c := x.Shape[1]
		d := x.DType
		in := []*value{x, b.uniform(d, .5, 2, c), b.given(b.plain(d, c)), b.given(b.plain(d, c)), b.uniform(d, .3, 2, c)}
		attrs := b.maybe(a("epsilon", b.number(1e-5, .1)))
		if b.opset < 9 {
			b.one(op, in, append(attrs, a("spatial", true))...)
			return
		}
		if b.opset >= 14 && b.chance(.15) && x.Numel()/c > 3 {
			b.node(op, in, 3, append(attrs, a("training_mode", true), a("momentum", b.number(.5, 1)))...)
			return
		}
		b.one(op, in, attrs...)
	}},
	{"InstanceNormalization", 1, func(b *build, op string) {
		x := b.image(1, 3, func(s []int) bool { return s[2] > 1 }, func(s []int) { s[2] += 2 })
		b.one(op, []*value{x, b.uniform(x.DType, .5, 2, x.Shape[1]), b.given(b.plain(x.DType, x.Shape[1]))}, b.maybe(a("epsilon", b.number(1e-3, .1)))...)
	}},
	{"GroupNormalization", 1, func(b *build, op string) {
		x := b.image(1, 3, nil, func(s []int) { s[1] = 2 * b.between(1, 4); s[2] += 2 })
		groups := b.divisorOf(x.Shape[1])
		n := groups
		if b.opset >= 21 {
			n = x.Shape[1]
		}
		b.one(op, []*value{x, b.uniform(x.DType, .5, 2, n), b.given(b.plain(x.DType, n))}, a("num_groups", groups), a("epsilon", b.number(1e-3, .1)))
	}},
	{"LayerNormalization", 2, func(b *build, op string) {
		x := b.tensor(b.types(0), 1, 4)
		axis := b.axis(x.Rank())
		s := x.Shape[(axis+x.Rank())%x.Rank():]
		in := []*value{x, b.uniform(x.DType, .5, 2, s...), nil}
		if b.chance(.6) {
			in[2] = b.given(b.plain(x.DType, s...))
		}
		b.node(op, in, oneOf(b, 1, 1, 1, 3), a("axis", axis), a("epsilon", b.number(1e-3, .1)))
	}},
	{"RMSNormalization", 1, func(b *build, op string) {
		x := b.tensor(b.types(0), 1, 4)
		axis := b.axis(x.Rank())
		d := x.DType
		if b.chance(.2) {
			d = b.dtype(b.types(1))
		}
		_ = d
		b.one(op, []*value{x, b.uniform(x.DType, .5, 2, x.Shape[(axis+x.Rank())%x.Rank():]...)}, a("axis", axis), a("epsilon", b.number(1e-3, .1)))
	}},
	{"LRN", 1, func(b *build, op string) {
		x := b.image(2, 2, nil, nil) // other ranks nobody runs
		b.one(op, []*value{x}, append(b.maybe(a("alpha", b.number(0, 1)), a("beta", b.number(.25, 1)), a("bias", b.number(.5, 2))), a("size", oneOf(b, 1, 3, 5)))...)
	}},
	{"LpNormalization", 1, func(b *build, op string) {
		x := b.tensor(b.types(0), 1, 4)
		b.one(op, []*value{x}, b.maybe(a("axis", b.axis(x.Rank())), a("p", b.between(1, 2)))...)
	}},
	{"MeanVarianceNormalization", 1, func(b *build, op string) {
		if b.chance(.6) {
			b.one(op, []*value{b.image(2, 2, nil, nil)})
			return
		}
		x := b.tensor(b.types(0), 2, 4)
		axes := b.axes(x.Rank(), 1)
		slices.Sort(axes)
		b.one(op, []*value{x}, a("axes", axes))
	}},
}

// divisorOf is a divisor of n.
func (b *build) divisorOf(n int) int {
	d := b.between(1, n)
	for n%d != 0 {
		d--
	}
	return d
}
