package randgraph

import (
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/ir"
)

var otherRows = slices.Concat(
	rowsFor(1, func(b *build, op string) {
		b.one(op, []*value{b.scalarInt(b.between(5, 12))}, b.maybe(a("periodic", b.chance(.5)))...)
	}, "HannWindow", "HammingWindow", "BlackmanWindow"),
	rowsFor(1, loss, "NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"),
	[]row{
		{"MelWeightMatrix", 1, func(b *build, op string) {
			b.one(op, []*value{b.scalarInt(b.between(2, 6)), b.scalarInt(16 * b.between(1, 3)), b.scalarInt(8000),
				b.constant(ir.ScalarFloat(ir.Float32, 0)), b.constant(ir.ScalarFloat(ir.Float32, 4000))})
		}},
		{"DFT", 1, func(b *build, op string) {
			s := append(b.shape(1, 1), b.between(1, 9), b.between(1, 2))
			x := b.exactly(b.dtype(b.types(0)), s...)
			onesided := s[2] == 1 && b.chance(.4)
			attrs := []onnx.Attr{a("onesided", onesided)}
			if !onesided {
				attrs = append(attrs, b.maybe(a("inverse", b.chance(.5)))...)
			}
			in := []*value{x, nil, nil}
			if b.chance(.3) {
				in[1] = b.scalarInt(b.between(1, 9))
			}
			if b.opset < 20 {
				attrs = append(attrs, a("axis", 1))
			} else if b.chance(.5) {
				in[2] = b.scalarInt(1)
			}
			b.one(op, in, attrs...)
		}},
		{"STFT", 1, func(b *build, op string) {
			n, length := b.between(8, 24), b.between(2, 8)
			d := b.dtype(b.types(0))
			in := []*value{b.exactly(d, b.between(1, 2), n, 1), b.scalarInt(b.between(1, 4)), nil, b.scalarInt(length)}
			if b.chance(.5) {
				in[2] = b.uniform(d, .2, 1, length)
			}
			b.one(op, in, b.maybe(a("onesided", b.chance(.5)))...)
		}},
		{"ConstantOfShape", 1, func(b *build, op string) {
			d := b.dtype([]ir.DType{ir.Float32, ir.Int64, ir.Int32, ir.Bool, ir.Float16})
			b.one(op, []*value{b.ints(b.shape(1, 3)...)}, a("value", b.plain(d, 1)))
		}},
		{"Shape", 1, func(b *build, op string) {
			x := b.tensor(b.types(0), 1, 5)
			if b.opset < 15 {
				b.one(op, []*value{x})
				return
			}
			start := b.between(0, x.Rank()-1)
			b.one(op, []*value{x}, a("start", start), a("end", b.between(start+1, x.Rank())))
		}},
		{"Size", 1, unary},
		{"EyeLike", 1, func(b *build, op string) {
			b.one(op, []*value{b.tensor(b.types(0), 2, 2)}, b.maybe(a("k", b.between(-2, 2)), a("dtype", oneOf(b, ir.Float32, ir.Int64, ir.Float64)))...)
		}},
		{"Range", 1, func(b *build, op string) {
			d := b.dtype([]ir.DType{ir.Float32, ir.Int64, ir.Int32, ir.Float64})
			delta := oneOf(b, 1, 2, 3, -1)
			start := b.between(-3, 3)
			limit := start + delta*b.between(1, 8)
			var in []*value
			for _, x := range []int{start, limit, delta} {
				in = append(in, b.constant(tensorOf(ir.T(d), constantly(x))))
			}
			b.one(op, in)
		}},
		{"If", 1, func(b *build, op string) {
			if b.opset < 9 { // the file format lists constants among the inputs
				b.redraw()
			}
			x := b.tensor(b.floatTypes("Relu"), 0, 4)
			cond := b.constant(ir.ScalarInt(ir.Bool, int64(b.r.IntN(2))))
			branch := func(op string) *onnxpb.GraphProto {
				b.count++
				inner := onnx.NewBuilder("branch", b.opset)
				y := b.inner("branch")
				inner.Node(op, []string{x.name}, []string{y})
				inner.Output(y, x.DType, dims(x.Shape)...)
				return inner.Graph()
			}
			b.nodeIn(op, []*value{cond}, []*value{x}, 1, a("then_branch", branch("Relu")), a("else_branch", branch("Neg")))
		}},
		{"Loop", 1, func(b *build, op string) {
			if b.opset < 9 {
				b.redraw()
			}
			x := b.tensor(b.floatTypes("Add"), 0, 3)
			c := b.exactly(x.DType, x.Shape...)
			inner := onnx.NewBuilder("body", b.opset)
			i, cond, state := b.inner("i"), b.inner("cond"), b.inner("state")
			inner.Input(i, ir.Int64)
			inner.Input(cond, ir.Bool)
			inner.Input(state, x.DType, dims(x.Shape)...)
			going, sum, half, out := b.inner("going"), b.inner("sum"), b.inner("next"), b.inner("seen")
			inner.Node("Identity", []string{cond}, []string{going})
			inner.Node("Add", []string{state, c.name}, []string{sum})
			inner.Node("Tanh", []string{sum}, []string{half})
			inner.Node("Neg", []string{sum}, []string{out})
			inner.Output(going, ir.Bool)
			inner.Output(half, x.DType, dims(x.Shape)...)
			inner.Output(out, x.DType, dims(x.Shape)...)
			b.nodeIn(op, []*value{b.scalarInt(b.between(1, 4)), b.constant(ir.ScalarInt(ir.Bool, 1)), x}, []*value{c}, 2, a("body", inner.Graph()))
		}},
		{"Scan", 1, func(b *build, op string) {
			if b.opset < 9 {
				b.redraw()
			}
			x := b.tensor(b.floatTypes("Add"), 1, 3)
			state := b.exactly(x.DType, x.Shape[1:]...)
			inner := onnx.NewBuilder("body", b.opset)
			s, e := b.inner("state"), b.inner("element")
			inner.Input(s, x.DType, dims(x.Shape[1:])...)
			inner.Input(e, x.DType, dims(x.Shape[1:])...)
			sum, next, out := b.inner("sum"), b.inner("next"), b.inner("seen")
			inner.Node("Add", []string{s, e}, []string{sum})
			inner.Node("Tanh", []string{sum}, []string{next})
			inner.Node("Neg", []string{sum}, []string{out})
			inner.Output(next, x.DType, dims(x.Shape[1:])...)
			inner.Output(out, x.DType, dims(x.Shape[1:])...)
			attrs := []onnx.Attr{a("num_scan_inputs", 1), a("body", inner.Graph())}
			if b.chance(.4) {
				attrs = append(attrs, a("scan_input_directions", []int{b.r.IntN(2)}), a("scan_output_directions", []int{b.r.IntN(2)}))
			}
			b.node(op, []*value{state, x}, 2, attrs...)
		}},
	},
)

