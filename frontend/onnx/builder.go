package onnx

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/ir"
)

// Builder makes a model in Go. Methods that add a value return its name; Model returns the errors of all calls.
type Builder struct {
	proto *onnxpb.ModelProto
	names map[string]int
	errs  []error
}

// NewBuilder starts a model for an opset of ai.onnx, with the IR version that was released with it, or a later one.
func NewBuilder(graph string, opset int64) *Builder {
	return &Builder{
		names: map[string]int{},
		proto: &onnxpb.ModelProto{
			IrVersion:    proto.Int64(irVersionOf(opset)),
			ProducerName: proto.String("spark-compile"),
			OpsetImport:  []*onnxpb.OperatorSetIdProto{{Domain: proto.String(""), Version: proto.Int64(opset)}},
			Graph:        &onnxpb.GraphProto{Name: proto.String(graph)},
		},
	}
}

// irVersionOf is the IR version of the onnx release that introduced an opset (the table in the format's Versioning.md).
func irVersionOf(opset int64) int64 {
	for _, row := range []struct{ opset, ir int64 }{
		{8, 3}, {9, 4}, {10, 5}, {11, 6}, {14, 7}, {18, 8}, {20, 9}, {22, 10}, {23, 11}, {24, 12}, {26, 13},
	} {
		if opset <= row.opset {
			return row.ir
		}
	}
	return MaxIRVersion
}

// Opset imports another operator domain.
func (b *Builder) Opset(domain string, version int64) {
	b.proto.OpsetImport = append(b.proto.OpsetImport,
		&onnxpb.OperatorSetIdProto{Domain: proto.String(domain), Version: proto.Int64(version)})
}

// Producer sets the name and version of the program that wrote the model.
func (b *Builder) Producer(name, version string) {
	b.proto.ProducerName, b.proto.ProducerVersion = proto.String(name), proto.String(version)
}

// Metadata appends an entry of metadata_props.
func (b *Builder) Metadata(key, value string) {
	b.proto.MetadataProps = append(b.proto.MetadataProps,
		&onnxpb.StringStringEntryProto{Key: proto.String(key), Value: proto.String(value)})
}

// Name returns hint, with a number if Name has returned it before.
func (b *Builder) Name(hint string) string {
	n := b.names[hint]
	b.names[hint] = n + 1
	if n == 0 {
		return hint
	}
	return b.Name(fmt.Sprintf("%s_%d", hint, n))
}

// Input adds a graph input. A dimension is an int, or a string: the name of a symbolic dimension.
func (b *Builder) Input(name string, d ir.DType, dims ...any) string {
	b.proto.Graph.Input = append(b.proto.Graph.Input, b.valueInfo(name, d, dims))
	b.names[name]++
	return name
}

// Output declares a value as a graph output, with dimensions as for Input.
func (b *Builder) Output(name string, d ir.DType, dims ...any) {
	b.proto.Graph.Output = append(b.proto.Graph.Output, b.valueInfo(name, d, dims))
}

func (b *Builder) valueInfo(name string, d ir.DType, dims []any) *onnxpb.ValueInfoProto {
	shape := &onnxpb.TensorShapeProto{}
	for _, x := range dims {
		dim := &onnxpb.TensorShapeProto_Dimension{}
		switch x := x.(type) {
		case int:
			dim.Value = &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: int64(x)}
		case string:
			dim.Value = &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: x}
		default:
			b.errs = append(b.errs, fmt.Errorf("value %q: a dimension is an int or a string, not %T", name, x))
		}
		shape.Dim = append(shape.Dim, dim)
	}
	return &onnxpb.ValueInfoProto{
		Name: proto.String(name),
		Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{TensorType: &onnxpb.TypeProto_Tensor{
			ElemType: proto.Int32(int32(DataType(d))), Shape: shape}}},
	}
}

// Initializer adds a constant of the graph.
func (b *Builder) Initializer(name string, t *ir.Tensor) string {
	p := TensorProto(t)
	p.Name = proto.String(name)
	b.proto.Graph.Initializer = append(b.proto.Graph.Initializer, p)
	b.names[name]++
	return name
}

// Attr is an attribute of a node under construction.
type Attr struct {
	Name  string
	Value any
}

