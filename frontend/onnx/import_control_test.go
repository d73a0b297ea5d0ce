package onnx_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/ir"
)

// body is a graph to serve as an attribute.
func body(t *testing.T, make func(b *onnx.Builder)) *onnxpb.GraphProto {
	t.Helper()
	b := onnx.NewBuilder("body", 17)
	make(b)
	return b.Graph()
}

// doubling is a loop body: the state doubles, and is collected; the loop goes on while the condition input holds.
func doubling(t *testing.T) *onnxpb.GraphProto {
	return body(t, func(b *onnx.Builder) {
		b.Input("i", ir.Int64)
		b.Input("going", ir.Bool)
		b.Input("state", ir.Float32, 1)
		b.Node("Identity", []string{"going"}, []string{"go_on"})
		b.Node("Add", []string{"state", "state"}, []string{"twice"})
		b.Node("Add", []string{"twice", "outer"}, []string{"collected"}) // a name of the graph around it
		b.Output("go_on", ir.Bool)
		b.Output("twice", ir.Float32, 1)
		b.Output("collected", ir.Float32, 1)
	})
}

func loopModel(t *testing.T, trips, cond string) *onnx.Model {
	b := onnx.NewBuilder("g", 17)
	b.Input("x", ir.Float32, 1)
	b.Input("n", ir.Int64)
	b.Initializer("outer", f32s(100))
	b.Initializer("three", ir.ScalarInt(ir.Int64, 3))
	b.Initializer("many", ir.ScalarInt(ir.Int64, 1<<40))
	b.Initializer("yes", ir.ScalarInt(ir.Bool, 1))
	start := b.Op("Add", []string{"x", b.Initializer("one", f32s(1))})
	b.Node("Loop", []string{trips, cond, start}, []string{"last", "all"}, onnx.A("body", doubling(t))).Name = proto.String("loop")
	b.Output("last", ir.Float32, 1)
	b.Output("all", ir.Float32, "trips", 1)
	m, err := b.Model()
	require.NoError(t, err)
	return m
}

func TestLoopOfConstantTripCountIsUnrolled(t *testing.T) {
	for _, cond := range []string{"", "yes"} {
		g, err := onnx.Import(loopModel(t, "three", cond), onnx.ImportOptions{})
		require.NoError(t, err)
		outs := evaluate(t, g)
		require.Equal(t, []float64{8}, outs[0].Floats())
		require.Equal(t, []float64{102, 104, 108}, outs[1].Floats())
	}
	for want, c := range map[string][2]string{
		`node "loop" (Loop, opset 17): the trip count is computed from data (input 0, "n"), so shapes would depend on data; make it a constant`:                          {"n", "yes"},
		`node "loop" (Loop, opset 17): it runs more than 1024 times, the most that are unrolled; export it with fewer iterations, or run its body as a model of its own`: {"many", "yes"},
	} {
		_, err := onnx.Import(loopModel(t, c[0], c[1]), onnx.ImportOptions{})
		require.EqualError(t, err, want)
	}
}

