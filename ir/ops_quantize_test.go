package ir

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBlockQuantizePicksTheNearestPoint holds the row against a search over all e2m1 magnitudes, and its scales against
// the definition.
func TestBlockQuantizePicksTheNearestPoint(t *testing.T) {
	points := []float64{0, .5, 1, 1.5, 2, 3, 4, 6}
	rng := rand.New(rand.NewPCG(1, 2))
	const c, scale = 64, 0.03
	x := NewArray(Type{Float32, []int{3, c}})
	for i := range x.F {
		x.F[i] = float64(float32(rng.NormFloat64() * math.Exp2(float64(i/16))))
	}
	for i := range 16 {
		x.F[16+i] = 0
	}
	x.F[40] = math.NaN()
	g := NewGraph("g")
	n, err := g.Add("BlockQuantize", "q", Attrs{"scale": scale}, g.AddInput("x", x.Type))
	require.NoError(t, err)
	out, err := EvaluateNode(n, []*Array{x})
	require.NoError(t, err)
	y, s := out[0], out[1]
	require.Equal(t, []int{3, c}, y.Shape)
	require.Equal(t, []int{3, c / 16}, s.Shape)
	for b, got := range s.F {
		top, nan := 0.0, false
		for i := range 16 {
			v := math.Abs(x.F[16*b+i])
			nan = nan || math.IsNaN(v)
			top = math.Max(top, v)
		}
		if nan {
			require.True(t, math.IsNaN(got))
			continue
		}
		if top == 0 {
			require.Zero(t, got)
		} else {
			require.InEpsilon(t, math.Min(448, top/6/scale), got, 1./16)
		}
		for i := range 16 {
			v, step := x.F[16*b+i], got*scale
			best := math.Inf(1)
			for _, p := range points {
				best = min(best, math.Abs(math.Abs(v)-p*step))
			}
			require.InDelta(t, best, math.Abs(v-y.F[16*b+i]*step), 1e-12*top)
		}
	}
}

func TestBlockQuantizeRefusesWhatItCannotDivide(t *testing.T) {
	g := NewGraph("g")
	_, err := g.Add("BlockQuantize", "q", Attrs{"scale": 1.0}, g.AddInput("x", Type{Float32, []int{2, 24}}))
	require.ErrorContains(t, err, "no multiple of 16")
	_, err = g.Add("BlockQuantize", "q", Attrs{"scale": 0.0}, g.AddInput("x2", Type{Float32, []int{2, 32}}))
	require.ErrorContains(t, err, "scale=0")
}
