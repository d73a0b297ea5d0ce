package modeld_test

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/openpilot"
	"github.com/spark-compile/spark-compile/internal/openpilot/generation"
	"github.com/spark-compile/spark-compile/runtime"
	"github.com/spark-compile/spark-compile/runtime/modeld"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// step compiles generated models to the step of modeld.
func step(t *testing.T, names ...string) *runtime.Program {
	t.Helper()
	var models []*onnx.Model
	for _, name := range names {
		m, err := driving.Made(name, driving.Small)
		require.NoError(t, err)
		file, err := onnx.Decode(name+".onnx", m.ONNX)
		require.NoError(t, err)
		models = append(models, file)
	}
	r, err := compile.Loop(t.Context(), models, openpilot.Options{Largest: generation.VisionIPC(128, 64)}, compile.Options{Precision: "fp32", Targets: []string{"sm_121"}})
	require.NoError(t, err)
	return r.Program
}

func device(t *testing.T) *emu.Device {
	d, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	return d
}

// picture is NV12 of a pattern that moves.
func picture(width, height, frame int) modeld.Picture {
	data := make([]byte, width*height*3/2)
	for i := range data {
		data[i] = byte(i*7 + i/width*13 + frame*29)
	}
	return modeld.Picture{Data: data, Width: width, Height: height}
}

func TestDrivingSteps(t *testing.T) {
	m, err := modeld.NewDriving(t.Context(), step(t, "vision", "policy"), device(t), modeld.Options{})
	require.NoError(t, err)
	defer m.Close()
	camera := modeld.Intrinsics{Focal: 100, Width: 128, Height: 64}
	in := modeld.Inputs{VEgo: 10, Calibration: &modeld.Calibration{Road: camera, WideCamera: camera}}
	drive := func(ids ...uint32) (all []*modeld.Outputs) {
		for _, id := range ids {
			frame := modeld.Frame{Road: picture(128, 64, int(id)), Wide: picture(128, 64, int(id)+1), ID: id}
			if in.Desire = modeld.DesireNone; id > 2 {
				in.Desire = modeld.DesireLaneChangeLeft
			}
			out, err := m.Step(t.Context(), frame, in)
			require.NoError(t, err)
			require.Equal(t, id, out.FrameID)
			all = append(all, out)
		}
		return all
	}
	outs := drive(1, 2, 3, 5, 6)
	for i, out := range outs {
		require.Equal(t, i != 3, out.Ran, "frame 5 comes behind a missed one, and no model runs")
		if !out.Ran {
			require.Equal(t, 1, out.Missed)
			require.Nil(t, out.Plan)
			continue
		}
		require.NotNil(t, out.Plan)
		require.Len(t, out.LaneLines, 4)
		require.Len(t, out.Leads, 3)
		require.Len(t, out.DesireState, 8)
		require.Len(t, out.Raw["policy_outputs"], 1000)
		require.True(t, out.Valid)
	}
	require.NotEqual(t, outs[1].Raw, outs[2].Raw)
	require.NoError(t, m.Reset())
	for i, out := range drive(1, 2, 3, 5, 6) { // what was seen before is forgotten
		require.Equal(t, outs[i].Raw, out.Raw, "step %d after a reset", i)
		require.Equal(t, outs[i].CurvatureCommand, out.CurvatureCommand)
	}
	in.Calibration = nil
	out, err := m.Step(t.Context(), modeld.Frame{Road: picture(128, 64, 0), Wide: picture(128, 64, 0), ID: 7}, in)
	require.NoError(t, err)
	require.False(t, out.Valid)
}

// TestAStepThatNeverBeganLeavesNothing: where the context has ended before it, the next step sees the pulse of its desire, and the frame counts as missed.
func TestAStepThatNeverBeganLeavesNothing(t *testing.T) {
	p := step(t, "vision", "policy")
	camera := modeld.Intrinsics{Focal: 100, Width: 128, Height: 64}
	in := modeld.Inputs{VEgo: 10, Calibration: &modeld.Calibration{Road: camera, WideCamera: camera}}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	var want []*modeld.Outputs
	for _, ends := range []bool{false, true} {
		m, err := modeld.NewDriving(t.Context(), p, device(t), modeld.Options{})
		require.NoError(t, err)
		var have []*modeld.Outputs
		for _, id := range []uint32{1, 2, 3, 5, 6} {
			in.Desire = modeld.DesireNone
			if id > 2 {
				in.Desire = modeld.DesireLaneChangeLeft
			}
			frame := modeld.Frame{Road: picture(128, 64, int(id)), Wide: picture(128, 64, int(id)+1), ID: id}
			if ends {
				_, err := m.Step(gone, frame, in)
				require.ErrorIs(t, err, context.Canceled)
				require.NotErrorIs(t, err, hal.ErrBusy)
			}
			out, err := m.Step(t.Context(), frame, in)
			require.NoError(t, err)
			out.Stats = modeld.Stats{}
			have = append(have, out)
		}
		if !ends {
			want = have
		}
		require.Equal(t, want, have)
		require.NoError(t, m.Close())
	}
}

