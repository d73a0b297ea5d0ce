package onnxgo

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/internal/backendtest"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// topology is what frontend/onnx makes of a graph.
func topology(g *onnxpb.GraphProto) *Graph {
	out := &Graph{}
	for _, v := range g.Input {
		out.Inputs = append(out.Inputs, v.GetName())
	}
	for _, v := range g.Output {
		out.Outputs = append(out.Outputs, v.GetName())
	}
	for _, n := range g.Node {
		node := Node{Op: n.GetOpType(), Inputs: n.Input, Outputs: n.Output}
		if n.GetDomain() != "" {
			node.Op = n.GetDomain() + "::" + node.Op
		}
		for _, a := range n.Attribute {
			if a.G != nil {
				node.Bodies = append(node.Bodies, topology(a.G))
			}
			for _, g := range a.Graphs {
				node.Bodies = append(node.Bodies, topology(g))
			}
		}
		out.Nodes = append(out.Nodes, node)
	}
	return out
}

func requireSameTopology(t *testing.T, name string, data []byte) {
	t.Helper()
	m, err := onnx.Decode(name, data)
	require.NoError(t, err)
	got, err := Read(data)
	require.NoError(t, err, name)
	require.Equal(t, topology(m.Proto.Graph), got, name)
}

// built is a model of everything that onnx-go reads wrongly without the rewriting.
func built(t *testing.T) []byte {
	inner := onnx.NewBuilder("then", 17)
	inner.Node("Identity", []string{"x"}, []string{"i"})
	inner.Output("i", ir.Float16, 2)
	empty := onnx.NewBuilder("else", 17)
	empty.Output("w", ir.Float16, 2)

	b := onnx.NewBuilder("odd", 17)
	b.Opset("com.example", 1)
	b.Input("x", ir.Float16, 2)
	b.Input("c", ir.Bool)
	b.Initializer("w", &ir.Tensor{Type: ir.T(ir.Float16, 2), Data: []byte{1, 2, 3, 4}})
	b.Node("Mul", []string{"x", "x"}, []string{"square"})
	b.Node("Where", []string{"c", "square", "c"}, []string{"where"})
	b.Node("Clip", []string{"where", "", "w"}, []string{"clip"})
	b.Node("Clip", []string{"clip", "", ""}, []string{"clip2"})
	b.Node("Constant", nil, []string{"k"}, onnx.A("value", &ir.Tensor{Type: ir.T(ir.BFloat16), Data: []byte{0, 0}}))
	b.Node("Constant", nil, []string{"k2"}, onnx.A("value_int", 7))
	b.Node("Split", []string{"clip2"}, []string{"s0", "", "s2"}, onnx.A("axis", 0))
	b.Node("LSTM", []string{"s0", "k", "k2"}, []string{"", "h"})
	b.Node("If", []string{"c"}, []string{"if"}, onnx.A("then_branch", inner.Graph()), onnx.A("else_branch", empty.Graph()))
	b.Node("Add", []string{"if", "h"}, []string{"y"})
	b.Output("y", ir.Float16, 2)
	b.Output("x", ir.Float16, 2)
	m, err := b.Model()
	require.NoError(t, err)
	m.Proto.Graph.Node[0].Domain = proto.String("com.example")
	data, err := m.Marshal()
	require.NoError(t, err)
	return data
}

func TestTopologyOfOddModel(t *testing.T) {
	requireSameTopology(t, "odd", built(t))
}

func TestADifferenceIsSeen(t *testing.T) {
	m, err := onnx.Decode("odd", built(t))
	require.NoError(t, err)
	n := m.Proto.Graph.Node[1]
	n.Input[0], n.Input[1] = n.Input[1], n.Input[0]
	got, err := Read(built(t))
	require.NoError(t, err)
	require.NotEqual(t, topology(m.Proto.Graph), got)
}

func TestTopologyOfSharedModels(t *testing.T) {
	shared := filepath.Join("..", "..", "..", "shared", "models")
	files, err := filepath.Glob(filepath.Join(shared, "*.onnx"))
	require.NoError(t, err)
	quantised, err := filepath.Glob(filepath.Join(shared, "quantised", "*.onnx"))
	require.NoError(t, err)
	if len(files) == 0 {
		t.Skip("no models next to the repository")
	}
	for _, f := range append(files, quantised...) {
		t.Run(filepath.Base(f), func(t *testing.T) {
			data, err := os.ReadFile(f)
			require.NoError(t, err)
			requireSameTopology(t, f, data)
		})
	}
}

func TestTopologyOfGeneratedModels(t *testing.T) {
	for _, m := range driving.Models(driving.Small) {
		t.Run(m.Name, func(t *testing.T) { requireSameTopology(t, m.Name, m.ONNX) })
	}
}

// The onnx package's operator cases: all that are within the opsets that frontend/onnx reads.
func TestTopologyOfOperatorCases(t *testing.T) {
	dir, err := backendtest.Written("../..", "nodecases")
	if errors.Is(err, backendtest.ErrNoPython) {
		t.Skip(err)
	}
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(dir, "*", "model.onnx"))
	require.NoError(t, err)
	require.Greater(t, len(files), 1000)
	held := 0
	for _, f := range files {
		data, err := os.ReadFile(f)
		require.NoError(t, err)
		if _, err := onnx.Decode(f, data); err != nil {
			var e *onnx.Error
			require.ErrorAs(t, err, &e, f)
			require.True(t, e.Unsupported, "%v", err)
			continue
		}
		requireSameTopology(t, filepath.Base(filepath.Dir(f)), data)
		held++
	}
	require.Greater(t, held, 1000)
	t.Logf("%d of %d cases", held, len(files))
}

func TestReadRefuses(t *testing.T) {
	for _, c := range []struct {
		name, want string
		data       []byte
	}{
		{"cut", "reading a model for onnx-go", []byte{0x3a, 9, 1}},
		{"no graph", "it has no graph", nil},
		{"no outputs", "Graph have no input or output", []byte{0x3a, 0}},
		{"name with a control character", "has control characters", []byte("\x3a\x06\x0a\x04\x0a\x02\x01x")},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Read(c.data)
			require.ErrorContains(t, err, c.want)
		})
	}
}
