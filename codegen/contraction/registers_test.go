package contraction

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/internal/fulltest"
)

// TestRegistersAreEstimated: a schedule is planned with no fewer registers than ptxas takes, so that no residency is planned that there is not, and,
// where nothing is converted, with few more.
func TestRegistersAreEstimated(t *testing.T) {
	tool := kerneltest.Assembler(t)
	for _, c := range []struct {
		narrowCase
		converts bool
	}{
		{narrowCase{a: f16, b: f16, out: f16, h: 32, w: 64, c: 64, co: 256, window: 1, stride: 1, group: 1}, false},
		{narrowCase{a: f16, b: f16, out: f16, h: 32, w: 64, c: 256, co: 256, window: 1, stride: 1, group: 1, residual: f16}, false},
		{narrowCase{a: f16, b: f16, out: f16, h: 128, w: 256, c: 16, co: 64, window: 3, stride: 2, pad: 1, group: 1}, false},
		{narrowCase{a: bf16, b: bf16, out: bf16, m: 2048, k: 512, n: 512}, false},
		{narrowCase{a: f16, b: f16, out: f16, m: 2047, k: 500, n: 500}, false},
		{narrowCase{a: e4m3, b: e4m3, out: e4m3, m: 2048, k: 512, n: 512}, false},
		{narrowCase{a: e2m1, b: e2m1, out: f16, m: 2048, k: 512, n: 512}, false},
		{narrowCase{a: f16, b: e4m3, out: f16, m: 2048, k: 512, n: 512}, true},
		{narrowCase{a: f16, b: e4m3, out: f16, round: true, m: 2048, k: 512, n: 512}, true},
		{narrowCase{a: f16, b: e2m1, out: f16, m: 2048, k: 512, n: 512}, true},
		{narrowCase{a: f16, b: e3m2, out: f16, m: 2048, k: 512, n: 512}, true},
	} {
		for _, text := range []string{"32x32x64 stages=3 warps=1x1", "64x64x64 stages=3 warps=2x2", "64x64x64 stages=3 warps=1x2", "64x64x64 stages=3 warps=2x1", "64x128x64 stages=3 warps=2x2",
			"128x64x64 stages=3 warps=4x2", "128x128x64 stages=3 warps=4x2", "128x128x64 stages=2 warps=2x4", "128x128x64 stages=2 warps=2x2 parts=2", "128x128x64 stages=2 warps=4x4",
			"128x256x64 stages=2 warps=2x4 parts=2", "128x256x64 stages=2 warps=2x4 parts=4", "256x64x64 stages=2 warps=4x1 parts=2"} {
			if !fulltest.Runs(t.Name()) && (len(text)+c.m+c.window)%3 != 0 { // a third
				continue
			}
			t.Run(fmt.Sprint(c.types(), " ", c.m, "x", c.window, " ", text), func(t *testing.T) {
				ctx := sm121(t)
				ctx.Choices = kerneltest.Fixed(text)
				region := c.region(newRegion(t))
				spec, err := Family.Lower(region, ctx)
				if err != nil {
					t.Skip(err)
				}
				p, err := normaliseFor(region, ctx.Target)
				require.NoError(t, err)
				s, err := parseSchedule(text)
				require.NoError(t, err)
				out, err := tool.Assemble(context.Background(), spec.Build(ctx.Target, "k").String(), ctx.Target.Name)
				require.NoError(t, err)
				t.Logf("%s %d %s: %d planned, %d taken", c.types(), c.m, text, s.registers(p), out.Usage[0].Regs)
				require.Zero(t, out.Usage[0].Spills)
				assert.GreaterOrEqual(t, s.registers(p), out.Usage[0].Regs)
				if !c.converts {
					assert.LessOrEqual(t, float64(s.registers(p)), 1.2*float64(out.Usage[0].Regs))
				}
			})
		}
	}
}
