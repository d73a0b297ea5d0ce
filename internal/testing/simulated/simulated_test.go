package simulated_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/bench/machine"
	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/testing/simulated"
)

// took is a timed run, in µs.
func took(t *testing.T, g hal.Graph, timing hal.Timing) float64 {
	t.Helper()
	d, err := g.(hal.Timer).RunTimed(t.Context(), timing)
	require.NoError(t, err)
	return float64(d.Nanoseconds()) / 1e3
}

// TestL2_KeepsWhatIsReadAgainAndIsFlushed by what a graph before reads.
func TestL2_KeepsWhatIsReadAgainAndIsFlushed(t *testing.T) {
	on := cost.Of(target.Default())
	d, err := simulated.Open(on)
	require.NoError(t, err)
	defer d.Close()
	const bytes = 6 << 20
	small, _, err := machine.Reader(t.Context(), d, bytes)
	require.NoError(t, err)
	large, _, err := machine.Reader(t.Context(), d, 2*on.L2Bytes)
	require.NoError(t, err)
	warm := took(t, small, hal.Timing{})
	require.Equal(t, warm, took(t, small, hal.Timing{}))
	cold := took(t, small, hal.Timing{Before: large})
	require.Greater(t, cold, bytes/(on.MemoryGBps*1e3))
	require.InEpsilon(t, warm, took(t, small, hal.Timing{}), 1e-9, "it was read again since")
	require.InEpsilon(t, cold+3*warm, took(t, small, hal.Timing{Before: large, Runs: 4}), 0.01, "the first of four runs finds nothing")

	other, err := simulated.Open(on)
	require.NoError(t, err)
	defer other.Close()
	elsewhere, _, err := machine.Reader(t.Context(), other, bytes)
	require.NoError(t, err)
	_, err = small.(hal.Timer).RunTimed(t.Context(), hal.Timing{Before: elsewhere})
	require.ErrorContains(t, err, "another device")
}

// TestNoise_IsTheSameForASeed and as wide as asked.
func TestNoise_IsTheSameForASeed(t *testing.T) {
	times := func(noise simulated.Noise) []float64 {
		d, err := simulated.Open(cost.Of(target.Default()))
		require.NoError(t, err)
		defer d.Close()
		d.Noise = noise
		g, _, err := machine.Reader(t.Context(), d, 1<<20)
		require.NoError(t, err)
		var out []float64
		for range 400 {
			out = append(out, took(t, g, hal.Timing{}))
		}
		return out
	}
	exact := times(simulated.Noise{})[0]
	noise := simulated.Noise{Seed: 7, Jitter: 0.03, Outliers: 0.05}
	noisy := times(noise)
	require.Equal(t, noisy, times(noise))
	noise.Seed++
	require.NotEqual(t, noisy, times(noise))
	slices.Sort(noisy)
	require.InEpsilon(t, exact, noisy[200], 0.01)
	require.InEpsilon(t, 1-0.03, noisy[64]/noisy[200], 0.01, "a standard deviation below")
	far := 0
	for _, x := range noisy {
		if x > 2*exact {
			far++
		}
	}
	require.InDelta(t, 20, far, 12)
}
