package calibrate

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/minifloat"
	"github.com/spark-compile/spark-compile/internal/precision"
)

// TestStoreRoundsAsFormatsDo: of every length, and of numbers in the middle between two of a format too, in one term and in two.
func TestStoreRoundsAsFormatsDo(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for _, f := range minifloat.AllFormats {
		for i, scale := range []float64{1, .013, 3, 1, .013, 3} {
			o := precision.Operand{Format: f, HiLo: i > 2}
			by := float32(scale)
			xs := make([]float32, 4099)
			for i := range xs {
				xs[i] = float32(math.Ldexp(rng.NormFloat64(), rng.IntN(50)-30))
				if i%2 == 0 { // few bits
					xs[i] = float32(math.Ldexp(float64(rng.IntN(64)-32), rng.IntN(40)-25)) * by
				}
			}
			want := make([]float32, len(xs))
			for i, x := range xs {
				want[i] = float32(o.Value(float64(float32(x*float32(1/scale))))) * by
			}
			store(xs, o, scale)
			for i := range xs {
				require.Equal(t, math.Float32bits(want[i]), math.Float32bits(xs[i]), "%s, scale %g, in two terms %v: %g", f.Name, scale, o.HiLo, want[i])
			}
		}
	}
}
