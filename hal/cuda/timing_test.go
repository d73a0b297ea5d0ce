//go:build linux && (amd64 || arm64) && !nodriver

package cuda

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/emu"
)

// timedRuns are the runs of the log: the lines of each from delay to synchronize.
func timedRuns(lines []string) (runs []string) {
	for _, l := range lines {
		if l == "delay" {
			runs = append(runs, "")
		}
		if n := len(runs); n > 0 {
			runs[n-1] += l + ";"
		}
	}
	return runs
}

func TestTimedRun_AfterAnotherGraph(t *testing.T) {
	f, d := open(t, false)
	g, err := sequence(t, d, 1)
	require.NoError(t, err)
	flush, err := sequence(t, d, 1)
	require.NoError(t, err)
	took, err := g.RunTimed(context.Background(), hal.Timing{Before: flush})
	require.NoError(t, err)
	require.Equal(t, 1500*time.Microsecond, took)
	runs := timedRuns(f.Log())
	require.Equal(t, []string{"delay;graph;event 0;graph;event 1;synchronize;"}, runs, "the graph before is not timed")

	f.Set("busy", -1)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	_, err = g.RunTimed(ctx, hal.Timing{Before: flush})
	require.ErrorIs(t, err, hal.ErrBusy)
	require.ErrorIs(t, flush.Close(), hal.ErrBusy, "it may still run on the other graph's stream")
	require.ErrorIs(t, flush.Wait(ctx), hal.ErrBusy)
	f.Set("busy", 2)
	require.NoError(t, flush.Wait(t.Context()))
	require.NoError(t, flush.Close())
	require.NoError(t, g.Close())

	_, other := open(t, false)
	foreign, err := sequence(t, other, 1)
	require.NoError(t, err)
	_, err = g.RunTimed(t.Context(), hal.Timing{Before: foreign})
	require.ErrorContains(t, err, "of another device")
}

// A host that takes longer to launch the runs than the device is busy would be part of the time.
func TestTimedRun_SlowHost(t *testing.T) {
	f, d := open(t, false)
	d.delays.since = time.Since
	g, err := sequence(t, d, 1)
	require.NoError(t, err)
	f.Set("launch microseconds", 2000)
	_, err = g.RunTimed(t.Context(), hal.Timing{Runs: 3})
	require.NoError(t, err)
	require.Greater(t, len(timedRuns(f.Log())), 1, "it measures again after a longer delay")
	// Where this host is busy, a measurement may be repeated more often than its launches make it.
	once := func(runs int) (batches []string, took time.Duration) {
		before := len(timedRuns(f.Log()))
		took, err := g.RunTimed(t.Context(), hal.Timing{Runs: runs})
		require.NoError(t, err)
		return timedRuns(f.Log())[before:], took
	}
	eventually(t, func() bool {
		batches, _ := once(3)
		return len(batches) == 1
	}, "and knows the next time")
	eventually(t, func() bool {
		batches, took := once(20)
		require.Greater(t, len(batches), 1, "no delay is long enough for all at once")
		return strings.Count(strings.Join(batches, ""), "graph;") == 20 && took == time.Duration(len(batches))*1500*time.Microsecond
	}, "each run once")
	f.Set("launch microseconds", 60000)
	_, err = g.RunTimed(t.Context(), hal.Timing{})
	require.ErrorIs(t, err, errStarved)
	require.NoError(t, g.Close())
}

// The time between the events includes the waits of a device that the host does not keep busy, so it is never shorter
// than the time that the host took after the delay.
func TestTimedRun_WaitsOfTheDeviceAreSeen(t *testing.T) {
	for _, runs := range []int{1, 2, 10} {
		f, d := open(t, false)
		d.delays.since = time.Since
		g, err := sequence(t, d, 1)
		require.NoError(t, err)
		f.Set("launch microseconds", 5000)
		f.Set("timed microseconds", 5000*runs+2000) // the last run ends after its launch
		_, err = g.RunTimed(t.Context(), hal.Timing{Runs: runs})
		require.NoError(t, err)
		batches := timedRuns(f.Log())
		require.Equal(t, runs, strings.Count(batches[0], "graph;"), "after a delay for launches of 25 µs")
		require.Greater(t, len(batches), 1, "%d: it measures again after a longer delay", runs)
		require.NoError(t, g.Close())
	}
}

