package teacher

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// TestValuesAreThoseOfTheFile: outputs and inner values, in a batch, against the evaluator in float64. One precision keeps what the file
// says, whose outputs are given in f32 too.
func TestValuesAreThoseOfTheFile(t *testing.T) {
	for _, name := range []string{"policy", "vision", "dmonitoring"} {
		file := model(t, name, driving.Tiny)
		g, err := onnx.Import(file, onnx.ImportOptions{})
		require.NoError(t, err)
		var inner []string
		for _, n := range g.Nodes {
			if n.Op.Name == "MatMul" || n.Op.Name == "Conv" {
				inner = append(inner, n.Outputs[0].Name)
			}
		}
		inner = []string{inner[0], inner[len(inner)/2]}
		keys, inputs := samples(t, file, 3)
		require.NoError(t, give(g, &Options{Values: inner}))
		for _, precision := range []string{"fp32", "file"} {
			if precision == "file" && name != "policy" {
				continue
			}
			got := values(t, open(t, file, Options{Precision: precision, Batch: 2, Values: inner}), keys, inputs)
			for i, in := range calibrate.Generate(g, 3) {
				want, err := ir.Evaluate(context.Background(), g, in, ir.EvalOptions{})
				require.NoError(t, err)
				for _, v := range g.Outputs {
					assert.Less(t, miss(want[v.Name].F, got[i][v.Name]), 1e-4, "%s of %s in %s", v.Name, name, precision)
				}
				assert.Len(t, got[i], len(g.Outputs))
			}
		}
	}
}

// miss is the relative error of y.
func miss(x []float64, y []float32) float64 {
	if len(x) != len(y) {
		return math.Inf(1)
	}
	var d, all float64
	for i := range x {
		d += (x[i] - float64(y[i])) * (x[i] - float64(y[i]))
		all += x[i] * x[i]
	}
	return math.Sqrt(d / all)
}

// TestATeacherIsFittedToInputs: in 8 bits, by inputs that are given for single samples, within the budget, in batches and alone.
func TestATeacherIsFittedToInputs(t *testing.T) {
	file := model(t, "policy", driving.Tiny)
	keys, inputs := samples(t, file, 16)
	want := values(t, open(t, file, Options{Precision: "fp32", Batch: 8}), keys[8:], inputs[8:])
	var warnings []string
	teacher := open(t, file, Options{Precision: "fp8", Batch: 2, Calibrate: inputs[:15], MinCosine: 0.999, Warn: func(s string) { warnings = append(warnings, s) }})
	got := values(t, teacher, keys[8:], inputs[8:])
	for i := range got {
		x := make([]float64, len(want[i]["outputs"]))
		for k, v := range want[i]["outputs"] {
			x[k] = float64(v)
		}
		assert.Less(t, miss(x, got[i]["outputs"]), 0.06)
		assert.NotEqual(t, want[i], got[i])
	}
	assert.False(t, slices.ContainsFunc(warnings, func(s string) bool { return len(s) > 16 && s[:16] == "no --calibrate: " }), warnings)
}

// TestAModelWithStatesGetsThemAsInputs: each sample's own, whatever ran before.
func TestAModelWithStatesGetsThemAsInputs(t *testing.T) {
	file := model(t, "supercombo", driving.Tiny)
	keys, inputs := samples(t, file, 3)
	teacher := open(t, file, Options{Precision: "fp32", Batch: 2})
	want := values(t, teacher, keys, inputs)
	require.Contains(t, want[0], "next_state_memory")
	slices.Reverse(inputs)
	got := values(t, teacher, keys, inputs)
	slices.Reverse(got)
	assert.Equal(t, want, got)
}

// TestTeacherValues_NamesFaults: of options and samples.
func TestTeacherValues_NamesFaults(t *testing.T) {
	file := model(t, "policy", driving.Tiny)
	keys, inputs := samples(t, file, 2)
	for want, opt := range map[string]Options{
		`teacher: policy.onnx: it computes no value "x"`: {Values: []string{"x"}},
		"teacher: a batch of -1 samples: give 1 or more": {Batch: -1},
		`precision "fp2"`:                          {Precision: "fp2"},
		"teacher: policy.onnx: calibration: input": {Precision: "fp8", Calibrate: []map[string][]byte{{}}},
	} {
		_, err := Open(context.Background(), file, device(t, false), opt)
		assert.ErrorContains(t, err, want)
	}
	teacher := open(t, file, Options{Precision: "fp32", Batch: 1})
	_, err := teacher.Values(context.Background(), keys, inputs[:1])
	assert.EqualError(t, err, "teacher: 2 keys for 1 samples")
	_, err = teacher.Values(context.Background(), keys[:1], []map[string][]byte{{"desire_pulse": inputs[0]["desire_pulse"]}})
	assert.EqualError(t, err, `teacher: policy.onnx: sample route--0/0: it has no input "traffic_convention"; it has desire_pulse`)
	short := map[string][]byte{}
	for name, data := range inputs[0] {
		short[name] = data[:4]
	}
	_, err = teacher.Values(context.Background(), keys[:1], []map[string][]byte{short})
	assert.EqualError(t, err, `teacher: policy.onnx: sample route--0/0: input "desire_pulse" has 4 bytes, want 800`)
	none, err := teacher.Values(context.Background(), nil, nil)
	require.NoError(t, err)
	assert.Empty(t, none)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = teacher.Values(ctx, keys, inputs)
	assert.ErrorIs(t, err, context.Canceled)
}

// TestSpreadsAreVariances: the mean over elements.
func TestSpreadsAreVariances(t *testing.T) {
	assert.Equal(t, map[string]float64{"a": 1, "b": 0}, Spreads([]map[string][]float32{{"a": {1, 5}, "b": {2}}, {"a": {3, 7}, "b": {2}}}))
	assert.InDelta(t, (2./3+8./3)/2, Spreads([]map[string][]float32{{"a": {1, 0}}, {"a": {2, 2}}, {"a": {3, 4}}})["a"], 1e-12)
	assert.Empty(t, Spreads(nil))
}
