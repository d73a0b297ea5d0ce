package contraction

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

func TestExplore(t *testing.T) {
	tgt, _ := target.Lookup("sm_121")
	for _, d := range []ir.DType{ir.Float32} {
		for _, k := range []int{1, 3} {
			c := convCase{h: 16, w: 32, c: 16, out: 64, k: k, stride: 1, pad: k / 2, group: 1, dtype: d}
			b := newBody(t)
			r := c.region(b)
			ctx := &kernel.Context{Target: tgt}
			p, err := normalise(r, ctx)
			require.NoError(t, err)
			for _, s := range []Schedule{
				{BM: 64, BN: 64, BK: 16, WarpsM: 2, WarpsN: 2, WarpsK: 1, ThreadM: 8, ThreadN: 4, Stages: 3, SplitK: 1},
				{BM: 64, BN: 64, BK: 16, WarpsM: 2, WarpsN: 4, WarpsK: 1, ThreadM: 4, ThreadN: 4, Stages: 3, SplitK: 1},
				{BM: 64, BN: 64, BK: 16, WarpsM: 2, WarpsN: 1, WarpsK: 1, ThreadM: 8, ThreadN: 8, Stages: 3, SplitK: 1},
				{BM: 64, BN: 128, BK: 16, WarpsM: 2, WarpsN: 2, WarpsK: 1, ThreadM: 8, ThreadN: 8, Stages: 3, SplitK: 1},
				{BM: 32, BN: 32, BK: 32, WarpsM: 2, WarpsN: 1, WarpsK: 1, ThreadM: 4, ThreadN: 4, Stages: 3, SplitK: 1},
				{BM: 32, BN: 64, BK: 32, WarpsM: 2, WarpsN: 1, WarpsK: 2, ThreadM: 4, ThreadN: 8, Stages: 3, SplitK: 1},
			} {
				spec, err := lower(p, s, ctx)
				require.NoError(t, err)
				t.Log(k)
				assemble(t, spec, tgt)
			}
		}
	}
}
