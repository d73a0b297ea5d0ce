package train

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRates: by hand: four updates of warm-up, then down over eight.
func TestRates(t *testing.T) {
	for kind, want := range map[string][]float64{
		Constant: {.25, .5, .75, 1, 1, 1, 1, 1, 1, 1, 1, 1},
		Linear:   {.25, .5, .75, 1, 1, .875, .75, .625, .5, .375, .25, .125},
		Cosine:   {.25, .5, .75, 1, 1, .96193977, .85355339, .69134172, .5, .30865828, .14644661, .03806023},
	} {
		s := schedule{kind, 2, 4, 12}
		require.NoError(t, s.check())
		for k, w := range want {
			assert.InDelta(t, 2*w, s.at(k), 1e-7, "%s %d", kind, k)
		}
	}
}

func TestSchedulesThatMakeNoSense(t *testing.T) {
	assert.ErrorContains(t, schedule{"step", 1, 0, 0}.check(), `schedule "step": want one of constant, linear, cosine`)
	assert.ErrorContains(t, schedule{Cosine, -1, 0, 0}.check(), "--lr -1: want a number greater than 0")
	assert.ErrorContains(t, schedule{Cosine, 1, -2, 0}.check(), "--warmup -2: want 0 updates or more")
}

// TestDivergenceIsFound where the smoothed loss is a multiple of its least, not where one update is; and not where losses are negative.
func TestDivergenceIsFound(t *testing.T) {
	var w watch
	for range 50 {
		require.NoError(t, w.see(1, 10))
	}
	require.NoError(t, w.see(100, 10), "one update is smoothed away")
	for range 100 {
		require.NoError(t, w.see(1, 10))
	}
	var err error
	n := 0
	for ; err == nil && n < 100; n++ {
		err = w.see(20, 10)
	}
	assert.ErrorContains(t, err, "training diverges: the loss, smoothed over 20 updates, is 10")
	assert.InDelta(t, 13, n, 2)
	w = watch{}
	for k := range 100 {
		assert.NoError(t, w.see(float64(k-50), 10)) // from -50 on
	}
	for range 100 {
		assert.NoError(t, w.see(1e6, 0))
	}
}
