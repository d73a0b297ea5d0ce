//go:build linux && amd64

package jit

import "unsafe"

// translator emits an instruction, or returns false and emits nothing.
type translator func(e *emitter, in *Inst) bool

// native has the native forms of instructions, but for memory's. Every one computes bit for bit what the interpreter does.
var native = nativeForms()

func nativeForms() map[string]translator {
	t := map[string]translator{}
	each := func(f translator, ops ...string) {
		for _, op := range ops {
			t[op] = f
		}
	}

	// 32-bit integers
	each(elementwise(vpaddd), "add.u32", "add.s32")
	each(elementwise(vpsubd), "sub.u32", "sub.s32")
	t["mul.lo.s32"] = elementwise(vpmulld)
	t["and.b32"] = elementwise(vpand)
	t["or.b32"] = elementwise(vpor)
	t["xor.b32"] = elementwise(vpxor)
	t["shl.b32"] = elementwise(vpsllvd)
	t["shr.u32"] = elementwise(vpsrlvd)
	t["shr.s32"] = elementwise(vpsravd)
	t["min.s32"] = elementwise(vpminsd)
	t["max.s32"] = elementwise(vpmaxsd)
	t["min.u32"] = elementwise(vpminud)
	t["not.b32"] = unary(func(e *emitter, v int) { e.splat32(1, 0xffffffff); e.v(vpxor, v, v, 1) })
	t["abs.s32"] = unary(func(e *emitter, v int) { e.v(vpabsd, v, 0, v) })
	t["neg.s32"] = unary(func(e *emitter, v int) { e.v(vpxor, 1, 1, 1); e.v(vpsubd, v, 1, v) })
	each(mad, "mad.lo.u32", "mad.lo.s32")
	t["div.u32"] = divide(false)
	t["rem.u32"] = divide(true)
	t["prmt.b32"] = permute
	t["lop3.b32"] = logic3
	t["bfe.u32"] = extractUnsigned
	t["bfe.s32"] = extractSigned

	// moves and predicates
	each(unary(func(*emitter, int) {}), "mov.b16", "mov.b32", "mov.u32", "mov.f32")
	each(moveQ, "mov.b64", "mov.f64", "cvta.to.global.u64")
	t["mov.pred"] = predicates(func(*emitter, mem) {})
	t["and.pred"] = predicates(func(e *emitter, b mem) { e.alu32(aluAnd, rax, b) })
	t["or.pred"] = predicates(func(e *emitter, b mem) { e.alu32(aluOr, rax, b) })
	t["xor.pred"] = predicates(func(e *emitter, b mem) { e.alu32(aluXor, rax, b) })
	t["not.pred"] = predicates(func(e *emitter, _ mem) { e.not32(rax) })
	each(selectR, "selp.b32", "selp.f32")
	each(selectQ, "selp.b64", "selp.f64")

	// 64-bit integers
	t["add.s64"] = binaryQ(vpaddq)
	t["sub.s64"] = binaryQ(vpsubq)
	t["and.b64"] = binaryQ(vpand)
	t["or.b64"] = binaryQ(vpor)
	t["xor.b64"] = binaryQ(vpxor)
	t["mul.wide.u32"] = wide(false, false)
	t["mad.wide.u32"] = wide(false, true)
	t["mad.wide.s32"] = wide(true, true)
	t["shl.b64"] = shiftQ(vpsllvq)
	t["shr.u64"] = shiftQ(vpsrlvq)
	t["cvt.u64.u32"] = extendQ(vpmovzxdq)
	t["cvt.s64.s32"] = extendQ(vpmovsxdq)
	t["cvt.u32.u64"] = truncateQ

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
	t["cvt.u32.u8"] = zero(0xff)
	t["cvt.s32.s16"] = sign(16)
	t["cvt.s32.s8"] = sign(8)

	floatForms(t)
	narrowForms(t)
	compareForms(t)
	matrixForms(t)
	return t
}

// shiftI emits a shift by an immediate; in these the destination is the second register field.
func (e *emitter) shiftI(o vop, ext, dst, src int, n byte) { e.vi(o, ext, dst, src, n) }

// begin loads the masks that results of this instruction are written under.
func (e *emitter) begin() { e.masks() }

func elementwise(o vop) translator {
	return func(e *emitter, in *Inst) bool {
		e.begin()
		for c := range e.chunks() {
			e.v(vmovups, 0, 0, e.r(in.A, c))
			e.v(o, 0, 0, e.r(in.B, c))
			e.toR(in.D, c, 0, 2)
		}
		return true
	}
}

// unary computes in place on a vector; register 1 is free.
func unary(f func(e *emitter, v int)) translator {
	return func(e *emitter, in *Inst) bool {
		e.begin()
		for c := range e.chunks() {
			e.v(vmovups, 0, 0, e.r(in.A, c))
			f(e, 0)
			e.toR(in.D, c, 0, 2)
		}
		return true
	}
}

func mad(e *emitter, in *Inst) bool {
	e.begin()
	for c := range e.chunks() {
		e.v(vmovups, 0, 0, e.r(in.A, c))
		e.v(vpmulld, 0, 0, e.r(in.B, c))
		e.v(vpaddd, 0, 0, e.r(in.C, c))
		e.toR(in.D, c, 0, 2)
	}
	return true
}

// lane is lane l of a 32-bit row.
func (e *emitter) lane(row int32, l int) mem { return at(rR, int(row)*128-biasR+4*l) }

