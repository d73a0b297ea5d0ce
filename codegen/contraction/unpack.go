package contraction

import (
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/ir"
)

// Conversions in registers, between what is read for a unit of K and the fragments that are multiplied.

// conversion is how the elements of B become fragments.
type conversion struct {
	factor float32                                       // of a value over the number that is multiplied
	cost   float64                                       // integer instructions for an element of a lane
	floats float64                                       // float instructions for an element of a lane
	unpack func(t *operands, g *gen, j, m int) []ptx.Reg // B fragments of the two n8 tiles of n16 tile j, for mma number m of the unit
}

// convertB is the conversion of B. e2m1 with scales becomes f16 times 2^-14: the least product is 2^-1·2^-9·2^-14,
// f16's last place, a subnormal number, which tensor cores keep. bf16 has the exponents of f32, whose sums would lose
// such products: numbers are multiplied by what its greater bias leaves, but for 2^-8 of e2m1 with scales, which 448
// would take beyond the greatest.
func (n *numerics) convertB() conversion {
	switch {
	case n.b == n.mul:
	case n.b == ir.Float4E2M1 && n.mul == ir.BFloat16:
		return conversion{1 << 8, 3.4, 1, (*operands).fromE2M1}
	case n.b == ir.Float6E3M2 && n.mul == ir.BFloat16:
		return conversion{1, 2, .5, (*operands).fromE3M2}
	case n.b == ir.Float8E4M3FN && n.mul == ir.BFloat16:
		return conversion{1, 2, .5, (*operands).fromE4M3}
	case n.b == ir.Float4E2M1:
		return conversion{1 << 14, 3.4, 1, (*operands).fromE2M1}
	case n.b == ir.Float6E3M2:
		return conversion{1 << 12, 1.25, 0, (*operands).fromE3M2}
	case n.b == ir.Float8E4M3FN && n.mul == ir.Float16:
		return conversion{1, 1, 0, (*operands).fromE4M3}
	}
	return conversion{factor: 1, unpack: func(t *operands, _ *gen, j, m int) []ptx.Reg { return t.b[j][m] }}
}

// halves256 is a pair of f16, 2^8 both.
const halves256 = 0x5c005c00

// fragsA are the A fragments of mma number m of the unit, one for each term of what is multiplied.
func (t *operands) fragsA(g *gen, i, m int) [][]ptx.Reg {
	n := &g.p.num
	out := make([][]ptx.Reg, n.terms)
	switch {
	case n.round != 0 && n.mul == ir.Float8E4M3FN:
		for r := range 4 { // rows g and g+8 alternate; a register takes a pair from each half of an f16 fragment
			x := t.a[i][2*m+r/2]
			left, right := g.roundE4M3(x[r%2]), g.roundE4M3(x[2+r%2])
			for term := range out {
				out[term] = append(out[term], g.joinHalves(left[term], right[term]))
			}
		}
	case n.round != 0:
		for _, x := range t.a[i][m] {
			for term, codes := range g.roundE4M3(x) {
				r := g.Reg(ptx.B32)
				g.I("cvt.rn.f16x2.e4m3x2", r, codes)
				out[term] = append(out[term], r)
			}
		}
	case n.a == ir.Float8E4M3FN && n.mul == ir.Float16:
		x := t.a[i][m/2][2*(m%2):]
		lo0, hi0 := g.unpackE4M3(x[0], true)
		lo1, hi1 := g.unpackE4M3(x[1], true)
		out[0] = []ptx.Reg{lo0, lo1, hi0, hi1}
	default:
		out[0] = t.a[i][m]
	}
	return out
}

// fragsB are the B fragments of all n8 tiles for mma number m of the unit, of each term.
func (t *operands) fragsB(g *gen, m int) [][][]ptx.Reg {
	if t.ready != nil {
		return t.ready[m]
	}
	b := make([][][]ptx.Reg, g.s.warpTerms(&g.p.num))
	for j := range g.s.warpN() / 16 {
		for term := range b {
			lo, hi := t.fragB(g, j, m, term)
			b[term] = append(b[term], lo, hi)
		}
	}
	return b
}

// fragB are the B fragments of the two n8 tiles of n16 tile j for mma number m of the unit, of one of the terms: what
// has two is multiplied as it is read.
func (t *operands) fragB(g *gen, j, m, term int) (lo, hi []ptx.Reg) {
	n := &g.p.num
	if w := g.plan.tiles; w != nil && w.byK && n.b != n.mul {
		return t.transposed(g, j, m)
	}
	r := n.convertB().unpack(t, g, j, m+term*n.unit()/n.stepB())
	return r[:2], r[2:]
}

