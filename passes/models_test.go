package passes

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

// sharedModels holds the real test models, next to a checkout; tests that read them skip where they are absent.
const sharedModels = "../../shared/models"

func importShared(t testing.TB, name string) *ir.Graph {
	t.Helper()
	path := filepath.Join(sharedModels, name+".onnx")
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no %s next to the checkout", path)
	}
	m, err := onnx.Load(path)
	require.NoError(t, err)
	g, err := onnx.Import(m, onnx.ImportOptions{})
	require.NoError(t, err)
	return g
}

// golden reads the inputs in the graph's order and the outputs of a recorded run.
func golden(t testing.TB, g *ir.Graph, name string, i int) (inputs []*ir.Array, outputs []float64) {
	t.Helper()
	arrays, err := npy.ReadZip(filepath.Join(sharedModels, "golden", fmt.Sprintf("%s_%d.npz", name, i)))
	require.NoError(t, err)
	floats := func(name string) []float64 {
		a := arrays[name]
		require.NotNil(t, a, name)
		xs, err := npy.Float64s(a.DType, a.Data)
		require.NoError(t, err)
		return xs
	}
	for _, v := range g.Inputs {
		a := ir.NewArray(v.Type)
		for j, x := range floats(v.Name) {
			if a.F != nil {
				a.F[j] = x
			} else {
				a.I[j] = int64(x)
			}
		}
		inputs = append(inputs, a)
	}
	return inputs, floats("outputs")
}

func TestRealModelsKeepTheirOutputs(t *testing.T) {
	fulltest.Long(t)
	for name, runs := range map[string]int{"dmonitoring_model": 3, "driving_policy": 3, "driving_vision": 1} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name == "driving_vision" {
				t.Skip("evaluates 1.9 GMAC")
			}
			g := importShared(t, name)
			raw := opCounts(g)
			start := time.Now()
			require.NoError(t, Run(&Context{Precision: precision.FP32}, g, semanticNames(t, precision.FP32), func(p string, g *ir.Graph) {
				t.Logf("%-22s %4d nodes %v", p, len(g.Nodes), time.Since(start))
				start = time.Now()
			}))
			t.Log(raw)
			t.Log(opCounts(g))
			for i := range runs {
				inputs, want := golden(t, g, name, i)
				got := evaluateAll(t, g, inputs)
				distance := relativeL2(got[0].Floats(), want)
				t.Log("relative L2", distance)
				require.LessOrEqual(t, distance, 1e-6)
			}
			for _, gone := range []string{"BatchNorm", "Erf", "Softmax", "Div", "Sub"} {
				require.Zero(t, opCounts(g)[gone], gone)
			}
			if name == "driving_vision" {
				require.Equal(t, 2*57, opCounts(g)["Conv"], "one a block: 3 of the stem, 4 a RepMixer and 3 an attention block, 2 a downsampling, position and final")
			}
		})
	}
}
