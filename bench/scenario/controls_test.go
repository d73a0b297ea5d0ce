package scenario

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

// asking are drawn vehicles that drawn things are asked of, at ascending times.
func asking(rng *rand.Rand, n int) []Scenario {
	list := drawn(rng, n)
	for i := range list {
		set := func(name string, value float64) { list[i].Values[paramRow(name)] = value }
		for k := range asks {
			set("ask_time"+digit(k), 0.3*(float64(k)+rng.Float64()))
			set("ask_accel"+digit(k), -4+8*rng.Float64())
			set("ask_curvature"+digit(k), 0.04*(rng.Float64()-0.5))
		}
	}
	return list
}

// TestControls_IsItsTwin: 10,000 drawn vehicles from the start for some steps, by the evaluator in float64.
func TestControls_IsItsTwin(t *testing.T) {
	fulltest.Long(t)
	const loops, steps = 10000, 30
	g, kept, err := (&design{loops: loops, float: ir.Float64, controller: Asked, tier: Controls}).graph("")
	require.NoError(t, err)
	list := asking(rand.New(rand.NewPCG(11, 12)), loops)
	twins := make([]*twin, loops)
	in := map[string]*ir.Array{}
	for _, v := range g.Inputs {
		in[v.Name] = ir.NewArray(v.Type)
	}
	for i, s := range list {
		twins[i] = newTwin(s)
		for k, x := range s.table() {
			in[inputParams].F[k*loops+i] = x
		}
		for _, name := range controlStates {
			in[name].F[i] = *twins[i].numbers[name]
		}
	}
	worst := 0.0
	for step := range steps {
		out, err := ir.Evaluate(t.Context(), g, in, ir.EvalOptions{})
		require.NoError(t, err)
		for _, k := range kept {
			if k.Output != "" {
				in[k.Input] = out[k.Output]
			}
		}
		for i, tw := range twins {
			tw.stepControls()
			got := func(name string) float64 { return in[name].F[i] }
			worst = max(worst, near(t, controlStates, tw.numbers, got, 1e-9, fmt.Sprint(step, " ", list[i].Name)))
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	t.Logf("%d steps of %d loops: worst %.2g", steps, loops, worst)
}

// TestControls_ClosedForms: the vehicle answers openpilot's maneuvers as its delay and lag say, and a curvature by
// openpilot's own limits.
func TestControls_ClosedForms(t *testing.T) {
	value := func(r *Result, loop int, name string) float64 {
		for k, m := range Controls.Metrics() {
			if m.Name == name {
				return r.Metrics[loop][k]
			}
		}
		t.Fatal("no metric", name)
		return 0
	}
	gas, err := ControlFamilies[5].Draw(1, 0)
	require.NoError(t, err)
	gas.Values[paramRow("accel_delay")], gas.Values[paramRow("accel_lag")] = 0.2, 0.5
	gas.Values[paramRow("duration")] = gas.Get("ask_time0") + 3
	turn := with(t, "turn", map[string]float64{"ask_time0": 1, "ask_curvature0": 0.002, "speed": 20, "duration": 5})
	list := []Scenario{gas, turn}
	r, err := (&Runner{Device: device(t), Tier: Controls}).RunBatch(t.Context(), list, Asked, 1, 1)
	require.NoError(t, err)
	require.Equal(t, Controls, r.Tier)
	// v = v₀ + a·(t - delay - lag·(1 - exp(-(t-delay)/lag))) after 3 s of 1 m/s².
	late := 2.8
	gained := late - 0.5*(1-math.Exp(-late/0.5))
	require.InDelta(t, gas.Get("speed")+gained, value(r, 0, "speed_end"), 0.01)
	require.InDelta(t, 3-gained, value(r, 0, "speed_error"), 0.01)
	require.InEpsilon(t, 20*20*0.002, value(r, 1, "lateral_accel_max"), 0.05)
	require.InEpsilon(t, 20*20*0.002, value(r, 1, "lateral_error_max"), 0.05,
		"at first it has none of what is asked for")
	require.Zero(t, value(r, 1, "accel_error"))
	// The same algorithms run, and a callback sees the same.
	pid, err := BuiltIn("pid")
	require.NoError(t, err)
	for _, a := range []Algorithm{pid, constant(0.001, 0)} {
		r, err := (&Runner{Device: device(t), Tier: Controls}).RunBatch(t.Context(), list, a, 1, 1)
		require.NoError(t, err)
		require.False(t, r.Failed(0))
	}
}

// TestControls_Maneuvers: each is drawn, and runs to its end.
func TestControls_Maneuvers(t *testing.T) {
	var list []Scenario
	for i := range ControlFamilies {
		for k := range 2 {
			s, err := ControlFamilies[i].Draw(3, k)
			require.NoError(t, err)
			list = append(list, s)
		}
	}
	r, err := (&Runner{Device: device(t), Tier: Controls}).RunBatch(t.Context(), list, Asked, 1, 1)
	require.NoError(t, err)
	for i, row := range r.Metrics {
		require.InDelta(t, list[i].Get("duration"), row[len(row)-1], 0.051, list[i].Name)
		require.Less(t, row[1], 1.0, list[i].Name)
	}
}

func TestControls_RefusesWhatSeesARoad(t *testing.T) {
	s := []Scenario{Default("plain")}
	for want, run := range map[string]func() error{
		`algorithm "asked" commands what scenarios ask for in tier controls: run it in that one`: func() error {
			_, err := (&Runner{Device: device(t)}).RunBatch(t.Context(), s, Asked, 1, 1)
			return err
		},
		`algorithm "seeing" sees pictures: tier controls has none, so controllers, policies and callbacks that act drive there`: func() error {
			_, err := (&Runner{Device: device(t), Tier: Controls}).RunBatch(t.Context(), s, &Models{Name: "seeing"},
				1, 1)
			return err
		},
		"there is no tier 7: want scenario.Planner or scenario.Controls": func() error {
			_, err := (&Runner{Device: device(t), Tier: 7}).RunBatch(t.Context(), s, Asked, 1, 1)
			return err
		},
		`family "brake-1" is of tier controls, and this one is planner in abstract state: run it in its own`: func() error {
			_, _, err := Load(t.Context(), "curve", "brake-1")
			return err
		},
		`family "curve" is of tier planner in abstract state, and this one is controls`: func() error {
			_, _, err := Controls.Load(t.Context(), "curve")
			return err
		},
		`no tier "control": there are planner, controls and model`: func() error {
			_, err := TierNamed("control")
			return err
		},
	} {
		require.ErrorContains(t, run(), want)
	}
}