// The body counts down while its state exceeds 1, and adds up a table that ends before the trip count does.
func TestLoop_DataConditionKeepsStates(t *testing.T) {
	model := func(trips string, scan bool) *onnx.Model {
		b := onnx.NewBuilder("g", 17)
		b.Input("x", ir.Float32)
		b.Initializer("five", ir.ScalarInt(ir.Int64, 5))
		b.Initializer("yes", ir.ScalarInt(ir.Bool, 1))
		b.Initializer("one", ir.ScalarFloat(ir.Float32, 1))
		b.Initializer("table", f32s(10, 20, 30))
		b.Initializer("zero", ir.ScalarFloat(ir.Float32, 0))
		inner := body(t, func(b *onnx.Builder) {
			b.Input("i", ir.Int64)
			b.Input("going", ir.Bool)
			b.Input("state", ir.Float32)
			b.Input("sum", ir.Float32)
			b.Node("Gather", []string{"table", "i"}, []string{"row"}) // which fails past the end of the table
			b.Node("Sub", []string{"state", "one"}, []string{"less"})
			b.Node("Add", []string{"sum", "row"}, []string{"more"})
			b.Node("Greater", []string{"less", "one"}, []string{"go_on"})
			b.Output("go_on", ir.Bool)
			b.Output("less", ir.Float32)
			b.Output("more", ir.Float32)
			if scan {
				b.Node("Neg", []string{"row"}, []string{"seen"})
				b.Output("seen", ir.Float32)
			}
		})
		outs := []string{"last", "total"}
		if scan {
			outs = append(outs, "all")
		}
		b.Node("Loop", []string{trips, "yes", "x", "zero"}, outs, onnx.A("body", inner)).Name = proto.String("loop")
		for _, name := range outs {
			b.Output(name, ir.Float32)
		}
		m, err := b.Model()
		require.NoError(t, err)
		return m
	}
	g, err := onnx.Import(model("five", false), onnx.ImportOptions{})
	require.NoError(t, err)
	for x, want := range map[float64][]float64{-3: {-4, 10}, 2.5: {0.5, 30}, 3: {1, 30}, 3.5: {0.5, 60}} {
		in := map[string]*ir.Array{"x": ir.ScalarFloat(ir.Float32, x).Array()}
		outs, err := ir.Evaluate(t.Context(), g, in, ir.EvalOptions{Round: true})
		require.NoError(t, err)
		require.Equal(t, want, []float64{outs["last"].F[0], outs["total"].F[0]}, "x = %v", x)
	}
	_, err = onnx.Import(model("", false), onnx.ImportOptions{})
	require.ErrorContains(t, err, `its condition is computed from data, and no trip count bounds it; give it a trip count that bounds it`)
	_, err = onnx.Import(model("five", true), onnx.ImportOptions{})
	require.ErrorContains(t, err, "its condition is computed from data, and so is the length of output 2")
}

func TestIfOfConstantConditionFolds(t *testing.T) {
	model := func(cond string) *onnx.Model {
		b := onnx.NewBuilder("g", 17)
		b.Input("x", ir.Float32, 2)
		b.Input("c", ir.Bool)
		b.Initializer("yes", ir.ScalarInt(ir.Bool, 1))
		branch := func(op string) *onnxpb.GraphProto {
			return body(t, func(b *onnx.Builder) {
				b.Node(op, []string{"x"}, []string{"r"})
				b.Output("r", ir.Float32, 2)
			})
		}
		b.Node("If", []string{cond}, []string{"y"}, onnx.A("then_branch", branch("Neg")), onnx.A("else_branch", branch("Exp")))
		b.Output("y", ir.Float32, 2)
		m, err := b.Model()
		require.NoError(t, err)
		return m
	}
	g, err := onnx.Import(model("yes"), onnx.ImportOptions{})
	require.NoError(t, err)
	require.Len(t, g.Nodes, 1)
	require.Equal(t, "Neg", g.Nodes[0].Op.Name)
	require.Equal(t, []string{"c"}, onnx.ShapeInputs(model("c")))
}

func TestIfOnData_SelectsBetweenItsBranches(t *testing.T) {
	model := func(reluTimes, elseLength int) *onnx.Model {
		b := onnx.NewBuilder("g", 17)
		b.Input("x", ir.Float32, 2)
		b.Input("c", ir.Bool, 1)
		yes := body(t, func(b *onnx.Builder) {
			last := "x"
			for range reluTimes {
				last = b.Op("Neg", []string{b.Op("Exp", []string{last})})
			}
			b.Node("Abs", []string{last}, []string{"r"})
			b.Output("r", ir.Float32, 2)
		})
		no := body(t, func(b *onnx.Builder) {
			b.Initializer("r", ir.FromFloats(ir.T(ir.Float32, elseLength), make([]float64, elseLength)))
			b.Output("r", ir.Float32, elseLength)
		})
		b.Node("If", []string{"c"}, []string{"y"}, onnx.A("then_branch", yes), onnx.A("else_branch", no))
		b.Output("y", ir.Float32, 2)
		m, err := b.Model()
		require.NoError(t, err)
		return m
	}
	g, err := onnx.Import(model(0, 2), onnx.ImportOptions{})
	require.NoError(t, err)
	for c, want := range map[int64][]float64{0: {0, 0}, 1: {3, 4}} {
		in := map[string]*ir.Array{"x": ir.FromFloats(ir.T(ir.Float32, 2), []float64{-3, 4}).Array()}
		in["c"] = ir.FromInts(ir.T(ir.Bool, 1), []int64{c}).Array()
		outs, err := ir.Evaluate(context.Background(), g, in, ir.EvalOptions{})
		require.NoError(t, err)
		require.Equal(t, want, outs["y"].F)
	}
	_, err = onnx.Import(model(0, 3), onnx.ImportOptions{})
	require.ErrorContains(t, err, "output 0 is f32[2] in one branch and f32[3] in the other; fix")
	_, err = onnx.Import(model(200, 2), onnx.ImportOptions{})
	require.ErrorContains(t, err, "its branches have 401 operations: more than 256 are not computed both; fix")
}

