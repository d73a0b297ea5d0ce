package loop

import (
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
)

// TestPlansComputeTheSame: of one case in twelve, and of random regions, some of the plans.
func TestPlansComputeTheSame(t *testing.T) {
	fulltest.Long(t)
	rng := rand.New(rand.NewSource(3))
	list := append(cases(), fused()...)
	for range 10 {
		list = append(list, randomRegion(rng))
	}
	sized := 0
	for _, one := range list {
		t.Run(one.name, func(t *testing.T) {
			if one.tol > 0 || rng.Intn(12) > 0 && one.name != "" { // compared in another way; random regions have no name
				return
			}
			r, ctx := one.region(t), kerneltest.Target(t, "sm_121")
			if s, err := Family.Space(r.Node, ctx); err != nil || s == nil {
				return
			}
			for _, s := range r.Plans(Family, ctx, rng, 2) {
				if s.Schedule[:4] == "flat" && len(s.Schedule) > len("flat x16") {
					sized++
				}
			}
		})
	}
	require.Positive(t, sized, "no blocks of other sizes")
}

// TestASpaceOfAScalar: an output without dimensions has no last one.
func TestASpaceOfAScalar(t *testing.T) {
	for _, one := range cases() {
		if one.name == "ReduceSum_all" || one.name == "ReduceSum all" {
			s, err := Family.Space(one.region(t).Node, kerneltest.Target(t, "sm_121"))
			require.NoError(t, err)
			require.NotEmpty(t, s.Candidates)
			return
		}
	}
	require.Fail(t, "no such case")
}

func TestAScheduleFromOutsideThatCannotBe(t *testing.T) {
	ctx := kerneltest.Target(t, "sm_121")
	for _, text := range []string{"fast", "flat x3", "flat x1, 48 threads a block", "row 0 threads x1, 0 rows a block"} {
		ctx.Schedules = kerneltest.Fixed(text)
		_, err := Family.Lower(cases()[0].region(t).Node, ctx)
		var bad *kernel.ScheduleError
		require.ErrorAs(t, err, &bad, text)
		require.ErrorContains(t, err, "no such loop; forms are")
	}
}

// TestCandidates_OfFusedRegionsComputeTheSame samples the tuner's schedules of fused loops.
func TestCandidates_OfFusedLoopsComputeTheSame(t *testing.T) {
	rng := rand.New(rand.NewSource(4))
	for _, c := range fusedCases {
		t.Run(c.name, func(t *testing.T) {
			b, ctx := c.region(t), kerneltest.Target(t, "sm_121")
			require.NotEmpty(t, b.Plans(Family, ctx, rng, 3))
			for text, want := range map[string]string{kernel.Unfused: kernel.ErrUnfused.Error(), "flat x3, then flat x5": "no such loops"} {
				ctx.Schedules = kerneltest.Fixed(text)
				_, err := Family.Lower(b.Node, ctx)
				require.ErrorContains(t, err, want)
			}
		})
	}
}
