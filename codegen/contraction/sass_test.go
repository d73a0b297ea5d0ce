package contraction

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/internal/toolchain"
	"github.com/spark-compile/spark-compile/ir"
)

// TestMachineCode: on sm_121 the products of e4m3 are QMMA, those of 16-bit floats HMMA, and nothing else multiplies
// matrices.
func TestMachineCode(t *testing.T) {
	fulltest.Long(t)
	tool, err := toolchain.FindPtxas(context.Background())
	if errors.Is(err, toolchain.ErrNoPtxas) {
		t.Skip(err)
	}
	require.NoError(t, err)
	for _, c := range []struct {
		narrowCase
		want string
	}{
		{narrowCase{a: e4m3, b: e4m3, out: e4m3, m: 512, k: 512, n: 256}, "QMMA.16832.F32.E4M3.E4M3"},
		{narrowCase{a: e4m3, b: e4m3, out: e4m3, h: 32, w: 64, c: 64, co: 64, window: 3, stride: 1, pad: 1, group: 1, residual: e4m3}, "QMMA.16832.F32.E4M3.E4M3"},
		{narrowCase{a: f16, b: e4m3, out: f16, round: true, m: 512, k: 512, n: 256}, "QMMA.16832.F32.E4M3.E4M3"},
		{narrowCase{a: e4m3, b: f16, out: f16, split: true, h: 80, w: 40, c: 144, co: 24, window: 1, stride: 1, group: 1}, "QMMA.16832.F32.E4M3.E4M3"},
		{narrowCase{a: f16, b: f16, out: f16, round: true, terms: 2, split: true, m: 512, k: 512, n: 256}, "QMMA.16832.F32.E4M3.E4M3"},
		{narrowCase{a: f16, b: e4m3, out: f16, m: 25, k: 512, n: 256}, "HMMA.16816.F32"},
		{narrowCase{a: f16, b: e2m1, out: f16, m: 25, k: 512, n: 256}, "HMMA.16816.F32"},
		{narrowCase{a: e2m1, b: e2m1, out: f16, m: 512, k: 512, n: 256}, "OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X"},
		{narrowCase{a: e2m1, b: e2m1, out: e4m3, h: 32, w: 64, c: 64, co: 64, window: 3, stride: 1, pad: 1, group: 1}, "OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X"},
		{narrowCase{a: e2m1, b: e2m1, out: e2m1, h: 32, w: 64, c: 64, co: 64, window: 3, stride: 1, pad: 1, group: 1}, "OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X"},
		{narrowCase{a: f16, b: e4m3, out: e2m1, round: true, m: 512, k: 512, n: 256}, "QMMA.16832.F32.E4M3.E4M3"},
		{narrowCase{a: bf16, b: bf16, out: bf16, m: 25, k: 512, n: 256}, "HMMA.16816.F32.BF16"},
	} {
		t.Run(c.types(), func(t *testing.T) {
			ctx := sm121(t)
			spec, err := Family.Lower(c.region(newRegion(t)), ctx)
			require.NoError(t, err)
			out, err := tool.Assemble(context.Background(), spec.Build(ctx.Target, "k").String(), ctx.Target.Name)
			require.NoError(t, err)
			require.Zero(t, out.Usage[0].Spills)
			sass, err := tool.Disassemble(context.Background(), out.Cubin)
			if errors.Is(err, toolchain.ErrNoPtxas) {
				t.Skip(err)
			}
			require.NoError(t, err)
			multiplies := regexp.MustCompile(`\b[A-Z]*MMA\.[A-Z0-9.]+`).FindAllString(sass, -1)
			require.NotEmpty(t, multiplies)
			for _, m := range multiplies {
				require.Equal(t, c.want, m)
			}
			require.Equal(t, c.out == e2m1, strings.Contains(sass, "F2FP.SATFINITE.E2M1"), "conversions to e2m1")
			l := kerneltest.Inspect(spec)
			t.Logf("%s: %d %s, %d instructions of the loop's body convert, %.1f mma a shared load, %d blocks", spec.Schedule, len(multiplies), c.want, strings.Count(sass, "F2FP"), l.PerSharedLoad(), l.Blocks)
		})
	}
}

