package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/hal/nvml"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/profile"
	"github.com/spark-compile/spark-compile/internal/report"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/testing/browser"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/internal/testing/simulated"
	"github.com/spark-compile/spark-compile/runtime"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// program compiles a small driving model of the repository's own.
func program(t *testing.T, name, precision string) *runtime.Program {
	t.Helper()
	src, err := driving.Made(name, driving.Small)
	require.NoError(t, err)
	m, err := onnx.Decode(name+".onnx", src.ONNX)
	require.NoError(t, err)
	r, err := compile.Compile(context.Background(), m, compile.Options{Precision: precision, Targets: []string{"sm_121"}})
	require.NoError(t, err)
	return r.Program
}

func device(t *testing.T) *emu.Device {
	t.Helper()
	d, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// beat is a management layer whose clock falls, and which takes as long to read as what is measured.
type beat struct{ mhz float64 }

func (*beat) Name() string { return "NVML" }
func (*beat) Close() error { return nil }
func (b *beat) Read(ctx context.Context) (nvml.Snapshot, error) {
	<-ctx.Done()
	b.mhz -= 100
	return nvml.Snapshot{GPUs: []nvml.GPU{{ClockMHz: nvml.Known(b.mhz), ClockMax: nvml.Known(3000), Utilisation: nvml.Known(90), Throttle: 4}}}, nil
}

func TestMeasuresEverything(t *testing.T) {
	ctx := context.Background()
	p := program(t, "policy", "fp16")
	r, out, err := Measure(ctx, p, device(t), Options{Runs: 4, Warmup: 1, Layers: true, Timeline: true, Source: &quick{beat{1600}}, L2Bytes: 1 << 20})
	require.NoError(t, err)
	require.Len(t, r.Samples, 4)
	require.Equal(t, "fp16", r.Precision)
	require.Equal(t, "sm_121", r.Target)
	require.Greater(t, r.Launches, 5)
	require.Len(t, r.Layers, r.Launches)
	require.Positive(t, r.Executed)
	require.Nil(t, r.MACs, "the program does not say")
	require.Positive(t, r.FirstMS)
	require.Positive(t, r.LoadMS)
	require.Nil(t, r.LaunchToLaunch, "the CPU device has no clock: a graph alone would be the same run timed twice")
	require.Nil(t, r.Cold)
	require.Nil(t, r.HostMS)
	require.NotEmpty(t, out)
	require.Equal(t, 3, r.State.Samples)
	require.Equal(t, []string{"power cap"}, r.State.Throttle.Slowdowns())
	require.LessOrEqual(t, r.State.ClockMHz.Value, 1500.)
	require.Equal(t, nvml.Known(1496), r.State.ClockMaxMHz, "behind four runs, each of which read the clock")
	require.Equal(t, nvml.Known(1296), r.State.ClockMinMHz, "runs, launches and timeline are watched")
	for _, l := range r.Layers {
		require.Positive(t, l.MS, l.Kernel)
	}
}

// slow is a management layer that is a process of its own, as nvidia-smi is.
type slow struct{ measuring, disturbed bool }

func (*slow) Name() string { return "nvidia-smi" }
func (*slow) Close() error { return nil }
func (s *slow) Read(context.Context) (nvml.Snapshot, error) {
	s.disturbed = s.disturbed || s.measuring
	return nvml.Snapshot{GPUs: []nvml.GPU{{ClockMHz: nvml.Known(1500)}}}, nil
}

func TestWatcher_LeavesTimedRunsAlone(t *testing.T) {
	s := &slow{}
	w := &watcher{source: s}
	require.NoError(t, w.during(func() error {
		s.measuring = true
		time.Sleep(5 * time.Millisecond)
		s.measuring = false
		return nil
	}))
	require.False(t, s.disturbed, "a process that asks the driver delays what is timed")
	require.Len(t, w.seen, 1)
}

// TestLaunchesAreTimedAsTheyArePredicted on a device that takes exactly the predicted time: a launch adds to the
// preceding ones what it is predicted to add, with constants and inputs in the cache. A run is predicted with new
// inputs.
func TestLaunchesAreTimedAsTheyArePredicted(t *testing.T) {
	machine := *target.Default()
	on := &machine
	on.Measured = map[string]target.Figure{
		"atomic_us":       {Low: 1e-9, Middle: 1e-9, High: 1e-9}, // of which the device knows more than the model
		"launch_us":       {Low: 1, Middle: 1, High: 1},
		"launch_plain_us": {Low: 3, Middle: 3, High: 3},
	}
	d, err := simulated.Open(cost.Of(on))
	require.NoError(t, err)
	p := program(t, "policy", "fp16")
	r, _, err := Measure(t.Context(), p, d, Options{Runs: 2, Layers: true, LayerTime: 1, Predict: on, Source: &quick{beat{1600}}})
	require.NoError(t, err)
	require.Len(t, r.ClocksMHz, 2)
	require.NotNil(t, r.Predicted)
	require.InDelta(t, r.P50-r.LaunchToLaunch.P50, *r.HostMS, 1e-12)
	require.InDelta(t, 1, *r.Predicted.Rank, 0.0155, "equal launches differ by rounding to nanoseconds")
	measured := 0.0
	replay, sum, m := r.LaunchToLaunch.P50*1e3, 0.0, cost.Of(on)
	for _, l := range r.Layers {
		sum += *l.PredictedUS
	}
	require.InEpsilon(t, replay, sum, 0.01)
	require.InEpsilon(t, replay+m.MemoryLatencyUS-m.CacheLatencyUS, r.Predicted.Range.Middle, 0.01, "a round trip to DRAM for the inputs")
	require.Less(t, r.Predicted.Range.Low, r.Predicted.Range.Middle)
	for _, l := range r.Layers {
		require.InEpsilon(t, *l.PredictedUS, l.MS*1e3, 0.001, l.Kernel)
		require.NotEmpty(t, l.By)
		measured += 1e3 * l.MS
	}
	require.InEpsilon(t, replay, measured, 1e-3, "launches add up to a run")
	x := &Report{Results: []Result{*r}}
	var out bytes.Buffer
	require.NoError(t, x.Print(&out))
	require.Regexp(t, `policy.onnx fp16: launch to launch it takes 0\.9[89] × the predicted [0-9.]+ µs \([0-9.]+ to [0-9.]+\); its launches are in the predicted order, by a rank correlation of 0\.9[89]`, out.String())
}

// quick is a management layer that reads one clock quickly.
type quick struct{ beat }

func (q *quick) SM(string) nvml.Figure {
	q.mhz--
	return nvml.Known(q.mhz)
}

func TestModelsRunAtTheSameTime(t *testing.T) {
	c, err := Together(context.Background(), []*runtime.Program{program(t, "policy", "fp16"), program(t, "dmonitoring", "fp32")}, device(t), Options{Runs: 3, Warmup: 1})
	require.NoError(t, err)
	require.Len(t, c.Rounds, 3)
	require.Len(t, c.Models, 2)
	require.Equal(t, "dmonitoring.onnx", c.Models[1].Model)
	require.GreaterOrEqual(t, c.Round.Max, c.Models[0].Min)
}

func TestOutputsThatAreNotNumbersCanBeWritten(t *testing.T) {
	p := &runtime.Program{Outputs: []runtime.Port{{Name: "y"}, {Name: "z"}}}
	out, err := Accuracy(p, map[string][]float64{"y": {math.NaN()}}, map[string][]float64{"y": {1}})
	require.NoError(t, err)
	require.Len(t, out, 1)
	r := example()
	r.Results[0].Outputs = out
	require.NoError(t, r.Write(filepath.Join(t.TempDir(), "r.json")))
	_, err = Accuracy(p, map[string][]float64{"y": {1, 2}}, map[string][]float64{"y": {1}})
	require.ErrorContains(t, err, `output "y"`)
}

// times are samples around a middle.
func times(middle float64, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = middle * (1 + .01*math.Sin(float64(i)))
	}
	return out
}

