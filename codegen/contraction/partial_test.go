package contraction

import (
	"fmt"
	"math"
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

// keeping is the default target as if its tensor cores kept so many bits of sums of e4m3 and e2m1; 0: all.
func keeping(t *testing.T, bits int) *kernel.Context {
	ctx := *sm121(t)
	tgt := *ctx.Target
	if bits > 0 {
		tgt.SumBits = map[string]int{"e4m3": bits, "e2m1": bits}
	}
	ctx.Target = &tgt
	return &ctx
}

// longSum is a product of e4m3 whose terms are all positive, so that what is dropped adds up.
func longSum(t *testing.T, k int) *kerneltest.Region {
	b := newRegion(t)
	positive := func(r *rand.Rand, _ int) float64 { return math.Ldexp(.5+r.Float64()/2, -r.Intn(6)) }
	x := b.Fill(ir.T(e4m3, 1, 16, k), positive, false, false)
	w := b.Fill(ir.T(e4m3, k, 32), positive, true, false)
	b.Finish(b.Add("MatMul", nil, b.Cast(x, f32), b.Cast(w, f32)))
	return b
}

// meanError is the mean signed error of a kernel, relative to the exact results.
func meanError(t *testing.T, b *kerneltest.Region, spec *kernel.Spec, on *target.Target) float64 {
	got := kerneltest.Run(t, spec, on, b.Data)[b.Node.Outputs[0]].Floats()
	want := kerneltest.Reference(t, b.Node, b.Data)[0].F
	sum := 0.0
	for i, w := range want {
		sum += (got[i]/w - 1) / float64(len(want))
	}
	return sum
}

// TestPartialSums: where tensor cores drop bits, long sums are biased unless partial sums are added in f32. -v prints
// docs/measurements/partial-sums.csv.
func TestPartialSums(t *testing.T) {
	lengths := []int{64, 256, 2048}
	if fulltest.All() {
		lengths = []int{64, 128, 256, 512, 1024, 2048}
	}
	t.Log("K,partial sum every,f32,13 bits,13 bits with partial sums in f32")
	for i, k := range append(lengths, 2048) {
		b := longSum(t, k)
		biased := keeping(t, 13)
		every := 64
		s := Schedule{BM: 32, BN: 32, BK: every, WarpsM: 1, WarpsN: 1, WarpsK: 1, Stages: 3, SplitK: 1} // nothing else shortens the sums
		if i == len(lengths) {
			s.BK, every = 256, 128 // two partial sums of a chunk
		}
		lower := func(ctx *kernel.Context) *kernel.Spec {
			p, err := normaliseFor(b.Node, ctx.Target)
			require.NoError(t, err)
			pl, err := newPlan(p, ctx)
			require.NoError(t, err)
			require.NoError(t, s.valid(p, ctx.Target))
			return write(p, pl.at(p, s), s, ctx.Target)
		}
		plain, partial := lower(sm121(t)), lower(biased)
		exact, without, with := meanError(t, b, plain, sm121(t).Target), meanError(t, b, plain, biased.Target), meanError(t, b, partial, biased.Target)
		t.Logf("%d,%d,%.1e,%.2e,%.2e", k, every, exact, without, with)
		require.Less(t, math.Abs(exact), 1e-6)
		if k >= 1024 {
			require.Less(t, without, -5e-3)
			require.Greater(t, with, without/5)
		}
		require.Greater(t, with, -1e-3)
	}
}

// TestEveryScheduleAddsPartialSums: whichever warps and blocks share K.
func TestEveryScheduleAddsPartialSums(t *testing.T) {
	fulltest.Long(t)
	b, ctx := newRegion(t), keeping(t, 30)
	region := narrowCase{a: e4m3, b: e4m3, out: f16, m: 40, k: 264, n: 72}.region(b)
	p, err := normaliseFor(region, ctx.Target)
	require.NoError(t, err)
	pl, err := newPlan(p, ctx)
	require.NoError(t, err)
	valid := slices.DeleteFunc(candidates(p), func(s Schedule) bool { return s.valid(p, ctx.Target) != nil || pl.fits(s) != nil })
	tried := valid
	if !fulltest.Runs(t.Name()) {
		tried = threewise(valid)
	}
	require.Greater(t, len(tried), 15)
	for _, s := range tried {
		b.CheckSpec(write(p, pl.at(p, s), s, ctx.Target), ctx.Target)
	}
}

// TestPartialSumsAreThoseOfAll: with sums that lose nothing, kernels that add partial sums compute what others do, in
// every precision and schedule, and are assembled without spills.
func TestPartialSumsAreThoseOfAll(t *testing.T) {
	ctx := keeping(t, 30)
	for i, c := range []narrowCase{
		{a: e4m3, b: e4m3, out: f16, m: 40, k: 320, n: 72},
		{a: e4m3, b: e4m3, out: f16, m: 16, k: 1024, n: 256},
		{a: f16, b: e4m3, round: true, out: f16, m: 40, k: 200, n: 72},
		{a: e2m1, b: e2m1, out: f16, m: 40, k: 512, n: 64},
		{a: e4m3, b: e4m3, out: f16, h: 7, w: 9, c: 64, co: 40, window: 3, stride: 1, pad: 1, group: 1},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			b := newRegion(t)
			region := c.region(b)
			spec := b.Check(Family.Lower, ctx)
			kerneltest.Assemble(t, spec, ctx.Target)
			p, err := normaliseFor(region, ctx.Target)
			require.NoError(t, err)
			require.Equal(t, partialSum, p.num.partial)
		})
	}
}
