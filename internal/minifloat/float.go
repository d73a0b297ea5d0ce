// Package minifloat converts single numbers between float64 and the narrow element types of tensors: f16, bf16, the 8-bit
// and 4-bit floats, and integers of 2 to 64 bits. Every conversion rounds once, straight from float64.
package minifloat

import "math"

// Format describes a binary floating-point format of at most 16 bits with a sign bit. The zero Format is invalid; the
// formats are declared below.
type Format struct {
	Name     string // of an element type: f16, e4m3 …
	Exponent int    // bits
	Mantissa int    // bits, without the implicit one
	Bias     int
	Special  Special

	quantum float64 // least subnormal number
	max     float64 // greatest finite value
	least   float64 // least normal number
	magic   float64 // 2^52 quanta of the subnormal numbers
	first   uint64  // bits of least
	lift    uint64  // added to the bits of 2^e: yields 1.5·2^52 quanta of the numbers from 2^e on
	drop    uint    // bits of a float64's mantissa that the format lacks
	lower   uint64  // subtracted from the bits of a normal number without those: yields its code
	top     uint64  // code of max
}

// Special selects the codes that are not finite numbers.
type Special uint8

// Kinds of special codes.
const (
	IEEE     Special = iota // all-ones exponent: infinity, and NaN if the mantissa is not zero
	OnlyNaN                 // all ones: NaN; no infinity
	NegZero                 // the code of -0 is the only NaN; no infinity, no -0
	AllValid                // every code is a finite number; NaN converts to -0
)

// The formats; see the OCP 8-bit Floating Point Specification 1.0, "FP8 Formats for Deep
// Learning" (arXiv 2209.05433), "8-bit Numerical Formats for Deep Neural Networks" (arXiv 2206.02915) for fnuz, and the
// OCP Microscaling Formats Specification 1.0 for E3M2 and E2M1.
var (
	Float16    = newFormat("f16", 5, 10, 15, IEEE)
	BFloat16   = newFormat("bf16", 8, 7, 127, IEEE)
	E4M3FN     = newFormat("e4m3", 4, 3, 7, OnlyNaN)
	E4M3FNUZ   = newFormat("e4m3fnuz", 4, 3, 8, NegZero)
	E5M2       = newFormat("e5m2", 5, 2, 15, IEEE)
	E5M2FNUZ   = newFormat("e5m2fnuz", 5, 2, 16, NegZero)
	E3M2       = newFormat("e3m2", 3, 2, 3, AllValid)
	E2M1       = newFormat("e2m1", 2, 1, 1, AllValid)
	AllFormats = []*Format{Float16, BFloat16, E4M3FN, E4M3FNUZ, E5M2, E5M2FNUZ, E3M2, E2M1}
)

func newFormat(name string, exponent, mantissa, bias int, special Special) *Format {
	f := &Format{Name: name, Exponent: exponent, Mantissa: mantissa, Bias: bias, Special: special}
	top := uint32(1)<<(exponent+mantissa) - 1
	switch special {
	case IEEE:
		top = (1<<exponent-1)<<mantissa - 1
	case OnlyNaN:
		top--
	}
	f.quantum = math.Ldexp(1, 1-bias-mantissa)
	f.max = f.Decode(top)
	f.least = math.Ldexp(1, 1-bias)
	f.magic = math.Ldexp(f.quantum, 52)
	f.first, f.lift = math.Float64bits(f.least), uint64(52-mantissa)<<52|1<<51
	f.drop, f.lower, f.top = uint(52-mantissa), uint64(1023-bias)<<mantissa, uint64(top)
	return f
}

// Named returns the format of an element type; nil if there is none of that name.
func Named(name string) *Format {
	for _, f := range AllFormats {
		if f.Name == name {
			return f
		}
	}
	return nil
}

// Bits is the width of a code.
func (f *Format) Bits() int { return 1 + f.Exponent + f.Mantissa }

// Contains reports whether every finite number of g is one of f.
func (f *Format) Contains(g *Format) bool {
	return g.Mantissa <= f.Mantissa && g.max <= f.max && g.magic >= f.magic
}

// Max is the greatest finite value.
func (f *Format) Max() float64 { return f.max }

