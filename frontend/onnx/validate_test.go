package onnx

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/ir"
)

// step describes a node for the tests: name, inputs, outputs, inner graph.
type step struct {
	name    string
	in, out []string
	body    *onnxpb.GraphProto
}

// sequence is a graph of Relu-like nodes from input x to output y.
func sequence(steps ...step) *onnxpb.ModelProto {
	b := NewBuilder("g", 17)
	b.Input("x", ir.Float32, 1)
	b.Output("y", ir.Float32, 1)
	for _, s := range steps {
		var attrs []Attr
		if s.body != nil {
			attrs = append(attrs, A("body", s.body))
		}
		b.Node("Op", s.in, s.out, attrs...).Name = proto.String(s.name)
	}
	return b.proto
}

func names(list ...string) []string { return list }

func inner(out string, steps ...step) *onnxpb.GraphProto {
	g := sequence(steps...).Graph
	g.Input = nil
	g.Output[0].Name = proto.String(out)
	return g
}

func TestValidateOrdersNodes(t *testing.T) {
	for _, c := range []struct {
		name  string
		model *onnxpb.ModelProto
		want  []string
	}{
		{"sorted stays", sequence(step{"a", names("x"), names("p"), nil}, step{"b", names("x"), names("q"), nil}, step{"c", names("p", "q"), names("y"), nil}),
			names("a", "b", "c")},
		{"reversed", sequence(step{"c", names("b", ""), names("y"), nil}, step{"b", names("a"), names("b"), nil}, step{"a", names("x"), names("a"), nil}),
			names("a", "b", "c")},
		{"what a node needs comes right before it", sequence(step{"c", names("q"), names("y"), nil}, step{"a", names("x"), names("p"), nil}, step{"b", names("x"), names("q"), nil}),
			names("b", "c", "a")},
		{"an inner graph's use counts", sequence(step{"if", names("x"), names("y"), inner("i", step{"i", names("late"), names("i"), nil})}, step{"a", names("x"), names("late"), nil}),
			names("a", "if")},
		{"an inner graph's own name does not", sequence(step{"if", names("x"), names("y"), inner("late", step{"i", names("x"), names("late"), nil})}, step{"a", names("x"), names("late"), nil}),
			names("if", "a")},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &Model{Proto: c.model, Opsets: map[string]int64{"": 17}}
			require.NoError(t, m.Validate())
			var got []string
			for _, n := range m.Proto.Graph.Node {
				got = append(got, n.GetName())
			}
			require.Equal(t, c.want, got)
		})
	}
}

