package scenario

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
)

func device(t *testing.T) hal.Device {
	t.Helper()
	d, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { d.Close() })
	return d
}

// with is the default scenario with some parameters set.
func with(t *testing.T, name string, values map[string]float64) Scenario {
	t.Helper()
	s := Default(name)
	for k, v := range values {
		var err error
		s, err = s.With(k, v)
		require.NoError(t, err)
	}
	return s
}

func metric(t *testing.T, r *Result, loop int, name string) float64 {
	t.Helper()
	for i, m := range Metrics {
		if m.Name == name {
			return r.Metrics[loop][i]
		}
	}
	t.Fatal("no metric", name)
	return 0
}

// constant is a callback that asks for the same in every step.
func constant(curvature, accel float32) *Callback {
	return &Callback{Name: "constant", Act: func(_ context.Context, _ int, _, commands [][]float32) error {
		for i := range commands[0] {
			commands[0][i], commands[1][i] = curvature, accel
		}
		return nil
	}}
}

// TestRunBatch_ClosedForms: what can be said without integrating.
func TestRunBatch_ClosedForms(t *testing.T) {
	fulltest.Long(t)
	r := &Runner{Device: device(t)}
	run := func(a Algorithm, values map[string]float64) func(name string) float64 {
		out, err := r.RunBatch(t.Context(), []Scenario{with(t, "closed", values)}, a, 1, 1)
		require.NoError(t, err)
		return func(name string) float64 { return metric(t, out, 0, name) }
	}
	// Constant steering without slip, lag and delay is a circle: of radius 1000 m, seen from a straight road, offset
	// R(1 - cos φ).
	plain := map[string]float64{"dynamic": 0, "steer_lag": 0, "steer_delay": 0, "speed": 20, "cruise": 20, "duration": 5, "lane_width": 6}
	circle := run(constant(1e-3, 0), plain)
	angle := (20*5 - 20*0.05/2) * 1e-3 // the curvature grows for the first 0.08 s, by 5 m/s³ and 20 m/s: half of that is lost
	require.InEpsilon(t, 1000*(1-math.Cos(angle)), circle("offset_max"), 0.02)
	require.InEpsilon(t, 20*20*1e-3, circle("lateral_accel_max"), 1e-4)
	// The dynamic bicycle settles at the curvature that was asked for: openpilot's model is its steady state.
	plain["dynamic"], plain["steer_lag"], plain["duration"] = 1, 0.1, 4
	require.InEpsilon(t, 20*20*1e-3, run(constant(1e-3, 0), plain)("lateral_accel_max"), 0.02)
	plain["bank"] = 0.05
	require.InEpsilon(t, 20*20*1e-3, run(constant(1e-3, 0), plain)("lateral_accel_max"), 0.04)
	// Step response of the pedal: v = a·(t - delay - lag·(1 - exp(-(t-delay)/lag))), until 3 s.
	pedal := run(constant(0, 1), map[string]float64{"speed": 10, "duration": 3, "accel_delay": 0.2, "accel_lag": 0.5})
	late := 2.8
	gained := late - 0.5*(1-math.Exp(-late/0.5))
	way := 10*3 + late*late/2 - 0.5*late + 0.25*(1-math.Exp(-late/0.5))
	require.InDelta(t, way, pedal("progress"), 0.02+0.01*gained)
	require.InEpsilon(t, 1-math.Exp(-late/0.5), pedal("accel_max"), 1e-4)
	// Braking from 20 m/s with 2 m/s² takes 100 m, and the car stays where it is.
	stop := run(constant(0, -2), map[string]float64{"speed": 20, "duration": 20, "accel_delay": 0, "accel_lag": 0})
	require.InDelta(t, 100, stop("progress"), 0.1)
	// On ice of friction 0.1 nothing brakes harder than that.
	ice := run(constant(0, -3.5), map[string]float64{"speed": 20, "duration": 5, "friction": 0.1})
	require.InEpsilon(t, 0.1*gravity, ice("brake_max"), 1e-5)
	// A car with the intelligent driver model that follows the ego car settles at (s₀ + v·T) / √(1 - (v/v₀)⁴).
	follower := map[string]float64{
		"duration": 60, "speed": 20, "cruise": 20, "car0_present": 1, "car0_idm": 1, "car0_speed0": 30, "car0_gap": -50, "car0_speed1": 30,
	}
	equilibrium := (2 + 20*1.5) / math.Sqrt(1-math.Pow(20.0/30, 4))
	gap := -run(constant(0, 0), follower)("car0_gap_end") - 2*4.7
	require.InEpsilon(t, equilibrium, gap, 1e-3)
}

