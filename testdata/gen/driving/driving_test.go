package driving

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

func decode(t *testing.T, m *Model) *onnx.Model {
	t.Helper()
	d, err := onnx.Decode(m.Name+".onnx", m.ONNX)
	require.NoError(t, err)
	return d
}

// The files' hashes: the same on every machine. A change of the generator changes them, and results measured on its
// models with them.
func TestSameBytesEverywhere(t *testing.T) {
	fulltest.Long(t)
	for name, want := range map[string]string{
		"vision":      "b3523b81aaf30a71",
		"policy":      "2d0e63d749d073a5",
		"dmonitoring": "dc41df535067fb56",
		"supercombo":  "071d9422b088a60b",
	} {
		t.Run(name, func(t *testing.T) {
			m, err := Make(name, Small)
			require.NoError(t, err)
			sum := sha256.Sum256(m.ONNX)
			require.Equal(t, want, hex.EncodeToString(sum[:8]))
			again, err := Make(name, Small)
			require.NoError(t, err)
			require.True(t, bytes.Equal(m.ONNX, again.ONNX))
		})
	}
}

func TestMakeRefusesUnknownNames(t *testing.T) {
	_, err := Make("driving", Small)
	require.EqualError(t, err, `there is no model "driving"; the models are vision, policy, dmonitoring, supercombo, `+
		`driving_supercombo, policy010, supercombo096, supercombo097, supercombo_history, vision010, dmonitoring_luma`)
	_, err = Make("vision", "large")
	require.EqualError(t, err, `there is no size "large"; the sizes are full, small and tiny`)
	_, err = MakeIn("vision", Tiny, ir.Float64)
	require.EqualError(t, err, "vision: models are made in fp16 or fp32, not in f64")
}

func sizes() []Size {
	if fulltest.Runs("driving models at full size") {
		return []Size{Small, Full}
	}
	return []Size{Small}
}

func TestStructure(t *testing.T) {
	counts := map[string]map[string]int{ // of the published models' exports
		"vision": {"Conv": 150, "BatchNormalization": 53, "Erf": 48, "Gemm": 31, "MatMul": 16, "Softmax": 4, "LayerNormalization": 1,
			"Shape": 8, "Add": 176, "Mul": 154, "Div": 54, "Sub": 22, "Constant": 218, "Reshape": 16, "Transpose": 20, "Sigmoid": 2},
		"policy": {"MatMul": 19, "Gemm": 4, "LayerNormalization": 7, "Erf": 3, "Softmax": 3, "Constant": 44, "Expand": 1, "Identity": 12,
			"Gather": 1},
		"dmonitoring": {"Conv": 35, "BatchNormalization": 33, "Gemm": 23, "Relu": 33, "Add": 6, "Sigmoid": 11, "Flatten": 1, "Concat": 1},
		"supercombo":  {"GRU": 1, "Conv": 150, "Softmax": 7, "Slice": 10},
	}
	for _, size := range sizes() {
		for _, m := range Models(size) {
			t.Run(m.Name+" "+string(size), func(t *testing.T) {
				if size == Small {
					require.LessOrEqual(t, m.MACs, int64(60e6))
				}
				got := map[string]int{}
				for _, n := range decode(t, m).Proto.Graph.Node {
					got[n.GetOpType()]++
				}
				for op, n := range counts[m.Name] {
					require.Equal(t, n, got[op], op)
				}
			})
		}
	}
}

func TestOutputSlices(t *testing.T) {
	get := func(m *Model, n int) map[string][2]int {
		slices, err := decode(t, m).OutputSlices(n)
		require.NoError(t, err)
		out := map[string][2]int{}
		for _, s := range slices {
			out[s.Name] = [2]int{s.Start, s.End}
		}
		return out
	}
	vision := get(Vision(Small), 1192)
	require.Equal(t, [2]int{117, 645}, vision["lane_lines"])
	require.Equal(t, [2]int{1064, 1192}, vision["hidden_state"])
	require.Equal(t, [2]int{1190, 1192}, vision["pad"])
	require.Equal(t, map[string][2]int{"plan": {0, 990}, "desire_state": {990, 998}, "pad": {998, 1000}}, get(Policy(Small), 1000))
	require.Empty(t, get(DMonitoring(Small), 39))
	super := get(Supercombo(Small), 2192)
	require.Equal(t, [2]int{1064, 1192}, super["hidden_state"])
	require.Equal(t, [2]int{1192, 2182}, super["plan"])
}

// evaluate runs the reference evaluator on inputs of a seed.
func evaluate(t *testing.T, m *Model, g *ir.Graph, seed uint64) (in map[string]*ir.Tensor, out map[string]*ir.Array) {
	t.Helper()
	in, arrays := map[string]*ir.Tensor{}, map[string]*ir.Array{}
	for _, i := range m.Inputs {
		in[i.Name] = i.Draw(seed)
		arrays[i.Name] = in[i.Name].Array()
	}
	out, err := ir.Evaluate(context.Background(), g, arrays, ir.EvalOptions{})
	require.NoError(t, err)
	return in, out
}

