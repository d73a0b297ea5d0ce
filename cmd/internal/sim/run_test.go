package sim

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/bench/scenario"
	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
)

// shortRun is a run of six loops of a second, in batches of two.
func shortRun(t *testing.T, dir string) *runFlags {
	t.Helper()
	file := filepath.Join(dir, "short.yaml")
	text := "scenarios:\n  - {name: short, set: {duration: 1, noise_offset: 0.1}, vary: {offset: {uniform: [-0.2, 0.2]}}}\n"
	require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	n := 6
	return &runFlags{Scenarios: []string{file}, N: &n, Device: "emu", JSON: filepath.Join(dir, "out.json"),
		Quiet: true, batch: 2}
}

// TestRun_InterruptedGoesOn: a run that was stopped keeps the loops that had ended, and goes on to the same report.
func TestRun_InterruptedGoesOn(t *testing.T) {
	fulltest.Long(t)
	whole, dir := shortRun(t, t.TempDir()), t.TempDir()
	require.NoError(t, whole.run(t.Context(), io.Discard, io.Discard))
	want, err := os.ReadFile(whole.JSON)
	require.NoError(t, err)

	ctx, stop := context.WithCancel(t.Context())
	f := shortRun(t, dir)
	f.ended = func(of *report) {
		if len(of.Metrics) == 4 {
			stop()
		}
	}
	var out, errs bytes.Buffer
	require.ErrorIs(t, f.run(ctx, &out, &errs), context.Canceled)
	require.Contains(t, errs.String(), "stopped behind 4 of 6 loops: "+f.JSON+" has them; go on with --resume "+f.JSON)
	require.Contains(t, out.String(), "short     0 of 4")
	r, err := readReport(f.JSON)
	require.NoError(t, err)
	require.True(t, r.Partial)
	require.Len(t, r.Metrics, 4)

	rest := &runFlags{Resume: f.JSON, Device: "emu", Quiet: true}
	require.NoError(t, rest.run(t.Context(), io.Discard, io.Discard))
	got, err := os.ReadFile(f.JSON)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

// TestRun_InterruptedInABatchGoesOn: unfinished loops are kept in the report's state file, and end as they would
// have.
func TestRun_InterruptedInABatchGoesOn(t *testing.T) {
	fulltest.Long(t)
	whole := shortRun(t, t.TempDir())
	require.NoError(t, whole.run(t.Context(), io.Discard, io.Discard))
	want, err := os.ReadFile(whole.JSON)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		part   float64 // of the run, at which it is stopped
		says   string
		damage bool
	}{
		"first batch": {0.1, "stopped behind 0 of 6 loops, and on the way of 2 others: ", false},
		"last batch":  {0.8, "stopped behind 4 of 6 loops, and on the way of 2 others: ", false},
		"other file":  {0.8, "stopped behind 4 of 6 loops, and on the way of 2 others: ", true},
	} {
		ctx, stop := context.WithCancel(t.Context())
		f := shortRun(t, t.TempDir())
		f.tell = func(e console.Event) {
			if e.Part > c.part {
				stop()
			}
		}
		var errs bytes.Buffer
		require.ErrorIs(t, f.run(ctx, io.Discard, &errs), context.Canceled, name)
		require.Contains(t, errs.String(), c.says+f.JSON+" has them; go on with --resume "+f.JSON, name)
		if c.damage {
			require.NoError(t, os.WriteFile(stateOf(f.JSON), []byte("PK"), 0o644))
			errs.Reset()
		}
		rest := &runFlags{Resume: f.JSON, Device: "emu", batch: 2}
		var first float64
		rest.tell = func(e console.Event) {
			if first == 0 && !e.Begin {
				first = e.Part
			}
		}
		require.NoError(t, rest.run(t.Context(), io.Discard, &errs), name)
		got, err := os.ReadFile(f.JSON)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), name)
		require.NoFileExists(t, stateOf(f.JSON), name)
		half := 1.0 / 3 // of the first of three batches; it is whole where the steps before were run
		if c.part > 0.5 {
			half = 1
		}
		if c.damage {
			half /= 2
			require.Contains(t, errs.String(), "loops that were on their way start anew: ")
			require.Contains(t, errs.String(), "out.json.state is damaged, or of another report than ")
		}
		require.InDelta(t, half, first, 1e-9, name)
	}
}

