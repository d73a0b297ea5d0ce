package passes

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

// withGradients makes regions of a random network and of the gradient of its outputs' squares by its inputs.
func withGradients(t *testing.T, seed uint64, in string) *ir.Graph {
	t.Helper()
	g := randomOps(t, seed)
	var variables []string
	for _, v := range g.Inputs {
		variables = append(variables, v.Name)
	}
	require.NoError(t, g.Build("loss", func(x *ir.Expansion) {
		var loss *ir.Value
		for _, v := range g.Outputs {
			axes := []int{}
			for i := range v.Type.Shape {
				axes = append(axes, i)
			}
			sum := x.Add("ReduceSum", ir.Attrs{"axes": axes}, x.Add("Mul", nil, v, v))
			if loss == nil {
				loss = sum
			} else {
				loss = x.Add("Add", nil, loss, sum)
			}
		}
		loss.Name = "loss"
		g.Outputs = []*ir.Value{loss}
	}))
	require.NoError(t, Run(&Context{Precision: in, DifferentiateOptions: DifferentiateOptions{Losses: []string{"loss"}, Variables: variables}}, g, nil, nil))
	return g
}

// TestRandomGradientsFitTheirBudget: from all that the values take down to the least, outputs are the same to the bit.
func TestRandomGradientsFitTheirBudget(t *testing.T) {
	fulltest.Long(t)
	graphs, smaller := uint64(60), 0
	if testing.Short() {
		graphs = 15
	}
	for seed := range graphs {
		for _, in := range []string{precision.FP32, precision.FP16} {
			g := withGradients(t, seed, in)
			most := peakMemory(g)
			inputs := randomInputs(g, seed)
			want := evaluateWith(t, g, inputs, ir.EvalOptions{Round: true})
			fits := func(budget int) *OverBudgetError {
				h, again, twice := g.Clone(), g.Clone(), &Context{RematerialiseOptions: RematerialiseOptions{Memory: budget}}
				ctx := &Context{RematerialiseOptions: RematerialiseOptions{Memory: budget}}
				err := Run(ctx, h, []string{"rematerialise"}, nil)
				if over := (*OverBudgetError)(nil); errors.As(err, &over) {
					require.Empty(t, g.Diff(h), "a graph that does not fit is left alone")
					return over
				}
				require.NoError(t, err)
				require.LessOrEqual(t, peakMemory(h), budget, "seed %d %s", seed, in)
				require.Equal(t, budget < most, len(ctx.Recomputed) > 0)
				require.Equal(t, want, evaluateWith(t, h, inputs, ir.EvalOptions{Round: true}), "seed %d %s at %d of %d", seed, in, budget, most)
				require.NoError(t, Run(twice, again, []string{"rematerialise"}, nil))
				require.Empty(t, h.Diff(again), "seed %d %s: a second run", seed, in)
				require.Equal(t, ctx.Recomputed, twice.Recomputed)
				return nil
			}
			var over *OverBudgetError
			for part := 10; part > 0 && over == nil; part-- {
				over = fits(most * part / 10)
			}
			require.NotNil(t, over)
			if over.Least < most {
				smaller++
			}
			assert.Nil(t, fits(over.Least), "seed %d %s", seed, in)
		}
	}
	assert.Greater(t, smaller, int(graphs), fmt.Sprint("graphs that fit less memory: ", smaller))
}
