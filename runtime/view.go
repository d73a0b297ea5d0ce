package runtime

import "unsafe"

// BFloat16 holds the bits of a bf16 number.
type BFloat16 uint16

// Float8 holds the bits of an 8-bit floating-point number; its format is the port's dtype.
type Float8 uint8

// Element is a Go type that View can show a tensor's elements as.
type Element interface {
	~bool | ~int8 | ~uint8 | ~int16 | ~uint16 | ~int32 | ~uint32 | ~int64 | ~uint64 | ~float32 | ~float64
}

// View shows the bytes of an input or output as elements, without a copy. Bytes of a session are aligned to 256; a rest
// shorter than an element is dropped.
func View[T Element](b []byte) []T {
	var zero T
	n := len(b) / int(unsafe.Sizeof(zero))
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// Bytes shows elements as their bytes, without a copy: the inverse of View.
func Bytes[T Element](x []T) []byte {
	var zero T
	if len(x) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(zero)))
}
