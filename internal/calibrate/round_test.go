package calibrate

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/ir"
)

// TestTheBestScaleOfAChannelIsKept: more scales of a channel to start from leave less error, and what is stored, numbers with
// scales of blocks and channels, is what was fitted.
func TestTheBestScaleOfAChannelIsKept(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	draw := func(k, n int) float64 { return rng.NormFloat64() }
	g := layers(t, draw, draw)
	var x []*ir.Tensor
	for range 4 {
		x = append(x, rowsOf(func(i int) float64 { return rng.NormFloat64() })["x"].Tensor())
	}
	c, err := New(g, "nvfp4", []map[string]*ir.Array{{"x": x[0].Array()}}, Reference{}, nil)
	require.NoError(t, err)
	site := c.Sites()[0]
	r := newRounder(&site, layerNamed(t, "nvfp4 weights").Weights, Technique{Feedback: true})
	m, _ := r.patches.measure(t.Context(), x, x, nil, 0, 0, false)
	all := rows{step: 1, count: site.N}
	var misses []float64
	for _, starts := range []int{1, mostStarts} {
		r.round(t.Context(), all, newObjective(m), 0, starts)
		misses = append(misses, r.miss(t.Context(), all, m))
		for n := range site.N {
			for k := range site.K {
				at := site.At(0, n, k)
				require.InDelta(t, r.fake.F[at], r.codes[at]*r.blocks.F[site.BlockAt(0, n, site.Block(k))]*r.scales[n], 1e-12)
			}
		}
	}
	require.Positive(t, misses[1])
	require.Less(t, misses[1], .95*misses[0])
}
