package codegen

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

func generateEntries(t *testing.T, w *Weights, entries ...Entry) (*Result, error) {
	t.Helper()
	for _, e := range entries {
		require.NoError(t, e.Graph.Verify())
	}
	tg, err := target.Lookup("sm_121")
	require.NoError(t, err)
	return Generate(entries, tg, fakes{ir.FamilyContraction: refuse, ir.FamilyWindow: touch, ir.FamilyLoop: touch}, w)
}

// touched is what each launch reads → writes, constants left out.
func touched(v *runtime.Variant, e *runtime.Entry) [][2][]string {
	var out [][2][]string
	for _, l := range e.Launches {
		out = append(out, [2][]string{shown(v, l.Reads), shown(v, l.Writes)})
	}
	return out
}

// recurrent is a graph with a state h of four numbers; body makes the new state and the output from the state and x.
func recurrent(t *testing.T, body func(b builder, x, h *ir.Value) (next, y *ir.Value)) *ir.Graph {
	g := ir.NewGraph("g")
	x, h := g.AddInput("x", ir.T(ir.Float32, 4)), g.AddInput("h", ir.T(ir.Float32, 4))
	next, y := body(builder{t, g}, x, h)
	next.Name, y.Name = "next", "y"
	g.Outputs = []*ir.Value{next, y}
	return g
}

func TestANewStateIsWrittenOverTheOldOneWhereNobodyReadsItAnyMore(t *testing.T) {
	for name, c := range map[string]struct {
		body func(b builder, x, h *ir.Value) (next, y *ir.Value)
		want [][2][]string
		last []int // what the last launch comes after
	}{
		"read before": {func(b builder, x, h *ir.Value) (next, y *ir.Value) {
			y = b.region("loop", "Add", nil, x, h)
			return b.region("loop", "Relu", nil, y), y
		}, [][2][]string{{{"x", "h"}, {"y"}}, {{"y"}, {"h"}}}, []int{0}},
		"read by the launch that writes": {func(b builder, x, h *ir.Value) (next, y *ir.Value) {
			next = b.region("loop", "Add", nil, x, h)
			return next, b.region("loop", "Relu", nil, next)
		}, [][2][]string{{{"x", "h"}, {"h"}}, {{"h"}, {"y"}}}, []int{0}},
		"read by the launch that writes, at other places": {func(b builder, x, h *ir.Value) (next, y *ir.Value) {
			next = b.region("loop", "Slice", ir.Attrs{"starts": []int{3}, "sizes": []int{4}, "steps": []int{-1}}, h)
			return next, b.region("loop", "Relu", nil, x)
		}, [][2][]string{{{"h"}, {"arena"}}, {{"x"}, {"y"}}, {{"arena"}, {"h"}}}, []int{0}},
		"read as a whole by the launch that writes": {func(b builder, x, h *ir.Value) (next, y *ir.Value) {
			next = b.region("loop", "Softmax", ir.Attrs{"axis": 0}, h)
			return next, b.region("loop", "Relu", nil, x)
		}, [][2][]string{{{"h"}, {"arena"}}, {{"x"}, {"y"}}, {{"arena"}, {"h"}}}, []int{0}},
		"read later": {func(b builder, x, h *ir.Value) (next, y *ir.Value) {
			next = b.region("loop", "Relu", nil, x)
			return next, b.region("loop", "Add", nil, next, h)
		}, [][2][]string{{{"x"}, {"arena"}}, {{"h", "arena"}, {"y"}}, {{"arena"}, {"h"}}}, []int{1}},
		"read by nobody": {func(b builder, x, _ *ir.Value) (next, y *ir.Value) {
			return b.region("loop", "Relu", nil, x), b.region("loop", "Exp", nil, x)
		}, [][2][]string{{{"x"}, {"h"}}, {{"x"}, {"y"}}}, []int{}},
		"through a view": {func(b builder, x, h *ir.Value) (next, y *ir.Value) {
			y = b.region("loop", "Add", nil, x, h)
			p, q := b.region("loop", "Relu", nil, b.region("view", "Slice", ir.Attrs{"starts": []int{0}, "sizes": []int{2}}, y)), b.region("view", "Slice", ir.Attrs{"starts": []int{2}, "sizes": []int{2}}, h)
			return b.region("view", "Concat", ir.Attrs{"axis": 0}, q, p), y
		}, [][2][]string{{{"x", "h"}, {"y"}}, {{"y"}, {"arena+1"}}, {{"h+1"}, {"arena"}}, {{"arena"}, {"h"}}}, []int{1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := generateEntries(t, NewWeights(), Entry{Name: "run", Graph: recurrent(t, c.body), States: []StateBinding{{Input: "h", Output: "next"}}})
			require.NoError(t, err)
			v := &r.Variant
			require.Equal(t, c.want, touched(v, &v.Entries[0]))
			require.Len(t, r.Regions[0], len(v.Entries[0].Launches))
			require.Equal(t, c.last, v.Entries[0].Launches[len(c.want)-1].After)
		})
	}
}

