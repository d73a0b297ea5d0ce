package backendtest

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/ir"
)

func TestRun_SaysWhatONNXRuntimeWarnsAbout(t *testing.T) {
	b := onnx.NewBuilder("g", 17)
	b.Input("x", ir.Float32, 1, 2)
	b.Node("Neg", []string{"x"}, []string{"y"})
	b.Output("y", ir.Float32, 2)
	m, err := b.Model()
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, m.Save(filepath.Join(dir, "model.onnx")))
	for _, set := range []string{"test_data_set_0", "test_data_set_1"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, set), 0o755))
		for name, xs := range map[string][]float32{"input_0.pb": {1, 2}, "output_0.pb": {-1, -2}} {
			data, err := proto.Marshal(&onnxpb.TensorProto{Dims: []int64{1, 2}, DataType: proto.Int32(1), FloatData: xs})
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(dir, set, name), data, 0o644))
		}
	}
	results, err := Run(context.Background(), []string{dir}, Options{Open: checked, Workers: 1})
	require.NoError(t, err)
	require.Len(t, results, 1)
	require.NoError(t, results[0].Err)
	require.Len(t, results[0].Warnings, 1, "once, though each data set imports the model")
	require.Contains(t, results[0].Warnings[0], `output "y" is declared with shape [2]`)
}