func (t *operands) fromE2M1(g *gen, j, m int) []ptx.Reg {
	w := g.unpackE2M1(t.b[j][m/4][m%4])
	for i, r := range w { // [n8][register]
		g.times(r, r, t.scale(g, j, i/2, i%2, m))
	}
	return w
}

func (t *operands) fromE4M3(g *gen, j, m int) []ptx.Reg {
	x := t.b[j][m/2]
	a, b := g.unpackE4M3(x[m%2], false)
	c, d := g.unpackE4M3(x[2+m%2], false)
	return []ptx.Reg{a, b, c, d}
}

func (t *operands) fromE3M2(g *gen, j, m int) []ptx.Reg {
	x := t.b[j][m/2]
	hi := x[2]
	if m%2 == 1 {
		hi = g.fourthE3M2(x)
	}
	return append(g.unpackE3M2(x[m%2]), g.unpackE3M2(hi)...)
}

// scale is the scale of an n8 tile's column for the 16 of K of mma number m, in both halves; across it is those of
// the two k in a register.
func (t *operands) scale(g *gen, j, half, register, m int) ptx.Reg {
	word, lo, hi := half, m, m
	if g.p.num.across {
		word, lo, hi = m, 2*register, 2*register+1
	}
	r := g.Reg(ptx.B32)
	// Moved to the upper bytes of both halves and shifted right by one, it is the f16 of the scale times 2^-8; by
	// four, the bf16 times 2^-120. The numbers are bf16 times 2^-126.
	g.I("prmt.b32", r, t.scales[j][word], ptx.Imm(0), ptx.Imm(0x4+lo<<4+0x400+hi<<12))
	if g.p.num.mul == ir.BFloat16 {
		g.I("shr.u32", r, r, ptx.Imm(4))
		g.times(r, r, g.register(imm(powerBF(120))))
		g.times(r, r, g.register(imm(powerBF(118))))
		return r
	}
	g.I("shr.u32", r, r, ptx.Imm(1))
	g.times(r, r, g.register(imm(halves256)))
	return r
}

// times multiplies pairs of the type that is multiplied.
func (g *gen) times(r, a, b ptx.Reg) {
	op := "mul.rn.f16x2"
	if g.p.num.mul == ir.BFloat16 {
		op = "mul.rn.bf16x2"
	}
	g.I(op, r, a, b)
}

// powerBF is a pair of bf16, a power of two both.
func powerBF(exponent int) int {
	code := (exponent + 127) << 7
	return code<<16 | code
}

// unpackE2M1 turns a word of eight e2m1, packed as pairs says, into four pairs of f16, 2^-14 times as large: the
// three bits of the magnitude are the last two of f16's exponent and the first of its mantissa. So are they bf16,
// 2^-126 times as large.
func (g *gen) unpackE2M1(w ptx.Reg) []ptx.Reg {
	const signs = 0x80008000 - 1<<32
	at, magnitudes := 9, 0x0e000e00
	if g.p.num.mul == ir.BFloat16 {
		at, magnitudes = 6, 0x01c001c0
	}
	out := make([]ptx.Reg, 4)
	for i, p := range pairs {
		if p.sign == 15 && p.magnitude == at {
			out[i] = g.Reg(ptx.B32)
			g.I("and.b32", out[i], w, ptx.Imm(signs|magnitudes))
			continue
		}
		s, m, r := g.Reg(ptx.B32), g.Reg(ptx.B32), g.Reg(ptx.B32)
		if p.sign == 15 {
			g.I("and.b32", s, w, ptx.Imm(signs))
		} else {
			g.I("shl.b32", s, w, ptx.Imm(15-p.sign))
			g.I("and.b32", s, s, ptx.Imm(signs))
		}
		switch {
		case p.magnitude > at:
			g.I("shr.u32", m, w, ptx.Imm(p.magnitude-at))
		case p.magnitude < at:
			g.I("shl.b32", m, w, ptx.Imm(at-p.magnitude))
		default:
			m = w
		}
		g.I("lop3.b32", r, m, ptx.Imm(magnitudes), s, ptx.Imm(0xea)) // (a & b) | c
		out[i] = r
	}
	return out
}