func example() *Report {
	r := &Report{Version: Version, Machine: "Test <machine> & co", Device: "cpu (emu)", Runs: 50, Warmup: 5, SwitchesOff: []string{"hints"},
		Definitions: Definitions(&emu.Device{})}
	first, second := 1000., 700.
	for i, precision := range []string{"fp32", "fp16"} {
		x := Result{Program: report.Program{Model: "vision.onnx", Precision: precision, Launches: 3}, Samples: times(2/float64(1+i), 50),
			Outputs: []report.Output{{Name: "outputs", Metrics: runtime.Metrics{Cosine: 1 - 1e-6*float64(i), RelL2: 1e-3 * float64(i)}}},
			Layers: []Layer{{Index: 0, Kernel: "conv_<0>", Note: "Conv \"a\"", MS: 1.5, PredictedUS: &first, By: "tensor"}, {Index: 1, Kernel: "copy"},
				{Index: 2, Kernel: strings.Repeat("long", 30), MS: .5, PredictedUS: &second, By: "L2"}}}
		x.Summary = report.Summarise(x.Samples)
		rank := .5
		x.Predicted = &Predicted{Range: cost.Figure{Low: 1500, Middle: 1700, High: 2100}, Waited: cost.Figure{Low: 1510, Middle: 1715, High: 2120}, Rank: &rank}
		x.Ablations = []Ablation{{Mechanism: "pdl", LaunchToLaunch: &Contrast{OnMS: 1, OffMS: 1.2, Ratio: 1.2, P: 1e-9}}, {Mechanism: "hints", Unused: "it is off"}}
		r.Results = append(r.Results, x)
	}
	return r
}

