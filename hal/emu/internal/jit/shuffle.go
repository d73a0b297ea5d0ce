//go:build linux && amd64

package jit

// shuffle is shfl.sync.bfly of whole warps (PTX ISA, shfl.sync, pseudocode).
func shuffle(e *emitter, in *Inst) {
	s := at(r14, 0)
	if !e.wide {
		s = e.scratch()
	}
	e.splat32(13, 0xffffffff)
	e.splat32(14, 31)
	if e.wide {
		for c := range 2 {
			e.v(vmovups, 0, 0, e.r(in.Vec[1], c))
			e.compare(vpcmpud, 1+c, 0, 13, 4)
		}
		e.kortest(1, 2)
		e.jcc(ccNE, e.bail())
	} else {
		for c := range 4 {
			e.v(vpcmpeqd, 0, 13, e.r(in.Vec[1], c))
			e.collect(vmovmskps, 0, c, 8)
		}
		e.alu32i(aluCmp, rax, -1)
		e.jcc(ccNE, e.bail())
	}
	for c := range e.chunks() {
		const lane, bval, cval, seg, most, j = 0, 1, 2, 3, 4, 5
		n := e.bytes() / 4
		e.v(vmovups, lane, 0, e.vector32(func(i int) uint32 { return uint32(n*c + i) }))
		e.v(vpand, bval, 14, e.r(in.B, c))
		e.v(vmovups, cval, 0, e.r(in.C, c))
		e.shiftI(vpsrldI, 2, seg, cval, 8)
		e.v(vpand, cval, cval, 14)
		e.v(vpand, seg, seg, 14)
		e.v(vpandn, most, seg, cval)
		e.v(vpand, 6, lane, seg)
		e.v(vpor, most, most, 6)
		e.v(vpxor, j, lane, bval)
		if e.wide {
			e.compare(vpcmpd, 1+c, j, most, 2)
			e.v(vmovups, 8+c, 0, lane)
			e.vk(vmovups, 8+c, 0, j, 1+c)
			continue
		}
		e.v(vpcmpgtd, 7, j, most)
		e.vi(vblendvps, j, j, lane, 7<<4)
		e.v(vpxor, 7, 7, 13)
		e.collect(vmovmskps, 7, c, 8)
		e.v(vmovups, 7, 0, 13)
		e.vex(true, vgatherdd.mp, vgatherdd.pp, 0, vgatherdd.op, 8, 7, mem{base: rR, index: j, scale: 2,
			disp: int32(int(in.A)*128 - biasR), vector: true}, 0)
		e.v(vstoreups, 8, 0, s.plus(32*c))
	}
	if e.wide {
		e.v(vmovups, 2, 0, e.r(in.A, 0))
		e.v(vmovups, 3, 0, e.r(in.A, 1))
		e.v(vpermi2d, 8, 2, 3)
		e.v(vpermi2d, 9, 2, 3)
		e.v(vstoreups, 8, 0, e.r(in.D, 0))
		e.v(vstoreups, 9, 0, e.r(in.D, 1))
		e.join(2)
	} else {
		for c := range 4 {
			e.v(vmovups, 0, 0, s.plus(32*c))
			e.v(vstoreups, 0, 0, e.r(in.D, c))
		}
	}
	e.put32(e.p(in.Vec[0]), rax)
}
