package compile

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/ir"
)

// TestAMissedBudgetEndsAMeasurement: a program is run on the worst inputs first, and on no more than it takes to miss a budget. Where
// only what is expected of other inputs misses it, that is all but the perturbed ones, of which nothing is expected.
func TestAMissedBudgetEndsAMeasurement(t *testing.T) {
	r := forced(t, "policy", "fp8", "sm_121")
	opt := Options{Precision: "fp8", MinCosine: .9, Generated: 4, Targets: []string{"sm_121"}}
	y, err := newAccuracyEvaluator(r.Source, &opt)
	require.NoError(t, err)
	all, err := y.measure(t.Context(), r.Program, "sm_121", 0)
	require.NoError(t, err)
	require.Len(t, all, len(y.sets))
	inputs, worst := len(y.all()), slices.Clone(y.worst)
	require.NotEqual(t, slices.Sorted(slices.Values(worst)), worst, "the first input is the worst one: draw others")

	clear(y.known)
	require.True(t, all[len(all)-1].Perturbed)
	others := all[:len(all)-1]
	least := calibrate.Least(calibrate.Worst(others))
	one, err := y.measure(t.Context(), r.Program, "sm_121", least+1e-9)
	require.NoError(t, err)
	require.Len(t, one, 1)
	require.Equal(t, 1, one[0].Inputs)
	require.Equal(t, least, calibrate.Least(one[0].Slices))
	first, set := worst[0], 0
	for ; first >= len(y.sets[set].Inputs); set++ {
		first -= len(y.sets[set].Inputs)
	}
	require.Equal(t, y.sets[set].Name, one[0].Name)

	expected := calibrate.LeastExpected(calibrate.Worst(others))
	require.Less(t, expected, least)
	part, err := y.measure(t.Context(), r.Program, "sm_121", least)
	require.NoError(t, err)
	require.Equal(t, others, part)
	require.Equal(t, expected, calibrate.LeastExpected(calibrate.Worst(part)))

	again, err := y.measure(t.Context(), r.Program, "sm_121", calibrate.LeastExpected(calibrate.Worst(all)))
	require.NoError(t, err)
	require.Equal(t, all, again)
	require.Len(t, y.worst, inputs)
}

// TestCopiesJudgeNothing: nine inputs of zeros are one, none of them is held out, and no perturbed one is unlike it.
func TestCopiesJudgeNothing(t *testing.T) {
	m := small(t, "policy")
	source, err := onnx.Import(m, onnx.ImportOptions{})
	require.NoError(t, err)
	zero := map[string]*npy.Array{}
	for _, v := range source.Inputs {
		zero[v.Name] = &npy.Array{DType: v.Type.DType.String(), Shape: v.Type.Shape, Data: ir.NewArray(v.Type).Tensor().Dense()}
	}
	var warned []string
	opt := Options{Precision: "fp8", MinCosine: .9, Targets: []string{"sm_121"}, Warn: func(text string) { warned = append(warned, text) }}
	opt.Calibrate, err = filepath.Glob(inputFiles(t, slices.Repeat([]map[string]*npy.Array{zero}, 9)) + "/*.npz")
	require.NoError(t, err)
	y, err := newAccuracyEvaluator(source, &opt)
	require.NoError(t, err)
	require.Len(t, y.sets, 1)
	require.Len(t, y.sets[0].Inputs, 1)
	text := strings.Join(warned, "\n")
	require.Contains(t, text, "calibration inputs are copies of others and left out, 8 of 9")
	require.Contains(t, text, "features_buffer is one constant number in 9 of 9")
	require.Contains(t, text, "few calibration inputs (1)")

	r, err := compiled(t.Context(), m, opt)
	require.NoError(t, err)
	require.Len(t, r.Accuracy.Sets, 1)
}
