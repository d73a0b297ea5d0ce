package jit

import "unsafe"

// Asynchronous copies read their source when they are issued, and their data appear in shared memory when they are
// waited for. Pending copies are kept where the interpreter keeps them, one entry per instruction of a warp.

const copyBytes = 16

// copyAsync is cp.async. A lane copies all of its bytes, or zeros; copies of a part are left to the interpreter.
// Vec[0] is the destination's offset.
func (e *emitter) copyAsync(in *Inst) {
	some := func() { e.copySome(in) }
	if !e.wide || in.Size != copyBytes {
		some()
	} else {
		e.partial(func() { e.copyAll(in) }, some)
	}
}

// copySome is cp.async lane by lane.
func (e *emitter) copySome(in *Inst) {
	l, size := e.layout, in.Size
	e.sharedSome(in.D, int64(in.Vec[0]), size, e.running())
	// rdx: lanes that read their source.
	bail := e.bail()
	e.alu32(aluXor, rdx, rdx)
	e.eachLane(e.running(), func() {
		skip := e.newLabel()
		e.mov32(rax, e.laneR(in.B))
		e.test32(rax, rax)
		e.jcc(ccE, skip)
		e.alu32i(aluCmp, rax, int32(size))
		e.jcc(ccNE, bail)
		e.setBit(rdx, rLane)
		e.place(skip)
	})
	full := e.field(unsafe.Offsetof(ctx.scratch))
	e.put32(full, rdx)
	none, end := e.newLabel(), e.newLabel()
	e.test32(rdx, rdx)
	e.jcc(ccE, none)
	e.locateSome(in.A, size, rdx)
	e.place(none)
	e.newCopy(in)
	if e.m {
		e.put32(at(rcx, l.Mask), rEM)
	} else {
		e.movi32(at(rcx, l.Mask), -1)
	}
	e.eachLane(e.running(), func() {
		e.mov32(rax, e.laneR(in.D))
		e.alu32i(aluAdd, rax, int32(uint32(in.Vec[0])-sharedBase))
		e.put32(indexed(rcx, rLane, 2, l.Offsets), rax)
		e.mov32(rax, rLane)
		e.shl32(rax, 4)
		e.alu32(aluXor, r12, r12)
		e.put64(indexed(rcx, rax, 0, l.Blocks), r12)
		e.put64(indexed(rcx, rax, 0, l.Blocks+8), r12)
	})
	e.mov32(r13, full)
	e.test32(r13, r13)
	e.jcc(ccE, end)
	e.eachLane(r13, func() {
		e.mov64(rax, e.laneQ(in.A))
		e.alu64(aluAdd, rax, rBase)
		e.mov32(r13, rLane)
		e.shl32(r13, 4)
		if size == 4 {
			e.mov32(r12, at(rax, 0))
			e.put32(indexed(rcx, r13, 0, l.Blocks), r12)
			return
		}
		for i := 0; i < size; i += 8 {
			e.mov64(r12, at(rax, i))
			e.put64(indexed(rcx, r13, 0, l.Blocks+i), r12)
		}
	})
	e.place(end)
}

// newCopy puts the address of a new copy into rcx and fills in what does not depend on lanes; rax is clobbered.
func (e *emitter) newCopy(in *Inst) {
	l := e.layout
	e.mov64(rcx, e.field(unsafe.Offsetof(ctx.CopyCount)))
	e.alu64(aluCmp, rcx, e.field(unsafe.Offsetof(ctx.CopySpace)))
	e.jcc(ccAE, e.bail())
	e.imul64i(rcx, rcx, int32(l.Stride))
	e.alu64(aluAdd, rcx, e.field(unsafe.Offsetof(ctx.Copies)))
	e.inc64(e.field(unsafe.Offsetof(ctx.CopyCount)))
	e.movi32(at(rcx, l.Size), int32(in.Size))
	e.mov64(rax, e.field(unsafe.Offsetof(ctx.Group)))
	e.put64(at(rcx, l.Group), rax)
}

