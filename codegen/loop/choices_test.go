package loop

import (
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/ir"
)

// TestWhatIsRememberedIsWhatIsChosen: of every case and of random regions, on two targets, whichever were lowered before, and the second
// time too. Constants are asked for in the same order, which numbers a program's buffers.
func TestWhatIsRememberedIsWhatIsChosen(t *testing.T) {
	list := append(cases(), fused()...)
	rng := rand.New(rand.NewSource(11))
	for range 30 {
		list = append(list, randomRegion(rng))
	}
	var c Choices
	most := 0
	for _, target := range []string{"sm_121", "sm_90"} {
		for _, one := range list {
			node, ctx := one.region(t).Node, kerneltest.Target(t, target)
			var asked []*ir.Value
			ctx.Align = func(v *ir.Value) int {
				if v.IsConst() && !slices.Contains(asked, v) {
					asked = append(asked, v)
				}
				return 256
			}
			want, err := Lower(node, ctx)
			if err != nil {
				continue
			}
			order := asked
			most = max(most, len(order))
			text := want.Build(ctx.Target, "k").String()
			want.Emit = nil
			for range 2 {
				asked = nil
				got, err := c.Lower(node, ctx)
				require.NoError(t, err)
				require.Equal(t, order, asked, one.name)
				require.Equal(t, text, got.Build(ctx.Target, "k").String(), one.name)
				got.Emit = nil
				require.Equal(t, want, got, one.name)
			}
		}
	}
	require.Greater(t, len(c.known), len(list))
	require.Greater(t, most, 1)
}
