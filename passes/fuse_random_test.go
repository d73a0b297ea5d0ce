package passes

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
)

// randomNet strings random nodes together: images, matrices and vectors in f32, channels last.
type randomNet struct {
	*graphBuilder
	choose *rand.Rand // decides; the same decisions with other weights make isomorphic towers
}

// exact draws a constant that f16 holds exactly, so that narrow changes no value.
func (r *randomNet) exact(shape ...int) *ir.Value {
	xs := make([]float64, ir.Type{Shape: shape}.Numel())
	for i := range xs {
		xs[i] = ir.RoundTo(ir.Float16, r.rng.NormFloat64()/4)
	}
	return r.g.Constant("w", ir.FromFloats(ir.T(ir.Float32, shape...), xs))
}

func (r *randomNet) grow(x *ir.Value, steps int) []*ir.Value {
	values := []*ir.Value{x}
	for range steps {
		v := values[len(values)-1]
		if r.choose.IntN(3) == 0 {
			v = values[r.choose.IntN(len(values))]
		}
		if y := r.step(v, values); y != nil && y.Type.Numel() > 0 && y.Type.Numel() < 4096 {
			values = append(values, y)
		}
	}
	return values
}

func (r *randomNet) step(v *ir.Value, values []*ir.Value) *ir.Value {
	shape := v.Type.Shape
	rank := len(shape)
	last := shape[rank-1]
	switch r.choose.IntN(15) {
	case 0, 1:
		return r.op([]string{"Relu", "Gelu", "Neg", "Sigmoid", "Tanh"}[r.choose.IntN(5)], nil, v)
	case 2, 3: // same shape, or any that broadcasts
		i := r.choose.IntN(len(values))
		for k := range values {
			w := values[(i+k)%len(values)]
			if full, err := ir.Broadcast(shape, w.Type.Shape); err == nil && slices.Equal(full, shape) {
				return r.op([]string{"Add", "Mul", "Sub", "Max"}[r.choose.IntN(4)], nil, v, w)
			}
		}
		return nil
	case 4:
		return r.op("Mul", nil, v, r.exact(last))
	case 5:
		return r.op("Add", nil, r.exact(last), v)
	case 6: // merge two dimensions, or split off a one
		if rank > 1 {
			merged := slices.Concat(shape[:rank-2], []int{shape[rank-2] * last})
			return r.op("Reshape", ir.Attrs{"shape": merged}, v)
		}
		return r.op("Reshape", ir.Attrs{"shape": []int{1, last}}, v)
	case 7:
		perm := r.choose.Perm(rank)
		return r.op("Transpose", ir.Attrs{"perm": perm}, v)
	case 8:
		starts, sizes := make([]int, rank), slices.Clone(shape)
		d := r.choose.IntN(rank)
		sizes[d] = (shape[d] + 1) / 2
		starts[d] = shape[d] - sizes[d]
		return r.op("Slice", ir.Attrs{"starts": starts, "sizes": sizes}, v)
	case 9:
		w := values[r.choose.IntN(len(values))]
		if w.Type.Rank() == rank && slices.Equal(w.Type.Shape[1:], shape[1:]) {
			return r.op("Concat", ir.Attrs{"axis": 0}, v, w)
		}
		return r.op("Concat", ir.Attrs{"axis": rank - 1}, v, v, r.op("Relu", nil, v))
	case 10:
		return r.op([]string{"ReduceMean", "ReduceSum", "ReduceMax"}[r.choose.IntN(3)], ir.Attrs{"axes": []int{r.choose.IntN(rank)}, "keepdims": true}, v)
	case 11:
		if r.choose.IntN(2) == 0 {
			return r.op("Softmax", ir.Attrs{"axis": rank - 1}, v)
		}
		return r.op("LayerNorm", ir.Attrs{"axis": rank - 1}, v, r.exact(last), r.exact(last))
	case 12:
		if rank < 2 {
			return nil
		}
		return r.op("MatMul", nil, v, r.exact(last, 1+r.choose.IntN(9)))
	default:
		return r.image(v)
	}
}

func (r *randomNet) image(v *ir.Value) *ir.Value {
	if v.Type.Rank() != 4 {
		return nil
	}
	c, k := v.Type.Shape[3], 1+2*r.choose.IntN(2)
	attrs := ir.Attrs{"strides": []int{1, 1}, "pads": []int{k / 2, k / 2, k / 2, k / 2}, "dilations": []int{1, 1}, "layout": "NHWC"}
	switch r.choose.IntN(3) {
	case 0:
		out := 1 + r.choose.IntN(8)
		return r.op("Conv", attrs, v, r.exact(out, c, k, k), r.exact(out))
	case 1:
		attrs["group"] = c
		return r.op("Conv", attrs, v, r.exact(c, 1, k, k))
	}
	attrs["kernel"] = []int{k, k}
	return r.op("MaxPool", attrs, v)
}

func randomGraph(t testing.TB, seed uint64) *ir.Graph {
	b := newGraphBuilder(t, ir.Float32)
	b.rng = rand.New(rand.NewPCG(seed, 7))
	towers := 1 + int(seed%3)
	var ends []*ir.Value
	for i := range towers {
		r := &randomNet{b, rand.New(rand.NewPCG(seed, 3))}
		x := b.input(fmt.Sprintf("x%d", i), ir.Uint8, 1, 2, 3, 4)
		start := b.op("Mul", nil, b.op("Cast", ir.Attrs{"to": ir.Float32}, x), b.scalar(1./256))
		values := r.grow(start, 14)
		ends = append(ends, values[len(values)-1])
	}
	r := &randomNet{b, rand.New(rand.NewPCG(seed, 4))}
	all := slices.Clone(ends)
	if towers > 1 {
		all = append(all, b.op("Concat", ir.Attrs{"axis": 0}, ends...))
	}
	tail := r.grow(all[len(all)-1], 6)
	return b.output(tail[len(tail)-1], ends[0])
}

// TestRandomGraphsKeepTheirOutputs runs the region passes on random graphs; each pass is held against the evaluator,
// the result against the contract with the kernel families.
func TestRandomGraphsKeepTheirOutputs(t *testing.T) {
	seeds := uint64(300)
	if testing.Short() {
		seeds = 60
	}
	batched := 0
	for seed := range seeds {
		g := randomGraph(t, seed)
		before := g.Clone()
		for _, name := range pipeline(narrowed, stages[regionStage():]) {
			p, err := Lookup(name)
			require.NoError(t, err)
			require.NoError(t, p.Run(&Context{Precision: precision.FP16}, g), "seed %d, pass %s", seed, name)
			require.NoError(t, g.Verify(), "seed %d, pass %s", seed, name)
			inputs := randomInputs(before, seed)
			want, got := evaluateAll(t, before, inputs), evaluateAll(t, g, inputs)
			for i := range want {
				require.Equal(t, before.Outputs[i].Name, g.Outputs[i].Name, "seed %d, pass %s", seed, name)
				require.LessOrEqual(t, relativeL2(got[i].Floats(), want[i].Floats()), 1e-9, "seed %d, pass %s, output %d\n%s", seed, name, i, g)
			}
		}
		requireContract(t, g)
		for _, n := range g.Nodes {
			if n.Region.Members > 1 {
				batched++
			}
		}
	}
	require.NotZero(t, batched, "no random graph had regions to stack")
}
