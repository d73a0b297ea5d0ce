package dora

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// curve is what testdata/record.py says, and of what.
type curve struct {
	Of      string               `json:"of"` // digest of the model, the adapter and the batches
	Torch   string               `json:"torch"`
	Trained int                  `json:"trained"`
	Losses  []float64            `json:"losses"`
	Norms   []float64            `json:"norms"`
	Merged  map[string][]float64 `json:"merged"`            // the beginning of each output on batch 0
	Seconds float64              `json:"seconds,omitempty"` // of CPU time, of the fastest step
}

const recorded = "testdata/curve.json"

// batches are inputs, with targets that another model of the same layout would give.
func batches(t *testing.T, m *Model, count int) []map[string]*ir.Array {
	t.Helper()
	list := calibrate.Generate(m.graph, count)
	for _, b := range list {
		out, err := ir.Evaluate(context.Background(), m.graph, b, ir.EvalOptions{})
		require.NoError(t, err)
		for _, v := range m.graph.Outputs {
			target := ir.NewArray(ir.T(ir.Float32, v.Type.Shape...))
			for i, y := range out[v.Name].F {
				target.F[i] = ir.RoundTo(ir.Float32, y*(1+0.3*math.Sin(float64(i)))+0.05*math.Cos(float64(3*i)))
			}
			b["target:"+v.Name] = target
		}
	}
	return list
}

// forPython adds the adapter and the batches to the folder of testdata/record.py.
func forPython(t *testing.T, dir string, a *Adapter, data []map[string]*ir.Array) {
	t.Helper()
	require.NoError(t, a.Save(filepath.Join(dir, "adapter_model.safetensors")))
	arrays := map[string]*npy.Array{}
	for i, b := range data {
		for name, x := range b {
			arrays[fmt.Sprintf("%s.%d", name, i)] = &npy.Array{DType: x.DType.String(), Shape: x.Shape, Data: x.Tensor().Dense()}
		}
	}
	require.NoError(t, npy.WriteZip(filepath.Join(dir, "batches.npz"), arrays))
}

// trainedBy runs testdata/record.py.
func trainedBy(t *testing.T, python, dir string) (c curve) {
	t.Helper()
	cmd := exec.Command(python, "testdata/record.py", dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(out, &c))
	return c
}

// TestTheCurveIsThatOfPyTorch: 50 updates of AdamW with decay and clipping from the same numbers on the same batches.
// SPARK_RECORD is a Python with the packages of testdata/record.py: then the curve is recorded anew.
func TestTheCurveIsThatOfPyTorch(t *testing.T) {
	src, err := driving.Made("policy", driving.Small)
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "model.onnx"), src.ONNX, 0o666))
	file, err := onnx.Load(filepath.Join(dir, "model.onnx"))
	require.NoError(t, err)
	m, err := Open(file, onnx.ImportOptions{})
	require.NoError(t, err)
	a, err := Init(m, InitOptions{Rank: 4, Alpha: 8, Seed: 7})
	require.NoError(t, err)
	a.Layers[1].Rank, a.Layers[1].Alpha = 2, 3 // one unlike the others
	a.Layers[1].fill(7)
	data := batches(t, m, 4)
	forPython(t, dir, a, data)
	h := sha256.New()
	h.Write([]byte(m.Base))
	text, err := a.Encode()
	require.NoError(t, err)
	h.Write(text)
	for i := range data {
		for _, v := range m.graph.Outputs {
			h.Write(data[i]["target:"+v.Name].Tensor().Dense())
		}
	}
	of := fmt.Sprintf("%x", h.Sum(nil))
	var want curve
	if python := os.Getenv("SPARK_RECORD"); python != "" {
		want = trainedBy(t, python, dir)
		want.Of, want.Seconds = of, 0
		text, err := json.Marshal(want)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(recorded, []byte(strings.ReplaceAll(string(text), ",\"", ",\n\"")+"\n"), 0o666))
	} else {
		text, err := os.ReadFile(recorded)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, &want))
	}
	require.Equal(t, want.Of, of, "the curve was recorded of something else: record it anew")
	require.Equal(t, want.Trained, a.Params())

	s, err := NewStep(context.Background(), m, a, StepOptions{Precision: "fp32", WeightDecay: 0.01, ClipNorm: 0.05})
	require.NoError(t, err)
	tr := trainer(t, s, false)
	for i, loss := range want.Losses {
		for name, x := range data[i%len(data)] {
			require.NoError(t, tr.Session().Set(name, x.Tensor().Dense()))
		}
		r, err := tr.Step(context.Background(), 1e-3)
		require.NoError(t, err)
		require.True(t, r.Applied)
		require.InEpsilon(t, loss, r.Loss, 1e-4, "step %d", i)
		require.InEpsilon(t, want.Norms[i], r.Norm, 1e-3, "step %d", i)
	}
	require.Less(t, want.Losses[48], 0.95*want.Losses[0])

	// The merged model computes what PEFT's merged model computes.
	require.NoError(t, tr.Read())
	path := filepath.Join(dir, "merged.onnx")
	require.NoError(t, Merge(m, a, path))
	file, err = onnx.Load(path)
	require.NoError(t, err)
	g, err := onnx.Import(file, onnx.ImportOptions{})
	require.NoError(t, err)
	out, err := ir.Evaluate(context.Background(), g, data[0], ir.EvalOptions{})
	require.NoError(t, err)
	for name, y := range want.Merged {
		var missed, size float64
		for i, w := range y {
			missed += (out[name].F[i] - w) * (out[name].F[i] - w)
			size += w * w
		}
		assert.Less(t, math.Sqrt(missed/size), 2e-3, name) // the file stores f16
	}
}