// inner is a name in a graph of a node, which no other graph has.
func (b *build) inner(hint string) string {
	b.count++
	return fmt.Sprint(hint, b.count)
}

// floatTypes are the floats that an operator takes.
func (b *build) floatTypes(op string) []ir.DType {
	var out []ir.DType
	for _, d := range b.schema(op).inputs[0].types {
		if d.IsFloat() {
			out = append(out, d)
		}
	}
	return out
}

// loss is of rows of classes; log probabilities need not add up to 1.
func loss(b *build, op string) {
	x := b.pick(func(v *value) bool { return slices.Contains(b.types(0), v.DType) && v.Rank() >= 2 && v.Rank() <= 4 },
		func() *value { return b.given(b.plain(b.dtype(b.types(0)), b.shape(2, 4)...)) })
	c := x.Shape[1]
	s := slices.Delete(slices.Clone(x.Shape), 1, 2)
	in := []*value{x, b.indices(oneOf(b, ir.Int32, ir.Int64), c, false, s...), nil}
	if b.chance(.4) {
		in[2] = b.uniform(x.DType, .3, 2, c)
	}
	attrs := []onnx.Attr{a("reduction", oneOf(b, "mean", "sum", "none"))}
	if b.chance(.2) {
		attrs = append(attrs, a("ignore_index", oneOf(b, -1, 0)))
	}
	outs := 1
	if op == "SoftmaxCrossEntropyLoss" {
		outs = b.between(1, 2)
	}
	b.node(op, in, outs, attrs...)
}
