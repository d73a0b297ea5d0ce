package jit

import (
	"encoding/binary"
	"math"
)

// product is an mma m16n8: C ← A·B + C. Fragments have the same structure for all formats of elements: a 32-bit word
// holds perWord neighbours along k, the words of a group of four lanes are consecutive along k, and the second half
// of A's four registers, as of B's two, continues where the first half ends.
type product struct {
	a, b   element
	scaled bool // a ue4m3 for each 16 of k, of every row of A and column of B
}

// products are the mma by opcode.
var products = map[string]product{
	"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32":                                                  {a: f16, b: f16},
	"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32":                                                {a: bf16, b: bf16},
	"mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32":                                                {a: e4m3, b: e4m3},
	"mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e4m3.f32":                                                {a: e5m2, b: e4m3},
	"mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32":                                                {a: e4m3, b: e5m2},
	"mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32":                                                {a: e5m2, b: e5m2},
	"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32":                                                 {a: tf32, b: tf32},
	"mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e4m3.e2m1.f32":                                   {a: e4m3, b: inByte},
	"mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e5m2.f32":                                   {a: inByte, b: e5m2},
	"mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3": {nibble, nibble, true},
}

// matrixForms are the instructions of a whole warp.
func matrixForms(t map[string]translator) {
	t["shfl.sync.bfly.b32"] = shuffle(false, butterfly)
	t["shfl.sync.down.b32"] = shuffle(false, further)
	t["shfl.sync.up.b32"] = shuffle(true, back)
	t["shfl.sync.idx.b32"] = shuffle(false, inSegment)
	for op, o := range map[string]vop{"add.s32": vpaddd, "max.s32": vpmaxsd, "min.s32": vpminsd, "max.u32": vpmaxud, "min.u32": vpminud} {
		t["redux.sync."+op] = reduction(o)
	}
	t["stmatrix.sync.aligned.m8n8.x1.shared.b16"] = whole(storeMatrix)
	t["stmatrix.sync.aligned.m8n8.x4.shared.b16"] = whole(storeMatrix)
	t["atom.shared.add.u32"] = whole(addShared)
	t["movmatrix.sync.aligned.m8n8.trans.b16"] = whole(moveMatrix)
	for op, p := range products {
		t[op] = whole(p.mma)
	}
}

// Rows of an mma in Inst.Vec: d, a, b, c; with scales those of A, {byte, thread} that select them, those of B,
// selectors.
const (
	rowD, rowA, rowB, rowC          = 0, 4, 8, 10
	rowScaleA, rowByteA, rowThreadA = 14, 15, 16
	rowScaleB, rowByteB, rowThreadB = 17, 18, 19
)

// Scratch memory of an mma: B; half of A's registers (with AVX2, of eight rows); eight rows of D (AVX2); B's scales,
// which with AVX-512 A overwrites once B has been multiplied by them.
const scratchA, scratchD, scratchScaleB, scratchBytes = 2048, 3072, 3328, 4096

// mma computes each element of C by fused multiply-adds, k ascending. Lane 4g+t holds columns 2t and 2t+1 of C in
// different registers, and products are formed in that layout: for each k, an element of A is broadcast over its
// group of four lanes and multiplied by the four even, or the four odd, columns of B. The work is done in a
// subroutine, one per opcode, which gets the offsets of the instruction's rows.
func (p product) mma(e *emitter, in *Inst) {
	e.fragments(in)
	e.call(e.sub(in.Def.Op, func() {
		if p.scaled {
			e.selectors()
			e.scalesOfB()
		}
		e.spreadB(&p, e.scratch())
		if e.wide {
			e.mov64(rFactors, r14)
			e.mmaAVX512(&p)
		} else {
			e.mmaByHalves(&p)
		}
		e.alu32(aluXor, rax, rax)
	}))
	if p.scaled {
		e.test32(rax, rax)
		e.jcc(ccNE, e.bail())
	}
}

// fragments puts the address of the offsets of an mma's rows into rdx.
func (e *emitter) fragments(in *Inst) {
	var rows []byte
	for _, row := range in.Vec {
		rows = binary.LittleEndian.AppendUint32(rows, uint32(int(row)*128-e.biasR))
	}
	e.lea(rdx, e.constant(append(rows, make([]byte, 128-len(rows))...)))
}

// row returns chunk c of the subroutine's i-th row; rax is clobbered.
func (e *emitter) row(i int) func(c int) mem {
	e.movsx32(rax, at(rdx, 4*i))
	return func(c int) mem { return indexed(rR, rax, 0, c*e.bytes()) }
}

// rowOfB is where a row of B lies in scratch memory, its four even columns before the odd ones. A vector of AVX-512
// holds the words of two threads, so the elements i of threads 2p and 2p+1 are neighbours.
func (p *product) rowOfB(half, thread, i int) int {
	n := p.b.perWord
	return half*4*n*32 + thread/2*2*n*32 + i*64 + thread%2*32
}

// columns is the order of a row of B's columns in scratch memory.
var columns = [8]int{0, 2, 4, 6, 1, 3, 5, 7}

