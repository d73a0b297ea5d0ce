package loop

import (
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
)

// TestScheduleCache_ReturnsTheChoice: of every case and of random regions, on two targets, whichever were lowered
// before, and the second time too.
func TestScheduleCache_ReturnsTheChoice(t *testing.T) {
	fulltest.Long(t)
	list := append(cases(), fused()...)
	rng := rand.New(rand.NewSource(11))
	for range 30 {
		list = append(list, randomRegion(rng))
	}
	var memo kernel.Memo
	remembering := kernel.NewFamilies(&memo, Family)
	for _, target := range []string{"sm_121", "sm_90"} {
		for _, one := range list {
			node, ctx := one.region(t).Node, kerneltest.Target(t, target)
			want, err := Family.Lower(node, ctx)
			if err != nil {
				continue
			}
			text := want.Build(ctx.Target, "k").String()
			want.Emit = nil
			for range 2 {
				got, err := remembering.Loop(node, ctx)
				require.NoError(t, err)
				require.Equal(t, text, got.Build(ctx.Target, "k").String(), one.name)
				got.Emit = nil
				require.Equal(t, want, got, one.name)
			}
		}
	}
	require.Greater(t, memo.Len(), len(list))
}
