package foreignkernels

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/spark-compile/spark-compile/internal/minifloat"
)

// array is what a kernel is given, and its elements' values.
type array struct {
	data   any
	values []float64
}

var narrow = map[string]*minifloat.Format{"f16": minifloat.Float16, "bf16": minifloat.BFloat16, "e4m3": minifloat.E4M3FN, "e5m2": minifloat.E5M2, "e2m1": minifloat.E2M1}

// draw returns n numbers of a format; of e2m1 two to a byte, of e2m1byte one. Those of 8 bits and fewer are any codes but NaN and
// infinity, and no very large ones of e5m2; others are normally distributed.
func draw(r *rand.Rand, format string, n int) array {
	a := array{values: make([]float64, n)}
	switch format {
	case "f32", "tf32":
		data := make([]float32, n)
		for i := range data {
			data[i] = float32(r.NormFloat64())
			if format == "tf32" {
				data[i] = math.Float32frombits(math.Float32bits(data[i]) &^ 0x1fff)
			}
			a.values[i] = float64(data[i])
		}
		a.data = data
	case "f16", "bf16":
		data := make([]uint16, n)
		for i := range data {
			data[i] = uint16(narrow[format].Encode(r.NormFloat64(), false))
			a.values[i] = narrow[format].Decode(uint32(data[i]))
		}
		a.data = data
	case "e4m3", "e5m2", "e2m1", "e2m1byte":
		codes := make([]uint8, n)
		for i := range codes {
			sign := uint8(r.IntN(2)) << 7
			switch format {
			case "e4m3":
				codes[i] = uint8(r.IntN(0x7f)) | sign
				a.values[i] = minifloat.E4M3FN.Decode(uint32(codes[i]))
			case "e5m2":
				codes[i] = uint8(0x20+r.IntN(0x38)) | sign
				a.values[i] = minifloat.E5M2.Decode(uint32(codes[i]))
			default:
				codes[i] = uint8(r.IntN(16))
				a.values[i] = minifloat.E2M1.Decode(uint32(codes[i]))
			}
		}
		if format == "e2m1" {
			for i := range n / 2 {
				codes[i] = codes[2*i] | codes[2*i+1]<<4
			}
			codes = codes[:n/2]
		}
		a.data = codes
	case "s8", "u8":
		data := make([]uint8, n)
		for i := range data {
			data[i] = uint8(r.IntN(256))
			a.values[i] = float64(data[i])
			if format == "s8" {
				a.values[i] = float64(int8(data[i]))
			}
		}
		a.data = data
	case "s32":
		data := make([]int32, n)
		for i := range data {
			data[i] = int32(r.Uint32()) >> r.IntN(24)
			a.values[i] = float64(data[i])
		}
		a.data = data
	case "ue4m3":
		data := make([]uint8, n)
		for i := range data {
			data[i] = uint8(1 + r.IntN(0x7e))
			a.values[i] = minifloat.E4M3FN.Decode(uint32(data[i]))
		}
		a.data = data
	case "ue8m0":
		data := make([]uint8, n)
		for i := range data {
			data[i] = uint8(120 + r.IntN(15))
			a.values[i] = math.Ldexp(1, int(data[i])-127)
		}
		a.data = data
	}
	return a
}

// scaled multiplies each row's blocks by their scales.
func (a array) scaled(scales array, block int) array {
	out := array{a.data, make([]float64, len(a.values))}
	for i := range out.values {
		out.values[i] = a.values[i] * scales.values[i/block]
	}
	return out
}

// multiply is x·w and Σ|x||w|; w is columns × depth where turned, else depth × columns.
func multiply(x, w []float64, rows, columns, depth int, turned bool) (product, size []float64) {
	product, size = make([]float64, rows*columns), make([]float64, rows*columns)
	for r := range rows {
		for c := range columns {
			for d := range depth {
				at := d*columns + c
				if turned {
					at = c*depth + d
				}
				p := float64(x[r*depth+d] * w[at])
				product[r*columns+c] += p
				size[r*columns+c] += math.Abs(p)
			}
		}
	}
	return product, size
}

type number interface {
	~int32 | ~uint32 | ~float32 | ~float64 | ~uint16 | ~uint8 | ~int16
}

// near compares results with a reference: each may be off by the tolerance times its size.
func near[T number](got []T, want, size []float64, tolerance float64) error {
	values := make([]float64, len(got))
	for i, x := range got {
		values[i] = float64(x)
	}
	return nearValues(values, want, size, tolerance)
}

func nearValues(got, want, size []float64, tolerance float64) error {
	for i := range want {
		s := math.Abs(want[i])
		if size != nil {
			s = size[i]
		}
		if !(math.Abs(got[i]-want[i]) <= tolerance*s) && got[i] != want[i] {
			return fmt.Errorf("element %d is %v, the reference %v, off by %.3g of the sum of magnitudes, allowed %.3g", i, got[i], want[i], math.Abs(got[i]-want[i])/s, tolerance)
		}
	}
	return nil
}

// decoded are the values of codes.
func decoded[T uint8 | uint16](codes []T, format string) []float64 {
	out := make([]float64, len(codes))
	for i, c := range codes {
		out[i] = narrow[format].Decode(uint32(c))
	}
	return out
}