// TestPID_CorrectsASteadyCrosswind: as strong as the gusts of family crosswind, it moves the car aside, and then no more.
func TestPID_CorrectsASteadyCrosswind(t *testing.T) {
	c, err := BuiltIn("pid")
	require.NoError(t, err)
	var list []Scenario
	for _, wind := range []float64{-1.5, -1, 1, 1.5} {
		for _, speed := range []float64{20, 35} {
			list = append(list, with(t, fmt.Sprintf("%g m/s² at %g m/s", wind, speed), map[string]float64{
				"wind": wind, "wind_start": 0, "wind_length": 100, "speed": speed, "cruise": speed, "duration": 60,
			}))
		}
	}
	r, traces, err := (&Runner{Device: device(t)}).Record(t.Context(), list, c, 1)
	require.NoError(t, err)
	for i, s := range list {
		last := lastOf(r, traces, i)
		require.Greater(t, last["offset_max"], 0.5, s.Name)
		require.Less(t, math.Abs(last["offset"]), 0.02, s.Name)
	}
}

// TestHeadway_IsOfALeadingCar: without one it is the cap at any speed, so that a slower car is not a better one.
func TestHeadway_IsOfALeadingCar(t *testing.T) {
	at := func(name string, speed, gap float64) Scenario {
		values := map[string]float64{"speed": speed, "duration": 1}
		if gap > 0 {
			values["car0_present"], values["car0_gap"] = 1, gap
			for k := range knots {
				values["car0_speed"+digit(k)] = speed
			}
		}
		return with(t, name, values)
	}
	list := []Scenario{at("slow", 5, 0), at("fast", 40, 0), at("behind", 20, 50)}
	r, err := (&Runner{Device: device(t)}).RunBatch(t.Context(), list, constant(0, 0), 1, 1)
	require.NoError(t, err)
	for i, want := range []float64{100, 100, 2.5} {
		require.InEpsilon(t, want, metric(t, r, i, "headway"), 1e-6, list[i].Name)
	}
}

// TestRunBatch_Collides: standing traffic is hit by who does not brake, and not by who does.
func TestRunBatch_Collides(t *testing.T) {
	s := with(t, "standing", map[string]float64{
		"speed": 20, "cruise": 20, "car0_present": 1, "car0_gap": 90, "car0_speed0": 0, "car0_speed1": 0, "car0_speed2": 0, "car0_speed3": 0,
	})
	adjacent := with(t, "beside", map[string]float64{"speed": 20, "car0_present": 1, "car0_gap": 90, "car0_speed0": 0, "car0_lateral": 3.5})
	lost := with(t, "lost", map[string]float64{"speed": 30, "curvature": 0.02, "curve_start": 10, "curve_ramp": 10, "duration": 60})
	r := &Runner{Device: device(t)}
	out, err := r.RunBatch(t.Context(), []Scenario{s, adjacent, lost}, constant(0, 0), 1, 1)
	require.NoError(t, err)
	require.Equal(t, 1.0, metric(t, out, 0, "collision"))
	require.InDelta(t, 4.5, metric(t, out, 0, "duration"), 0.1)
	require.True(t, out.Failed(0))
	require.False(t, out.Failed(1))
	require.Equal(t, 1.0, metric(t, out, 2, "diverged"))
	require.Less(t, metric(t, out, 2, "duration"), 10.0)
	c, err := BuiltIn("pid")
	require.NoError(t, err)
	out, err = r.RunBatch(t.Context(), []Scenario{s, adjacent}, c, 1, 1)
	require.NoError(t, err)
	require.False(t, out.Failed(0), out.Metrics[0])
}

// TestRunBatch_Callback: a callback that computes what the built-in controller does drives the same.
func TestRunBatch_Callback(t *testing.T) {
	fulltest.Long(t)
	r := &Runner{Device: device(t)}
	s := with(t, "curve", map[string]float64{"curvature": 0.005, "duration": 5, "offset": 0.4, "noise_offset": 0.1})
	c, err := BuiltIn("feedforward")
	require.NoError(t, err)
	want, err := r.RunBatch(t.Context(), []Scenario{s}, c, 3, 9)
	require.NoError(t, err)
	at := map[string]int{}
	for i, o := range Observations {
		at[o.Name] = i
	}
	same := &Callback{Name: "go", Act: func(_ context.Context, _ int, seen, commands [][]float32) error {
		copy(commands[0], seen[at["road1"]])
		for i := range commands[1] {
			v := 0.5 * (seen[at["cruise"]][i] - seen[at["speed"]][i])
			commands[1][i] = min(max(v, -2), 1.5)
		}
		return nil
	}}
	got, err := r.RunBatch(t.Context(), []Scenario{s}, same, 3, 9)
	require.NoError(t, err)
	for i := range want.Metrics {
		require.InDeltaSlice(t, want.Metrics[i], got.Metrics[i], 1e-4)
	}
}

