package contraction

import (
	"math/bits"

	"github.com/spark-compile/spark-compile/codegen/layout"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// asm adds index arithmetic with constant folding to a kernel under construction.
type asm struct{ *ptx.Kernel }

// num is a 32-bit integer: a register or a constant.
type num struct {
	reg   ptx.Reg
	c     int
	isReg bool
}

func imm(c int) num       { return num{c: c} }
func inReg(r ptx.Reg) num { return num{reg: r, isReg: true} }

func (n num) operand() ptx.Operand {
	if n.isReg {
		return n.reg
	}
	return ptx.Imm(n.c)
}

// register puts n into a register.
func (a asm) register(n num) ptx.Reg {
	if n.isReg {
		return n.reg
	}
	r := a.Reg(ptx.B32)
	a.I("mov.b32", r, ptx.Imm(n.c))
	return r
}

func (a asm) special(name string) num {
	r := a.Reg(ptx.B32)
	a.I("mov.u32", r, ptx.Special(name))
	return inReg(r)
}

func (a asm) binary(op string, x, y num) num {
	r := a.Reg(ptx.B32)
	a.I(op, r, x.operand(), y.operand())
	return inReg(r)
}

func (a asm) add(x, y num) num {
	switch {
	case !x.isReg && !y.isReg:
		return imm(x.c + y.c)
	case !x.isReg && x.c == 0:
		return y
	case !y.isReg && y.c == 0:
		return x
	case !x.isReg:
		x, y = y, x
	}
	return a.binary("add.s32", x, y)
}

func (a asm) mul(x num, c int) num {
	switch {
	case !x.isReg:
		return imm(x.c * c)
	case c == 0:
		return imm(0)
	case c == 1:
		return x
	case c > 0 && bits.OnesCount(uint(c)) == 1:
		return a.binary("shl.b32", x, imm(bits.TrailingZeros(uint(c))))
	}
	return a.binary("mul.lo.s32", x, imm(c))
}

// mad is x·c + y.
func (a asm) mad(x num, c int, y num) num {
	if !x.isReg || c == 0 || c == 1 || !y.isReg && y.c == 0 {
		return a.add(a.mul(x, c), y)
	}
	r := a.Reg(ptx.B32)
	a.I("mad.lo.s32", r, x.reg, ptx.Imm(c), y.operand())
	return inReg(r)
}

// div is x / c for x ≥ 0.
func (a asm) div(x num, c int) num {
	switch {
	case !x.isReg:
		return imm(x.c / c)
	case c == 1:
		return x
	case bits.OnesCount(uint(c)) == 1:
		return a.binary("shr.u32", x, imm(bits.TrailingZeros(uint(c))))
	}
	return a.binary("div.u32", x, imm(c))
}

// mod is x mod c for x ≥ 0.
func (a asm) mod(x num, c int) num {
	switch {
	case !x.isReg:
		return imm(x.c % c)
	case c == 1:
		return imm(0)
	case bits.OnesCount(uint(c)) == 1:
		return a.binary("and.b32", x, imm(c-1))
	}
	return a.binary("rem.u32", x, imm(c))
}

func (a asm) xor(x, y num) num {
	if !x.isReg && !y.isReg {
		return imm(x.c ^ y.c)
	}
	if !x.isReg {
		x, y = y, x
	}
	if !y.isReg && y.c == 0 {
		return x
	}
	return a.binary("xor.b32", x, y)
}

// split yields the digits of x under the modes' sizes, outermost first. The outermost is not reduced: x is in range.
func (a asm) split(sizes []int, x num) []num {
	out := make([]num, len(sizes))
	for i := len(sizes) - 1; i > 0; i-- {
		q := a.div(x, sizes[i])
		if x.isReg && bits.OnesCount(uint(sizes[i])) != 1 {
			out[i] = a.mad(q, -sizes[i], x)
		} else {
			out[i] = a.mod(x, sizes[i])
		}
		x = q
	}
	if len(sizes) > 0 {
		out[0] = x
	}
	return out
}

func sizes(modes []layout.Mode) []int {
	s := make([]int, len(modes))
	for i, m := range modes {
		s[i] = m.Size
	}
	return s
}

// offset is the element offset of coordinate x; digits are those of x under the modes.
func (a asm) offset(modes []layout.Mode, x num) num {
	off, _ := a.digits(modes, x)
	return off
}

func (a asm) digits(modes []layout.Mode, x num) (off num, digits []num) {
	digits = a.split(sizes(modes), x)
	for i, d := range digits {
		off = a.mad(d, modes[i].Stride, off)
	}
	return off, digits
}

// both is the predicate that holds where two others do, each of them nil where it always does.
func (a asm) both(p, q *ptx.Reg) *ptx.Reg {
	switch {
	case p == nil:
		return q
	case q == nil:
		return p
	}
	x := a.and(*p, *q)
	return &x
}

// swizzled is the byte offset of a 16-byte chunk of a row.
func (a asm) swizzled(s layout.Swizzle, row, chunk num) num {
	key := a.mod(a.div(row, 1<<s.Shift), s.Mask+1)
	return a.mad(row, s.Chunks*16, a.mul(a.xor(chunk, key), 16))
}

// compare sets a predicate.
func (a asm) compare(op string, x, y num) ptx.Reg {
	p := a.Reg(ptx.Pred)
	a.I("setp."+op, p, a.register(x), y.operand())
	return p
}

func (a asm) and(p, q ptx.Reg) ptx.Reg {
	r := a.Reg(ptx.Pred)
	a.I("and.pred", r, p, q)
	return r
}

// address is base + off·size.
func (a asm) address(base ptx.Reg, off num, size int) ptx.Reg {
	r := a.Reg(ptx.B64)
	if !off.isReg {
		if off.c == 0 {
			return base
		}
		a.I("add.s64", r, base, ptx.Imm(off.c*size))
		return r
	}
	a.I("mad.wide.s32", r, off.reg, ptx.Imm(size), base)
	return r
}
