package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/internal/testing/simulated"
	"github.com/spark-compile/spark-compile/runtime"
)

// switched is a simulated GPU that obeys one switch, programmatic dependent launch, and notes what it times.
type switched struct {
	hal.Device
	off   hal.Switches
	name  string
	timed *[]timed
}

type timed struct {
	device string
	hal.Timing
}

func (s *switched) Info() hal.Info {
	info := s.Device.Info()
	info.Switches = s.off
	return info
}

func (s *switched) Capture(ctx context.Context, ops []hal.Op) (hal.Graph, error) {
	list := append([]hal.Op{}, ops...)
	for i := range list {
		list[i].Dependent = list[i].Dependent && !s.off.NoPDL
	}
	g, err := s.Device.Capture(ctx, list)
	return &switchedGraph{g, s}, err
}

type switchedGraph struct {
	hal.Graph
	d *switched
}

func (g *switchedGraph) RunTimed(ctx context.Context, t hal.Timing) (time.Duration, error) {
	*g.d.timed = append(*g.d.timed, timed{g.d.name, t})
	if t.Before != nil {
		t.Before = t.Before.(*switchedGraph).Graph
	}
	return g.Graph.(hal.Timer).RunTimed(ctx, t)
}

// gpus are a device for each of the switches that are off; a launch that is not dependent begins 2 µs later.
func gpus(t *testing.T, log *[]timed, off ...hal.Switches) []*switched {
	on := *target.Default()
	on.Measured = map[string]target.Figure{"launch_us": {Low: 1, Middle: 1, High: 1}, "launch_plain_us": {Low: 3, Middle: 3, High: 3}}
	var out []*switched
	for _, s := range off {
		d, err := simulated.Open(cost.Of(&on))
		require.NoError(t, err)
		d.Noise = simulated.Noise{Seed: uint64(len(out)), Jitter: .003}
		out = append(out, &switched{d, s, "without " + strings.Join(s.Off(), ","), log})
	}
	return out
}

func launches(p *runtime.Program) []runtime.Launch { return p.Variants[0].Entry("run").Launches }

// TestMeasure_LaunchToLaunchIsTheMeanOfSeveral launches in a row; a cold one has the flush right before it.
func TestMeasure_LaunchToLaunchIsTheMeanOfSeveral(t *testing.T) {
	var log []timed
	d := gpus(t, &log, hal.Switches{})[0]
	r, _, err := Measure(t.Context(), program(t, "policy", "fp16"), d, Options{Runs: 3, L2Bytes: 1 << 20})
	require.NoError(t, err)
	require.Len(t, log, 6)
	for i, x := range log {
		if i < 3 {
			require.Equal(t, hal.Timing{Runs: launchRuns}, x.Timing)
		} else {
			require.NotNil(t, x.Before)
			require.LessOrEqual(t, x.Runs, 1)
		}
	}
	require.Less(t, r.LaunchToLaunch.P50, r.Cold.P50)
	require.Less(t, r.Cold.P50, 2*r.LaunchToLaunch.P50, "the flush is not timed, and a sample is one launch")
}