func TestRunBatch_RefusesWhatItCannotRun(t *testing.T) {
	r := &Runner{Device: device(t)}
	c, err := BuiltIn("pid")
	require.NoError(t, err)
	s := Default("plain")
	for want, run := range map[string]func() (*Result, error){
		"there is no scenario to run": func() (*Result, error) { return r.RunBatch(t.Context(), nil, c, 1, 1) },
		"each scenario is to run 0 times; want once at least": func() (*Result, error) {
			return r.RunBatch(t.Context(), []Scenario{s}, c, 0, 1)
		},
		`scenario "bad": friction is NaN, want 0.05 to 1.5`: func() (*Result, error) {
			bad := with(t, "bad", nil)
			bad.Values[paramRow("friction")] = math.NaN()
			return r.RunBatch(t.Context(), []Scenario{bad}, c, 1, 1)
		},
		`scenario "turned": car0_time0 is 5 and car0_time1 is 3: points of a speed profile must follow each other`: func() (*Result, error) {
			turned := with(t, "turned", map[string]float64{"car0_time0": 5, "car0_time1": 3})
			return r.RunBatch(t.Context(), []Scenario{turned}, c, 1, 1)
		},
		`algorithm "wild": step 0: curvature of scenario "plain" is NaN`: func() (*Result, error) {
			wild := constant(float32(math.NaN()), 0)
			wild.Name = "wild"
			return r.RunBatch(t.Context(), []Scenario{s}, wild, 1, 1)
		},
		`algorithm "broken": step 0: no luck`: func() (*Result, error) {
			broken := &Callback{Name: "broken", Act: func(context.Context, int, [][]float32, [][]float32) error { return errors.New("no luck") }}
			return r.RunBatch(t.Context(), []Scenario{s}, broken, 1, 1)
		},
		`algorithm "short": step 0: 1 values of acceleration for 2 loops`: func() (*Result, error) {
			short := &Callback{Name: "short", Act: func(_ context.Context, _ int, _, commands [][]float32) error {
				commands[1] = commands[1][:1]
				return nil
			}}
			return r.RunBatch(t.Context(), []Scenario{s}, short, 2, 1)
		},
	} {
		_, err := run()
		require.ErrorContains(t, err, want)
	}
	_, err = Default("x").With("offsett", 1)
	require.ErrorContains(t, err, `scenario "x": no parameter "offsett"; the nearest is "offset"`)
	_, err = Default("x").With("offset", 5)
	require.ErrorContains(t, err, `scenario "x": offset is 5, want -4 to 4 m`)
	_, err = BuiltIn("mpc2")
	require.ErrorContains(t, err, `no algorithm "mpc2": there are pid mpc feedforward`)
}

// TestRunBatch_RunsToTheEnd, of scenarios that last whole entries of several steps, and others.
func TestRunBatch_RunsToTheEnd(t *testing.T) {
	c, err := BuiltIn("pid")
	require.NoError(t, err)
	var list []Scenario
	durations := []float64{0.05, 0.5, 0.55, 1.95, 2}
	for _, d := range durations {
		list = append(list, with(t, "straight", map[string]float64{"duration": d}))
	}
	for _, size := range []int{1, len(list)} {
		r, err := (&Runner{Device: device(t), Batch: size}).RunBatch(t.Context(), list, c, 1, 1)
		require.NoError(t, err)
		for i, d := range durations {
			require.InDelta(t, d, metric(t, r, i, "duration"), 1e-6)
		}
	}
}

// TestTiming_TellsTheFirstStepFromTheOthers, whose mean counts each step once.
func TestTiming_TellsTheFirstStepFromTheOthers(t *testing.T) {
	var x Timing
	x.add(100*time.Millisecond, 10)
	require.Equal(t, Timing{Cold: 10 * time.Millisecond}, x)
	x.add(40*time.Millisecond, 10)
	x.add(16*time.Millisecond, 1)
	x.add(18*time.Millisecond, 1)
	require.Equal(t, 10*time.Millisecond, x.Cold)
	require.InDelta(t, float64(40+16+18)/12, x.Warm.Seconds()*1e3, 1e-4)
}
