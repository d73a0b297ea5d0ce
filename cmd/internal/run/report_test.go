package run

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/report"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// TestTheReportIsWhatThisCommandMeasures compiles at low precision with spark-compile, runs the package on the calibration
// inputs against the file evaluated in float64, and expects exactly the figures of the report, to the last bit. Layers so small are no faster in fp8: they go there for their size.
func TestTheReportIsWhatThisCommandMeasures(t *testing.T) {
	fulltest.Long(t)
	dir := t.TempDir()
	compiler := filepath.Join(dir, "spark-compile")
	out, err := exec.Command("go", "build", "-o", compiler, "../../spark-compile").CombinedOutput()
	require.NoError(t, err, "%s", out)
	model := writeModel(t, dir, "policy", 3)
	for _, args := range [][]string{{"--precision", "fp8", "--prefer", "size"}, {"--precision", "nvfp4", "--min-cosine", "0"}} {
		t.Run(args[1], func(t *testing.T) {
			pkg, want, got := filepath.Join(dir, args[1]), filepath.Join(dir, args[1]+".json"), filepath.Join(dir, args[1]+"_run.json")
			cmd := exec.Command(compiler, append(args, model, "--calibrate", filepath.Join(dir, "inputs"), "-o", pkg, "--report", want)...)
			text, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", text)
			var stdout, stderr bytes.Buffer
			code := Main("spark-run", []string{pkg, "--device", "emu", "--input", filepath.Join(dir, "inputs"), "--expect", filepath.Join(dir, "exact"), "--min-cosine", "0.9", "--json", got}, &stdout, &stderr)
			require.Zero(t, code, "%s%s", &stdout, &stderr)
			promised, measured := readReport(t, want), readReport(t, got)
			require.Equal(t, promised.Sets[0].Slices, measured.Slices)
			require.Less(t, promised.Sets[0].Slices[0].Cosine, 1.0)
			require.Greater(t, len(promised.Slices), len(measured.Outputs), "the model names slices")
			require.Equal(t, promised.Sets[0].Slices[0].Cosine, measured.Outputs[0].Cosine)
			require.Equal(t, promised.Sets[0].Slices[0].RelL2, measured.Outputs[0].RelL2)
			require.Equal(t, promised.Sets[0].Slices[0].MaxAbs, measured.Outputs[0].MaxAbs)
			for _, s := range promised.Slices {
				require.Contains(t, stdout.String(), s.Name)
				require.Contains(t, string(text), fmt.Sprintf("%.6f", s.Cosine))
			}
			require.Len(t, promised.Predicted, 2)
			require.Contains(t, string(text), "times as fast as fp16")
		})
	}
	text, err := exec.Command(compiler, "--precision", "fp8", model, "--calibrate", filepath.Join(dir, "inputs"), "-o", filepath.Join(dir, "none"), "--min-cosine", "0.999999999999").CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "%s", text)
	require.Equal(t, 2, exit.ExitCode())
	for _, word := range []string{"--min-cosine 0.999999999999 cannot be reached", "outputs 0.9999", "the layers that hurt most", "--precision fp16"} {
		require.Contains(t, string(text), word, "an unreachable budget")
	}
	require.NoDirExists(t, filepath.Join(dir, "none"))
}

// writeModel writes a small model, and inputs and exact outputs as files of the same names.
func writeModel(t *testing.T, dir, name string, count int) string {
	t.Helper()
	src, err := driving.Made(name, driving.Small)
	require.NoError(t, err)
	path := filepath.Join(dir, name+".onnx")
	require.NoError(t, os.WriteFile(path, src.ONNX, 0o644))
	m, err := onnx.Decode(path, src.ONNX)
	require.NoError(t, err)
	g, err := onnx.Import(m, onnx.ImportOptions{})
	require.NoError(t, err)
	for _, d := range []string{"inputs", "exact"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	for seed := range count {
		in, arrays, exact := map[string]*ir.Array{}, map[string]*npy.Array{}, map[string]*npy.Array{}
		for _, q := range src.Inputs {
			x := q.Draw(uint64(seed))
			in[q.Name] = x.Array()
			arrays[q.Name] = &npy.Array{DType: x.DType.String(), Shape: x.Shape, Data: x.Dense()}
		}
		res, err := ir.Evaluate(context.Background(), g, in, ir.EvalOptions{})
		require.NoError(t, err)
		for k, a := range res {
			exact[k] = &npy.Array{DType: "f64", Shape: a.Shape, Data: float64s(a.Floats())}
		}
		file := fmt.Sprintf("%02d.npz", seed)
		require.NoError(t, npy.WriteZip(filepath.Join(dir, "inputs", file), arrays))
		require.NoError(t, npy.WriteZip(filepath.Join(dir, "exact", file), exact))
	}
	return path
}

func float64s(x []float64) []byte {
	var b []byte
	for _, v := range x {
		bits := math.Float64bits(v)
		for i := range 8 {
			b = append(b, byte(bits>>(8*i)))
		}
	}
	return b
}

func readReport(t *testing.T, path string) *report.Report {
	t.Helper()
	raw, err := os.ReadFile(path)
	require.NoError(t, err)
	var r report.Report
	require.NoError(t, json.Unmarshal(raw, &r))
	return &r
}