func TestValidateRefuses(t *testing.T) {
	change := func(f func(m *onnxpb.ModelProto)) *onnxpb.ModelProto {
		m := sequence(step{"a", names("x"), names("y"), nil})
		f(m)
		return m
	}
	initializer := func(name string) *onnxpb.TensorProto { return &onnxpb.TensorProto{Name: proto.String(name)} }
	call := func(name string, in, out []string) *onnxpb.NodeProto {
		return &onnxpb.NodeProto{Domain: proto.String("f"), OpType: proto.String(name), Input: in, Output: out}
	}
	function := func(name string, nodes ...*onnxpb.NodeProto) *onnxpb.FunctionProto {
		return &onnxpb.FunctionProto{Domain: proto.String("f"), Name: proto.String(name), Input: names("p"), Output: names("q"), Node: nodes}
	}
	for _, c := range []struct {
		name, want string
		model      *onnxpb.ModelProto
	}{
		{"cycle of three", `m.onnx: node "b" (Op, opset 17): its input depends on its own output, by the cycle "b" ← "d" ← "c"`,
			sequence(step{"a", names("x"), names("y"), nil}, step{"b", names("d"), names("b"), nil}, step{"c", names("b"), names("c"), nil}, step{"d", names("c"), names("d"), nil}, step{"e", names("d"), names("e"), nil})},
		{"node that feeds itself", `m.onnx: node "a" (Op, opset 17): its input depends on its own output, by the cycle "a"`,
			sequence(step{"a", names("y"), names("y"), nil})},
		{"cycle through an inner graph", `its input depends on its own output`,
			sequence(step{"if", names("x"), names("y"), inner("i", step{"i", names("y"), names("i"), nil})})},
		{"undefined input", `m.onnx: node "a" (Op, opset 17): input "z" is not defined; no graph input, initializer or node provides it`,
			sequence(step{"a", names("z"), names("y"), nil})},
		{"undefined input of an inner graph", `m.onnx: node "i" (Op, opset 17): input "z" is not defined`,
			sequence(step{"if", names("x"), names("y"), inner("i", step{"i", names("z"), names("i"), nil})})},
		{"an inner graph's value used outside", `m.onnx: node "a" (Op, opset 17): input "i" is not defined`,
			sequence(step{"if", names("x"), names("p"), inner("i", step{"i", names("x"), names("i"), nil})}, step{"a", names("i"), names("y"), nil})},
		{"undefined output", `m.onnx: graph output "y" is not defined`, sequence(step{"a", names("x"), names("z"), nil})},
		{"output twice", `m.onnx: graph output "y" is listed twice`, change(func(m *onnxpb.ModelProto) { m.Graph.Output = append(m.Graph.Output, m.Graph.Output[0]) })},
		{"no output", `m.onnx: the graph has no outputs`, change(func(m *onnxpb.ModelProto) { m.Graph.Output = nil })},
		{"value from two nodes", `m.onnx: node "b" (Op, opset 17): value "y" is defined twice: by node "a" and by node "b"`,
			sequence(step{"a", names("x"), names("y"), nil}, step{"b", names("x"), names("y"), nil})},
		{"value from node and input", `value "x" is defined twice: by graph input and by node "a"`, sequence(step{"a", names("x"), names("x"), nil})},
		{"input twice", `m.onnx: value "x" is defined twice: by graph input and by graph input`,
			change(func(m *onnxpb.ModelProto) { m.Graph.Input = append(m.Graph.Input, m.Graph.Input[0]) })},
		{"initializer twice", `m.onnx: value "w" is defined twice: by two initializers`,
			change(func(m *onnxpb.ModelProto) {
				m.Graph.Initializer = []*onnxpb.TensorProto{initializer("w"), initializer("w")}
			})},
		{"initializer without a name", `m.onnx: initializer without a name`,
			change(func(m *onnxpb.ModelProto) { m.Graph.Initializer = []*onnxpb.TensorProto{initializer("")} })},
		{"sparse and dense initializer", `m.onnx: value "w" is defined twice: by two initializers`,
			change(func(m *onnxpb.ModelProto) {
				m.Graph.Initializer = []*onnxpb.TensorProto{initializer("w")}
				m.Graph.SparseInitializer = []*onnxpb.SparseTensorProto{{Values: initializer("w")}}
			})},
		{"sparse initializer without values", `m.onnx: initializer without a name`,
			change(func(m *onnxpb.ModelProto) { m.Graph.SparseInitializer = []*onnxpb.SparseTensorProto{{}} })},
		{"no operator", `m.onnx: node "a" (no operator, opset 17): the node has no op_type`,
			change(func(m *onnxpb.ModelProto) { m.Graph.Node[0].OpType = nil })},
		{"attribute twice", `attribute "k" is given twice`, change(func(m *onnxpb.ModelProto) {
			k := &onnxpb.AttributeProto{Name: proto.String("k")}
			m.Graph.Node[0].Attribute = []*onnxpb.AttributeProto{k, k}
		})},
		{"unknown domain", `m.onnx: node "a" (com.example.Op): operators of domain "com.example" are not supported; export the model with operators of ai.onnx only`,
			change(func(m *onnxpb.ModelProto) { m.Graph.Node[0].Domain = proto.String("com.example") })},
		{"TensorRT's quantiser", `m.onnx: node "a" (trt.TRT_FP4DynamicQuantize): operators of domain "trt" are not supported; quantise with QuantizeLinear and DequantizeLinear of ai.onnx`,
			change(func(m *onnxpb.ModelProto) {
				m.Graph.Node[0].Domain, m.Graph.Node[0].OpType = proto.String("trt"), proto.String("TRT_FP4DynamicQuantize")
			})},
		{"opset not imported", `m.onnx: node "a" (Op): the file imports no opset of domain "ai.onnx"; add it to opset_import`,
			change(func(m *onnxpb.ModelProto) { m.OpsetImport = nil })},
		{"function that calls itself", `m.onnx: function f.F calls itself, directly or through others`, change(func(m *onnxpb.ModelProto) {
			m.Functions = []*onnxpb.FunctionProto{function("F", call("G", names("p"), names("q"))), function("G", call("F", names("p"), names("q")))}
		})},
		{"function twice", `m.onnx: function f.F is defined twice`, change(func(m *onnxpb.ModelProto) {
			m.Functions = []*onnxpb.FunctionProto{function("F"), function("F")}
		})},
		{"function without its output", `m.onnx: function f.F: output "q" is not defined`, change(func(m *onnxpb.ModelProto) {
			m.Functions = []*onnxpb.FunctionProto{function("F")}
		})},
		{"function that uses a value from outside", `m.onnx: node "q" (f.G): input "x" is not defined`, change(func(m *onnxpb.ModelProto) {
			m.Functions = []*onnxpb.FunctionProto{function("G", call("Op", names("p"), names("q"))), function("F", call("G", names("x"), names("q")))}
			m.Functions[0].Node[0].Domain = nil
		})},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &Model{Path: "m.onnx", Proto: c.model}
			require.NoError(t, m.readOpsets())
			err := m.Validate()
			require.ErrorContains(t, err, c.want)
			var e *Error
			require.ErrorAs(t, err, &e)
		})
	}
}

