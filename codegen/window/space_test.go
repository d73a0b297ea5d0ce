package window

import (
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

func TestPlansComputeTheSame(t *testing.T) {
	rng := rand.New(rand.NewSource(3))
	for _, s := range []shape{
		{op: "Conv", d: ir.Float16, n: 1, h: 9, w: 14, c: 48, multiplier: 1, k: 3, stride: 1, pad: 1, dil: 1, gelu: true},
		{op: "Conv", d: ir.Float32, n: 1, h: 10, w: 10, c: 16, multiplier: 1, k: 5, stride: 2, pad: 2, dil: 1, members: 2, residual: true},
		{op: "MaxPool", d: ir.Float16, n: 1, h: 12, w: 12, c: 16, multiplier: 1, k: 3, stride: 2, pad: 1, dil: 1},
	} {
		t.Run(s.String(), func(t *testing.T) {
			ctx := kerneltest.Target(t, "sm_121")
			for _, spec := range s.region(t).Plans(Family, ctx, rng, 6) {
				kerneltest.Assemble(t, spec, ctx.Target)
			}
		})
	}
}

func TestAScheduleFromOutsideThatCannotBe(t *testing.T) {
	s := shape{op: "Conv", d: ir.Float16, n: 1, h: 9, w: 14, c: 48, multiplier: 1, k: 3, stride: 1, pad: 1, dil: 1}
	for _, text := range []string{"fast", "tile=3x5x7 thread=1x1", "tile=-1x2x8 thread=1x1", "tile=1x2x48 thread=1x4 "} {
		ctx := kerneltest.Target(t, "sm_121")
		ctx.Schedules = kerneltest.Fixed(text)
		_, err := Family.Lower(s.region(t).Node, ctx)
		var bad *kernel.ScheduleError
		require.ErrorAs(t, err, &bad, text)
		require.ErrorContains(t, err, "no such tile of 9x14 pixels and 48 channels: want a form like tile=4x8x32 thread=2x4")
	}
}

// TestCandidates_OfFusedWindowsHaveTheBitsOfTwoLaunches draws plans of a tuner's space by chance.
func TestCandidates_OfFusedWindowsHaveTheBitsOfTwoLaunches(t *testing.T) {
	fulltest.Long(t)
	const plans = 4 // of a pair
	for _, c := range pairs()[3:9] {
		t.Run(c.String(), func(t *testing.T) {
			ctx := kerneltest.Target(t, "sm_121")
			b := c.run(t, ctx)
			space, err := Family.Space(b.fused, ctx)
			require.NoError(t, err)
			own, err := Family.Lower(b.fused, ctx)
			require.NoError(t, err)
			require.Equal(t, own.Signature, space.Signature)
			texts := []string{space.Default}
			for _, i := range b.graph.Rand.Perm(len(space.Candidates))[:min(plans, len(space.Candidates))] {
				texts = append(texts, space.Candidates[i].Schedule)
			}
			for _, text := range texts {
				in := *ctx
				in.Schedules = kerneltest.Fixed(text)
				spec, err := Family.Lower(b.fused, &in)
				require.NoError(t, err)
				require.Equal(t, text, spec.Schedule)
				b.same(t, spec, ctx)
				kerneltest.Assemble(t, spec, ctx.Target)
			}
			for text, want := range map[string]string{kernel.Unfused: kernel.ErrUnfused.Error(), "tile=1x1x1 thread=1x1": "no such tiles"} {
				in := *ctx
				in.Schedules = kerneltest.Fixed(text)
				_, err := Family.Lower(b.fused, &in)
				require.ErrorContains(t, err, want)
			}
		})
	}
}
