package dora

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

// halves is MeanSquared, and reports a half of it and the whole.
func halves(x *ir.Expansion, g *ir.Graph, outputs map[string]*ir.Value) *ir.Value {
	loss := MeanSquared(x, g, outputs)
	for i, name := range []string{"half", "whole"} {
		term := x.Add("Mul", nil, loss, x.Like(loss, 0.5*float64(i+1)))
		term.Name = Term(name)
		g.Outputs = append(g.Outputs, term)
	}
	return loss
}

// TestTermsOfALossComeBackByName: after a step, a micro-batch and an evaluation, in f32 whatever the step's precision.
func TestTermsOfALossComeBackByName(t *testing.T) {
	fulltest.Long(t)
	ctx := context.Background()
	for _, in := range []string{"fp32", "fp16"} {
		m, tr := stepOf(t, StepOptions{Precision: in, MicroBatches: 2, Evaluate: true, Loss: halves})
		feed(t, m, tr.Session(), 0)
		check := func(loss float64, terms map[string]float64) {
			assert.Equal(t, map[string]float64{"half": loss / 2, "whole": loss}, terms, in)
		}
		loss, err := tr.Evaluate(ctx)
		require.NoError(t, err)
		check(loss, tr.Terms())
		loss, err = tr.Accumulate(ctx)
		require.NoError(t, err)
		check(loss, tr.Terms())
		feed(t, m, tr.Session(), 1)
		r, err := tr.Step(ctx, 1e-2)
		require.NoError(t, err)
		assert.NotEqual(t, loss, r.Loss)
		check(r.Loss, r.Terms)
		check(r.Loss, tr.Terms())
	}
	_, tr := stepOf(t, StepOptions{Precision: "fp32"})
	assert.Nil(t, tr.Terms())
}

// TestATermIsOneNumber: what a loss appends is checked.
func TestATermIsOneNumber(t *testing.T) {
	m := small(t, "policy")
	a, err := Init(m, InitOptions{Rank: 2})
	require.NoError(t, err)
	_, err = NewStep(context.Background(), m, a, StepOptions{Precision: "fp32", Loss: func(x *ir.Expansion, g *ir.Graph, outputs map[string]*ir.Value) *ir.Value {
		g.Outputs = append(g.Outputs, outputs["outputs"])
		return MeanSquared(x, g, outputs)
	}})
	assert.ErrorContains(t, err, "want one f32")
}
