package ptx

import "math"

// floatRows: floating-point arithmetic, only with explicit rounding (PTX ISA 9.7.3–9.7.5). What approx means is the rounded
// float64 result of portable code.
var floatRows = []row{
	{op: "add.rn.$", args: "=$ $ $", since: v10, kind: KindFloat, eval: by{"f32": addFloat, "f64": binary(func(a, b float64) float64 { return a + b })}},
	{op: "sub.rn.$", args: "=$ $ $", since: v10, kind: KindFloat, eval: by{"f32": binary(func(a, b float32) float32 { return a - b }), "f64": binary(func(a, b float64) float64 { return a - b }),
		"f16x2": binary(func(a, b uint32) uint32 { return ofHalves(a, b, func(a, b float64) float64 { return a - b }) })}},
	{op: "mul.rn.$", args: "=$ $ $", since: v10, kind: KindFloat, eval: by{"f32": multiplyFloat, "f64": binary(func(a, b float64) float64 { return a * b }), "f16x2": binary(func(a, b uint32) uint32 { return ofHalves(a, b, func(a, b float64) float64 { return a * b }) })}},
	{op: "mul.rn.bf16x2", args: "=bf16x2 bf16x2 bf16x2", since: Version{7, 8}, need: BF16Arithmetic, kind: KindFloat, eval: binary(multiplyBF)},
	{op: "fma.rn.$", args: "=$ $ $ $", since: v20, kind: KindFloat, eval: by{"f32": fusedMultiplyAdd, "f64": ternary(func(a, b, c float64) float64 { return math.FMA(a, b, c) })}},
	{op: "div.rn.$", args: "=$ $ $", since: v10, kind: KindFloat, eval: by{"f32": binary(func(a, b float32) float32 { return a / b }), "f64": binary(func(a, b float64) float64 { return a / b })}},
	{op: "sqrt.rn.$", args: "=$ $", since: v10, kind: KindFloat, eval: by{"f32": unary(func(a float32) float32 { return float32(math.Sqrt(float64(a))) }), "f64": unary(func(a float64) float64 { return math.Sqrt(a) })}},
	{op: "rcp.rn.f32", args: "=f32 f32", since: v10, kind: KindFloat, eval: unary(func(a float32) float32 { return 1 / a })},
	{op: "abs.$", args: "=$ $", since: v10, kind: KindFloat, eval: by{"f32": unary(func(a uint32) uint32 { return a &^ (1 << 31) }), "f64": unary(func(a uint64) uint64 { return a &^ (1 << 63) })}},
	{op: "neg.$", args: "=$ $", since: v10, kind: KindFloat, eval: by{"f32": unary(func(a uint32) uint32 { return a ^ 1<<31 }), "f64": unary(func(a uint64) uint64 { return a ^ 1<<63 })}},
	{op: "max.f32", args: "=f32 f32 f32", since: v10, kind: KindFloat, eval: binary(maxNumber)},
	// A NaN wins, -0 < +0: as Go has it.
	{op: "min.NaN.f32", args: "=f32 f32 f32", since: v70, need: Ampere, kind: KindFloat, eval: binary(func(a, b float32) float32 { return min(a, b) })},
	{op: "max.NaN.f32", args: "=f32 f32 f32", since: v70, need: Ampere, kind: KindFloat, eval: binary(func(a, b float32) float32 { return max(a, b) })},
	// The sign is the first source's.
	{op: "copysign.$", args: "=$ $ $", since: v10, kind: KindFloat, eval: by{"f32": binary(func(a, b uint32) uint32 { return b&^(1<<31) | a&(1<<31) }),
		"f64": binary(func(a, b uint64) uint64 { return b&^(1<<63) | a&(1<<63) })}},
	{op: "ex2.approx.f32", args: "=f32 f32", since: v10, kind: KindSpecial, eval: unary(func(a float32) float32 { return float32(Exp2(float64(a))) })},
}

// maxNumber is max.f32: a NaN loses against a number, -0 < +0 (PTX ISA, max).
func maxNumber(a, b float32) float32 {
	switch {
	case a != a:
		return b
	case b != b:
		return a
	}
	return max(a, b)
}

// multiplyBF computes in f32, where products of bf16 are exact, and rounds once. Subnormal numbers are kept (PTX ISA, mul).
func multiplyBF(a, b uint32) uint32 {
	f := func(x, y uint32) uint32 {
		return floatToBF(math.Float32bits(math.Float32frombits(x) * math.Float32frombits(y)))
	}
	return f(a<<16, b<<16) | f(a&0xffff0000, b&0xffff0000)<<16
}

// ofHalves computes in float64, where products of f16 are exact, and rounds once.
func ofHalves(a, b uint32, f func(a, b float64) float64) uint32 {
	w := func(h uint32) float64 { return float64(halfToFloat(h)) }
	return floatToHalf(f(w(a&0xffff), w(b&0xffff))) | floatToHalf(f(w(a>>16), w(b>>16)))<<16
}
