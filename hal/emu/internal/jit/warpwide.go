//go:build linux && amd64

package jit

import (
	"encoding/binary"
	"strings"
)

// mma is m16n8k16: for every element of C, k ascending, one fused multiply-add each. A lane g·4+t holds columns 2t and
// 2t+1 of C in different registers, so the products are formed in the fragments' own layout: the k-th column of A is one
// of a group of four lanes, spread over the group; the k-th row of B is four even or four odd columns, repeated.
func (e *emitter) mma(in *Inst) bool {
	if e.m || !strings.Contains(in.Op, ".m16n8k16.row.col.f32.f16.f16.f32") && !strings.Contains(in.Op, ".m16n8k16.row.col.f32.bf16.bf16.f32") {
		return false
	}
	bf := strings.Contains(in.Op, "bf16")
	name := "mma.f16"
	if bf {
		name = "mma.bf16"
	}
	v := in.Vec
	if !e.wide {
		var rows []byte
		for _, row := range v {
			rows = binary.LittleEndian.AppendUint32(rows, uint32(int(row)*128-biasR))
		}
		rows = append(rows, make([]byte, 64-len(rows))...)
		m := e.constant(rows)
		e.lea(rdx, m)
		e.call(e.sub(name, func() { e.mmaAVX2(bf) }))
		return true
	}
	for i := range 4 {
		for c := range 2 {
			e.v(vmovups, 2*i+c, 0, e.r(v[10+i], c))
			e.v(vmovups, 8+2*i+c, 0, e.r(v[4+i], c))
		}
	}
	for i := range 2 {
		for c := range 2 {
			e.v(vmovups, 16+2*i+c, 0, e.r(v[8+i], c))
		}
	}
	e.call(e.sub(name, func() { e.mmaAVX512(bf) }))
	for i := range 4 {
		for c := range 2 {
			e.v(vstoreups, 2*i+c, 0, e.r(v[i], c))
		}
	}
	return true
}

// halves widens the low or the high 16 bits of the lanes of s into d.
func (e *emitter) halves(d, s int, high, bf bool, t int) {
	switch {
	case bf && high:
		e.splat32(t, 0xffff0000)
		e.v(vpand, d, s, t)
	case bf:
		e.shiftI(vpslldI, 6, d, s, 16)
	case high:
		e.shiftI(vpsrldI, 2, d, s, 16)
		e.widenLow(d, d)
	default:
		if !e.wide {
			e.shiftI(vpslldI, 6, d, s, 16)
			e.shiftI(vpsrldI, 2, d, d, 16)
			s = d
		}
		e.widenLow(d, s)
	}
}

// widenLow is f16 to f32 of lanes whose upper halves are zero, or (AVX-512) anything.
func (e *emitter) widenLow(d, s int) {
	if e.wide {
		e.evex(vpmovdw, w512, s, 0, d, mod{}, 0)
	} else {
		e.v(vpackusdw, d, s, s)
		e.vi(vpermq, d, 0, d, 8)
	}
	e.v(vcvtph2ps, d, 0, d)
}

// rowOfB is where the widened row k of B stands in scratch memory: four even columns, four odd ones.
func rowOfB(k int) int { return k/8*256 + k%8/4*128 + k%2*64 + k%4/2*32 }

// mmaAVX512 takes C in registers 0–7, A in 8–15, B in 16–19, two registers a row, and returns D in 0–7.
func (e *emitter) mmaAVX512(bf bool) {
	s := e.scratch()
	columns := [8]int{0, 2, 4, 6, 1, 3, 5, 7}
	for p := range 2 {
		idx := e.vector32(func(i int) uint32 { return uint32(4*columns[i%8] + 2*p + i/8) })
		for i := range 2 {
			e.v(vmovups, 20, 0, idx)
			e.v(vpermi2d, 20, 16+2*i, 17+2*i)
			e.halves(21, 20, false, bf, 23)
			e.halves(22, 20, true, bf, 23)
			e.v(vstoreups, 21, 0, s.plus(256*i+128*p))
			e.v(vstoreups, 22, 0, s.plus(256*i+128*p+64))
		}
	}
	for i := range 8 { // odd k in 16–23, even in 8–15
		e.halves(16+i, 8+i, true, bf, 24)
		e.halves(8+i, 8+i, false, bf, 24)
	}
	for k := range 16 {
		e.v(vbroadcastX, 24, 0, s.plus(rowOfB(k)))
		e.v(vbroadcastX, 25, 0, s.plus(rowOfB(k)+16))
		a := 8 + 8*(k%2) + 4*(k/8) // registers a0 or a2, then a1 or a3
		for j := range 4 {         // rows 0–3, 4–7, 8–11, 12–15
			e.vi(vpermilps, 26+j, 0, a+j, byte(k%8/2*0x55))
			c := j%2 + 4*(j/2) // c0 or c2; c1 or c3 stand two further
			e.v(vfmadd231ps, c, 26+j, 24)
			e.v(vfmadd231ps, c+2, 26+j, 25)
		}
	}
	for i := range 8 {
		e.canon(i, 0)
	}
}

