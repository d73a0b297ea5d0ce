package cost

import (
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/target"
)

// TestEveryConstantIsInTheTable: a constant that the model reads and the table lacks could be neither measured nor doubted.
func TestEveryConstantIsInTheTable(t *testing.T) {
	work := &Work{Blocks: 300, Warps: 3, Resident: 2, Products: []Products{{"f16", 3e8}}, Issued: 3e6, Float: 1e5, Integer: 1e5, Special: 1e4, Memory: 1e5, Wavefronts: 1e5,
		L2Read: 1e7, L2Written: 5e6, DRAMBytes: 2e5, Loads: 12, Trips: 2, Streamed: 3, Atomics: 1, Barriers: 20}
	names := map[string]bool{}
	for _, row := range target.All() {
		m := Of(row)
		for _, c := range m.All() {
			require.NotEmpty(t, c.Source, c.Name)
			require.NotEmpty(t, c.What, c.Name)
			require.NotEmpty(t, c.Unit, c.Name)
			f := m.Figure(c)
			require.LessOrEqual(t, f.Low, f.Middle, c.Name)
			require.LessOrEqual(t, f.Middle, f.High, c.Name)
			require.Less(t, f.Low, f.High, "%s: nothing is known so well", c.Name)
			require.Equal(t, f.Middle, m.Value(c), c.Name)
			before := m.Value(c)
			require.Equal(t, 2*before, m.with(c, 2*before).Value(c), c.Name)
			require.Equal(t, before, m.Value(c), "%s: with leaves the machine as it was", c.Name)
			names[c.Name] = true
		}
	}
	require.Len(t, names, len(constants))
	// Whatever the model reads moves a time: set one constant after the other to something else.
	m := Of(target.Default())
	cached, few := *work, *work
	cached.DRAMBytes = 0
	few.Blocks, few.Plain = 20, true
	ask, read := *work, *work
	ask.Fetches, read.Prefetched, read.Awaits = 1e8, 1e8, 1e8
	for _, c := range m.All() {
		if c.Name == "graph_us" || c.product != "" && c.product != "f16" && c.product != "f32" {
			continue // not of a launch's time; types of other work
		}
		moved := false
		for _, factor := range []float64{0.01, 100} {
			for _, w := range []*Work{work, &cached, &few} {
				moved = moved || m.with(c, m.Value(c)*factor).Estimate(w).US != m.Estimate(w).US
			}
			prefetches := func(m *Machine) float64 {
				return Sequence([]Time{m.Estimate(&ask), m.Estimate(&read)}, []bool{false, true})
			}
			moved = moved || prefetches(m.with(c, m.Value(c)*factor)) != prefetches(m)
			moved = moved || m.with(c, m.Value(c)*factor).LeavesFirst() != m.LeavesFirst()
			moved = moved || c.Name == "kept_share" && m.with(c, m.Value(c)*factor).Left(20<<20) != m.Left(20<<20) // not of a launch's time
		}
		require.True(t, moved, c.Name)
	}
}

// TestRangesAddUpAsSquares: two constants that each matter by themselves, in opposite senses.
func TestRangesAddUpAsSquares(t *testing.T) {
	m := Of(target.Default())
	f := m.Range(func(m *Machine) float64 { return 3*m.LaunchUS/0.58 + 4*218/m.MemoryGBps })
	require.InDelta(t, 7, f.Middle, 1e-12)
	require.InDelta(t, 7-math.Hypot(3*0.4, 4*(1-1/1.07)), f.Low, 1e-12)
	require.InDelta(t, 7+math.Hypot(3*0.7, 4*(1/0.95-1)), f.High, 1e-12)
	flat := m.Range(func(*Machine) float64 { return 2 })
	require.Equal(t, Figure{Low: 2, Middle: 2, High: 2}, flat)
}

// TestMeasure_AcceptsZeroOfSharesThatMayBeZero: a device that ignores hints, or drops every prefetch.
func TestMeasure_AcceptsZeroOfSharesThatMayBeZero(t *testing.T) {
	none := Figure{}
	on, err := Measure(target.Default(), map[string]Figure{"evict_first": none, "prefetch_kept": none})
	require.NoError(t, err)
	require.False(t, Of(on).LeavesFirst())
	require.Zero(t, Of(on).PrefetchKept)
	for _, name := range []string{"prefetch_rate", "few_blocks_issue", "launch_plain_us"} {
		_, err := Measure(target.Default(), map[string]Figure{name: none})
		require.ErrorContains(t, err, name)
	}
}

// TestPlainLaunches_FollowLaunchUSUntilMeasured: files that know one gap describe both.
func TestPlainLaunches_FollowLaunchUSUntilMeasured(t *testing.T) {
	gap := func(m *Machine, plain bool) float64 { return m.Estimate(&Work{Blocks: 1, Warps: 1, Plain: plain}).Gap }
	launch := Figure{Low: 1, Middle: 2, High: 3}
	on, err := Measure(target.Default(), map[string]Figure{"launch_us": launch})
	require.NoError(t, err)
	require.Equal(t, []float64{2, 2}, []float64{gap(Of(on), false), gap(Of(on), true)})
	on, err = Measure(target.Default(), map[string]Figure{"launch_us": launch, "launch_plain_us": {Low: 5, Middle: 5, High: 6}})
	require.NoError(t, err)
	require.Equal(t, []float64{2, 5}, []float64{gap(Of(on), false), gap(Of(on), true)})
	require.Equal(t, 5.0, Of(on).Copy(0).Gap, "a copy is no dependent launch")
}

