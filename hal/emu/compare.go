package emu

import (
	"cmp"
	"unsafe"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// compare is setp. The comparisons are ordered, false with a NaN; neu and nan are not (PTX ISA, floating point
// comparisons).
func compare(def *ptx.Def, in *inst) bool {
	if len(def.Mods) != 2 {
		return false
	}
	how, typ := def.Mods[0], def.Mods[1]
	switch typ {
	case "f32":
		in.kind, in.fPR = kindPR, compareR[float32](how)
	case "u32", "b32", "u16", "b16": // 16-bit registers have zeros above
		in.kind, in.fPR = kindPR, compareR[uint32](how)
	case "s32":
		in.kind, in.fPR = kindPR, compareR[int32](how)
	case "s16":
		f := compareR[int32](how)
		in.kind, in.fPR = kindPR, func(a, b *row32) uint32 {
			x, y := *a, *b
			for l := range x {
				x[l], y[l] = uint32(int16(x[l])), uint32(int16(y[l]))
			}
			return f(&x, &y)
		}
	case "f64":
		in.kind, in.fPQ = kindPQ, compareQ[float64](how)
	case "u64", "b64":
		in.kind, in.fPQ = kindPQ, compareQ[uint64](how)
	case "s64":
		in.kind, in.fPQ = kindPQ, compareQ[int64](how)
	}
	return in.fPR != nil || in.fPQ != nil
}

// compareR compares rows read as rows of T, which has the size of a row's element.
func compareR[T cmp.Ordered](how string) func(a, b *row32) uint32 {
	f := compareLanes[T](how)
	if f == nil {
		return nil
	}
	return func(a, b *row32) uint32 { return f((*[32]T)(unsafe.Pointer(a)), (*[32]T)(unsafe.Pointer(b))) }
}

func compareQ[T cmp.Ordered](how string) func(a, b *row64) uint32 {
	f := compareLanes[T](how)
	if f == nil {
		return nil
	}
	return func(a, b *row64) uint32 { return f((*[32]T)(unsafe.Pointer(a)), (*[32]T)(unsafe.Pointer(b))) }
}

// compareLanes is a comparison of all lanes, a bit each; nil if how is none.
func compareLanes[T cmp.Ordered](how string) func(a, b *[32]T) uint32 {
	switch how {
	case "eq":
		return func(a, b *[32]T) (m uint32) {
			for l := range a {
				if a[l] == b[l] {
					m |= 1 << l
				}
			}
			return m
		}
	case "ne":
		return func(a, b *[32]T) (m uint32) {
			for l := range a {
				if a[l] < b[l] || a[l] > b[l] {
					m |= 1 << l
				}
			}
			return m
		}
	case "lt":
		return func(a, b *[32]T) (m uint32) {
			for l := range a {
				if a[l] < b[l] {
					m |= 1 << l
				}
			}
			return m
		}
	case "le":
		return func(a, b *[32]T) (m uint32) {
			for l := range a {
				if a[l] <= b[l] {
					m |= 1 << l
				}
			}
			return m
		}
	case "gt":
		f := compareLanes[T]("lt")
		return func(a, b *[32]T) uint32 { return f(b, a) }
	case "ge":
		f := compareLanes[T]("le")
		return func(a, b *[32]T) uint32 { return f(b, a) }
	case "neu":
		f := compareLanes[T]("eq")
		return func(a, b *[32]T) uint32 { return ^f(a, b) }
	case "nan":
		return func(a, b *[32]T) (m uint32) {
			for l := range a {
				if a[l] != a[l] || b[l] != b[l] {
					m |= 1 << l
				}
			}
			return m
		}
	}
	return nil
}