// spreadB converts B to f32 in memory at s, and undoes the scaling of both A and B by unpack. The factors of scales
// are in scratch memory.
func (e *emitter) spreadB(p *product, s mem) {
	const words, t, out = 4, 5, 8
	finish := func(half, thread int) func(i int) {
		return func(i int) {
			if grow := p.a.shrink + p.b.shrink; grow > 0 {
				e.v(vmulps, out, out, e.all32(math.Float32bits(float32(math.Ldexp(1, grow)))))
			}
			if p.scaled {
				e.v(vmulps, out, out, s.plus(scratchScaleB+(2*half+thread/2)*e.bytes()))
			}
			e.v(vstoreups, out, 0, s.plus(p.rowOfB(half, thread, i)))
		}
	}
	to := func(int) int { return out }
	for half := range 2 {
		row := e.row(rowB + half)
		if e.wide {
			for pair := range 2 {
				e.v(vmovups, words, 0, e.vector32(func(i int) uint32 { return uint32(4*columns[i%8] + 2*pair + i/8) }))
				e.v(vmovups, 0, 0, row(0))
				e.v(vpermi2d, words, 0, row(1))
				e.unpack(p.b, words, p.b.perWord, t, to, finish(half, 2*pair))
			}
			continue
		}
		for g := range 4 {
			e.v(vmovups, g, 0, row(g))
		}
		e.transpose4() // eight groups of four lanes become four threads' words of the eight columns
		for thread := range 4 {
			e.unpack(p.b, thread, p.b.perWord, t, to, finish(half, thread))
		}
	}
}

// rFactors is the address of B, as spreadB leaves it.
const rFactors = r12

// mmaAVX512 keeps C in registers 0–7, two to a row, and A in 8–23, or in scratch memory if it does not fit.
func (e *emitter) mmaAVX512(p *product) {
	s := at(r14, 0)
	n := p.a.perWord
	place := func(i, j int) any { // element i; j: rows 0–3, 4–7, 8–11, 12–15
		if n > 4 {
			return s.plus(scratchA + 256*i + 64*j)
		}
		return 8 + 4*i + j
	}
	e.loadSums()
	for half := range 2 {
		for j := range 4 {
			const words, t, out, factor = 24, 25, 28, 30
			e.v(vmovups, words, 0, e.row(rowA+2*half+j/2)(j%2))
			if p.scaled {
				e.scaleOfA(factor, half, j/2, j%2, t)
			}
			e.unpack(p.a, words, n, t, func(i int) int {
				if r, ok := place(i, j).(int); ok {
					return r
				}
				return out
			}, func(i int) {
				if p.scaled {
					e.v(vmulps, out, out, factor)
				}
				if m, ok := place(i, j).(mem); ok {
					e.v(vstoreups, out, 0, m)
				}
			})
		}
		for thread := range 4 {
			for i := range n {
				b := p.rowOfB(half, thread, i)
				e.v(vbroadcastX, 24, 0, at(rFactors, b))
				e.v(vbroadcastX, 25, 0, at(rFactors, b+16))
				for j := range 4 {
					e.vi(vpermilps, 26+j, 0, place(i, j), byte(thread*0x55))
					c := j%2 + 4*(j/2) // c0 or c2; c1 or c3 stand two further
					e.v(vfmadd231ps, c, 26+j, 24)
					e.v(vfmadd231ps, c+2, 26+j, 25)
				}
			}
		}
	}
	e.storeSums()
}

// loadSums loads C into registers 0–7, two to a row, and storeSums stores D from there.
func (e *emitter) loadSums() {
	for i := range 4 {
		row := e.row(rowC + i)
		e.v(vmovups, 2*i, 0, row(0))
		e.v(vmovups, 2*i+1, 0, row(1))
	}
}

func (e *emitter) storeSums() {
	for i := range 4 {
		row := e.row(rowD + i)
		for c := range 2 {
			e.canon(2*i+c, 24)
			e.v(vstoreups, 2*i+c, 0, row(c))
		}
	}
}

// mmaByHalves (AVX2 and NEON) computes rows 0–7, of a0, a2, c0 and c1, then rows 8–15, with C in registers 0–7.
func (e *emitter) mmaByHalves(p *product) {
	s := at(r14, 0)
	n := p.a.perWord
	for h := range 2 {
		for i := range 2 {
			row := e.row(rowC + 2*h + i)
			for j := range 4 {
				e.v(vmovups, 4*i+j, 0, row(j))
			}
		}
		for half := range 2 {
			for j := range 4 {
				const words, t, out = 8, 9, 12
				factor := 13
				if e.arm != nil {
					factor = e.vNaN // filled again below: there is no other
				}
				e.v(vmovups, words, 0, e.row(rowA+2*half+h)(j))
				if p.scaled {
					e.scaleOfA(factor, half, h, j, t)
				}
				e.unpack(p.a, words, n, t, func(int) int { return out }, func(i int) {
					if p.scaled {
						e.v(vmulps, out, out, factor)
					}
					e.v(vstoreups, out, 0, s.plus(scratchA+128*i+32*j))
				})
			}
			if e.arm != nil {
				e.multiplyNEON(p, half)
				continue
			}
			for thread := range 4 {
				for i := range n {
					b := p.rowOfB(half, thread, i)
					e.v(vbroadcastX, 8, 0, s.plus(b))
					e.v(vbroadcastX, 9, 0, s.plus(b+16))
					for j := range 4 {
						e.vi(vpermilps, 10, 0, s.plus(scratchA+128*i+32*j), byte(thread*0x55))
						e.v(vfmadd231ps, j, 10, 8)
						e.v(vfmadd231ps, 4+j, 10, 9)
					}
				}
			}
		}
		if e.arm != nil && p.scaled {
			e.splat32(e.vNaN, nan32)
		}
		for i := range 8 {
			e.canon(i, 8)
			if h == 0 { // D may overlap A's rows, so nothing is written before everything is read
				e.v(vstoreups, i, 0, s.plus(scratchD+32*i))
			}
		}
	}
	for i := range 4 {
		row := e.row(rowD + i)
		for j := range 4 {
			r := 4*(i-2) + j
			if i < 2 {
				r = 8
				e.v(vmovups, r, 0, s.plus(scratchD+128*i+32*j))
			}
			e.v(vstoreups, r, 0, row(j))
		}
	}
}