func TestDriving_Refuses(t *testing.T) {
	p := step(t, "vision", "policy")
	m, err := modeld.NewDriving(t.Context(), p, device(t), modeld.Options{})
	require.NoError(t, err)
	camera := modeld.Intrinsics{Focal: 100, Width: 128, Height: 64}
	good := picture(128, 64, 0)
	short, wide, large := good, picture(64, 64, 0), picture(256, 64, 0)
	short.Data = short.Data[:100]
	for name, c := range map[string]struct {
		frame modeld.Frame
		in    modeld.Inputs
		want  string
	}{
		"short":       {modeld.Frame{Road: short, Wide: good}, modeld.Inputs{}, "the road camera's picture: frame too short: 100 bytes, need 12288"},
		"stride":      {modeld.Frame{Road: good, Wide: modeld.Picture{Data: good.Data, Width: 128, Height: 64, Stride: 64}}, modeld.Inputs{}, "the wide camera's picture: a stride of 64 bytes is shorter"},
		"unlike":      {modeld.Frame{Road: good, Wide: wide}, modeld.Inputs{}, "the wide camera's picture is 64 × 64"},
		"large":       {modeld.Frame{Road: large, Wide: large}, modeld.Inputs{}, "compile it with --camera 256x64"},
		"desire":      {modeld.Frame{Road: good, Wide: good}, modeld.Inputs{Desire: 8}, "desire 8: want 0 to 7"},
		"speed":       {modeld.Frame{Road: good, Wide: good}, modeld.Inputs{VEgo: math.NaN()}, "VEgo is NaN: want a finite number (m/s)"},
		"delay":       {modeld.Frame{Road: good, Wide: good}, modeld.Inputs{LateralDelay: math.Inf(1)}, "LateralDelay is +Inf"},
		"delays":      {modeld.Frame{Road: good, Wide: good}, modeld.Inputs{LongitudinalDelay: math.NaN()}, "LongitudinalDelay is NaN"},
		"calibration": {modeld.Frame{Road: good, Wide: good}, modeld.Inputs{Calibration: &modeld.Calibration{Road: camera}}, "WideCamera"},
	} {
		_, err := m.Step(t.Context(), c.frame, c.in)
		require.ErrorContains(t, err, c.want, name)
	}
	require.NoError(t, m.Close())
	_, err = m.Step(t.Context(), modeld.Frame{}, modeld.Inputs{})
	require.ErrorContains(t, err, "closed")

	_, err = modeld.NewMonitoring(t.Context(), p, device(t), modeld.Options{})
	require.ErrorContains(t, err, "it is a step of driving, not of monitoring")
	_, err = modeld.NewDriving(t.Context(), &runtime.Program{Model: "y.onnx", Inputs: []runtime.Port{{Name: "x"}}}, device(t), modeld.Options{})
	require.ErrorContains(t, err, "y.onnx: it is a model alone, with inputs x, and no step of modeld")
}

func TestMonitoringSteps(t *testing.T) {
	m, err := modeld.NewMonitoring(t.Context(), step(t, "dmonitoring"), device(t), modeld.Options{})
	require.NoError(t, err)
	defer m.Close()
	out, err := m.Step(t.Context(), modeld.DriverFrame{Picture: picture(128, 64, 0), ID: 4}, modeld.MonitoringInputs{})
	require.NoError(t, err)
	require.EqualValues(t, 4, out.FrameID)
	require.NotNil(t, out.Left)
	require.Nil(t, out.Right)
	other, err := m.Step(t.Context(), modeld.DriverFrame{Picture: picture(128, 64, 1)}, modeld.MonitoringInputs{RightHandDrive: true})
	require.NoError(t, err)
	require.NotNil(t, other.Right)
	require.NotEqual(t, out.Raw, other.Raw)
}