// A makes an attribute. Its kind follows from the value's Go type: bool and int (INT), float64 (FLOAT), string
// (STRING), []int, []float64, []string, *ir.Tensor (TENSOR), *onnxpb.GraphProto (GRAPH), ir.DType (INT: the format's
// number).
func A(name string, value any) Attr { return Attr{name, value} }

// Op adds a node with one output, names both after the operator, and returns the output.
func (b *Builder) Op(op string, inputs []string, attrs ...Attr) string {
	out := b.Name(op)
	b.Node(op, inputs, []string{out}, attrs...).Name = proto.String(out)
	return out
}

// Node adds a node and returns it, so that the caller can set its name or domain. An empty input name is an absent
// input.
func (b *Builder) Node(op string, inputs, outputs []string, attrs ...Attr) *onnxpb.NodeProto {
	n := &onnxpb.NodeProto{OpType: proto.String(op), Input: slices.Clone(inputs), Output: slices.Clone(outputs)}
	for _, a := range attrs {
		p, err := attribute(a)
		if err != nil {
			b.errs = append(b.errs, fmt.Errorf("%s: %w", op, err))
			continue
		}
		n.Attribute = append(n.Attribute, p)
	}
	b.proto.Graph.Node = append(b.proto.Graph.Node, n)
	return n
}

func attribute(a Attr) (*onnxpb.AttributeProto, error) {
	p := &onnxpb.AttributeProto{Name: proto.String(a.Name)}
	kind := func(t onnxpb.AttributeProto_AttributeType) { p.Type = t.Enum() }
	switch v := a.Value.(type) {
	case bool:
		kind(onnxpb.AttributeProto_INT)
		p.I = proto.Int64(0)
		if v {
			p.I = proto.Int64(1)
		}
	case int:
		kind(onnxpb.AttributeProto_INT)
		p.I = proto.Int64(int64(v))
	case ir.DType:
		kind(onnxpb.AttributeProto_INT)
		p.I = proto.Int64(int64(DataType(v)))
	case float64:
		kind(onnxpb.AttributeProto_FLOAT)
		p.F = proto.Float32(float32(v))
	case string:
		kind(onnxpb.AttributeProto_STRING)
		p.S = []byte(v)
	case []int:
		kind(onnxpb.AttributeProto_INTS)
		p.Ints = mapped(v, func(x int) int64 { return int64(x) })
	case []float64:
		kind(onnxpb.AttributeProto_FLOATS)
		p.Floats = mapped(v, func(x float64) float32 { return float32(x) })
	case []string:
		kind(onnxpb.AttributeProto_STRINGS)
		p.Strings = mapped(v, func(x string) []byte { return []byte(x) })
	case *ir.Tensor:
		kind(onnxpb.AttributeProto_TENSOR)
		p.T = TensorProto(v)
	case *onnxpb.GraphProto:
		kind(onnxpb.AttributeProto_GRAPH)
		p.G = v
	default:
		return nil, fmt.Errorf("attribute %q cannot hold a %T", a.Name, v)
	}
	return p, nil
}

// Graph returns the graph under construction, for use as an attribute of another graph (a branch of If, a body of
// Loop).
func (b *Builder) Graph() *onnxpb.GraphProto { return b.proto.Graph }

// Model returns the model, validated as a file is, or the errors of the calls that built it.
func (b *Builder) Model() (*Model, error) {
	if len(b.errs) > 0 {
		return nil, fmt.Errorf("building model %q: %w", b.proto.Graph.GetName(), errors.Join(b.errs...))
	}
	m := &Model{Proto: b.proto}
	if err := m.readOpsets(); err != nil {
		return nil, err
	}
	if err := m.Validate(); err != nil {
		return nil, err
	}
	return m, nil
}

// TensorProto encodes a tensor as raw data, without a name. It shares the tensor's bytes unless that is a splat.
func TensorProto(t *ir.Tensor) *onnxpb.TensorProto {
	p := &onnxpb.TensorProto{DataType: proto.Int32(int32(DataType(t.DType))), RawData: t.Dense()}
	for _, d := range t.Shape {
		p.Dims = append(p.Dims, int64(d))
	}
	if p.RawData == nil {
		p.RawData = []byte{}
	}
	return p
}
