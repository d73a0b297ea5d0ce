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

// TestScatter_WritesItsUpdatesOverAKeptValue: a ring of 4 rows of 75, of which a run replaces a row of each column. A
// kernel that reads the old ring before changes nothing; one that reads it after makes the ring need a place of its
// own.
func TestScatter_WritesItsUpdatesOverAKeptValue(t *testing.T) {
	const rows, n = 4, 75
	for _, c := range []struct {
		name         string
		readAfter    bool
		updates      int // rows in a run
		copies, wide int // copies, and threads of the scatter
	}{
		{"in place", false, 1, 0, n},
		{"the old value is read later", true, 1, 2, n},
		{"two updates of a column", false, 2, 1, rows * n},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := kerneltest.NewGraph(t, "run")
			x := g.AddInput("x", ir.T(ir.Float32, c.updates, n))
			at := g.AddInput("at", ir.T(ir.Int32, c.updates, n))
			ring := g.AddInput("ring", ir.T(ir.Float32, rows, n))
			sums := func() *ir.Value {
				r := g.Region(ir.FamilyLoop)
				return r.Finish(r.Add("ReduceSum", ir.Attrs{"axes": []int{0}}, r.Read(ring, false))).Outputs[0]
			}
			var sum *ir.Value
			if !c.readAfter {
				sum = sums()
			}
			r := g.Region(ir.FamilyLoop)
			operands := []*ir.Value{r.Read(ring, false), r.Read(at, false), r.Read(x, false)}
			next := r.Finish(r.Add("ScatterElements", ir.Attrs{"axis": 0}, operands...)).Outputs[0]
			if c.readAfter {
				sum = sums()
			}
			sum.Name, next.Name = "sum", "next"
			g.Outputs = []*ir.Value{sum, next}
			w := codegen.NewWeights()
			entry := codegen.Entry{Name: "run", Graph: g.Graph, States: []codegen.StateBinding{{Input: "ring", Output: "next"}}}
			out, err := codegen.Generate([]codegen.Entry{entry}, target.Default(), families.New(nil), w)
			require.NoError(t, err)
			list := out.Variant.Entries[0].Launches
			copies := 0
			for i := range list {
				if list[i].Copy != nil {
					copies++
				} else if l := list[i]; l.Kernel == "scatterelements" {
					require.Equal(t, (c.wide+l.Block[0]-1)/l.Block[0], l.Grid[0])
				}
			}
			require.Equal(t, c.copies, copies)

			port := func(v *ir.Value) runtime.Port {
				return runtime.Port{Name: v.Name, DType: v.Type.DType.String(), Shape: v.Type.Shape}
			}
			p := &runtime.Program{
				Format: runtime.FormatVersion, Model: "ring", Variants: []runtime.Variant{out.Variant}, Weights: w.Bytes(),
				States: []runtime.State{{Input: "ring", Output: "next"}},
				Inputs: []runtime.Port{port(x), port(at), port(ring)}, Outputs: []runtime.Port{port(sum), port(next)},
			}
			require.NoError(t, p.Validate())
			device, err := emu.Open(emu.Options{Check: true})
			require.NoError(t, err)
			defer device.Close()
			s, err := runtime.Open(t.Context(), p, device, runtime.ModelOptions{})
			require.NoError(t, err)
			defer s.Close()
			want := make([]float32, rows*n)
			for run := range 6 {
				was := slices.Clone(want)
				for i := range c.updates * n {
					row := (run + i%n + i/n) % rows // another one for each column
					runtime.View[int32](s.Input("at"))[i] = int32(row - rows*(i%2))
					value := float32(100*run + i)
					runtime.View[float32](s.Input("x"))[i] = value
					want[row*n+i%n] = value
				}
				require.NoError(t, s.Run(t.Context()))
				require.Equal(t, want, slices.Clone(runtime.View[float32](s.Output("next"))))
				for i := range n {
					require.Equal(t, was[i]+was[n+i]+was[2*n+i]+was[3*n+i], runtime.View[float32](s.Output("sum"))[i])
				}
			}
		})
	}
}
