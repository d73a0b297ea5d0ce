package dora

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/internal/trace"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// TestATraceFollowsAStep: every launch of what prepares an adapter and of a step's forward and backward, in each precision, is
// within what rounding explains. Layers read slices of one vector of trained numbers there.
func TestATraceFollowsAStep(t *testing.T) {
	fulltest.Long(t)
	m := small(t, "policy")
	for _, in := range []string{"fp32", "fp16", "bf16"} {
		s := newGradients(t, m, trained(t, m, InitOptions{Rank: 2}), StepOptions{Precision: in})
		s.follow(func(g *ir.Graph, given map[string]*ir.Array) map[string]*ir.Array {
			ctx := context.Background()
			r, err := compile.Graph(ctx, "policy", g, compile.Options{Precision: in, Targets: []string{"sm_121"}, Trace: true})
			require.NoError(t, err)
			inputs := map[string]*ir.Array{}
			for _, v := range g.Inputs {
				inputs[v.Name] = given[v.Name].Tensor().Array() // rounded as the device has it
			}
			tr, err := trace.New(ctx, r.Program, &r.Program.Variants[0], r, inputs, nil, false, nil)
			require.NoError(t, err)
			d, err := emu.Open(emu.Options{})
			require.NoError(t, err)
			defer d.Close()
			session, err := runtime.Open(ctx, tr.Program, d, runtime.ModelOptions{})
			require.NoError(t, err)
			defer session.Close()
			for name, a := range inputs {
				require.NoError(t, session.Set(name, a.Tensor().Dense()))
			}
			require.NoError(t, session.Run(ctx))
			found, err := tr.Compare(ctx, session)
			require.NoError(t, err, "%s of %s", in, g.Name)
			for _, row := range found.Rows {
				require.False(t, row.Bad, "%s: %+v", in, row)
			}
			launches := map[int]bool{}
			for _, row := range found.Rows {
				launches[row.Launch] = true
			}
			require.Len(t, launches, len(r.Program.Variants[0].Entries[0].Launches))
			out, err := ir.Evaluate(ctx, g, inputs, ir.EvalOptions{})
			require.NoError(t, err)
			return out
		})
	}
}
