package jit

// Loads and stores of two or four words a lane, with AVX-512. Four neighbouring lanes usually access neighbouring
// memory: then they are one access of 32 or 64 bytes. Where all quads do that, it is decided when the instruction runs.

// quads branches to scattered unless the lanes of every quad access neighbouring memory of size bytes each. Offsets
// are in registers 16 and 17, or, of 64 bits, in 16 to 19. Registers 2 and 3 are clobbered.
func (e *emitter) quads(wide bool, size int, scattered label) {
	const from, first = 2, 3
	if !wide {
		e.groups(4, size, scattered)
		return
	}
	lane := e.vector64(func(i int) uint64 { return uint64(i % 4 * size) })
	for c := range 4 {
		e.v(vpsubq, from, 16+c, lane)
		e.vi(vpermq, first, 0, from, 0)
		e.compare(vpcmpuq, 1+c%2, first, from, 4)
		if c%2 == 1 {
			e.x.kortestb(1, 2)
			e.jcc(ccNE, scattered)
		}
	}
}

// groups branches to scattered unless the lanes of every group of four or eight access memory with a stride of size
// bytes, by 32-bit offsets in registers 16 and 17. Registers 2 and 3 are clobbered.
func (e *emitter) groups(lanes, size int, scattered label) {
	const from, first = 2, 3
	lane := e.vector32(func(i int) uint32 { return uint32(i % lanes * size) })
	for c := range 2 {
		from := from
		if size == 0 {
			from = 16 + c
		} else {
			e.v(vpsubd, from, 16+c, lane)
		}
		if lanes == 4 {
			e.vi(vpermilps, first, 0, from, 0)
		} else {
			e.v(vmovups, first, 0, e.vector32(func(i int) uint32 { return uint32(i / lanes * lanes) }))
			e.v(vpermps, first, first, from)
		}
		e.compare(vpcmpud, 1+c, first, from, 4)
	}
	e.x.kortest(1, 2)
	e.jcc(ccNE, scattered)
}

// inQuads loads or stores two or four words a lane: by quads, or otherwise in rarely executed code.
func (e *emitter) inQuads(in *Inst, load, wide bool, base int, address func(r, l int)) {
	scattered, done := e.newLabel(), e.newLabel()
	size := in.Size * len(in.Vec)
	e.quads(wide, size, scattered)
	if load {
		e.toRows(in, byQuads, base, address)
	} else {
		e.storeQuads(in, base, address)
	}
	e.place(done)
	e.cold = append(e.cold, func() {
		e.place(scattered)
		if load && size == 16 { // or all lanes of a quad access the same
			each := e.newLabel()
			e.quads(wide, 0, each)
			e.toRows(in, alike, base, address)
			e.jmp(done)
			e.place(each)
		}
		if load {
			e.toRows(in, byLanes, base, address)
		} else {
			e.storeLanes(in, base, address)
		}
		e.jmp(done)
	})
}

// words is the operand of a vector of indices of words, of two vectors' 32.
func (e *emitter) words(index func(i int) int) mem {
	return e.vector32(func(i int) uint32 { return uint32(index(i)) })
}

// permute fills register d with words of registers a and b.
func (e *emitter) permute(d, a, b int, index func(i int) int) {
	e.v(vmovups, d, 0, e.words(index))
	e.v(vpermi2d, d, a, b)
}

// vectorLoad is a load of two or four words a lane, of 16 lanes at a time: a way to move them from memory, at base
// and the lanes' addresses, which address puts into a register, to a register for each word. Registers 0 to 7 are
// clobbered.
type vectorLoad func(e *emitter, c int, to []int, base, disp int, address func(r, l int))

// byQuads loads from memory that the lanes of each quad share as neighbours.
func byQuads(e *emitter, c int, to []int, base, disp int, address func(r, l int)) {
	for quad := range 4 {
		address(rax, 16*c+4*quad)
		m := indexed(rax, base, 0, disp)
		switch {
		case len(to) == 4:
			e.v(vmovups, quad, 0, m)
		case quad%2 == 0:
			e.vw(vmovups, w256, quad/2, 0, m, nil)
		default:
			e.vi(vinsertY, quad/2, quad/2, m, 1)
		}
	}
	if len(to) == 2 {
		for i, v := range to {
			e.permute(4+i, 0, 1, func(l int) int { return 2*l + i })
			e.v(vmovups, v, 0, 4+i)
		}
		return
	}
	for i := range 2 { // two words of eight lanes each
		for half := range 2 {
			e.permute(4+half, 2*half, 2*half+1, func(l int) int { return 4*(l%8) + 2*i + l/8 })
		}
		e.vi(vinsertY, to[2*i], 4, 5, 1)
		e.vi(vshufX, to[2*i+1], 4, 5, 0xee)
	}
}

// byOctets loads what is the same for all groups of eight lanes, which are neighbours.
func byOctets(e *emitter, _ int, to []int, base, disp int, address func(r, l int)) {
	address(rax, 0)
	m := indexed(rax, base, 0, disp)
	e.v(vmovups, 0, 0, m)
	if len(to) == 4 {
		e.v(vmovups, 1, 0, m.plus(64))
	}
	for i, v := range to {
		e.v(vmovups, v, 0, e.words(func(l int) int { return len(to)*(l%8) + i }))
		if len(to) == 4 {
			e.v(vpermi2d, v, 0, 1)
		} else {
			e.v(vpermps, v, v, 0)
		}
	}
}

