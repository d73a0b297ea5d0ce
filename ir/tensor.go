package ir

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"github.com/spark-compile/spark-compile/internal/minifloat"
	"github.com/spark-compile/spark-compile/internal/parallel"
)

// RoundTo returns the value of floating-point type d nearest to x, ties to even, rounded once. Beyond the range it is
// infinity, or NaN where d has none (e2m1, which has neither, saturates).
func RoundTo(d DType, x float64) float64 {
	switch d {
	case Float64:
		return x
	case Float32:
		return float64(float32(x))
	case Float8E8M0:
		return minifloat.DecodeE8M0(minifloat.EncodeE8M0(x, minifloat.Nearest, false))
	}
	return d.Format().Round(x, false)
}

// EncodeFloat returns the bits of RoundTo(d, x).
func EncodeFloat(d DType, x float64) uint64 {
	switch d {
	case Float64:
		return math.Float64bits(x)
	case Float32:
		return uint64(math.Float32bits(float32(x)))
	case Float8E8M0:
		return uint64(minifloat.EncodeE8M0(x, minifloat.Nearest, false))
	}
	return uint64(d.Format().Encode(x, false))
}

// DecodeFloat returns the value of bits of floating-point type d.
func DecodeFloat(d DType, bits uint64) float64 {
	switch d {
	case Float64:
		return math.Float64frombits(bits)
	case Float32:
		return float64(math.Float32frombits(uint32(bits)))
	case Float8E8M0:
		return minifloat.DecodeE8M0(uint8(bits))
	}
	return d.Format().Decode(uint32(bits))
}

// WrapInt keeps the low bits of v and reads them as integer type d; bool becomes 0 or 1.
func WrapInt(d DType, v int64) int64 {
	if d == Bool {
		return choose[int64](v != 0, 1, 0)
	}
	return minifloat.Wrap(v, d.Bits(), d.IsSigned())
}

// loadBits reads element i of packed little-endian data.
func loadBits(data []byte, bits, i int) uint64 {
	switch bits {
	case 64:
		return binary.LittleEndian.Uint64(data[8*i:])
	case 32:
		return uint64(binary.LittleEndian.Uint32(data[4*i:]))
	case 16:
		return uint64(binary.LittleEndian.Uint16(data[2*i:]))
	case 8:
		return uint64(data[i])
	}
	per := 8 / bits
	return uint64(data[i/per]>>(i%per*bits)) & (1<<bits - 1)
}

// storeBits writes element i of packed little-endian data whose bits there are still zero.
func storeBits(data []byte, bits, i int, v uint64) {
	switch bits {
	case 64:
		binary.LittleEndian.PutUint64(data[8*i:], v)
	case 32:
		binary.LittleEndian.PutUint32(data[4*i:], uint32(v))
	case 16:
		binary.LittleEndian.PutUint16(data[2*i:], uint16(v))
	case 8:
		data[i] = byte(v)
	default:
		per := 8 / bits
		data[i/per] |= byte(v&(1<<bits-1)) << (i % per * bits)
	}
}

// NewTensor wraps data, which is not copied, as a tensor of the type.
func NewTensor(t Type, data []byte) (*Tensor, error) {
	if err := CheckShape(t.Shape); err != nil {
		return nil, err
	}
	if len(data) != t.Bytes() {
		return nil, fmt.Errorf("%v takes %d bytes, not %d", t, t.Bytes(), len(data))
	}
	return &Tensor{Type: t, Data: data}, nil
}

// elementBytes is the length of a splat's data.
func (t Type) elementBytes() int { return (t.DType.Bits() + 7) / 8 }

// FromFloats makes a tensor of a floating-point type from its elements, each rounded to the type. It panics if their
// number is not the type's.
func FromFloats(t Type, xs []float64) *Tensor {
	a := &Array{Type: t, F: xs}
	return a.Tensor()
}

// FromInts makes a tensor of an integer type or bool from its elements, each wrapped to the type's width. It panics if
// their number is not the type's.
func FromInts(t Type, xs []int64) *Tensor {
	a := &Array{Type: t, I: xs}
	return a.Tensor()
}

// Splat makes a tensor all of whose elements are x, of any element type: x is rounded, or truncated and wrapped.
func Splat(t Type, x float64) *Tensor {
	if !t.DType.IsFloat() {
		return SplatInt(t, minifloat.Truncate(x, 64, true))
	}
	return splatBits(t, EncodeFloat(t.DType, x))
}

