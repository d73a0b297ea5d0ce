package passes

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/ir"
)

// graphBuilder makes graphs for tests; constants are random unless given.
type graphBuilder struct {
	t   testing.TB
	g   *ir.Graph
	rng *rand.Rand
	d   ir.DType // of constants
}

func newGraphBuilder(t testing.TB, d ir.DType) *graphBuilder {
	return &graphBuilder{t, ir.NewGraph("test"), rand.New(rand.NewPCG(1, 2)), d}
}

func (b *graphBuilder) input(name string, d ir.DType, shape ...int) *ir.Value {
	return b.g.AddInput(name, ir.T(d, shape...))
}

func (b *graphBuilder) op(op string, attrs ir.Attrs, inputs ...*ir.Value) *ir.Value {
	b.t.Helper()
	n, err := b.g.Add(op, op, attrs, inputs...)
	require.NoError(b.t, err)
	return n.Outputs[0]
}

// weight is a random constant of the given standard deviation and mean.
func (b *graphBuilder) weight(mean, deviation float64, shape ...int) *ir.Value {
	xs := make([]float64, ir.Type{Shape: shape}.Numel())
	for i := range xs {
		xs[i] = mean + deviation*b.rng.NormFloat64()
	}
	return b.g.Constant("w", ir.FromFloats(ir.T(b.d, shape...), xs))
}

func (b *graphBuilder) scalar(x float64) *ir.Value { return b.g.Constant("c", ir.ScalarFloat(b.d, x)) }

func (b *graphBuilder) conv(x *ir.Value, out, k, stride, group int) *ir.Value {
	in := x.Type.Shape[1] / group
	attrs := ir.Attrs{"strides": []int{stride, stride}, "pads": []int{k / 2, k / 2, k / 2, k / 2}, "dilations": []int{1, 1}, "group": group}
	return b.op("Conv", attrs, x, b.weight(0, 1/math.Sqrt(float64(in*k*k)), out, in, k, k), b.weight(0, .1, out))
}

func (b *graphBuilder) batchNorm(x *ir.Value) *ir.Value {
	c := x.Type.Shape[1]
	variance := b.weight(1, .1, c)
	return b.op("BatchNorm", nil, x, b.weight(1, .2, c), b.weight(0, .1, c), b.weight(0, .1, c), variance)
}

// gelu is spelled out as torch exports it.
func (b *graphBuilder) gelu(x *ir.Value) *ir.Value {
	erf := b.op("Erf", nil, b.op("Div", nil, x, b.scalar(math.Sqrt2)))
	return b.op("Mul", nil, b.op("Mul", nil, x, b.op("Add", nil, erf, b.scalar(1))), b.scalar(.5))
}

func (b *graphBuilder) output(vs ...*ir.Value) *ir.Graph {
	b.g.Outputs = append(b.g.Outputs, vs...)
	require.NoError(b.t, b.g.Verify())
	return b.g
}

// randomInputs draws an array for each input of the graph.
func randomInputs(g *ir.Graph, seed uint64) []*ir.Array {
	rng := rand.New(rand.NewPCG(seed, 1))
	out := make([]*ir.Array, len(g.Inputs))
	for i, v := range g.Inputs {
		a := ir.NewArray(v.Type)
		for j := range a.F {
			a.F[j] = ir.RoundTo(v.Type.DType, rng.NormFloat64())
		}
		for j := range a.I {
			a.I[j] = ir.WrapInt(v.Type.DType, int64(rng.IntN(256)))
		}
		out[i] = a
	}
	return out
}

// evaluateAll evaluates g without rounding.
func evaluateAll(t testing.TB, g *ir.Graph, inputs []*ir.Array) []*ir.Array {
	t.Helper()
	return evaluateWith(t, g, inputs, ir.EvalOptions{})
}

func evaluateWith(t testing.TB, g *ir.Graph, inputs []*ir.Array, opt ir.EvalOptions) []*ir.Array {
	t.Helper()
	out, err := ir.EvaluateList(context.Background(), g, inputs, opt)
	require.NoError(t, err)
	return out
}

// relativeL2 is |a-b| / |b|.
func relativeL2(a, b []float64) float64 {
	var diff, norm float64
	for i := range a {
		if a[i] == b[i] {
			continue // equal infinities too
		}
		diff += (a[i] - b[i]) * (a[i] - b[i])
	}
	for i := range b {
		norm += b[i] * b[i]
	}
	if diff == 0 {
		return 0
	}
	return math.Sqrt(diff / norm)
}

// requireSameOutputs evaluates both graphs, without rounding, on random inputs of the first.
func requireSameOutputs(t testing.TB, before, after *ir.Graph, tolerance float64) {
	t.Helper()
	requireSame(t, before, after, tolerance, ir.EvalOptions{})
}

func requireSame(t testing.TB, before, after *ir.Graph, tolerance float64, opt ir.EvalOptions) {
	t.Helper()
	for seed := range uint64(3) {
		inputs := randomInputs(before, seed)
		want, got := evaluateWith(t, before, inputs, opt), evaluateWith(t, after, inputs, opt)
		require.Len(t, got, len(want))
		for i := range want {
			require.Equal(t, want[i].Shape, got[i].Shape, "shape of output %d", i)
			distance := relativeL2(got[i].Floats(), want[i].Floats())
			require.LessOrEqual(t, distance, tolerance, "output %d, seed %d", i, seed)
		}
	}
}

// opCounts counts the nodes of each op.
func opCounts(g *ir.Graph) map[string]int {
	counts := map[string]int{}
	for _, n := range g.Nodes {
		counts[n.Op.Name]++
	}
	return counts
}
