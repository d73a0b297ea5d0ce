package modeld

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/openpilot/generation"
	"github.com/spark-compile/spark-compile/runtime"
)

func TestADesireIsToldOnce(t *testing.T) {
	var e edges
	for step, level := range []int{0, 3, 3, 3, 0, 3, 4, 4} {
		want := [desires]float64{}
		if d := map[int]int{1: 3, 5: 3, 6: 4}[step]; d > 0 {
			want[d] = 1
		}
		require.Equal(t, want, e.pulse(level), "step %d", step)
	}
}

func TestMissedFramesAreCounted(t *testing.T) {
	for _, c := range []struct {
		ids, missed []uint32
	}{
		{[]uint32{0, 1, 2}, []uint32{0, 0, 0}}, {[]uint32{1, 2, 5}, []uint32{0, 0, 2}}, {[]uint32{7, 8}, []uint32{6, 0}},
		{[]uint32{1, math.MaxUint32 - 1, 0}, []uint32{0, 0, 1}}, // from 1 that is backwards; then the wrap, with a frame missing
		{[]uint32{5, 3, 3, 4}, []uint32{4, 0, 0, 0}},
	} {
		var d drops
		for i, id := range c.ids {
			missed, _ := d.next(id)
			require.EqualValues(t, c.missed[i], missed, "%v[%d]", c.ids, i)
		}
	}
	var d drops
	id, ratio := uint32(0), 0.
	for range warmUp {
		id++
		_, ratio = d.next(id)
		require.Zero(t, ratio)
	}
	_, ratio = d.next(id + 4) // 3 missed at once
	require.InDelta(t, .0149254, d.filtered, 1e-7)
	require.InDelta(t, .0147059, ratio, 1e-7)
}

func TestAReplayIsAsSlowAsTheCameras(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pacer
		begin := time.Now()
		for frame, late := range []time.Duration{0, 0, 120 * time.Millisecond, 0, 0, 0} { // the third frame takes longer
			require.NoError(t, p.Wait(t.Context()))
			want := []time.Duration{0, 50, 100, 220, 220, 250}[frame] * time.Millisecond
			require.Equal(t, want, time.Since(begin), "frame %d", frame)
			time.Sleep(late)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, p.Wait(ctx), context.Canceled)
		require.NoError(t, p.Wait(t.Context()))
		require.Equal(t, 300*time.Millisecond, time.Since(begin), "the frame that was not waited for")
	})
}

// path is a plan of speeds and yaw over time.
func path(v, yaw func(t float64) float64) *Plan {
	p := &Plan{}
	for i, t := range TIndex() {
		p.Velocity[i][0], p.Orientation[i][2] = v(t), yaw(t)
	}
	return p
}

// TestCommandsByHand: values that were computed from the formulas.
func TestCommandsByHand(t *testing.T) {
	zero := func(float64) float64 { return 0 }
	steady := path(func(t float64) float64 { return 10 + t }, zero)
	steady.Acceleration[0][0] = 1
	a, stands := rule{}.accelerate(steady, .5)
	require.InDelta(t, 1, a, 1e-9)
	require.False(t, stands)
	growing := path(func(t float64) float64 { return 10 + t*t/2 }, zero)
	for _, c := range []struct {
		rule rule
		t, a float64
	}{{rule{}, .5, .505371}, {rule{}, .2, .209656}, {rule(generation.Named("action").Commands), .2, .309601}} {
		a, _ := c.rule.accelerate(growing, c.t)
		require.InDelta(t, c.a, a, 1e-6)
	}
	turning := path(zero, func(t float64) float64 { return .02 * t })
	turning.OrientationRate[0][2] = .02
	require.InDelta(t, .001, rule{}.steer(turning, 20, .25), 1e-9)
	require.InDelta(t, .02, rule{}.steer(turning, .5, .25), 1e-9, "slower than 1 m/s counts as 1")
	for tau, alpha := range map[float64]float64{.3: .153518, .1: .393469, 0: 1} {
		var last float64
		require.InDelta(t, alpha, smooth(&last, 1, tau), 1e-6)
	}
	m := &Meta{BrakeDisengage: [5]float64{.1, .2, .3, .3, .4}}
	for i, p := range disengagements(m) {
		require.InDelta(t, []float64{.1, .111111, .125, 0, .142857}[i], p, 1e-6)
	}
}

