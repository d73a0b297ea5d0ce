package blas

import "math"

// Axpy adds a times x to y, which is at least as long: each product is rounded before it is added.
func Axpy(a float32, x, y []float32) {
	y = y[:len(x)]
	i := 0
	if vectors {
		if i = len(x) &^ 15; i > 0 {
			axpy(a, &x[0], &y[0], i)
		}
	}
	for ; i < len(x); i++ {
		y[i] += float32(a * x[i])
	}
}

// Positive sets to, which is as long and may be the same, to the numbers above 0, and 0 for those that are not. NaN stays.
func Positive(to, from []float32) {
	to = to[:len(from)]
	i := 0
	if vectors {
		if i = len(from) &^ 15; i > 0 {
			positive(&to[0], &from[0], i)
		}
	}
	for ; i < len(from); i++ {
		to[i] = max(from[i], 0)
	}
}

// Magnitude is the greatest of the numbers' bits without sign: of the greatest magnitude, unless one is infinite or NaN.
func Magnitude(x []float32) uint32 {
	top, i := uint32(0), 0
	if vectors {
		if i = len(x) &^ 15; i > 0 {
			top = magnitude(&x[0], i)
		}
	}
	for _, f := range x[i:] {
		top = max(top, math.Float32bits(f)&(1<<31-1))
	}
	return top
}

// Rounding rounds f32 to a narrower float times a scale.
type Rounding struct {
	inverse, by float32 // of the scale
	top, bottom float32
	exponent    uint32
	first, lift uint32 // see Requantise
}

// NewRounding is to a float with some bits of mantissa and its normal numbers from 2^least to a greatest one, below 2^100.
func NewRounding(mantissa, least int, greatest float64, scale float64) *Rounding {
	return &Rounding{float32(1 / scale), float32(scale), float32(greatest), -float32(greatest), 0xff << 23,
		uint32(least+127) << 23, uint32(23-mantissa)<<23 | 1<<22}
}

// Requantise multiplies finite numbers by the inverse of the scale, rounds them to nearest even, saturated, and multiplies
// them by the scale. The sum with 1.5·2^23 places of a number's binade has no place for less than one of them: the addition
// rounds.
func (r *Rounding) Requantise(x []float32) {
	i := 0
	if vectors {
		if i = len(x) &^ 7; i > 0 {
			requantise(r, &x[0], i)
		}
	}
	for ; i < len(x); i++ {
		x[i] = r.round(float32(x[i]*r.inverse)) * r.by
	}
}

// Requantise2 is Requantise to the sum of two numbers: the nearest one and the one nearest to what it leaves. What is left of f32 by a
// number of few bits is exact, and so is their sum.
func (r *Rounding) Requantise2(x []float32) {
	i := 0
	if vectors {
		if i = len(x) &^ 7; i > 0 {
			requantise2(r, &x[0], i)
		}
	}
	for ; i < len(x); i++ {
		f := float32(x[i] * r.inverse)
		near := r.round(f)
		x[i] = (near + r.round(f-near)) * r.by
	}
}

// round is the nearest number, saturated.
func (r *Rounding) round(f float32) float32 {
	f = max(min(f, r.top), r.bottom)
	up := math.Float32frombits(max(math.Float32bits(f)&r.exponent, r.first) + r.lift)
	sum := f + up
	return sum - up
}
