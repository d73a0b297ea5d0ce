package contraction

import (
	"context"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

// run is kerneltest.Run of a kernel with one output.
func run(t *testing.T, spec *kernel.Spec, tgt *target.Target, data map[*ir.Value]*ir.Tensor) *ir.Tensor {
	t.Helper()
	outs := slices.Collect(maps.Values(kerneltest.Run(t, spec, tgt, data)))
	require.Len(t, outs, 1)
	return outs[0]
}

// reference evaluates the region's body for every member.
func reference(t *testing.T, region *ir.Node, data map[*ir.Value]*ir.Tensor) []float64 {
	t.Helper()
	var all []float64
	stacked := region.Attrs.Bools("stacked")
	for g := 0; g < members(region); g++ {
		var in []*ir.Array
		for i, v := range region.Inputs {
			a := data[v].Array()
			inner := region.Body.Inputs[i].Type
			if stacked[i] && region.Attrs.Int("members", 0) > 0 {
				n := inner.Numel()
				a = &ir.Array{Type: inner, F: a.F[g*n : (g+1)*n]}
			}
			in = append(in, a)
		}
		out, err := ir.EvaluateList(context.Background(), region.Body, in, ir.EvalOptions{})
		require.NoError(t, err)
		all = append(all, out[0].F...)
	}
	return all
}

func distance(got *ir.Tensor, want []float64) float64 {
	var d, n float64
	for i, x := range got.Floats() {
		e := x - want[i]
		d += e * e
		n += want[i] * want[i]
	}
	return math.Sqrt(d / n)
}

// check runs a kernel and compares it with the reference evaluator.
func check(t *testing.T, b *body, spec *kernel.Spec, tgt *target.Target) {
	t.Helper()
	got := run(t, spec, tgt, b.data)
	limit := 2e-6
	if got.DType == ir.Float16 {
		limit = 4e-4 // one rounding to f16
	}
	require.Less(t, distance(got, reference(t, b.region, b.data)), limit, spec.Schedule)
}