// A function's node refers to the caller's attribute, or to the function's default; its body has opsets of its own.
func TestLocalFunctionsAreInlined(t *testing.T) {
	call := func(out string, attrs ...*onnxpb.AttributeProto) *onnxpb.NodeProto {
		return &onnxpb.NodeProto{OpType: proto.String("AtLeast"), Domain: proto.String("mine"),
			Input: []string{"x"}, Output: []string{out}, Attribute: attrs}
	}
	graph := body(t, func(b *onnx.Builder) {
		b.Input("x", ir.Float32, 2)
		b.Output("given", ir.Float32, 2)
		b.Output("default", ir.Float32, 2)
	})
	graph.Node = []*onnxpb.NodeProto{
		call("given", &onnxpb.AttributeProto{Name: proto.String("low"), Type: onnxpb.AttributeProto_FLOAT.Enum(), F: proto.Float32(0.5)}),
		call("default"),
	}
	p := &onnxpb.ModelProto{IrVersion: proto.Int64(9), Graph: graph, OpsetImport: []*onnxpb.OperatorSetIdProto{
		{Domain: proto.String(""), Version: proto.Int64(17)}, {Domain: proto.String("mine"), Version: proto.Int64(1)}}}
	p.Functions = []*onnxpb.FunctionProto{{
		Name: proto.String("AtLeast"), Domain: proto.String("mine"),
		Input: []string{"a"}, Output: []string{"r"},
		AttributeProto: []*onnxpb.AttributeProto{{Name: proto.String("low"), Type: onnxpb.AttributeProto_FLOAT.Enum(), F: proto.Float32(0.25)}},
		OpsetImport:    []*onnxpb.OperatorSetIdProto{{Domain: proto.String(""), Version: proto.Int64(9)}},
		Node: []*onnxpb.NodeProto{{
			OpType: proto.String("Clip"), Input: []string{"a"}, Output: []string{"r"}, // Clip of opset 9 has attributes
			Attribute: []*onnxpb.AttributeProto{{Name: proto.String("min"), RefAttrName: proto.String("low"), Type: onnxpb.AttributeProto_FLOAT.Enum()}},
		}},
	}}
	data, err := proto.Marshal(p)
	require.NoError(t, err)
	m, err := onnx.Decode("f.onnx", data)
	require.NoError(t, err)
	require.NoError(t, m.Validate())
	g, err := onnx.Import(m, onnx.ImportOptions{})
	require.NoError(t, err)
	outs := evaluate(t, g)
	require.Equal(t, []float64{0.5, 1}, outs[0].Floats())
	require.Equal(t, []float64{0.25, 1}, outs[1].Floats())
}

