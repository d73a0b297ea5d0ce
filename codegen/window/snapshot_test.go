package window

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/ir"
)

var update = flag.Bool("update", false, "rewrite the snapshots in testdata")

// TestSnapshots pins the text of a kernel of each type that windows read and store, and of each kind of window.
func TestSnapshots(t *testing.T) {
	conv := func(d ir.DType) shape {
		return shape{op: "Conv", d: d, n: 1, h: 4, w: 4, c: 16, multiplier: 1, k: 2, stride: 1, dil: 1}
	}
	gelu, blocks := conv(ir.Float16), conv(ir.Float16)
	gelu.residual, gelu.gelu, blocks.blocks = true, true, true
	for _, c := range []struct {
		name string
		shape
	}{
		{"dwconv_fp32", conv(ir.Float32)}, {"dwconv_fp16", conv(ir.Float16)}, {"dwconv_bf16", conv(ir.BFloat16)}, {"dwconv_fp8", conv(ir.Float8E4M3FN)},
		{"dwconv_to_nvfp4", blocks}, {"dwconv_residual_gelu", gelu},
		{"maxpool_fp16", shape{op: "MaxPool", d: ir.Float16, n: 1, h: 4, w: 4, c: 16, k: 2, stride: 2, dil: 1}},
		{"averagepool_fp16", shape{op: "AveragePool", d: ir.Float16, n: 1, h: 4, w: 4, c: 16, k: 2, stride: 2, dil: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := kerneltest.Target(t, "sm_121")
			spec, err := Family.Lower(c.region(t).Node, ctx)
			require.NoError(t, err)
			kerneltest.Snapshot(t, c.name, spec, ctx.Target, ".visible", *update)
		})
	}
}

// TestSnapshots_OfFusedRegions pins the text of a kernel of two windows, whose first is a result too, or is not.
func TestSnapshots_OfFusedWindows(t *testing.T) {
	two := mixer.on(ir.Float16, 1, 8, 8, 16, 0).then(large)
	for name, c := range map[string]pair{"chain_windows": two, "chain_windows_unseen": two.unseen()} {
		t.Run(name, func(t *testing.T) {
			ctx := kerneltest.Target(t, "sm_121")
			spec, err := Family.Lower(c.build(t).fused, ctx)
			require.NoError(t, err)
			kerneltest.Snapshot(t, name, spec, ctx.Target, ".visible", *update)
		})
	}
}
