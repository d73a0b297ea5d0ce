package calibrate

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNormalsOfOneSource: numbers made side by side are those that normal makes one after another, and leave the source where it does.
func TestNormalsOfOneSource(t *testing.T) {
	for n := range uint64(70) {
		source, same := rand.NewPCG(n, ^n*n), rand.NewPCG(n, ^n*n)
		got, want, rng := make([]float64, n), make([]float64, n), rand.New(same)
		for range 3 {
			normals(source, got)
			for i := range want {
				want[i] = normal(rng)
			}
			require.Equal(t, want, got, "%d", n)
			require.Equal(t, same.Uint64(), source.Uint64(), "%d", n)
		}
	}
}