// A function may call another one, hand on an attribute of its own, and import other opsets than the model: Clip has
// attributes before opset 11, and inputs from there on.
func TestFunctionsCallFunctions(t *testing.T) {
	opset := func(domain string, version int64) *onnxpb.OperatorSetIdProto {
		return &onnxpb.OperatorSetIdProto{Domain: proto.String(domain), Version: proto.Int64(version)}
	}
	float := func(name string, v float32) *onnxpb.AttributeProto {
		return &onnxpb.AttributeProto{Name: proto.String(name), Type: onnxpb.AttributeProto_FLOAT.Enum(), F: proto.Float32(v)}
	}
	refers := func(name, to string) *onnxpb.AttributeProto {
		return &onnxpb.AttributeProto{Name: proto.String(name), Type: onnxpb.AttributeProto_FLOAT.Enum(), RefAttrName: proto.String(to)}
	}
	node := func(domain, op string, in, out []string, attrs ...*onnxpb.AttributeProto) *onnxpb.NodeProto {
		return &onnxpb.NodeProto{Domain: proto.String(domain), OpType: proto.String(op), Input: in, Output: out, Attribute: attrs}
	}
	graph := body(t, func(b *onnx.Builder) {
		b.Input("x", ir.Float32, 2)
		b.Output("y", ir.Float32, 2)
	})
	graph.Node = []*onnxpb.NodeProto{node("mine", "Outer", []string{"x"}, []string{"y"}, float("floor", 0.75))}
	p := &onnxpb.ModelProto{IrVersion: proto.Int64(9), Graph: graph, OpsetImport: []*onnxpb.OperatorSetIdProto{opset("", 17), opset("mine", 1)}}
	p.Functions = []*onnxpb.FunctionProto{{
		Name: proto.String("Outer"), Domain: proto.String("mine"), Input: []string{"a"}, Output: []string{"r"}, Attribute: []string{"floor"},
		OpsetImport: []*onnxpb.OperatorSetIdProto{opset("", 13), opset("mine", 1)},
		Node: []*onnxpb.NodeProto{
			node("mine", "Inner", []string{"a"}, []string{"low"}, refers("least", "floor")),
			node("", "Constant", nil, []string{"most"}, float("value_float", 100)), // an attribute of opset 12
			node("", "Clip", []string{"low", "", "most"}, []string{"cut"}),
			node("", "Add", []string{"cut", "low"}, []string{"r"}),
		},
	}, {
		Name: proto.String("Inner"), Domain: proto.String("mine"), Input: []string{"a"}, Output: []string{"r"}, Attribute: []string{"least"},
		OpsetImport: []*onnxpb.OperatorSetIdProto{opset("", 9)},
		Node:        []*onnxpb.NodeProto{node("", "Clip", []string{"a"}, []string{"r"}, refers("min", "least"))},
	}}
	data, err := proto.Marshal(p)
	require.NoError(t, err)
	m, err := onnx.Decode("f.onnx", data)
	require.NoError(t, err)
	require.NoError(t, m.Validate())
	g, err := onnx.Import(m, onnx.ImportOptions{})
	require.NoError(t, err)
	require.Equal(t, []float64{1.5, 2}, evaluate(t, g)[0].Floats())
}

func TestNodesThatNothingReadsAreNotConverted(t *testing.T) {
	b := onnx.NewBuilder("g", 17)
	b.Input("x", ir.Float32, 2)
	b.Node("RandomNormalLike", []string{"x"}, []string{"noise"})
	b.Node("Relu", []string{"x"}, []string{"y"})
	b.Output("y", ir.Float32, 2)
	m, err := b.Model()
	require.NoError(t, err)
	g, err := onnx.Import(m, onnx.ImportOptions{})
	require.NoError(t, err)
	require.Len(t, g.Nodes, 1)
}

// TestTableCoversTheStandard holds the import table against the schemas of the onnx package: every operator of ai.onnx
// that exists at an opset has a row there, converted or refused, and no other has.
func TestTableCoversTheStandard(t *testing.T) {
	py := os.Getenv("SPARK_PYTHON")
	if py == "" {
		py, _ = filepath.Abs("../../.venv/bin/python")
	}
	out, err := exec.Command(py, "-c", `
import json, onnx.defs as d
names = {(s.domain, s.name) for s in d.get_all_schemas_with_history() if s.domain == ""}
ops = {}
for v in range(7, 29):
    ops[v] = []
    for domain, name in sorted(names):
        try:
            if not d.get_schema(name, v, domain).deprecated: ops[v].append(name)
        except Exception: pass
print(json.dumps(ops))`).Output()
	if err != nil {
		t.Skipf("no python with the onnx package at %s; set SPARK_PYTHON", py)
	}
	var standard map[int64][]string
	require.NoError(t, json.Unmarshal(out, &standard))
	require.Len(t, standard, onnx.MaxOpset-onnx.MinOpset+1)
	for opset, names := range standard {
		if opset >= 18 && opset < 21 {
			names = append(names, "GroupNormalization") // deprecated as first published, but in files
		}
		if opset < 17 {
			names = append(names, "LayerNormalization") // ONNX Runtime puts it there
		}
		names = append(names, "SimplifiedLayerNormalization")
		require.Empty(t, onnx.MissingOperators(opset, names), "opset %d: in the standard but not in the table", opset)
		require.Empty(t, onnx.ExtraOperators(opset, names), "opset %d: in the table but not in the standard", opset)
	}
}

