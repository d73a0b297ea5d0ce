package codegen_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen"
	"github.com/spark-compile/spark-compile/codegen/families"
	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// prefixed is an entry over rows. A prefix computes twice = [1 + k; 2 + k]·x + bias for some rows, batched as [2,
// rows, columns], or as [rows, columns] of one factor. The rest computes y = twice + x, sum = Σ over the batch, and
// count += x.
func prefixed(t *testing.T, rows, columns, prefixes, repeats int, batched bool) codegen.Entry {
	region := func(g *kerneltest.Graph, out, op string, attrs ir.Attrs, in ...*ir.Value) *ir.Value {
		r := g.Region(ir.FamilyLoop)
		args := make([]*ir.Value, len(in))
		for i, v := range in {
			args[i] = r.Read(v, false)
		}
		v := r.Finish(r.Add(op, attrs, args...)).Outputs[0]
		v.Name = out
		return v
	}
	shape := func(rows int) []int {
		if batched {
			return []int{2, rows, columns}
		}
		return []int{rows, columns}
	}
	factors := make([]float64, 2*columns)
	for i := range factors {
		factors[i] = float64(1 + i)
	}
	typ := ir.T(ir.Float32, 2, 1, columns)
	if !batched {
		typ, factors = ir.T(ir.Float32, columns), factors[:columns]
	}
	f := kerneltest.NewGraph(t, "prefix")
	x := f.AddInput("x", ir.T(ir.Float32, rows, columns))
	product := region(f, "product", "Mul", nil, f.Constant("factors", ir.FromFloats(typ, factors)), x)
	one := f.Constant("one", ir.FromFloats(ir.T(ir.Float32, 1), []float64{1}))
	f.Outputs = []*ir.Value{region(f, "twice", "Add", nil, product, one)}

	g := kerneltest.NewGraph(t, "run")
	x, count := g.AddInput("x", ir.T(ir.Float32, rows*prefixes, columns)), g.AddInput("count", ir.T(ir.Float32, rows*prefixes, columns))
	twice := g.AddInput("twice", ir.T(ir.Float32, shape(rows*prefixes)...))
	y := region(g, "y", "Add", nil, twice, x)
	if batched {
		y = region(g, "y", "ReduceSum", ir.Attrs{"axes": []int{0}, "keepdims": false}, region(g, "both", "Add", nil, twice, x))
	}
	g.Outputs = []*ir.Value{y, region(g, "next_count", "Add", nil, count, x)}
	return codegen.Entry{Name: "run", Graph: g.Graph, Repeats: repeats, Prefix: &codegen.BatchPrefix{Graph: f.Graph, Repeats: prefixes},
		States: []codegen.StateBinding{{Input: "count", Output: "next_count"}}}
}

// TestBatchPrefix_ComputesEverySlice, of a list that is repeated and of one that is not, and of values in one piece
// and in two. All checks of the CPU device are on.
func TestBatchPrefix_ComputesEverySlice(t *testing.T) {
	const rows, columns, prefixes = 3, 75, 4
	for _, batched := range []bool{false, true} {
		for _, repeats := range []int{1, 2} {
			e := prefixed(t, rows, columns, prefixes, repeats, batched)
			weights := codegen.NewWeights()
			r, err := codegen.Generate([]codegen.Entry{e}, target.Default(), families.New(nil), weights)
			require.NoError(t, err)
			n, copies := repeats*prefixes*rows*columns, 0
			for _, l := range r.Variant.Entries[0].Launches {
				if l.Copy != nil {
					copies++
				}
			}
			want := 0
			if batched {
				want = 2 * prefixes * repeats
			}
			require.Equal(t, want, copies, "a copy for each piece")
			require.Equal(t, repeats*prefixes, r.Variant.Entries[0].Fronts)
			p := &runtime.Program{Format: runtime.FormatVersion, Model: "prefixed", Variants: []runtime.Variant{r.Variant}, Weights: weights.Bytes(),
				States: []runtime.State{{Input: "count", Output: "next_count"}}}
			for _, name := range []string{"x", "count"} {
				p.Inputs = append(p.Inputs, runtime.Port{Name: name, DType: "f32", Shape: []int{n / columns, columns}})
			}
			for _, name := range []string{"y", "next_count"} {
				p.Outputs = append(p.Outputs, runtime.Port{Name: name, DType: "f32", Shape: []int{n / columns, columns}})
			}
			require.NoError(t, p.Validate(), "hazards order what reuses the arena")

			device, err := emu.Open(emu.Options{Check: true})
			require.NoError(t, err)
			s, err := runtime.Open(t.Context(), p, device, runtime.ModelOptions{})
			require.NoError(t, err)
			count := make([]float32, n)
			for run := range 2 {
				x := runtime.View[float32](s.Input("x"))
				for i := range x {
					x[i] = float32((i*7 + run) % 11)
				}
				require.NoError(t, s.Run(t.Context()))
				for i := range x {
					want := float32(1+i%columns)*x[i] + 1 + x[i]
					if batched {
						want += float32(1+columns+i%columns)*x[i] + 1 + x[i]
					}
					require.Equal(t, want, runtime.View[float32](s.Output("y"))[i], "y %d", i)
					count[i] += x[i]
					require.Equal(t, count[i], runtime.View[float32](s.Output("next_count"))[i])
				}
			}

			planned, err := codegen.PlanLaunches([]codegen.Entry{e}, target.Default(), families.New(nil))
			require.NoError(t, err)
			require.Equal(t, r.Variant.Buffers, planned.Variant.Buffers)
			for i, l := range planned.Variant.Entries[0].Launches {
				made := r.Variant.Entries[0].Launches[i]
				require.Equal(t, [...]any{made.Grid, made.Reads, made.Writes, made.After, made.Dependent}, [...]any{l.Grid, l.Reads, l.Writes, l.After, l.Dependent})
			}
		}
	}
}