// mmaAVX2 takes the offsets of the 14 rows at rdx.
func (e *emitter) mmaAVX2(bf bool) {
	row := func(r, i int) {
		e.gp(true, 0, nil, 0x63, r, at(rdx, 4*i), 0) // movsxd
		e.alu64(aluAdd, r, rR)
	}
	s := e.scratch()
	for i := range 2 {
		row(rax, 8+i)
		for g := range 4 {
			e.v(vmovups, g, 0, at(rax, 32*g))
		}
		// Lane 0 holds columns 0 2 4 6, lane 1 columns 1 3 5 7: transposed, register t holds k = 2t and 2t+1.
		e.v(vunpcklps, 4, 0, 1)
		e.v(vunpckhps, 5, 0, 1)
		e.v(vunpcklps, 6, 2, 3)
		e.v(vunpckhps, 7, 2, 3)
		e.v(vunpcklpd, 0, 4, 6)
		e.v(vunpckhpd, 1, 4, 6)
		e.v(vunpcklpd, 2, 5, 7)
		e.v(vunpckhpd, 3, 5, 7)
		for t := range 4 {
			e.halves(8, t, false, bf, 9)
			e.v(vstoreups, 8, 0, s.plus(rowOfB(8*i+2*t)))
			e.halves(8, t, true, bf, 9)
			e.v(vstoreups, 8, 0, s.plus(rowOfB(8*i+2*t+1)))
		}
	}
	for h := range 2 { // rows 0–7: a0, a2, c0, c1; rows 8–15: a1, a3, c2, c3
		for i := range 2 {
			row(rax, 4+2*i+h)
			for j := range 4 {
				e.v(vmovups, 8, 0, at(rax, 32*j))
				e.halves(10, 8, false, bf, 9)
				e.v(vstoreups, 10, 0, s.plus(512+256*i+32*j))
				e.halves(10, 8, true, bf, 9)
				e.v(vstoreups, 10, 0, s.plus(512+256*i+128+32*j))
			}
		}
		for i := range 2 {
			row(rax, 10+2*h+i)
			for j := range 4 {
				e.v(vmovups, 4*i+j, 0, at(rax, 32*j))
			}
		}
		for k := range 16 {
			e.v(vbroadcastX, 8, 0, s.plus(rowOfB(k)))
			e.v(vbroadcastX, 9, 0, s.plus(rowOfB(k)+16))
			for j := range 4 {
				e.vi(vpermilps, 10, 0, s.plus(512+256*(k/8)+128*(k%2)+32*j), byte(k%8/2*0x55))
				e.v(vfmadd231ps, j, 10, 8)
				e.v(vfmadd231ps, 4+j, 10, 9)
			}
		}
		for i := range 8 {
			e.canon(i, 8)
		}
		if h == 0 { // D may be A's rows: nothing is written before all is read
			for i := range 8 {
				e.v(vstoreups, i, 0, s.plus(1024+32*i))
			}
			continue
		}
		for i := range 2 {
			row(rax, 2+i)
			for j := range 4 {
				e.v(vstoreups, 4*i+j, 0, at(rax, 32*j))
			}
		}
		for i := range 2 {
			row(rax, i)
			for j := range 4 {
				e.v(vmovups, 8, 0, s.plus(1024+128*i+32*j))
				e.v(vstoreups, 8, 0, at(rax, 32*j))
			}
		}
	}
}

// shuffle is shfl.sync of whole warps (PTX ISA, shfl.sync, pseudocode).
func (e *emitter) shuffle(in *Inst) bool {
	if e.m {
		return false
	}
	mode := strings.Split(in.Op, ".")[2]
	s := at(r14, 0)
	if !e.wide {
		s = e.scratch()
	}
	e.splat32(13, 0xffffffff)
	e.splat32(14, 31)
	if e.wide {
		for c := range 2 {
			e.v(vmovups, 0, 0, e.r(in.Vec[1], c))
			e.evex(vpcmpud, w512, 1+c, 0, 13, mod{}, 1)
			e.b(4)
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
		switch mode {
		case "up":
			e.v(vpsubd, j, lane, bval)
		case "down":
			e.v(vpaddd, j, lane, bval)
		case "bfly":
			e.v(vpxor, j, lane, bval)
		default:
			e.v(vpandn, j, seg, bval)
			e.v(vpor, j, j, 6)
		}
		a, b := j, most // not ok: a > b
		if mode == "up" {
			a, b = most, j
		}
		if e.wide {
			e.evex(vpcmpd, w512, 1+c, a, b, mod{}, 1)
			e.b(2)
			e.v(vmovups, 8+c, 0, lane)
			e.vk(vmovups, 8+c, 0, j, 1+c)
			continue
		}
		e.v(vpcmpgtd, 7, a, b)
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
	return true
}
