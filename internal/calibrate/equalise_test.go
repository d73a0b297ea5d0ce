package calibrate

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

// equalised is a copy of a graph in which channel scales have moved from convolutions, up to a following Relu,
// into the weights of the consumer. Each channel is divided by (its greatest activation)^alpha · (its greatest
// weight)^(alpha−1), as SmoothQuant does (Xiao et al., arXiv 2211.10438). It also returns how many values were
// equalised.
func equalised(t *testing.T, from *ir.Graph, in []map[string]*ir.Array, alpha float64) (*ir.Graph, int) {
	t.Helper()
	g := from.Clone()
	top := map[*ir.Value][]float64{}
	for _, one := range in {
		_, err := ir.Evaluate(context.Background(), g, one, ir.EvalOptions{Observe: func(v *ir.Value, a *ir.Array) {
			if v.Def == nil || a.F == nil || len(a.Shape) != 4 {
				return
			}
			if top[v] == nil {
				top[v] = make([]float64, a.Shape[3])
			}
			for i, x := range a.F {
				top[v][i%a.Shape[3]] = max(top[v][i%a.Shape[3]], math.Abs(x))
			}
		}})
		require.NoError(t, err)
	}
	storage := passes.StorageOf(g)
	count := 0
	for _, n := range g.Nodes {
		v := n.Outputs[0]
		readers, err := storage.BlockReaders(v)
		if err != nil || len(readers) != 1 || n.Region.Members > 0 || top[v] == nil {
			continue
		}
		a, r := n.Region.Anchor(), readers[0]
		if a == nil || a.Op.Name != "Conv" || r.Members > 1 || len(n.Region.Body.Nodes) > 2 || len(n.Region.Body.Nodes) == 2 && n.Region.Body.Nodes[1].Op.Name != "Relu" {
			continue
		}
		channels := len(top[v])
		taps := r.K / channels
		w := r.Weights().Const.Floats()
		scale := make([]float64, channels)
		for c := range scale {
			greatest := 0.0
			for o := range r.N {
				for k := c * taps; k < (c+1)*taps; k++ {
					greatest = max(greatest, math.Abs(w[r.At(0, o, k)]))
				}
			}
			if scale[c] = 1; greatest > 0 && top[v][c] > 0 {
				scale[c] = math.Pow(top[v][c], alpha) * math.Pow(greatest, alpha-1)
			}
		}
		for c, s := range scale {
			for o := range r.N {
				for k := c * taps; k < (c+1)*taps; k++ {
					w[r.At(0, o, k)] *= s
				}
			}
		}
		r.Node.Inputs[r.Weight] = g.Constant("w", ir.FromFloats(r.Weights().Type, w))
		for i, b := range n.Region.Body.Inputs {
			if b != a.Inputs[1] && b != a.In(2) {
				continue
			}
			require.True(t, n.Inputs[i].IsConst())
			xs := n.Inputs[i].Const.Floats()
			for k := range xs {
				xs[k] /= scale[k/(len(xs)/channels)]
			}
			n.Inputs[i] = g.Constant("c", ir.FromFloats(n.Inputs[i].Type, xs))
		}
		count++
	}
	return g, count
}
