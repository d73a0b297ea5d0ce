package compile

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestBallastIsNoRoom: a heap may grow by as many bytes with ballast as without, within a percent of all.
func TestBallastIsNoRoom(t *testing.T) {
	for _, live := range []uint64{1 << 20, 100 << 20, 320 << 20, 1 << 30} {
		want := max(live*heapRoom/100, leastRoom)
		for _, ballast := range []uint64{0, ballastBytes} {
			all := live + ballast
			got := all * uint64(percent(all, ballast)) / 100
			assert.LessOrEqual(t, got, want, "%d bytes, %d of ballast", live, ballast)
			if live > 16<<20 { // percent is bounded
				assert.Greater(t, got+all/100+1, want, "%d bytes, %d of ballast", live, ballast)
			}
		}
	}
}
