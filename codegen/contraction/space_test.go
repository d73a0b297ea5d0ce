package contraction

import (
	"fmt"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

// TestPlansComputeTheSame runs plans of a tuner's space, drawn by chance, of every kind of main loop, and has ptxas
// take them without spills.
func TestPlansComputeTheSame(t *testing.T) {
	fulltest.Long(t)
	rng := rand.New(rand.NewSource(5))
	matrix := func(a, b, out ir.DType) narrowCase { return narrowCase{a: a, b: b, out: out, m: 70, k: 384, n: 72} }
	rounded := matrix(f16, e4m3, f16)
	rounded.round = true
	for name, c := range map[string]narrowCase{
		"fp32": matrix(f32, f32, f32), "fp16": matrix(f16, f16, f16), "fp8": matrix(e4m3, e4m3, e4m3), "fp8 rounded": rounded, "fp6 weights": matrix(f16, e3m2, f16),
		"nvfp4": matrix(e2m1, e2m1, f16), "nvfp4 weights": matrix(f16, e2m1, f16),
		"conv": {a: f16, b: f16, out: f16, h: 9, w: 7, c: 24, co: 40, window: 3, stride: 2, pad: 1, group: 1, residual: f16},
	} {
		t.Run(name, func(t *testing.T) {
			b, ctx := newRegion(t), sm121(t)
			c.region(b)
			some := 8
			if testing.Short() {
				some = 3
			}
			for _, spec := range b.Plans(Family, ctx, rng, some) {
				kerneltest.Assemble(t, spec, ctx.Target)
			}
		})
	}
}

// TestCandidates_OfFusedRegionsComputeTheSame: of products that compute what they multiply.
func TestCandidates_OfFusedRegionsComputeTheSame(t *testing.T) {
	fulltest.Long(t)
	rng := rand.New(rand.NewSource(6))
	for name, build := range map[string]func(t testing.TB) *kerneltest.Region{
		"rows":    rowsCase{op: "LayerNorm", m: 40, k: 200, n: 72, x: f32, a: f16, w: f16, gain: true}.region,
		"window":  slideCase{h: 11, w: 9, c: 72, n: 40, k: 3, stride: 1, pad: 1, x: f16, a: f16, weights: f16}.region,
		"product": productCase{m: 40, c: 72, k: 104, n: 72, op: "Gelu", x: f16, w: f16, a: f16, weights: f16, residual: true}.region,
		"heads":   headsCase{b: 2, h: 3, s: 40, d: 32, n: 40, x: f16, a: f16, w: f16, mask: true}.region,
		"expand":  expandCase{h: 10, w: 20, k: 16, c: 48, n: 24, window: [2]int{3, 3}, stride: 1, pad: 1, x: f16, between: f16}.region,
	} {
		t.Run(name, func(t *testing.T) {
			b, ctx := build(t), sm121(t)
			if name == "heads" {
				b.Limits[f16] = 6e-4 // probabilities are rounded to f16
			}
			for _, spec := range b.Plans(Family, ctx, rng, 5) {
				kerneltest.Assemble(t, spec, ctx.Target)
			}
		})
	}
}

// TestASpaceHasMoreThanTheCandidates: it contains Lower's candidates that are not far from the best, and tiles of 16
// rows and of 256.
func TestASpaceHasMoreThanTheCandidates(t *testing.T) {
	rows := map[int]bool{}
	for _, m := range []int{16, 2048} {
		b, ctx := newRegion(t), sm121(t)
		region := gemmCase{m: m, k: 256, n: 512, dtype: f16}.region(b)
		s, err := Family.Space(region, ctx)
		require.NoError(t, err)
		for _, p := range s.Candidates {
			got, err := parseSchedule(p.Schedule)
			require.NoError(t, err)
			require.Equal(t, p.At, got.coordinates())
			rows[got.BM] = true
		}
	}
	for _, bm := range []int{16, 32, 64, 128, 256} {
		require.True(t, rows[bm], "no tile of %d rows", bm)
	}
}

// TestSchedulesFromOutsideThatCannotBe: each is an error of its own kind with the reason, never another schedule.
func TestSchedulesFromOutsideThatCannotBe(t *testing.T) {
	for text, reason := range map[string]string{
		"":                                       "",
		"fast":                                   `"fast": expected integer; want a form like`,
		"32x32x128":                              "want a form like",
		"0x32x128 stages=3 warps=1x1":            "0 is no size",
		"32x32x128 stages=3 warps=1x1x1":         "want a form like",
		"32x32x128 stages=3 warps=0x1":           "0 is no size",
		"32x32x128 stages=3 stages=3":            "want a form like",
		"32x32x128 stages=3 warps=1x1 x":         `"x": unknown`,
		"48x32x128 stages=3 warps=1x1":           "powers of two",
		"32x32x8 stages=3 warps=1x1":             "32 bytes or more",
		"32x32x64 stages=3 warps=1x1 thread=4x4": "does not go with operands of f16",
		"32x32x64 stages=3 warps=1x1 splitk=9":   "without any of 4 chunks",
		"32x32x64 stages=3 warps=1x1 splitk=-2":  "want a form like",
		"32x32x64 stages=6 warps=1x1":            "6 stages, and a block has 4 chunks",
		"256x256x256 stages=6 warps=4x4":         "bytes of shared memory",
		"32x32x64 stages=3 warps=4x1":            "not a multiple of 16x16",
		"4096x4096x64 stages=3 warps=4096x4096":  "threads",
		"32x32x5000 stages=3 warps=1x1":          "5000 is no size", "32x32x64 stages=1 warps=1x1": "1 stages",
		"32x32x92233720368547758070 stages=3": "out of range",
	} {
		t.Run(text, func(t *testing.T) {
			b, ctx := newRegion(t), sm121(t)
			region := gemmCase{m: 40, k: 256, n: 64, dtype: f16}.region(b)
			ctx.Schedules = kerneltest.Fixed(text)
			spec, err := Family.Lower(region, ctx)
			if text == "" {
				require.NoError(t, err)
				require.NotEmpty(t, spec.Schedule)
				return
			}
			var bad *kernel.ScheduleError
			require.ErrorAs(t, err, &bad)
			require.ErrorContains(t, err, reason)
			require.ErrorContains(t, err, fmt.Sprintf("%q", text))
			require.Equal(t, text, bad.Schedule)
		})
	}
}

// TestSignatures: they distinguish kernels with different schedules, and do not depend on names, weights' values or
// activation scales.
func TestSignatures(t *testing.T) {
	of := func(c narrowCase, align int) string {
		b, ctx := newRegion(t), sm121(t)
		region := c.region(b)
		ctx.Align = func(v *ir.Value) int {
			return align
		}
		k, err := Family.Analyse(region, ctx)
		require.NoError(t, err)
		return k.Signature()
	}
	base := narrowCase{a: f16, b: f16, out: f16, m: 64, k: 128, n: 64}
	require.Equal(t, of(base, 256), of(base, 16), "no access is wider than 16 bytes")
	seen := map[string]string{of(base, 256): "base", of(base, 8): "less aligned"}
	for name, change := range map[string]func(c *narrowCase){
		"more rows": func(c *narrowCase) { c.m = 65 }, "other weights": func(c *narrowCase) { c.b = e4m3 }, "other results": func(c *narrowCase) { c.out = f32 },
		"members": func(c *narrowCase) { c.members = 2 }, "longer": func(c *narrowCase) { c.k = 256 },
	} {
		c := base
		change(&c)
		seen[of(c, 256)] = name
	}
	require.Len(t, seen, 7)
}

// TestPlansOfAttentionComputeTheSame, whatever warps share it.
func TestPlansOfAttentionComputeTheSame(t *testing.T) {
	rng := rand.New(rand.NewSource(7))
	for _, c := range []attentionCase{
		{h: 2, hk: 1, s: 70, t: 40, d: 16, dv: 64, dtype: f16, mask: []int{70, 40}},
		{h: 2, hk: 2, s: 33, t: 33, d: 32, dv: 64, dtype: f32, causal: true, members: 2},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			b, ctx := newRegion(t), sm121(t)
			c.region(b)
			b.Limits[f16] = 6e-4 // probabilities are rounded to f16
			specs := b.Plans(Family, ctx, rng, 12)
			require.Greater(t, len(specs), 2)
			for _, spec := range specs {
				kerneltest.Assemble(t, spec, ctx.Target)
			}
			ctx.Schedules = kerneltest.Fixed("16x64x32 stages=2 warps=9x9")
			_, err := Family.Lower(b.Node, ctx)
			require.ErrorContains(t, err, "no such attention; forms are")
		})
	}
}