// unpackE3M2 turns a word of four e3m2, packed as packSixes says, into two pairs of f16, 2^-12 times as large: the five
// bits of the magnitude are the last three of f16's exponent and the first two of its mantissa.
func (g *gen) unpackE3M2(w ptx.Reg) []ptx.Reg {
	const number = 0x9f009f00 - 1<<32
	odd, even := g.Reg(ptx.B32), g.Reg(ptx.B32)
	g.I("and.b32", odd, w, ptx.Imm(number))
	g.I("shl.b32", even, w, ptx.Imm(8))
	g.I("and.b32", even, even, ptx.Imm(number))
	if g.p.num.mul == ir.BFloat16 { // three places further down, 2^-124 times as large
		odd, even = g.lowered(odd, 3, 0x03e003e0, 124), g.lowered(even, 3, 0x03e003e0, 124)
	}
	return []ptx.Reg{odd, even}
}

// lowered turns a pair of signed magnitudes at the top of halves into bf16: the magnitudes move down, and the bias is
// made up for.
func (g *gen) lowered(w ptx.Reg, by, magnitudes, exponent int) ptx.Reg {
	s, m, r := g.Reg(ptx.B32), g.Reg(ptx.B32), g.Reg(ptx.B32)
	g.I("and.b32", s, w, ptx.Imm(0x80008000-1<<32))
	g.I("shr.u32", m, w, ptx.Imm(by))
	g.I("lop3.b32", r, m, ptx.Imm(magnitudes), s, ptx.Imm(0xea)) // (a & b) | c
	g.times(r, r, g.register(imm(powerBF(exponent))))
	return r
}

// fourthE3M2 gathers the fourth word of packSixes from the places that three leave free.
func (g *gen) fourthE3M2(x []ptx.Reg) ptx.Reg {
	var r ptx.Reg
	for i, part := range []struct {
		word int
		op   string
		by   int
		mask int
	}{{0, "shr.u32", 2, 0x18181818}, {1, "shr.u32", 4, 0x06060606}, {2, "shl.b32", 1, 0x80808080 - 1<<32}, {2, "shr.u32", 5, 0x01010101}} {
		s, sum := g.Reg(ptx.B32), g.Reg(ptx.B32)
		g.I(part.op, s, x[part.word], ptx.Imm(part.by))
		if i == 0 {
			g.I("and.b32", sum, s, ptx.Imm(part.mask))
		} else {
			g.I("lop3.b32", sum, s, ptx.Imm(part.mask), r, ptx.Imm(0xea)) // (a & b) | c
		}
		r = sum
	}
	return r
}

// unpackE4M3 turns four e4m3 into two pairs of f16, or of bf16 where that is multiplied. nan: they may be NaN.
func (g *gen) unpackE4M3(w ptx.Reg, nan bool) (lo, hi ptx.Reg) {
	if g.p.num.mul == ir.BFloat16 {
		var out [2]ptx.Reg
		for i, selector := range []int{0x1404, 0x3424} {
			t := g.Reg(ptx.B32)
			g.I("prmt.b32", t, w, ptx.Imm(0), ptx.Imm(selector))
			out[i] = g.lowered(t, 4, 0x07f007f0, 120)
		}
		return out[0], out[1]
	}
	if g.t.Multiplies(ir.Float8E4M3FN.String()) {
		s := g.Reg(ptx.B32)
		g.I("shr.u32", s, w, ptx.Imm(16))
		var out [2]ptx.Reg
		for i, x := range []ptx.Reg{w, s} {
			h := g.Reg(ptx.B16)
			out[i] = g.Reg(ptx.B32)
			g.I("cvt.u16.u32", h, x)
			g.I("cvt.rn.f16x2.e4m3x2", out[i], h)
		}
		return out[0], out[1]
	}
	var out [2]ptx.Reg
	for i, selector := range []int{0x1404, 0x3424} { // the bytes into the upper ones of the halves
		t, s, r := g.Reg(ptx.B32), g.Reg(ptx.B32), g.Reg(ptx.B32)
		g.I("prmt.b32", t, w, ptx.Imm(0), ptx.Imm(selector))
		g.I("and.b32", s, t, ptx.Imm(0x80008000-1<<32))
		if nan { // all ones carry into the sign's place when 1 is added; then all of f16's exponent is set
			m, e := g.Reg(ptx.B32), g.Reg(ptx.B32)
			g.I("and.b32", m, t, ptx.Imm(0x7f007f00))
			g.I("add.u32", m, m, ptx.Imm(0x01000100))
			g.I("and.b32", m, m, ptx.Imm(0x80008000-1<<32))
			g.I("shr.u32", e, m, ptx.Imm(5))
			g.I("sub.u32", m, m, e)
			g.I("or.b32", s, s, m)
		}
		g.I("shr.u32", t, t, ptx.Imm(1))
		g.I("lop3.b32", r, t, ptx.Imm(0x3f803f80), s, ptx.Imm(0xea))
		g.I("mul.rn.f16x2", r, r, g.register(imm(halves256))) // f16's bias is 8 more
		out[i] = r
	}
	return out[0], out[1]
}

