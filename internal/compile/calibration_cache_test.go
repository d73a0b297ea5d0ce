package compile

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
)

// TestFindingsMakeTheSameProgram compiles with a file of findings that does not exist, that does, and without one: programs
// are the same. Another target needs no walk through the graph, another budget one at most where layers were measured alone.
func TestFindingsMakeTheSameProgram(t *testing.T) {
	fulltest.Long(t)
	for name, budget := range map[string]float64{"fp8": .9, "nvfp4": 0} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "policy.calibration")
			layers, alone := 0, 0 // looked at
			opt := Options{Precision: name, MinCosine: budget, Generated: 2, Smaller: true, Targets: []string{"sm_121"},
				Progress: func(e console.Event) {
					switch {
					case strings.HasPrefix(e.Phase, "fitting"):
						layers++
					case strings.HasPrefix(e.Phase, "measuring the sensitivity"):
						alone++
					}
				}}
			compile := func(opt Options) *Result {
				layers, alone = 0, 0
				r, err := Compile(t.Context(), small(t, "policy"), opt)
				require.NoError(t, err)
				return r
			}
			without := compile(opt)
			opt.CalibrationCache = path
			first := compile(opt)
			require.NotZero(t, layers)
			file, err := os.ReadFile(path)
			require.NoError(t, err)
			again := compile(opt)
			require.Zero(t, layers+alone)
			require.Equal(t, without.Program, first.Program)
			require.Equal(t, without.Program, again.Program)
			require.Equal(t, without.Accuracy, again.Accuracy)
			same, err := os.ReadFile(path)
			require.NoError(t, err)
			require.True(t, bytes.Equal(file, same), "findings that are taken from a file leave it as it is")
			if budget == 0 {
				return
			}
			opt.Targets = []string{"sm_90"}
			require.Equal(t, "sm_90", compile(opt).Program.Variants[0].Target)
			require.Zero(t, layers+alone)
			opt.Targets = []string{"sm_121"}
			opt.MinCosine = .9995
			strict := compile(opt)
			require.Zero(t, alone)
			require.Greater(t, in16Bits(strict), in16Bits(first))
		})
	}
}

// TestFindingsOfSomethingElseAreRefused: a file of findings is used for what it was made from, or not at all.
func TestFindingsOfSomethingElseAreRefused(t *testing.T) {
	fulltest.Long(t)
	path := filepath.Join(t.TempDir(), "policy.calibration")
	opt := Options{Precision: "fp8", Generated: 2, Targets: []string{"sm_121"}, CalibrationCache: path}
	_, err := Compile(t.Context(), small(t, "policy"), opt)
	require.NoError(t, err)
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		change func(*Options)
		file   []byte
		model  string
		want   string
	}{
		"model":     {model: "vision", want: "it was made from another model"},
		"inputs":    {change: func(o *Options) { o.Generated = 3 }, want: "it was made from other calibration inputs: 2 of these 3 are among its 2"},
		"precision": {change: func(o *Options) { o.Precision = "fp6" }, want: "it was made for --precision fp8, not fp6"},
		"damaged":   {file: bytes.Replace(good, []byte(`"local":0.`), []byte(`"local":1.`), 1), want: "it is damaged"},
		"short":     {file: good[:len(good)/2], want: "it is damaged"},
		"version":   {file: regexp.MustCompile(`calibration \d+ `).ReplaceAll(good, []byte("calibration 99 ")), want: "it has version 99"},
		"other":     {file: []byte("{}"), want: "it is not a file that spark-compile --calibration has written"},
		"empty":     {file: []byte{}, want: "it is not a file"},
	} {
		t.Run(name, func(t *testing.T) {
			opt, model, file := opt, "policy", good
			if c.change != nil {
				c.change(&opt)
			}
			if c.model != "" {
				model = c.model
			}
			if c.file != nil {
				file = c.file
			}
			require.NoError(t, os.WriteFile(path, file, 0o644))
			_, err := Compile(t.Context(), small(t, model), opt)
			require.ErrorContains(t, err, "--calibration "+path+": "+c.want)
			require.ErrorContains(t, err, "name another file, or delete this one")
			after, err := os.ReadFile(path)
			require.NoError(t, err)
			require.True(t, bytes.Equal(file, after), "a file that is refused stays as it is")
		})
	}
}

