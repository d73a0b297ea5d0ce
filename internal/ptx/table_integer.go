package ptx

var (
	v10 = Version{1, 0}
	v20 = Version{2, 0}
	v60 = Version{6, 0}
	v70 = Version{7, 0}
)

// integerRows: integer arithmetic and logic (PTX ISA 9.7.1, 9.7.8).
var integerRows = []row{
	{op: "add.$", args: "=$ $ $", since: v10, kind: KindInt, eval: by{"u32": add[uint32], "s32": add[uint32], "s64": add[uint64]}},
	{op: "sub.$", args: "=$ $ $", since: v10, kind: KindInt, eval: by{"u32": subtract[uint32], "s32": subtract[uint32], "s64": subtract[uint64]}},
	{op: "mul.lo.$", args: "=$ $ $", since: v10, kind: KindInt, eval: by{"s32": multiply[uint32], "s64": multiply[uint64]}},
	{op: "mul.wide.u32", args: "=u64 u32 u32", since: v10, kind: KindInt, eval: wideUnsigned},
	{op: "mad.lo.$", args: "=$ $ $ $", since: v10, kind: KindInt, eval: by{"u32": multiplyAdd[uint32], "s32": multiplyAdd[uint32], "s64": multiplyAdd[uint64]}},
	{op: "mad.wide.u32", args: "=u64 u32 u32 u64", since: v10, kind: KindInt, eval: wideAddUnsigned},
	{op: "mad.wide.s32", args: "=s64 s32 s32 s64", since: v10, kind: KindInt, eval: wideAddSigned},
	{op: "div.$", args: "=$ $ $", since: v10, kind: KindInt, eval: by{"u32": binary(quotient[uint32]), "s32": binary(quotient[int32]), "u64": binary(quotient[uint64]), "s64": binary(quotient[int64])}},
	{op: "rem.$", args: "=$ $ $", since: v10, kind: KindInt, eval: by{"u32": binary(remainder[uint32]), "s32": binary(remainder[int32]), "u64": binary(remainder[uint64]), "s64": binary(remainder[int64])}},
	{op: "abs.$", args: "=$ $", since: v10, kind: KindInt, eval: by{"s32": unary(func(a int32) int32 { return max(a, -a) }), "s64": unary(func(a int64) int64 { return max(a, -a) })}},
	{op: "neg.$", args: "=$ $", since: v10, kind: KindInt, eval: by{"s32": unary(func(a int32) int32 { return -a }), "s64": unary(func(a int64) int64 { return -a })}},
	{op: "min.$", args: "=$ $ $", since: v10, kind: KindInt, eval: by{"u32": binary(least[uint32]), "s32": binary(least[int32]), "s64": binary(least[int64])}},
	{op: "max.$", args: "=$ $ $", since: v10, kind: KindInt, eval: by{"s32": binary(greatest[int32]), "s64": binary(greatest[int64])}},
	{op: "and.$", args: "=$ $ $", since: v10, kind: KindInt, eval: by{"b32": bitsAnd[uint32], "b64": bitsAnd[uint64], "pred": func(a, b uint32) uint32 { return a & b }}},
	{op: "or.$", args: "=$ $ $", since: v10, kind: KindInt, eval: by{"b32": bitsOr[uint32], "b64": bitsOr[uint64], "pred": func(a, b uint32) uint32 { return a | b }}},
	{op: "xor.$", args: "=$ $ $", since: v10, kind: KindInt, eval: by{"b32": bitsXor[uint32], "b64": bitsXor[uint64], "pred": func(a, b uint32) uint32 { return a ^ b }}},
	{op: "not.$", args: "=$ $", since: v10, kind: KindInt, eval: by{"b32": unary(func(a uint32) uint32 { return ^a }), "b64": unary(func(a uint64) uint64 { return ^a }), "pred": func(a, _ uint32) uint32 { return ^a }}},
	// Shifts past the width give 0, or the sign: so do Go's.
	{op: "shl.$", args: "=$ $ u32", since: v10, kind: KindInt, eval: by{"b32": shiftLeft, "b64": binary(func(a uint64, b uint32) uint64 { return a << b })}},
	{op: "shr.$", args: "=$ $ u32", since: v10, kind: KindInt, eval: by{"u32": shiftRight, "s32": binary(func(a int32, b uint32) int32 { return a >> b }),
		"u64": binary(func(a uint64, b uint32) uint64 { return a >> b }), "s64": binary(func(a int64, b uint32) int64 { return a >> b })}},
	{op: "lop3.b32", args: "=b32 b32 b32 b32 #", since: Version{4, 3}, kind: KindInt, eval: lop3},
	{op: "prmt.b32", args: "=b32 b32 b32 b32", since: v20, kind: KindInt, eval: ternary(prmt)},
	{op: "bfe.$", args: "=$ $ u32 u32", since: v20, kind: KindInt, eval: by{"u32": ternary(bfeU), "s32": ternary(bfeS)}},
}

type number interface {
	uint32 | int32 | uint64 | int64
}

// quotient is all ones by zero, as the instruction sequence of NVIDIA's compilers gives; the ISA leaves it open.
func quotient[T number](a, b T) T {
	if b == 0 {
		return ^T(0)
	}
	return a / b
}

func remainder[T number](a, b T) T {
	if b == 0 {
		return ^T(0)
	}
	return a % b
}

func least[T number](a, b T) T    { return min(a, b) }
func greatest[T number](a, b T) T { return max(a, b) }

// prmt picks four of the eight bytes {b, a}; bit 3 of a selector replicates the byte's sign (PTX ISA, prmt).
func prmt(a, b, c uint32) uint32 {
	v := uint64(b)<<32 | uint64(a)
	var out uint32
	for i := uint(0); i < 4; i++ {
		s := c >> (4 * i)
		x := uint32(uint8(v >> (8 * (s & 7))))
		if s&8 != 0 {
			x = uint32(uint8(int8(x) >> 7))
		}
		out |= x << (8 * i)
	}
	return out
}

func bfeU(a, b, c uint32) uint32 {
	pos, n := b&0xff, c&0xff
	if pos > 31 || n == 0 {
		return 0
	}
	return a >> pos & uint32(uint64(1)<<min(n, 32)-1)
}

func bfeS(a, b, c uint32) uint32 {
	pos, n := b&0xff, c&0xff
	if n == 0 {
		return 0
	}
	sign := uint32(int32(a<<(31-min(pos+n-1, 31))) >> 31) // the field's last bit, everywhere
	if pos > 31 {
		return sign
	}
	mask := uint32(uint64(1)<<min(n, 32) - 1)
	if pos+n > 32 {
		mask = uint32(uint64(1)<<(32-pos) - 1)
	}
	return a>>pos&mask | sign&^mask
}

// lop3 looks every bit triple up in the table (PTX ISA, lop3).
func lop3(table int64) func(d, a, b, c *Row32) {
	return func(d, a, b, c *Row32) {
		for l := range d {
			var out uint32
			for i := range 8 {
				if table>>i&1 == 0 {
					continue
				}
				x, y, z := a[l], b[l], c[l]
				if i&4 == 0 {
					x = ^x
				}
				if i&2 == 0 {
					y = ^y
				}
				if i&1 == 0 {
					z = ^z
				}
				out |= x & y & z
			}
			d[l] = out
		}
	}
}
