package passes

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
)

// fusedTowers runs the passes up to narrow on two small towers: f32 regions, most with two members.
func fusedTowers(t *testing.T) *ir.Graph {
	t.Helper()
	b := newGraphBuilder(t, ir.Float32)
	features := b.op("Concat", ir.Attrs{"axis": 1}, visionTower(b, b.input("img", ir.Uint8, 1, 12, 32, 64)), visionTower(b, b.input("big", ir.Uint8, 1, 12, 32, 64)))
	g := b.output(b.op("MatMul", nil, features, b.weight(0, .2, 64, 24)))
	names, err := Pipeline(precision.FP8)
	require.NoError(t, err)
	require.NoError(t, Run(&Context{Precision: precision.FP8}, g, names[:slices.Index(names, "assign-storage")], nil))
	return g
}

// plain quantises every site to nearest, e4m3 with a scale a channel or e2m1 with blocks, and returns the layers with
// the weights that they stand for.
func plain(sites []Site, d ir.DType) (map[string]Layer, map[string]*ir.Tensor) {
	layers, exact := map[string]Layer{}, map[string]*ir.Tensor{}
	for _, s := range sites {
		w := s.Weights().Const.Floats()
		q, back := make([]float64, len(w)), make([]float64, len(w))
		l := Layer{Scales: make([]float64, s.Members*s.N)}
		blocks := ir.NewArray(ir.Type{DType: ir.Float8E4M3FN, Shape: s.BlockShape()})
		for m := range s.Members {
			for n := range s.N {
				top := 1e-9
				for k := range s.K {
					top = max(top, math.Abs(w[s.At(m, n, k)]))
				}
				scale := float64(float32(top / 448))
				l.Scales[m*s.N+n] = scale
				for k := range s.K {
					i, b := s.At(m, n, k), 1.0
					if d == ir.Float4E2M1 {
						b = ir.RoundTo(ir.Float8E4M3FN, 64+float64(s.Block(k)%7)*8)
						blocks.F[s.BlockAt(m, n, s.Block(k))] = b
					}
					q[i] = ir.RoundTo(d, w[i]/scale/b)
					back[i] = q[i] * b * scale
				}
			}
		}
		l.Weights = ir.FromFloats(ir.Type{DType: d, Shape: s.Weights().Type.Shape}, q)
		if d == ir.Float4E2M1 {
			l.Blocks = blocks.Tensor()
		}
		layers[s.Name()] = l
		exact[s.Name()] = ir.FromFloats(ir.Type{DType: ir.Float64, Shape: s.Weights().Type.Shape}, back)
	}
	return layers, exact
}

func TestQuantisedWeightsMeanWhatTheyStandFor(t *testing.T) {
	for _, d := range []ir.DType{ir.Float8E4M3FN, ir.Float4E2M1} {
		t.Run(d.String(), func(t *testing.T) {
			g := fusedTowers(t)
			layers, exact := plain(Sites(g), d)
			require.Greater(t, len(layers), 8)
			reference := g.Clone()
			for _, s := range Sites(reference) {
				w := exact[s.Name()]
				s.Node.Inputs[s.Weight] = reference.Constant("w", ir.FromFloats(ir.Type{DType: ir.Float32, Shape: w.Shape}, w.Floats()))
			}
			require.NoError(t, assignStorage(&Context{Precision: precision.FP8, AssignStorageOptions: AssignStorageOptions{Quantisation: &Quantisation{Layers: layers}}}, g))
			require.NoError(t, g.Verify())
			in := randomInputs(g, 3)
			got, want := evaluateAll(t, g, in), evaluateAll(t, reference, in)
			require.LessOrEqual(t, relativeL2(got[0].Floats(), want[0].Floats()), 1e-6) // f32 constants
		})
	}
}