func TestBaselineTellsChangeFromChance(t *testing.T) {
	for _, c := range []struct {
		name    string
		factor  float64
		verdict string
	}{{"equal", 1, "same"}, {"slower", .9, "slower"}, {"faster", 1.1, "faster"}} {
		t.Run(c.name, func(t *testing.T) {
			base, now := example(), example()
			for i := range base.Results {
				b := &base.Results[i]
				b.Samples = times(b.P50*c.factor, 50)
				b.Summary = report.Summarise(b.Samples)
			}
			require.Empty(t, now.Compare(base))
			d := now.Results[0].Baseline
			require.Equal(t, c.verdict, d.Verdict, "%+v", d)
			require.InDelta(t, 1/c.factor, d.Ratio, .01)
			var b bytes.Buffer
			require.NoError(t, now.Print(&b))
			if c.verdict != "same" {
				require.Contains(t, b.String(), strings.ToUpper(c.verdict)+" than the baseline")
			}
		})
	}
	base := example()
	base.Device = "NVIDIA GB10 (cuda)"
	require.Len(t, example().Compare(base), 2, "another device is no baseline")
}

func TestReportsSurviveJSON(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.json")
	r := example()
	r.Results[0].State = &State{Samples: 1, ClockMHz: nvml.Known(5), Throttle: 4}
	require.NoError(t, r.Write(path))
	back, err := Read(path)
	require.NoError(t, err)
	require.Equal(t, r, back)
	require.NoError(t, os.WriteFile(path, []byte(`{"version": 99}`), 0o644))
	_, err = Read(path)
	require.ErrorContains(t, err, "version 99")
	require.NoError(t, os.WriteFile(path, []byte(`{"version`), 0o644))
	_, err = Read(path)
	require.ErrorContains(t, err, "r.json")
}

