package loss

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/dora"
	"github.com/spark-compile/spark-compile/dora/teacher"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/runtime"
)

// TestAStudentReachesItsTeacher: a model with a disturbed adapter is trained on batches of the values that the model itself gives, outputs
// and an inner one. The loss falls to less than a fifth.
func TestAStudentReachesItsTeacher(t *testing.T) {
	ctx := context.Background()
	const samples = 4
	file := model(t, "policy010")
	m, err := dora.Open(file, onnx.ImportOptions{Batch: samples})
	require.NoError(t, err)
	terms, err := Driving(file, map[string]float64{"plan": 1, "desire_state": 1, "desired_curvature": 1, "features:" + layers(t, file)[0]: 100})
	require.NoError(t, err)
	d, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })

	of, err := teacher.Open(ctx, file, d, teacher.Options{Precision: "fp32", Batch: samples, Values: terms.Inner()})
	require.NoError(t, err)
	g, err := onnx.Import(file, onnx.ImportOptions{})
	require.NoError(t, err)
	inputs := calibrate.Bytes(calibrate.Generate(g, samples))
	values, err := of.Values(ctx, make([]string, samples), inputs)
	require.NoError(t, err)
	require.NoError(t, of.Close())

	a, err := dora.Init(m, dora.InitOptions{Rank: 4, Alpha: 4, Seed: 3})
	require.NoError(t, err)
	for _, l := range a.Layers {
		for i := range l.B {
			l.B[i] = float32(0.05 * math.Sin(float64(7*i)))
		}
	}
	s, err := dora.NewStep(ctx, m, a, dora.StepOptions{Precision: "bf16", Loss: terms.Build, ClipNorm: 1})
	require.NoError(t, err)
	tr, err := s.Open(ctx, d)
	require.NoError(t, err)
	defer func() { require.NoError(t, tr.Close()) }()
	for name := range inputs[0] {
		var all []byte
		for _, in := range inputs {
			all = append(all, in[name]...)
		}
		require.NoError(t, tr.Session().Set(name, all))
	}
	for _, name := range terms.Targets() {
		var all []float32
		for _, v := range values {
			all = append(all, v[name]...)
		}
		require.NoError(t, tr.Session().Set(dora.Target(name), runtime.Bytes(all)))
	}
	var losses []float64
	for range 60 {
		r, err := tr.Step(ctx, 5e-3)
		require.NoError(t, err)
		require.True(t, r.Applied)
		sum := 0.0
		for _, m := range terms {
			sum += m.Weight * r.Terms[m.Name]
		}
		require.InEpsilon(t, sum, r.Loss, 1e-5)
		losses = append(losses, r.Loss)
	}
	t.Logf("%.3g", losses)
	assert.Less(t, losses[len(losses)-1], losses[0]/5)
}

// TestInnerValuesAreThoseThatTheFileNames: those of a student that has learnt nothing are the teacher's, in a batch, whatever passes have made of the graph.
func TestInnerValuesAreThoseThatTheFileNames(t *testing.T) {
	ctx := context.Background()
	const samples = 2
	for _, name := range []string{"policy010", "dmonitoring", "vision"} {
		if name == "vision" && !fulltest.Runs(t.Name()) {
			continue // many layers
		}
		file := model(t, name)
		weights := map[string]float64{}
		for _, value := range layers(t, file) {
			weights["features:"+value] = 1
		}
		terms, err := Driving(file, weights)
		require.NoError(t, err)
		require.Greater(t, len(terms.Inner()), 4)
		tr := step(t, name, "fp32", samples, terms)
		d, err := emu.Open(emu.Options{})
		require.NoError(t, err)
		of, err := teacher.Open(ctx, file, d, teacher.Options{Precision: "fp32", Batch: samples, Values: terms.Inner()})
		require.NoError(t, err)
		g, err := onnx.Import(file, onnx.ImportOptions{Batch: samples})
		require.NoError(t, err)
		in := calibrate.Bytes(calibrate.Generate(g, 1))[0]
		inputs := make([]map[string][]byte, samples)
		for i := range inputs {
			inputs[i] = map[string][]byte{}
			for name, data := range in {
				inputs[i][name] = data[i*len(data)/samples : (i+1)*len(data)/samples]
			}
		}
		values, err := of.Values(ctx, make([]string, samples), inputs)
		require.NoError(t, err)
		require.NoError(t, of.Close())
		require.NoError(t, d.Close())
		for name, data := range in {
			require.NoError(t, tr.Session().Set(name, data))
		}
		for _, value := range terms.Targets() {
			var all []float32
			for _, v := range values {
				all = append(all, v[value]...)
			}
			require.NoError(t, tr.Session().Set(dora.Target(value), runtime.Bytes(all)))
		}
		_, err = tr.Evaluate(ctx)
		require.NoError(t, err)
		for term, v := range tr.Terms() {
			assert.Less(t, v, 1e-9, "%s of %s", term, name)
		}
	}
}