// functionModel is y = F(inputs) over x f32 [2], by the first of the functions.
func functionModel(t *testing.T, inputs []string, attrs []*onnxpb.AttributeProto, functions ...*onnxpb.FunctionProto) *onnx.Model {
	t.Helper()
	graph := body(t, func(b *onnx.Builder) {
		b.Input("x", ir.Float32, 2)
		b.Output("y", ir.Float32, 2)
	})
	graph.Node = []*onnxpb.NodeProto{{
		Domain: proto.String("mine"), OpType: functions[0].Name, Input: inputs, Output: []string{"y"}, Attribute: attrs,
	}}
	for _, f := range functions {
		f.Domain = proto.String("mine")
	}
	m := &onnx.Model{Path: "f.onnx", Opsets: map[string]int64{"": 18, "mine": 1}, Proto: &onnxpb.ModelProto{
		IrVersion: proto.Int64(9), Graph: graph, Functions: functions,
		OpsetImport: []*onnxpb.OperatorSetIdProto{{Version: proto.Int64(18)}, {Domain: proto.String("mine"), Version: proto.Int64(1)}},
	}}
	require.NoError(t, m.Validate())
	return m
}

func function(name string, inputs []string, nodes ...*onnxpb.NodeProto) *onnxpb.FunctionProto {
	return &onnxpb.FunctionProto{Name: proto.String(name), Input: inputs, Output: []string{"r"}, Node: nodes}
}

func functionNode(op string, inputs []string, output string, attrs ...*onnxpb.AttributeProto) *onnxpb.NodeProto {
	n := &onnxpb.NodeProto{OpType: proto.String(op), Input: inputs, Output: []string{output}, Attribute: attrs}
	if len(op) == 1 {
		n.Domain = proto.String("mine")
	}
	return n
}

// Inputs that a call leaves out are left out of the nodes of the body too, through any number of calls and inner
// graphs.
func TestFunction_OmittedInputs(t *testing.T) {
	clip := functionNode("Clip", []string{"a", "b", "c"}, "r")
	formals := []string{"a", "b", "c"}
	low := functionNode("Constant", nil, "low", &onnxpb.AttributeProto{
		Name: proto.String("value_float"), Type: onnxpb.AttributeProto_FLOAT.Enum(), F: proto.Float32(0.75)})
	hold := functionNode("Constant", nil, "hold", &onnxpb.AttributeProto{
		Name: proto.String("value"), Type: onnxpb.AttributeProto_TENSOR.Enum(), T: onnx.TensorProto(ir.ScalarInt(ir.Bool, 1))})
	branch := &onnxpb.AttributeProto{Name: proto.String("then_branch"), Type: onnxpb.AttributeProto_GRAPH.Enum()}
	branch.G = &onnxpb.GraphProto{
		Node:   []*onnxpb.NodeProto{functionNode("Clip", formals, "inner")},
		Output: []*onnxpb.ValueInfoProto{{Name: proto.String("inner")}},
	}
	calls := func(inputs ...string) *onnxpb.NodeProto { return functionNode("G", inputs, "r") }
	for name, m := range map[string]*onnx.Model{
		"fewer": functionModel(t, []string{"x"}, nil, function("F", formals, clip)),
		"empty": functionModel(t, []string{"x", "", ""}, nil, function("F", formals, clip)),
		"nested": functionModel(t, []string{"x"}, nil,
			function("F", formals, calls(formals...)), function("G", formals, clip)),
		"inner": functionModel(t, []string{"x"}, nil,
			function("F", formals, hold, functionNode("If", []string{"hold"}, "r", branch))),
		"first": functionModel(t, []string{"", "x"}, nil,
			function("F", formals, functionNode("Clip", []string{"b", "a", "c"}, "r"))),
	} {
		t.Run(name, func(t *testing.T) {
			g, err := onnx.Import(m, onnx.ImportOptions{})
			require.NoError(t, err)
			require.Equal(t, counting(g.Inputs[0]).Floats(), evaluate(t, g)[0].Floats())
		})
	}
	// An input in the middle: the one after it keeps its place.
	g, err := onnx.Import(functionModel(t, []string{"x"}, nil, function("F", []string{"a", "b"}, low,
		functionNode("Clip", []string{"a", "b", "low"}, "r"))), onnx.ImportOptions{})
	require.NoError(t, err)
	require.Equal(t, []float64{0, 0.75}, evaluate(t, g)[0].Floats())

	_, err = onnx.Import(functionModel(t, []string{"x"}, nil,
		function("F", []string{"a", "b"}, functionNode("Add", []string{"a", "b"}, "r"))), onnx.ImportOptions{})
	require.ErrorContains(t, err, `f.onnx: node "y/r" (Add, opset 18): input 1 is missing`)
	echo := function("F", []string{"a", "r"}, functionNode("Relu", []string{"a"}, "b"))
	_, err = onnx.Import(functionModel(t, []string{"x"}, nil, echo), onnx.ImportOptions{})
	require.ErrorContains(t, err, `output 0 of function F is its input "r", which the node leaves out`)
}