// TestPageNeedsNothingElse reads the page as XML, which is stricter than HTML, and looks for anything that would be
// loaded or executed.
func TestPageNeedsNothingElse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "r.html")
	r := example()
	r.Compare(example())
	require.NoError(t, r.WriteHTML(path))
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	text := string(raw)
	require.NotRegexp(t, regexp.MustCompile(`(?i)<script|https?://|src=|@import|url\(`), text)
	require.Equal(t, 2, strings.Count(text, "<svg"), "distribution, accuracy")
	require.Equal(t, 2, strings.Count(text, `class="bars"`), "of layers")
	require.NotContains(t, text, "NaN")
	require.NotContains(t, text, "<machine>")
	require.Contains(t, text, "Test &lt;machine&gt; &amp; co")
	require.NotContains(t, text, "ZgotmplZ")
	require.Contains(t, text, "<p>fp16: pdl: 1.20 × without it (p &lt; 0.001)</p>")
	require.Contains(t, text, "Switched off: hints.")
	require.NotContains(t, text, "<dt>launch to launch</dt>")
	require.Contains(t, text, "<p>each launch by itself, by the host&#39;s clock</p>")
	xmlText := regexp.MustCompile(`<meta [^>]*>|<link [^>]*>|<!DOCTYPE html>`).ReplaceAllString(text, "")
	d := xml.NewDecoder(strings.NewReader(xmlText))
	d.Entity = xml.HTMLEntity
	for {
		_, err := d.Token()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
	}
}

// TestTheHistogramHasEverySample: a run that took a hundred times as long is in the last bar, which says so, and in the tables.
func TestTheHistogramHasEverySample(t *testing.T) {
	samples := []float64{90}
	for i := range 199 {
		samples = append(samples, 1+float64(i)/1000)
	}
	high := axisEnd(slices.Sorted(slices.Values(samples)))
	require.Less(t, high, 2., "one run does not flatten the rest")
	sum := 0.
	shares := histogram(samples, 1, high)
	for _, x := range shares {
		sum += x
	}
	require.InDelta(t, 100, sum, 1e-9)
	require.GreaterOrEqual(t, shares[len(shares)-1], .5)
	require.Contains(t, string(distribution([]string{"fp16"}, [][]float64{samples})), "last bar of fp16: 2 slower, up to 90.0 ms")
	require.NotContains(t, string(distribution([]string{"fp16"}, [][]float64{{1, 2, 3}})), "slower")

	r := &Report{Results: []Result{{Summary: report.Summarise(samples), Samples: samples}}}
	var out bytes.Buffer
	require.NoError(t, r.Print(&out))
	require.Regexp(t, `p99 +max +min`, out.String())
	require.Regexp(t, ` 90\.0 `, out.String())
	path := filepath.Join(t.TempDir(), "r.html")
	require.NoError(t, r.WriteHTML(path))
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(raw), "<th>max</th>")
	require.Contains(t, string(raw), "<td>90.0</td>")
}

func TestPlotsOfOneSampleAndOfEqualOnes(t *testing.T) {
	for _, s := range [][]float64{{1}, {2, 2, 2}, {0}} {
		require.NotContains(t, string(distribution([]string{"fp16"}, [][]float64{s})), "NaN")
	}
	require.NotContains(t, string(scatter([]string{"fp32"}, []float64{1}, []float64{0})), "NaN")
	require.NotContains(t, string(scatter([]string{"a"}, []float64{1}, []float64{math.Inf(1)})), "Inf")
	require.Zero(t, bars([]Layer{{MS: 0}})[0].Width)
}