// copyAll is cp.async of 16 bytes by all lanes (AVX-512).
func (e *emitter) copyAll(in *Inst) {
	l := e.layout
	e.sharedAll(in.D, int64(in.Vec[0]), copyBytes) // offsets in 16, 17
	e.v(vmovups, 24, 0, 16)
	e.v(vmovups, 25, 0, 17)
	size, constant := e.known[in.B]
	all := constant && size == copyBytes
	if all {
		e.locateAll(in.A, copyBytes)
	} else {
		e.locateGiven(in)
	}

	e.newCopy(in)
	e.movi32(at(rcx, l.Mask), -1)
	e.v(vstoreups, 24, 0, at(rcx, l.Offsets))
	e.v(vstoreups, 25, 0, at(rcx, l.Offsets+64))

	some, scattered, done := e.newLabel(), e.newLabel(), e.newLabel()
	if !all {
		e.alu32i(aluCmp, r13, -1)
		e.jcc(ccNE, some)
	}
	e.quads(true, copyBytes, scattered)
	source := func(lane int) mem { return at(rQ, int(in.A)*256-e.biasQ+8*lane) }
	for quad := range 8 {
		e.mov64(rax, source(4*quad))
		e.v(vmovups, 0, 0, indexed(rax, rBase, 0, 0))
		e.v(vstoreups, 0, 0, at(rcx, l.Blocks+64*quad))
	}
	e.place(done)
	e.cold = append(e.cold, func() {
		e.place(scattered)
		for lane := range 32 {
			e.mov64(rax, source(lane))
			e.vw(vmovups, w128, 0, 0, indexed(rax, rBase, 0, 0), nil)
			e.vw(vstoreups, w128, 0, 0, at(rcx, l.Blocks+16*lane), nil)
		}
		e.jmp(done)
		if all {
			return
		}
		e.place(some)
		for i := range 8 {
			e.v(vpxor, 0, 0, 0)
			e.v(vstoreups, 0, 0, at(rcx, l.Blocks+64*i))
		}
		e.test32(r13, r13)
		e.jcc(ccE, done)
		e.eachLane(r13, func() {
			e.mov64(rax, e.laneQ(in.A))
			e.vw(vmovups, w128, 0, 0, indexed(rax, rBase, 0, 0), nil)
			e.mov32(rax, rLane)
			e.shl32(rax, 4)
			e.vw(vstoreups, w128, 0, 0, indexed(rcx, rax, 0, l.Blocks), nil)
		})
		e.jmp(done)
	})
}

// locateGiven is locateAll for the lanes that read everything, whose mask goes to r13; the others must read nothing,
// and have offset 0.
func (e *emitter) locateGiven(in *Inst) {
	e.splat32(4, copyBytes)
	e.v(vpxor, 5, 5, 5)
	for c := range 2 {
		e.v(vmovups, 6, 0, e.r(in.B, c))
		e.compare(vpcmpud, 1+c, 6, 4, 0)
		e.compare(vpcmpud, 3+c, 6, 5, 0)
	}
	e.x.kunpck(1, 2, 1)
	e.x.kunpck(3, 4, 3)
	e.x.kget(r13, 1)
	e.x.kget(rax, 3)
	e.alu32(aluOr, rax, r13)
	e.alu32i(aluCmp, rax, -1)
	e.jcc(ccNE, e.bail())
	s := e.site()
	e.v(vbroadcastq, 0, 0, s)
	e.v(vbroadcastq, 1, 0, s.plus(8))
	for c := range 4 {
		e.x.kshiftr(2, 1, byte(8*c))
		e.v(vmovups, 16+c, 0, e.q(in.A, c))
		e.x.evex(vpsubq, w512, 16+c, 16+c, 0, mod{k: 2, zero: true}, 0)
	}
	none := e.newLabel()
	e.test32(r13, r13)
	e.jcc(ccE, none)
	e.checkOffsets(copyBytes)
	e.place(none)
	e.mov64(rBase, s.plus(16))
}

// commit closes a group. All living lanes must do so together, as they do if all 32 run.
func (e *emitter) commit() { e.inc64(e.field(unsafe.Offsetof(ctx.Group))) }

