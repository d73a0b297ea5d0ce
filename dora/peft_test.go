package dora

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// TestLayersArePEFTs: adapters of linear layers and of convolutions, as PEFT saved them, compute what they compute in PEFT, in f32 on the
// CPU device: outputs, the loss and its gradients by every trained number, and the merged weights (testdata/layers.py).
func TestLayersArePEFTs(t *testing.T) {
	for _, kind := range []string{"dora", "lora"} {
		t.Run(kind, func(t *testing.T) {
			dir := filepath.Join("testdata", "layers", kind)
			var want struct {
				X, Target, Y      []float64
				Loss              float64
				Gradients, Merged map[string][]float64
			}
			text, err := os.ReadFile(filepath.Join(dir, "golden.json"))
			require.NoError(t, err)
			require.NoError(t, json.Unmarshal(text, &want))
			file, err := onnx.Load(filepath.Join(dir, "model.onnx"))
			require.NoError(t, err)
			m, err := Open(file, onnx.ImportOptions{})
			require.NoError(t, err)
			a, err := Load(filepath.Join(dir, "adapter_model.safetensors"), m)
			require.NoError(t, err)
			require.Len(t, a.Layers, 5)

			s := newGradients(t, m, a, StepOptions{Precision: "fp32"})
			f32 := func(xs []float64, shape ...int) *ir.Array { return &ir.Array{Type: ir.T(ir.Float32, shape...), F: xs} }
			s.given[keptScale].F[0] = 1
			s.given["x"], s.given["target:y"] = f32(want.X, 2, 3, 10, 10), f32(want.Target, 2, 7)
			got, _ := s.device(t, kind)
			seen := 0
			s.tensors(func(name, out string, at, n int) {
				w, ok := want.Gradients[name]
				if name == OutputLoss {
					w, ok = []float64{want.Loss}, true
				}
				if ok {
					require.Len(t, w, n, name)
					assert.Less(t, missed(w, got[out].F[at:]), 1e-5, name)
					seen++
				}
			})
			require.Equal(t, len(want.Gradients)+1, seen)

			step, err := NewStep(context.Background(), m, a, StepOptions{Precision: "fp32"})
			require.NoError(t, err)
			d, err := emu.Open(emu.Options{Check: true})
			require.NoError(t, err)
			defer d.Close()
			tr, err := step.Open(context.Background(), d)
			require.NoError(t, err)
			defer tr.Close()
			require.NoError(t, tr.Session().Set("x", s.given["x"].Tensor().Dense()))
			require.NoError(t, tr.Session().RunEntry(context.Background(), EntryRun))
			y := []float64{}
			for _, v := range runtime.View[float32](tr.Session().Output("y")) {
				y = append(y, float64(v))
			}
			assert.Less(t, missed(want.Y, y), 1e-5)

			for _, l := range a.Layers {
				rows, err := l.MergedRows()
				require.NoError(t, err)
				require.Len(t, rows, len(want.Merged[l.Module]))
				assert.Less(t, missed(want.Merged[l.Module], rows), 1e-5, l.Module)
			}
		})
	}
}
