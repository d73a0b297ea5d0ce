package jit

import "math"

// permute is prmt: each byte of the result is one of eight, or its sign.
func permute(e *emitter, in *Inst, c int) {
	const out, a, b, sel, x, t, u = 0, 4, 5, 6, 8, 9, 10
	e.v(vmovups, a, 0, e.exact(in.A, c))
	e.v(vpxor, b, a, e.exact(in.B, c))
	e.v(vmovups, sel, 0, e.exact(in.C, c))
	e.v(vpxor, out, out, out)
	for i := range byte(4) {
		spread := func(bit byte) { // t: all ones where the selector's bit is set
			e.shiftI(vpslldI, 6, t, sel, 31-4*i-bit)
			e.shiftI(vpsradI, 4, t, t, 31)
		}
		spread(2)
		e.v(vpand, t, t, b)
		e.v(vpxor, x, a, t)
		e.shiftI(vpsrldI, 2, t, sel, 4*i)
		e.splat32(u, 3)
		e.v(vpand, t, t, u)
		e.shiftI(vpslldI, 6, t, t, 3)
		if e.arm != nil {
			e.arm.shiftRight(pairOf(x), pairOf(t))
		} else {
			e.v(vpsrlvd, x, x, t)
		}
		e.shiftI(vpslldI, 6, x, x, 24)
		e.shiftI(vpsradI, 4, u, x, 31)
		e.v(vpxor, u, u, x)
		spread(3)
		e.v(vpand, t, t, u)
		e.v(vpxor, x, x, t)
		e.shiftI(vpsrldI, 2, x, x, 24)
		e.shiftI(vpslldI, 6, x, x, 8*i)
		e.v(vpor, out, out, x)
	}
}

// logic3 is lop3: any function of three bits, by its table.
func logic3(e *emitter, in *Inst, c int) {
	lut := byte(in.Imm)
	e.v(vmovups, 0, 0, e.exact(in.A, c))
	e.v(vmovups, 1, 0, e.exact(in.B, c))
	if e.wide {
		e.vi(vpternlogd, 0, 1, e.exact(in.C, c), lut)
	} else {
		e.v(vmovups, 2, 0, e.exact(in.C, c))
		e.logicByProducts(lut)
	}
}

// logicByProducts computes a function of registers 0–2 into 0 as an exclusive or of products of its arguments (the
// Reed–Muller form): a coefficient is the exclusive or of the table's entries for subsets of its factors.
func (e *emitter) logicByProducts(lut byte) {
	const out, product = 3, 4
	e.v(vpxor, out, out, out)
	for factors := range 8 { // bit 2: a, as in the table's index, bit 1: b, bit 0: c
		odd := false
		for i := range 8 {
			odd = odd != (i&^factors == 0 && lut>>i&1 == 1)
		}
		if !odd {
			continue
		}
		e.v(vpcmpeqd, product, product, product)
		for r := range 3 {
			if factors>>(2-r)&1 == 1 {
				e.v(vpand, product, product, r)
			}
		}
		e.v(vpxor, out, out, product)
	}
	e.v(vmovups, 0, 0, out)
}

// extractUnsigned is bfe.u32 d, a, b, c: c bits from bit b on. Shifts past the width give 0, of ones as of a.
func extractUnsigned(e *emitter, in *Inst, c int) {
	e.v(vmovups, 0, 0, e.exact(in.A, c))
	e.v(vmovups, 1, 0, e.all32(0xff))
	e.v(vpand, 2, 1, e.exact(in.B, c))
	e.v(vpsrlvd, 0, 0, 2)
	e.v(vpand, 2, 1, e.exact(in.C, c))
	e.v(vmovups, 1, 0, e.all32(1))
	e.v(vpsllvd, 2, 1, 2)
	e.v(vpsubd, 2, 2, 1)
	e.v(vpand, 0, 0, 2)
}

// extractSigned is bfe.s32: the field's last bit, or a's, goes to the top and everything back by arithmetic shift.
func extractSigned(e *emitter, in *Inst, c int) {
	const a, pos, n, up, width = 0, 1, 2, 3, 4
	e.v(vmovups, a, 0, e.exact(in.A, c))
	e.v(vmovups, width, 0, e.all32(0xff))
	e.v(vpand, pos, width, e.exact(in.B, c))
	e.v(vpand, n, width, e.exact(in.C, c))
	e.v(vmovups, width, 0, e.all32(32))
	e.v(vpaddd, up, pos, n)
	e.v(vpminud, up, up, width)
	e.v(vpsubd, up, width, up)
	e.v(vpsllvd, a, a, up)
	e.v(vpaddd, up, up, pos)
	e.v(vpsravd, a, a, up)
	e.v(vpxor, up, up, up) // an empty field is 0
	e.v(vpsubd, n, up, n)
	e.shiftI(vpsradI, 4, n, n, 31)
	e.v(vpand, a, a, n)
}

// insert is bfi.b32 d, a, b, pos, n: the lowest n bits of a in place of those of b from pos on.
func insert(e *emitter, in *Inst, c int) {
	pos, n := byte(in.Imm>>8), byte(in.Imm)
	mask := uint32((uint64(1)<<min(n, 32) - 1) << pos) // 0 beyond the word, where shifts give 0, too
	e.v(vmovups, 0, 0, e.exact(in.A, c))
	e.shiftI(vpslldI, 6, 0, 0, pos)
	e.v(vpand, 0, 0, e.all32(mask))
	e.v(vmovups, 1, 0, e.all32(mask))
	e.v(vpandn, 1, 1, e.exact(in.B, c))
	e.v(vpor, 0, 0, 1)
}