// alikeByOctets loads two or four words a lane, of which all lanes of an octet load the same.
func alikeByOctets(e *emitter, c int, to []int, base, disp int, address func(r, l int)) {
	o := vbroadcastX
	if len(to) == 2 {
		o = vbroadcastq
	}
	address(rax, 16*c)
	e.v(o, 0, 0, indexed(rax, base, 0, disp))
	address(rax, 16*c+8)
	e.vw(o, w256, 1, 0, indexed(rax, base, 0, disp), nil)
	e.vi(vinsertY, 0, 0, 1, 1)
	for i, v := range to {
		words := byte(i * 0x55)
		if len(to) == 2 {
			words = byte(0xa0 + i*0x55)
		}
		e.vi(vpermilps, v, 0, 0, words)
	}
}

// alike loads two or four words a lane, of which all lanes of a quad load the same.
func alike(e *emitter, c int, to []int, base, disp int, address func(r, l int)) {
	o, words := vmovups, func(i int) byte { return byte(i * 0x55) }
	if len(to) == 2 {
		o, words = vbroadcastq, func(i int) byte { return byte(0xa0 + i*0x55) }
	}
	for quad := range 4 {
		address(rax, 16*c+4*quad)
		m := indexed(rax, base, 0, disp)
		switch {
		case quad == 0:
			e.vw(o, w128, 0, 0, m, nil)
		case len(to) == 4:
			e.vi(vinsertX, 0, 0, m, byte(quad))
		default:
			e.vw(o, w128, 1, 0, m, nil)
			e.vi(vinsertX, 0, 0, 1, byte(quad))
		}
	}
	for i, v := range to {
		e.vi(vpermilps, v, 0, 0, words(i))
	}
}

// byLanes loads lane by lane, and transposes blocks of four lanes.
func byLanes(e *emitter, c int, to []int, base, disp int, address func(r, l int)) {
	for l := range 16 {
		address(rax, 16*c+l)
		m := indexed(rax, base, 0, disp)
		part := byte(l / 4)
		if len(to) == 4 {
			if part == 0 {
				e.vw(vmovups, w128, l%4, 0, m, nil)
			} else {
				e.vw(vinsertX, w512, l%4, l%4, m, []byte{part})
			}
			continue
		}
		reg := l % 4 / 2
		if l%2 == 0 {
			e.vw(vmovq, w128, 4, 0, m, nil)
			continue
		}
		e.vw(vmovhps, w128, 4, 4, m, nil)
		if part == 0 {
			e.vw(vmovups, w128, reg, 0, 4, nil)
		} else {
			e.vw(vinsertX, w512, reg, reg, 4, []byte{part})
		}
	}
	if len(to) == 2 {
		e.vi(vshufps, to[0], 0, 1, 0x88)
		e.vi(vshufps, to[1], 0, 1, 0xdd)
		return
	}
	e.transpose4()
	for i, v := range to {
		e.v(vmovups, v, 0, i)
	}
}

// toRows makes a load in one of these ways. Addresses are in 64-bit rows or a scratch copy, so that results, in 32-bit
// rows, cannot overwrite them.
func (e *emitter) toRows(in *Inst, way vectorLoad, base int, address func(r, l int)) {
	to := []int{8, 9, 10, 11}[:len(in.Vec)]
	for c := range 2 {
		way(e, c, to, base, 0, address)
		for i, row := range in.Vec {
			e.v(vstoreups, to[i], 0, e.r(row, c))
		}
	}
}

// storeQuads stores two or four words a lane, of quads, in ascending order of lanes.
func (e *emitter) storeQuads(in *Inst, base int, address func(r, l int)) {
	// pairs puts words of rows i and i+1 in register d, of eight lanes: a half of the chunk.
	pairs := func(d, i, half, c int) {
		e.v(vmovups, 0, 0, e.r(in.Vec[i], c))
		e.v(vmovups, d, 0, e.words(func(l int) int { return l/2 + 8*half + l%2*16 }))
		e.v(vpermi2d, d, 0, e.r(in.Vec[i+1], c))
	}
	for c := range 2 {
		for half := range 2 {
			pairs(1, 0, half, c)
			if len(in.Vec) == 4 {
				pairs(2, 2, half, c)
			}
			for quad := range 2 {
				address(rax, 16*c+8*half+4*quad)
				m := indexed(rax, base, 0, 0)
				switch {
				case len(in.Vec) == 4:
					e.permute(3, 1, 2, func(l int) int { return 8*quad + l/4*2 + l%2 + l/2%2*16 })
					e.v(vstoreups, 3, 0, m)
				case quad == 0:
					e.vw(vstoreups, w256, 1, 0, m, nil)
				default:
					e.vw(vextractY, w512, 1, 0, m, []byte{1})
				}
			}
		}
	}
}

// storeLanes stores two or four words a lane, lane by lane, from transposed blocks of four lanes.
func (e *emitter) storeLanes(in *Inst, base int, address func(r, l int)) {
	n := len(in.Vec)
	for c := range 2 {
		for i, row := range in.Vec {
			e.v(vmovups, i, 0, e.r(row, c))
		}
		if n == 4 {
			e.transpose4()
		} else {
			e.v(vunpcklps, 4, 0, 1)
			e.v(vunpckhps, 5, 0, 1)
		}
		for l := range 16 {
			address(rax, 16*c+l)
			m := indexed(rax, base, 0, 0)
			switch {
			case n == 4: // register l%4, part l/4
				e.vw(vextractX, w512, l%4, 0, m, []byte{byte(l / 4)})
			case l%2 == 0:
				e.vw(vextractX, w512, 4+l%4/2, 0, 0, []byte{byte(l / 4)})
				e.vw(vmovlpsS, w128, 0, 0, m, nil)
			default:
				e.vw(vmovhpsS, w128, 0, 0, m, nil)
			}
		}
	}
}
