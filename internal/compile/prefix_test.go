package compile

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

// TestAPrefixIsItsSamples: batches whose first layers compute fewer samples at a time than the others give each sample what the program for one gives,
// in a list that is repeated and in one that is not, of values in one piece and of the two towers'. All checks are on.
func TestAPrefixIsItsSamples(t *testing.T) {
	fulltest.Long(t)
	for _, c := range []struct {
		name, precision     string
		batch, size, prefix int
		full                bool
	}{{"vision", "fp32", 4, 4, 1, false}, {"supercombo", "fp16", 4, 4, 2, false},
		{"vision", "fp16", 8, 4, 2, true}, {"vision", "fp32", 8, 4, 2, true}, {"dmonitoring", "fp32", 8, 8, 4, true}, {"vision", "bf16", 4, 4, 2, true}, {"supercombo", "fp32", 8, 4, 2, true}} {
		t.Run(fmt.Sprint(c.name, " ", c.precision, " ", c.batch, " ", c.size, " ", c.prefix), func(t *testing.T) {
			if c.full && !fulltest.Runs(t.Name()) {
				t.Skip("full only: another case of two")
			}
			m := small(t, c.name)
			opt := Options{Precision: c.precision, Targets: []string{"sm_121"}}
			alone := once(t, m, opt).Program
			opt.Import.Batch, opt.batching = c.batch, batching{c.size, c.prefix}
			r, err := compiled(t.Context(), m, opt)
			require.NoError(t, err)
			fronts, rest := 0, 0 // launches of the first layer and of the last
			launches := r.Program.Variants[0].Entries[0].Launches
			for _, l := range launches {
				fronts += b2i(l.Note == launches[0].Note)
				rest += b2i(l.Note == launches[len(launches)-1].Note)
			}
			require.Equal(t, [2]int{c.batch / c.prefix, c.batch / c.size}, [2]int{fronts, rest})
			samples := samplesOf(t, m, alone, c.batch)
			got, want := runs(t, r.Program, samples, c.batch), runs(t, alone, samples, 1)
			bound := map[string]float64{"fp16": 2e-2, "bf16": 8e-2, "fp32": 1e-4}[c.precision]
			for k, q := range alone.Outputs {
				for i := range samples {
					var miss, size float64
					x, y := numbersOf(t, q, got[i][k]), numbersOf(t, q, want[i][k])
					for j := range y {
						d := x[j] - y[j]
						miss, size = miss+d*d, size+y[j]*y[j]
					}
					assert.LessOrEqual(t, math.Sqrt(miss), bound*math.Sqrt(size), "%s of sample %d", q.Name, i)
				}
			}
		})
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestCutsHaveTheSameKeyInBatchesOfAllSizes, and precede outputs and state that persists between runs.
func TestCutsHaveTheSameKeyInBatchesOfAllSizes(t *testing.T) {
	of := func(name string, size int) *trial {
		r, err := compiled(t.Context(), small(t, name), Options{Precision: "fp32", Targets: []string{"sm_121"}, GraphOnly: true, Import: onnx.ImportOptions{Batch: size}})
		require.NoError(t, err)
		return &trial{size: size, graph: r.Graph, cuts: cutsOf(r.Graph)}
	}
	two, four := of("vision", 2), of("vision", 4)
	joints := splitPoints(two, four)
	require.Greater(t, len(joints), 10)
	for _, j := range joints {
		require.Equal(t, j.prefix.value.Name, j.rest.value.Name)
		for _, v := range four.graph.Outputs {
			require.NotEqual(t, v, j.rest.value)
		}
	}
	seen := map[string]bool{}
	for _, c := range four.cuts {
		require.False(t, seen[c.key], "two cuts with what is in front of %s", c.value.Name)
		seen[c.key] = true
	}
	require.Zero(t, len(splitPoints(two, of("vision", 2))), "of one size")
	require.Zero(t, len(splitPoints(two, of("dmonitoring", 4))), "of another model")
	g := of("supercombo", 2)
	require.Positive(t, len(g.cuts))
	for _, k := range States(g.graph) {
		for _, n := range g.graph.Nodes[:g.cuts[len(g.cuts)-1].at+1] {
			for _, v := range n.Inputs {
				require.NotEqual(t, k.Input, v.Name)
			}
		}
	}
}

// TestAModelWithoutACutHasNoPrefix: all that it computes are outputs.
func TestAModelWithoutACutHasNoPrefix(t *testing.T) {
	g, err := ir.Parse(`graph "g" {
  input %x: f32[1,300]
  %y: f32[1,300] = Neg(%x)
  output %y
}`)
	require.NoError(t, err)
	r := &Result{opt: Options{Precision: "fp32", Import: onnx.ImportOptions{Batch: 4}, Sample: g, meter: console.New(nil)}}
	s, err := r.opt.stages()
	require.NoError(t, err)
	size, f, err := r.fastest(t.Context(), target.Default(), s.all())
	require.NoError(t, err)
	require.Nil(t, f)
	require.Equal(t, 4, size)
}

// TestWhereAGraphCanBeCut: where a single value crosses the cut, which is no output, and no node before it reads
// state.
func TestWhereAGraphCanBeCut(t *testing.T) {
	graph := func(shape ...int) (*ir.Graph, func(op, name string, in ...*ir.Value) *ir.Value, *ir.Value) {
		g := kerneltest.NewGraph(t, "g")
		op := func(op, name string, in ...*ir.Value) *ir.Value {
			r := g.Region(ir.FamilyLoop)
			var args []*ir.Value
			for _, v := range in {
				args = append(args, r.Read(v, false))
			}
			v := r.Finish(r.Add(op, nil, args...)).Outputs[0]
			v.Name = name
			return v
		}
		return g.Graph, op, g.AddInput("x", ir.T(ir.Float32, shape...))
	}
	names := func(g *ir.Graph) (out []string) {
		for _, c := range cutsOf(g) {
			out = append(out, c.value.Name)
		}
		return out
	}
	g, op, x := graph(4, 75)
	a := op("Neg", "a", x)
	b, c := op("Neg", "b", a), op("Abs", "c", a)
	d := op("Add", "d", b, c)
	e := op("Neg", "e", d)
	g.Outputs = []*ir.Value{e, op("Abs", "f", e)}
	require.Equal(t, []string{"a", "d"}, names(g))

	g, op, x = graph(4, 75)
	state := g.AddInput("state_s", ir.T(ir.Float32, 4, 75))
	a = op("Neg", "a", x)
	c = op("Abs", "c", op("Add", "b", a, state))
	g.Outputs = []*ir.Value{op("Neg", "d", c), op("Abs", "next_state_s", c)}
	require.Equal(t, []string{"a"}, names(g))

	of := func(samples, rows int, last string) *trial {
		g, op, x := graph(3, rows, 75)
		g.Outputs = []*ir.Value{op("Abs", "y", op("Neg", "b", op(last, "a", x)))}
		return &trial{size: samples, cuts: cutsOf(g)}
	}
	require.Len(t, splitPoints(of(2, 2, "Neg"), of(4, 4, "Neg")), 2)
	require.Empty(t, splitPoints(of(2, 10, "Neg"), of(4, 20, "Neg")), "no axis of samples alone")
	require.Empty(t, splitPoints(of(2, 2, "Neg"), of(4, 4, "Abs")), "other operations in front")
	require.Empty(t, splitPoints(of(2, 2, "Neg"), of(4, 8, "Neg")), "of another number of slices")
}
