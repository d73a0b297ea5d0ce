package compile

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/families"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

// TestRememberedSchedulesAreThoseThatAreChosen: of every region of models, whose constants differ where their shapes do not, whichever were
// lowered before.
func TestRememberedSchedulesAreThoseThatAreChosen(t *testing.T) {
	fulltest.Long(t)
	c, count := new(kernel.Memo), 0
	for _, of := range []struct{ model, precision string }{{"vision", "fp16"}, {"policy", "fp16"}, {"policy", "fp8"}, {"policy", "nvfp4"}} {
		r, _ := generated(t, of.model, of.precision, "sm_121")
		for _, name := range []string{"sm_121", "sm_90"} {
			tg, err := target.Lookup(name)
			require.NoError(t, err)
			ctx := &kernel.Context{Target: tg, Unpacked: true}
			var regions []*ir.Node
			for _, n := range r.Graph.Nodes {
				regions = append(regions, n.Parts()...)
				if n.IsFamily(ir.FamilyFused) {
					regions = append(regions, n)
				}
			}
			for _, n := range regions {
				if n.Region == nil || n.IsFamily(ir.FamilyView) {
					continue
				}
				want, err := families.New(nil).Lower(n, ctx)
				if err != nil || want.Work == nil {
					continue
				}
				for range 2 {
					got, err := families.New(c).Lower(n, ctx)
					require.NoError(t, err)
					require.Equal(t, want.Schedule, got.Schedule, n.Name)
					require.Equal(t, want.Work, got.Work, n.Name)
					require.Equal(t, want.Reason, got.Reason, n.Name)
					got.Work.L2Read, got.Work.Products = 0, append(got.Work.Products[:0], got.Work.Products...)
					for i := range got.Work.Products { // launches may change what they were given
						got.Work.Products[i].MACs = 0
					}
					count++
				}
			}
		}
	}
	require.Greater(t, count, 200)
}
