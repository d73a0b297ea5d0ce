package ptx

import (
	"math"
	"math/bits"
)

// foreign marks rows that only PTX of other compilers has.
func foreign(rows []row) []row {
	for i := range rows {
		rows[i].foreign = true
	}
	return rows
}

// foreignRows are what kernels of Triton, nvcc and CuTe need beyond those of this compiler: spark-run --ptx runs them, and they
// are witnesses for the rows that both have.
var foreignRows = []row{
	{op: "mul.hi.$", args: "=$ $ $", since: v10, kind: KindInt, eval: by{"u16": binary(func(a, b uint32) uint32 { return a * b >> 16 }),
		"s16": binary(func(a, b uint32) uint32 { return uint32(uint16(int32(int16(a)) * int32(int16(b)) >> 16)) }),
		"u32": binary(func(a, b uint32) uint32 { return uint32(uint64(a) * uint64(b) >> 32) }),
		"s32": binary(func(a, b int32) int32 { return int32(int64(a) * int64(b) >> 32) }), "u64": binary(upperProduct)}},
	{op: "mul.wide.s32", args: "=s64 s32 s32", since: v10, kind: KindInt, eval: wideSigned},
	{op: "mul.wide.u16", args: "=u32 u16 u16", since: v10, kind: KindInt, eval: binary(func(a, b uint32) uint32 { return a * b })},
	{op: "max.u32", args: "=u32 u32 u32", since: v10, kind: KindInt, eval: binary(greatest[uint32])},
	{op: "shf.l.wrap.b32", args: "=b32 b32 b32 u32", since: Version{3, 1}, kind: KindInt, eval: ternary(funnelLeft)},
	// Position and length as immediates.
	{op: "bfi.b32", args: "=b32 b32 b32 # #", since: v20, kind: KindInt, eval: insertBits},

	{op: "min.f32", args: "=f32 f32 f32", since: v10, kind: KindFloat, eval: binary(minNumber)},
	{op: "fma.rm.f32", args: "=f32 f32 f32 f32", since: v20, kind: KindFloat, eval: ternary(fusedDown)},
	{op: "fma.rn.f16", args: "=f16 f16 f16 f16", since: Version{4, 2}, kind: KindFloat, eval: ternary(func(a, b, c uint32) uint32 {
		return floatToHalf(fusedOdd(halfToFloat(a), halfToFloat(b), halfToFloat(c)))
	})},
	{op: "fma.rn.bf16", args: "=bf16 bf16 bf16 bf16", since: v70, need: BF16, kind: KindFloat, eval: ternary(func(a, b, c uint32) uint32 {
		return doubleToBF(fusedOdd(f32(a<<16), f32(b<<16), f32(c<<16)))
	})},
	{op: "mul.rn.bf16", args: "=bf16 bf16 bf16", since: Version{7, 8}, need: BF16Arithmetic, kind: KindFloat, eval: binary(multiplyBF)},
	{op: "max.f16", args: "=f16 f16 f16", since: v70, need: Ampere, kind: KindFloat, eval: binary(func(a, b uint32) uint32 { return half(maxNumber(halfToFloat(a), halfToFloat(b))) })},
	{op: "max.bf16", args: "=bf16 bf16 bf16", since: v70, need: BF16, kind: KindFloat, eval: binary(func(a, b uint32) uint32 { return floatToBF(b32(maxNumber(f32(a<<16), f32(b<<16)))) })},
	{op: "add.rn.f32x2", args: "=f32x2 f32x2 f32x2", since: Version{8, 6}, need: Pairs, kind: KindFloat, eval: pairs(func(a, b, _ float32) float32 { return a + b })},
	{op: "sub.rn.f32x2", args: "=f32x2 f32x2 f32x2", since: Version{8, 6}, need: Pairs, kind: KindFloat, eval: pairs(func(a, b, _ float32) float32 { return a - b })},
	{op: "mul.rn.f32x2", args: "=f32x2 f32x2 f32x2", since: Version{8, 6}, need: Pairs, kind: KindFloat, eval: pairs(func(a, b, _ float32) float32 { return a * b })},
	{op: "fma.rn.f32x2", args: "=f32x2 f32x2 f32x2 f32x2", since: Version{8, 6}, need: Pairs, kind: KindFloat, eval: pairs(fma32)},

	{op: "cvt.sat.f32.f32", args: "=f32 f32", since: v10, kind: KindConvert, eval: unary(func(a float32) float32 {
		if !(a > 0) { // NaN becomes 0, too
			return 0
		}
		return min(a, 1)
	})},
	{op: "cvt.rzi.s16.f32", args: "=s16 f32", since: v10, kind: KindConvert, eval: unary(func(a float32) uint32 { return uint32(uint16(clip(float64(a), 15, 0))) })},
	{op: "cvt.u8.u32", args: "=u8 u32", since: v10, kind: KindConvert, eval: low(0xff)},
	{op: "cvt.f32.bf16", args: "=f32 bf16", since: Version{7, 8}, need: BF16, kind: KindConvert, eval: unary(func(a uint32) uint32 { return a << 16 })},
	{op: "cvt.rn.satfinite.e5m2x2.f32", args: "=e5m2x2 f32 f32", since: Version{7, 8}, need: FP8, kind: KindConvert, eval: binary(func(a, b float32) uint32 { return floatToE5M2(a)<<8 | floatToE5M2(b) })},
	{op: "cvt.rn.f16x2.e5m2x2", args: "=f16x2 e5m2x2", since: Version{7, 8}, need: FP8, kind: KindConvert, eval: unary(func(a uint32) uint32 { return halfOfE5M2(a&0xff) | halfOfE5M2(a>>8)<<16 })},
	{op: "cvt.rn.f16x2.e2m1x2", args: "=f16x2 e2m1x2", since: Version{8, 6}, need: FP4, kind: KindConvert, eval: unary(func(a uint32) uint32 { return half(valuesE2M1[a&15]) | half(valuesE2M1[a>>4&15])<<16 })},

	{op: "ld.shared.b16", args: "=b16 [s]", since: v10, does: Load},
	{op: "ld.shared.v2.$", types: "u8 b16", args: "=2*$ [s]", since: v10, does: Load},
	{op: "ld.shared.v4.b16", args: "=4*b16 [s]", since: v10, does: Load},
	{op: "st.shared.v2.u8", args: "=[s] 2*u8", since: v10, does: Store},
	{op: "atom.global.add.f32", args: "=f32 =[g] f32", since: v20, does: Atomic, order: Relaxed, eval: atomics["add.f32"]},
	{op: "atom.acq_rel.gpu.global.add.f32", args: "=f32 =[g] f32", since: v60, does: Atomic, order: AcqRel, eval: atomics["add.f32"]},
	{op: "atom.acq_rel.gpu.global.max.$", args: "=$ =[g] $", since: v60, does: Atomic, order: AcqRel, eval: by{"s32": atomics["max.s32"], "u32": atomics["max.u32"]}},
	{op: "atom.acq_rel.gpu.global.min.$", args: "=$ =[g] $", since: v60, does: Atomic, order: AcqRel, eval: by{"s32": atomics["min.s32"], "u32": atomics["min.u32"]}},
	{op: "atom.shared.add.u32", args: "=u32 =[s] u32", since: v20, does: Atomic, order: Relaxed, eval: atomics["add.u32"]},

	{op: "shfl.sync.up.b32", args: "=b32|p b32 b32 b32 b32", since: v60, does: Shuffle, eval: Source(upwards)},
	{op: "shfl.sync.down.b32", args: "=b32|p b32 b32 b32 b32", since: v60, does: Shuffle, eval: Source(downwards)},
	{op: "shfl.sync.idx.b32", args: "=b32|p b32 b32 b32 b32", since: v60, does: Shuffle, eval: Source(indexed)},
	{op: "redux.sync.add.s32", args: "=s32 s32 b32", since: v70, need: Ampere, does: Reduce, eval: atomics["add.u32"]},
	{op: "redux.sync.max.$", args: "=$ $ b32", since: v70, need: Ampere, does: Reduce, eval: by{"s32": atomics["max.s32"], "u32": atomics["max.u32"]}},
	{op: "redux.sync.min.$", args: "=$ $ b32", since: v70, need: Ampere, does: Reduce, eval: by{"s32": atomics["min.s32"], "u32": atomics["min.u32"]}},
	{op: "stmatrix.sync.aligned.m8n8.x1.shared.b16", args: "=[s] 1*b32", since: Version{7, 8}, need: StoredMatrix, does: StoreMatrix},
	{op: "stmatrix.sync.aligned.m8n8.x4.shared.b16", args: "=[s] 4*b32", since: Version{7, 8}, need: StoredMatrix, does: StoreMatrix},

	{op: "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", args: "=4*f32 4*b32 2*b32 4*f32", since: v70, need: Matrix16, does: Multiply, eval: matrices{a: elementsTF32, b: elementsTF32}},
	{op: "mma.sync.aligned.m16n8k32.row.col.f32.$.e5m2.f32", args: "=4*f32 4*b32 2*b32 4*f32", since: Version{8, 4}, need: FP8, does: Multiply,
		eval: by{"e4m3": matrices{a: elementsE4M3, b: elementsE5M2}, "e5m2": matrices{a: elementsE5M2, b: elementsE5M2}}},
	{op: "mma.sync.aligned.m16n8k32.row.col.s32.$.s8.s32", args: "=4*s32 4*b32 2*b32 4*s32", since: v70, need: Matrix16, does: Multiply,
		eval: by{"s8": integers{signedA: true, signedB: true}.multiply, "u8": integers{signedB: true}.multiply}},
	{op: "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32", args: "=4*s32 4*b32 2*b32 4*s32", since: v70, need: Matrix16, does: Multiply, eval: integers{signedA: true}.multiply},
	{op: "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32", args: "=4*s32 4*b32 2*b32 4*s32", since: v70, need: Matrix16, does: Multiply,
		eval: integers{signedA: true, signedB: true, saturate: true}.multiply},
	{op: "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e4m3.e2m1.f32", args: "=4*f32 4*b32 2*b32 4*f32", since: Version{8, 7}, need: FP4, does: Multiply, eval: matrices{a: elementsE4M3, b: elementsByte}},
	{op: "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e5m2.f32", args: "=4*f32 4*b32 2*b32 4*f32", since: Version{8, 7}, need: FP4, does: Multiply, eval: matrices{a: elementsByte, b: elementsE5M2}},
	{op: "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0", args: "=4*f32 4*b32 2*b32 4*f32 1*b32 2*u16 1*b32 2*u16",
		since: Version{8, 7}, need: FP4, does: Multiply, eval: matrices{elementsE2M1, elementsE2M1, scales2X}, undefined: scales2X.bad},
	{op: "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X.f32.$.e4m3.f32.ue8m0", args: "=4*f32 4*b32 2*b32 4*f32 1*b32 2*u16 1*b32 2*u16",
		since: Version{8, 7}, need: FP4, does: Multiply, undefined: scales1X.bad,
		eval: by{"e4m3": matrices{elementsE4M3, elementsE4M3, scales1X}, "e5m2": matrices{elementsE5M2, elementsE4M3, scales1X}}},
}