// The name of the attribute in the body says what it is, not the name of the caller's.
func TestFunction_ConstantByReference(t *testing.T) {
	for _, c := range []struct {
		attribute, of string
		given         *onnxpb.AttributeProto
	}{
		{"value_float", "k", &onnxpb.AttributeProto{Type: onnxpb.AttributeProto_FLOAT.Enum(), F: proto.Float32(2)}},
		{"value_float", "value", &onnxpb.AttributeProto{Type: onnxpb.AttributeProto_FLOAT.Enum(), F: proto.Float32(2)}},
		{"value_floats", "value_int", &onnxpb.AttributeProto{Type: onnxpb.AttributeProto_FLOATS.Enum(), Floats: []float32{2}}},
		{"value", "value_float", &onnxpb.AttributeProto{
			Type: onnxpb.AttributeProto_TENSOR.Enum(), T: onnx.TensorProto(ir.ScalarFloat(ir.Float32, 2))}},
	} {
		t.Run(c.attribute+" of "+c.of, func(t *testing.T) {
			c.given.Name = proto.String(c.of)
			f := function("F", []string{"a"},
				functionNode("Constant", nil, "k", &onnxpb.AttributeProto{
					Name: proto.String(c.attribute), Type: c.given.Type, RefAttrName: proto.String(c.of)}),
				functionNode("Mul", []string{"a", "k"}, "r"))
			f.Attribute = []string{c.of}
			g, err := onnx.Import(functionModel(t, []string{"x"}, []*onnxpb.AttributeProto{c.given}, f), onnx.ImportOptions{})
			require.NoError(t, err)
			require.Equal(t, []float64{0, 2}, evaluate(t, g)[0].Floats())
		})
	}
	wrong := &onnxpb.AttributeProto{Name: proto.String("k"), Type: onnxpb.AttributeProto_INT.Enum(), I: proto.Int64(2)}
	f := function("F", []string{"a"},
		functionNode("Constant", nil, "k", &onnxpb.AttributeProto{
			Name: proto.String("value_float"), RefAttrName: proto.String("k")}),
		functionNode("Mul", []string{"a", "k"}, "r"))
	_, err := onnx.Import(functionModel(t, []string{"x"}, []*onnxpb.AttributeProto{wrong}, f), onnx.ImportOptions{})
	require.ErrorContains(t, err, `node "y/k" (Constant, opset 18): attribute "value_float" is of kind INT, want FLOAT`)
}

// A body does not see its caller's names, nor would a graph that it gets as an attribute.
func TestFunction_GraphThatUsesItsCallerIsRefused(t *testing.T) {
	branch := &onnxpb.GraphProto{
		Node:   []*onnxpb.NodeProto{functionNode("Neg", []string{"x"}, "inner")},
		Output: []*onnxpb.ValueInfoProto{{Name: proto.String("inner")}},
	}
	given := &onnxpb.AttributeProto{Name: proto.String("g"), Type: onnxpb.AttributeProto_GRAPH.Enum(), G: branch}
	f := function("F", []string{"a"}, functionNode("Relu", []string{"a"}, "r"))
	_, err := onnx.Import(functionModel(t, []string{"x"}, []*onnxpb.AttributeProto{given}, f), onnx.ImportOptions{})
	require.EqualError(t, err, `f.onnx: node "y" (mine.F, opset 1): a graph passed to function F uses "x" of its caller; `+
		`inline the function, with onnx.inliner, or pass the value as an input`)
}
