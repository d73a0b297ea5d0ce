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

const (
	f16  = ir.Float16
	f32  = ir.Float32
	bf16 = ir.BFloat16
	e4m3 = ir.Float8E4M3FN
	e2m1 = ir.Float4E2M1
	e3m2 = ir.Float6E3M2
)

var bothTypes = []ir.DType{f16, f32}

func newRegion(t *testing.T) *kerneltest.Region { return kerneltest.New(t, ir.FamilyContraction) }

func sm121(t *testing.T) *kernel.Context { return kerneltest.Target(t, "sm_121") }

// assemble lowers the region for a target, another one for each i, and assembles it; with SPARK_FULL for every
// target. The instructions of an epilogue are the same on all of them; kernels of whole models are assembled for each
// (internal/compile).
func assemble(t *testing.T, region *ir.Node, i int) {
	t.Helper()
	names := target.Names()
	if !fulltest.Runs(t.Name()) {
		names = names[i%len(names):][:1]
	}
	for _, name := range names {
		ctx := kerneltest.Target(t, name)
		spec, err := Family.Lower(region, ctx)
		require.NoError(t, err)
		kerneltest.Assemble(t, spec, ctx.Target)
	}
}
