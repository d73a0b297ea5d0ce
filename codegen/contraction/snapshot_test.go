package contraction

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/ir"
)

var update = flag.Bool("update", false, "rewrite the snapshots in testdata")

// TestSnapshots pins the text of one kernel of each precision that operands have, and of each kind of epilogue: products of
// one tile, whose main loop and ends are all that there is to read.
func TestSnapshots(t *testing.T) {
	small := func(a, b, out ir.DType) narrowCase { return narrowCase{a: a, b: b, out: out, m: 32, k: 128, n: 32} }
	rounded := small(f16, e4m3, e4m3)
	rounded.round = true
	residual := narrowCase{a: f16, b: f16, out: f16, h: 4, w: 4, c: 16, co: 32, window: 3, stride: 1, pad: 1, group: 1, residual: f16}
	one := func(bk int) Schedule {
		return Schedule{BM: 32, BN: 32, BK: bk, WarpsM: 1, WarpsN: 1, WarpsK: 1, Stages: 3, SplitK: 1}
	}
	fma := Schedule{BM: 32, BN: 32, BK: 16, WarpsM: 2, WarpsN: 1, WarpsK: 1, ThreadM: 4, ThreadN: 4, Stages: 3, SplitK: 1}
	split := one(16)
	split.SplitK = 2
	for _, c := range []struct {
		name string
		narrowCase
		Schedule
	}{
		{"matmul_fp32", small(f32, f32, f32), fma},
		{"matmul_fp16", small(f16, f16, f16), one(16)},
		{"matmul_fp16_splitk", small(f16, f16, f16), split},
		{"matmul_bf16", small(bf16, bf16, bf16), one(16)},
		{"matmul_fp8", small(e4m3, e4m3, e4m3), one(32)},
		{"matmul_fp8_rounded", rounded, one(32)},
		{"matmul_fp8_weights", small(f16, e4m3, f16), one(32)},
		{"matmul_nvfp4", small(e2m1, e2m1, f16), one(64)},
		{"matmul_nvfp4_weights", small(f16, e2m1, f16), one(64)},
		{"matmul_to_nvfp4", small(f16, f16, e2m1), one(16)},
		{"conv_residual", residual, one(16)},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := sm121(t)
			p, err := normalise(c.region(newRegion(t)))
			require.NoError(t, err)
			pl, err := newPlan(p, ctx)
			require.NoError(t, err)
			require.NoError(t, c.valid(p, ctx.Target))
			kerneltest.Snapshot(t, c.name, write(p, pl.at(p, c.Schedule), c.Schedule, ctx.Target), ctx.Target, *update)
		})
	}
	for _, d := range bothTypes {
		ctx := sm121(t)
		spec, err := Lower(attentionCase{h: 1, hk: 1, s: 16, t: 32, d: 16, dv: 16, dtype: d}.region(newRegion(t)), ctx)
		require.NoError(t, err)
		kerneltest.Snapshot(t, "attention_"+d.String(), spec, ctx.Target, *update)
	}
}
