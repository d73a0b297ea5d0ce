package minifloat

import "math"

// E8M0 is the scale format of the OCP Microscaling Formats Specification 1.0: code b means 2^(b-127), 255 means NaN.
// It has neither sign nor zero.

// Direction is the direction in which EncodeE8M0 rounds.
type Direction uint8

// Directions of rounding.
const (
	Nearest Direction = iota // ties up
	Up
	Down
)

const nanE8M0 = 255

// DecodeE8M0 returns the value of a code.
func DecodeE8M0(code uint8) float64 {
	if code == nanE8M0 {
		return math.NaN()
	}
	return math.Ldexp(1, int(code)-127)
}

// EncodeE8M0 returns the code for x. Outside the range it returns the least or the greatest code if saturate is set (so zero
// becomes the least), else NaN (ONNX Cast 24). Negative numbers, which ONNX leaves undefined, become NaN.
func EncodeE8M0(x float64, d Direction, saturate bool) uint8 {
	switch {
	case math.IsNaN(x) || x < 0:
		return nanE8M0
	case x == 0 || x < math.Ldexp(1, -127):
		// Up always reaches the least value, Nearest from halfway between 0 and the least value.
		if saturate || x > 0 && (d == Up || d == Nearest && x >= math.Ldexp(1, -128)) {
			return 0
		}
		return nanE8M0
	case math.IsInf(x, 1):
		if saturate {
			return nanE8M0 - 1
		}
		return nanE8M0
	}
	frac, exp := math.Frexp(x) // frac in [½, 1)
	exp--
	if d == Up && frac > 0.5 || d == Nearest && frac >= 0.75 {
		exp++
	}
	if exp > 127 {
		if saturate {
			return nanE8M0 - 1
		}
		return nanE8M0
	}
	return uint8(exp + 127)
}
