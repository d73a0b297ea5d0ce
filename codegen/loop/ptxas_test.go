package loop

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/internal/toolchain"
)

// TestPtxasTakesTheKernels assembles a kernel for every op, as one module a target: nothing spills.
func TestPtxasTakesTheKernels(t *testing.T) {
	fulltest.Long(t)
	tool, err := toolchain.FindPtxas(context.Background())
	if err != nil {
		t.Skipf("no ptxas: %v", err)
	}
	var chosen []*testCase
	chosen = append(chosen, fused()...)
	last := map[string]int{}
	for _, c := range cases() {
		op, _, _ := cut(c.name)
		if last[op]%7 == 0 {
			chosen = append(chosen, c)
		}
		last[op]++
	}
	for _, name := range target.Names() {
		t.Run(name, func(t *testing.T) {
			ctx := kerneltest.Target(t, name)
			tg := ctx.Target
			m := ptx.NewModule(tg.Name)
			kernels := 0
			for i, c := range chosen {
				if tg != target.Default() && i%3 > 0 && !fulltest.Runs(t.Name()) {
					continue // other targets differ in conversions, which every few cases have
				}
				if op, _, _ := cut(c.name); op == "BlockQuantize" && !tg.Multiplies("e2m1") {
					continue
				}
				kernels++
				spec, err := Family.Lower(c.region(t).Node, ctx)
				require.NoError(t, err)
				spec.EmitInto(m, fmt.Sprintf("k%d", i))
			}
			res, err := tool.Assemble(context.Background(), m.String(), tg.Name)
			require.NoError(t, err)
			require.Len(t, res.Usage, kernels)
			for _, u := range res.Usage {
				require.Zero(t, u.Spills, "%s", u.Kernel)
			}
		})
	}
}
