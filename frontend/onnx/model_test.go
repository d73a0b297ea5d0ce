package onnx

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/ir"
)

// tiny is a model of one Add: y = x + w.
func tiny(t testing.TB) *Builder {
	t.Helper()
	b := NewBuilder("tiny", 17)
	x := b.Input("x", ir.Float32, 2, "n")
	w := b.Initializer("w", &ir.Tensor{Type: ir.T(ir.Float32, 2, 1), Data: []byte("abcdefgh")})
	b.Node("Add", []string{x, w}, []string{"y"}).Name = proto.String("add")
	b.Output("y", ir.Float32, 2, "n")
	return b
}

func encode(t testing.TB, b *Builder) []byte {
	t.Helper()
	m, err := b.Model()
	require.NoError(t, err)
	data, err := m.Marshal()
	require.NoError(t, err)
	return data
}

func TestRawDataAliasesTheFile(t *testing.T) {
	data := encode(t, tiny(t))
	m, err := Decode("tiny.onnx", data)
	require.NoError(t, err)
	at := bytes.Index(data, []byte("abcdefgh"))
	require.Positive(t, at)
	require.Same(t, &data[at], &m.Proto.Graph.Initializer[0].RawData[0])
	w, err := m.Tensor(m.Proto.Graph.Initializer[0])
	require.NoError(t, err)
	require.Same(t, &data[at], &w.Data[0], "decoding a raw tensor copies nothing")
}

func TestRawDataIsFoundWhereverTensorsLive(t *testing.T) {
	// The same decoding as the library's own, for tensors in attributes, inner graphs, sparse tensors and functions.
	tensor := func(s string) *onnxpb.TensorProto {
		return &onnxpb.TensorProto{Name: proto.String(s), Dims: []int64{int64(len(s))}, DataType: proto.Int32(2), RawData: []byte(s)}
	}
	sparse := &onnxpb.SparseTensorProto{Values: tensor("values"), Indices: tensor("indices"), Dims: []int64{9}}
	node := func(a *onnxpb.AttributeProto) *onnxpb.NodeProto {
		a.Name = proto.String("a")
		return &onnxpb.NodeProto{OpType: proto.String("Op"), Attribute: []*onnxpb.AttributeProto{a}}
	}
	inner := &onnxpb.GraphProto{Initializer: []*onnxpb.TensorProto{tensor("inner"), tensor("")}}
	m := &onnxpb.ModelProto{
		Graph: &onnxpb.GraphProto{
			Node: []*onnxpb.NodeProto{
				node(&onnxpb.AttributeProto{T: tensor("one")}),
				node(&onnxpb.AttributeProto{Tensors: []*onnxpb.TensorProto{tensor("two"), tensor("three")}}),
				node(&onnxpb.AttributeProto{G: inner}),
				node(&onnxpb.AttributeProto{Graphs: []*onnxpb.GraphProto{inner, inner}}),
				node(&onnxpb.AttributeProto{SparseTensor: sparse}),
				node(&onnxpb.AttributeProto{SparseTensors: []*onnxpb.SparseTensorProto{sparse}}),
			},
			SparseInitializer: []*onnxpb.SparseTensorProto{sparse},
		},
		Functions: []*onnxpb.FunctionProto{{
			Name:           proto.String("f"),
			Node:           []*onnxpb.NodeProto{node(&onnxpb.AttributeProto{T: tensor("four")})},
			AttributeProto: []*onnxpb.AttributeProto{{Name: proto.String("d"), T: tensor("five")}},
		}},
	}
	data, err := proto.Marshal(m)
	require.NoError(t, err)
	got := &onnxpb.ModelProto{}
	require.NoError(t, unmarshal(data, got))
	require.True(t, proto.Equal(m, got))
}

func TestUnknownFieldsSurvive(t *testing.T) {
	data := encode(t, tiny(t))
	data = protowire.AppendTag(data, 900, protowire.BytesType)
	data = protowire.AppendString(data, "from the future")
	m, err := Decode("", data)
	require.NoError(t, err)
	again, err := m.Marshal()
	require.NoError(t, err)
	require.Contains(t, string(again), "from the future")
}

