package calibrate

import (
	"math"
	"math/rand"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/ir"
)

// TestUnlikeInputsDoNotSaturate observes numbers with rare great ones, and stores others that are four times as great: each
// has the relative error of its format, and those observed are rounded about as well as with the best scale of all.
func TestUnlikeInputsDoNotSaturate(t *testing.T) {
	rng := rand.New(rand.NewSource(3))
	seen := ir.NewArray(ir.T(ir.Float32, 1, 4096))
	for i := range seen.F {
		seen.F[i] = rng.NormFloat64()
		if i%500 == 0 {
			seen.F[i] *= 8
		}
	}
	unlike := ir.NewArray(seen.Type)
	for i := range seen.F {
		seen.F[i] = float64(float32(seen.F[i]))
		unlike.F[i] = 4 * seen.F[i]
	}
	for _, name := range []string{"fp8", "nvfp4"} {
		t.Run(name, func(t *testing.T) {
			f := layerNamed(t, name).Activations
			r := observe([]*ir.Tensor{seen.Tensor()}, f)
			require.GreaterOrEqual(t, float32(r.Headroom), float32(4), "the scale is an f32 number")
			require.Less(t, r.Headroom, 8.0)
			best := math.Inf(1)
			for j := range 200 {
				best = min(best, roundingError(seen.F, f, r.Scale*math.Exp2(8-float64(j)/8)))
			}
			require.LessOrEqual(t, r.Error, 1.02*best, "room above costs next to nothing")
			require.LessOrEqual(t, distance([]*ir.Tensor{stored(unlike.Tensor(), f, r.Scale, nil)}, []*ir.Tensor{unlike.Tensor()}), 1.02*r.Error)
		})
	}
}
