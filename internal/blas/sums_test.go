package blas

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// without calls f with vector instructions, if there are any, and without.
func without(t *testing.T, f func(t *testing.T)) {
	for _, engine := range sumEngines {
		engine(t, f)
	}
}

// sumEngines are the ways to compute sums.
var sumEngines = []func(t *testing.T, f func(t *testing.T)){func(t *testing.T, f func(t *testing.T)) { t.Run("best", f) }}

// TestSquares: of every length, in eight sums.
func TestSquares(t *testing.T) {
	without(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(9, 1))
		for n := range 70 {
			x, y := numbers(rng, n), numbers(rng, n)
			var d, s [8]float64
			for i := range x {
				e := float64(x[i]) - float64(y[i])
				d[i%8] += float64(e * e)
				s[i%8] += float64(float64(y[i]) * float64(y[i]))
			}
			differences, second := Squares(x, y)
			require.Equal(t, d[0]+d[4]+(d[2]+d[6])+(d[1]+d[5]+(d[3]+d[7])), differences, "%d", n)
			require.Equal(t, s[0]+s[4]+(s[2]+s[6])+(s[1]+s[5]+(s[3]+s[7])), second, "%d", n)
		}
	})
}

// TestColumnSumsAddRowsInOrder: of every width, on top of what is there.
func TestColumnSumsAddRowsInOrder(t *testing.T) {
	without(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(9, 2))
		for width := 1; width < 50; width++ {
			rows := rng.IntN(150)
			x, y := numbers(rng, rows*width), numbers(rng, rows*width)
			sums, differences := make([]float64, width+1), make([]float64, width+1)
			for k := range sums {
				sums[k], differences[k] = float64(k), float64(-k)
			}
			wantSums, wantDifferences := append([]float64{}, sums...), append([]float64{}, differences...)
			for i, v := range x {
				wantSums[i%width] += float64(v)
				wantDifferences[i%width] += float64(v) - float64(y[i])
			}
			ColumnSums(sums[:width], x)
			ColumnDifferences(differences[:width], x, y)
			require.Equal(t, wantSums, sums, "%d × %d", rows, width)
			require.Equal(t, wantDifferences, differences, "%d × %d", rows, width)
		}
	})
}

// numbers are finite.
func numbers(rng *rand.Rand, n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(rng.NormFloat64())
	}
	return out
}
