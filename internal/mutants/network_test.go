package mutants

import (
	"math"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen"
	"github.com/spark-compile/spark-compile/codegen/contraction"
	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/codegen/loop"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

// narrow is the model of the kernels on narrow floats: matrix products of one input, each once with 8-bit activations and
// weights, with weights in two terms, with NVFP4 of both, with NVFP4 weights alone, and with 6-bit weights. One layer deep, so that what rounds differently
// does not spread.
const narrow = "narrow"

// deep and single are models of products in f16 and f32 that are long enough for rings of stages to wrap, one of them for split-K
// to pay, and of a LayerNorm whose rows are no multiple of a warp's loads. They lie between others, since what a run before has
// left in an output is not told from what this one wrote.
const (
	deep   = "deep"
	single = "deep, fp32"
)

// gradient is a model of what training steps have: a product with sums of rows beside its result, and the gradient of an attention of
// 25 positions, which are padded.
const gradient = "gradient"

// networks are the models that are graphs of regions; the first value of each is its input.
var networks = map[string]func(g *kerneltest.Graph, x *ir.Value){narrow: narrowNetwork, deep: deepNetwork(ir.Float16), single: deepNetwork(ir.Float32), gradient: gradientNetwork}

// layer is a region that multiplies.
type layer struct{ *kerneltest.Region }

func newLayer(g *kerneltest.Graph) layer { return layer{g.Region(ir.FamilyContraction)} }

func (l layer) widened(v *ir.Value) *ir.Value { return l.Cast(l.Read(v, false), ir.Float32) }

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
	codes := l.stored(l.product(l.widened(x), l.weights(ir.Float16, k, hidden), 8*size), ir.Float8E4M3FN)
	l = newLayer(g)
	eight := l.stored(l.product(l.widened(codes), l.weights(ir.Float8E4M3FN, hidden, cols), size/8), ir.Float32)

	l = newLayer(g)
	two := l.Rounded(l.weights(ir.Float16, hidden, cols), ir.Storage{DType: ir.Float8E4M3FN, Terms: 2})
	split := l.stored(l.product(l.widened(codes), two, size/8), ir.Float32)

	l = newLayer(g)
	q := l.FinishBlocks(l.product(l.widened(x), l.weights(ir.Float16, k, hidden), size), .02).Outputs
	l = newLayer(g)
	in := l.Dequantise(1, ir.BlockSize, l.Read(q[0], false), q[1])
	four := l.stored(l.product(in, l.blocks(hidden, cols), size*.02), ir.Float32)

	l = newLayer(g)
	weights := l.stored(l.product(l.widened(x), l.blocks(k, cols), size), ir.Float32)

	l = newLayer(g)
	six := l.stored(l.product(l.widened(x), l.weights(ir.Float6E3M2, k, cols), size/8), ir.Float32)
	g.Outputs = []*ir.Value{eight, split, four, weights, six}
}

func deepNetwork(d ir.DType) func(g *kerneltest.Graph, x *ir.Value) {
	return func(g *kerneltest.Graph, x *ir.Value) {
		// The last chunk of the long K lies where the sums of the warps go.
		const k, wide, hidden, cols = 128, 640, 2560, 360
		y := x
		multiply := func(k, cols int, to ir.DType) {
			l := newLayer(g)
			y = l.stored(l.product(l.widened(y), l.weights(d, k, cols), 1/math.Sqrt(float64(k))), to)
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
	y := l.Add("MatMul", nil, l.widened(x), l.weights(ir.Float16, 128, 48))
	s := l.Add("Mul", nil, y, l.Fill(ir.T(ir.Float32, 48), positive(1, .2), true, false))
	s = l.Add("ReduceSum", ir.Attrs{"axes": []int{1}}, l.Add("Reshape", ir.Attrs{"shape": []int{batch, rows, 48}}, s))
	sums := l.Finish(l.Cast(l.Add("Relu", nil, y), ir.Float32), s).Outputs

	l = newLayer(g)
	in := make([]*ir.Value, 4)
	all := l.Add("Reshape", ir.Attrs{"shape": []int{batch, rows, 4 * size}}, l.widened(x))
	for i := range in {
		part := l.Add("Slice", ir.Attrs{"starts": []int{0, 0, i * size}, "sizes": []int{batch, used, size}}, all)
		in[i] = l.Add("Reshape", ir.Attrs{"shape": []int{batch, 1, used, size}}, part)
	}
	d := l.Finish(l.Add("AttentionGrad", ir.Attrs{"scale": 0.3}, in...)).Outputs[0]
	g.Outputs = []*ir.Value{sums[0], sums[1], d}
}

// loadNetwork is load of one of the networks.
func loadNetwork(t testing.TB, name string) *model {
	t.Helper()
	g := kerneltest.NewGraph(t, name)
	rows := map[string]int{narrow: 48, deep: 25, single: 25, gradient: 64}[name]
	x := g.Drawn(ir.T(ir.Float16, rows, 128), kerneltest.Numbers(ir.Float16, 1), false)
	networks[name](g, x)
	p, _ := g.Program(codegen.Families{ir.FamilyContraction: contraction.Lower, ir.FamilyLoop: loop.Lower}, target.Default())
	p.Precision = name
	out := &model{program: p, inputs: map[string][]byte{x.Name: g.Data[x].Dense()}, want: map[string][]float64{}}
	results, err := ir.Evaluate(t.Context(), g.Graph, map[string]*ir.Array{x.Name: g.Data[x].Array()}, ir.EvalOptions{Round: true})
	require.NoError(t, err)
	for name, a := range results {
		out.want[name] = a.Floats()
	}
	return out
}
