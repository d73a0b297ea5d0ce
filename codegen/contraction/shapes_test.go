package contraction

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

// TestKernelsDeserveAGPU holds the contractions of openpilot's models, at their full size, to what a main loop must
// show: at least 2 mma a shared-memory load, 90 % of global bytes in 16-byte accesses, 2 stages on their way, 48
// blocks or a stated reason; ptxas takes them and spills nothing, with SPARK_FULL on every target, without it on the
// default one (the kernels of whole models are assembled for every target in any case, internal/compile).
func TestKernelsDeserveAGPU(t *testing.T) {
	type regioner interface {
		region(b *kerneltest.Region) *ir.Node
	}
	f16, f32 := f16, f32
	for _, c := range []regioner{
		convCase{128, 256, 16, 64, 3, 2, 1, 1, f16},
		convCase{32, 64, 64, 64, 1, 1, 0, 1, f16},
		convCase{32, 64, 64, 256, 1, 1, 0, 1, f16},
		convCase{32, 64, 256, 64, 1, 1, 0, 1, f16},
		convCase{16, 32, 128, 512, 1, 1, 0, 1, f16},
		convCase{16, 32, 512, 128, 1, 1, 0, 1, f16},
		convCase{8, 16, 256, 1024, 1, 1, 0, 1, f16},
		convCase{8, 16, 1024, 256, 1, 1, 0, 1, f16},
		convCase{4, 8, 512, 2048, 1, 1, 0, 1, f16},
		convCase{4, 8, 2048, 512, 1, 1, 0, 1, f16},
		gemmCase{m: 25, k: 528, n: 384, dtype: f16},
		gemmCase{m: 25, k: 384, n: 1152, dtype: f16},
		gemmCase{m: 25, k: 384, n: 384, dtype: f16},
		gemmCase{m: 25, k: 384, n: 1536, dtype: f16},
		gemmCase{m: 25, k: 1536, n: 384, dtype: f16},
		gemmCase{m: 32, k: 512, n: 1536, dtype: f16, members: 2},
		gemmCase{m: 25, k: 1536, n: 384, dtype: f32},
		convCase{320, 160, 8, 32, 3, 2, 1, 1, f32},
		convCase{160, 80, 32, 16, 1, 1, 0, 1, f32},
		convCase{160, 80, 16, 96, 1, 1, 0, 1, f32},
		convCase{80, 40, 144, 24, 1, 1, 0, 1, f32},
		convCase{40, 20, 240, 40, 1, 1, 0, 1, f32},
		convCase{20, 10, 112, 672, 1, 1, 0, 1, f32},
		convCase{20, 10, 672, 112, 1, 1, 0, 1, f32},
		convCase{20, 10, 672, 112, 1, 1, 0, 1, f16},
	} {
		b := newRegion(t)
		region := c.region(b)
		for _, name := range target.Names() {
			tgt, err := target.Lookup(name)
			require.NoError(t, err)
			spec, err := Family.Lower(region, &kernel.Context{Target: tgt})
			require.NoError(t, err)
			if tgt == target.Default() || fulltest.Runs(t.Name()) {
				kerneltest.Assemble(t, spec, tgt)
			}
			l := kerneltest.Inspect(spec)
			t.Logf("%-8s %-36s %-48s %5d blocks, %.1f per shared load, %.0f %% wide %s", name, spec.Note, spec.Schedule, l.Blocks, l.PerSharedLoad(), 100*l.Wide(), spec.Reason)
			require.GreaterOrEqual(t, l.PerSharedLoad(), 2.0, spec.Note)
			require.GreaterOrEqual(t, l.Wide(), 0.9, spec.Note)
			require.GreaterOrEqual(t, l.Stages-1, 2, spec.Note)
			require.True(t, l.Blocks >= tgt.SMs || spec.Reason != "", spec.Note)
		}
	}
}