// funnelLeft is shf.l.wrap.b32 d, a, b, c: the upper word of {b, a} shifted to the left. Shifts by 32 give 0.
func funnelLeft(e *emitter, in *Inst, c int) {
	const count, rest = 2, 3
	e.v(vmovups, count, 0, e.all32(31))
	e.v(vpand, count, count, e.exact(in.C, c))
	e.v(vmovups, rest, 0, e.all32(32))
	e.v(vpsubd, rest, rest, count)
	e.v(vmovups, 0, 0, e.exact(in.B, c))
	e.v(vpsllvd, 0, 0, count)
	e.v(vmovups, 1, 0, e.exact(in.A, c))
	e.v(vpsrlvd, 1, 1, rest)
	e.v(vpor, 0, 0, 1)
}

// upper16 is mul.hi of 16 bits, which lie in the lower halves of words.
func upper16(signed bool) func(e *emitter, in *Inst, c int) {
	return func(e *emitter, in *Inst, c int) {
		for v, row := range [...]int32{in.A, in.B} {
			e.v(vmovups, v, 0, e.exact(row, c))
			if signed {
				e.shiftI(vpslldI, 6, v, v, 16)
				e.shiftI(vpsradI, 4, v, v, 16)
			}
		}
		e.v(vpmulld, 0, 0, 1)
		e.shiftI(vpsrldI, 2, 0, 0, 16)
	}
}

// upper32 is mul.hi of 32 bits: multiply gives the products of the even lanes, in 64 bits.
func upper32(multiply vop) func(e *emitter, in *Inst, c int) {
	return func(e *emitter, in *Inst, c int) {
		const a, b, odd = 0, 1, 2
		e.v(vmovups, a, 0, e.exact(in.A, c))
		e.v(vmovups, b, 0, e.exact(in.B, c))
		if e.arm != nil {
			e.arm.upper32(pairOf(a), pairOf(b), multiply == vpmuldq)
			return
		}
		e.shiftI(vpsrlqI, 2, odd, a, 32)
		e.shiftI(vpsrlqI, 2, odd+1, b, 32)
		e.v(multiply, odd, odd, odd+1)
		e.v(vpand, odd, odd, e.vector64(func(int) uint64 { return 0xffffffff << 32 }))
		e.v(multiply, a, a, b)
		e.shiftI(vpsrlqI, 2, a, a, 32)
		e.v(vpor, a, a, odd)
	}
}

// divide is div.u32 and rem.u32. The quotient of two 32-bit integers in double precision truncates to the right one: it
// differs from an integer above it by at least one part in 2^32. By zero both give all ones.
func divide(rem bool) translator {
	return over(r, func(e *emitter, in *Inst, c int) {
		if !e.wide {
			e.divideLanes(in, c, rem)
			return
		}
		const quotient, t, a, b = 0, 1, 2, 3
		a0 := e.register(a, e.exact(in.A, c))
		d, constant := e.known[in.B]
		if constant = constant && d != 0; !constant {
			e.v(vmovups, b, 0, e.exact(in.B, c))
		}
		for h := range 2 {
			part := func(v int) int {
				if h == 0 {
					return v
				}
				e.vi(vextractY, v, 0, t, 1)
				return t
			}
			x := 4 + h
			e.v(vcvtudq2pd, x, 0, part(a0))
			if constant { // half a unit more: then no error of the factor takes the product below an integer, or up to one
				e.v(vaddpd, x, x, e.all64(math.Float64bits(0.5)))
				e.v(vmulpd, x, x, e.all64(math.Float64bits(1/float64(d))))
			} else {
				e.v(vcvtudq2pd, t, 0, part(b))
				e.v(vdivpd, x, x, t)
			}
			e.v(vcvttpd2udq, x, 0, x)
		}
		e.vi(vinsertY, quotient, 4, 5, 1)
		if constant {
			if rem {
				e.v(vpmulld, quotient, quotient, e.all32(d))
				e.v(vpsubd, quotient, a0, quotient)
			}
			return
		}
		if rem {
			e.v(vpmulld, quotient, quotient, b)
			e.v(vpsubd, quotient, a0, quotient)
		}
		e.v(vpxor, t, t, t)
		e.compare(vpcmpud, 1, b, t, 0)
		e.vk(vmovups, quotient, 0, e.all32(math.MaxUint32), 1)
	})
}

// divideLanes is divide of chunk c lane by lane.
func (e *emitter) divideLanes(in *Inst, c int, rem bool) {
	scratch := e.scratch()
	if e.arm != nil {
		e.divideNEON(in, c, rem, scratch)
		return
	}
	for l := range e.lanesOf(r) {
		zero, done := e.newLabel(), e.newLabel()
		e.mov32(rcx, e.lane(in.B, e.lanesOf(r)*c+l))
		e.mov32(rax, e.lane(in.A, e.lanesOf(r)*c+l))
		e.alu32(aluXor, rdx, rdx)
		e.test32(rcx, rcx)
		e.jcc(ccE, zero)
		e.x.div32(rcx)
		e.jmp(done)
		e.place(zero)
		e.movi32(rax, -1)
		e.movi32(rdx, -1)
		e.place(done)
		res := rax
		if rem {
			res = rdx
		}
		e.put32(scratch.plus(4*l), res)
	}
	e.v(vmovups, 0, 0, scratch)
}