func moveQ(e *emitter, in *Inst) bool {
	e.begin()
	for c := range 2 * e.chunks() {
		e.v(vmovups, 0, 0, e.q(in.A, c))
		e.toQ(in.D, c, 0, 2)
	}
	return true
}

func binaryQ(o vop) translator {
	return func(e *emitter, in *Inst) bool {
		e.begin()
		for c := range 2 * e.chunks() {
			e.v(vmovups, 0, 0, e.q(in.A, c))
			e.v(o, 0, 0, e.q(in.B, c))
			e.toQ(in.D, c, 0, 2)
		}
		return true
	}
}

// wide is mul.wide and mad.wide of 32-bit factors. Where rows of the two files cannot overlap, chunks are independent.
func wide(signed, add bool) translator {
	ext, mul := vpmovzxdq, vpmuludq
	if signed {
		ext, mul = vpmovsxdq, vpmuldq
	}
	return func(e *emitter, in *Inst) bool {
		e.begin()
		for c := range 2 * e.chunks() {
			e.v(ext, 0, 0, e.half(in.A, c))
			e.v(ext, 1, 0, e.half(in.B, c))
			e.v(mul, 0, 0, 1)
			if add {
				e.v(vpaddq, 0, 0, e.q(in.C, c))
			}
			e.toQ(in.D, c, 0, 2)
		}
		return true
	}
}

// shiftQ shifts 64-bit rows by 32-bit ones; past the width both give 0.
func shiftQ(o vop) translator {
	return func(e *emitter, in *Inst) bool {
		e.begin()
		for c := range 2 * e.chunks() {
			e.v(vpmovzxdq, 1, 0, e.half(in.B, c))
			e.v(vmovups, 0, 0, e.q(in.A, c))
			e.v(o, 0, 0, 1)
			e.toQ(in.D, c, 0, 2)
		}
		return true
	}
}

func extendQ(ext vop) translator {
	return func(e *emitter, in *Inst) bool {
		e.begin()
		for c := range 2 * e.chunks() {
			e.v(ext, 0, 0, e.half(in.A, c))
			e.toQ(in.D, c, 0, 2)
		}
		return true
	}
}

func truncateQ(e *emitter, in *Inst) bool {
	e.begin()
	even := e.vector32(func(i int) uint32 { return uint32(2*i) & uint32(2*e.bytes()/4-1) })
	for c := range e.chunks() {
		if e.wide {
			e.v(vmovups, 0, 0, even)
			e.v(vmovups, 1, 0, e.q(in.A, 2*c))
			e.v(vpermi2d, 0, 1, e.q(in.A, 2*c+1))
		} else {
			e.v(vmovups, 0, 0, e.q(in.A, 2*c))
			e.vi(vshufps, 0, 0, e.q(in.A, 2*c+1), 0x88) // 0 1 4 5 2 3 6 7
			e.vi(vpermq, 0, 0, 0, 0xd8)
		}
		e.toR(in.D, c, 0, 2)
	}
	return true
}

// predicates are words with a bit a lane.
func predicates(f func(e *emitter, b mem)) translator {
	return func(e *emitter, in *Inst) bool {
		e.mov32(rax, e.p(in.A))
		f(e, e.p(in.B))
		e.toP(in.D, rax)
		return true
	}
}

func selectR(e *emitter, in *Inst) bool {
	e.begin()
	if e.wide {
		e.kmovdM(1, e.p(in.C))
		e.kshiftr(2, 1, 16)
		for c := range 2 {
			e.v(vmovups, 0, 0, e.r(in.B, c))
			e.vk(vmovups, 0, 0, e.r(in.A, c), 1+c)
			e.toR(in.D, c, 0, 2)
		}
		return true
	}
	e.mov32(rax, e.p(in.C))
	for c := range 4 {
		e.lanes32(4, c, rax)
		e.v(vmovups, 0, 0, e.r(in.B, c))
		e.vi(vblendvps, 0, 0, e.r(in.A, c), 4<<4)
		e.toR(in.D, c, 0, 2)
	}
	return true
}

func selectQ(e *emitter, in *Inst) bool {
	e.begin()
	if e.wide {
		e.kmovdM(1, e.p(in.C))
		for c := range 4 {
			e.kshiftr(2, 1, byte(8*c))
			e.v(vmovups, 0, 0, e.q(in.B, c))
			e.vk(vmovupd, 0, 0, e.q(in.A, c), 2)
			e.toQ(in.D, c, 0, 2)
		}
		return true
	}
	e.mov32(rax, e.p(in.C))
	for c := range 8 {
		e.lanes64(4, c, rax)
		e.v(vmovups, 0, 0, e.q(in.B, c))
		e.vi(vblendvps, 0, 0, e.q(in.A, c), 4<<4)
		e.toQ(in.D, c, 0, 2)
	}
	return true
}

func (e *emitter) loadParam(in *Inst) {
	e.begin()
	e.mov64(rax, e.field(unsafe.Offsetof(ctx.Params)))
	m := at(rax, int(in.Imm))
	if in.Size == 8 {
		e.v(vbroadcastq, 0, 0, m)
		for c := range 2 * e.chunks() {
			e.toQ(in.Vec[0], c, 0, 2)
		}
		return
	}
	e.v(vbroadcast, 0, 0, m)
	for c := range e.chunks() {
		e.toR(in.Vec[0], c, 0, 2)
	}
}
