package codegen_test

import (
	"bytes"
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

// TestEntriesRunOverTheSameVariablesAndState: entry run is y = w·x + count, entry step is w += x, count += 1, v =
// w·w. All checks of the CPU device are on.
func TestEntriesRunOverTheSameVariablesAndState(t *testing.T) {
	typ := ir.T(ir.Float32, 300)
	of := func(g *kerneltest.Graph, op string, out string, in ...*ir.Value) *ir.Value {
		r := g.Region(ir.FamilyLoop)
		args := make([]*ir.Value, len(in))
		for i, v := range in {
			args[i] = r.Read(v, false)
		}
		v := r.Finish(r.Add(op, nil, args...)).Outputs[0]
		v.Name = out
		return v
	}
	run, step := kerneltest.NewGraph(t, "run"), kerneltest.NewGraph(t, "step")
	x, w, count := run.AddInput("x", typ), run.AddInput("w", typ), run.AddInput("count", typ)
	run.Outputs = []*ir.Value{of(run, "Add", "y", of(run, "Mul", "product", w, x), count)}

	x, w, count = step.AddInput("x", typ), step.AddInput("w", typ), step.AddInput("count", typ)
	one := step.Constant("one", ir.Splat(typ, 1))
	square := of(step, "Mul", "v", w, w)
	step.Outputs = []*ir.Value{square, of(step, "Add", "next_w", w, x), of(step, "Add", "next_count", count, one)}

	initial := runtime.Bytes(filled(300, 5))
	weights := codegen.NewWeights()
	r, err := codegen.Generate([]codegen.Entry{
		{Name: "run", Graph: run.Graph, States: []codegen.StateBinding{{Input: "w", Initial: initial}, {Input: "count"}}},
		{Name: "step", Graph: step.Graph, States: []codegen.StateBinding{{Input: "w", Output: "next_w", Initial: initial}, {Input: "count", Output: "next_count"}}},
	}, target.Default(), families.New(nil), weights)
	require.NoError(t, err)
	p := &runtime.Program{Format: runtime.FormatVersion, Model: "entries", Variants: []runtime.Variant{r.Variant}, Weights: weights.Bytes(),
		States: []runtime.State{{Input: "w", Output: "next_w"}, {Input: "count", Output: "next_count"}}}
	for _, name := range []string{"x", "w", "count"} {
		p.Inputs = append(p.Inputs, runtime.Port{Name: name, DType: "f32", Shape: []int{300}})
	}
	for _, name := range []string{"y", "v", "next_w", "next_count"} {
		p.Outputs = append(p.Outputs, runtime.Port{Name: name, DType: "f32", Shape: []int{300}})
	}
	require.NoError(t, p.Validate())

	device, err := emu.Open(emu.Options{Check: true})
	require.NoError(t, err)
	m, err := runtime.NewModel(t.Context(), p, device, runtime.ModelOptions{})
	require.NoError(t, err)
	s, err := m.NewSession(t.Context(), runtime.SessionOptions{})
	require.NoError(t, err)
	is := func(want float32, got []byte) {
		t.Helper()
		require.Equal(t, filled(300, want), runtime.View[float32](got))
	}
	copy(runtime.View[float32](s.Input("x")), filled(300, 2))
	require.NoError(t, s.Run(t.Context()))
	is(10, s.Output("y"))
	require.NoError(t, s.RunEntry(t.Context(), "step"))
	require.NoError(t, s.RunEntry(t.Context(), "step"))
	is(49, s.Output("v"))
	is(10, s.Output("y"))
	is(9, s.Output("next_w"))
	require.NoError(t, s.Run(t.Context()))
	is(9*2+2, s.Output("y"))
	require.EqualError(t, s.RunEntry(t.Context(), "stop"), `entries: no entry "stop"`)

	var saved bytes.Buffer
	require.NoError(t, s.Save(&saved))
	p.Weights = saved.Bytes()
	m, err = runtime.NewModel(t.Context(), p, device, runtime.ModelOptions{})
	require.NoError(t, err)
	s, err = m.NewSession(t.Context(), runtime.SessionOptions{})
	require.NoError(t, err)
	copy(runtime.View[float32](s.Input("x")), filled(300, 2))
	require.NoError(t, s.Run(t.Context()))
	is(9*2, s.Output("y"))
}

func filled(n int, x float32) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = x
	}
	return out
}
