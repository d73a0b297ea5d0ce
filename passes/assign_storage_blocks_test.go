package passes

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

// wideTowers returns two towers, fused into members, whose values have at least 64 channels: one after a contraction,
// one after a depthwise convolution, and one that a residual also reads.
func wideTowers(t *testing.T) *ir.Graph {
	t.Helper()
	b := newGraphBuilder(t, ir.Float32)
	tower := func(x *ir.Value) *ir.Value {
		x = b.op("Relu", nil, b.conv(x, 64, 3, 2, 1))
		y := b.op("Relu", nil, b.conv(x, 128, 1, 1, 1))
		y = b.op("Relu", nil, b.conv(y, 128, 3, 1, 128))
		y = b.conv(y, 64, 1, 1, 1)
		return b.conv(b.op("Relu", nil, b.conv(b.op("Add", nil, x, y), 64, 3, 1, 1)), 64, 3, 1, 1)
	}
	g := b.output(b.op("Concat", ir.Attrs{"axis": 1}, tower(b.input("img", ir.Float32, 1, 8, 16, 24)), tower(b.input("big", ir.Float32, 1, 8, 16, 24))))
	names, err := Pipeline(precision.NVFP4)
	require.NoError(t, err)
	require.NoError(t, Run(&Context{Precision: precision.NVFP4}, g, names[:slices.Index(names, "assign-storage")], nil))
	return g
}

// pretend rounds v for its readers to what NVFP4 holds, spelled out in elementary ops.
func pretend(t *testing.T, g *ir.Graph, v *ir.Value, scale float64) {
	t.Helper()
	at := slices.Index(g.Nodes, v.Def) + 1
	add := func(op string, attrs ir.Attrs, in ...*ir.Value) *ir.Value {
		n, err := g.NewNode(op, "pretend", attrs, in...)
		require.NoError(t, err)
		g.Nodes = slices.Insert(g.Nodes, at, n)
		at++
		return n.Outputs[0]
	}
	number := func(x float64) *ir.Value { return g.Constant("c", ir.ScalarFloat(ir.Float32, x)) }
	readers := slices.Clone(g.Nodes)
	shape := v.Type.Shape
	last := len(shape) - 1
	x := add("Reshape", ir.Attrs{"shape": append(slices.Clone(shape[:last]), shape[last]/16, 16)}, v)
	top := add("ReduceMax", ir.Attrs{"axes": []int{last + 1}, "keepdims": true}, add("Abs", nil, x))
	s := add("Cast", ir.Attrs{"to": ir.Float8E4M3FN}, add("Div", nil, top, number(6*scale)))
	step := add("Mul", nil, add("Max", nil, add("Cast", ir.Attrs{"to": ir.Float32}, s), number(1e-30)), number(scale))
	y := add("Cast", ir.Attrs{"to": ir.Float32}, add("Cast", ir.Attrs{"to": ir.Float4E2M1}, add("Div", nil, x, step)))
	y = add("Reshape", ir.Attrs{"shape": slices.Clone(shape)}, add("Mul", nil, y, step))
	for _, n := range readers {
		for i, in := range n.Inputs {
			if in == v && n.Name != "pretend" {
				n.Inputs[i] = y
			}
		}
	}
}

// planBlocks stores everything as NVFP4 that can be.
func planBlocks(t *testing.T, g *ir.Graph) (*Quantisation, map[string]*ir.Tensor) {
	t.Helper()
	layers, exact := plain(Sites(g), ir.Float4E2M1)
	plan := &Quantisation{Layers: layers, Values: map[string]ir.Storage{}}
	top := map[*ir.Value]float64{}
	_, err := ir.EvaluateList(context.Background(), g, randomInputs(g, 3), ir.EvalOptions{Observe: func(v *ir.Value, a *ir.Array) {
		for _, x := range a.F {
			top[v] = max(top[v], math.Abs(x))
		}
	}})
	require.NoError(t, err)
	storage := StorageOf(g)
	for _, n := range g.Nodes {
		for _, v := range n.Outputs {
			if _, err := storage.BlockReaders(v); err == nil && !n.IsFamily(ir.FamilyView) {
				plan.Values[v.Name] = ir.Storage{DType: ir.Float4E2M1, Scale: top[v] / 6 / 448, Block: ir.BlockSize}
			}
		}
	}
	return plan, exact
}

// TestActivationsTravelAsBlocks holds the rewritten graph against one in which NVFP4 is spelled out.
func TestActivationsTravelAsBlocks(t *testing.T) {
	g := wideTowers(t)
	plan, exact := planBlocks(t, g)
	require.Len(t, plan.Values, 3, "one after a depthwise convolution, two after contractions; the residual's stays")
	sm121, err := target.Lookup("sm_121")
	require.NoError(t, err)

	unrounded := g.Clone()
	reference := g.Clone()
	for _, s := range Sites(reference) {
		w := exact[s.Name()]
		s.Node.Inputs[s.Weight] = reference.Constant("w", ir.FromFloats(ir.Type{DType: ir.Float32, Shape: w.Shape}, w.Floats()))
	}
	for _, n := range slices.Clone(reference.Nodes) {
		for _, v := range n.Outputs {
			if s := plan.Values[v.Name].Scale; s > 0 && n.Op.Name == "Region" {
				pretend(t, reference, v, s)
			}
		}
	}
	in := randomInputs(g, 3)
	require.NoError(t, assignStorage(&Context{Target: sm121, Precision: precision.NVFP4, AssignStorageOptions: AssignStorageOptions{Quantisation: plan}}, g))
	require.NoError(t, g.Verify())
	quantised, joined := 0, 0
	for _, n := range g.Nodes {
		for _, s := range n.Region.Results {
			if s.Block > 0 {
				quantised++
			}
		}
		for i, o := range n.Region.Operands {
			if o.Block > 0 && !n.Inputs[i].IsConst() {
				joined++
			}
		}
	}
	require.Equal(t, 3, quantised)
	require.Equal(t, 3, joined)
	got, want := evaluateAll(t, g, in)[0].Floats(), evaluateAll(t, reference, in)[0].Floats()
	require.LessOrEqual(t, relativeL2(got, want), 1e-5) // f32 constants, and what falls the other way because of them
	require.Greater(t, relativeL2(want, evaluateAll(t, unrounded, in)[0].Floats()), 1e-2, "nothing was rounded")
}

// TestBlocksNeedATargetAndNarrowWeights: elsewhere activations are stored in 16 bits; a plan at odds with itself is
// refused.
func TestBlocksNeedATargetAndNarrowWeights(t *testing.T) {
	sm90, err := target.Lookup("sm_90")
	require.NoError(t, err)
	sm121, err := target.Lookup("sm_121")
	require.NoError(t, err)
	g := wideTowers(t)
	plan, _ := planBlocks(t, g)
	half := g.Clone()
	require.NoError(t, assignStorage(&Context{Target: sm90, Precision: precision.NVFP4, AssignStorageOptions: AssignStorageOptions{Quantisation: plan}}, half))
	for _, n := range half.Nodes {
		for _, s := range n.Region.Results {
			require.Zero(t, s.Block)
		}
	}
	for _, s := range Sites(g) {
		x := s.Node.Inputs[s.X]
		if plan.Values[x.Name].Block > 0 {
			delete(plan.Layers, s.Name())
			require.ErrorContains(t, assignStorage(&Context{Target: sm121, Precision: precision.NVFP4, AssignStorageOptions: AssignStorageOptions{Quantisation: plan}}, g), "whose weights are not in blocks")
			return
		}
	}
	t.Fatal("nothing is stored as blocks")
}
