package contraction

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/ir"
)

var update = flag.Bool("update", false, "rewrite the snapshots in testdata")

// TestSnapshots pins the text of one kernel of each precision that operands have, and of each kind of epilogue:
// products of one tile. One is shown as a whole, of the others the main loop and what follows: the way there is much
// the same.
func TestSnapshots(t *testing.T) {
	const whole, loop = ".visible", "$" + mainLoopLabel
	small := func(a, b, out ir.DType) narrowCase { return narrowCase{a: a, b: b, out: out, m: 16, k: 128, n: 16} }
	rounded := small(f16, e4m3, e4m3)
	rounded.round = true
	residual := narrowCase{a: f16, b: f16, out: f16, h: 4, w: 4, c: 16, co: 16, window: 3, stride: 1, pad: 1, group: 1, residual: f16}
	one := func(bk int) Schedule {
		return Schedule{BM: 16, BN: 16, BK: bk, WarpsM: 1, WarpsN: 1, WarpsK: 1, Stages: 2, SplitK: 1}
	}
	fma := Schedule{BM: 16, BN: 16, BK: 4, WarpsM: 1, WarpsN: 1, WarpsK: 1, ThreadM: 2, ThreadN: 4, Stages: 2, SplitK: 1}
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
		{"matmul_fp6_weights", small(f16, ir.Float6E3M2, f16), one(32)},
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
			from := loop
			if c.name == "matmul_fp16" {
				from = whole
			}
			kerneltest.Snapshot(t, c.name, write(p, pl.at(p, c.Schedule), c.Schedule, ctx.Target), ctx.Target, from, *update)
		})
	}
	for _, d := range bothTypes {
		ctx := sm121(t)
		spec, err := Family.Lower(attentionCase{h: 1, hk: 1, s: 16, t: 32, d: 16, dv: 16, dtype: d}.region(newRegion(t)), ctx)
		require.NoError(t, err)
		kerneltest.Snapshot(t, "attention_"+d.String(), spec, ctx.Target, loop, *update)
	}
}

// TestSnapshots_OfFusedRegions pins the text of a kernel for each kind of producer, and of products that only
// training has, each with its chosen schedule.
func TestSnapshots_OfFusedRegions(t *testing.T) {
	fused := func(r *kerneltest.Region) *ir.Node { return r.Node }
	grad := func(d ir.DType) attentionGradCase {
		return attentionGradCase{b: 1, h: 1, s: 16, t: 16, d: 16, dv: 16, dtype: d}
	}
	sum := adaptedCase{m: 16, k: 32, n: 16, r: 2, dtype: f16}
	factors := sum
	factors.factors = true
	slide := slideCase{h: 4, w: 4, c: 16, n: 16, k: 3, stride: 1, pad: 1, x: f16, a: f16, weights: f16}
	fp32, fp8 := slide, slide
	fp32.x, fp32.a, fp32.weights = f32, f32, f32
	fp8.a, fp8.weights = e4m3, e4m3
	product := productCase{m: 16, c: 32, k: 32, n: 16, op: "Gelu", x: f16, w: f16, a: f16, weights: f16, residual: true}
	norm := product
	norm.norm = true
	blocks := productCase{m: 16, c: 64, k: 64, n: 16, op: "Relu", x: e2m1, w: e2m1, a: e2m1, weights: e2m1, norm: true}
	expand := expandCase{h: 4, w: 4, k: 16, c: 16, n: 16, window: [2]int{3, 3}, stride: 1, pad: 1, x: f16, between: f16, residual: true}
	expand8 := expandCase{h: 4, w: 4, k: 24, c: 16, n: 16, window: [2]int{3, 3}, stride: 1, pad: 1, x: e4m3, between: f16, narrow: all8}
	for name, n := range map[string]*ir.Node{
		"rows_fp16":                  fused(rowsCase{op: "LayerNorm", m: 16, k: 64, n: 16, x: f32, a: f16, w: f16, gain: true}.region(t)),
		"rows_fp8":                   fused(rowsCase{op: "LayerNorm", m: 16, k: 64, n: 16, x: f32, a: e4m3, w: e4m3, gain: true}.region(t)),
		"rows_nvfp4":                 fused(rowsCase{op: "LayerNorm", m: 16, k: 64, n: 16, x: f32, a: e2m1, w: e2m1, gain: true}.region(t)),
		"rows_product_product_nvfp4": fused(blocks.region(t)),
		"window_fp32":                fused(fp32.region(t)),
		"window_fp16":                fused(slide.region(t)),
		"window_fp8":                 fused(fp8.region(t)),
		"inverted_residual_fp16":     fused(expand.region(t)),
		"inverted_residual_fp8":      fused(expand8.region(t)),
		"attention_product_fp16":     fused(headsCase{h: 1, s: 16, d: 16, n: 16, x: f16, a: f16, w: f16}.region(t)),
		"attention_product_nvfp4":    fused(headsCase{h: 2, s: 16, d: 32, n: 16, x: f16, a: e2m1, w: e2m1}.region(t)),
		"product_product_fp16":       fused(product.region(t)),
		"rows_product_product":       fused(norm.region(t)),
		"attention_gradient_f16":     grad(f16).region(newRegion(t)),
		"attention_gradient_bf16":    grad(bf16).region(newRegion(t)),
		"matmul_sum_fp16":            sum.region(newRegion(t)),
		"matmul_sum_factors_fp16":    factors.region(newRegion(t)),
	} {
		t.Run(name, func(t *testing.T) {
			ctx := sm121(t)
			spec, err := Family.Lower(n, ctx)
			require.NoError(t, err)
			kerneltest.Snapshot(t, name, spec, ctx.Target, ".visible", *update)
		})
	}
}