// TestAnInterruptedCalibrationKeepsNothing.
func TestAnInterruptedCalibrationKeepsNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.calibration")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := Compile(ctx, small(t, "policy"), Options{Precision: "fp8", Generated: 2, Targets: []string{"sm_121"}, CalibrationCache: path,
		Progress: func(e console.Event) {
			if strings.HasPrefix(e.Phase, "fitting") && e.Step == 3 {
				cancel()
			}
		}})
	require.ErrorIs(t, err, context.Canceled)
	require.NoFileExists(t, path)
}

// TestFindingsOfAProgramThatIsKeptInFP16 are of the precision that was asked for.
func TestFindingsOfAProgramThatIsKeptInFP16(t *testing.T) {
	fulltest.Long(t)
	opt := Options{Precision: "fp8", MinCosine: .999999, Generated: 2, Targets: []string{"sm_121"}, CalibrationCache: filepath.Join(t.TempDir(), "policy.calibration")}
	for range 2 {
		r, err := Compile(t.Context(), small(t, "policy"), opt)
		require.NoError(t, err)
		require.NotNil(t, r.Accuracy.Fallback)
	}
}

// A reference whose lengths are not those of the graph's outputs is refused, whatever the file's digest says.
func TestFindings_RefuseForgedReferences(t *testing.T) {
	fulltest.Long(t)
	path := filepath.Join(t.TempDir(), "policy.calibration")
	opt := Options{Precision: "fp8", Generated: 2, Targets: []string{"sm_121"}, CalibrationCache: path}
	_, err := Compile(t.Context(), small(t, "policy"), opt)
	require.NoError(t, err)
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	_, body, _ := bytes.Cut(good, []byte("\n"))
	type reference = calibrate.SavedReference
	type rows = [][]float64
	for name, c := range map[string]struct {
		change func(r *reference, x rows)
		want   string
	}{
		"no output": {func(r *reference, _ rows) { clear(r.Outputs) }, "its reference has 0 outputs, want 1"},
		"another output": {func(r *reference, x rows) { r.Outputs = map[string][][]float64{"y": x} },
			"output outputs: its reference has 0 inputs"},
		"an output more":    {func(r *reference, x rows) { r.Outputs["y"] = x }, "its reference has 2 outputs, want 1"},
		"fewer inputs":      {func(r *reference, x rows) { r.Outputs["outputs"] = x[1:] }, "its reference has"},
		"fewer numbers":     {func(_ *reference, x rows) { x[1] = x[1][1:] }, "input 2: its reference has"},
		"more numbers":      {func(_ *reference, x rows) { x[0] = append(x[0], 0) }, "input 1: its reference has"},
		"no numbers":        {func(_ *reference, x rows) { x[0] = nil }, "input 1: its reference has 0 numbers"},
		"fewer evaluations": {func(r *reference, _ rows) { r.Float64 = r.Float64[1:] }, "how they were evaluated"},
		"in fp32 unchecked": {func(r *reference, _ rows) { r.Float64[0], r.FP32RelL2 = false, nil }, "0 errors of fp32"},
		"a negative error": {func(r *reference, _ rows) {
			r.Float64[0], r.FP32RelL2 = false, map[string]float64{"outputs": -1}
		}, "error -1, want 0 or more"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &calibrate.Saved{}
			require.NoError(t, json.Unmarshal(body, s))
			c.change(s.Reference, s.Reference.Outputs["outputs"])
			require.NoError(t, s.Write(path))
			_, err := Compile(t.Context(), small(t, "policy"), opt)
			require.ErrorContains(t, err, "--calibration "+path+": ")
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "name another file, or delete this one")
		})
	}
}