// atomics are the functions of atom and redux.
var atomics = map[string]Combine{
	"add.u32": func(a, b uint32) uint32 { return a + b },
	"add.f32": func(a, b uint32) uint32 { return b32(f32(a) + f32(b)) },
	"max.u32": greatest[uint32],
	"min.u32": least[uint32],
	"max.s32": func(a, b uint32) uint32 { return uint32(max(int32(a), int32(b))) },
	"min.s32": func(a, b uint32) uint32 { return uint32(min(int32(a), int32(b))) },
}

func upperProduct(a, b uint64) uint64 {
	upper, _ := bits.Mul64(a, b)
	return upper
}

func wideSigned(d *Row64, a, b *Row32, _ *Row64) {
	for l := range d {
		d[l] = uint64(int64(int32(a[l])) * int64(int32(b[l])))
	}
}

// funnelLeft is the upper word of {b, a} shifted to the left (PTX ISA, shf).
func funnelLeft(a, b, c uint32) uint32 { return uint32((uint64(b)<<32 | uint64(a)) << (c & 31) >> 32) }

// insertBits is bfi: the lowest bits of a in the place of some of b. Its immediates are the position and the length.
func insertBits(imm int64) func(d, a, b, c *Row32) {
	pos, n := uint(imm>>8&0xff), uint(imm&0xff)
	mask := uint32((uint64(1)<<min(n, 32) - 1) << pos)
	if pos > 31 {
		mask = 0
	}
	return func(d, a, b, _ *Row32) {
		for l := range d {
			d[l] = a[l]<<pos&mask | b[l]&^mask
		}
	}
}