// TestReplacedWeightsAreNotRounded: of weights that a plan has other numbers for, none are made in 16 bits, so they
// need not fit f16 either.
func TestReplacedWeightsAreNotRounded(t *testing.T) {
	g := fusedTowers(t)
	sites := Sites(g)
	layers, _ := plain(sites[1:], ir.Float8E4M3FN)
	first, second := sites[0].Weights().Const, sites[1].Weights().Const
	second.Data[3] = 0x7f // an f32 beyond f16
	halved := map[*ir.Tensor]*ir.Tensor{}
	require.NoError(t, assignStorage(&Context{Precision: precision.FP8, AssignStorageOptions: AssignStorageOptions{Quantisation: &Quantisation{Layers: layers}, Halved: halved}}, g))
	require.NoError(t, g.Verify())
	require.Contains(t, halved, first, "weights that stay in 16 bits")
	require.NotContains(t, halved, second)
}

func TestCorrectionsAreAdded(t *testing.T) {
	g := fusedTowers(t)
	reference := g.Clone()
	layers := map[string]Layer{}
	for _, s := range Sites(g) {
		l := Layer{Bias: make([]float64, s.Members*s.N)}
		for i := range l.Bias {
			l.Bias[i] = float64(i%5) / 16
		}
		layers[s.Name()] = l
	}
	require.NoError(t, assignStorage(&Context{Precision: precision.FP8, AssignStorageOptions: AssignStorageOptions{Quantisation: &Quantisation{Layers: layers}}}, g))
	in := randomInputs(g, 3)
	for _, s := range Sites(reference) {
		addAfterAnchor(t, reference, s, layers[s.Name()].Bias)
	}
	got, want := evaluateAll(t, g, in)[0].Floats(), evaluateAll(t, reference, in)[0].Floats()
	require.LessOrEqual(t, relativeL2(got, want), 2e-3) // weights are f16
}

// TestCorrectionsJoinABias: a bias that is added after the product absorbs the correction, so that no kernel reads
// two vectors.
func TestCorrectionsJoinABias(t *testing.T) {
	b := newGraphBuilder(t, ir.Float32)
	y := b.op("Add", nil, b.op("MatMul", nil, b.input("x", ir.Float32, 1, 24, 32), b.weight(0, .2, 32, 48)), b.weight(0, 1, 48))
	g := b.output(b.op("Sqrt", nil, b.op("Abs", nil, y)))
	names, err := Pipeline(precision.FP8)
	require.NoError(t, err)
	require.NoError(t, Run(&Context{Precision: precision.FP8}, g, names[:slices.Index(names, "assign-storage")], nil))
	sites := Sites(g)
	require.Len(t, sites, 1)
	l, inputs := Layer{Bias: make([]float64, sites[0].N)}, len(sites[0].Node.Inputs)
	for i := range l.Bias {
		l.Bias[i] = float64(i) / 16
	}
	require.NoError(t, assignStorage(&Context{Precision: precision.FP8, AssignStorageOptions: AssignStorageOptions{Quantisation: &Quantisation{Layers: map[string]Layer{sites[0].Name(): l}}}}, g))
	require.Len(t, Sites(g)[0].Node.Inputs, inputs)
}

// addAfterAnchor adds a vector a member to what the anchor of a region yields.
func addAfterAnchor(t *testing.T, g *ir.Graph, s Site, bias []float64) {
	t.Helper()
	body, r := s.Node.Region.Body, s.Node
	shape := []int{s.N}
	if members := r.Region.Members; members > 0 {
		shape = []int{members, s.N}
	}
	r.Inputs = append(r.Inputs, g.Constant("c", ir.FromFloats(ir.T(ir.Float32, shape...), bias)))
	r.Region.Operands = append(r.Region.Operands, ir.Operand{Batched: len(shape) > 1, Storage: ir.Storage{DType: ir.Float32}})
	old := s.Anchor.Outputs[0]
	n, err := body.NewNode("Add", "v", nil, old, body.AddInput("extra", ir.T(ir.Float32, s.N)))
	require.NoError(t, err)
	for _, m := range body.Nodes {
		for k, v := range m.Inputs {
			if v == old {
				m.Inputs[k] = n.Outputs[0]
			}
		}
	}
	for k, v := range body.Outputs {
		if v == old {
			body.Outputs[k] = n.Outputs[0]
		}
	}
	body.Nodes = slices.Insert(body.Nodes, slices.Index(body.Nodes, s.Anchor)+1, n)
}