func TestDecodeRefuses(t *testing.T) {
	good := encode(t, tiny(t))
	version := func(v int64) []byte {
		m := &onnxpb.ModelProto{Graph: &onnxpb.GraphProto{}, OpsetImport: []*onnxpb.OperatorSetIdProto{{Version: &v}}}
		data, _ := proto.Marshal(m)
		return data
	}
	deep := []byte{}
	for range 500 { // attribute → graph → node → attribute …
		for _, num := range []protowire.Number{5, 1, 6} {
			deep = protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), deep)
		}
	}
	for _, num := range []protowire.Number{5, 1, 7} {
		deep = protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), deep)
	}
	ir99, _ := proto.Marshal(&onnxpb.ModelProto{IrVersion: proto.Int64(99), Graph: &onnxpb.GraphProto{}})
	twice, _ := proto.Marshal(&onnxpb.ModelProto{Graph: &onnxpb.GraphProto{}, OpsetImport: []*onnxpb.OperatorSetIdProto{
		{Domain: proto.String("x"), Version: proto.Int64(1)}, {Domain: proto.String("x"), Version: proto.Int64(2)}}})

	for _, c := range []struct {
		name, want  string
		data        []byte
		unsupported bool
	}{
		{name: "empty", data: nil, want: "m.onnx: the file is empty; download or export it again"},
		{name: "LFS pointer", data: []byte("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"),
			want: "m.onnx: a Git LFS pointer, not the model itself; run git lfs pull in its repository"},
		{name: "truncated", data: good[:len(good)-40], want: "m.onnx: not an ONNX model, or truncated: unexpected EOF; download or export it again"},
		{name: "no graph", data: []byte{8, 8}, want: "m.onnx: not an ONNX model, or truncated: it has no graph; download or export it again"},
		{name: "HTML", data: []byte("<!DOCTYPE html><title>404</title>"), want: "m.onnx: an HTML or XML document, not an ONNX model"},
		{name: "zip", data: []byte("PK\x03\x04............"), want: "m.onnx: a zip archive (perhaps a PyTorch checkpoint), not an ONNX model"},
		{name: "ORT", data: []byte("\x18\x00\x00\x00ORTM\x00\x00"), want: "m.onnx: a model in ONNX Runtime's own format (.ort), not an ONNX model"},
		{name: "deep nesting", data: deep, want: "exceeded maximum recursion depth"},
		{name: "new IR", data: ir99, unsupported: true, want: "m.onnx: IR version 99 is newer than 14, the newest supported; export it with an older onnx"},
		{name: "old opset", data: version(6), unsupported: true, want: "m.onnx: opset 6 is older than 7, the oldest supported; convert it with onnx.version_converter, or export it with opset_version=17"},
		{name: "new opset", data: version(29), unsupported: true, want: "m.onnx: opset 29 is newer than 28, the newest supported; convert it with onnx.version_converter, or export it with opset_version=28"},
		{name: "opset twice", data: twice, want: `m.onnx: domain "x" is imported twice, with versions 1 and 2`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Decode("m.onnx", c.data)
			require.ErrorContains(t, err, c.want)
			var e *Error
			require.ErrorAs(t, err, &e)
			require.Equal(t, c.unsupported, e.Unsupported)
		})
	}
}

func TestEveryTruncationIsAnErrorOrAModel(t *testing.T) {
	good := encode(t, tiny(t))
	for n := range good {
		if m, err := Decode("", good[:n]); err == nil {
			_ = m.Validate()
		}
	}
}

func TestLoadSaysWhyAFileCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	_, err := Load(filepath.Join(dir, "none.onnx"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.Equal(t, 1, strings.Count(err.Error(), "none.onnx"))
	_, err = Load(dir)
	require.ErrorContains(t, err, "is a directory")
}

func TestSaveReplacesTheFileAsAWhole(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m.onnx")
	m, err := tiny(t).Model()
	require.NoError(t, err)
	require.NoError(t, m.Save(path))
	got, err := Load(path)
	require.NoError(t, err)
	require.True(t, proto.Equal(m.Proto, got.Proto))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "no temporary file stays")
	err = m.Save(filepath.Join(dir, "no/such/dir/m.onnx"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestErrorText(t *testing.T) {
	m := &Model{Path: "driving_vision.onnx", Opsets: map[string]int64{"": 17, "com.microsoft": 1}}
	conv := &onnxpb.NodeProto{Name: proto.String("/wide/Conv_3"), OpType: proto.String("Conv"), Domain: proto.String("ai.onnx")}
	v := &validator{m, m.Opsets}
	err := v.at(conv, m.fileError("group %d does not divide %d output channels", 3, 64).WithRemedy("re-export it"))
	require.EqualError(t, err, `driving_vision.onnx: node "/wide/Conv_3" (Conv, opset 17): group 3 does not divide 64 output channels; re-export it`)

	nameless := &onnxpb.NodeProto{OpType: proto.String("Fused"), Domain: proto.String("com.microsoft"), Output: []string{"", "y"}}
	require.EqualError(t, v.at(nameless, m.fileError("why")), `driving_vision.onnx: node "y" (com.microsoft.Fused, opset 1): why; `+broken)
	require.Same(t, err, v.at(nameless, err), "the innermost node stays")
}

// TestEveryRefusedOperatorHasARemedy, which the others get from the arguments of refuse and from fileError.
func TestEveryRefusedOperatorHasARemedy(t *testing.T) {
	for i := range refusedOperators {
		n := &onnxpb.NodeProto{OpType: &refusedOperators[i].name}
		err := (&importer{m: &Model{}}).site(&scope{}, n).convert(&refusedOperators[i])
		var e *Error
		require.ErrorAs(t, err, &e)
		require.True(t, e.Unsupported)
		require.Greater(t, len(e.Remedy), 10, "%v", e)
		require.NotEqual(t, broken, e.Remedy, "%v", e)
	}
}
