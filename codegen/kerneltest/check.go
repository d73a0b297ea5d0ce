package kerneltest

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/toolchain"
	"github.com/spark-compile/spark-compile/ir"
)

// Lowering is a family's Lower.
type Lowering func(region *ir.Node, ctx *kernel.Context) (*kernel.Spec, error)

// Target is the context of a target of that name.
func Target(t testing.TB, name string) *kernel.Context {
	t.Helper()
	tgt, err := target.Lookup(name)
	require.NoError(t, err)
	return &kernel.Context{Target: tgt}
}

// Check lowers the finished region, runs its kernel and compares it with the reference evaluator.
func (r *Region) Check(lower Lowering, ctx *kernel.Context) *kernel.Spec {
	r.t.Helper()
	spec, err := lower(r.Node, ctx)
	require.NoError(r.t, err)
	r.CheckSpec(spec, ctx.Target)
	return spec
}

// CheckSpec is Check of a kernel that has been lowered.
func (r *Region) CheckSpec(spec *kernel.Spec, tgt *target.Target) {
	r.t.Helper()
	if r.want == nil {
		r.want = Reference(r.t, r.Node, r.Data)
	}
	got := Run(r.t, spec, tgt, r.Data)
	if r.r.Results[0].Block > 0 {
		r.compareBlocks(got, r.want)
		return
	}
	for k, v := range r.Node.Outputs {
		r.compare(got[v].Array(), r.want[k], "output %d (%v) of %s for %s, %s", k, v.Type, spec.Stem, tgt.Name, spec.Schedule)
	}
}

// limits of the relative L2 distance by the type of an output: sums in another order, and where the output is narrow
// the few elements that they push over the middle between two values. Of values in blocks it is the share of codes,
// and of scales, that may be such neighbours.
var limits = map[ir.DType]float64{ir.Float64: 1e-12, ir.Float32: 3e-6, ir.Float16: 1e-4, ir.BFloat16: 1e-3, ir.Float8E4M3FN: 3e-3, ir.Float4E2M1: 1e-4}

// compare wants integers and what is not finite equal, and the other numbers within the limit.
func (r *Region) compare(got, want *ir.Array, what string, args ...any) {
	r.t.Helper()
	if want.F == nil {
		require.Equal(r.t, want.I, got.I, append([]any{what}, args...)...)
		return
	}
	diff, norm := 0.0, 0.0
	for i, w := range want.F {
		g := got.F[i]
		if math.IsNaN(w+g) || math.IsInf(w+g, 0) {
			if w != g && !(math.IsNaN(w) && math.IsNaN(g)) {
				require.FailNowf(r.t, "not finite", what+": element %d is %g, want %g", append(args, i, g, w)...)
			}
			continue
		}
		diff += (w - g) * (w - g)
		norm += w * w
	}
	require.LessOrEqual(r.t, math.Sqrt(diff), r.Limits[want.DType]*math.Sqrt(norm)+1e-30, append([]any{what}, args...)...)
}

// Assemble has ptxas, where there is one, take a kernel without spills.
func Assemble(t testing.TB, spec *kernel.Spec, tgt *target.Target) {
	t.Helper()
	tool, err := toolchain.FindPtxas(context.Background())
	if errors.Is(err, toolchain.ErrNoPtxas) {
		t.Log("not assembled: ", err)
		return
	}
	require.NoError(t, err)
	res, err := tool.Assemble(context.Background(), spec.Build(tgt, "k").String(), tgt.Name)
	require.NoError(t, err)
	for _, u := range res.Usage {
		require.Zero(t, u.Spills, "%s: bytes of spills", spec.Schedule)
	}
}