// SplatInt makes a tensor of an integer type or bool all of whose elements are v.
func SplatInt(t Type, v int64) *Tensor { return splatBits(t, uint64(WrapInt(t.DType, v))) }

func splatBits(t Type, bits uint64) *Tensor {
	data := make([]byte, t.elementBytes())
	storeBits(data, t.DType.Bits(), 0, bits)
	return &Tensor{Type: t, Data: data, Splat: true}
}

// ScalarFloat makes a tensor of rank 0.
func ScalarFloat(d DType, x float64) *Tensor { return FromFloats(T(d), []float64{x}) }

// ScalarInt makes a tensor of rank 0 of an integer type or bool.
func ScalarInt(d DType, v int64) *Tensor { return FromInts(T(d), []int64{v}) }

// Vector makes an i64 tensor of rank 1, as shapes and axes are.
func Vector(xs ...int) *Tensor {
	a := NewArray(T(Int64, len(xs)))
	for i, x := range xs {
		a.I[i] = int64(x)
	}
	return a.Tensor()
}

// BitsAt returns the bits of element i in row-major order.
func (t *Tensor) BitsAt(i int) uint64 {
	if t.Splat {
		i = 0
	}
	return loadBits(t.Data, t.DType.Bits(), i)
}

// FloatAt returns element i as a float64, whatever the type.
func (t *Tensor) FloatAt(i int) float64 {
	if t.DType.IsFloat() {
		return DecodeFloat(t.DType, t.BitsAt(i))
	}
	if t.DType == Uint64 {
		return float64(t.BitsAt(i))
	}
	return float64(t.IntAt(i))
}

// IntAt returns element i of an integer or bool tensor; uint64 as its bits.
func (t *Tensor) IntAt(i int) int64 { return WrapInt(t.DType, int64(t.BitsAt(i))) }

// Floats returns all elements as float64, whatever the type.
func (t *Tensor) Floats() []float64 {
	xs := make([]float64, t.Numel())
	if t.Splat && len(xs) > 0 {
		x := t.FloatAt(0)
		for i := range xs {
			xs[i] = x
		}
		return xs
	}
	switch t.DType {
	case Float32:
		elements(len(xs), func(lo, hi int) {
			for i := lo; i < hi; i++ {
				xs[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(t.Data[4*i:])))
			}
		})
	case Float16:
		elements(len(xs), func(lo, hi int) {
			for i := lo; i < hi; i++ {
				xs[i] = decodeHalf(binary.LittleEndian.Uint16(t.Data[2*i:]))
			}
		})
	default:
		if bits := t.DType.Bits(); bits <= 8 && len(xs) > 1<<bits {
			every := make([]float64, 1<<bits) // number that bits can stand for
			for i := range every {
				every[i] = (&Tensor{Type: Type{DType: t.DType}, Data: []byte{byte(i)}, Splat: true}).FloatAt(0)
			}
			for i := range xs {
				xs[i] = every[loadBits(t.Data, bits, i)]
			}
			return xs
		}
		for i := range xs {
			xs[i] = t.FloatAt(i)
		}
	}
	return xs
}

// elements calls f for ranges of n elements that share no byte, whatever the element type.
func elements(n int, f func(lo, hi int)) {
	const size = 1 << 14
	parallel.For((n+size-1)/size, func(i int) { f(i*size, min((i+1)*size, n)) })
}

// decodeHalf is DecodeFloat of Float16, faster: exponent and fraction are moved to where a double has them, and a
// product with a power of two corrects the bias, of subnormal numbers too.
func decodeHalf(h uint16) float64 {
	if h&0x7c00 == 0x7c00 {
		return DecodeFloat(Float16, uint64(h))
	}
	x := math.Float64frombits(uint64(h&0x7fff)<<42) * 0x1p1008
	return math.Float64frombits(math.Float64bits(x) | uint64(h&0x8000)<<48)
}

// Ints returns all elements of an integer or bool tensor; uint64 as their bits.
func (t *Tensor) Ints() []int64 {
	xs := make([]int64, t.Numel())
	for i := range xs {
		xs[i] = t.IntAt(i)
	}
	return xs
}

// Dense returns the dense little-endian data; unless the tensor is a splat that is Data itself.
func (t *Tensor) Dense() []byte {
	if !t.Splat {
		return t.Data
	}
	n, bits := t.Numel(), t.DType.Bits()
	if bits >= 8 {
		return bytes.Repeat(t.Data, n)
	}
	data := make([]byte, t.Type.Bytes())
	for i := range n {
		storeBits(data, bits, i, t.BitsAt(0))
	}
	return data
}

