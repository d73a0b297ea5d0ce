package codegen_test

import (
	"slices"
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

// repeating is an entry with 75 elements for a repetition, 300 bytes, so that slices begin anywhere: y = c·x + count,
// count += x over the old value, and last = x, which is read after the new value could be written, so that a copy
// carries it over: late = y − last.
func repeating(t *testing.T, repeats int) codegen.Entry {
	typ := ir.T(ir.Float32, 75)
	g := kerneltest.NewGraph(t, "run")
	of := func(op, out string, in ...*ir.Value) *ir.Value {
		r := g.Region(ir.FamilyLoop)
		args := make([]*ir.Value, len(in))
		for i, v := range in {
			args[i] = r.Read(v, false)
		}
		v := r.Finish(r.Add(op, nil, args...)).Outputs[0]
		v.Name = out
		return v
	}
	x, count, last := g.AddInput("x", typ), g.AddInput("count", typ), g.AddInput("last", typ)
	table := make([]float64, 75)
	for i := range table {
		table[i] = float64(i)
	}
	y := of("Add", "y", of("Mul", "product", g.Constant("c", ir.FromFloats(typ, table)), x), count)
	next := of("Neg", "next_last", x)
	late := of("Sub", "late", y, last)
	g.Outputs = []*ir.Value{y, late, of("Add", "next_count", count, x), next}
	return codegen.Entry{Name: "run", Graph: g.Graph, Repeats: repeats,
		States: []codegen.StateBinding{{Input: "count", Output: "next_count"}, {Input: "last", Output: "next_last"}}}
}

// TestARepeatedListComputesEverySlice, with states, of which each repetition changes its own slice. All checks of the
// CPU device are on.
func TestARepeatedListComputesEverySlice(t *testing.T) {
	const repeats, n = 3, 75
	weights := codegen.NewWeights()
	r, err := codegen.Generate([]codegen.Entry{repeating(t, repeats)}, target.Default(), families.New(nil), weights)
	require.NoError(t, err)
	one, err := codegen.Generate([]codegen.Entry{repeating(t, 1)}, target.Default(), families.New(nil), codegen.NewWeights())
	require.NoError(t, err)
	v, list := &r.Variant, r.Variant.Entries[0].Launches
	require.Equal(t, repeats, v.Entries[0].Repeats)
	require.Len(t, list, repeats*len(one.Variant.Entries[0].Launches))
	require.Equal(t, one.Variant.ArenaBytes, v.ArenaBytes, "all have one arena")
	require.Len(t, v.Kernels, len(one.Variant.Kernels), "and the same kernels")
	copies := slices.DeleteFunc(slices.Clone(list), func(l runtime.Launch) bool { return l.Copy == nil })
	require.Len(t, copies, repeats)

	p := &runtime.Program{Format: runtime.FormatVersion, Model: "repeated", Variants: []runtime.Variant{*v}, Weights: weights.Bytes(),
		States: []runtime.State{{Input: "count", Output: "next_count"}, {Input: "last", Output: "next_last"}}}
	for _, name := range []string{"x", "count", "last"} {
		p.Inputs = append(p.Inputs, runtime.Port{Name: name, DType: "f32", Shape: []int{repeats * n}})
	}
	for _, name := range []string{"y", "late", "next_count", "next_last"} {
		p.Outputs = append(p.Outputs, runtime.Port{Name: name, DType: "f32", Shape: []int{repeats * n}})
	}
	require.NoError(t, p.Validate(), "hazards order what reuses the arena")

	device, err := emu.Open(emu.Options{Check: true})
	require.NoError(t, err)
	s, err := runtime.Open(t.Context(), p, device, runtime.ModelOptions{})
	require.NoError(t, err)
	count, last := make([]float32, repeats*n), make([]float32, repeats*n)
	for run := range 3 {
		x := runtime.View[float32](s.Input("x"))
		for i := range x {
			x[i] = float32((i*7 + run) % 11)
		}
		require.NoError(t, s.Run(t.Context()))
		for i := range x {
			y := float32(i%n)*x[i] + count[i]
			require.Equal(t, y, runtime.View[float32](s.Output("y"))[i], "y %d", i)
			require.Equal(t, y-last[i], runtime.View[float32](s.Output("late"))[i], "late %d", i)
			count[i], last[i] = count[i]+x[i], -x[i]
			require.Equal(t, count[i], runtime.View[float32](s.Output("next_count"))[i])
			require.Equal(t, last[i], runtime.View[float32](s.Output("next_last"))[i])
		}
	}
}

// TestAVariableHasNoSlices: all samples share it.
func TestAVariableHasNoSlices(t *testing.T) {
	e := repeating(t, 2)
	e.States[0].Initial = make([]byte, 2*300)
	_, err := codegen.Generate([]codegen.Entry{e}, target.Default(), families.New(nil), codegen.NewWeights())
	require.EqualError(t, err, `input "count" is a variable, which all samples share, so no repetition has a slice of it: compile the whole batch as one`)
}

// TestAPlanIsTheProgram: what Plan says without weights and kernels is what Generate makes.
func TestAPlanIsTheProgram(t *testing.T) {
	r, err := codegen.Generate([]codegen.Entry{repeating(t, 2)}, target.Default(), families.New(nil), codegen.NewWeights())
	require.NoError(t, err)
	planned, err := codegen.PlanLaunches([]codegen.Entry{repeating(t, 2)}, target.Default(), families.New(nil))
	require.NoError(t, err)
	require.Equal(t, r.Variant.ArenaBytes, planned.Variant.ArenaBytes)
	require.Equal(t, r.Variant.Buffers, planned.Variant.Buffers)
	require.Len(t, planned.Works[0], len(r.Works[0]))
	for i, l := range planned.Variant.Entries[0].Launches {
		made := r.Variant.Entries[0].Launches[i]
		require.Equal(t, [...]any{made.Grid, made.Reads, made.Writes, made.After, made.Dependent}, [...]any{l.Grid, l.Reads, l.Writes, l.After, l.Dependent})
	}
}
