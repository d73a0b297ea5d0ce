package scenario

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

// knotted gives most of the scenarios roads of drawn knots, with records by distance or time, with leads, or without.
func knotted(rng *rand.Rand, list []Scenario) []Scenario {
	between := func(low, high float64) float64 { return low + (high-low)*rng.Float64() }
	some := func(n int, low, high float64) (out []float64) {
		for range n {
			out = append(out, between(low, high))
		}
		return out
	}
	drive := func(n int, interval float64) (speed []float64) { // within 10 m/s²
		speed = some(1, 0, 40)
		for k := 1; k < n; k++ {
			speed = append(speed, min(max(speed[k-1]+between(-10, 10)*interval, 0), 60))
		}
		return speed
	}
	for i := range list {
		if i%5 == 4 {
			continue
		}
		for _, name := range []string{"curvature", "grade", "bank", "car0_idm"} {
			list[i].Values[paramRow(name)] = 0
		}
		n := 2 + rng.IntN(30)
		r := &Road{Spacing: between(1, 8), Curvature: some(n, -0.02, 0.02)}
		if i%2 == 0 {
			r.Grade, r.Bank = some(n, -0.05, 0.05), some(n, -0.05, 0.05)
		}
		switch i % 5 {
		case 1:
			r.Speed = some(n, 0, 40)
		case 2, 3:
			r.Interval, n = between(0.05, 0.4), 2+rng.IntN(30)
			r.Speed = drive(n, r.Interval)
		}
		if i%5 == 3 {
			r.LeadSpeed, r.Lead = drive(n, r.Interval), some(1, 5, 60)
			for k := 1; k < n; k++ {
				r.Lead = append(r.Lead, r.Lead[k-1]+r.LeadSpeed[k]*r.Interval)
			}
		}
		list[i].Road = r
	}
	return list
}

// TestRoad_IsItsTwin: loops with and without knots, in one step.
func TestRoad_IsItsTwin(t *testing.T) {
	fulltest.Long(t)
	rng := rand.New(rand.NewPCG(7, 8))
	stepsAreTheTwins(t, knotted(rng, drawn(rng, 10000)))
}

func TestRoad_OnTheDevice(t *testing.T) {
	fulltest.Long(t)
	rng := rand.New(rand.NewPCG(21, 10))
	kernelsAreTheTwins(t, knotted(rng, drawn(rng, 1000)))
}

// TestRoad_IsTheSameInAnyBatch, to the bit, of loops that have knots and of those that do not, also where none of the
// batch has.
func TestRoad_IsTheSameInAnyBatch(t *testing.T) {
	fulltest.Long(t)
	d, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	defer d.Close()
	checked, err := emu.Open(emu.Options{Check: true})
	require.NoError(t, err)
	defer checked.Close()
	c, err := BuiltIn("pid")
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(11, 12))
	list := knotted(rng, drawn(rng, 5))
	for i := range list {
		list[i].Values[paramRow("duration")] = min(0.6, list[i].Get("duration"))
		list[i].Stream = uint64(i+1) << 32
	}
	var want [][]float64
	for size, d := range map[int]hal.Device{0: d, 7: d, 10: checked} {
		r, err := (&Runner{Device: d, Batch: size}).RunBatch(t.Context(), list, c, 2, 5)
		require.NoError(t, err)
		if want == nil {
			want = r.Metrics
		}
		require.Equal(t, want, r.Metrics, "batches of %d", size)
	}
	for i, s := range list[3:] { // with knots, and without
		r, err := (&Runner{Device: d}).RunBatch(t.Context(), []Scenario{s}, c, 2, 5)
		require.NoError(t, err)
		require.Equal(t, want[6+2*i:8+2*i], r.Metrics, "alone: %s", s.Name)
	}
}

