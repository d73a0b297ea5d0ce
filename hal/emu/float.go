package emu

import "math"

// Canonical NaNs: the results of arithmetic that is not a number (PTX ISA 9.7.3, 9.7.4).
const (
	nan32 = 0x7fffffff
	nan16 = 0x7fff
	nan64 = 0x7ff8000000000000
)

func f32(u uint32) float32 { return math.Float32frombits(u) }
func f64(u uint64) float64 { return math.Float64frombits(u) }

// b32 and b64 are the bits of a result, NaNs made canonical.
func b32(v float32) uint32 {
	if v != v {
		return nan32
	}
	return math.Float32bits(v)
}

func b64(v float64) uint64 {
	if v != v {
		return nan64
	}
	return math.Float64bits(v)
}

// fma32 is x·y+z rounded once. The product is exact in float64; the sum is rounded to odd there, which a second rounding
// to a format of less than half the precision cannot spoil (Boldo and Melquiond, 2008).
func fma32(x, y, z float32) float32 { return float32(oddSum(float64(x)*float64(y), float64(z))) }

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

// floatToHalf rounds a float64 to f16, nearest even, once; NaN is canonical.
func floatToHalf(v float64) uint32 {
	if v != v {
		return nan16
	}
	b := math.Float64bits(v)
	sign := uint32(b>>48) & 0x8000
	e := int(b>>52&0x7ff) - 1023
	if e >= 16 {
		return sign | 0x7c00
	}
	if e < -25 {
		return sign
	}
	m := b&(1<<52-1) | 1<<52
	// Drop the bits below f16's last place: 42 of a normal number, more of a subnormal one.
	drop := uint(42)
	if e < -14 {
		drop += uint(-14 - e)
	}
	q := m >> drop
	rest, half := m&(1<<drop-1), uint64(1)<<(drop-1)
	if rest > half || rest == half && q&1 == 1 {
		q++
	}
	if e >= -14 {
		q += uint64(e+14) << 10 // the implicit bit is the exponent's last
	}
	return sign | uint32(q)
}

// floatToBF rounds f32 to bf16, nearest even; NaN is canonical.
func floatToBF(u uint32) uint32 {
	if u&0x7fffffff > 0x7f800000 {
		return nan16
	}
	return (u + 0x7fff + u>>16&1) >> 16
}

// min32 and max32: a NaN loses against a number, -0 < +0 (PTX ISA, min and max).
func min32(x, y uint32) uint32 {
	a, b := f32(x), f32(y)
	switch {
	case a != a && b != b:
		return nan32
	case a != a:
		return y
	case b != b:
		return x
	case a == b:
		return x | y // -0 if either is
	case a < b:
		return x
	}
	return y
}

func max32(x, y uint32) uint32 {
	a, b := f32(x), f32(y)
	switch {
	case a != a && b != b:
		return nan32
	case a != a:
		return y
	case b != b:
		return x
	case a == b:
		return x & y
	case a > b:
		return x
	}
	return y
}

func min64(x, y uint64) uint64 {
	a, b := f64(x), f64(y)
	switch {
	case a != a && b != b:
		return nan64
	case a != a:
		return y
	case b != b:
		return x
	case a == b:
		return x | y
	case a < b:
		return x
	}
	return y
}

func max64(x, y uint64) uint64 {
	a, b := f64(x), f64(y)
	switch {
	case a != a && b != b:
		return nan64
	case a != a:
		return y
	case b != b:
		return x
	case a == b:
		return x & y
	case a > b:
		return x
	}
	return y
}

// The approximate functions. Only + - * / and sqrt of float64, each product rounded on its own, so that every machine
// gives the same bits; accurate to about 1e-15, so that the result is the rounded true value almost everywhere.

// exp2 is 2^x.
func exp2(x float64) float64 {
	switch {
	case x != x:
		return x
	case x > 1000:
		return math.Inf(1)
	case x < -1000:
		return 0
	}
	n := math.Floor(x + 0.5)
	return expSmall(float64((x-n)*math.Ln2)) * math.Float64frombits(uint64(int(n)+1023)<<52)
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

// log2 is the binary logarithm: 2/ln2 · artanh((m-1)/(m+1)) for a mantissa m in [√½, √2).
func log2(x float64) float64 {
	switch {
	case x != x || x < 0:
		return math.NaN()
	case x == 0:
		return math.Inf(-1)
	case math.IsInf(x, 1):
		return x
	}
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, e = m*2, e-1
	}
	s := (m - 1) / (m + 1)
	z := float64(s * s)
	sum := 1.0 / 25
	for _, c := range [...]float64{1.0 / 23, 1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3, 1} {
		sum = float64(sum*z) + c
	}
	return float64(e) + float64(float64(2*s)*sum)/math.Ln2
}

func tanh(x float64) float64 {
	a := math.Abs(x)
	var t float64
	switch {
	case a < 0.02:
		z := float64(a * a)
		t = float64(a * (1 + float64(z*(-1.0/3+float64(z*(2.0/15+float64(z*(-17.0/315))))))))
	case a > 20:
		t = 1
	default:
		t = 1 - 2/(exp2(float64(2*a)/math.Ln2)+1)
	}
	return math.Copysign(t, x)
}