// TestRun_SavesWhileLoopsRun: what is there in the middle of a batch, as after a kill, goes on to the bytes of a whole run.
func TestRun_SavesWhileLoopsRun(t *testing.T) {
	fulltest.Long(t)
	for _, part := range []float64{0.2, 0.4, 0.6, 0.9} {
		f, dir := shortRun(t, t.TempDir()), t.TempDir()
		killed := filepath.Join(dir, "out.json")
		f.every = time.Nanosecond
		f.tell = func(e console.Event) {
			if e.Part < part || dir == "" {
				return
			}
			dir = ""
			for from, to := range map[string]string{f.JSON: killed, stateOf(f.JSON): stateOf(killed)} {
				text, err := os.ReadFile(from)
				require.True(t, err == nil || part == 0.4 && from != f.JSON, err)
				require.NoError(t, os.WriteFile(to, text, 0o644))
			}
		}
		require.NoError(t, f.run(t.Context(), io.Discard, io.Discard))
		r, err := readReport(killed)
		require.NoError(t, err)
		require.True(t, r.Partial)
		if part != 0.4 { // where a batch has just begun
			list, err := readState(killed, r)
			require.NoError(t, err)
			require.Len(t, list, 1)
			require.Equal(t, []int{len(r.Metrics), 10}, []int{list[0].First, list[0].Step})
		}
		var errs bytes.Buffer
		rest := &runFlags{Resume: killed, Device: "emu", Quiet: true, batch: f.batch}
		require.NoError(t, rest.run(t.Context(), io.Discard, &errs))
		require.Empty(t, errs.String())
		want, err := os.ReadFile(f.JSON)
		require.NoError(t, err)
		got, err := os.ReadFile(killed)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got))
		require.NoFileExists(t, stateOf(f.JSON))
	}
}

// TestRun_KeepsCheckpointsThatItDoesNotComeTo: a run that goes on and fails before it begins leaves all as it was; one
// that is stopped in its first batch keeps the later one. The last batch is one loop of a step of two.
func TestRun_KeepsCheckpointsThatItDoesNotComeTo(t *testing.T) {
	fulltest.Long(t)
	dir, n := t.TempDir(), 5
	whole := shortRun(t, t.TempDir())
	whole.N = &n
	require.NoError(t, whole.run(t.Context(), io.Discard, io.Discard))
	f := shortRun(t, dir)
	f.N = &n
	stopped := func(f *runFlags, part float64) {
		ctx, stop := context.WithCancel(t.Context())
		f.tell = func(e console.Event) {
			if e.Part > part {
				stop()
			}
		}
		require.ErrorIs(t, f.run(ctx, io.Discard, io.Discard), context.Canceled)
	}
	files := func() (all [2]string) {
		for i, path := range []string{f.JSON, stateOf(f.JSON)} {
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			all[i] = string(text)
		}
		return all
	}
	stopped(f, 0.85)
	r, err := readReport(f.JSON)
	require.NoError(t, err)
	list, err := readState(f.JSON, r)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.Equal(t, []int{4, 1}, []int{list[0].First, list[0].Loops})

	// As if ranks had been stopped: the last loop is on its way, those before it are not.
	r.Metrics = r.Metrics[:2]
	_, err = f.writeJSON(r, list)
	require.NoError(t, err)
	before := files()
	require.Error(t, (&runFlags{Resume: f.JSON, Device: "none", batch: 2}).run(t.Context(), io.Discard, io.Discard))
	require.Equal(t, before, files(), "another device")
	ended, stop := context.WithCancel(t.Context())
	stop()
	rest := func() *runFlags { return &runFlags{Resume: f.JSON, Device: "emu", Quiet: true, batch: 2} }
	require.ErrorIs(t, rest().run(ended, io.Discard, io.Discard), context.Canceled)
	require.Equal(t, before, files(), "stopped before it began")

	stopped(rest(), 0.2)
	r, err = readReport(f.JSON)
	require.NoError(t, err)
	require.Len(t, r.Metrics, 2)
	list, err = readState(f.JSON, r)
	require.NoError(t, err)
	require.Len(t, list, 2)
	require.Equal(t, []int{2, 4}, []int{list[0].First, list[1].First})

	var errs bytes.Buffer
	require.NoError(t, rest().run(t.Context(), io.Discard, &errs))
	require.Empty(t, errs.String())
	want, err := os.ReadFile(whole.JSON)
	require.NoError(t, err)
	got, err := os.ReadFile(f.JSON)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

// TestRun_RemovesTheStateOfAnEarlierRun, whose report it replaces, and nothing that no run writes.
func TestRun_RemovesTheStateOfAnEarlierRun(t *testing.T) {
	fulltest.Long(t)
	f := shortRun(t, t.TempDir())
	ctx, stop := context.WithCancel(t.Context())
	f.tell = func(e console.Event) {
		if e.Part > 0.1 {
			stop()
		}
	}
	require.ErrorIs(t, f.run(ctx, io.Discard, io.Discard), context.Canceled)
	require.FileExists(t, stateOf(f.JSON))
	anew := *f
	anew.tell = nil
	require.NoError(t, anew.run(t.Context(), io.Discard, io.Discard))
	require.NoFileExists(t, stateOf(f.JSON))
	require.NoError(t, os.Mkdir(stateOf(f.JSON), 0o755))
	require.NoError(t, anew.run(t.Context(), io.Discard, io.Discard))
	require.DirExists(t, stateOf(f.JSON))
}

// TestDifferences_OfRecordedRoutes: what models see of a route makes pairs, whatever its directory is called.
func TestDifferences_OfRecordedRoutes(t *testing.T) {
	of := func(route, pictures string) *report { return &report{Route: route, Pictures: pictures} }
	require.Empty(t, differences(of("a", "1"), of("b", "1"), false))
	require.Equal(t, "recorded routes a and b differ", differences(of("a", "1"), of("b", "2"), false))
	require.Equal(t, "the recorded route a has changed", differences(of("a", "1"), of("a", "2"), true))
}

// TestState_RefusesWhatNoRunWrites: a file whose digest is that of the report, yet whose numbers no run would give.
func TestState_RefusesWhatNoRunWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.json")
	r := &report{N: 6, Scenarios: make([]scenario.Family, 1), Columns: []string{"duration"}}
	alive := func(n int) map[string][]byte { return map[string][]byte{"alive": make([]byte, n)} }
	row := [][]float64{{1}}
	for name, c := range map[string]scenario.Checkpoint{
		"no loop":            {Loops: 0, States: alive(4)},
		"fewer than none":    {Loops: -1, States: alive(4)},
		"bytes overflow":     {Loops: 1 << 61, Metrics: [][]float64{{}}},
		"end overflows":      {First: 1, Loops: 1<<63 - 1, States: alive(4)},
		"behind the last":    {First: 5, Loops: 2, States: alive(8)},
		"before the first":   {First: -1, Loops: 1, States: alive(4)},
		"step before all":    {Loops: 1, Step: -1, States: alive(4)},
		"neither":            {Loops: 1},
		"metrics of another": {Loops: 2, Metrics: row},
		"not finite":         {Loops: 1, Metrics: [][]float64{{math.NaN()}}},
	} {
		require.NoError(t, writeState(stateOf(path), []scenario.Checkpoint{c}))
		var err error
		r.State, err = digestOf(stateOf(path))
		require.NoError(t, err)
		require.NotPanics(t, func() { _, err = readState(path, r) }, name)
		require.ErrorContains(t, err, "want a file that spark-sim run wrote", name)
	}
	few := newSimulation(r, &job{}, &start{Report: r, Checkpoints: []scenario.Checkpoint{{Loops: 5}}}, 2)
	require.Equal(t, 2, few.unit, "no more loops at once than the algorithm runs")
}