// TestRoad_OfOneCurve: knots of a curve give what its parameters give.
func TestRoad_OfOneCurve(t *testing.T) {
	fulltest.Long(t)
	d, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	defer d.Close()
	c, err := BuiltIn("pid")
	require.NoError(t, err)
	formula := Default("formula")
	for name, x := range map[string]float64{
		"curvature": 0.003, "curve_start": 60, "curve_ramp": 20, "curve_length": 80, "bank": 0.02, "grade": 0.01, "duration": 10,
	} {
		formula, err = formula.With(name, x)
		require.NoError(t, err)
	}
	knots := Default("knots")
	knots.Values[paramRow("duration")] = 10
	knots.Road = &Road{Spacing: 20, Curvature: []float64{0, 0, 0, 0, 0.003, 0.003, 0.003, 0.003, 0.003, 0, 0}}
	for range knots.Road.Curvature {
		knots.Road.Bank, knots.Road.Grade = append(knots.Road.Bank, 0.02), append(knots.Road.Grade, 0.01)
	}
	r, err := (&Runner{Device: d}).RunBatch(t.Context(), []Scenario{formula, knots}, c, 1, 5)
	require.NoError(t, err)
	for k, m := range Metrics {
		require.InDelta(t, r.Metrics[0][k], r.Metrics[1][k], 1e-5*math.Max(1, math.Abs(r.Metrics[0][k])), m.Name)
	}
	require.Greater(t, metric(t, r, 1, "offset_max"), 0.01, "the road turns")
}

// TestRoad_IsDrivenAsRecorded: the controller follows recorded speeds, by distance and by time, and a recorded lead is a
// car to keep away from.
func TestRoad_IsDrivenAsRecorded(t *testing.T) {
	fulltest.Long(t)
	d, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	defer d.Close()
	c, err := BuiltIn("pid")
	require.NoError(t, err)
	base := Default("record")
	base.Values[paramRow("duration")], base.Values[paramRow("speed")] = 20, 20
	with := func(r Road) Scenario {
		s := base
		s.Road = &r
		return s
	}
	straight := []float64{0, 0, 0, 0, 0}
	list := []Scenario{
		with(Road{Spacing: 100, Curvature: straight, Speed: []float64{20, 20, 15, 15, 15}}),
		with(Road{Spacing: 100, Curvature: straight, Interval: 5, Speed: []float64{20, 20, 15, 15, 15}}),
		with(Road{Spacing: 100, Curvature: straight, Interval: 5, Speed: []float64{20, 20, 20, 20, 20},
			Lead: []float64{50, 125, 200, 275, 350}, LeadSpeed: []float64{15, 15, 15, 15, 15}}),
	}
	for i := range list {
		list[i].Stream = uint64(i+1) << 32
	}
	list[2].Values = append([]float64{}, list[2].Values...)
	list[2].Values[paramRow("car0_present")] = 1
	r, traces, err := (&Runner{Device: d}).Record(t.Context(), list, c, 1)
	require.NoError(t, err)
	speed := traces[0].Column("speed")
	for i := range traces {
		last := traces[i].Rows[len(traces[i].Rows)-1]
		require.InDelta(t, 15, last[speed], 0.3, "scenario %d", i)
	}
	require.InDelta(t, 20, traces[1].Rows[100][speed], 0.01, "5 s: it has not begun to brake")
	require.Less(t, metric(t, r, 1, "speed_error"), 1.2)
	require.Greater(t, metric(t, r, 1, "speed_error"), 0.1)
	gap, station := traces[2].Column("gap0"), traces[2].Column("station")
	for k, row := range traces[2].Rows[1:] {
		require.InDelta(t, 50+15*float64(k+1)*Step, row[gap]+row[station], 0.01)
	}
	require.Zero(t, metric(t, r, 2, "collision"))
	require.Less(t, metric(t, r, 2, "headway"), 2.6)
}

func TestRoad_StepIsThreeLaunches(t *testing.T) {
	fulltest.Long(t)
	c, err := BuiltIn("pid")
	require.NoError(t, err)
	d := &design{loops: 1024, float: ir.Float32, controller: c, knots: 256}
	r, err := d.compiled(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, 3, len(r.Program.Variants[0].Entries[0].Launches))
	assemble(t, d)
}
