package compile

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen"
	"github.com/spark-compile/spark-compile/codegen/families"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/loop"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/profile"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// TestTailsAreFewerLaunches: the models end with chains of loops, one launch each. Their outputs are those of the program whose loops are launches of
// their own, but for what other orders of the sums do, and each takes the time that its schedule was chosen by.
func TestTailsAreFewerLaunches(t *testing.T) {
	fulltest.Long(t)
	refusing := refusing(ir.FamilyLoop)
	for _, name := range []string{"policy", "dmonitoring", "vision"} {
		t.Run(name, func(t *testing.T) {
			src, err := compiled(t.Context(), small(t, name), Options{Precision: "fp16", Targets: []string{"sm_121"}})
			require.NoError(t, err)
			require.Empty(t, src.Fallbacks)
			regions := fusedOf(src.Graph, ir.FamilyLoop)
			require.NotEmpty(t, regions)
			saved := 0
			for _, n := range regions {
				saved += len(n.Parts()) - 1
			}
			e, w, unfused := entries(src.Graph)[0], codegen.NewWeights(), *src.Program
			e.Prefetch.Off = true
			out, err := codegen.Generate([]codegen.Entry{e}, target.Default(), refusing, w)
			require.NoError(t, err)
			unfused.Variants, unfused.Weights = []runtime.Variant{out.Variant}, w.Bytes()
			require.Len(t, unfused.Variants[0].Entry("run").Launches, len(src.Program.Variants[0].Entry("run").Launches)+saved)
			in := arrays(t, src.Source)
			one, two := outputs(t, src.Program, session(t, src.Program, true), in), outputs(t, &unfused, session(t, &unfused, true), in)
			for _, q := range src.Program.Outputs {
				c, err := runtime.Compare(one[q.Name], two[q.Name], 0, 0)
				require.NoError(t, err)
				require.Less(t, c.RelL2, 2e-3, q.Name)
			}

			w = codegen.NewWeights()
			out, err = codegen.Generate([]codegen.Entry{e}, target.Default(), families.New(nil), w)
			require.NoError(t, err)
			together := *src.Program
			together.Variants, together.Weights = []runtime.Variant{out.Variant}, w.Bytes()
			prof, err := profile.Run(t.Context(), &together, &together.Variants[0], "run", nil)
			require.NoError(t, err)
			m, seen := cost.Of(target.Default()), 0
			for i, n := range out.Regions[0] {
				if n == nil || !n.IsFamily(ir.FamilyFused) || !n.LastPart().IsFamily(ir.FamilyLoop) {
					continue
				}
				seen++
				spec, err := loop.Family.Lower(n, &kernel.Context{Target: target.Default()})
				require.NoError(t, err)
				l := prof.Launches[i]
				planned, counted := m.Estimate(spec.Work).US, m.Estimate(l.Cold).US
				t.Logf("%s: %s, planned %.2f µs, counted %.2f", n.Name, spec.Schedule, planned, counted)
				require.InEpsilon(t, counted, planned, 0.25)
				require.InEpsilon(t, l.Cold.Issued, spec.Work.Issued, 0.2)
			}
			require.Equal(t, len(regions), seen)
		})
	}
}