// closed is a pipe that nobody reads any more.
type closed struct{}

func (closed) Write([]byte) (int, error) { return 0, syscall.EPIPE }

// TestRun_WritesTheReportWhateverElseFails: neither loops on their way that cannot be written nor a table that cannot be
// shown cost the loops that have ended.
func TestRun_WritesTheReportWhateverElseFails(t *testing.T) {
	f := shortRun(t, t.TempDir())
	require.NoError(t, os.MkdirAll(filepath.Join(stateOf(f.JSON), "in the way"), 0o755))
	ctx, stop := context.WithCancel(t.Context())
	f.tell = func(e console.Event) {
		if e.Part > 0.4 {
			stop()
		}
	}
	var errs bytes.Buffer
	err := f.run(ctx, closed{}, &errs)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, syscall.EPIPE)
	require.ErrorContains(t, err, stateOf(f.JSON))
	require.Contains(t, errs.String(), "stopped behind 2 of 6 loops: "+f.JSON+" has them")
	r, err := readReport(f.JSON)
	require.NoError(t, err)
	require.Len(t, r.Metrics, 2)
	require.Empty(t, r.State)
}

// TestRun_AFullDiskLeavesFilesWhole: the report that was there stays, the lines end with a whole one, and the table is
// shown.
func TestRun_AFullDiskLeavesFilesWhole(t *testing.T) {
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=64k"); err != nil {
		t.Skip("mounting a small disk needs root: ", err)
	}
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(disk, 0)) })
	f := shortRun(t, t.TempDir())
	f.JSON = filepath.Join(disk, "out.json")
	require.NoError(t, os.WriteFile(f.JSON, []byte("old"), 0o644))
	fill := func(of *report) {
		if len(of.Metrics) == 4 {
			_ = os.WriteFile(filepath.Join(disk, "full"), make([]byte, 1<<20), 0o644)
		}
	}
	f.ended = fill
	var out bytes.Buffer
	err := f.run(t.Context(), &out, io.Discard)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.ErrorContains(t, err, f.JSON)
	require.Contains(t, out.String(), "short     0 of 6", "what was computed is shown")
	text, err := os.ReadFile(f.JSON)
	require.NoError(t, err)
	require.Equal(t, "old", string(text))

	require.NoError(t, os.Remove(filepath.Join(disk, "full")))
	f = shortRun(t, t.TempDir())
	f.JSONL = filepath.Join(disk, "out.jsonl")
	long := int(900) // their lines do not fit
	f.N, f.batch = &long, 300
	err = f.run(t.Context(), io.Discard, io.Discard)
	require.True(t, errors.Is(err, syscall.ENOSPC), err)
	require.ErrorContains(t, err, "writing "+f.JSONL)
	lines, err := os.ReadFile(f.JSONL)
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(string(lines), "}\n"))
	kept, err := readReport(f.JSON)
	require.NoError(t, err)
	require.True(t, kept.Partial, "the report on another disk has what had ended")
	require.NotEmpty(t, kept.Metrics)
}