// TestReport_LooksRight in a browser.
func TestReport_LooksRight(t *testing.T) {
	fulltest.Long(t)
	path := filepath.Join(t.TempDir(), "r.html")
	r := example()
	r.Compare(example())
	r.Results[0].Timeline = &Timeline{Runs: 21, ResolutionNS: 32, RefinedNS: 32, Launches: []TimelineLaunch{
		{LaunchTimes: profile.LaunchTimes{Kernel: "conv_0", Ended: 1200e3}, PredictedUS: 1100},
		{LaunchTimes: profile.LaunchTimes{Index: 1, Kernel: "copy", Begun: 900e3, Released: 1200e3, Ended: 1250e3}, PredictedUS: 80},
		{LaunchTimes: profile.LaunchTimes{Index: 2, Kernel: strings.Repeat("long", 30), Begun: 1200e3, Released: 1250e3, Ended: 2000e3}, PredictedUS: 700}}}
	require.NoError(t, r.WriteHTML(path))
	browser.Check(t, "spark-bench", "file://"+path)
}

// TestATimelineHasEveryLaunch: of the report, the trace and the page; each bar is there with its prediction.
func TestATimelineHasEveryLaunch(t *testing.T) {
	p, d := program(t, "policy", "fp16"), device(t)
	r, _, err := Measure(t.Context(), p, d, Options{Runs: 1, Timeline: true, Predict: target.Default()})
	require.NoError(t, err)
	require.Nil(t, r.Predicted, "a prediction for a GPU says nothing of the CPU device")
	x := r.Timeline
	require.Len(t, x.Launches, r.Launches)
	require.Len(t, x.Last, r.Launches)
	require.Positive(t, x.ResolutionNS)
	for _, l := range x.Launches {
		require.Less(t, l.Begun, l.Ended)
		require.Zero(t, l.PredictedUS)
	}
	report := &Report{Results: []Result{*r}}
	dir := t.TempDir()
	require.NoError(t, report.WriteTrace(filepath.Join(dir, "trace.json")))
	raw, err := os.ReadFile(filepath.Join(dir, "trace.json"))
	require.NoError(t, err)
	var trace struct {
		TraceEvents []struct {
			Name, Ph, Cat string
			Ts, Dur       float64
		}
	}
	require.NoError(t, json.Unmarshal(raw, &trace))
	work := 0
	for _, e := range trace.TraceEvents {
		if e.Cat == "work" {
			l := x.Launches[work]
			require.InDelta(t, float64(l.Released)/1e3, e.Ts, 1e-9)
			require.InDelta(t, float64(l.Ended-l.Released)/1e3, e.Dur, 1e-6)
			work++
		}
	}
	require.Equal(t, r.Launches, work)
	require.NoError(t, report.WriteHTML(filepath.Join(dir, "report.html")))
	page, err := os.ReadFile(filepath.Join(dir, "report.html"))
	require.NoError(t, err)
	require.Contains(t, string(page), "<h3>Timeline, ")
	require.GreaterOrEqual(t, strings.Count(string(page), `class="s0"`), r.Launches, "a bar of each launch")
}

// TestLaunchesThatOverlapHaveRowsOfTheirOwn in a trace.
func TestLaunchesThatOverlapHaveRowsOfTheirOwn(t *testing.T) {
	one := func(i, begun, released, ended int) TimelineLaunch {
		return TimelineLaunch{LaunchTimes: profile.LaunchTimes{Index: i, Kernel: "k", Begun: begun, Released: released, Ended: ended}}
	}
	r := &Report{Results: []Result{{Timeline: &Timeline{Launches: []TimelineLaunch{one(0, 0, 0, 1000), one(1, 600, 1000, 2000), one(2, 2000, 2000, 3000)}}}}}
	path := filepath.Join(t.TempDir(), "trace.json")
	require.NoError(t, r.WriteTrace(path))
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	var trace struct{ TraceEvents []traceEvent }
	require.NoError(t, json.Unmarshal(raw, &trace))
	var got []string
	for _, e := range trace.TraceEvents[1:] {
		got = append(got, fmt.Sprintf("%s %g+%g in %d", e.Name, e.Begin, e.Took, e.Thread))
	}
	require.Equal(t, []string{"0 k 0+1 in 0", "1 k waits 0.6+0.4 in 1", "1 k 1+1 in 1", "2 k 2+1 in 0"}, got)
}
