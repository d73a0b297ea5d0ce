package linear

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAxpyHasTheBitsOfAPlainLoop: of every length, and nothing behind it is written.
func TestAxpyHasTheBitsOfAPlainLoop(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for n := range 70 {
		x, y := matrix32(rng, 1, n+1, n+1).F, matrix32(rng, 1, n+1, n+1).F
		sum, a := append([]float32{}, y...), float32(rng.NormFloat64())
		Axpy(a, x[:n], sum)
		for i := range n {
			require.Equal(t, math.Float32bits(y[i]+float32(a*x[i])), math.Float32bits(sum[i]))
		}
		require.Equal(t, math.Float32bits(y[n]), math.Float32bits(sum[n]))
	}
}
