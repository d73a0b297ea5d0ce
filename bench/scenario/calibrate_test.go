package scenario

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

// TestCalibration_IsWhatTheNetworkSaw: in every file the time of its step, and of the state, a count of steps, what it was
// before that one.
func TestCalibration_IsWhatTheNetworkSaw(t *testing.T) {
	m := policyFile(t, func(b *onnx.Builder) {
		k := len(Observations)
		b.Input("observation", ir.Float32, "N", k)
		b.Input("state_count", ir.Float32, "N", 1)
		b.Node("Add", []string{"state_count", weight(b, "one", func(int) float64 { return 1 }, 1, 1)}, []string{"next_state_count"})
		none := weight(b, "none", func(int) float64 { return 0 }, k, 2)
		b.Node("MatMul", []string{"observation", none}, []string{"action"})
		b.Output("action", ir.Float32, "N", 2)
		b.Output("next_state_count", ir.Float32, "N", 1)
	})
	n, err := (&Policy{ONNX: m, Precision: "fp8"}).load(policyLoops)
	require.NoError(t, err)
	d := &design{loops: policyLoops, float: ir.Float32, policy: n, calibration: t.TempDir()}
	require.NoError(t, d.record(t.Context(), &Runner{Device: device(t)}))
	files, err := filepath.Glob(filepath.Join(d.calibration, "*.npz"))
	require.NoError(t, err)
	require.Len(t, files, calibrationSets)
	for i, path := range files {
		arrays, err := npy.ReadZip(path)
		require.NoError(t, err)
		require.Len(t, arrays, 2)
		seen, err := arrays[networkSeen].Float64s()
		require.NoError(t, err)
		count, err := arrays["state_count"].Float64s()
		require.NoError(t, err)
		steps := float64(i * calibrationEvery)
		for loop := range policyLoops {
			at := fmt.Sprintf("%s, loop %d", filepath.Base(path), loop)
			require.InDelta(t, Step*steps, seen[loop*len(Observations)+observed("time")], 1e-6, at)
			require.Equal(t, steps, count[loop], at)
		}
	}
}

// TestPolicy_InAPrecisionThatIsCalibrated is the same in any company, and fp16 where that is as fast.
func TestPolicy_InAPrecisionThatIsCalibrated(t *testing.T) {
	fulltest.Long(t)
	m := policyFile(t, perceptron)
	list := drawn(rand.New(rand.NewPCG(3, 4)), 5)
	for i := range list {
		list[i].Values[paramRow("duration")] = 0.5
	}
	var warnings []string
	r := &Runner{Device: device(t), Warn: func(text string) { warnings = append(warnings, text) }}
	p := &Policy{Name: "nvfp4", ONNX: m, Precision: "nvfp4"}
	half, err := r.RunBatch(t.Context(), list, p, 2, 5)
	require.NoError(t, err)
	require.Len(t, warnings, 1)
	require.Contains(t, warnings[0], "no layer is faster in nvfp4 within a budget of 0.999: the program is in fp16; a lower --min-cosine takes")
	require.Equal(t, map[string]int{"fp16": 3}, half.Layers)
	same, err := r.RunBatch(t.Context(), list, &Policy{Name: "fp16", ONNX: m, Precision: "fp16"}, 2, 5)
	require.NoError(t, err)
	require.Equal(t, same.Metrics, half.Metrics)
	require.Equal(t, same.Program.Variants[0].PTX, half.Program.Variants[0].PTX, "the program is that in fp16")
	require.Nil(t, same.Layers)
	r.MinCosine = new(float64)
	got, err := r.RunBatch(t.Context(), list, p, 2, 5)
	require.NoError(t, err)
	require.NotEqual(t, half.Metrics, got.Metrics)
	require.Equal(t, map[string]int{"fp8": 2, "fp8 weights": 1}, got.Layers)
	for i, row := range half.Metrics {
		require.Equal(t, row[len(row)-1], got.Metrics[i][len(row)-1], "loop %d: seconds", i)
	}
	fewer, err := r.RunBatch(t.Context(), list[:1], p, 2, 5)
	require.NoError(t, err)
	require.Equal(t, got.Metrics[:2], fewer.Metrics, "calibrated on the same loops")
}

// TestCalibration_OfARecordingIsOfDrawnPictures, so that models are the same whatever loops see.
func TestCalibration_OfARecordingIsOfDrawnPictures(t *testing.T) {
	fulltest.Long(t)
	s := bendRoad(t)
	m := modelsOf(t, "vision", "policy")
	var want map[string][]byte
	for _, recorded := range []bool{false, true} {
		l, err := m.load(modelLoops)
		require.NoError(t, err)
		d := &design{loops: modelLoops, float: ir.Float32, models: l, view: l.view, calibration: t.TempDir()}
		if recorded {
			require.NoError(t, d.show(t.Context(), filmed(s, 8, [3]float64{}, middle(4, 1)...), m, []Scenario{s}))
		}
		require.NoError(t, d.record(t.Context(), &Runner{Device: device(t)}))
		require.Equal(t, recorded, d.view.film != nil)
		got := map[string][]byte{}
		arrays, err := npy.ReadZip(filepath.Join(d.calibration, fmt.Sprintf("step%04d.npz", calibrationEvery)))
		require.NoError(t, err)
		for name, a := range arrays {
			got[name] = a.Data
		}
		if want == nil {
			want = got
		}
		require.Equal(t, want, got)
	}
}
