package codegen_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen"
	"github.com/spark-compile/spark-compile/codegen/families"
	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// TestARefusedRegionWithSumsOfRowsBecomesTwoLoops: a layer whose result a gradient reads, stored before its gain,
// after it, and as sums of rows, which no loop computes together with the others.
func TestARefusedRegionWithSumsOfRowsBecomesTwoLoops(t *testing.T) {
	g := kerneltest.NewGraph(t, "step")
	b := g.Region(ir.FamilyContraction)
	x := b.Cast(b.Input(ir.T(ir.Float16, 64, 24), 1, false, false), ir.Float32)
	w := b.Cast(b.Input(ir.T(ir.Float8E4M3FN, 24, 16), 1, true, false), ir.Float32)
	y := b.Add("MatMul", nil, x, w)
	z := b.Add("Mul", nil, y, b.Input(ir.T(ir.Float32, 16), 1, false, false))
	s := b.Add("Mul", nil, y, b.Cast(b.Input(ir.T(ir.Float16, 64, 16), 1, false, false), ir.Float32))
	s = b.Add("ReduceSum", ir.Attrs{"axes": []int{1}}, b.Add("Reshape", ir.Attrs{"shape": []int{2, 32, 16}}, s))
	n := b.Finish(b.Cast(z, ir.Float16), s, y)
	for i, name := range []string{"z", "sums", "y"} {
		n.Outputs[i].Name = name
	}
	g.Outputs = n.Outputs
	require.NoError(t, g.Verify())

	refused := kerneltest.Refusing{Families: families.New(nil), Refuses: func(n *ir.Node) bool { return n.IsFamily(ir.FamilyContraction) }}
	weights := codegen.NewWeights()
	r, err := codegen.Generate([]codegen.Entry{{Name: "run", Graph: g.Graph}}, target.Default(), refused, weights)
	require.NoError(t, err)
	require.Equal(t, []codegen.Fallback{{Region: n.Name, Family: "contraction", Reason: "not today"}}, r.Fallbacks)
	var computed [][]*ir.Value
	for _, part := range r.Regions[0] {
		computed = append(computed, part.Outputs)
		require.Len(t, part.Inputs, 3, "what the other part reads alone is left out")
	}
	require.Equal(t, [][]*ir.Value{{n.Outputs[0], n.Outputs[2]}, {n.Outputs[1]}}, computed)

	requireReference(t, g, n, r, weights)
}

// TestFallback_RefusedFusionBecomesTwoLaunches: what is between them then needs a place.
func TestFallback_RefusedFusionBecomesTwoLaunches(t *testing.T) {
	g := kerneltest.NewGraph(t, "chain")
	attrs := ir.Attrs{"kernel": []int{3, 3}, "strides": []int{1, 1}, "pads": []int{1, 1, 1, 1}, "dilations": []int{1, 1}, "layout": "NHWC"}
	pool := func(read func(b *kerneltest.Region) *ir.Value) *ir.Node {
		b := g.Region(ir.FamilyWindow)
		return b.Finish(b.Cast(b.Add("MaxPool", attrs, b.Cast(read(b), ir.Float32)), ir.Float16))
	}
	first := pool(func(b *kerneltest.Region) *ir.Value { return b.Input(ir.T(ir.Float16, 1, 9, 12, 16), 1, false, false) })
	second := pool(func(b *kerneltest.Region) *ir.Value { return b.Read(first.Outputs[0], false) })
	n := ir.NewFused([]*ir.Node{first, second}, false)
	n.Outputs[0].Def, n.Outputs[0].Name = n, "z"
	g.Nodes, g.Outputs = []*ir.Node{n}, n.Outputs
	require.NoError(t, g.Verify())

	some := kerneltest.Refusing{Families: families.New(nil), Refuses: func(n *ir.Node) bool { return n.IsFamily(ir.FamilyFused) }}
	weights := codegen.NewWeights()
	r, err := codegen.Generate([]codegen.Entry{{Name: "run", Graph: g.Graph}}, target.Default(), some, weights)
	require.NoError(t, err)
	require.Equal(t, []codegen.Fallback{{Region: first.Name + " + " + second.Name, Family: "chain", Reason: "not today"}}, r.Fallbacks)
	require.Len(t, r.Regions[0], 2)
	require.GreaterOrEqual(t, r.Variant.ArenaBytes, first.Outputs[0].Type.Bytes())
	requireReference(t, g, n, r, weights)
}

// requireReference runs what became of the only node of a graph, all checks on.
func requireReference(t *testing.T, g *kerneltest.Graph, n *ir.Node, r *codegen.Result, weights *codegen.Weights) {
	t.Helper()
	p := &runtime.Program{Format: runtime.FormatVersion, Model: g.Name, Variants: []runtime.Variant{r.Variant}, Weights: weights.Bytes()}
	port := func(v *ir.Value) runtime.Port {
		return runtime.Port{Name: v.Name, DType: v.Type.DType.String(), Shape: v.Type.Shape}
	}
	for _, v := range g.Inputs {
		p.Inputs = append(p.Inputs, port(v))
	}
	for _, v := range g.Outputs {
		p.Outputs = append(p.Outputs, port(v))
	}
	require.NoError(t, p.Validate())
	device, err := emu.Open(emu.Options{Check: true})
	require.NoError(t, err)
	m, err := runtime.NewModel(t.Context(), p, device, runtime.ModelOptions{})
	require.NoError(t, err)
	session, err := m.NewSession(t.Context(), runtime.SessionOptions{})
	require.NoError(t, err)
	for _, v := range g.Inputs {
		copy(session.Input(v.Name), g.Data[v].Data)
	}
	require.NoError(t, session.Run(t.Context()))
	for i, want := range kerneltest.Reference(t, n, g.Data) {
		v := n.Outputs[i]
		got := (&ir.Tensor{Type: v.Type, Data: session.Output(v.Name)}).Array()
		require.InDeltaSlice(t, want.F, got.F, 2e-3, v.Name)
	}
}
