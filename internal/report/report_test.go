package report_test

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/report"
)

func sample() *report.Report {
	return &report.Report{Version: report.Version, Program: report.Program{Model: "toy.onnx", Precision: "fp8"},
		Layers: []report.Layer{
			{calibrate.LayerChoice{Name: "a", Op: "Conv", Precision: "fp8", MACs: 3e6, Weights: 1000, Alone: .01, InPlace: .02}, compile.Weight{Nodes: []string{"/narrow/stem/Conv", "/wide/stem/Conv"}, Bytes: 1100, HalfBytes: 2000}, 1.5},
			{calibrate.LayerChoice{Name: "b", Op: "MatMul", Precision: "fp16", MACs: 1e6, Weights: 250, Alone: .3, Why: "fp8 costs 0.3 of the outputs alone"}, compile.Weight{Nodes: []string{"/heads.0/0/Gemm", "/heads.1/1/Gemm", "/heads.2/2/Gemm"}, Bytes: 500, HalfBytes: 500, With: []string{"norm"}}, 2},
		},
		Slices: []calibrate.Quality{
			{Name: "y", Set: "validation", Cosine: .9995, Expected: .9986, MaxAbs: .1, RelL2: .03, Explained: known(.97), Elements: 10},
			{Name: "y.part", Set: "validation", Cosine: .9991, Expected: .9991, MaxAbs: .1, RelL2: .04, Elements: 2, Constant: true, Pooled: true},
		},
		Sets: []calibrate.SetQuality{
			{Name: compile.CalibrationSet, Inputs: 16, Fitted: true, Slices: []calibrate.Quality{{Name: "y", Cosine: .9999, Elements: 10, Explained: known(1)}}},
			{Name: compile.ValidationSet, Inputs: 4, Slices: []calibrate.Quality{
				{Name: "y", Cosine: .9995, MaxAbs: .1, RelL2: .03, Explained: known(.97), Elements: 10},
				{Name: "y.part", Cosine: .9991, MaxAbs: .1, RelL2: .04, Elements: 2, Constant: true, Pooled: true},
			}},
		},
		Others: []compile.Measured{{Target: "sm_90", Sets: []calibrate.SetQuality{
			{Name: compile.ValidationSet, Inputs: 4, Slices: []calibrate.Quality{{Name: "y", Cosine: .9, Elements: 10}}}}}},
		Reference:   &compile.Reference{Inputs: 20, Float64: 2, FP32RelL2: known(4e-7), Where: "y.part"},
		Calibration: &report.Calibration{Inputs: 16, MinCosine: known(.999)},
		Predicted: []report.Prediction{
			{Program: report.Program{Precision: "fp16", Launches: 3, WeightsBytes: 2e6}, Device: "gb10", US: 10, ColdUS: 20, Range: cost.Figure{Low: 8.4, Middle: 10, High: 13}, ColdRange: cost.Figure{Low: 16, Middle: 20, High: 27}},
			{Program: report.Program{Precision: "fp8", Launches: 3, WeightsBytes: 1e6}, Device: "gb10", US: 8, ColdUS: 10, Range: cost.Figure{Low: 7, Middle: 8, High: 9.6}, ColdRange: cost.Figure{Low: 9, Middle: 10, High: 12}},
		}}
}

func TestReport_TextForPeople(t *testing.T) {
	var got bytes.Buffer
	sample().PrintVerdict(&got)
	require.Equal(t, `predicted on gb10: fp8 8.0 (7 to 10) µs, with cold weights 10.0 (9 to 12)
predicted on gb10: fp16 10.0 (8 to 13) µs, with cold weights 20.0 (16 to 27)
  1.25 times as fast as fp16, 2.00 with cold weights
accuracy: least cosine 0.999100 (y.part on 4 validation inputs); budget 0.999
  expected on other inputs: 0.998600 (y)
  against the file in fp32, which is within 4e-07 of float64 (relative L2, y.part)
layers: 1 fp16, 1 fp8; weights 0.0016 MB, 0.640 of fp16
`, got.String())

	got.Reset()
	require.NoError(t, sample().Brief(&got))
	require.Equal(t, `
2 layers:
layer                       precision  µs    KB   of fp16  alone
/{narrow,wide}/stem/Conv    fp8        1.50  1.1  0.55     0.01
/heads.0/0/Gemm and 2 more  fp16       2.00  0.5  1.00     0.3

2 outputs, each on its worst set of inputs:
output  cosine           relative L2  max abs  on
y.part  0.999100 pooled  0.04         0.1      4 validation inputs
y       0.999500         0.03         0.1      4 validation inputs
`, got.String())

	got.Reset()
	require.NoError(t, sample().Table(&got))
	require.Equal(t, `
layer              op      precision  MMAC  µs    weights KB  of fp16  alone  in place  why                                 launch shared with
/narrow/stem/Conv  Conv    fp8        3.00  1.50  1.1         0.55     0.01   0.02      –                                   –
/wide/stem/Conv    Conv    fp8        ↑     ↑     ↑           ↑        ↑      ↑         batched with /narrow/stem/Conv      –
/heads.0/0/Gemm    MatMul  fp16       1.00  2.00  0.5         1.00     0.3    –         fp8 costs 0.3 of the outputs alone  norm
/heads.1/1/Gemm    MatMul  fp16       ↑     ↑     ↑           ↑        ↑      ↑         batched with /heads.0/0/Gemm        –
/heads.2/2/Gemm    MatMul  fp16       ↑     ↑     ↑           ↑        ↑      ↑         batched with /heads.0/0/Gemm        –

on 16 calibration inputs, in sample:
output  elements  cosine    max abs  relative L2  variation explained
y       10        0.999900  0        0            1.0000

on 4 validation inputs:
output  elements  cosine           max abs  relative L2  variation explained
y       10        0.999500         0.1      0.03         0.9700
y.part  2         0.999100 pooled  0.1      0.04         does not vary

for sm_90, on 4 validation inputs:
output  elements  cosine    max abs  relative L2  variation explained
y       10        0.900000  0        0            –
`, got.String())

	got.Reset()
	(&report.Report{}).PrintVerdict(&got)
	require.NoError(t, (&report.Report{}).Brief(&got))
	require.NoError(t, (&report.Report{}).Table(&got))
	require.Empty(t, got.String())
}

