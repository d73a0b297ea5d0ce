package dora

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/adapterfile"
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
			readJSON(t, filepath.Join(dir, "golden.json"), &want)
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

// TestLayersArePEFTs_ByOtherSettings: settings that scale layers alike, or say what tensors and the ONNX file say already, give
// the merged weights that PEFT recorded. Rank 2 and alpha 3 scale by 3/2, as √2·3/2 does by use_rslora.
func TestLayersArePEFTs_ByOtherSettings(t *testing.T) {
	for name, change := range map[string]map[string]any{
		"use_rslora":          {"use_rslora": true, "lora_alpha": 3 / math.Sqrt2},
		"alpha_pattern":       {"lora_alpha": 7, "alpha_pattern": map[string]float64{`conv\d`: 3, `(fc1|fc2)`: 3, "fc.*": 9}},
		"rslora by pattern":   {"use_rslora": true, "lora_alpha": 7, "alpha_pattern": map[string]float64{".*": 3 / math.Sqrt2}},
		"rank_pattern":        {"r": 5, "rank_pattern": map[string]int{"conv[12]": 2, "conv3": 2, "fc": 9, "fc.": 2}},
		"fan_in_fan_out":      {"fan_in_fan_out": true},
		"layers_to_transform": {"layers_to_transform": []int{0}, "layers_pattern": "blocks"},
		"exclude_modules":     {"exclude_modules": []string{"fc3"}},
		"bias":                {"bias": "all"},
		"eva":                 {"init_lora_weights": "eva", "eva_config": map[string]any{"rho": 2}},
	} {
		for _, kind := range []string{"dora", "lora"} {
			t.Run(name+" "+kind, func(t *testing.T) {
				from, to := filepath.Join("testdata", "layers", kind), t.TempDir()
				require.NoError(t, os.CopyFS(to, os.DirFS(from)))
				var config map[string]any
				readJSON(t, filepath.Join(from, adapterfile.PEFTFile), &config)
				maps.Copy(config, change)
				text, err := json.Marshal(config)
				require.NoError(t, err)
				require.NoError(t, os.WriteFile(filepath.Join(to, adapterfile.PEFTFile), text, 0o666))
				file, err := onnx.Load(filepath.Join(to, "model.onnx"))
				require.NoError(t, err)
				m, err := Open(file, onnx.ImportOptions{})
				require.NoError(t, err)
				a, err := Load(filepath.Join(to, "adapter_model.safetensors"), m)
				require.NoError(t, err)
				var want struct{ Merged map[string][]float64 }
				readJSON(t, filepath.Join(from, "golden.json"), &want)
				require.Len(t, a.Layers, len(want.Merged))
				for _, l := range a.Layers {
					rows, err := l.MergedRows()
					require.NoError(t, err)
					require.Len(t, rows, len(want.Merged[l.Module]))
					assert.Less(t, missed(want.Merged[l.Module], rows), 1e-6, l.Module)
				}
			})
		}
	}
}

func readJSON(t *testing.T, path string, to any) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, to))
}
