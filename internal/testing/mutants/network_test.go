package mutants

import (
	"math"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/families"
	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

// narrow is the model of the kernels on narrow floats: matrix products of one input, each once with 8-bit activations and
// weights, with weights in two terms, with NVFP4 of both, with NVFP4 weights alone, and with 6-bit weights. One layer deep, so that what rounds differently
// does not spread.
const narrow = "assign-storage"

// deep and single are models of products in f16 and f32 that are long enough for rings of stages to wrap, one of them for split-K
// to pay, and of a LayerNorm whose rows are no multiple of a warp's loads. They lie between others, since what a run before has
// left in an output is not told from what this one wrote.
const (
	deep   = "deep"
	single = "deep, fp32"
)

// gradient is a model of what training steps have: a product that also sums rows of its result, and the gradient
// of an attention of 25 positions, which are padded.
const gradient = "gradient"

// joint is a model of an attention and the product of its heads, which are one kernel.
const joint = "joint"

// tail is a model of what networks end with: layers of a few neurons after a norm, and fused loops, of which the
// norm is an output too.
const tail = "tail"

// perceptron is a model of two products in one kernel, of which the first makes what the second multiplies, between others.
const perceptron = "perceptron"

// residual is a model of an inverted residual in one kernel, between others: pixels are expanded, windows slide over that, and what they make is multiplied.
const residual = "residual"

// networks are the models that are graphs of regions; the first value of each is its input.
var networks = map[string]func(g *kerneltest.Graph, x *ir.Value){narrow: narrowNetwork, deep: deepNetwork(ir.Float16), single: deepNetwork(ir.Float32), gradient: gradientNetwork, joint: jointNetwork, tail: tailNetwork, perceptron: perceptronNetwork, residual: residualNetwork}

// layer is a region that multiplies.
type layer struct{ *kerneltest.Region }

func newLayer(g *kerneltest.Graph) layer { return layer{g.Region(ir.FamilyContraction)} }

func (l layer) promoted(v *ir.Value) *ir.Value { return l.Cast(l.Read(v, false), ir.Float32) }

// weights are constants of a type as f32.
func (l layer) weights(d ir.DType, k, cols int) *ir.Value {
	return l.Cast(l.Input(ir.T(d, k, cols), 1, true, false), ir.Float32)
}

// blocks are e2m1 weights of a matrix with their scales.
func (l layer) blocks(k, cols int) *ir.Value {
	w := l.Input(ir.T(ir.Float4E2M1, k, cols), 2, true, false)
	s := l.Drawing(ir.T(ir.Float8E4M3FN, k/ir.BlockSize, cols), positive(1, .1), true, false)
	return l.Dequantise(0, ir.BlockSize, w, s)
}

// product multiplies and scales by channel.
func (l layer) product(a, b *ir.Value, size float64) *ir.Value {
	y := l.Add("MatMul", nil, a, b)
	return l.Add("Mul", nil, y, l.Fill(ir.T(ir.Float32, y.Type.Shape[1]), positive(size, .2), true, false))
}

// stored ends the region with a value of a type.
func (l layer) stored(y *ir.Value, d ir.DType) *ir.Value { return l.Finish(l.Cast(y, d)).Outputs[0] }

// positive numbers are for scales.
func positive(size, least float64) kerneltest.Draw {
	return func(r *rand.Rand, _ int) float64 { return size * (least + r.Float64()) }
}

func narrowNetwork(g *kerneltest.Graph, x *ir.Value) {
	const k, hidden, cols = 128, 192, 64
	size := 1 / math.Sqrt(k)

	l := newLayer(g)
	codes := l.stored(l.product(l.promoted(x), l.weights(ir.Float16, k, hidden), 8*size), ir.Float8E4M3FN)
	l = newLayer(g)
	eight := l.stored(l.product(l.promoted(codes), l.weights(ir.Float8E4M3FN, hidden, cols), size/8), ir.Float32)

	l = newLayer(g)
	two := l.Rounded(l.weights(ir.Float16, hidden, cols), ir.Storage{DType: ir.Float8E4M3FN, SplitTerms: 2})
	split := l.stored(l.product(l.promoted(codes), two, size/8), ir.Float32)

	l = newLayer(g)
	q := l.FinishBlocks(l.product(l.promoted(x), l.weights(ir.Float16, k, hidden), size), .02).Outputs
	l = newLayer(g)
	in := l.Dequantise(1, ir.BlockSize, l.Read(q[0], false), q[1])
	four := l.stored(l.product(in, l.blocks(hidden, cols), size*.02), ir.Float32)

	l = newLayer(g)
	weights := l.stored(l.product(l.promoted(x), l.blocks(k, cols), size), ir.Float32)

	l = newLayer(g)
	six := l.stored(l.product(l.promoted(x), l.weights(ir.Float6E3M2, k, cols), size/8), ir.Float32)
	g.Outputs = []*ir.Value{eight, split, four, weights, six}
}

func deepNetwork(d ir.DType) func(g *kerneltest.Graph, x *ir.Value) {
	return func(g *kerneltest.Graph, x *ir.Value) {
		// The last chunk of the long K lies where the sums of the warps go.
		const k, wide, hidden, cols = 128, 640, 2560, 360
		y := x
		multiply := func(k, cols int, to ir.DType) {
			l := newLayer(g)
			y = l.stored(l.product(l.promoted(y), l.weights(d, k, cols), 1/math.Sqrt(float64(k))), to)
		}
		multiply(k, wide, d)
		multiply(wide, hidden, d)
		multiply(hidden, cols, ir.Float32)
		l := layer{g.Region(ir.FamilyLoop)}
		scale, bias := l.Input(ir.T(ir.Float32, cols), 1, true, false), l.Input(ir.T(ir.Float32, cols), 1, true, false)
		y = l.stored(l.Add("LayerNorm", ir.Attrs{"axis": 1}, l.Read(y, false), scale, bias), d)
		multiply(cols, k, ir.Float32)
		g.Outputs = []*ir.Value{y}
	}
}

func gradientNetwork(g *kerneltest.Graph, x *ir.Value) {
	const batch, rows, used, size = 2, 32, 25, 32
	l := newLayer(g)
	y := l.Add("MatMul", nil, l.promoted(x), l.weights(ir.Float16, 128, 48))
	s := l.Add("Mul", nil, y, l.Fill(ir.T(ir.Float32, 48), positive(1, .2), true, false))
	s = l.Add("ReduceSum", ir.Attrs{"axes": []int{1}}, l.Add("Reshape", ir.Attrs{"shape": []int{batch, rows, 48}}, s))
	sums := l.Finish(l.Cast(l.Add("Relu", nil, y), ir.Float32), s).Outputs

	l = newLayer(g)
	in := make([]*ir.Value, 4)
	all := l.Add("Reshape", ir.Attrs{"shape": []int{batch, rows, 4 * size}}, l.promoted(x))
	for i := range in {
		part := l.Add("Slice", ir.Attrs{"starts": []int{0, 0, i * size}, "sizes": []int{batch, used, size}}, all)
		in[i] = l.Add("Reshape", ir.Attrs{"shape": []int{batch, 1, used, size}}, part)
	}
	d := l.Finish(l.Add("AttentionGrad", ir.Attrs{"scale": 0.3}, in...)).Outputs[0]
	g.Outputs = []*ir.Value{sums[0], sums[1], d}
}

func jointNetwork(g *kerneltest.Graph, x *ir.Value) {
	const rows, heads, size, cols = 25, 4, 32, 40
	l := newLayer(g)
	qkv := l.stored(l.product(l.promoted(x), l.weights(ir.Float16, 128, 3*heads*size), 1/math.Sqrt(128)), ir.Float16)

	l = newLayer(g)
	in := make([]*ir.Value, 3)
	all := l.Add("Reshape", ir.Attrs{"shape": []int{1, rows, 3, heads, size}}, l.promoted(qkv))
	for i := range in {
		part := l.Add("Slice", ir.Attrs{"starts": []int{0, 0, i, 0, 0}, "sizes": []int{1, rows, 1, heads, size}}, all)
		part = l.Add("Reshape", ir.Attrs{"shape": []int{1, rows, heads, size}}, part)
		in[i] = l.Add("Transpose", ir.Attrs{"perm": []int{0, 2, 1, 3}}, part)
	}
	y := l.Add("Transpose", ir.Attrs{"perm": []int{0, 2, 1, 3}}, l.Add("Attention", ir.Attrs{"scale": 0.3}, in...))
	y = l.stored(l.Add("Reshape", ir.Attrs{"shape": []int{rows, heads * size}}, y), ir.Float16)
	first := l.Node

	l = newLayer(g)
	y = l.stored(l.product(l.promoted(y), l.weights(ir.Float16, heads*size, cols), .1), ir.Float32)
	fused := ir.NewFused([]*ir.Node{first, l.Node}, false)
	y.Def = fused
	g.Nodes, g.Outputs = append(g.Nodes[:len(g.Nodes)-2], fused), []*ir.Value{y}
}

func tailNetwork(g *kerneltest.Graph, x *ir.Value) {
	l := layer{g.Region(ir.FamilyLoop)}
	producer := l.stored(l.Add("Tanh", nil, l.promoted(x)), ir.Float16)
	l = layer{g.Region(ir.FamilyLoop)}
	y := l.stored(l.Add("LayerNorm", ir.Attrs{"axis": 1}, l.promoted(producer)), ir.Float32)
	parts := []*ir.Node{y.Def}
	for i, shape := range [][]int{{96, 256}, {160, 96}, {300, 160}} {
		l = layer{g.Region(ir.FamilyLoop)}
		n, k := shape[0], shape[1]
		in := l.Read(parts[i].Outputs[0], false)
		if i == 0 {
			in = l.Add("Reshape", ir.Attrs{"shape": []int{k}}, in)
		}
		w := l.Cast(l.Input(ir.T(ir.Float16, n, k), 1/math.Sqrt(float64(k)), true, false), ir.Float32)
		from, length := l.Body.Constant("o", ir.SplatInt(ir.T(ir.Int32, n), 0)), l.Body.Constant("l", ir.SplatInt(ir.T(ir.Int32, n), int64(k)))
		parts = append(parts, l.stored(l.Add("SegmentedMatVec", nil, in, w, l.Input(ir.T(ir.Float32, n), 1, true, false), from, length), ir.Float32).Def)
	}
	n := ir.NewFused(parts, true)
	for i, v := range n.Outputs {
		v.Def, v.Index = n, i
	}
	g.Nodes, g.Outputs = []*ir.Node{producer.Def, n}, n.Outputs
}

func perceptronNetwork(g *kerneltest.Graph, x *ir.Value) {
	const in, k, hidden = 128, 384, 640 // so long a k that warps share it
	product := func(x *ir.Value, k, cols int, to ir.DType, op string) *ir.Node {
		l := newLayer(g)
		y := l.product(l.promoted(x), l.weights(ir.Float16, k, cols), 1/math.Sqrt(float64(k)))
		return l.Finish(l.Cast(l.Add(op, nil, y), to))
	}
	y := product(x, in, k, ir.Float16, "Relu").Outputs[0]
	up := product(y, k, hidden, ir.Float16, "Relu")
	down := product(up.Outputs[0], hidden, in, ir.Float16, "Neg")
	n := ir.NewFused([]*ir.Node{up, down}, false)
	n.Outputs[0].Def = n
	g.Nodes = append(g.Nodes[:len(g.Nodes)-2], n)
	g.Outputs = product(n.Outputs[0], in, 64, ir.Float32, "Neg").Outputs
}

func residualNetwork(g *kerneltest.Graph, x *ir.Value) {
	const h, w, k, hidden = 8, 10, 128, 144
	conv := func(group, pad int) ir.Attrs {
		return ir.Attrs{"layout": "NHWC", "group": group, "strides": []int{1, 1}, "dilations": []int{1, 1}, "pads": []int{pad, pad, pad, pad}}
	}
	bias := func(l layer, n int) *ir.Value { return l.Input(ir.T(ir.Float32, n), 1, true, false) }
	product := func(x *ir.Value, in, out int, to ir.DType, op string) *ir.Node {
		l := newLayer(g)
		a := l.Add("Reshape", ir.Attrs{"shape": []int{1, h, w, in}}, l.promoted(x))
		b := l.Cast(l.Input(ir.T(ir.Float16, out, in, 1, 1), 1/math.Sqrt(float64(in)), true, false), ir.Float32)
		return l.Finish(l.Cast(l.Add(op, nil, l.Add("Conv", conv(1, 0), a, b, bias(l, out))), to))
	}
	y := product(x, k, k, ir.Float16, "Relu").Outputs[0]
	up := product(y, k, hidden, ir.Float16, "Relu")
	l := layer{g.Region(ir.FamilyWindow)}
	taps := l.Input(ir.T(ir.Float32, hidden, 1, 3, 3), 0.3, true, false)
	slid := l.Finish(l.Cast(l.Add("Relu", nil, l.Add("Conv", conv(hidden, 1), l.promoted(up.Outputs[0]), taps, bias(l, hidden))), ir.Float16))
	down := product(slid.Outputs[0], hidden, k, ir.Float16, "Neg")
	n := ir.NewFused([]*ir.Node{up, slid, down}, false)
	n.Outputs[0].Def = n
	g.Nodes = append(g.Nodes[:len(g.Nodes)-3], n)
	g.Outputs = product(n.Outputs[0], k, 64, ir.Float32, "Neg").Outputs
}

// loadNetwork is load of one of the networks.
func loadNetwork(t testing.TB, name string) *model {
	t.Helper()
	g := kerneltest.NewGraph(t, name)
	rows := map[string]int{narrow: 48, deep: 25, single: 25, gradient: 64, joint: 25, tail: 2, perceptron: 25, residual: 80}[name]
	x := g.Drawn(ir.T(ir.Float16, rows, 128), kerneltest.Numbers(ir.Float16, 1), false)
	networks[name](g, x)
	p, _ := g.Program(families.New(nil), target.Default())
	p.Precision = name
	out := &model{program: p, inputs: map[string][]byte{x.Name: g.Data[x].Dense()}, want: map[string][]float64{}}
	results, err := ir.Evaluate(t.Context(), g.Graph, map[string]*ir.Array{x.Name: g.Data[x].Array()}, ir.EvalOptions{Round: true})
	require.NoError(t, err)
	for name, a := range results {
		out.want[name] = a.Floats()
	}
	return out
}