// TestEntriesShareWhatTheProgramKeeps: run feeds a variable and reads a state, step changes both.
func TestEntriesShareWhatTheProgramKeeps(t *testing.T) {
	build := func(outputs ...string) *ir.Graph {
		g := ir.NewGraph("g")
		b := builder{t, g}
		x, w, s := g.AddInput("x", ir.T(ir.Float32, 64)), g.AddInput("w", ir.T(ir.Float32, 64)), g.AddInput("s", ir.T(ir.Float32, 64))
		c := g.Constant("c", ir.Splat(ir.T(ir.Float32, 64), 3))
		y := b.region("loop", "Add", nil, b.region("loop", "Mul", nil, b.region("loop", "Mul", nil, x, w), c), s)
		for _, name := range outputs {
			y = b.region("loop", "Neg", nil, y)
			y.Name = name
			g.Outputs = append(g.Outputs, y)
		}
		return g
	}
	idle := ir.NewGraph("idle")
	z := builder{t, idle}.region("loop", "Relu", nil, idle.AddInput("x", ir.T(ir.Float32, 64)))
	z.Name = "z"
	idle.Outputs = []*ir.Value{z}
	weights := NewWeights()
	initial := make([]byte, 256)
	r, err := generateEntries(t, weights,
		Entry{Name: "run", Graph: build("y"), States: []StateBinding{{Input: "w", Initial: initial}, {Input: "s"}}},
		Entry{Name: "step", Graph: build("next_w", "next_s"), States: []StateBinding{{Input: "w", Output: "next_w", Initial: initial}, {Input: "s", Output: "next_s"}}},
		Entry{Name: "idle", Graph: idle})
	require.NoError(t, err)
	v := &r.Variant
	require.Equal(t, [][2][]string{{{"x", "w"}, {"arena"}}, {{"arena", "constant"}, {"arena"}}, {{"s", "arena"}, {"arena"}}, {{"arena"}, {"y"}}}, touched(v, &v.Entries[0]))
	require.Equal(t, [][2][]string{{{"x", "w"}, {"arena"}}, {{"arena", "constant"}, {"arena"}}, {{"s", "arena"}, {"arena"}}, {{"arena"}, {"w"}}, {{"w"}, {"s"}}}, touched(v, &v.Entries[1]))
	require.Equal(t, 512, v.ArenaBytes, "either entry's two values at a time")
	require.Equal(t, 512, v.LiveBytes)
	require.Len(t, weights.Bytes(), 512, "the constant once, the variable once")
	kinds := map[runtime.BufferKind]int{}
	for _, b := range v.Buffers {
		kinds[b.Kind]++
	}
	require.Equal(t, map[runtime.BufferKind]int{"input": 1, "output": 2, "variable": 1, "state": 1, "constant": 2, "arena": 6}, kinds)
	require.Len(t, v.Kernels, 2, "of one operand and of two: entries share them")

	for want, entries := range map[string][]Entry{
		`entry step: input "w" is a buffer of kind state of 256 bytes, but in another entry of kind variable of 256 bytes: give them different names`: {
			{Name: "run", Graph: build("y"), States: []StateBinding{{Input: "w", Initial: initial}}}, {Name: "step", Graph: build("z"), States: []StateBinding{{Input: "w"}}}},
		`output "y" of 256 bytes cannot be the new value of "h", which is not an input of that size: give both the same type and shape`: {{Name: "run", Graph: build("y"), States: []StateBinding{{Input: "h", Output: "y"}}}},
		`entry step: output "y" is the new value of "w", but not in another entry: give them different names`: {
			{Name: "run", Graph: build("y"), States: []StateBinding{{Input: "w"}}}, {Name: "step", Graph: build("y"), States: []StateBinding{{Input: "w", Output: "y"}}}},
	} {
		_, err := generateEntries(t, NewWeights(), entries...)
		require.EqualError(t, err, want)
	}
}

func TestAVariableSharesItsBytesWithNothing(t *testing.T) {
	w := NewWeights()
	c := w.Add([]byte{1, 2})
	v := w.AddVariable("v", []byte{1, 2})
	require.NotEqual(t, c, v)
	require.NotEqual(t, v, w.AddVariable("u", []byte{1, 2}))
	require.Equal(t, v, w.AddVariable("v", []byte{1, 2}), "another variant's")
	fresh := NewWeights()
	require.NotEqual(t, fresh.AddVariable("v", []byte{3}), fresh.Add([]byte{3}))
}

// TestSlicesBoundAlignment: a later repetition's slice of a port may begin anywhere that its size allows.
func TestSlicesBoundAlignment(t *testing.T) {
	require.Equal(t, 4, place{&storage{slice: 300}, 0}.align())
	require.Equal(t, 256, place{&storage{slice: 512}, 256}.align())
	require.Equal(t, 4, place{&storage{into: &storage{slice: 300}}, 0}.align(), "written over a state")
}
