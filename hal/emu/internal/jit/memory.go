package jit

import (
	"unsafe"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// Registers within a memory instruction: rdx is the difference between the host's addresses and the device's, rbp the
// lanes that a loop has still to visit, r14 its current lane, rax that lane's address.
const (
	rBase = rdx
	rLeft = rbp
	rLane = r14
)

// sharedBase is the address of a block's shared memory.
const sharedBase = 1024

// eachLane loops over the lanes of a mask that is not 0, in ascending order; mask is a register, or -1 for all lanes.
func (e *emitter) eachLane(mask int, body func()) {
	if mask < 0 {
		e.movi32(rLeft, -1)
	} else {
		e.mov32(rLeft, mask)
	}
	top := e.newLabel()
	e.place(top)
	e.tzcnt(rLane, rLeft)
	body()
	e.blsr(rLeft, rLeft)
	e.jcc(ccNE, top)
}

// running is the mask of the instruction's lanes for eachLane.
func (e *emitter) running() int {
	if e.m {
		return rEM
	}
	return -1
}

// partial emits a masked instruction twice: for warps in which all lanes execute it, and for the others.
func (e *emitter) partial(all, some func()) {
	switch {
	case e.masked:
		some()
		return
	case !e.m:
		all()
		return
	}
	few, done := e.newLabel(), e.newLabel()
	e.alu32i(aluCmp, rEM, -1)
	e.jcc(ccNE, few)
	e.m = false
	all()
	e.m = true
	e.place(done)
	pc := e.pc
	e.cold = append(e.cold, func() {
		e.pc, e.m = pc, true
		e.place(few)
		some()
		e.jmp(done)
	})
}

// site returns the operand of the instruction's site.
func (e *emitter) site() mem {
	if e.siteOf[e.pc] < 0 {
		n := int32(0)
		for _, s := range e.siteOf {
			n = max(n, s+1)
		}
		e.siteOf[e.pc] = n
	}
	return at(rSites, int(e.siteOf[e.pc])*int(unsafe.Sizeof(Site{})))
}

// lane operands with the loop's lane.
func (e *emitter) laneR(row int32) mem { return indexed(rR, rLane, 2, int(row)*128-e.biasR) }
func (e *emitter) laneQ(row int32) mem { return indexed(rQ, rLane, 3, int(row)*256-e.biasQ) }

// locateSome checks the addresses of the running lanes against the site, lane by lane.
func (e *emitter) locateSome(row int32, size, mask int) {
	s := e.site()
	e.mov64(r12, s)
	e.mov64(r13, s.plus(8))
	e.checkLanes(mask, size, func() {
		e.mov64(rax, e.laneQ(row))
		e.alu64(aluSub, rax, r12)
	})
	e.mov64(rBase, s.plus(16))
}

// checkLanes bails unless the offsets of the lanes, which offset puts into rax, are aligned and no greater than r13.
func (e *emitter) checkLanes(mask, size int, offset func()) {
	e.alu32(aluXor, rcx, rcx)
	bail := e.bail()
	e.eachLane(mask, func() {
		offset()
		e.alu64(aluOr, rcx, rax)
		e.alu64(aluCmp, rax, r13)
		e.jcc(ccA, bail)
	})
	if size > 1 {
		e.test32i(rcx, int32(size-1))
		e.jcc(ccNE, bail)
	}
}

// locateAll is locateSome for all lanes; with AVX-512 the offsets are left in registers 16–19.
func (e *emitter) locateAll(row int32, size int) {
	if !e.wide {
		e.locateSome(row, size, -1)
		return
	}
	s := e.site()
	e.v(vbroadcastq, 0, 0, s)
	e.v(vbroadcastq, 1, 0, s.plus(8))
	for c := range 4 {
		e.v(vmovups, 16+c, 0, e.q(row, c))
		e.v(vpsubq, 16+c, 16+c, 0)
	}
	e.checkOffsets(size)
	e.mov64(rBase, s.plus(16))
}

// checkOffsets compares the 64-bit offsets in registers 16–19 with the limit in register 1.
func (e *emitter) checkOffsets(size int) {
	e.v(vpmaxuq, 2, 16, 17)
	e.v(vpmaxuq, 3, 18, 19)
	e.v(vpmaxuq, 2, 2, 3)
	e.compare(vpcmpuq, 1, 2, 1, 6)
	second := 1
	if size > 1 {
		e.v(vpor, 2, 16, 17)
		e.v(vpor, 3, 18, 19)
		e.v(vpor, 2, 2, 3)
		e.splat64(3, uint64(size-1))
		e.x.evex(vptestmq, w512, 2, 2, 3, mod{}, 0)
		second = 2
	}
	e.x.kortestb(1, second)
	e.jcc(ccNE, e.bail())
}

// global is ld.global and st.global.
func (e *emitter) global(in *Inst) {
	size := in.Size * len(in.Vec)
	load := in.Def.Does == ptx.Load
	address := func() { e.mov64(rax, e.laneQ(in.A)) }
	some := func() {
		e.locateSome(in.A, size, e.running())
		e.lanewise(in, load, rBase, address)
	}
	if !e.wide || in.Size != 4 {
		some()
		return
	}
	e.partial(func() {
		e.locateAll(in.A, size)
		first := at(rQ, int(in.A)*256-e.biasQ)
		if len(in.Vec) == 1 {
			scattered, done := e.newLabel(), e.newLabel()
			// Neighbouring lanes usually access neighbouring words.
			e.v(vbroadcastq, 20, 0, 16)
			for c := range 4 {
				e.v(vpsubq, 21, 16+c, e.vector64(func(i int) uint64 { return uint64(4 * (8*c + i)) }))
				e.compare(vpcmpq, 1+c, 21, 20, 0)
			}
			e.join(4)
			e.alu32i(aluCmp, rax, -1)
			e.jcc(ccNE, scattered)
			e.mov64(rax, first)
			for c := range 2 {
				if load {
					e.v(vmovups, 0, 0, indexed(rax, rBase, 0, 64*c))
					e.v(vstoreups, 0, 0, e.r(in.Vec[0], c))
				} else {
					e.v(vmovups, 0, 0, e.r(in.Vec[0], c))
					e.v(vstoreups, 0, 0, indexed(rax, rBase, 0, 64*c))
				}
			}
			e.place(done)
			pc := e.pc
			e.cold = append(e.cold, func() {
				e.pc, e.m = pc, false
				e.place(scattered)
				if load {
					for c := range 4 {
						e.v(vmovups, 0, 0, e.q(in.A, c))
						e.x.kones(1)
						e.gather(vgatherqd, w512, 1+c, rBase, 0, 1, 0)
					}
					for c := range 2 {
						e.joinHalves(1+2*c, 2+2*c)
						e.v(vstoreups, 1+2*c, 0, e.r(in.Vec[0], c))
					}
				} else {
					e.lanewise(in, load, rBase, address)
				}
				e.jmp(done)
			})
			return
		}
		e.inQuads(in, load, true, rBase, func(r, l int) { e.mov64(r, first.plus(8*l)) })
	}, some)
}

// gather emits vgather… d, [base + index·2^scale] under mask k, which it clears.
func (e *emitter) gather(o vop, w width, d, base, index, k int, scale uint8) {
	e.x.evex(o, w, d, 0, mem{base: int8(base), index: int8(index), scale: scale, vector: true}, mod{k: k}, 0)
}

// lanewise moves the elements of the running lanes one lane at a time; address puts the lane's into rax.
func (e *emitter) lanewise(in *Inst, load bool, base int, address func()) {
	wide := in.Size == 8
	signed := in.Def.Args[0].Type == "s8"
	e.eachLane(e.running(), func() {
		address()
		for j, row := range in.Vec {
			m := indexed(rax, base, 0, j*in.Size)
			switch {
			case load && wide:
				e.mov64(rcx, m)
				e.put64(e.laneQ(row), rcx)
			case load:
				switch {
				case in.Size == 4:
					e.mov32(rcx, m)
				case in.Size == 2:
					e.movzx16(rcx, m)
				case signed:
					e.movsx8(rcx, m)
					e.movzx16(rcx, rcx)
				default:
					e.movzx8(rcx, m)
				}
				e.put32(e.laneR(row), rcx)
			case wide:
				e.mov64(rcx, e.laneQ(row))
				e.put64(m, rcx)
			default:
				e.mov32(rcx, e.laneR(row))
				switch in.Size {
				case 4:
					e.put32(m, rcx)
				case 2:
					e.put16(m, rcx)
				default:
					e.put8(m, rcx)
				}
			}
		}
	})
}

// transpose4 transposes the words of registers 0–3 in groups of four lanes; 4–7 are clobbered.
func (e *emitter) transpose4() {
	e.v(vunpcklps, 4, 0, 1) // x0 x1 y0 y1
	e.v(vunpckhps, 5, 0, 1) // z0 z1 w0 w1
	e.v(vunpcklps, 6, 2, 3)
	e.v(vunpckhps, 7, 2, 3)
	e.v(vunpcklpd, 0, 4, 6)
	e.v(vunpckhpd, 1, 4, 6)
	e.v(vunpcklpd, 2, 5, 7)
	e.v(vunpckhpd, 3, 5, 7)
}

// sharedLimit puts the last offset at which size bytes fit into r13, or branches.
func (e *emitter) sharedLimit(size int, fail label) {
	e.mov64(r13, e.field(unsafe.Offsetof(ctx.SharedBytes)))
	e.alu64i(aluSub, r13, int32(size))
	e.jcc(ccB, fail)
}

// sharedSome checks the running lanes' shared addresses row+imm, lane by lane.
func (e *emitter) sharedSome(row int32, imm int64, size, mask int) {
	e.sharedLimit(size, e.bail())
	e.checkLanes(mask, size, func() {
		e.mov32(rax, e.laneR(row))
		e.alu32i(aluAdd, rax, int32(uint32(imm)-sharedBase))
	})
}

// sharedAll checks all lanes' shared addresses and leaves the offsets in registers 16 and 17 and in the scratch
// memory at r14 (AVX-512).
func (e *emitter) sharedAll(row int32, imm int64, size int) mem {
	e.sharedOffsets(row, imm, size, e.bail())
	s := e.scratch()
	for c := range 2 {
		e.v(vstoreups, 16+c, 0, s.plus(64*c))
	}
	return s
}

// sharedOffsets leaves all lanes' offsets in registers 16 and 17, or branches unless size bytes may be accessed there.
func (e *emitter) sharedOffsets(row int32, imm int64, size int, fail label) {
	e.splat32(0, uint32(imm)-sharedBase)
	for c := range 2 {
		e.v(vmovups, 16+c, 0, e.r(row, c))
		e.v(vpaddd, 16+c, 16+c, 0)
	}
	e.v(vpmaxud, 2, 16, 17)
	e.v(vpor, 3, 16, 17)
	e.checkShared(2, 3, size, size, fail)
}

// checkShared branches unless limit bytes of shared memory follow the greatest offset of each lane, and offsets, of
// which another register has all bits, are aligned to size.
func (e *emitter) checkShared(greatest, bits, limit, size int, fail label) {
	e.sharedLimit(limit, fail)
	e.x.evex(vop{2, 1, 0x7c, 0, 4}, w512, 1, 0, r13, mod{}, 0) // vpbroadcastd from r13
	e.compare(vpcmpud, 1, greatest, 1, 6)
	second := 1
	if size > 1 {
		e.splat32(4, uint32(size-1))
		e.x.evex(vptestmd, w512, 2, bits, 4, mod{}, 0)
		second = 2
	}
	e.x.kortest(1, second)
	e.jcc(ccNE, fail)
}

// scratch returns memory of the context for one instruction's use, aligned to 64 bytes; its address goes to r14.
func (e *emitter) scratch() mem {
	e.lea(r14, e.field(unsafe.Offsetof(ctx.scratch)).plus(63))
	e.alu64i(aluAnd, r14, -64)
	return at(r14, 0)
}

// shared is ld.shared and st.shared.
func (e *emitter) shared(in *Inst) {
	size := in.Size * len(in.Vec)
	load := in.Def.Does == ptx.Load
	some := func() {
		e.sharedSome(in.A, in.Imm, size, e.running())
		e.lanewise(in, load, rShared, func() {
			e.mov32(rax, e.laneR(in.A))
			e.alu32i(aluAdd, rax, int32(uint32(in.Imm)-sharedBase))
		})
	}
	if !e.wide || in.Size != 4 {
		some()
		return
	}
	e.partial(func() {
		s := e.sharedAll(in.A, in.Imm, size)
		if len(in.Vec) > 1 {
			e.inQuads(in, load, false, rShared, func(r, l int) { e.mov32(r, s.plus(4*l)) })
			return
		}
		if load {
			// Eight neighbouring lanes usually read neighbouring words.
			const first, from, group = 20, 21, 8
			scattered, done := e.newLabel(), e.newLabel()
			e.v(vmovups, first, 0, e.vector32(func(i int) uint32 { return uint32(i / group * group) }))
			for c := range 2 {
				e.v(vpsubd, from, 16+c, e.vector32(func(i int) uint32 { return uint32(i % group * 4) }))
				e.v(vpermps, 2+c, first, from)
				e.compare(vpcmpud, 1+c, 2+c, from, 0)
			}
			e.join(2)
			e.alu32i(aluCmp, rax, -1)
			e.jcc(ccNE, scattered)
			for c := range 2 {
				e.mov32(rax, s.plus(64*c))
				e.vw(vmovups, w256, 2+c, 0, indexed(rShared, rax, 0, 0), nil)
				e.mov32(rax, s.plus(64*c+4*group))
				e.vi(vinsertY, 2+c, 2+c, indexed(rShared, rax, 0, 0), 1)
			}
			e.place(done)
			e.cold = append(e.cold, func() {
				e.place(scattered)
				for c := range 2 {
					e.x.kones(1)
					e.gather(vgatherdd, w512, 2+c, rShared, 16+c, 1, 0)
				}
				e.jmp(done)
			})
			for c := range 2 {
				e.v(vstoreups, 2+c, 0, e.r(in.Vec[0], c))
			}
			return
		}
		for l := range 32 {
			e.mov32(rax, s.plus(4*l))
			e.mov32(rcx, at(rR, int(in.Vec[0])*128-e.biasR+4*l))
			e.put32(indexed(rShared, rax, 0, 0), rcx)
		}
	}, some)
}

// addShared is atom.shared.add.u32: the lanes take turns, as no other warp of the block runs meanwhile.
func addShared(e *emitter, in *Inst) {
	e.sharedSome(in.A, in.Imm, 4, e.running())
	e.eachLane(e.running(), func() {
		e.mov32(rax, e.laneR(in.A))
		e.alu32i(aluAdd, rax, int32(uint32(in.Imm)-sharedBase))
		word := indexed(rShared, rax, 0, 0)
		e.mov32(rcx, word)
		e.mov32(rdx, e.laneR(in.B))
		e.alu32(aluAdd, rdx, rcx)
		e.put32(word, rdx)
		e.put32(e.laneR(in.D), rcx)
	})
}