// TestMeasuredFiguresReplaceTheRow: the model's machine, its ranges, and nothing of the table.
func TestMeasuredFiguresReplaceTheRow(t *testing.T) {
	row := target.Default()
	on, err := Measure(row, map[string]Figure{"launch_us": {Low: 1, Middle: 1.25, High: 2}, "tflops_f16": {Low: 40, Middle: 45, High: 46}})
	require.NoError(t, err)
	m := Of(on)
	require.Equal(t, 1.25, m.LaunchUS)
	require.Equal(t, 45.0, m.TFLOPS["f16"])
	require.Equal(t, 188.0, m.TFLOPS["e4m3"])
	for _, c := range m.All() {
		if c.Name == "launch_us" {
			require.Equal(t, Figure{Low: 1, Middle: 1.25, High: 2}, m.Figure(c))
		}
	}
	require.Equal(t, 0.58, row.LaunchUS)
	require.Equal(t, 91.0, row.TFLOPS["f16"])
	require.Nil(t, row.Measured)
	for name, bad := range map[string]map[string]Figure{
		`no constant "launch_ms"`:        {"launch_ms": {Low: 1, Middle: 1, High: 1}},
		"not a low, a middle and a high": {"launch_us": {Low: 2, Middle: 1, High: 3}},
		"launch_us: 0, 0, 0":             {"launch_us": {}},
		"launch_us: -1, 1, 2":            {"launch_us": {Low: -1, Middle: 1, High: 2}},
		"launch_us: 1, NaN, 2":           {"launch_us": {Low: 1, Middle: math.NaN(), High: 2}},
		"launch_us: 1, 1, +Inf":          {"launch_us": {Low: 1, Middle: 1, High: math.Inf(1)}},
	} {
		_, err := Measure(row, bad)
		require.ErrorContains(t, err, name)
	}
}

func TestMachineFiles(t *testing.T) {
	good := File{Format: FileFormat, Target: target.Default().Name, Device: "GPU", Backend: "cuda", Figures: map[string]Figure{"launch_us": {Low: 1, Middle: 1.25, High: 2}}}
	write := func(f File) string {
		path := filepath.Join(t.TempDir(), "machine.json")
		raw, err := json.Marshal(f)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, raw, 0o644))
		return path
	}
	f, err := ReadFile(write(good))
	require.NoError(t, err)
	require.Equal(t, &good, f)
	on, err := f.On(target.Default())
	require.NoError(t, err)
	require.Equal(t, 1.25, Of(on).LaunchUS)
	other, err := f.On(target.Oldest())
	require.NoError(t, err)
	require.Same(t, target.Oldest(), other, "figures of another machine")
	none, err := (*File)(nil).On(target.Default())
	require.NoError(t, err)
	require.Same(t, target.Default(), none)

	again := good
	again.Driver = "581.1"
	require.Equal(t, good.Digest(), again.Digest(), "the driver changes nothing that is compiled")
	again.Figures = maps.Clone(good.Figures)
	again.Figures["launch_us"] = Figure{Low: 1, Middle: 1.5, High: 2}
	require.NotEqual(t, good.Digest(), again.Digest())

	biased := good
	biased.SumBits = map[string]int{"e4m3": 13}
	require.NotEqual(t, good.Digest(), biased.Digest())
	f, err = ReadFile(write(biased))
	require.NoError(t, err)
	on, err = f.On(target.Default())
	require.NoError(t, err)
	require.Equal(t, 13, on.SumBits["e4m3"])
	require.Empty(t, target.Default().SumBits)

	for _, c := range []struct {
		want   string
		change func(*File)
	}{
		{"format 1, and this version reads 2: measure again with spark-bench --machine", func(f *File) { f.Format = 1 }},
		{"unknown target", func(f *File) { f.Target = "sm_12" }},
		{"describes no GPU: it ran on the CPU", func(f *File) { f.DryRun = "it ran on the CPU" }},
		{"sum_bits: 23 of e4m3", func(f *File) { f.SumBits = map[string]int{"e4m3": 23} }},
		{"sum_bits: 13 of e5m3", func(f *File) { f.SumBits = map[string]int{"e5m3": 13} }},
		{`no constant "gap"`, func(f *File) { f.Figures = map[string]Figure{"gap": {}} }},
		{`no constant "l2_gbps" of sm_121: use clock_ghz, memory_gbps, l2_read_gbps, l2_write_gbps, `, func(f *File) { f.Figures = map[string]Figure{"l2_gbps": {Low: 1, Middle: 1, High: 1}} }},
	} {
		bad := good
		c.change(&bad)
		path := write(bad)
		_, err := ReadFile(path)
		require.ErrorContains(t, err, c.want)
		require.ErrorContains(t, err, path)
	}
	for text, want := range map[string]string{"{": "not a machine file", `{"format": 2, "target": "sm_121", "figure": {}}`: `unknown field "figure"`} {
		path := filepath.Join(t.TempDir(), "bad.json")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		_, err := ReadFile(path)
		require.ErrorContains(t, err, want)
	}
	_, err = ReadFile(filepath.Join(t.TempDir(), "none.json"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