// TestCommandsOfADriveAreTheTwins: frames that are slow, fast, standing, with an action and without, by every release's rule.
func TestCommandsOfADriveAreTheTwins(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var flat []float64
	var outs []*Outputs
	var ins []Inputs
	for frame := range 60 {
		in := Inputs{VEgo: []float64{-.1, .2, .35, .9, 12, 30}[frame%6], LateralDelay: .05 + .3*rng.Float64(), LongitudinalDelay: .3 * rng.Float64()}
		speed, bend := []float64{0, .04, 8}[frame%3], rng.NormFloat64()*.02
		out := &Outputs{Plan: path(func(t float64) float64 { return speed + rng.Float64()*.02*t + float64(frame%2)*math.Exp(-9*t) }, func(t float64) float64 { return bend * t * t })}
		out.Plan.Acceleration[0][0], out.Plan.OrientationRate[0][2] = rng.NormFloat64(), bend
		out.DesiredCurvature = &Number{Value: rng.NormFloat64() * .01}
		action := []float64{math.NaN(), math.NaN()}
		if frame%7 == 3 {
			action = []float64{rng.NormFloat64(), rng.NormFloat64() * .1}
			out.Action = action
		}
		flat = append(flat, in.VEgo, in.LateralDelay, in.LongitudinalDelay, out.DesiredCurvature.Value, action[0], action[1])
		for i := range Points {
			flat = append(flat, out.Plan.Velocity[i][0])
		}
		flat = append(flat, out.Plan.Acceleration[0][0])
		for i := range Points {
			flat = append(flat, out.Plan.Orientation[i][2])
		}
		flat, outs, ins = append(flat, out.Plan.OrientationRate[0][2]), append(outs, out), append(ins, in)
	}
	want := twin(t, "commands", arrays{"drive.frames": flat}, len(flat)/60)
	for name, row := range map[string]string{"0.10.0": "curvature", "0.10.3": "plan", "2026": "action"} {
		c := commands{rule: rule(generation.Named(row).Commands)}
		list := want["drive."+name]
		require.Len(t, list, 180)
		stops := 0.
		for i, out := range outs {
			c.next(out, ins[i])
			stop := 0.
			if out.ShouldStop {
				stop = 1
			}
			stops += stop
			require.InDelta(t, list[3*i], out.AccelerationCommand, 1e-9, "%s, frame %d", name, i)
			require.InDelta(t, list[3*i+1], out.CurvatureCommand, 1e-9, "%s, frame %d", name, i)
			require.Equal(t, list[3*i+2], stop, "%s, frame %d", name, i)
		}
		require.NotZero(t, stops, name)
	}
}

func TestConfidenceIsTheTwins(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	var flat []float64
	var all []*Meta
	for frame := range 400 {
		m, scale := &Meta{}, []float64{.002, .03, .3, .9}[frame/100]
		flat = append(flat, float64(frame))
		for _, to := range []*[5]float64{&m.GasDisengage, &m.BrakeDisengage, &m.SteerDisengage} {
			for i := range to {
				to[i] = scale * rng.Float64() / 3
			}
			flat = append(flat, to[:]...)
		}
		m.Brake3[0], m.Brake5[0] = rng.Float64()*scale*2, rng.Float64()*scale
		flat, all = append(flat, m.Brake3[0], m.Brake5[0]), append(all, m)
	}
	want := twin(t, "confidence", arrays{"drive.frames": flat}, 18)["drive.out"]
	var h metas
	seen := map[string]bool{}
	for i, m := range all {
		hard, confidence := h.next(uint32(i), m)
		got := []float64{0, float64(confidence)}
		if hard {
			got[0] = 1
		}
		require.Equal(t, want[2*i:2*i+2], got, "frame %d", i)
		seen[fmt.Sprint("hard ", hard)], seen[fmt.Sprint(confidence)] = true, true
	}
	require.Len(t, seen, 5, "hard braking and none, and all three classes")
}

// seats are what a driver is, by the twin's names.
func seats(out *MonitoringOutputs, named bool) arrays {
	got := arrays{}
	for side, d := range map[string]*Driver{"lhd": out.Left, "rhd": out.Right} {
		if d == nil {
			continue
		}
		got["m.face_"+side] = append(append(append([]float64{}, d.Orientation[:]...), d.Position[:]...), d.Size)
		got["m.face_stds_"+side] = append(append(append([]float64{}, d.OrientationStd[:]...), d.PositionStd[:]...), d.SizeStd)
		for name, x := range map[string]float64{"face": d.Face, "left_eye": d.LeftEye, "right_eye": d.RightEye, "left_blink": d.LeftBlink,
			"right_blink": d.RightBlink, "sunglasses": d.Sunglasses} {
			got["m."+name+"_prob_"+side] = []float64{x}
		}
		switch {
		case named:
			got["m.using_phone_prob_"+side] = []float64{d.Phone}
		case d.Ready != nil:
			got["m.occluded_prob_"+side], got["m.ready_"+side], got["m.not_ready_"+side] = []float64{d.Occluded}, d.Ready, d.NotReady
		}
	}
	if !math.IsNaN(out.WheelOnRight) {
		got["m.wheel_on_right"] = []float64{out.WheelOnRight}
	}
	return got
}

func TestMonitoringIsTheTwins(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	draw := func(n int) (x []float64) {
		for range n {
			x = append(x, 8*rng.NormFloat64())
		}
		return x
	}
	for _, n := range generation.SeatTotals() {
		x := draw(n)
		out, err := parseMonitoring(vector{values: x}, generation.Named("luma"), false)
		require.NoError(t, err)
		same(t, twin(t, "seats", arrays{"m.outputs": x}, 0), seats(out, false))
	}
	v, in := vector{}, arrays{}
	add := func(name string, n int) {
		x := draw(n)
		v.slices = append(v.slices, runtime.Slice{Name: name, Start: len(v.values), Stop: len(v.values) + n})
		v.values, in["m."+name] = append(v.values, x...), x
	}
	for _, side := range []string{"lhd", "rhd"} {
		add("face_descs_"+side, 12)
		for _, name := range []string{"face", "left_eye", "right_eye", "sunglasses", "left_blink", "right_blink", "using_phone"} {
			add(name+"_prob_"+side, 1)
		}
	}
	add("wheel_on_right", 1)
	out, err := parseMonitoring(v, generation.Named("luma"), false)
	require.NoError(t, err)
	same(t, twin(t, "monitoring", in, 0), seats(out, true))
	_, err = parseMonitoring(vector{values: draw(40)}, generation.Named("luma"), false)
	require.ErrorContains(t, err, "an output of 40 values without named slices")
}
