package onnx

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/internal/memory"
)

// far is a tensor of n bytes at the start of a file next to the model.
func far(file string, n int64) *onnxpb.TensorProto {
	t := external("location", file)
	t.Dims = []int64{n}
	return t
}

// Each tensor of a model is in a file of its own; another byte in any of them is another model.
func TestDigest_CountsExternalDataOfAllTensors(t *testing.T) {
	attribute := func(a *onnxpb.AttributeProto) *onnxpb.NodeProto {
		a.Name = proto.String("value")
		return &onnxpb.NodeProto{OpType: proto.String("Constant"), Attribute: []*onnxpb.AttributeProto{a}}
	}
	sparse := func(name string) *onnxpb.SparseTensorProto {
		return &onnxpb.SparseTensorProto{Values: far(name+" values", 2), Indices: far(name+" indices", 2)}
	}
	inner := &onnxpb.GraphProto{
		Initializer:       []*onnxpb.TensorProto{far("inner", 2)},
		SparseInitializer: []*onnxpb.SparseTensorProto{sparse("inner sparse")},
		Node:              []*onnxpb.NodeProto{attribute(&onnxpb.AttributeProto{T: far("inner attribute", 2)})},
	}
	m := &Model{Path: filepath.Join(t.TempDir(), "m.onnx"), data: []byte("model"), Proto: &onnxpb.ModelProto{
		Graph: &onnxpb.GraphProto{
			Initializer:       []*onnxpb.TensorProto{far("dense", 2)},
			SparseInitializer: []*onnxpb.SparseTensorProto{sparse("sparse")},
			Node: []*onnxpb.NodeProto{
				attribute(&onnxpb.AttributeProto{T: far("attribute", 2)}),
				attribute(&onnxpb.AttributeProto{SparseTensor: sparse("sparse attribute")}),
				attribute(&onnxpb.AttributeProto{Tensors: []*onnxpb.TensorProto{far("list", 2)}}),
				attribute(&onnxpb.AttributeProto{SparseTensors: []*onnxpb.SparseTensorProto{sparse("sparse list")}}),
				attribute(&onnxpb.AttributeProto{G: inner}),
			},
		},
		Functions: []*onnxpb.FunctionProto{{
			Node: []*onnxpb.NodeProto{attribute(&onnxpb.AttributeProto{T: far("function", 2)})}}},
	}}
	files := []string{"dense", "sparse values", "sparse indices", "attribute", "sparse attribute values",
		"sparse attribute indices", "list", "sparse list values", "sparse list indices", "inner", "inner sparse values",
		"inner sparse indices", "inner attribute", "function"}
	write := func(name, data string) {
		require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(m.Path), name), []byte(data), 0o644))
	}
	for _, name := range files {
		write(name, "ab")
	}
	first, err := m.Digest()
	require.NoError(t, err)
	for _, name := range files {
		write(name, "aB")
		other, err := m.Digest()
		require.NoError(t, err)
		require.NotEqual(t, first, other, name)
		write(name, "ab")
	}
}

// limited sets the budget of memory for the rest of a test.
func limited(t *testing.T, bytes memory.Budget) { t.Cleanup(memory.Limit(bytes)) }

// A node without anything takes two bytes of a file, and its message a kilobyte.
func TestDecode_MessagesCountByWhatTheyBecome(t *testing.T) {
	const nodes = 1000
	node := []byte{1<<3 | 2, 0} // GraphProto.node, of no bytes
	graph := []byte(strings.Repeat(string(node), nodes))
	model := append([]byte{7<<3 | 2, byte(len(graph)&0x7f | 0x80), byte(len(graph) >> 7)}, graph...)
	limited(t, nodes*messageBytes)
	_, err := Decode("m.onnx", model)
	require.ErrorIs(t, err, memory.ErrBudget)
	require.ErrorContains(t, err, "m.onnx: decoding it needs 1")
	require.ErrorContains(t, err, allowMore)
	memory.Limit((nodes + 10) * messageBytes)
	_, err = Decode("m.onnx", model)
	require.NoError(t, err)
}

// Ranges of tensors overlap in a file that is far smaller than they are together; a tensor that is read again counts
// once.
func TestExternalData_OverlappingRangesCountEach(t *testing.T) {
	m := &Model{Path: filepath.Join(t.TempDir(), "m.onnx")}
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(m.Path), "w"), make([]byte, 1000), 0o644))
	limited(t, 3500)
	for i := range 3 {
		w := far("w", 1000)
		w.Name = proto.String(fmt.Sprint("w", i))
		for range 2 {
			_, err := m.Tensor(w)
			require.NoError(t, err)
		}
	}
	_, err := m.Tensor(far("w", 1000))
	require.ErrorIs(t, err, memory.ErrBudget)
	require.EqualError(t, err, m.Path+`: tensor "w": external data "w": reading it needs 3.91 KiB of memory, more than the `+
		`3.42 KiB that it may take (--memory); `+allowMore)
}

// Sparse external data count as read, and again as written out.
func TestExternalData_SparseTensorsCountAsWrittenOut(t *testing.T) {
	m := &Model{Path: filepath.Join(t.TempDir(), "m.onnx"), Proto: &onnxpb.ModelProto{}}
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(m.Path), "w"), make([]byte, 16), 0o644))
	at := far("w", 1)
	at.DataType = proto.Int32(int32(onnxpb.TensorProto_INT64))
	sparse := &onnxpb.SparseTensorProto{Values: far("w", 1), Indices: at, Dims: []int64{1 << 10, 1 << 10}}
	limited(t, 8<<20)
	_, err := (&importer{m: m}).denseTensor(sparse)
	require.ErrorIs(t, err, memory.ErrBudget)
	require.ErrorContains(t, err, `sparse tensor "w": writing it out needs 9 MiB`)
	memory.Limit(10 << 20)
	_, err = (&importer{m: m}).denseTensor(sparse)
	require.NoError(t, err)
	memory.Limit(8)
	_, err = (&importer{m: m}).denseTensor(sparse)
	require.ErrorContains(t, err, `external data "w": reading it needs`)
}

// A FIFO that nothing writes to is an error at once, not a wait.
func TestExternalData_FIFOIsRefused(t *testing.T) {
	m := &Model{Path: filepath.Join(t.TempDir(), "m.onnx"), data: []byte("model"), Proto: &onnxpb.ModelProto{
		Graph: &onnxpb.GraphProto{Initializer: []*onnxpb.TensorProto{far("fifo", 2)}}}}
	require.NoError(t, syscall.Mkfifo(filepath.Join(filepath.Dir(m.Path), "fifo"), 0o600))
	_, err := m.Tensor(m.Proto.Graph.Initializer[0])
	require.EqualError(t, err, m.Path+`: tensor "w": external data "fifo": not a regular file: give a file; `+
		`the file breaks the rules of ONNX here, of which onnx.checker may say more: export it again`)
	_, err = m.Digest()
	require.ErrorContains(t, err, `external data "fifo": not a regular file`)
}