// Round returns the value of the format nearest to x, ties to even. Beyond the greatest finite value the result is infinity, or
// NaN if the format has no infinity. If saturate is set, and always for AllValid, the result is the greatest finite value
// instead, also for infinity.
func (f *Format) Round(x float64, saturate bool) float64 {
	a := math.Abs(x)
	if math.IsNaN(x) {
		if f.Special == AllValid {
			return math.Copysign(0, -1)
		}
		return x
	}
	if a < f.least {
		// Adding 2^52 quanta leaves a sum whose last place is one quantum: the addition itself rounds.
		a = (a + f.magic) - f.magic
	} else {
		drop := uint(52 - f.Mantissa)
		b := math.Float64bits(a)
		b += 1<<(drop-1) - 1 + b>>drop&1
		a = math.Float64frombits(b >> drop << drop)
	}
	if a > f.max || math.IsNaN(a) { // rounding an infinity's bits up yields a NaN
		switch {
		case saturate || f.Special == AllValid:
			a = f.max
		case f.Special == IEEE:
			a = math.Inf(1)
		default:
			a = math.NaN()
		}
	}
	if a == 0 && f.Special == NegZero {
		return 0
	}
	return math.Copysign(a, x)
}

// Saturated is Round(x, true), faster, of a number that is not NaN; every zero is positive.
func (f *Format) Saturated(x float64) float64 {
	if x > f.max {
		x = f.max
	} else if x < -f.max {
		x = -f.max
	}
	// The sum with 1.5·2^52 quanta of x's binade has no place for less than one of them: the addition rounds.
	up := math.Float64frombits(max(math.Float64bits(x)&(0x7ff<<52), f.first) + f.lift)
	return (float64(x) + up) - up // callers pass products, which must not be fused with the sum
}

// Encode returns the code of Round(x, saturate).
func (f *Format) Encode(x float64, saturate bool) uint32 {
	a := math.Abs(x)
	var code uint64
	if a < f.least {
		code = math.Float64bits(a+f.magic) & (1<<52 - 1) // see Round
	} else {
		b := math.Float64bits(a)
		code = (b+1<<(f.drop-1)-1+b>>f.drop&1)>>f.drop - f.lower
	}
	if code > f.top || code == 0 {
		return f.encode(x, saturate)
	}
	return uint32(code) | uint32(math.Float64bits(x)>>63)<<(f.Exponent+f.Mantissa)
}

// encode is Encode of any number, infinity and NaN included.
func (f *Format) encode(x float64, saturate bool) uint32 {
	x = f.Round(x, saturate)
	sign := uint32(0)
	if math.Signbit(x) {
		sign = 1 << (f.Exponent + f.Mantissa)
	}
	ones := uint32(1)<<(f.Exponent+f.Mantissa) - 1
	switch {
	case math.IsNaN(x) && f.Special == IEEE:
		return sign | (1<<f.Exponent-1)<<f.Mantissa | 1<<(f.Mantissa-1) // quiet
	case math.IsNaN(x) && f.Special == OnlyNaN:
		return sign | ones
	case math.IsNaN(x):
		return 1 << (f.Exponent + f.Mantissa)
	case math.IsInf(x, 0):
		return sign | (1<<f.Exponent-1)<<f.Mantissa
	}
	b := math.Float64bits(math.Abs(x))
	exp := int(b>>52) - 1023 + f.Bias
	if exp < 1 { // subnormal: the value in quanta is an integer
		return sign | uint32(math.Abs(x)/f.quantum)
	}
	return sign | uint32(exp)<<f.Mantissa | uint32(b>>(52-f.Mantissa))&(1<<f.Mantissa-1)
}

// Decode returns the value of a code.
func (f *Format) Decode(code uint32) float64 {
	man := code & (1<<f.Mantissa - 1)
	exp := int(code>>f.Mantissa) & (1<<f.Exponent - 1)
	sign := 1.0
	if code>>(f.Exponent+f.Mantissa)&1 != 0 {
		sign = -1
	}
	ones := exp == 1<<f.Exponent-1
	switch {
	case f.Special == IEEE && ones && man == 0:
		return math.Inf(int(sign))
	case f.Special == IEEE && ones, f.Special == OnlyNaN && ones && man == 1<<f.Mantissa-1:
		return math.Copysign(math.NaN(), sign)
	case f.Special == NegZero && sign < 0 && exp == 0 && man == 0:
		return math.NaN()
	case exp == 0:
		return float64(sign * float64(man) * f.quantum)
	}
	return float64(sign * math.Float64frombits(uint64(exp-f.Bias+1023)<<52|uint64(man)<<(52-f.Mantissa)))
}