// Compact returns the tensor as a splat if all its elements have the same bits, else the tensor itself.
func (t *Tensor) Compact() *Tensor {
	n := t.Numel()
	if t.Splat || n < 2 {
		return t
	}
	first := t.BitsAt(0)
	for i := 1; i < n; i++ {
		if t.BitsAt(i) != first {
			return t
		}
	}
	out := splatBits(t.Type, first)
	out.Codes = t.Codes
	return out
}

// Reshaped returns the same elements under a shape of the same number of elements; the data is shared.
func (t *Tensor) Reshaped(shape ...int) *Tensor {
	out := &Tensor{Type: Type{t.DType, slices.Clone(shape)}, Data: t.Data, Splat: t.Splat}
	if c := t.Codes; c != nil {
		out.Codes = &Codes{DType: c.DType, Scale: c.Scale.Reshaped(shape...)}
		if c.Blocks != nil {
			out.Codes.Blocks = c.Blocks.Reshaped(shape...)
		}
	}
	return out
}

// Equal reports whether type and all bits agree; a splat equals its expansion.
func (t *Tensor) Equal(u *Tensor) bool {
	if t == u {
		return true
	}
	if !t.Type.Equal(u.Type) {
		return false
	}
	if t.Splat == u.Splat {
		return bytes.Equal(t.Data, u.Data) || t.Numel() == 0
	}
	return bytes.Equal(t.Dense(), u.Dense())
}

// Array returns the elements for evaluation.
func (t *Tensor) Array() *Array {
	if t.DType.IsFloat() {
		return &Array{Type: t.Type, F: t.Floats()}
	}
	return &Array{Type: t.Type, I: t.Ints()}
}

// Tensor encodes the array, rounding floats to the element type and wrapping integers.
func (a *Array) Tensor() *Tensor {
	if a.Len() != a.Numel() {
		panic(fmt.Sprintf("%v has %d elements, not %d", a.Type, a.Numel(), a.Len()))
	}
	d, bits := a.DType, a.DType.Bits()
	data := make([]byte, a.Type.Bytes())
	elements(len(a.F), func(lo, hi int) {
		if d == Float32 {
			for i, x := range a.F[lo:hi] {
				binary.LittleEndian.PutUint32(data[4*(lo+i):], math.Float32bits(float32(x)))
			}
			return
		}
		for i, x := range a.F[lo:hi] {
			storeBits(data, bits, lo+i, EncodeFloat(d, x))
		}
	})
	for i, v := range a.I {
		storeBits(data, bits, i, uint64(WrapInt(d, v)))
	}
	return &Tensor{Type: a.Type, Data: data}
}

// Len is the number of elements that the array holds.
func (a *Array) Len() int { return max(len(a.F), len(a.I)) }

// Floats returns the elements as float64, whatever the type; a floating-point array's own slice, not a copy.
func (a *Array) Floats() []float64 {
	if a.F != nil {
		return a.F
	}
	xs := make([]float64, len(a.I))
	for i, v := range a.I {
		xs[i] = intToFloat(a.DType, v)
	}
	return xs
}

func intToFloat(d DType, v int64) float64 {
	if d == Uint64 {
		return float64(uint64(v))
	}
	return float64(v)
}

// Rounded returns the array with every element rounded to its element type: the array itself if that changes nothing,
// else a copy.
func (a *Array) Rounded() *Array {
	if a.DType == Float64 || a.F == nil {
		return a
	}
	round := func(x float64) float64 { return RoundTo(a.DType, x) }
	if f := a.DType.Format(); f != nil {
		round = func(x float64) float64 { return f.Round(x, false) }
	}
	if a.DType == Float32 {
		round = func(x float64) float64 { return float64(float32(x)) }
	}
	var changed atomic.Bool
	rounded := make([]float64, len(a.F))
	parallel.Ranges(len(a.F), 1<<14, func(lo, hi int) {
		same := true
		for i, x := range a.F[lo:hi] {
			r := round(x)
			rounded[lo+i] = r
			same = same && (r == x || x != x)
		}
		if !same {
			changed.Store(true)
		}
	})
	if !changed.Load() {
		return a
	}
	return &Array{Type: a.Type, F: rounded}
}
