//go:build linux && amd64

package jit

import "unsafe"

// translator emits an instruction, or returns false and emits nothing.
type translator func(e *emitter, in *Inst) bool

// arithmetic has the instructions that work lane by lane. Every one computes bit for bit what the interpreter does.
var arithmetic = rules()

func rules() map[string]translator {
	t := map[string]translator{}
	each := func(f func(op string) translator, ops ...string) {
		for _, op := range ops {
			t[op] = f(op)
		}
	}
	same := func(f translator) func(string) translator { return func(string) translator { return f } }

	// 32-bit integers
	each(same(elementwise(vpaddd)), "add.u32", "add.s32")
	each(same(elementwise(vpsubd)), "sub.u32", "sub.s32")
	each(same(elementwise(vpmulld)), "mul.lo.u32", "mul.lo.s32")
	each(same(elementwise(vpand)), "and.b32", "and.b16")
	each(same(elementwise(vpor)), "or.b32", "or.b16")
	each(same(elementwise(vpxor)), "xor.b32", "xor.b16")
	each(same(elementwise(vpsllvd)), "shl.b32")
	each(same(elementwise(vpsrlvd)), "shr.u32", "shr.b32", "shr.u16")
	each(same(elementwise(vpsravd)), "shr.s32")
	each(same(elementwise(vpminsd)), "min.s32")
	each(same(elementwise(vpmaxsd)), "max.s32")
	each(same(elementwise(vpminud)), "min.u32", "min.u16")
	each(same(elementwise(vpmaxud)), "max.u32", "max.u16")
	each(same(low16(vpaddd)), "add.u16", "add.s16")
	each(same(low16(vpsubd)), "sub.u16", "sub.s16")
	each(same(low16(vpmulld)), "mul.lo.u16", "mul.lo.s16")
	each(same(low16(vpsllvd)), "shl.b16")
	t["not.b32"] = unary(func(e *emitter, v int) { e.splat32(1, 0xffffffff); e.v(vpxor, v, v, 1) })
	t["not.b16"] = unary(func(e *emitter, v int) { e.splat32(1, 0xffff); e.v(vpxor, v, v, 1) })
	t["abs.s32"] = unary(func(e *emitter, v int) { e.v(vpabsd, v, 0, v) })
	t["neg.s32"] = unary(func(e *emitter, v int) { e.v(vpxor, 1, 1, 1); e.v(vpsubd, v, 1, v) })
	each(same(mad), "mad.lo.u32", "mad.lo.s32")
	t["mul.wide.u16"] = elementwise(vpmulld)
	each(same(divide), "div.u32", "rem.u32")
	t["prmt.b32"] = permute
	t["lop3.b32"] = logic3
	t["bfe.u32"] = extractUnsigned
	t["bfe.s32"] = extractSigned

	// moves
	each(same(unary(func(*emitter, int) {})), "mov.b16", "mov.b32", "mov.u32", "mov.s32", "mov.f32")
	each(same(moveQ), "mov.b64", "mov.u64", "mov.s64", "mov.f64", "cvta.to.global.u64")
	each(func(op string) translator { return predicates(op) }, "mov.pred", "and.pred", "or.pred", "xor.pred", "not.pred")
	each(same(selectR), "selp.b16", "selp.b32", "selp.u32", "selp.s32", "selp.f32")
	each(same(selectQ), "selp.b64", "selp.u64", "selp.s64", "selp.f64")

	// 64-bit integers
	each(same(binaryQ(vpaddq)), "add.u64", "add.s64")
	each(same(binaryQ(vpsubq)), "sub.u64", "sub.s64")
	each(same(binaryQ(vpand)), "and.b64")
	each(same(binaryQ(vpor)), "or.b64")
	each(same(binaryQ(vpxor)), "xor.b64")
	each(func(op string) translator { return wide(op[len(op)-3] == 's', op[:3] == "mad") },
		"mul.wide.u32", "mul.wide.s32", "mad.wide.u32", "mad.wide.s32")
	each(same(shiftQ(vpsllvq)), "shl.b64")
	each(same(shiftQ(vpsrlvq)), "shr.u64", "shr.b64")
	each(func(op string) translator { return extendQ(op[len(op)-3] == 's') },
		"cvt.u64.u32", "cvt.s64.u32", "cvt.u64.s32", "cvt.s64.s32")
	each(same(truncateQ), "cvt.u32.u64", "cvt.s32.u64", "cvt.u32.s64", "cvt.s32.s64")

	// narrow integers
	zero := func(mask uint32) translator {
		return unary(func(e *emitter, v int) { e.splat32(1, mask); e.v(vpand, v, v, 1) })
	}
	sign := func(bits byte, mask uint32) translator {
		return unary(func(e *emitter, v int) {
			e.shiftI(vpslldI, 6, v, v, 32-bits)
			e.shiftI(vpsradI, 4, v, v, 32-bits)
			if mask != 0 {
				e.splat32(1, mask)
				e.v(vpand, v, v, 1)
			}
		})
	}
	each(same(zero(0xffff)), "cvt.u32.u16", "cvt.s32.u16", "cvt.u16.u32", "cvt.u16.s32", "cvt.s16.u32", "cvt.s16.s32")
	each(same(zero(0xff)), "cvt.u32.u8", "cvt.s32.u8", "cvt.u16.u8", "cvt.s16.u8", "cvt.u8.u32")
	each(same(sign(16, 0)), "cvt.u32.s16", "cvt.s32.s16")
	each(same(sign(8, 0)), "cvt.u32.s8", "cvt.s32.s8")
	each(same(sign(8, 0xffff)), "cvt.u16.s8", "cvt.s16.s8")

	floatRules(t, each)
	narrowRules(t)
	compareRules(t)
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

// low16 keeps the low 16 bits of a 32-bit operation.
func low16(o vop) translator {
	return func(e *emitter, in *Inst) bool {
		e.begin()
		e.splat32(4, 0xffff)
		for c := range e.chunks() {
			e.v(vmovups, 0, 0, e.r(in.A, c))
			e.v(o, 0, 0, e.r(in.B, c))
			e.v(vpand, 0, 0, 4)
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

func extendQ(signed bool) translator {
	ext := vpmovzxdq
	if signed {
		ext = vpmovsxdq
	}
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
func predicates(op string) translator {
	return func(e *emitter, in *Inst) bool {
		e.mov32(rax, e.p(in.A))
		switch op {
		case "and.pred":
			e.alu32(aluAnd, rax, e.p(in.B))
		case "or.pred":
			e.alu32(aluOr, rax, e.p(in.B))
		case "xor.pred":
			e.alu32(aluXor, rax, e.p(in.B))
		case "not.pred":
			e.not32(rax)
		}
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

func (e *emitter) loadParam(in *Inst) bool {
	e.begin()
	e.mov64(rax, e.field(unsafe.Offsetof(ctx.Params)))
	m := at(rax, int(in.Imm))
	if in.Size == 8 {
		e.v(vbroadcastq, 0, 0, m)
		for c := range 2 * e.chunks() {
			e.toQ(in.Vec[0], c, 0, 2)
		}
		return true
	}
	e.v(vbroadcast, 0, 0, m)
	for c := range e.chunks() {
		e.toR(in.Vec[0], c, 0, 2)
	}
	return true
}
