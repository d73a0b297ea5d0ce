package onnx

import (
	"fmt"

	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/ir"
)

// Dim is one dimension of a declared value: a number, or a name that --shape must fix, or neither.
type Dim struct {
	Value int    // -1 if not a number
	Param string // the name of a symbolic dimension
}

// ValueType reads the declared type of a graph input, output or inner value. ranked is false if no shape is declared at
// all. Sequences, optionals, maps, sparse and opaque values are refused by name, as are element types that the compiler
// lacks. Errors are of type *Error.
func (m *Model) ValueType(v *onnxpb.ValueInfoProto) (d ir.DType, dims []Dim, ranked bool, err error) {
	fail := func(err error) error { return m.fileError("value %q: %w", v.GetName(), err).AsUnsupported() }
	tensor := v.GetType().GetTensorType()
	if tensor == nil {
		return 0, nil, false, fail(fmt.Errorf("%s; only tensors are supported", kindOfType(v.GetType())))
	}
	if d, err = DType(tensor.GetElemType()); err != nil {
		return 0, nil, false, fail(err)
	}
	if tensor.Shape == nil {
		return d, nil, false, nil
	}
	sizes := make([]int64, 0, len(tensor.Shape.Dim))
	for _, p := range tensor.Shape.Dim {
		dim := Dim{Value: -1}
		switch x := p.GetValue().(type) {
		case *onnxpb.TensorShapeProto_Dimension_DimParam:
			dim.Param = x.DimParam
		case *onnxpb.TensorShapeProto_Dimension_DimValue:
			if x.DimValue < 0 {
				break // some exporters write -1 for a dimension that they do not know
			}
			sizes = append(sizes, x.DimValue)
			dim.Value = int(x.DimValue)
		}
		dims = append(dims, dim)
	}
	if _, err := checkDims(sizes); err != nil {
		return 0, nil, false, m.fileError("value %q: %w", v.GetName(), err)
	}
	return d, dims, true, nil
}

// kindOfType says what a type is that is no tensor.
func kindOfType(t *onnxpb.TypeProto) string {
	switch t.GetValue().(type) {
	case *onnxpb.TypeProto_SequenceType:
		return "it is a sequence"
	case *onnxpb.TypeProto_OptionalType:
		return "it is an optional"
	case *onnxpb.TypeProto_MapType:
		return "it is a map"
	case *onnxpb.TypeProto_SparseTensorType:
		return "it is a sparse tensor"
	case *onnxpb.TypeProto_OpaqueType:
		return "it is an opaque value"
	default:
		return "it has no type"
	}
}
