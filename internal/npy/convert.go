package npy

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/internal/minifloat"
)

// Float64s converts the elements to float64.
func (a *Array) Float64s() ([]float64, error) { return Float64s(a.DType, a.Data) }

// Float64s converts little-endian elements of a type to float64; i64 and u64 beyond 2^53 round.
func Float64s(dtype string, data []byte) ([]float64, error) {
	decode, size, err := decoder(dtype)
	if err != nil {
		return nil, err
	}
	out := make([]float64, len(data)/size)
	for i := range out {
		out[i] = decode(data[i*size:])
	}
	return out, nil
}

// formats are the narrow floats, by the names of ir.DType.
var formats = map[string]*minifloat.Format{"f16": minifloat.Float16, "bf16": minifloat.BFloat16, "e4m3": minifloat.E4M3FN, "e4m3fnuz": minifloat.E4M3FNUZ,
	"e5m2": minifloat.E5M2, "e5m2fnuz": minifloat.E5M2FNUZ}

func decoder(dtype string) (decode func([]byte) float64, size int, err error) {
	le := binary.LittleEndian
	if f := formats[dtype]; f != nil {
		if f.Bits() == 16 {
			return func(b []byte) float64 { return f.Decode(uint32(le.Uint16(b))) }, 2, nil
		}
		return func(b []byte) float64 { return f.Decode(uint32(b[0])) }, 1, nil
	}
	switch dtype {
	case "f32":
		return func(b []byte) float64 { return float64(math.Float32frombits(le.Uint32(b))) }, 4, nil
	case "f64":
		return func(b []byte) float64 { return math.Float64frombits(le.Uint64(b)) }, 8, nil
	case "u8", "bool":
		return func(b []byte) float64 { return float64(b[0]) }, 1, nil
	case "i8":
		return func(b []byte) float64 { return float64(int8(b[0])) }, 1, nil
	case "u16":
		return func(b []byte) float64 { return float64(le.Uint16(b)) }, 2, nil
	case "i16":
		return func(b []byte) float64 { return float64(int16(le.Uint16(b))) }, 2, nil
	case "u32":
		return func(b []byte) float64 { return float64(le.Uint32(b)) }, 4, nil
	case "i32":
		return func(b []byte) float64 { return float64(int32(le.Uint32(b))) }, 4, nil
	case "u64":
		return func(b []byte) float64 { return float64(le.Uint64(b)) }, 8, nil
	case "i64":
		return func(b []byte) float64 { return float64(int64(le.Uint64(b))) }, 8, nil
	}
	return nil, 0, fmt.Errorf("elements of type %s have no value as float64", dtype)
}

// As returns the elements as a tensor of the given type and shape: shapes must agree; f64, f32 and f16 convert into each
// other with one rounding, any other type must be the array's.
func (a *Array) As(dtype string, shape []int) ([]byte, error) {
	if !slices.Equal(a.Shape, shape) {
		return nil, fmt.Errorf("shape %v, want %v", a.Shape, shape)
	}
	if a.DType == dtype {
		return a.Data, nil
	}
	floats := []string{"f16", "f32", "f64"}
	if !slices.Contains(floats, a.DType) || !slices.Contains(floats, dtype) {
		return nil, fmt.Errorf("elements of type %s, want %s", a.DType, dtype)
	}
	x, err := a.Float64s()
	if err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	var out []byte
	for _, v := range x {
		switch dtype {
		case "f16":
			out = le.AppendUint16(out, uint16(minifloat.Float16.Encode(v, false)))
		case "f32":
			out = le.AppendUint32(out, math.Float32bits(float32(v)))
		case "f64":
			out = le.AppendUint64(out, math.Float64bits(v))
		}
	}
	return out, nil
}
