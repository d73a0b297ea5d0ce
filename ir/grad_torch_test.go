package ir

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// recordedGradients is what testdata/gradients.py wrote.
type recordedGradients struct {
	Torch string `json:"torch"`
	Cases []struct {
		Graph  string      `json:"graph"`
		Inputs [][]float64 `json:"inputs"` // of each input
		Dys    [][]float64 `json:"dys"`    // of each output
		Grads  [][]float64 `json:"grads"`  // of each input of floats
	} `json:"cases"`
}

// TestGradientsAreThoseOfPyTorch holds the evaluator's gradients to those that PyTorch computed in float64.
func TestGradientsAreThoseOfPyTorch(t *testing.T) {
	text, err := os.ReadFile("testdata/gradients.json")
	require.NoError(t, err)
	var r recordedGradients
	require.NoError(t, json.Unmarshal(text, &r))
	require.Greater(t, len(r.Cases), 100)
	worst := 0.0
	for i, c := range r.Cases {
		g, err := Parse(c.Graph)
		require.NoError(t, err, "%s", c.Graph)
		t.Run(fmt.Sprintf("%d %s", i, g.Name), func(t *testing.T) {
			var in []*Array
			var wrt, dys []*Value
			for k, v := range g.Inputs {
				a := NewArray(v.Type)
				if a.F != nil {
					wrt = append(wrt, v)
				}
				require.Len(t, c.Inputs[k], a.Len())
				for j, x := range c.Inputs[k] {
					a.set(j, x)
				}
				in = append(in, a)
			}
			ys := g.Outputs
			for k, y := range ys {
				dys = append(dys, g.AddInput(fmt.Sprintf("dy%d", k), y.Type))
				in = append(in, &Array{Type: y.Type, F: c.Dys[k]})
			}
			g.Outputs, err = g.Gradients(ys, dys, wrt)
			require.NoError(t, err)
			require.NoError(t, g.Verify())
			got, err := EvaluateList(context.Background(), g, in, EvalOptions{})
			require.NoError(t, err)
			require.Len(t, c.Grads, len(got))
			for k, want := range c.Grads {
				require.Len(t, want, len(got[k].F))
				var missed, size float64
				for i, w := range want {
					missed += (got[k].F[i] - w) * (got[k].F[i] - w)
					size += w * w
				}
				e := math.Sqrt(missed) / max(math.Sqrt(size), 1e-30)
				worst = max(worst, e)
				assert.LessOrEqual(t, e, 1e-9, "gradient of %%%s\n%s", wrt[k].Name, c.Graph)
			}
		})
	}
	t.Logf("%d cases, PyTorch %s: worst %.1e", len(r.Cases), r.Torch, worst)
}
