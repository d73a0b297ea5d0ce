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

// TestSmallLoopsJoinOthers: a loop joins the nearest one that it does not depend on, before it or else after it. Here
// b joins a; the new state and c, which reads b, join z. The launch that writes the state's new value reads the state
// backwards, so it is copied. All checks of the CPU device are on.
func TestSmallLoopsJoinOthers(t *testing.T) {
	large, small := ir.T(ir.Float32, 20000), ir.T(ir.Float32, 300)
	g := kerneltest.NewGraph(t, "run")
	x, y, state := g.AddInput("x", large), g.AddInput("y", small), g.AddInput("state", small)
	of := func(out, op string, attrs ir.Attrs, in ...*ir.Value) *ir.Value {
		r := g.Region(ir.FamilyLoop)
		args := make([]*ir.Value, len(in))
		for i, v := range in {
			args[i] = r.Read(v, false)
		}
		v := r.Finish(r.Add(op, attrs, args...)).Outputs[0]
		v.Name = out
		return v
	}
	a := of("a", "Mul", nil, x, x)
	b := of("b", "Add", nil, y, state)
	c := of("c", "Mul", nil, b, y)
	next := of("next", "Slice", ir.Attrs{"starts": []int{299}, "sizes": []int{300}, "steps": []int{-1}}, state)
	z := of("z", "Add", nil, a, a)
	g.Outputs = []*ir.Value{z, c, next}

	program := func(join bool) *runtime.Program {
		weights := codegen.NewWeights()
		r, err := codegen.Generate([]codegen.Entry{{Name: "run", Graph: g.Graph, States: []codegen.StateBinding{{Input: "state", Output: "next"}}, HorizontalFusion: join}}, target.Default(), families.New(nil), weights)
		require.NoError(t, err)
		p := &runtime.Program{Format: runtime.FormatVersion, Model: "joined", Variants: []runtime.Variant{r.Variant}, Weights: weights.Bytes(), States: []runtime.State{{Input: "state", Output: "next"}}}
		for _, v := range g.Inputs {
			p.Inputs = append(p.Inputs, runtime.Port{Name: v.Name, DType: "f32", Shape: v.Type.Shape})
		}
		for _, v := range g.Outputs {
			p.Outputs = append(p.Outputs, runtime.Port{Name: v.Name, DType: "f32", Shape: v.Type.Shape})
		}
		require.NoError(t, p.Validate())
		return p
	}
	alone, joined := program(false), program(true)
	launches := func(p *runtime.Program) []runtime.Launch { return p.Variants[0].Entries[0].Launches }
	require.Len(t, launches(alone), 6)
	require.Len(t, launches(joined), 3)
	require.Equal(t, launches(alone)[0].Grid[0]+launches(alone)[1].Grid[0], launches(joined)[0].Grid[0])
	require.Equal(t, []string{"Mul | Add", "Add | Slice | Mul"}, []string{launches(joined)[0].Note, launches(joined)[1].Note})
	require.NotNil(t, launches(joined)[2].Copy)

	device, err := emu.Open(emu.Options{Check: true})
	require.NoError(t, err)
	s, err := runtime.Open(t.Context(), joined, device, runtime.ModelOptions{})
	require.NoError(t, err)
	defer s.Close()
	before := make([]float32, 300)
	for i := range before {
		before[i] = float32(i)
	}
	require.NoError(t, s.SetState("state", runtime.Bytes(before)))
	copy(runtime.View[float32](s.Input("x")), filled(20000, 3))
	copy(runtime.View[float32](s.Input("y")), filled(300, 2))
	for run := range 2 {
		require.NoError(t, s.Run(t.Context()))
		require.Equal(t, filled(20000, 18), runtime.View[float32](s.Output("z")))
		got, after := runtime.View[float32](s.Output("c")), runtime.View[float32](s.Output("next"))
		for i := range before {
			was := []int{i, 299 - i}[run]
			require.Equal(t, float32(2*(was+2)), got[i], "run %d, c %d", run, i)
			require.Equal(t, float32(299-was), after[i], "run %d, state %d", run, i)
		}
	}
}