// roundE4M3 multiplies a pair of 16-bit floats by the factor of the rounding and returns the codes of the nearest
// e4m3, for each term.
func (g *gen) roundE4M3(w ptx.Reg) []ptx.Reg {
	if g.p.num.terms == 2 {
		return g.roundTwice(w)
	}
	s := g.Reg(ptx.B32)
	g.I("shr.u32", s, w, ptx.Imm(16))
	var f [2]ptx.Reg
	for i, x := range []ptx.Reg{w, s} {
		h := g.Reg(ptx.B16)
		f[i] = g.Reg(ptx.F32)
		g.I("cvt.u16.u32", h, x)
		g.promote(f[i], h, g.p.num.a)
		g.I("mul.rn.f32", f[i], f[i], ptx.FImm(float32(g.p.num.round)))
	}
	r := g.Reg(ptx.B16)
	g.I("cvt.rn.satfinite.e4m3x2.f32", r, f[1], f[0])
	return []ptx.Reg{r}
}

// roundTwice is roundE4M3 of two terms, where the factor is a power of two: products and differences of f16 are then
// exact.
func (g *gen) roundTwice(w ptx.Reg) []ptx.Reg {
	x, near, hi, lo := g.Reg(ptx.B32), g.Reg(ptx.B32), g.Reg(ptx.B16), g.Reg(ptx.B16)
	factor := int(ir.Float16.Format().Encode(g.p.num.round, false))
	g.I("mul.rn.f16x2", x, w, g.register(imm(factor<<16|factor)))
	g.I("cvt.rn.satfinite.e4m3x2.f16x2", hi, x)
	g.I("cvt.rn.f16x2.e4m3x2", near, hi)
	g.I("sub.rn.f16x2", x, x, near)
	g.I("cvt.rn.satfinite.e4m3x2.f16x2", lo, x)
	return []ptx.Reg{hi, lo}
}

// joinHalves is a word of two 16-bit registers.
func (g *gen) joinHalves(lo, hi ptx.Reg) ptx.Reg {
	a, b, w := g.Reg(ptx.B32), g.Reg(ptx.B32), g.Reg(ptx.B32)
	g.I("cvt.u32.u16", a, lo)
	g.I("cvt.u32.u16", b, hi)
	g.I("prmt.b32", w, a, b, ptx.Imm(0x5410))
	return w
}

// promote is the value of a 16-bit float.
func (g *gen) promote(f, h ptx.Reg, d ir.DType) {
	if d == ir.Float16 {
		g.I("cvt.f32.f16", f, h)
		return
	}
	w := g.Reg(ptx.B32)
	g.I("cvt.u32.u16", w, h)
	g.I("shl.b32", w, w, ptx.Imm(16))
	g.I("mov.b32", f, w)
}

// promotePair are the values of a pair of 16-bit floats, the lower one first.
func (g *gen) promotePair(w ptx.Reg, d ir.DType) [2]ptx.Reg {
	f := [2]ptx.Reg{g.Reg(ptx.F32), g.Reg(ptx.F32)}
	lo, hi := g.Reg(ptx.B32), g.Reg(ptx.B32)
	if d == ir.BFloat16 {
		g.I("shl.b32", lo, w, ptx.Imm(16))
		g.I("and.b32", hi, w, ptx.Imm(0xffff0000))
		g.I("mov.b32", f[0], lo)
		g.I("mov.b32", f[1], hi)
		return f
	}
	g.I("shr.u32", hi, w, ptx.Imm(16))
	for i, x := range []ptx.Reg{w, hi} {
		h := g.Reg(ptx.B16)
		g.I("cvt.u16.u32", h, x)
		g.promote(f[i], h, d)
	}
	return f
}
