package scenario

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
)

// loopsOf are loops of a family, of 2 s.
func loopsOf(t *testing.T, family string, n int) (out []Scenario) {
	t.Helper()
	f, err := FamilyOf(family)
	require.NoError(t, err)
	for k := range n {
		s, err := f.Draw(5, k)
		require.NoError(t, err)
		s, err = s.With("duration", 2)
		require.NoError(t, err)
		out = append(out, s)
	}
	return out
}

// TestRunBatch_NoiseIsTheLoopsOwn: neither a loop's place nor its neighbours change a bit of it.
func TestRunBatch_NoiseIsTheLoopsOwn(t *testing.T) {
	r := &Runner{Device: device(t)}
	c, err := BuiltIn("pid")
	require.NoError(t, err)
	list := append(loopsOf(t, "curve", 2), loopsOf(t, "sensor-dropout", 3)...)
	all, err := r.RunBatch(t.Context(), list, c, 1, 5)
	require.NoError(t, err)
	alone, err := r.RunBatch(t.Context(), list[4:], c, 1, 5)
	require.NoError(t, err)
	require.Equal(t, all.Metrics[4], alone.Metrics[0])
	_, err = r.RunBatch(t.Context(), append(list, list[3]), c, 1, 5)
	require.ErrorContains(t, err, `scenarios 3 ("sensor-dropout") and 5 ("sensor-dropout") have overlapping seeds`)
	_, err = r.RunBatch(t.Context(), list, c, 2, 5)
	require.ErrorContains(t, err, "have overlapping seeds", "the second loop of one is the first of the next")
}

// TestRunBatch_KeepsWhatHasEnded: a run that is stopped returns the loops of the batches before.
func TestRunBatch_KeepsWhatHasEnded(t *testing.T) {
	fulltest.Long(t)
	c, err := BuiltIn("pid")
	require.NoError(t, err)
	list := loopsOf(t, "sensor-dropout", 5)
	whole, err := (&Runner{Device: device(t)}).RunBatch(t.Context(), list, c, 1, 5)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	r := &Runner{Device: device(t), Batch: 2, Ended: func(first int, metrics [][]float64) error {
		require.Equal(t, whole.Metrics[first:first+len(metrics)], metrics)
		if first == 2 {
			stop()
		}
		return nil
	}}
	part, err := r.RunBatch(ctx, list, c, 1, 5)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, whole.Metrics[:4], part.Metrics)
	full := errors.New("no space")
	r.Ended = func(int, [][]float64) error { return full }
	part, err = r.RunBatch(t.Context(), list, c, 1, 5)
	require.ErrorIs(t, err, full)
	require.Len(t, part.Metrics, 2)
}

// TestRecord_SameBits: a recorded loop ends as the loop does, and its trace says the same as its metrics.
func TestRecord_SameBits(t *testing.T) {
	c, err := BuiltIn("pid")
	require.NoError(t, err)
	list := append(loopsOf(t, "sensor-dropout", 2), loopsOf(t, "cut-in", 1)...)
	standing := with(t, "standing", map[string]float64{"car0_present": 1, "car0_gap": 20, "car0_speed0": 0,
		"car0_speed1": 0})
	list = append(list, standing)
	whole, err := (&Runner{Device: device(t)}).RunBatch(t.Context(), list, c, 1, 5)
	require.NoError(t, err)
	got, traces, err := (&Runner{Device: device(t), Batch: 3}).Record(t.Context(), list, c, 5)
	require.NoError(t, err)
	require.Equal(t, whole.Metrics, got.Metrics)
	at := map[string]int{}
	for i, c := range Planner.TraceColumns() {
		at[c.Name] = i
	}
	for i, x := range traces {
		require.Equal(t, list[i].Name, x.Scenario.Name)
		steps := int(math.Round(metric(t, got, i, "duration") / Step))
		require.Len(t, x.Rows, steps+1)
		largest := 0.0
		for k, row := range x.Rows {
			require.InDelta(t, float64(k)*Step, row[at["time"]], 1e-9)
			largest = max(largest, math.Abs(row[at["offset"]]))
			require.InDelta(t, whole.Scenarios[i].road(row[at["station"]]), row[at["road"]], 0)
			require.InDelta(t, row[at["speed"]]*row[at["yaw_rate"]], row[at["lateral"]], 1e-6)
		}
		last := x.Rows[steps]
		require.GreaterOrEqual(t, largest, metric(t, got, i, "offset_max"))
		require.InDelta(t, metric(t, got, i, "progress"), last[at["station"]], 0)
		if x.Scenario.Get("car0_present") == 1 {
			require.InDelta(t, metric(t, got, i, "car0_gap_end"), last[at["gap0"]], 0)
		} else {
			for _, name := range []string{"gap0", "car_speed0", "lateral0"} {
				require.True(t, math.IsNaN(last[at[name]]), name)
			}
		}
	}
	require.Equal(t, 1.0, metric(t, got, 3, "collision"))
	require.Less(t, len(traces[3].Rows), 40, "the trace ends with the collision")
	cut := traces[2].Rows
	require.InDelta(t, 3.6, cut[0][at["lateral0"]], 1e-9)
	require.Less(t, cut[40][at["lateral0"]], 3.0)
}

// TestRecord_OfControls: traces have what was commanded and asked for, from which the metrics follow.
func TestRecord_OfControls(t *testing.T) {
	list := asking(rand.New(rand.NewPCG(41, 42)), 5)
	for i := range list {
		list[i].Values[paramRow("duration")] = 2
	}
	step := 0
	ramp := &Callback{Name: "ramp", Act: func(_ context.Context, _ int, _, commands [][]float32) error {
		for i := range commands[0] {
			commands[0][i], commands[1][i] = 1e-4, 0.01*float32(step)
		}
		step++
		return nil
	}}
	r := &Runner{Device: device(t), Tier: Controls}
	got, traces, err := r.Record(t.Context(), list, ramp, 1)
	require.NoError(t, err)
	value := map[string]int{}
	for k, m := range Controls.Metrics() {
		value[m.Name] = k
	}
	for i, x := range traces {
		require.Len(t, x.Rows, 41)
		at := func(k int, name string) float64 { return x.Rows[k][x.Column(name)] }
		var lateral, accel, speed float64
		for k := range 40 {
			require.InDelta(t, min(max(0.01*float64(k), list[i].Get("accel_min")), list[i].Get("accel_max")),
				at(k+1, "accel_command"), 1e-6)
			v := at(k+1, "speed")
			across, along := at(k+1, "lateral")-at(k, "ask_curvature")*v*v, at(k+1, "accel")-at(k, "ask_accel")
			lateral, accel = lateral+across*across/40, accel+along*along/40
			speed = max(speed, math.Abs(v-at(k+1, "ask_speed")))
		}
		row := got.Metrics[i]
		require.InEpsilon(t, row[value["lateral_error"]], math.Sqrt(lateral), 1e-4)
		require.InEpsilon(t, row[value["accel_error"]], math.Sqrt(accel), 1e-4)
		require.InEpsilon(t, row[value["speed_error"]], speed, 1e-4)
	}
}
