package ptx

import "math"

// moveRows: moves (PTX ISA 9.7.9).
var moveRows = []row{
	{op: "mov.$", args: "=$ $", since: v10, kind: KindMove, eval: by{"b16": move[uint32], "b32": move[uint32], "u32": move[uint32], "f32": move[uint32],
		"b64": move[uint64], "f64": move[uint64], "pred": func(a, _ uint32) uint32 { return a }}},
	{op: "cvta.to.global.u64", args: "=u64 u64", since: v20, kind: KindMove, eval: move[uint64]},
}

// convertRows: conversions (PTX ISA 9.7.9.21). Two e2m1 live in a register of 8 bits (%b), which only cvt reads and writes.
var convertRows = []row{
	{op: "cvt.u16.u32", args: "=u16 u32", since: v10, kind: KindConvert, eval: low(0xffff)},
	{op: "cvt.u32.u16", args: "=u32 u16", since: v10, kind: KindConvert, eval: low(0xffff)},
	{op: "cvt.s32.s16", args: "=s32 s16", since: v10, kind: KindConvert, eval: unary(func(a uint32) int32 { return int32(int16(a)) })},
	{op: "cvt.u32.u8", args: "=u32 u8", since: v10, kind: KindConvert, eval: low(0xff)},
	{op: "cvt.s32.s8", args: "=s32 s8", since: v10, kind: KindConvert, eval: unary(func(a uint32) int32 { return int32(int8(a)) })},
	{op: "cvt.u32.u64", args: "=u32 u64", since: v10, kind: KindConvert, eval: unary(func(a uint64) uint32 { return uint32(a) })},
	{op: "cvt.u64.u32", args: "=u64 u32", since: v10, kind: KindConvert, eval: unary(func(a uint32) uint64 { return uint64(a) })},
	{op: "cvt.s64.s32", args: "=s64 s32", since: v10, kind: KindConvert, eval: unary(func(a int32) int64 { return int64(a) })},

	{op: "cvt.rn.f32.$", args: "=f32 $", since: v10, kind: KindConvert, eval: by{"s32": unary(func(a int32) float32 { return float32(a) }), "s64": unary(func(a int64) float32 { return float32(a) }),
		"u64": unary(func(a uint64) float32 { return float32(a) }), "f64": unary(func(a float64) float32 { return float32(a) })}},
	{op: "cvt.rn.f64.$", args: "=f64 $", since: v10, kind: KindConvert, eval: by{"s32": unary(func(a int32) float64 { return float64(a) }), "s64": unary(func(a int64) float64 { return float64(a) }),
		"u64": unary(func(a uint64) float64 { return float64(a) })}},
	{op: "cvt.f64.f32", args: "=f64 f32", since: v10, kind: KindConvert, eval: unary(func(a float32) float64 { return float64(a) })},
	{op: "cvt.rzi.$.f32", args: "=$ f32", since: v10, kind: KindConvert, eval: by{"s32": unary(func(a float32) int32 { return int32(clip(float64(a), 31, 0)) }),
		"s64": unary(func(a float32) int64 { return clip(float64(a), 63, math.MinInt64) }), "u64": unary(func(a float32) uint64 { return clipUnsigned(float64(a)) })}},
	{op: "cvt.rzi.$.f64", args: "=$ f64", since: v10, kind: KindConvert, eval: by{"s32": unary(func(a float64) int32 { return int32(clip(a, 31, math.MinInt32)) }),
		"s64": unary(func(a float64) int64 { return clip(a, 63, math.MinInt64) }), "u64": unary(clipUnsigned)}},
	{op: "cvt.rni.$.$", args: "=$ $", since: v10, kind: KindConvert, eval: integral(math.RoundToEven)},
	{op: "cvt.rmi.$.$", args: "=$ $", since: v10, kind: KindConvert, eval: integral(math.Floor)},
	{op: "cvt.rpi.$.$", args: "=$ $", since: v10, kind: KindConvert, eval: integral(math.Ceil)},
	{op: "cvt.rzi.$.$", args: "=$ $", since: v10, kind: KindConvert, eval: integral(math.Trunc)},

	// Of two sources the first becomes the upper half.
	{op: "cvt.f32.f16", args: "=f32 f16", since: v10, kind: KindConvert, eval: unary(halfToFloat)},
	{op: "cvt.rn.f16.f32", args: "=f16 f32", since: v10, kind: KindConvert, eval: unary(half)},
	{op: "cvt.rn.f16x2.f32", args: "=f16x2 f32 f32", since: v70, need: Ampere, kind: KindConvert, eval: binary(func(a, b float32) uint32 { return half(a)<<16 | half(b) })},
	{op: "cvt.rn.bf16.f32", args: "=bf16 f32", since: v70, need: BF16, kind: KindConvert, eval: unary(floatToBF)},
	{op: "cvt.rn.bf16x2.f32", args: "=bf16x2 f32 f32", since: v70, need: BF16, kind: KindConvert, eval: binary(func(a, b uint32) uint32 { return floatToBF(a)<<16 | floatToBF(b) })},
	{op: "cvt.rn.satfinite.e4m3x2.f32", args: "=e4m3x2 f32 f32", since: Version{7, 8}, need: FP8, kind: KindConvert, eval: binary(func(a, b float32) uint32 { return floatToE4M3(a)<<8 | floatToE4M3(b) })},
	{op: "cvt.rn.satfinite.e4m3x2.f16x2", args: "=e4m3x2 f16x2", since: Version{7, 8}, need: FP8, kind: KindConvert, eval: unary(func(a uint32) uint32 {
		return floatToE4M3(halfToFloat(a&0xffff)) | floatToE4M3(halfToFloat(a>>16))<<8
	})},
	{op: "cvt.rn.f16x2.e4m3x2", args: "=f16x2 e4m3x2", since: Version{7, 8}, need: FP8, kind: KindConvert, eval: unary(func(a uint32) uint32 { return halfOfE4M3(a) | halfOfE4M3(a>>8)<<16 })},
	{op: "cvt.rn.satfinite.e2m1x2.f32", args: "=e2m1x2 f32 f32", since: Version{8, 6}, need: FP4, kind: KindConvert, eval: binary(func(a, b float32) uint32 { return floatToE2M1(a)<<4 | floatToE2M1(b) })},
}

func half(v float32) uint32 { return floatToHalf(float64(v)) }

// halfOfE4M3 is the f16 of the code in the lowest byte: exact.
func halfOfE4M3(c uint32) uint32 { return half(valuesE4M3[uint8(c)]) }

// clip truncates to a signed integer of so many bits and a sign, saturating. A NaN becomes 0, or 1 in the highest bit where
// a 64-bit type is involved (PTX ISA, cvt).
func clip(v float64, bits int, nan int64) int64 {
	limit := math.Ldexp(1, bits)
	switch {
	case v != v:
		return nan
	case v < -limit:
		return -1 << bits
	case v >= limit:
		return 1<<bits - 1
	}
	return int64(v)
}

func clipUnsigned(v float64) uint64 {
	switch {
	case v != v:
		return 1 << 63
	case v <= 0:
		return 0
	case v >= 1<<64:
		return math.MaxUint64
	}
	return uint64(v)
}

// integral rounds to an integer and keeps the type.
func integral(round func(float64) float64) by {
	return by{"f32": unary(func(a float32) float32 { return float32(round(float64(a))) }), "f64": unary(round)}
}
