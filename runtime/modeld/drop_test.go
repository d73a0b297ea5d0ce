package modeld

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDrops_FollowTheFilterOfModeld: FirstOrderFilter(0, 10, 1/20) of min(missed, 10), zero over the first ten frames; the ratio is x/(1+x)
// (openpilot, modeld.py: frame_dropped_filter). With x the constant count m, n frames leave m·(1 − (1−k)ⁿ), k = 1/201.
func TestDrops_FollowTheFilterOfModeld(t *testing.T) {
	for _, c := range []struct{ gap, missed, counted int }{{1, 0, 0}, {2, 1, 1}, {11, 10, 10}, {12, 11, 10}, {1001, 1000, 10}} {
		var d drops
		id := uint32(1)
		d.next(id)
		for range warmUp - 1 {
			id++
			_, ratio := d.next(id)
			require.Zero(t, ratio)
		}
		left := 1.0
		for n := range 30 {
			id += uint32(c.gap)
			missed, ratio := d.next(id)
			require.Equal(t, c.missed, missed)
			left *= 1 - 1./201
			x := float64(c.counted) * (1 - left)
			require.InDelta(t, x/(1+x), ratio, 1e-12, "a gap of %d, frame %d", c.gap, n)
		}
	}
}

// TestDrops_WhileItWarmsUpNothingIsLearned, however many frames are missed.
func TestDrops_WhileItWarmsUpNothingIsLearned(t *testing.T) {
	var d drops
	for id := uint32(5); id <= 5*warmUp; id += 5 {
		missed, ratio := d.next(id)
		require.Equal(t, 4, missed)
		require.Zero(t, ratio)
	}
	_, ratio := d.next(5*warmUp + 1)
	require.Zero(t, ratio)
}
