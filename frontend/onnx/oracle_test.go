package onnx

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

// python returns an interpreter that has the onnx package, or skips.
func python(t testing.TB) string {
	t.Helper()
	py := os.Getenv("SPARK_PYTHON")
	if py == "" {
		py, _ = filepath.Abs(filepath.Join("..", "..", ".venv", "bin", "python"))
	}
	if err := exec.Command(py, "-c", "import onnx, ml_dtypes").Run(); err != nil {
		t.Skip("no Python with onnx: set SPARK_PYTHON")
	}
	return py
}

func runOracle(t *testing.T, py, what, dir string) {
	t.Helper()
	out, err := exec.Command(py, filepath.Join("testdata", "oracle.py"), what, dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func TestOnnxPackageAgrees(t *testing.T) {
	fulltest.Long(t)
	py, dir := python(t), t.TempDir()
	runOracle(t, py, "make", dir)

	t.Run("tensors", func(t *testing.T) {
		text, err := os.ReadFile(filepath.Join(dir, "tensors.json"))
		require.NoError(t, err)
		var rows []struct {
			Name        string
			Proto, Data []byte
		}
		require.NoError(t, json.Unmarshal(text, &rows))
		require.Len(t, rows, 23*4*2)
		for _, r := range rows {
			p := &onnxpb.TensorProto{}
			require.NoError(t, proto.Unmarshal(r.Proto, p), r.Name)
			got, err := (&Model{}).Tensor(p)
			require.NoError(t, err, r.Name)
			require.Equal(t, string(r.Data), string(got.Data), r.Name)
		}
	})

	files, err := filepath.Glob(filepath.Join(dir, "*.onnx"))
	require.NoError(t, err)
	require.Greater(t, len(files), 1000)
	for _, f := range files {
		data, err := os.ReadFile(f)
		require.NoError(t, err)
		m := &onnxpb.ModelProto{}
		require.NoError(t, unmarshal(data, m), f)
		again, err := (&Model{Proto: m}).Marshal()
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(strings.TrimSuffix(f, ".onnx")+".again", again, 0o644))
	}
	built := NewBuilder("built", 17)
	x := built.Input("x", ir.Float16, 1, 3, "h", 8)
	w := built.Initializer("w", &ir.Tensor{Type: ir.T(ir.Float16, 4, 3, 1, 1), Data: []byte{0, 0x3c}, Splat: true})
	c := built.Op("Conv", []string{x, w}, A("kernel_shape", []int{1, 1}), A("auto_pad", "SAME_UPPER"))
	cast := built.Op("Cast", []string{c}, A("to", ir.Float32))
	k := built.Op("Constant", nil, A("value", &ir.Tensor{Type: ir.T(ir.Float32), Data: []byte{0, 0, 0x80, 0x3f}}))
	sum := built.Op("Add", []string{cast, k})
	built.Node("LeakyRelu", []string{sum}, []string{"y"}, A("alpha", 0.5))
	built.Output("y", ir.Float32, 1, 4, "h", 8)
	built.Metadata("k", "v")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "m.built"), encode(t, built), 0o644))
	runOracle(t, py, "check", dir)
}

func TestSharedModelsRoundTrip(t *testing.T) {
	dir := sharedModels(t)
	for _, c := range []struct {
		file   string
		nodes  int
		slices int
	}{
		{"driving_vision.onnx", 1135, 12},
		{"driving_policy.onnx", 173, 3},
		{"dmonitoring_model.onnx", 143, 0},
	} {
		t.Run(c.file, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join(dir, c.file))
			require.NoError(t, err)
			m, err := Decode(c.file, data)
			require.NoError(t, err)
			require.NoError(t, m.Validate())
			want := &onnxpb.ModelProto{}
			require.NoError(t, proto.Unmarshal(data, want))
			require.True(t, proto.Equal(want, m.Proto), "as the protobuf library decodes it, in the file's order")
			require.Len(t, m.Proto.Graph.Node, c.nodes)
			for _, p := range m.Proto.Graph.Initializer {
				_, err := m.Tensor(p)
				require.NoError(t, err)
			}
			n, _ := size(m.Proto.Graph.Output[0].GetType().GetTensorType().GetShape().GetDim()[1])
			slices, err := m.OutputSlices(n)
			require.NoError(t, err)
			require.Len(t, slices, c.slices)
		})
	}
}