// TestAblate_TimesInTurns with a mechanism and without it, and says what it is worth.
func TestAblate_TimesInTurns(t *testing.T) {
	fulltest.Long(t)
	var log []timed
	p := program(t, "policy", "fp16")
	d := gpus(t, &log, hal.Switches{}, hal.Switches{NoPDL: true}, hal.Switches{NoCarveout: true})
	plain := 0
	for _, l := range launches(p) {
		if l.Dependent {
			plain++
		}
	}
	r, _, err := Measure(t.Context(), p, d[0], Options{Runs: 9, Warmup: 2, L2Bytes: 1 << 20,
		Ablate: []Without{{"pdl", d[1]}, {"carveout", d[2]}}})
	require.NoError(t, err)
	require.Len(t, r.Ablations, 2)

	pdl := r.Ablations[0]
	require.Equal(t, "pdl", pdl.Mechanism)
	require.Empty(t, pdl.Unused)
	require.InDelta(t, 2*float64(plain), 1e3*(pdl.LaunchToLaunch.OffMS-pdl.LaunchToLaunch.OnMS), .5, "2 µs a launch")
	require.InDelta(t, pdl.LaunchToLaunch.OffMS/pdl.LaunchToLaunch.OnMS, pdl.LaunchToLaunch.Ratio, .01)
	require.Less(t, pdl.LaunchToLaunch.P, 1e-4)
	require.Greater(t, pdl.Cold.Ratio, 1.3)
	require.InDelta(t, 1, r.Ablations[1].LaunchToLaunch.Ratio, .005, "the device does not know the switch")
	require.Greater(t, r.Ablations[1].LaunchToLaunch.P, .01)

	log = log[18:] // what was measured before
	require.Len(t, log, 2*2*2*11)
	for i, x := range log {
		other := d[1+i/(2*2*11)].name
		require.Equal(t, []string{d[0].name, other}[i%2], x.device, "%d", i)
		require.Equal(t, i/(2*11)%2 == 1, x.Before != nil, "%d", i)
	}

	x := &Report{Results: []Result{*r}, SwitchesOff: []string{"hints"}, Definitions: Definitions(d[0])}
	var out bytes.Buffer
	require.NoError(t, x.Print(&out))
	require.Regexp(t, `(?m)^policy.onnx fp16: pdl: 1\.\d\d × without it \(p < 0\.001\), cold 1\.\d\d × without it \(p < 0\.001\)$`, out.String())
	require.Regexp(t, `(?m)^policy.onnx fp16: carveout: 1\.00 × without it \(p = 0\.\d+\)`, out.String())
	require.Contains(t, out.String(), "\nswitched off: hints\n")
	require.Contains(t, out.String(), "\nlaunch to launch: from a launch of the graph to the next on a busy stream")
	raw, err := json.Marshal(x)
	require.NoError(t, err)
	for _, key := range []string{`"switches_off":["hints"]`, `"definitions":{"cold":`, `"ablations":[{"mechanism":"pdl","launch_to_launch":{"on_ms":`,
		`"host_ms":`, `"launch_to_launch":{"mean_ms":`, `"state":null`} {
		require.Contains(t, string(raw), key)
	}
	path := t.TempDir() + "/r.html"
	require.NoError(t, x.WriteHTML(path))
}

// TestAblate_SaysWhatIsUnused and does not measure it.
func TestAblate_SaysWhatIsUnused(t *testing.T) {
	var log []timed
	d := gpus(t, &log, hal.Switches{NoCarveout: true})[0]
	p := program(t, "policy", "fp16")
	for i := range launches(p) {
		l := &launches(p)[i]
		l.Dependent, l.Prefetch, l.ReadOnce = false, nil, false
	}
	var ablate []Without
	for _, name := range hal.SwitchNames() {
		ablate = append(ablate, Without{Mechanism: name}) // no device is needed
	}
	r, _, err := Measure(t.Context(), p, d, Options{Runs: 1, Ablate: ablate})
	require.NoError(t, err)
	var why []string
	for i := range r.Ablations {
		why = append(why, r.Ablations[i].String())
	}
	require.Equal(t, []string{"pdl: not measured, no launch is a dependent one", "prefetch: not measured, no launch prefetches",
		"hints: not measured, no launch reads weights as evict-first", "carveout: not measured, it is off"}, why)
	require.Len(t, log, 1)

	v := &p.Variants[0]
	launches(p)[2].Dependent, launches(p)[2].Prefetch, launches(p)[3].ReadOnce = true, &runtime.Access{}, true
	for _, name := range []string{"pdl", "prefetch", "hints"} {
		require.Empty(t, unused(name, v, d), name)
	}
	require.Equal(t, "the CPU device has none", unused("pdl", v, device(t)))
}
