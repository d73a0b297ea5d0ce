package jit

// shuffle is shfl.sync of whole warps (PTX ISA, shfl.sync, pseudocode). from leaves in register 5 the lane to read
// of, by the lane in register 0, b in 1 and the mask of segments in 3; it is out of range where it is greater than
// the limit, or, upwards, less.
func shuffle(upwards bool, from func(e *emitter)) translator {
	return whole(func(e *emitter, in *Inst) { e.shuffle(in, upwards, from) })
}

func butterfly(e *emitter) { e.v(vpxor, 5, 0, 1) }
func further(e *emitter)   { e.v(vpaddd, 5, 0, 1) }
func back(e *emitter)      { e.v(vpsubd, 5, 0, 1) }
func inSegment(e *emitter) {
	e.v(vpandn, 5, 3, 1)
	e.v(vpand, 6, 0, 3)
	e.v(vpor, 5, 5, 6)
}

// everyMember bails unless all lanes' member masks are those of a whole warp. It leaves ones in register 13.
func (e *emitter) everyMember(row int32) {
	if e.arm != nil {
		e.everyMemberNEON(row)
		return
	}
	e.splat32(13, 0xffffffff)
	if e.wide {
		for c := range 2 {
			e.v(vmovups, 0, 0, e.r(row, c))
			e.compare(vpcmpud, 1+c, 0, 13, 4)
		}
		e.x.kortest(1, 2)
	} else {
		for c := range 4 {
			e.v(vpcmpeqd, 0, 13, e.r(row, c))
			e.collect(vmovmskps, 0, c, 8)
		}
		e.alu32i(aluCmp, rax, -1)
	}
	e.jcc(ccNE, e.bail())
}

// reduction is redux.sync of whole warps: the combined halves are combined with themselves, rotated, until there is
// one value.
func reduction(o vop) translator {
	return whole(func(e *emitter, in *Inst) {
		e.everyMember(in.B)
		if e.arm != nil {
			e.reduceNEON(in, o)
			return
		}
		e.v(vmovups, 0, 0, e.r(in.A, 0))
		for c := 1; c < e.chunks(); c++ {
			e.v(o, 0, 0, e.r(in.A, c))
		}
		for n := e.lanesOf(r) / 2; n > 0; n /= 2 {
			e.v(vmovups, 1, 0, e.vector32(func(i int) uint32 { return uint32(i ^ n) }))
			e.v(vpermps, 1, 1, 0)
			e.v(o, 0, 0, 1)
		}
		for c := range e.chunks() {
			e.v(vstoreups, 0, 0, e.r(in.D, c))
		}
	})
}

func (e *emitter) shuffle(in *Inst, upwards bool, from func(e *emitter)) {
	if e.arm != nil {
		e.shuffleNEON(in, upwards, from)
		return
	}
	s := at(r14, 0)
	if !e.wide {
		s = e.scratch()
	}
	e.everyMember(in.Vec[1])
	e.splat32(14, 31)
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
		from(e)
		if e.wide {
			within := byte(2)
			if upwards {
				within = 5
			}
			e.compare(vpcmpd, 1+c, j, most, within)
			e.v(vmovups, 8+c, 0, lane)
			e.vk(vmovups, 8+c, 0, j, 1+c)
			continue
		}
		if upwards {
			e.v(vpcmpgtd, 7, most, j)
		} else {
			e.v(vpcmpgtd, 7, j, most)
		}
		e.vi(vblendvps, j, j, lane, 7<<4)
		e.v(vpxor, 7, 7, 13)
		e.collect(vmovmskps, 7, c, 8)
		e.v(vmovups, 7, 0, 13)
		e.x.vex(true, vgatherdd.mp, vgatherdd.pp, 0, vgatherdd.op, 8, 7, mem{base: rR, index: j, scale: 2,
			disp: int32(int(in.A)*128 - e.biasR), vector: true}, 0)
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
