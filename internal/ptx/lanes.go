package ptx

import "unsafe"

// Row32 and Row64 are a register of a warp: one value per lane. Registers of 16 and 8 bits have zeros in their upper bits. A
// predicate is a word with one bit per lane.
//
// The meaning of a Compute row has one of these types:
//
//	func(d, a, b, c *Row32)              func(d, a, b, c *Row64)
//	func(d *Row64, a, b *Row32, c *Row64)
//	func(d *Row32, a *Row64)             func(d, a *Row64, b *Row32)
//	func(a, b *Row32) uint32             func(a, b *Row64) uint32          comparisons
//	func(d, a, b *Row32, p uint32)       func(d, a, b *Row64, p uint32)    selections
//	func(a, b uint32) uint32                                               on predicates
//	func(imm int64) func(d, a, b, c *Row32)                                with an immediate
//
// unary, binary and ternary make such a function of one on a single lane's values.
type (
	Row32 = [32]uint32
	Row64 = [32]uint64
)

type lane interface {
	uint32 | int32 | float32 | uint64 | int64 | float64
}

// as reads a register as values of T, which has the size of its elements.
func as[T, U lane](r *[32]U) *[32]T { return (*[32]T)(unsafe.Pointer(r)) }

func wide[T lane]() bool { var v T; return unsafe.Sizeof(v) == 8 }

func unary[D, A lane](f func(A) D) any {
	canonical := canonical[D]()
	apply := func(d *[32]D, a *[32]A) {
		for l := range d {
			d[l] = f(a[l])
		}
		if canonical != nil {
			canonical(d)
		}
	}
	switch {
	case wide[D]() && wide[A]():
		return func(d, a, _, _ *Row64) { apply(as[D](d), as[A](a)) }
	case wide[D]():
		return func(d *Row64, a, _ *Row32, _ *Row64) { apply(as[D](d), as[A](a)) }
	case wide[A]():
		return func(d *Row32, a *Row64) { apply(as[D](d), as[A](a)) }
	}
	return func(d, a, _, _ *Row32) { apply(as[D](d), as[A](a)) }
}

func binary[D, A, B lane](f func(A, B) D) any {
	canonical := canonical[D]()
	apply := func(d *[32]D, a *[32]A, b *[32]B) {
		for l := range d {
			d[l] = f(a[l], b[l])
		}
		if canonical != nil {
			canonical(d)
		}
	}
	switch {
	case wide[B]():
		return func(d, a, b, _ *Row64) { apply(as[D](d), as[A](a), as[B](b)) }
	case wide[D]():
		return func(d, a *Row64, b *Row32) { apply(as[D](d), as[A](a), as[B](b)) }
	}
	return func(d, a, b, _ *Row32) { apply(as[D](d), as[A](a), as[B](b)) }
}

func ternary[T lane](f func(a, b, c T) T) any {
	canonical := canonical[T]()
	apply := func(d, a, b, c *[32]T) {
		for l := range d {
			d[l] = f(a[l], b[l], c[l])
		}
		if canonical != nil {
			canonical(d)
		}
	}
	if wide[T]() {
		return func(d, a, b, c *Row64) { apply(as[T](d), as[T](a), as[T](b), as[T](c)) }
	}
	return func(d, a, b, c *Row32) { apply(as[T](d), as[T](a), as[T](b), as[T](c)) }
}

// canonical replaces NaNs by the one that arithmetic gives (PTX ISA 9.7.3, 9.7.4); nil for integers.
func canonical[T lane]() func(*[32]T) {
	var f any
	switch any(T(0)).(type) {
	case float32:
		f = func(d *[32]float32) {
			for l, v := range d {
				if v != v {
					d[l] = f32(nan32)
				}
			}
		}
	case float64:
		f = func(d *[32]float64) {
			for l, v := range d {
				if v != v {
					d[l] = f64(nan64)
				}
			}
		}
	}
	g, _ := f.(func(*[32]T))
	return g
}

// Instructions common in inner loops have a loop of their own, which is faster than calling a function for each lane.

type integer interface{ uint32 | uint64 }

func move[T integer](d, a, _, _ *[32]T) { *d = *a }

func add[T integer](d, a, b, _ *[32]T) {
	for l := range d {
		d[l] = a[l] + b[l]
	}
}

func subtract[T integer](d, a, b, _ *[32]T) {
	for l := range d {
		d[l] = a[l] - b[l]
	}
}

func multiply[T integer](d, a, b, _ *[32]T) {
	for l := range d {
		d[l] = a[l] * b[l]
	}
}

func multiplyAdd[T integer](d, a, b, c *[32]T) {
	for l := range d {
		d[l] = a[l]*b[l] + c[l]
	}
}

func bitsAnd[T integer](d, a, b, _ *[32]T) {
	for l := range d {
		d[l] = a[l] & b[l]
	}
}

func bitsOr[T integer](d, a, b, _ *[32]T) {
	for l := range d {
		d[l] = a[l] | b[l]
	}
}

func bitsXor[T integer](d, a, b, _ *[32]T) {
	for l := range d {
		d[l] = a[l] ^ b[l]
	}
}

// Go's shifts past the width give 0, or the sign, as PTX's do.
func shiftLeft(d, a, b, _ *Row32) {
	for l := range d {
		d[l] = a[l] << b[l]
	}
}

func shiftRight(d, a, b, _ *Row32) {
	for l := range d {
		d[l] = a[l] >> b[l]
	}
}

// low keeps the bits of a mask.
func low(mask uint32) func(d, a, b, c *Row32) {
	return func(d, a, _, _ *Row32) {
		for l := range d {
			d[l] = a[l] & mask
		}
	}
}

func wideUnsigned(d *Row64, a, b *Row32, _ *Row64) {
	for l := range d {
		d[l] = uint64(a[l]) * uint64(b[l])
	}
}

func wideAddUnsigned(d *Row64, a, b *Row32, c *Row64) {
	for l := range d {
		d[l] = uint64(a[l])*uint64(b[l]) + c[l]
	}
}

func wideAddSigned(d *Row64, a, b *Row32, c *Row64) {
	for l := range d {
		d[l] = uint64(int64(int32(a[l]))*int64(int32(b[l]))) + c[l]
	}
}

func addFloat(d, a, b, _ *Row32) {
	for l := range d {
		d[l] = b32(f32(a[l]) + f32(b[l]))
	}
}

func multiplyFloat(d, a, b, _ *Row32) {
	for l := range d {
		d[l] = b32(f32(a[l]) * f32(b[l]))
	}
}

func fusedMultiplyAdd(d, a, b, c *Row32) {
	for l := range d {
		d[l] = b32(fma32(f32(a[l]), f32(b[l]), f32(c[l])))
	}
}