// TestActivationsTravelAsOneByte stores what every site reads as e4m3, or rounds it when it is read: a scale that is
// missing, or applied twice, would be off by orders of magnitude.
func TestActivationsTravelAsOneByte(t *testing.T) {
	for _, onRead := range []bool{false, true} {
		g := fusedTowers(t)
		in := randomInputs(g, 3)
		want := evaluateAll(t, g, in)[0].Floats()
		top := map[*ir.Value]float64{}
		_, err := ir.EvaluateList(context.Background(), g, in, ir.EvalOptions{Observe: func(v *ir.Value, a *ir.Array) {
			for _, x := range a.F {
				top[v] = max(top[v], math.Abs(x))
			}
		}})
		require.NoError(t, err)
		plan := &Quantisation{Values: map[string]ir.Storage{}, Layers: map[string]Layer{}}
		sites := 0
		for _, s := range Sites(g) {
			x := s.Node.Inputs[s.X]
			if s.Anchor.Op.Name == "SegmentedMatVec" {
				continue
			}
			store := ir.Storage{DType: ir.Float8E4M3FN, Scale: top[x] / 448 * 1.7}
			if onRead {
				plan.Layers[s.Name()] = Layer{Read: store}
			} else {
				plan.Values[x.Name] = store
			}
			sites++
		}
		require.NoError(t, assignStorage(&Context{Precision: precision.FP8, AssignStorageOptions: AssignStorageOptions{Quantisation: plan}}, g))
		require.NoError(t, g.Verify())
		bytes := 0
		for _, n := range g.Nodes {
			for _, v := range n.Outputs {
				if v.Type.DType == ir.Float8E4M3FN {
					bytes++
				}
			}
		}
		if onRead {
			require.Zero(t, bytes)
		} else {
			require.Greater(t, bytes, sites/2)
		}
		got := evaluateAll(t, g, in)[0].Floats()
		require.LessOrEqual(t, relativeL2(got, want), 0.1)
		require.Greater(t, relativeL2(got, want), 1e-4, "nothing was rounded")
	}
}

// TestAConvOfOneOutputChannelIsNotDepthwise reads e4m3 in convolutions with as many groups as output channels. The
// activation's scale is applied after a dense one, and in the weights of a depthwise one.
func TestAConvOfOneOutputChannelIsNotDepthwise(t *testing.T) {
	for _, c := range []struct{ in, out, group int }{{16, 1, 1}, {16, 2, 2}, {16, 16, 16}, {16, 32, 16}} {
		b := newGraphBuilder(t, ir.Float32)
		conv := func(x *ir.Value, in, out, group int) *ir.Value {
			return b.op("Conv", ir.Attrs{"strides": []int{1, 1}, "pads": []int{1, 1, 1, 1}, "dilations": []int{1, 1}, "group": group},
				x, b.weight(0, .2, out, in/group, 3, 3))
		}
		x := conv(b.input("x", ir.Float32, 1, 8, 40, 40), 8, c.in, 1)
		g := b.output(conv(x, c.in, c.out, c.group))
		names, err := Pipeline(precision.FP8)
		require.NoError(t, err)
		require.NoError(t, Run(&Context{Precision: precision.FP8}, g, names[:slices.Index(names, "assign-storage")], nil))
		in := randomInputs(g, 3)
		want := evaluateAll(t, g, in)[0].Floats()
		read := g.Nodes[len(g.Nodes)-1].Inputs[0]
		for _, n := range g.Nodes {
			if a := n.Region.Anchor(); a != nil && a.Inputs[1].Type.Shape[0] == c.out {
				read = n.Inputs[0]
			}
		}
		require.NotNil(t, read.Def)
		plan := &Quantisation{Values: map[string]ir.Storage{read.Name: {DType: ir.Float8E4M3FN, Scale: 1.0 / 64}}}
		require.NoError(t, assignStorage(&Context{Precision: precision.FP8, AssignStorageOptions: AssignStorageOptions{Quantisation: plan}}, g), "%+v", c)
		require.NoError(t, g.Verify())
		require.True(t, slices.ContainsFunc(g.Nodes, func(n *ir.Node) bool { return n.Outputs[0].Type.DType == ir.Float8E4M3FN }))
		require.LessOrEqual(t, relativeL2(evaluateAll(t, g, in)[0].Floats(), want), 0.1, "%+v", c)
	}
}
