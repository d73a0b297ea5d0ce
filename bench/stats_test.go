package bench

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Without ties the expected value is a count of arrangements: of 252 ways to choose 5 of 10, one is as extreme as
// "separate" on either side. With ties it is the formula by hand: U = 3, variance 25/12·(11 − 60/90), z = (9.5 −
// 0.5)/4.640.
func TestMannWhitney(t *testing.T) {
	for _, c := range []struct {
		name string
		a, b []float64
		want float64
	}{
		{"apart", []float64{1, 2, 3, 4, 5}, []float64{6, 7, 8, 9, 10}, 0.007936507936507936},
		{"the other way round", []float64{6, 7, 8, 9, 10}, []float64{1, 2, 3, 4, 5}, 0.007936507936507936},
		{"mixed", []float64{1, 4, 5, 9}, []float64{2, 3, 6, 7, 8}, 0.9047619047619048},
		{"one against many", []float64{1}, []float64{2, 3, 4}, 0.5},
		{"ties", []float64{1, 1, 2, 2, 3}, []float64{2, 3, 3, 4, 4}, 0.05241},
		{"all equal", []float64{1, 1, 1}, []float64{1, 1, 1}, 1},
		{"empty", nil, []float64{1}, 1},
	} {
		t.Run(c.name, func(t *testing.T) { require.InDelta(t, c.want, MannWhitney(c.a, c.b), 1e-5) })
	}
}

// TestExactAndApproximateAgree compares the two methods where both are accurate.
func TestExactAndApproximateAgree(t *testing.T) {
	for u := range 401 {
		require.InDelta(t, exact(20, 20, float64(u)), approximate(20, 20, float64(u), 0), .005, "U = %d", u)
	}
}

// TestFalseAlarmsAreAsRareAsTheySay draws both sides from one distribution.
func TestFalseAlarmsAreAsRareAsTheySay(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	alarms := 0
	for range 2000 {
		a, b := make([]float64, 50), make([]float64, 50)
		for i := range a {
			a[i], b[i] = r.ExpFloat64(), r.ExpFloat64()
		}
		if MannWhitney(a, b) < .05 {
			alarms++
		}
	}
	require.InDelta(t, 100, alarms, 35)
}

// TestSpearman: by hand, with ties; 1 − 6·Σd²/(n·(n²−1)) where there are none.
func TestSpearman(t *testing.T) {
	require.InDelta(t, 1, Spearman([]float64{1, 2, 3}, []float64{10, 100, 1000}), 1e-12)
	require.InDelta(t, -1, Spearman([]float64{1, 2, 3}, []float64{3, 2, 1}), 1e-12)
	require.InDelta(t, 1-6.*(1+1+4+1+1)/(5*24), Spearman([]float64{1, 2, 3, 4, 5}, []float64{2, 1, 5, 3, 4}), 1e-12)
	require.InDelta(t, 0.94868329805, Spearman([]float64{1, 2, 2, 3}, []float64{1, 2, 3, 4}), 1e-9)
	require.Zero(t, Spearman([]float64{1, 1}, []float64{1, 2}))
	require.Zero(t, Spearman(nil, nil))
}
