package onnx_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

const sharedModels = "../../../shared/models"

func importFile(t *testing.T, path string, opt onnx.ImportOptions) *ir.Graph {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%s is not there", path)
	}
	m, err := onnx.Load(path)
	require.NoError(t, err)
	require.NoError(t, m.Validate())
	g, err := onnx.Import(m, opt)
	require.NoError(t, err)
	require.NoError(t, g.Verify())
	return g
}

// evaluateGolden evaluates a graph on the inputs of an npz and returns the relative L2 distance to its outputs.
func evaluateGolden(t *testing.T, g *ir.Graph, path string, round bool) float64 {
	t.Helper()
	arrays, err := npy.ReadZip(path)
	require.NoError(t, err)
	inputs := map[string]*ir.Array{}
	for _, v := range g.Inputs {
		in := arrays[v.Name]
		require.NotNil(t, in, v.Name)
		xs, err := in.Float64s()
		require.NoError(t, err)
		a := ir.NewArray(v.Type)
		require.Len(t, xs, a.Numel())
		for i, x := range xs {
			if a.F != nil {
				a.F[i] = x
			} else {
				a.I[i] = int64(x)
			}
		}
		inputs[v.Name] = a
	}
	outs, err := ir.Evaluate(context.Background(), g, inputs, ir.EvalOptions{Round: round})
	require.NoError(t, err)
	diff, norm := 0.0, 0.0
	for _, v := range g.Outputs {
		want, err := arrays[v.Name].Float64s()
		require.NoError(t, err)
		got := outs[v.Name].Floats()
		require.Len(t, got, len(want))
		for i, w := range want {
			diff += (got[i] - w) * (got[i] - w)
			norm += w * w
		}
	}
	return math.Sqrt(diff / norm)
}

// The golden outputs are float64 throughout; what is left is that constants of the file's f32 subgraphs are rounded
// to it.
func TestModelsEvaluateToTheirGoldenOutputs(t *testing.T) {
	fulltest.Long(t)
	for _, c := range []struct {
		model string
		n     int
		limit float64
	}{
		{"dmonitoring_model", 3, 1e-7},
		{"driving_policy", 3, 1e-7},
		{"driving_vision", 1, 5e-7},
	} {
		t.Run(c.model, func(t *testing.T) {
			if testing.Short() && c.model == "driving_vision" {
				t.Skip("1.9 GMAC in float64")
			}
			g := importFile(t, filepath.Join(sharedModels, c.model+".onnx"), onnx.ImportOptions{})
			for i := range c.n {
				path := filepath.Join(sharedModels, "golden", fmt.Sprintf("%s_%d.npz", c.model, i))
				rel := evaluateGolden(t, g, path, false)
				t.Logf("%s: relative L2 %.3g", filepath.Base(path), rel)
				require.Less(t, rel, c.limit)
			}
		})
	}
}

// The README next to the quantised models states their distance from the unquantised network on the golden inputs:
// about 0.05 for fp8 and 0.09 for int8.
func TestQuantisedModelsImport(t *testing.T) {
	fulltest.Long(t)
	for model, limit := range map[string]float64{
		"dmonitoring_modelopt_fp8": 0.08, "dmonitoring_modelopt_int8": 0.14, "dmonitoring_ort_int8": 0.14,
	} {
		t.Run(model, func(t *testing.T) {
			g := importFile(t, filepath.Join(sharedModels, "quantised", model+".onnx"), onnx.ImportOptions{})
			narrow := 0
			for _, n := range g.Nodes {
				if n.Op.Name == "DequantizeLinear" && n.Inputs[0].IsConst() && n.Inputs[0].Type.DType.Bits() == 8 {
					narrow++
				}
			}
			require.GreaterOrEqual(t, narrow, 20, "quantised weights stay quantised")
			rel := evaluateGolden(t, g, filepath.Join(sharedModels, "golden", "dmonitoring_model_3.npz"), true)
			t.Logf("relative L2 %.3g", rel)
			require.Less(t, rel, limit)
		})
	}
}

func TestLargeInitializersAreNotCopied(t *testing.T) {
	path := filepath.Join(sharedModels, "driving_policy.onnx")
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%s is not there", path)
	}
	m, err := onnx.Load(path)
	require.NoError(t, err)
	require.NoError(t, m.Validate())
	raw := map[*byte]bool{}
	for _, in := range m.Proto.Graph.Initializer {
		if len(in.RawData) > 1<<16 {
			raw[&in.RawData[0]] = true
		}
	}
	g, err := onnx.Import(m, onnx.ImportOptions{})
	require.NoError(t, err)
	shared := map[*byte]bool{}
	for _, n := range g.Nodes {
		for _, v := range n.Inputs {
			if v != nil && v.IsConst() && len(v.Const.Data) > 1<<16 && raw[&v.Const.Data[0]] {
				shared[&v.Const.Data[0]] = true
			}
		}
	}
	require.NotEmpty(t, raw)
	require.GreaterOrEqual(t, len(shared)*10, len(raw)*9, "of %d large initializers", len(raw))
	require.False(t, strings.Contains(g.Outputs[0].Name, "~"))
}
