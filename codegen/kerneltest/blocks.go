package kerneltest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/ir"
)

// rare is the share of codes, and of scales, that may differ from the evaluator's: an f32 sum is some 10^-6 off, which
// pushes about that share of values over the middle between two codes.
const rare = 1.0 / 2000

// RequireBlocks compares what the kernel of a region that ends with BlockQuantize wrote with the evaluator's outputs: codes
// and scales are equal, but for a few that are neighbours.
func RequireBlocks(t testing.TB, region *ir.Node, got map[*ir.Value]*ir.Tensor, want []*ir.Array) {
	t.Helper()
	for k, v := range region.Outputs {
		g, w := got[v].Array().Floats(), want[k].Floats()
		require.Len(t, g, len(w))
		differ := 0
		for i := range w {
			switch distance := rank(v.Type.DType, g[i]) - rank(v.Type.DType, w[i]); distance {
			case 0:
			case 1, -1:
				differ++
			default:
				require.Fail(t, "another code", "output %d (%v) element %d is %g, want %g", k, v.Type, i, g[i], w[i])
			}
		}
		require.LessOrEqual(t, differ, 1+int(rare*float64(len(w))), "output %d (%v): neighbours of %d codes", k, v.Type, len(w))
	}
}

// rank numbers the values of a narrow float in their order, those below 0 downwards.
func rank(d ir.DType, x float64) int {
	code := int(ir.EncodeFloat(d, x))
	sign := 1 << (d.Bits() - 1)
	if code&sign != 0 {
		return -(code &^ sign)
	}
	return code
}
