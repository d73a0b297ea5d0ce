package compile

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestBallastAllowsNoGrowth: a heap may grow by as many bytes with ballast as without, within a percent of all.
func TestBallastAllowsNoGrowth(t *testing.T) {
	for _, live := range []uint64{1 << 20, 100 << 20, 320 << 20, 1 << 30} {
		want := max(live*heapPercent/100, leastGrowth)
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

// TestNoBallastWhereAddressesAreFew: a process that ulimit gives fewer addresses than the ballast wants does without it and goes on.
// One with all of them has it.
func TestNoBallastWhereAddressesAreFew(t *testing.T) {
	if os.Getenv("SPARK_TEST_HEAP") != "" {
		steadyHeap()
		fmt.Println("ballast", len(ballast))
		os.Exit(0)
	}
	few := fmt.Sprintf("ulimit -v %d && ", (ballastBytes+leftBytes)>>10) // KiB
	wants := map[string]int{few: 0}
	if promised(ballastBytes + leftBytes) {
		wants[""] = ballastBytes
	}
	for limit, want := range wants {
		cmd := exec.Command("sh", "-c", limit+`exec "$0" -test.run '^TestNoBallastWhereAddressesAreFew$'`, os.Args[0])
		cmd.Env = append(os.Environ(), "SPARK_TEST_HEAP=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", limit, out)
		assert.Contains(t, string(out), fmt.Sprintln("ballast", want), limit)
	}
}
