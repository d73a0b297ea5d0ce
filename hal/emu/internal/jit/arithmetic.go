package jit

import (
	"unsafe"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// translator emits an instruction.
type translator interface {
	translate(e *emitter, in *Inst)
}

// whole is an instruction that is emitted for all lanes at once.
type whole func(e *emitter, in *Inst)

func (f whole) translate(e *emitter, in *Inst) { f(e, in) }

// lanewise is an instruction whose result is a row of a file, and is emitted chunk by chunk: body leaves chunk c of
// the result in register 0, or in a run, if it is simple, in e.out. Simple ones clobber registers 0 and 1 and mask
// registers 1 to 4, the others registers up to 13. In a run, body names an operand at most once after it has written
// to e.out.
type lanewise struct {
	file          file
	body          func(e *emitter, in *Inst, c int)
	loose, simple bool // loose: an f32 whose NaNs are as they come
}

func (f lanewise) translate(e *emitter, in *Inst) {
	e.masks()
	for c := range e.chunksOf(f.file) {
		f.body(e, in, c)
		if f.loose {
			e.canon(0, 1)
		}
		e.write(f.file, in.D, c, 0, 13)
	}
}

// native has the native forms of all instructions but memory's. Each computes bit for bit what the interpreter does.
var native = nativeForms()

func nativeForms() map[string]translator {
	t := map[string]translator{}
	each := func(f translator, ops ...string) {
		for _, op := range ops {
			t[op] = f
		}
	}

	// 32-bit integers
	each(elementwise(r, vpaddd), "add.u32", "add.s32")
	each(elementwise(r, vpsubd), "sub.u32", "sub.s32")
	t["mul.lo.s32"] = elementwise(r, vpmulld)
	t["and.b32"] = elementwise(r, vpand)
	t["or.b32"] = elementwise(r, vpor)
	t["xor.b32"] = elementwise(r, vpxor)
	t["shl.b32"] = shift(vpsllvd, vpslldI, 6)
	t["shr.u32"] = shift(vpsrlvd, vpsrldI, 2)
	t["shr.s32"] = shift(vpsravd, vpsradI, 4)
	t["min.s32"] = elementwise(r, vpminsd)
	t["max.s32"] = elementwise(r, vpmaxsd)
	t["min.u32"] = elementwise(r, vpminud)
	t["max.u32"] = elementwise(r, vpmaxud)
	t["not.b32"] = unary(func(e *emitter, v int) { e.splat32(1, 0xffffffff); e.v(vpxor, v, v, 1) })
	t["abs.s32"] = unary(func(e *emitter, v int) { e.v(vpabsd, v, 0, v) })
	t["neg.s32"] = unary(func(e *emitter, v int) { e.v(vpxor, 1, 1, 1); e.v(vpsubd, v, 1, v) })
	each(simple(r, mad), "mad.lo.u32", "mad.lo.s32")
	t["div.u32"] = divide(false)
	t["rem.u32"] = divide(true)
	t["prmt.b32"] = over(r, permute)
	t["lop3.b32"] = over(r, logic3)
	t["bfe.u32"] = over(r, extractUnsigned)
	t["bfe.s32"] = over(r, extractSigned)
	t["bfi.b32"] = over(r, insert)
	t["shf.l.wrap.b32"] = over(r, funnelLeft)
	t["mul.wide.u16"] = elementwise(r, vpmulld)
	t["mul.hi.u16"] = over(r, upper16(false))
	t["mul.hi.s16"] = over(r, upper16(true))
	t["mul.hi.u32"] = over(r, upper32(vpmuludq))
	t["mul.hi.s32"] = over(r, upper32(vpmuldq))

	// moves and predicates
	each(simple(r, move), "mov.b16", "mov.b32", "mov.u32", "mov.f32")
	each(over(q, func(e *emitter, in *Inst, c int) { e.v(vmovups, 0, 0, e.q(in.A, c)) }), "mov.b64", "mov.f64", "cvta.to.global.u64")
	t["createpolicy.fractional.L2::evict_first.b64"] = over(q, func(e *emitter, _ *Inst, _ int) { e.splat64(0, ptx.EvictFirst) })
	t["mov.pred"] = predicates(func(*emitter, mem) {})
	t["and.pred"] = predicates(func(e *emitter, b mem) { e.alu32(aluAnd, rax, b) })
	t["or.pred"] = predicates(func(e *emitter, b mem) { e.alu32(aluOr, rax, b) })
	t["xor.pred"] = predicates(func(e *emitter, b mem) { e.alu32(aluXor, rax, b) })
	t["not.pred"] = predicates(func(e *emitter, _ mem) { e.not32(rax) })
	each(choice(r), "selp.b32", "selp.f32")
	each(choice(q), "selp.b64", "selp.f64")

	// 64-bit integers
	t["add.s64"] = elementwise(q, vpaddq)
	t["sub.s64"] = elementwise(q, vpsubq)
	t["and.b64"] = elementwise(q, vpand)
	t["or.b64"] = elementwise(q, vpor)
	t["xor.b64"] = elementwise(q, vpxor)
	t["mul.wide.u32"] = wide(false, false)
	t["mul.wide.s32"] = wide(true, false)
	t["mad.wide.u32"] = wide(false, true)
	t["mad.wide.s32"] = wide(true, true)
	t["shl.b64"] = shiftQ(vpsllvq)
	t["shr.u64"] = shiftQ(vpsrlvq)
	t["cvt.u64.u32"] = extendQ(vpmovzxdq)
	t["cvt.s64.s32"] = extendQ(vpmovsxdq)
	t["cvt.u32.u64"] = over(r, truncateQ)

	// narrow integers
	zero := func(mask uint32) translator {
		return unary(func(e *emitter, v int) { e.splat32(1, mask); e.v(vpand, v, v, 1) })
	}
	sign := func(bits byte) translator {
		return unary(func(e *emitter, v int) {
			e.shiftI(vpslldI, 6, v, v, 32-bits)
			e.shiftI(vpsradI, 4, v, v, 32-bits)
		})
	}
	each(zero(0xffff), "cvt.u32.u16", "cvt.u16.u32")
	each(zero(0xff), "cvt.u32.u8", "cvt.u8.u32")
	t["cvt.s32.s16"] = sign(16)
	t["cvt.s32.s8"] = sign(8)

	floatForms(t)
	narrowForms(t)
	compareForms(t)
	matrixForms(t)
	return t
}

// over is an instruction whose result is a row of a file: body leaves chunk c of it in register 0.
func over(f file, body func(e *emitter, in *Inst, c int)) translator {
	return lanewise{file: f, body: body}
}

// simple is over for a simple body, which leaves the chunk in e.out.
func simple(f file, body func(e *emitter, in *Inst, c int)) translator {
	return lanewise{file: f, body: body, simple: true}
}

// float is an instruction whose result is f32: a simple body leaves chunk c of it in e.out, NaNs as they come.
func float(body func(e *emitter, in *Inst, c int)) translator {
	return lanewise{file: r, body: body, loose: true, simple: true}
}

func elementwise(f file, o vop) translator {
	return simple(f, func(e *emitter, in *Inst, c int) {
		a := e.register(0, e.from(f, in.A, c))
		e.v(o, e.out, a, e.from(f, in.B, c))
	})
}

// shift shifts by a row, or on NEON, where that takes more instructions, by a constant.
func shift(o, byConstant vop, ext int) translator {
	return simple(r, func(e *emitter, in *Inst, c int) {
		a := e.register(0, e.exact(in.A, c))
		if n, ok := e.known[in.B]; ok && e.arm != nil {
			e.shiftI(byConstant, ext, e.out, a, byte(min(n, 32)))
			return
		}
		e.v(o, e.out, a, e.exact(in.B, c))
	})
}

// from is the operand of chunk c of a row.
func (e *emitter) from(f file, row int32, c int) any {
	if f == r {
		return e.exact(row, c)
	}
	return e.at(f, row, c)
}

// unary computes in place on a vector; register 1 is free.
func unary(f func(e *emitter, v int)) translator {
	return over(r, func(e *emitter, in *Inst, c int) {
		e.v(vmovups, 0, 0, e.exact(in.A, c))
		f(e, 0)
	})
}

func move(e *emitter, in *Inst, c int) { e.v(vmovups, e.out, 0, e.exact(in.A, c)) }

func mad(e *emitter, in *Inst, c int) {
	a := e.register(0, e.exact(in.A, c))
	e.v(vpmulld, 0, a, e.exact(in.B, c))
	e.v(vpaddd, e.out, 0, e.exact(in.C, c))
}

// lane is lane l of a 32-bit row.
func (e *emitter) lane(row int32, l int) mem { return at(rR, int(row)*128-e.biasR+4*l) }

// wide is mul.wide and mad.wide of 32-bit factors. Rows of the two files cannot overlap, so chunks are independent.
func wide(signed, add bool) translator {
	ext, mul := vpmovzxdq, vpmuludq
	if signed {
		ext, mul = vpmovsxdq, vpmuldq
	}
	return over(q, func(e *emitter, in *Inst, c int) {
		if e.arm != nil {
			e.wideNEON(in, c, signed, add)
			return
		}
		e.v(ext, 0, 0, e.half(in.A, c))
		e.v(ext, 1, 0, e.half(in.B, c))
		e.v(mul, 0, 0, 1)
		if add {
			e.v(vpaddq, 0, 0, e.q(in.C, c))
		}
	})
}

// shiftQ shifts 64-bit rows by 32-bit ones; past the width both give 0.
func shiftQ(o vop) translator {
	return over(q, func(e *emitter, in *Inst, c int) {
		e.v(vpmovzxdq, 1, 0, e.half(in.B, c))
		e.v(vmovups, 0, 0, e.q(in.A, c))
		e.v(o, 0, 0, 1)
	})
}

func extendQ(ext vop) translator {
	return over(q, func(e *emitter, in *Inst, c int) { e.v(ext, 0, 0, e.half(in.A, c)) })
}

func truncateQ(e *emitter, in *Inst, c int) {
	if e.wide {
		e.v(vmovups, 0, 0, e.vector32(func(i int) uint32 { return uint32(2 * i) }))
		e.v(vmovups, 1, 0, e.q(in.A, 2*c))
		e.v(vpermi2d, 0, 1, e.q(in.A, 2*c+1))
		return
	}
	if e.arm != nil {
		e.truncateNEON(in, c)
		return
	}
	e.v(vmovups, 0, 0, e.q(in.A, 2*c))
	e.vi(vshufps, 0, 0, e.q(in.A, 2*c+1), 0x88) // 0 1 4 5 2 3 6 7
	e.vi(vpermq, 0, 0, 0, 0xd8)
}

// predicates is an instruction on predicates, words with one bit per lane.
func predicates(f func(e *emitter, b mem)) translator {
	return whole(func(e *emitter, in *Inst) {
		e.mov32(rax, e.p(in.A))
		f(e, e.p(in.B))
		e.toP(in.D, rax)
	})
}

// choice is selp.
func choice(f file) translator {
	return simple(f, func(e *emitter, in *Inst, c int) {
		if e.wide {
			if e.run.active {
				e.x.kmovwM(2, e.p(in.C).plus(2*c))
			} else {
				e.x.kmovdM(1, e.p(in.C))
				e.x.kshiftr(2, 1, byte(c*e.lanesOf(f)))
			}
			e.v(vmovups, 0, 0, e.from(f, in.B, c))
			e.vk(f.move, 0, 0, e.from(f, in.A, c), 2)
			if e.out != 0 {
				e.v(vmovups, e.out, 0, 0)
			}
			return
		}
		if c == 0 {
			e.mov32(rax, e.p(in.C))
		}
		e.v(vmovups, 0, 0, e.from(f, in.B, c))
		e.lanes(f, 4, c, rax)
		e.vi(vblendvps, 0, 0, e.at(f, in.A, c), 4<<4)
	})
}

func (e *emitter) loadParam(in *Inst) {
	e.masks()
	e.mov64(rax, e.field(unsafe.Offsetof(ctx.Params)))
	f := r
	if in.Size == 8 {
		f = q
	}
	e.v(f.broadcast, 0, 0, at(rax, int(in.Imm)))
	for c := range e.chunksOf(f) {
		e.write(f, in.Vec[0], c, 0, 2)
	}
}
