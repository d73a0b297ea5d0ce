package kerneltest

import (
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/ir"
)

// compareBlocks compares what the kernel of a region that ends with BlockQuantize wrote with the evaluator's outputs:
// codes and scales are equal, but for a share that are neighbours, Limits of e2m1.
func (r *Region) compareBlocks(got map[*ir.Value]*ir.Tensor, want []*ir.Array) {
	r.t.Helper()
	differ, all := 0, 0
	for k, v := range r.Node.Outputs {
		g, w := got[v].Array().Floats(), want[k].Floats()
		require.Len(r.t, g, len(w))
		all += len(w)
		for i := range w {
			switch distance := rank(v.Type.DType, g[i]) - rank(v.Type.DType, w[i]); distance {
			case 0:
			case 1, -1:
				differ++
			default:
				require.Fail(r.t, "another code", "output %d (%v) element %d is %g, want %g", k, v.Type, i, g[i], w[i])
			}
		}
	}
	require.LessOrEqual(r.t, differ, int(r.Limits[ir.Float4E2M1]*float64(all)), "neighbours of %d codes and scales", all)
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
