package contraction

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
)

// TestSumsInParts: large tiles, whose sums go through shared memory in parts, of every kind of main loop, over
// matrices that end anywhere in a tile and in a warp's rows.
func TestSumsInParts(t *testing.T) {
	for i, c := range []narrowCase{
		{a: f16, b: f16, out: f16, m: 277, k: 72, n: 136},
		{a: bf16, b: bf16, out: bf16, m: 140, k: 64, n: 520, members: 2},
		{a: f16, b: f16, out: f16, h: 17, w: 19, c: 24, co: 136, window: 3, stride: 2, pad: 1, group: 1, residual: f16},
		{a: f16, b: f16, out: f32, m: 129, k: 64, n: 131},
		{a: e4m3, b: e4m3, out: e4m3, m: 277, k: 96, n: 144},
		{a: f16, b: e4m3, out: f16, m: 150, k: 128, n: 136},
		{a: f16, b: e4m3, out: f16, round: true, m: 150, k: 128, n: 136},
		{a: f16, b: e2m1, out: f16, m: 150, k: 128, n: 136},
		{a: e2m1, b: e2m1, out: e2m1, m: 150, k: 128, n: 144},
		{a: f16, b: e3m2, out: f16, m: 150, k: 128, n: 136},
	} {
		bk := 32 * 16 / c.a.Bits() // of 64 bytes of A, and a unit of the weights
		if c.b == e2m1 {
			bk = max(bk, 64)
		}
		schedules := []Schedule{
			{BM: 128, BN: 128, BK: bk, WarpsM: 4, WarpsN: 2, WarpsK: 1, Stages: 2, SplitK: 1, Parts: 2},
			{BM: 128, BN: 128, BK: bk, WarpsM: 2, WarpsN: 4, WarpsK: 1, Stages: 2, SplitK: 1, Parts: 4},
			{BM: 128, BN: 256, BK: bk, WarpsM: 2, WarpsN: 4, WarpsK: 1, Stages: 2, SplitK: 1, Parts: 4},
			{BM: 256, BN: 64, BK: bk, WarpsM: 8, WarpsN: 1, WarpsK: 1, Stages: 2, SplitK: 1, Parts: 2},
			{BM: 64, BN: 64, BK: 2 * bk, WarpsM: 2, WarpsN: 2, WarpsK: 2, Stages: 2, SplitK: 1, Parts: 2},
		}
		ran := 0
		for j := range schedules {
			s := schedules[(i+j)%len(schedules)]
			if !fulltest.Runs(t.Name()) && ran > 0 {
				break
			}
			ctx := sm121(t)
			ctx.Schedules = kerneltest.Fixed(s.String())
			b := newRegion(t)
			region := c.region(b)
			p, err := normaliseFor(region, ctx.Target)
			require.NoError(t, err)
			if s.valid(p, ctx.Target) != nil {
				continue
			}
			ran++
			t.Run(fmt.Sprint(c.types(), " ", s), func(t *testing.T) {
				spec, err := Family.Lower(region, ctx)
				require.NoError(t, err)
				require.Equal(t, s.String(), spec.Schedule)
				b.CheckSpec(spec, ctx.Target)
				kerneltest.Assemble(t, spec, ctx.Target)
			})
		}
		require.Positive(t, ran, c.types())
	}
}

// TestPartsThatCannotBe: of warps' rows in m16 tiles, and as few as let the sums fit in the stages.
func TestPartsThatCannotBe(t *testing.T) {
	for text, reason := range map[string]string{
		"128x128x32 stages=2 warps=4x2 parts=3":          "powers of two",
		"128x128x32 stages=2 warps=4x2 parts=4":          "sums in 4 parts",
		"128x128x32 stages=3 warps=4x2 splitk=2 parts=2": "sums in 2 parts",
		"64x64x64 stages=3 warps=2x2 parts=2":            "fit in the stages in half as many",
		"128x128x32 stages=2 warps=4x2 parts=0":          "want a form like",
		"128x128x32 stages=2 warps=4x2 parts=1":          "want a form like",
	} {
		ctx := sm121(t)
		ctx.Schedules = kerneltest.Fixed(text)
		_, err := Family.Lower(gemmCase{m: 256, k: 256, n: 256, dtype: f16}.region(newRegion(t)), ctx)
		require.ErrorContains(t, err, reason, text)
	}
}