// TestCapture_EdgesWithData: after a programmatic launch a driver may refuse to list dependencies without their
// edges' data.
func TestCapture_EdgesWithData(t *testing.T) {
	f, d := open(t, false)
	f.Set("lossy query", 1)
	g, err := sequence(t, d, 3)
	require.NoError(t, err)
	wanted, captured := g.Programmatic()
	require.Equal(t, []int{2, 2}, []int{wanted, captured})
	require.NoError(t, g.Close())
	delete(d.entries, captureInfo3)
	_, err = sequence(t, d, 3)
	require.ErrorContains(t, err, "cuStreamGetCaptureInfo", "a driver without version 3 says so")
}

// TestSwitches_ChangeWhatTheDriverGets: each switch alone, by the calls of the driver.
func TestSwitches_ChangeWhatTheDriverGets(t *testing.T) {
	f, err := buildFake()
	if err != nil {
		t.Skip("gcc is missing: the fake driver cannot be built")
	}
	const hinted = ".version 8.8\ncreatepolicy.fractional.L2::evict_first.b64 %rd1, 0f3F800000;\n"
	calls := func(s hal.Switches) []string {
		f.Reset(false)
		d, err := Open(Options{Library: f.Path, Switches: s})
		require.NoError(t, err)
		require.Equal(t, s, d.Info().Switches)
		m, err := d.Load(t.Context(), hal.Image{PTX: hinted, Cubin: []byte("CUBIN")})
		require.NoError(t, err)
		op := hal.Op{Module: m, Kernel: "k", Grid: [3]int{1, 1, 1}, Block: [3]int{32, 1, 1}}
		next := op
		next.After, next.Dependent = []int{0}, true
		g, err := d.Capture(t.Context(), []hal.Op{op, next})
		require.NoError(t, err)
		require.NoError(t, g.Close())
		return f.Log()
	}
	all := calls(hal.Switches{})
	for _, c := range []struct {
		off       hal.Switches
		with, not string // lines that are in the log by default, and instead
	}{
		{hal.Switches{NoPDL: true}, "launch k grid 1,1,1 block 32,1,1 shared 0 dependent 1 params", ""},
		{hal.Switches{NoCarveout: true}, "carveout 100 of k", ""},
		{hal.Switches{NoHints: true}, "load cubin", "load ptx"},
	} {
		require.Contains(t, all, c.with)
		got := calls(c.off)
		require.NotContains(t, got, c.with, "%v", c.off.Off())
		if c.not != "" {
			require.NotContains(t, all, c.not)
			require.Contains(t, got, c.not, "%v", c.off.Off())
		}
	}
	f.Reset(false)
	d, err := Open(Options{Library: f.Path, Switches: hal.Switches{NoHints: true}})
	require.NoError(t, err)
	require.Contains(t, withoutHints(hal.Image{PTX: hinted}).PTX, "createpolicy.fractional.L2::evict_normal.b64 %rd1")
	_, err = d.Load(t.Context(), hal.Image{Name: "m", Cubin: []byte("CUBIN")})
	require.ErrorContains(t, err, "hints cannot be taken out of a cubin")
	plain, err := d.Load(t.Context(), hal.Image{PTX: ".version 8.8", Cubin: []byte("CUBIN")})
	require.NoError(t, err)
	require.NoError(t, plain.Close())
	require.Equal(t, "load cubin", f.Log()[len(f.Log())-2], "a cubin without hints is loaded as it is: %s", strings.Join(f.Log(), "; "))
	require.True(t, slices.Equal([]string{"hints"}, d.Info().Switches.Off()))
}

// TestDelayKernel_EndsOnTheCPUDevice, after as long as it was asked for by the device's clock, which moves by
// instructions there.
func TestDelayKernel_EndsOnTheCPUDevice(t *testing.T) {
	steps := func(nanoseconds uint64) (n int64) {
		d, err := emu.Open(emu.Options{Check: true, Profile: func(c *emu.Counts) {
			for _, s := range c.Sites {
				n += s.Warps
			}
		}})
		require.NoError(t, err)
		m, err := d.Load(t.Context(), hal.Image{PTX: delayKernel().String()})
		require.NoError(t, err)
		g, err := d.Capture(t.Context(), []hal.Op{{Module: m, Kernel: "delay", Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1},
			Params: []uint64{nanoseconds}, Sizes: []int{4}}})
		require.NoError(t, err)
		require.NoError(t, g.Run(t.Context()))
		return n
	}
	require.Less(t, steps(0), int64(20))
	require.Greater(t, steps(200_000), steps(0))
}

// eventually tries a few times, in the test's own goroutine.
func eventually(t *testing.T, ok func() bool, says string) {
	t.Helper()
	for range 20 {
		if ok() {
			return
		}
	}
	require.Fail(t, says)
}
