package ptx

import "math"

// Canonical NaNs: the results of arithmetic that is not a number (PTX ISA 9.7.3, 9.7.4).
const (
	nan32 = 0x7fffffff
	nan16 = 0x7fff
	nan64 = 0x7ff8000000000000
)

func f32(u uint32) float32 { return math.Float32frombits(u) }
func f64(u uint64) float64 { return math.Float64frombits(u) }

// b32 is the bits of a result, NaNs made canonical.
func b32(v float32) uint32 {
	if v != v {
		return nan32
	}
	return math.Float32bits(v)
}

// fma32 is x·y+z rounded once.
func fma32(x, y, z float32) float32 { return addRounded(float64(float64(x)*float64(y)), z) }

// addRounded is p+z rounded to f32 once, where p is exact.
func addRounded(p float64, z float32) float32 {
	if s := p + float64(z); !midpoint(s) {
		return float32(s)
	}
	return float32(oddSum(p, float64(z)))
}

// midpoint reports whether a rounded sum may have become a midpoint between two f32, in which case rounding it again may give
// another number than rounding the exact sum; the sum is rounded to odd then, which a second rounding to a format of less than
// half the precision cannot spoil (Boldo and Melquiond, 2008). Other sums are safe: a midpoint is a float64 number, so the
// first rounding moves no sum across one. Subnormal numbers, but not 0, have midpoints elsewhere.
func midpoint(s float64) bool {
	const normal = (1023 - 126) << 52
	b := math.Float64bits(s)
	return b&(1<<29-1) == 1<<28 || b&^(1<<63)-1 < normal-1
}

// oddSum is p+z with the last bit set where the sum is inexact.
func oddSum(p, z float64) float64 {
	s := p + z
	t := s - p
	e := (p - (s - t)) + (z - t)
	if e == 0 || e != e || math.IsInf(s, 0) {
		return s
	}
	bits := math.Float64bits(s)
	if bits&1 == 0 {
		if (e > 0) == (s > 0) {
			bits++
		} else {
			bits--
		}
	}
	return math.Float64frombits(bits)
}

// halfToFloat widens f16: exact. Scaling by 2^112 handles subnormals as well.
func halfToFloat(h uint32) float32 {
	v := math.Float32frombits(h&0x7fff<<13) * 0x1p112
	if h&0x7c00 == 0x7c00 {
		if h&0x3ff != 0 {
			return math.Float32frombits(nan32)
		}
		v = math.Float32frombits(0x7f800000)
	}
	return math.Float32frombits(math.Float32bits(v) | h&0x8000<<16)
}

// encode is the code of a non-negative number, given as the bits of a float64, rounded to nearest even, of a format with so
// many bits of mantissa and this exponent of its least normal number. What is too large goes on past the format's codes.
func encode(b uint64, mantissa, least int) uint32 {
	e, m, drop := int(b>>52)-1023, b&(1<<52-1)|1<<52, uint(52-mantissa)
	if e < least {
		drop, e = drop+uint(least-e), least
		if drop > 54 {
			return 0
		}
	}
	m += 1<<((drop-1)&63) - 1 + m>>(drop&63)&1
	return uint32((e-least)<<mantissa + int(m>>(drop&63)))
}

// floatToHalf rounds a float64 to f16, nearest even, once; NaN is canonical.
func floatToHalf(v float64) uint32 {
	b := math.Float64bits(v)
	sign := uint32(b>>48) & 0x8000
	b &^= 1 << 63
	switch {
	case b < (1023-25)<<52: // less than half of the least number
		return sign
	case b > 0x7ff<<52:
		return nan16
	}
	return sign | encode(min(b, (1023+16)<<52), 10, -14)
}

// floatToBF rounds f32 to bf16, nearest even; NaN is canonical.
func floatToBF(u uint32) uint32 {
	if u&0x7fffffff > 0x7f800000 {
		return nan16
	}
	return (u + 0x7fff + u>>16&1) >> 16
}

// Exp2 is 2^x, as ex2.approx has it by definition, before it is rounded. Only + - * / of float64, each product rounded on
// its own, so that every machine gives the same bits; accurate to about 1e-15, so that the result is the rounded true value
// almost everywhere.
func Exp2(x float64) float64 {
	switch {
	case x != x:
		return x
	case x > 1000:
		return math.Inf(1)
	case x < -1000:
		return 0
	}
	n := math.Floor(x + 0.5)
	return float64(expSmall(float64((x-n)*math.Ln2)) * math.Float64frombits(uint64(int(n)+1023)<<52))
}

// expSmall is e^x for |x| ≤ 0.35, by its Taylor series: the first term left out is below 1e-17.
func expSmall(x float64) float64 {
	s := 1.0 / 87178291200
	for _, c := range [...]float64{1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320,
		1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 1.0 / 2, 1, 1} {
		s = float64(s*x) + c
	}
	return s
}