// TestNarrowKernelsDeserveAGPU is TestKernelsDeserveAGPU for the types that --precision fp8 and nvfp4 use. A third of
// the kernels is assembled, so that each combination of types and each shape is; SPARK_FULL assembles all. Lost is a
// spill that only one shape of one combination has, which makes a kernel slow and not wrong.
func TestNarrowKernelsDeserveAGPU(t *testing.T) {
	fulltest.Long(t)
	for i, types := range []narrowCase{
		{a: e4m3, b: e4m3, out: e4m3}, {a: f16, b: e4m3, out: e4m3, round: true}, {a: e4m3, b: f16, out: e4m3, split: true}, {a: f16, b: f16, out: f16, round: true, terms: 2, split: true}, {a: f16, b: e4m3, out: f16}, {a: f16, b: ir.Float6E3M2, out: f16}, {a: f16, b: e2m1, out: f16}, {a: e4m3, b: e2m1, out: e4m3}, {a: e2m1, b: e2m1, out: f16}, {a: e2m1, b: e2m1, out: e2m1},
	} {
		for j, c := range []narrowCase{
			{h: 128, w: 256, c: 16, co: 64, window: 3, stride: 2, pad: 1, group: 1},
			{h: 32, w: 64, c: 64, co: 256, window: 1, stride: 1, group: 1},
			{h: 32, w: 64, c: 256, co: 64, window: 1, stride: 1, group: 1, residual: f16},
			{h: 16, w: 32, c: 512, co: 128, window: 1, stride: 1, group: 1},
			{h: 8, w: 16, c: 1024, co: 256, window: 1, stride: 1, group: 1},
			{h: 4, w: 8, c: 2048, co: 512, window: 1, stride: 1, group: 1},
			{m: 25, k: 384, n: 1152}, {m: 25, k: 1536, n: 384}, {m: 32, k: 512, n: 1536, members: 2},
			{h: 20, w: 10, c: 112, co: 672, window: 1, stride: 1, group: 1},
			{h: 20, w: 10, c: 672, co: 112, window: 1, stride: 1, group: 1},
		} {
			c.a, c.b, c.out, c.round, c.terms, c.split = types.a, types.b, types.out, types.round, types.terms, types.split
			if c.a == e2m1 && (c.c+c.k)%64 != 0 { // their scales are read singly
				continue
			}
			if c.residual != ir.Invalid && c.out != e2m1 {
				c.residual = types.out
			}
			ctx := sm121(t)
			spec, err := Family.Lower(c.region(newRegion(t)), ctx)
			require.NoError(t, err)
			if (i+j)%3 == 0 || fulltest.Runs(t.Name()) {
				kerneltest.Assemble(t, spec, ctx.Target)
			}
			l := kerneltest.Inspect(spec)
			t.Logf("%-24s %-36s %-44s %5d blocks, %.1f per shared load, %.0f %% wide %s", c.types(), spec.Note, spec.Schedule, l.Blocks, l.PerSharedLoad(), 100*l.Wide(), spec.Reason)
			least := 2.0
			if c.b == ir.Float6E3M2 {
				least = 1.6 // three words of weights for two mma, so that no two lanes of a load meet in a bank
			}
			if c.round {
				least = 1.3 // two ldmatrix of f16 feed an mma of twice the depth
			}
			if c.a == e2m1 {
				least = 1 // an mma of four times the depth; half of the loads are words of scales
			}
			require.GreaterOrEqual(t, l.PerSharedLoad(), least, spec.Note)
			require.GreaterOrEqual(t, l.Wide(), 0.9, spec.Note)
			require.GreaterOrEqual(t, l.Stages-1, 2, spec.Note)
			require.True(t, l.Blocks >= ctx.Target.SMs || spec.Reason != "", spec.Note)
		}
	}
}
