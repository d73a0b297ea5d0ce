package scenario

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
)

// tenMinutes is a scenario of that length with some parameters set, all of them numbers that f32 has.
func tenMinutes(set map[string]float64) Scenario {
	s := Default("ten minutes")
	s.Values[paramIndex["duration"]] = 600
	for name, x := range set {
		s.Values[paramIndex[name]] = x
	}
	return rounded(s)
}

// lastOf are the numbers that a loop ended with, by name: its metrics, and those of its trace that are no metrics.
func lastOf(r *Result, traces []Trace, loop int) map[string]float64 {
	last := map[string]float64{}
	rows := traces[loop].Rows
	for k, c := range traces[loop].Columns {
		last[c.Name] = rows[len(rows)-1][k]
	}
	for k, m := range r.Tier.Metrics() {
		last[m.Name] = r.Metrics[loop][k]
	}
	return last
}

// TestLongSums_AreTheTwins: after ten minutes in f32, ways, speeds, gaps and means are those of the twin in
// float64, where f32 rounds a substep's increment the most: on a banked road, with a leading and a following car,
// and for a vehicle that cannot do what it is asked for.
func TestLongSums_AreTheTwins(t *testing.T) {
	fulltest.Long(t)
	const seed, ulp = 7, 0x1p-23
	pid, err := BuiltIn("pid")
	require.NoError(t, err)
	cars := map[string]float64{
		"speed": 59.3, "cruise": 59.3, "bank": 0.02, "noise_offset": 0.05,
		"car0_present": 1, "car0_gap": 80, "car1_present": 1, "car1_gap": -50,
	}
	for k := range knots {
		cars["car0_speed"+digit(k)], cars["car1_speed"+digit(k)] = 59.42, 59.17
	}
	weak := map[string]float64{
		"speed": 5, "accel_max": 0.0437, "ask_time0": 0, "ask_accel0": 0.1, "ask_curvature0": 0.09, "bank": 0.02,
	}
	for _, c := range []struct {
		algorithm Algorithm
		tier      Tier
		scenario  Scenario
	}{{pid, Planner, tenMinutes(cars)}, {Asked, Controls, tenMinutes(weak)}} {
		r, traces, err := (&Runner{Device: device(t), Tier: c.tier}).Record(t.Context(), []Scenario{c.scenario}, c.algorithm, seed)
		require.NoError(t, err)
		got := lastOf(r, traces, 0)
		tw := newTwin(c.scenario)
		for tw.state.alive > 0 {
			if c.tier == Controls {
				tw.stepControls()
			} else {
				tw.step(seed, 0)
			}
		}
		u, e := &tw.state, &tw.errors
		require.Equal(t, 12000.0, u.steps)
		near := func(name string, want, bound float64) {
			t.Logf("%s is %v, the twin's %v", name, got[name], want)
			if x, ok := got[name]; !ok || !(math.Abs(x-want) <= bound) {
				t.Errorf("%s is %v, the twin's %v: more than %.2g apart", name, x, want, bound)
			}
		}
		mean := func(name string, sum float64) {
			x := math.Sqrt(sum / u.steps)
			near(name, x, 2.2e-6*x)
		}
		near("speed", u.speed, 1.2e-6*u.speed)
		mean("jerk", u.jerkSquared)
		mean("lateral_jerk", u.lateralJerkSquared)
		near("oscillation", u.commandChanges/(u.steps*0.05), 1e-7)
		if c.tier == Controls {
			mean("lateral_error", e.lateralSquared)
			mean("accel_error", e.accelSquared)
			continue
		}
		near("station", u.station, ulp*u.station)
		near("gap0", u.gap[0], ulp*u.station)
		near("gap1", u.gap[1], ulp*u.station)
		mean("offset_mean", u.offsetSquared)
	}
}