// minNumber is min.f32: a NaN loses against a number, -0 < +0 (PTX ISA, min).
func minNumber(a, b float32) float32 {
	switch {
	case a != a:
		return b
	case b != b:
		return a
	}
	return min(a, b)
}

// fusedOdd is x·y+z, where the product is exact in float64, rounded to odd, which a second rounding does not spoil.
func fusedOdd(x, y, z float32) float64 {
	return oddSum(float64(float64(x)*float64(y)), float64(z))
}

// fusedDown is x·y+z rounded once, towards -∞; a zero sum of what is not all +0 is -0 (IEEE 754, 6.3).
func fusedDown(x, y, z float32) float32 {
	p := float64(float64(x) * float64(y))
	s := oddSum(p, float64(z))
	if s == 0 {
		if math.Signbit(p) || math.Signbit(float64(z)) {
			return float32(math.Copysign(0, -1))
		}
		return 0
	}
	v := float32(s)
	if float64(v) > s {
		v = math.Nextafter32(v, float32(math.Inf(-1)))
	}
	return v
}

// pairs computes on both halves of 64 bits.
func pairs(f func(a, b, c float32) float32) func(d, a, b, c *Row64) {
	return func(d, a, b, c *Row64) {
		for l := range d {
			at := func(v uint64, s int) float32 { return f32(uint32(v >> s)) }
			x, y, z := a[l], b[l], c[l]
			d[l] = uint64(b32(f(at(x, 0), at(y, 0), at(z, 0)))) | uint64(b32(f(at(x, 32), at(y, 32), at(z, 32))))<<32
		}
	}
}

// doubleToBF rounds a float64 to bf16, nearest even, once; NaN is canonical.
func doubleToBF(v float64) uint32 {
	b := math.Float64bits(v)
	sign := uint32(b>>48) & 0x8000
	b &^= 1 << 63
	if b > 0x7ff<<52 {
		return nan16
	}
	return sign | encode(min(b, (1023+128)<<52), 7, -126)
}

// halfOfE5M2 is the f16 of the code: its upper byte; a NaN is canonical.
func halfOfE5M2(c uint32) uint32 {
	if c&0x7f > 0x7c {
		return nan16
	}
	return c << 8
}
