package runtime

import (
	"fmt"

	"github.com/x448/float16"

	"github.com/spark-compile/spark-compile/internal/minifloat"
)

// Float64s converts the bytes of a tensor to float64, for comparisons and for printing. dtype is a port's; i64 and u64
// beyond 2^53 round.
func Float64s(dtype string, b []byte) ([]float64, error) {
	switch dtype {
	case "f64":
		return append([]float64(nil), View[float64](b)...), nil
	case "f32":
		return widen(View[float32](b)), nil
	case "f16":
		x := View[float16.Float16](b)
		out := make([]float64, len(x))
		for i, v := range x {
			out[i] = float64(v.Float32())
		}
		return out, nil
	case "i8":
		return widen(View[int8](b)), nil
	case "u8":
		return widen(b), nil
	case "i16":
		return widen(View[int16](b)), nil
	case "u16":
		return widen(View[uint16](b)), nil
	case "i32":
		return widen(View[int32](b)), nil
	case "u32":
		return widen(View[uint32](b)), nil
	case "i64":
		return widen(View[int64](b)), nil
	case "u64":
		return widen(View[uint64](b)), nil
	case "bool":
		return widen(b), nil
	case "bf16":
		return decode(View[uint16](b), minifloat.BFloat16), nil
	case "e4m3":
		return decode(b, minifloat.E4M3FN), nil
	case "e5m2":
		return decode(b, minifloat.E5M2), nil
	case "e4m3fnuz":
		return decode(b, minifloat.E4M3FNUZ), nil
	case "e5m2fnuz":
		return decode(b, minifloat.E5M2FNUZ), nil
	}
	return nil, fmt.Errorf("elements of type %s cannot be compared", dtype)
}

func widen[T int8 | uint8 | int16 | uint16 | int32 | uint32 | int64 | uint64 | float32](x []T) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}

func decode[T uint8 | uint16](x []T, f *minifloat.Format) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = f.Decode(uint32(v))
	}
	return out
}