func TestOutputsDependOnInputs(t *testing.T) {
	for _, m := range Models(Small) {
		t.Run(m.Name, func(t *testing.T) {
			g, err := onnx.Import(decode(t, m), onnx.ImportOptions{})
			require.NoError(t, err)
			require.Len(t, g.Inputs, len(m.Inputs))
			_, a := evaluate(t, m, g, 1)
			_, b := evaluate(t, m, g, 2)
			for name := range a {
				x, y := a[name].Floats(), b[name].Floats()
				deviation, correlation := compare(x, y)
				require.Greater(t, deviation, .2, name)
				require.Less(t, deviation, 5., name)
				require.Less(t, correlation, .9, name)
			}
		})
	}
}

// compare gives the standard deviation of x, and the correlation of x and y.
func compare(x, y []float64) (deviation, correlation float64) {
	var sx, sy, xx, yy, xy float64
	for i := range x {
		sx, sy = sx+x[i], sy+y[i]
		xx, yy, xy = xx+x[i]*x[i], yy+y[i]*y[i], xy+x[i]*y[i]
	}
	n := float64(len(x))
	vx, vy := xx/n-sx*sx/n/n, yy/n-sy*sy/n/n
	return math.Sqrt(vx), (xy/n - sx*sy/n/n) / math.Sqrt(vx*vy)
}

// ONNX Runtime and the importer with the reference evaluator share nothing.
func TestOnnxRuntimeAgrees(t *testing.T) {
	fulltest.Long(t)
	py := os.Getenv("SPARK_PYTHON")
	if py == "" {
		py, _ = filepath.Abs(filepath.Join("..", "..", "..", ".venv", "bin", "python"))
	}
	if err := exec.Command(py, "-c", "import onnx, onnxruntime").Run(); err != nil {
		t.Skip("no Python with onnxruntime: set SPARK_PYTHON")
	}
	for _, size := range sizes() {
		for _, m := range Models(size) {
			t.Run(m.Name+" "+string(size), func(t *testing.T) {
				dir := t.TempDir()
				require.NoError(t, os.WriteFile(filepath.Join(dir, "m.onnx"), m.ONNX, 0o644))
				g, err := onnx.Import(decode(t, m), onnx.ImportOptions{})
				require.NoError(t, err)
				in, want := evaluate(t, m, g, 3)
				arrays := map[string]*npy.Array{}
				for name, x := range in {
					arrays[name] = &npy.Array{DType: x.DType.String(), Shape: x.Shape, Data: x.Dense()}
				}
				require.NoError(t, npy.WriteZip(filepath.Join(dir, "in.npz"), arrays))
				log, err := exec.Command(py, "-c", `
import sys, numpy as np, onnx, onnxruntime as ort
d = sys.argv[1]
onnx.checker.check_model(d + "/m.onnx", full_check=True)
ort.set_default_logger_severity(3)
s, z = ort.InferenceSession(d + "/m.onnx", providers=["CPUExecutionProvider"]), np.load(d + "/in.npz")
names = [o.name for o in s.get_outputs()]
np.savez(d + "/out.npz", **{n: v.astype(np.float64) for n, v in zip(names, s.run(names, dict(z)))})
`, dir).CombinedOutput()
				require.NoError(t, err, "%s", log)
				got, err := npy.ReadZip(filepath.Join(dir, "out.npz"))
				require.NoError(t, err)
				require.Len(t, got, len(want))
				limit := 3e-3 // fp16 activations
				if m.Name == "dmonitoring" {
					limit = 1e-5
				}
				for name, w := range want {
					x, err := ir.NewTensor(ir.T(ir.Float64, got[name].Shape...), got[name].Data)
					require.NoError(t, err)
					require.Less(t, relative(x.Floats(), w.Floats()), limit, name)
				}
			})
		}
	}
}

// relative is the norm of the difference over the norm of what is wanted.
func relative(got, want []float64) float64 {
	var d, w float64
	for i := range want {
		d += (got[i] - want[i]) * (got[i] - want[i])
		w += want[i] * want[i]
	}
	return math.Sqrt(d / w)
}

func TestInputsAreDrawnFromTheirSeed(t *testing.T) {
	for _, in := range Supercombo(Small).Inputs {
		a, b, c := in.Draw(1), in.Draw(1), in.Draw(2)
		require.True(t, a.Equal(b), in.Name)
		if in.kind != choice { // two values only
			require.False(t, a.Equal(c), in.Name)
		}
		require.Equal(t, in.Type, a.Type)
	}
	img, big := Supercombo(Small).Inputs[0], Supercombo(Small).Inputs[1]
	require.NotEqual(t, img.Draw(1).Data, big.Draw(1).Data, "two inputs of one seed differ")
}

func TestExp(t *testing.T) {
	for x := -30.0; x < 30; x += .37 {
		require.InEpsilon(t, math.Exp(x), exp(x), 1e-7)
	}
}
