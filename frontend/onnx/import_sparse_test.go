package onnx_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/ir"
)

// TestImport_SparseInitializersAreConstants, of flat positions and of coordinates, in the graph and in a branch.
func TestImport_SparseInitializersAreConstants(t *testing.T) {
	sparse := func(at []int64, dims ...int64) *onnxpb.SparseTensorProto {
		return &onnxpb.SparseTensorProto{
			Values:  &onnxpb.TensorProto{Name: proto.String("w"), DataType: proto.Int32(1), Dims: []int64{2}, FloatData: []float32{5, 7}},
			Indices: &onnxpb.TensorProto{DataType: proto.Int32(7), Dims: dims, Int64Data: at},
			Dims:    []int64{2, 3},
		}
	}
	want := []float64{0, 5, 0, 0, 0, 7}
	for name, s := range map[string]*onnxpb.SparseTensorProto{"flat": sparse([]int64{1, 5}, 2), "coordinates": sparse([]int64{0, 1, 1, 2}, 2, 2)} {
		b := onnx.NewBuilder("g", 17)
		b.Input("x", ir.Float32, 2, 3)
		b.Initializer("yes", ir.ScalarInt(ir.Bool, 1))
		branch := body(t, func(b *onnx.Builder) {
			b.Node("Add", []string{"x", "w"}, []string{"r"})
			b.Output("r", ir.Float32, 2, 3)
		})
		outer := proto.Clone(branch).(*onnxpb.GraphProto)
		branch.SparseInitializer = []*onnxpb.SparseTensorProto{s}
		b.Node("If", []string{"yes"}, []string{"inner"}, onnx.A("then_branch", branch), onnx.A("else_branch", outer))
		b.Node("Mul", []string{"inner", "w"}, []string{"y"})
		b.Output("y", ir.Float32, 2, 3)
		b.Graph().SparseInitializer = []*onnxpb.SparseTensorProto{s}
		m, err := b.Model()
		require.NoError(t, err, name)
		g, err := onnx.Import(m, onnx.ImportOptions{})
		require.NoError(t, err, name)
		for _, n := range g.Nodes {
			require.Equal(t, want, n.Inputs[1].Const.Floats(), "%s: %s", name, n.Op.Name)
		}
		require.Len(t, g.Nodes, 2, name)
	}
}