// TestBatchPrefix_ReadsAndWritesAsIfAlone: its kernels, emitted after those of the rest were planned, have the
// alignment of their own values.
func TestBatchPrefix_ReadsAndWritesAsIfAlone(t *testing.T) {
	e := prefixed(t, 64, 256, 2, 1, true)
	r, err := codegen.Generate([]codegen.Entry{e}, target.Default(), families.New(nil), codegen.NewWeights())
	require.NoError(t, err)
	alone, err := codegen.Generate([]codegen.Entry{{Name: "run", Graph: e.Prefix.Graph}}, target.Default(), families.New(nil), codegen.NewWeights())
	require.NoError(t, err)
	wide := 0
	for i, l := range alone.Variant.Entries[0].Launches {
		want := bodyOf(t, &alone.Variant, l.Kernel)
		require.Equal(t, want, bodyOf(t, &r.Variant, r.Variant.Entries[0].Launches[i].Kernel))
		wide += strings.Count(want, "st.global.v4")
	}
	require.Positive(t, wide, "stores depend on the alignment")
}

// bodyOf is the text of a kernel from its first instruction on.
func bodyOf(t *testing.T, v *runtime.Variant, name string) string {
	m, err := ptx.Parse(v.PTX)
	require.NoError(t, err)
	alone := ptx.NewModule(v.Target)
	for _, k := range m.Kernels {
		if k.Name == name {
			k.Name, k.Doc = "k", nil
			alone.Kernels = append(alone.Kernels, k)
		}
	}
	require.Len(t, alone.Kernels, 1)
	return alone.String()
}

// TestPrefix_RefusesWhatMayChange: a state may have changed when a prefix runs again, and slices are along one axis.
func TestPrefix_RefusesWhatMayChange(t *testing.T) {
	generate := func(e codegen.Entry) error {
		_, err := codegen.Generate([]codegen.Entry{e}, target.Default(), families.New(nil), codegen.NewWeights())
		return err
	}
	e := prefixed(t, 3, 75, 4, 1, true)
	e.Prefix.Graph.Inputs[0].Name = "count"
	require.EqualError(t, generate(e), `batch prefix: it reads "count", which later launches may change: leave states to the entry's graph`)
	e = prefixed(t, 3, 75, 4, 1, true)
	e.Prefix.Repeats = 3
	require.EqualError(t, generate(e), `batch prefix: "twice": f32[2,3,75] is not one of 3 slices of f32[2,12,75]`)
	e = prefixed(t, 3, 75, 4, 1, true)
	e.Prefix.Graph.Outputs[0].Name = "thrice"
	require.EqualError(t, generate(e), `batch prefix: the entry's graph has no input "thrice"`)
	for _, types := range [][2]ir.Type{{ir.T(ir.Float32, 2, 75), ir.T(ir.Float32, 2, 12, 75)}, {ir.T(ir.Float32, 12), ir.T(ir.Float32, 12)}, {ir.T(ir.Float16, 3), ir.T(ir.Float32, 12)}, {ir.T(ir.Float32, 3, 5), ir.T(ir.Float32, 12, 20)}} {
		_, err := codegen.SlicesOf(types[0], types[1], 4)
		require.ErrorContains(t, err, "is not one of 4 slices")
	}
}