// waitGroup makes the copies of all groups but the Imm most recent visible; Imm < 0: all copies.
func (e *emitter) waitGroup(in *Inst) {
	l := e.layout
	const left, limit, from = r12, r13, rdx
	// The group from which on copies stay.
	e.mov64(limit, e.field(unsafe.Offsetof(ctx.Group)))
	if in.Imm < 0 {
		e.alu64i(aluAdd, limit, 1)
	} else {
		e.alu64i(aluSub, limit, int32(in.Imm))
	}
	e.mov64(from, e.field(unsafe.Offsetof(ctx.Copies)))
	e.mov64(left, e.field(unsafe.Offsetof(ctx.CopyCount)))
	top, rest, end := e.newLabel(), e.newLabel(), e.newLabel()
	e.place(top)
	e.test64(left, left)
	e.jcc(ccE, rest)
	e.mov64(rax, at(from, l.Group))
	e.alu64(aluCmp, rax, limit)
	e.jcc(ccGE, rest)
	e.call(e.sub("arrive", func() { e.arrive(from) }))
	e.alu64i(aluAdd, from, int32(l.Stride))
	e.alu64i(aluSub, left, 1)
	e.jmp(top)
	e.place(rest)
	e.alu64(aluCmp, left, e.field(unsafe.Offsetof(ctx.CopyCount)))
	e.jcc(ccE, end)
	e.put64(e.field(unsafe.Offsetof(ctx.CopyCount)), left)
	// The copies that stay move to the front.
	e.call(e.sub("rest", func() {
		e.imul64i(left, left, int32(l.Stride/8))
		e.mov64(rbp, e.field(unsafe.Offsetof(ctx.Copies)))
		e.forward(rbp, from, left)
	}))
	e.place(end)
}

// arrive is a subroutine: it stores the copy at a register. rax, rcx, rbp, r14 and some vector registers are clobbered.
func (e *emitter) arrive(from int) {
	l := e.layout
	some, small, done := e.newLabel(), e.newLabel(), e.newLabel()
	e.mov32(rcx, at(from, l.Mask))
	e.mov32(rax, at(from, l.Size))
	e.alu32i(aluCmp, rax, copyBytes)
	e.jcc(ccNE, small)
	e.alu32i(aluCmp, rcx, -1)
	e.jcc(ccNE, some)
	if e.wide {
		scattered := e.newLabel()
		e.v(vmovups, 16, 0, at(from, l.Offsets))
		e.v(vmovups, 17, 0, at(from, l.Offsets+64))
		e.quads(false, copyBytes, scattered)
		for quad := range 8 {
			e.mov32(rax, at(from, l.Offsets+16*quad))
			e.v(vmovups, 0, 0, at(from, l.Blocks+64*quad))
			e.v(vstoreups, 0, 0, indexed(rShared, rax, 0, 0))
		}
		e.jmp(done)
		e.place(scattered)
	}
	for lane := range 32 {
		e.mov32(rax, at(from, l.Offsets+4*lane))
		e.vw(vmovups, w128, 0, 0, at(from, l.Blocks+16*lane), nil)
		e.vw(vstoreups, w128, 0, 0, indexed(rShared, rax, 0, 0), nil)
	}
	e.jmp(done)
	e.place(some)
	e.test32(rcx, rcx)
	e.jcc(ccE, done)
	e.eachLane(rcx, func() {
		e.mov32(rcx, rLane)
		e.shl32(rcx, 4)
		e.vw(vmovups, w128, 0, 0, indexed(from, rcx, 0, l.Blocks), nil)
		e.mov32(rax, indexed(from, rLane, 2, l.Offsets))
		e.vw(vstoreups, w128, 0, 0, indexed(rShared, rax, 0, 0), nil)
	})
	e.jmp(done)
	e.place(small)
	e.test32(rcx, rcx)
	e.jcc(ccE, done)
	e.eachLane(rcx, func() {
		four, next := e.newLabel(), e.newLabel()
		e.mov32(rax, at(from, l.Size))
		e.mov32(rcx, rLane)
		e.shl32(rcx, 4)
		e.mov64(rcx, indexed(from, rcx, 0, l.Blocks))
		e.alu32i(aluCmp, rax, 4)
		e.mov32(rax, indexed(from, rLane, 2, l.Offsets))
		e.jcc(ccE, four)
		e.put64(indexed(rShared, rax, 0, 0), rcx)
		e.jmp(next)
		e.place(four)
		e.put32(indexed(rShared, rax, 0, 0), rcx)
		e.place(next)
	})
	e.place(done)
}