func TestValidateAdmits(t *testing.T) {
	for _, c := range []struct {
		name  string
		model *onnxpb.ModelProto
	}{
		{"an initializer that is the default of an input", func() *onnxpb.ModelProto {
			m := sequence(step{"a", names("x"), names("y"), nil})
			m.Graph.Initializer = []*onnxpb.TensorProto{{Name: proto.String("x")}}
			return m
		}()},
		{"an output that is an input", func() *onnxpb.ModelProto {
			m := sequence()
			m.Graph.Output[0].Name = proto.String("x")
			return m
		}()},
		{"absent inputs and unwanted outputs", sequence(step{"a", names("", "x", ""), names("", "y", ""), nil})},
		{"an inner graph that reuses a name", sequence(step{"p", names("x"), names("p"), nil}, step{"if", names("p"), names("y"), inner("p", step{"i", names("x"), names("p"), nil})})},
		{"a local function in a domain of its own", func() *onnxpb.ModelProto {
			m := sequence(step{"a", names("x"), names("y"), nil})
			m.Graph.Node[0].Domain, m.Graph.Node[0].OpType = proto.String("f"), proto.String("F")
			m.Functions = []*onnxpb.FunctionProto{{Domain: proto.String("f"), Name: proto.String("F"), Input: names("p"), Output: names("p")}}
			return m
		}()},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := &Model{Proto: c.model}
			require.NoError(t, m.readOpsets())
			require.NoError(t, m.Validate())
		})
	}
}

func TestBuilderReportsMistakes(t *testing.T) {
	b := NewBuilder("g", 17)
	b.Input("x", ir.Float32, 1.5)
	b.Node("Relu", names("x"), names("y"), A("k", struct{}{}))
	_, err := b.Model()
	require.ErrorContains(t, err, `building model "g"`)
	require.ErrorContains(t, err, `value "x": a dimension is an int or a string, not float64`)
	require.ErrorContains(t, err, `Relu: attribute "k" cannot hold a struct {}`)
}
