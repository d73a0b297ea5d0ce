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

// Float64s converts little-endian elements of a type to float64; i64 and u64 beyond 2^53 round. Elements of less than a byte
// lie in its low bits first, and those that fill up the last byte are converted too.
func Float64s(dtype string, data []byte) ([]float64, error) {
	stored, f := dtype, minifloat.Named(dtype)
	if f != nil {
		stored = fmt.Sprint("u", f.Bits()) // codes
	}
	decode := decoders[stored]
	if decode == nil {
		return nil, fmt.Errorf("elements of type %s have no value as float64", dtype)
	}
	out := decode(data)
	if f != nil {
		for i, bits := range out {
			out[i] = f.Decode(uint32(bits))
		}
	}
	return out, nil
}

var decoders = map[string]func([]byte) []float64{
	"u2": packed(2, 0), "i2": packed(2, 1<<1), "u4": packed(4, 0), "i4": packed(4, 1<<3),
	"bool": decode[uint8], "u8": decode[uint8], "i8": decode[int8], "u16": decode[uint16], "i16": decode[int16], "u32": decode[uint32],
	"i32": decode[int32], "u64": decode[uint64], "i64": decode[int64], "f32": decode[float32], "f64": decode[float64],
}

// Bits is how many bits an element of a type takes in memory; 0: there is no such type.
func Bits(dtype string) int {
	if i := slices.IndexFunc(descriptors, func(d descriptor) bool { return d.name == dtype }); i >= 0 {
		return 8 * int(descriptors[i].descr[2]-'0')
	}
	switch dtype {
	case "u2", "i2":
		return 2
	case "u4", "i4":
		return 4
	case "e8m0":
		return 8
	}
	if f := minifloat.Named(dtype); f != nil {
		bits := 4
		for bits < f.Bits() {
			bits *= 2
		}
		return bits
	}
	return 0
}

// packed decodes integers of 2 or 4 bits, of which sign is the bit that counts negative.
func packed(bits, sign int) func([]byte) []float64 {
	return func(data []byte) []float64 {
		var out []float64
		for _, b := range data {
			for at := 0; at < 8; at += bits {
				code := int(b) >> at & (1<<bits - 1)
				out = append(out, float64(code-2*(code&sign)))
			}
		}
		return out
	}
}

func decode[T int8 | uint8 | int16 | uint16 | int32 | uint32 | int64 | uint64 | float32 | float64](data []byte) []float64 {
	xs := make([]T, len(data)/binary.Size(T(0)))
	_, _ = binary.Decode(data, binary.LittleEndian, xs) // fails only if data is too short
	out := make([]float64, len(xs))
	for i, x := range xs {
		out[i] = float64(x)
	}
	return out
}

// As returns the elements as a tensor of the given type and shape: shapes must agree; f64, f32 and f16 convert with one
// rounding into each other and into floats of 16 and 8 bits that NumPy lacks, any other type must be the array's.
func (a *Array) As(dtype string, shape []int) ([]byte, error) {
	if !slices.Equal(a.Shape, shape) {
		return nil, fmt.Errorf("shape %v, want %v", a.Shape, shape)
	}
	if a.DType == dtype {
		return a.Data, nil
	}
	floats := []string{"f16", "f32", "f64"}
	narrow := minifloat.Named(dtype)
	whole := narrow != nil && narrow.Bits()%8 == 0
	if !slices.Contains(floats, a.DType) || !whole && !slices.Contains(floats, dtype) {
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
		default:
			code := narrow.Encode(v, false)
			if out = append(out, byte(code)); narrow.Bits() == 16 {
				out = append(out, byte(code>>8))
			}
		case "f32":
			out = le.AppendUint32(out, math.Float32bits(float32(v)))
		case "f64":
			out = le.AppendUint64(out, math.Float64bits(v))
		}
	}
	return out, nil
}
