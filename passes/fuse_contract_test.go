package passes

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

// requireContract holds a final graph against what docs/design/regions.md says beyond what the verifier checks of
// each region: everything is a region, whose inputs are distinct, and what a Concat places a kernel can write.
func requireContract(t testing.TB, g *ir.Graph) {
	t.Helper()
	for _, n := range g.Nodes {
		require.Equal(t, "Region", n.Op.Name, "node %q", n.Name)
		require.Len(t, n.Inputs, len(slices.Compact(slices.SortedFunc(slices.Values(n.Inputs), func(a, b *ir.Value) int { return strings.Compare(a.Name, b.Name) }))), "region %q reads a value twice", n.Name)
		if n.IsFamily(ir.FamilyView) && len(n.Inputs) > 1 {
			for _, v := range n.Inputs {
				base := spanOf(v).base
				require.False(t, base.Def == nil || base.Def.IsFamily(ir.FamilyView) || base.Type.Numel() != v.Type.Numel(), "a Concat in place of %%%s, which no kernel can write", v.Name)
			}
		}
	}
	require.NoError(t, g.Verify())
	for _, v := range g.Outputs {
		require.NotNil(t, v.Def, "output %%%s has no kernel", v.Name)
	}
}

// launches counts the regions that need a kernel.
func launches(g *ir.Graph) int {
	k := 0
	for _, n := range g.Nodes {
		if !n.IsFamily(ir.FamilyView) {
			k++
		}
	}
	return k
}

func TestLaunchBudgets(t *testing.T) {
	fulltest.Long(t)
	for _, c := range []struct {
		model string
		want  int
	}{{"dmonitoring_model", 40}, {"driving_policy", 26}, {"driving_vision", 73}} {
		for _, precision := range []string{precision.FP32, precision.FP16} {
			t.Run(c.model+" "+precision, func(t *testing.T) {
				g := importShared(t, c.model)
				require.NoError(t, Run(&Context{Precision: precision}, g, nil, nil))
				requireContract(t, g)
				require.Equal(t, c.want, launches(g), "%s", g)
			})
		}
	}
}

// fusedTolerance is the relative L2 distance to a recorded float64 run that the final graph may have when it is
// evaluated as it is stored: f16 between regions.
var fusedTolerance = map[string]float64{"dmonitoring_model": 2.5e-3, "driving_policy": 1e-3, "driving_vision": 6e-3}

func TestRealModelsSurviveFusion(t *testing.T) {
	fulltest.Long(t)
	for _, name := range []string{"dmonitoring_model", "driving_policy", "driving_vision"} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name == "driving_vision" {
				t.Skip("evaluates 1.9 GMAC")
			}
			g := importShared(t, name)
			require.NoError(t, Run(&Context{Precision: precision.FP16}, g, nil, nil))
			inputs, want := golden(t, g, name, 0)
			got, err := ir.EvaluateList(t.Context(), g, inputs, ir.EvalOptions{Round: true})
			require.NoError(t, err)
			distance := relativeL2(got[0].Floats(), want)
			t.Log("relative L2", distance)
			require.LessOrEqual(t, distance, fusedTolerance[name])
		})
	}
}
