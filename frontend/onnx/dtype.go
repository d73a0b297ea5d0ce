package onnx

import (
	"fmt"

	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/ir"
)

// dataTypes is the format's enumeration of element types, by number. A model that uses one without an ir.DType is
// rejected with its name.
var dataTypes = [...]struct {
	name string
	d    ir.DType
}{
	onnxpb.TensorProto_UNDEFINED:      {"undefined", ir.Invalid},
	onnxpb.TensorProto_FLOAT:          {"float", ir.Float32},
	onnxpb.TensorProto_UINT8:          {"uint8", ir.Uint8},
	onnxpb.TensorProto_INT8:           {"int8", ir.Int8},
	onnxpb.TensorProto_UINT16:         {"uint16", ir.Uint16},
	onnxpb.TensorProto_INT16:          {"int16", ir.Int16},
	onnxpb.TensorProto_INT32:          {"int32", ir.Int32},
	onnxpb.TensorProto_INT64:          {"int64", ir.Int64},
	onnxpb.TensorProto_STRING:         {"string", ir.Invalid},
	onnxpb.TensorProto_BOOL:           {"bool", ir.Bool},
	onnxpb.TensorProto_FLOAT16:        {"float16", ir.Float16},
	onnxpb.TensorProto_DOUBLE:         {"double", ir.Float64},
	onnxpb.TensorProto_UINT32:         {"uint32", ir.Uint32},
	onnxpb.TensorProto_UINT64:         {"uint64", ir.Uint64},
	onnxpb.TensorProto_COMPLEX64:      {"complex64", ir.Invalid},
	onnxpb.TensorProto_COMPLEX128:     {"complex128", ir.Invalid},
	onnxpb.TensorProto_BFLOAT16:       {"bfloat16", ir.BFloat16},
	onnxpb.TensorProto_FLOAT8E4M3FN:   {"float8e4m3fn", ir.Float8E4M3FN},
	onnxpb.TensorProto_FLOAT8E4M3FNUZ: {"float8e4m3fnuz", ir.Float8E4M3FNUZ},
	onnxpb.TensorProto_FLOAT8E5M2:     {"float8e5m2", ir.Float8E5M2},
	onnxpb.TensorProto_FLOAT8E5M2FNUZ: {"float8e5m2fnuz", ir.Float8E5M2FNUZ},
	onnxpb.TensorProto_UINT4:          {"uint4", ir.Uint4},
	onnxpb.TensorProto_INT4:           {"int4", ir.Int4},
	onnxpb.TensorProto_FLOAT4E2M1:     {"float4e2m1", ir.Float4E2M1},
	onnxpb.TensorProto_FLOAT8E8M0:     {"float8e8m0", ir.Float8E8M0},
	onnxpb.TensorProto_UINT2:          {"uint2", ir.Uint2},
	onnxpb.TensorProto_INT2:           {"int2", ir.Int2},
	onnxpb.TensorProto_FLOAT6E2M3:     {"float6e2m3", ir.Invalid},
	onnxpb.TensorProto_FLOAT6E3M2:     {"float6e3m2", ir.Invalid},
}

// DType converts an element type of the format (TensorProto.DataType). The error names a type that the compiler does
// not support.
func DType(t int32) (ir.DType, error) {
	if t < 0 || int(t) >= len(dataTypes) {
		return ir.Invalid, fmt.Errorf("element type %d does not exist in the format", t)
	}
	row := dataTypes[t]
	if row.d == ir.Invalid {
		return ir.Invalid, fmt.Errorf("element type %s is not supported", row.name)
	}
	return row.d, nil
}

// DataType is the inverse of DType: the format's number for an element type, UNDEFINED for ir.Invalid.
func DataType(d ir.DType) onnxpb.TensorProto_DataType {
	for t, row := range dataTypes {
		if row.d == d {
			return onnxpb.TensorProto_DataType(t)
		}
	}
	return onnxpb.TensorProto_UNDEFINED
}
