package minifloat

import "math"

// Wrap keeps the low bits of v and reads them as an integer of that width. 64-bit integers are returned as they are, unsigned ones as their bits.
func Wrap(v int64, bits int, signed bool) int64 {
	if bits >= 64 {
		return v
	}
	s := uint(64 - bits)
	if signed {
		return v << s >> s
	}
	return int64(uint64(v) << s >> s)
}

// Range returns the least and the greatest integer of a width; for unsigned 64 bits the greatest is that of int64, since
// an int64 cannot hold larger ones.
func Range(bits int, signed bool) (lo, hi int64) {
	switch {
	case signed:
		return -1 << (bits - 1), 1<<(bits-1) - 1
	case bits >= 64:
		return 0, math.MaxInt64
	}
	return 0, 1<<bits - 1
}

// Truncate converts x to an integer of the width as a cast does: toward zero, and saturated where ONNX leaves the
// result undefined. NaN becomes 0. Unsigned 64-bit results are returned as their bits.
func Truncate(x float64, bits int, signed bool) int64 {
	if math.IsNaN(x) {
		return 0
	}
	if !signed && bits >= 64 {
		switch {
		case x >= 1<<64:
			return -1
		case x >= 1<<63:
			return int64(uint64(x-1<<63) + 1<<63)
		}
	}
	lo, hi := Range(bits, signed)
	switch {
	case x <= float64(lo):
		return lo
	case x >= float64(hi): // float64(MaxInt64) is 2^63, just outside
		return hi
	}
	return int64(x)
}