// TestReport_BriefFitsATerminal: at most 25 rows of at most 100 columns, the slowest layers in the order of the file.
func TestReport_BriefFitsATerminal(t *testing.T) {
	r := sample()
	long := r.Layers[0]
	long.Name, long.Nodes, long.Precision = strings.Repeat("/a_long_name_of_a_block", 6), nil, "fp8 twice split weights"
	for i := range 40 {
		long.US = []float64{3, 1, 3}[i%3]
		r.Layers = append(r.Layers, long)
		r.Slices = append(r.Slices, r.Slices[0])
		r.Slices[i].Name = long.Name
	}
	var got bytes.Buffer
	require.NoError(t, r.Brief(&got))
	rows := strings.Split(strings.TrimSpace(got.String()), "\n")
	require.LessOrEqual(t, len(rows), 12+10+5)
	for _, row := range rows {
		require.LessOrEqual(t, utf8.RuneCountInString(row), 100, row)
	}
	require.Contains(t, got.String(), "slowest 12 of 42 layers (--layers shows all):")
	require.NotContains(t, got.String(), " 1.00 ")
	require.Contains(t, got.String(), "least accurate 10 of 42 outputs")
}

// TestLayersOfTheFileAreShownWithoutACalibration: those that the file has quantised.
func TestLayersOfTheFileAreShownWithoutACalibration(t *testing.T) {
	r := sample()
	r.Layers, r.Calibration, r.Slices, r.Sets, r.Others, r.Predicted = r.Layers[:1], nil, nil, nil, nil, r.Predicted[:1]
	r.Layers[0].Precision, r.Layers[0].Why = "i8 (file)", "quantised in the file"
	var got bytes.Buffer
	r.PrintVerdict(&got)
	require.NoError(t, r.Table(&got))
	require.Contains(t, got.String(), "/narrow/stem/Conv  Conv  i8 (file)")
	require.Contains(t, got.String(), "quantised in the file")
	require.Contains(t, got.String(), "predicted on gb10: fp16 10.0 (8 to 13) µs")
	require.NotContains(t, got.String(), "budget")
}

// TestInfinitiesAreWritten: JSON has none, and a run that goes wrong is what a report is for.
func TestInfinitiesAreWritten(t *testing.T) {
	r := sample()
	r.Slices[0].MaxAbs, r.Slices[0].RelL2, r.Slices[0].Explained = math.Inf(1), math.Inf(1), known(math.NaN())
	r.Others[0].Sets[0].Slices[0].MaxAbs, r.Sets[0].Slices[0].MaxAbs = math.Inf(1), math.Inf(1)
	path := filepath.Join(t.TempDir(), "r.json")
	require.NoError(t, report.CheckPath(path))
	require.NoError(t, r.Write(path))
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	var back report.Report
	require.NoError(t, json.Unmarshal(raw, &back))
	require.Equal(t, math.MaxFloat64, back.Slices[0].MaxAbs)
	require.Equal(t, math.Inf(1), r.Slices[0].MaxAbs)
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func known(x float64) *float64 { return &x }

func TestSummary(t *testing.T) {
	s := report.Summarise([]float64{4, 1, 3, 2})
	require.Equal(t, report.Summary{Mean: 2.5, P50: 2.5, Min: 1, Max: 4, PerSecond: 400}, s)
	require.Equal(t, "mean 2.500 ms, p50 2.500 ms, max 4.000 ms", s.Text(4))

	s = report.Summarise([]float64{7})
	require.Equal(t, report.Summary{Mean: 7, P50: 7, Min: 7, Max: 7, PerSecond: 1000. / 7}, s)
	require.Equal(t, "7.000 ms", s.Text(1), "one run is one time")

	var samples []float64
	for i := range 20 {
		samples = append(samples, float64(i))
	}
	require.Nil(t, report.Summarise(samples[:19]).P99, "19 samples have no 99th percentile")
	s = report.Summarise(samples)
	require.InDelta(t, 18.81, *s.P99, 1e-12)
	require.Equal(t, "mean 9.500 ms, p50 9.500 ms, p99 18.810 ms, max 19.000 ms", s.Text(20))
}
