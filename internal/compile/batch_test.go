package compile

import (
	"context"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

// TestABatchIsItsSamples: a model with a batch of 1 inside, compiled for three samples, gives each what it gets alone, from no
// more launches of the loop family than one sample needs.
func TestABatchIsItsSamples(t *testing.T) {
	fulltest.Long(t)
	const samples = 3
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			m := small(t, name)
			one, err := onnx.Import(m, onnx.ImportOptions{})
			require.NoError(t, err)
			r, err := compiled(context.Background(), m, Options{Precision: "fp32", Targets: []string{"sm_121"}, F32Outputs: true, Import: onnx.ImportOptions{Batch: samples}})
			require.NoError(t, err)
			alone := once(t, m, Options{Precision: "fp32", Targets: []string{"sm_121"}})
			in := map[string]*npy.Array{}
			var want [samples]map[string]*ir.Array
			for i, given := range calibrate.Generate(one, samples) {
				for _, v := range one.Inputs {
					a := in[v.Name]
					if a == nil {
						a = &npy.Array{DType: v.Type.DType.String(), Shape: slices.Concat([]int{samples * v.Type.Shape[0]}, v.Type.Shape[1:])}
						in[v.Name] = a
					}
					a.Data = append(a.Data, given[v.Name].Tensor().Dense()...)
				}
				want[i], err = ir.Evaluate(context.Background(), one, given, ir.EvalOptions{})
				require.NoError(t, err)
			}
			got := outputs(t, r.Program, session(t, r.Program, true), in)
			for i := range want {
				for _, out := range slices.Sorted(maps.Keys(want[i])) {
					var miss, size float64
					n := len(want[i][out].F)
					for k, x := range want[i][out].F {
						d := got[out][i*n+k] - x
						miss, size = miss+d*d, size+x*x
					}
					assert.Less(t, math.Sqrt(miss/size), 1e-4, "%s of sample %d", out, i)
				}
			}
			loops := func(r *Result) (count int) {
				for _, n := range r.Graph.Nodes {
					for _, part := range n.Parts() {
						if part.IsFamily(ir.FamilyLoop) && part.MACs() > 0 {
							count++
						}
					}
				}
				return count
			}
			t.Logf("%d launches, alone %d; %d and %d loops with products", len(r.Program.Variants[0].Entries[0].Launches), len(alone.Program.Variants[0].Entries[0].Launches), loops(r), loops(alone))
			assert.LessOrEqual(t, loops(r), loops(alone))
		})
	}
}
