package calibrate

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/runtime"
)

// TestOtherInputsAreExpectedToBeWorse than the worst so far, by the spread over inputs.
func TestOtherInputsAreExpectedToBeWorse(t *testing.T) {
	set := func(name string, misses ...float64) SetQuality {
		q := Quality{Name: "y", Cosine: 1, misses: misses}
		for _, x := range misses {
			q.Cosine = min(q.Cosine, 1-math.Pow(10, x))
		}
		return SetQuality{Name: name, Perturbed: name == "perturbed", Slices: []Quality{q}}
	}
	pooled := SetQuality{Name: "held-out", Slices: []Quality{{Name: "y", Cosine: .9, Pooled: true}}}
	spread := func(square, inputs, n float64) float64 { // of n inputs, given the others
		return 3 * math.Sqrt((square+8*.4*.4)/(inputs+8)) * math.Sqrt(1+1/n)
	}
	for name, c := range map[string]struct {
		sets []SetQuality
		log  float64 // of 1 − the cosine expected
	}{
		"one input has the usual spread":      {[]SetQuality{set("calibration", -4)}, -4 + 3*.4*math.Sqrt2},
		"several have theirs too":             {[]SetQuality{set("calibration", -4, -5, -6)}, -5 + spread(2, 2, 3)},
		"a set has that of all, and its mean": {[]SetQuality{set("calibration", -5, -5), set("held-out", -3, -4)}, -3.5 + spread(.5, 2, 2)},
		"perturbed ones count by the worst":   {[]SetQuality{set("calibration", -5, -5), set("perturbed", -3, -6)}, -3},
		"and add no spread":                   {[]SetQuality{set("calibration", -4, -4), set("perturbed", -4, -9)}, -4 + spread(0, 1, 2)},
		"few elements as they are":            {[]SetQuality{pooled}, -1},
	} {
		t.Run(name, func(t *testing.T) {
			require.InEpsilon(t, math.Pow(10, c.log), 1-Worst(c.sets)[0].Expected, 1e-6)
		})
	}
	got, want := [][]float64{{1, 2, 3, 4.1}}, [][]float64{{1, 2, 3, 4}}
	q, err := Measure(Slice{Output: "y", Slice: runtime.Slice{Stop: 4}}, got, want)
	require.NoError(t, err)
	require.InDelta(t, math.Log10(1-q.Cosine), q.misses[0], 1e-9)
	q, err = Measure(Slice{Output: "y", Slice: runtime.Slice{Stop: 4}}, want, want)
	require.NoError(t, err)
	require.InDelta(t, -9, q.misses[0], 1e-9, "equal outputs differ by no more than rounding")
}
