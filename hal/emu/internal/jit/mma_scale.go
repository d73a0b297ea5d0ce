package jit

import "math"

// selectors lets the subroutine of a scaled mma return 1 if its selectors are not defined for scale_vec::4X: byte 0,
// thread 0 or 1 of A, 0 to 3 of B, the same in all lanes. The interpreter then reports it.
func (e *emitter) selectors() {
	const bad, x, first = 0, 1, 2
	e.v(vpxor, bad, bad, bad)
	for _, s := range [...]struct {
		row  int
		most uint32
	}{{rowByteA, 0}, {rowThreadA, 1}, {rowByteB, 0}, {rowThreadB, 3}} {
		row := e.row(s.row)
		e.v(vbroadcast, first, 0, row(0))
		for c := range e.chunks() {
			e.v(vpxor, x, first, row(c))
			e.v(vpor, bad, bad, x)
		}
		e.v(vpand, first, first, e.all32(^s.most))
		e.v(vpor, bad, bad, first)
	}
	fine := e.newLabel()
	if e.arm != nil {
		e.arm.largest(bad)
		e.test32(rax, rax)
	} else if e.wide {
		e.x.evex(vptestmd, w512, 1, bad, bad, mod{}, 0)
		e.x.kortest(1, 1)
	} else {
		e.v(vptest, bad, 0, bad)
	}
	e.jcc(ccE, fine)
	e.movi32(rax, 1)
	e.ret()
	e.place(fine)
}

// scalesOfB puts the factors of B's columns for each 16 of k into scratch memory, in the order of columns. They also
// undo the shrinking of A's and B's scales by scaleValue.
func (e *emitter) scalesOfB() {
	s := e.scratch()
	thread := e.row(rowThreadB)(0)
	e.v(vbroadcast, 4, 0, thread)
	row := e.row(rowScaleB)
	for c := range e.chunks() { // broadcast the selected thread's scales to its group
		e.v(vmovups, c, 0, row(c))
		e.v(vpermilpsV, c, c, 4)
	}
	const words, v, t = 0, 8, 9
	if e.wide {
		e.v(vmovups, 4, 0, e.vector32(func(i int) uint32 { return uint32(4 * columns[i%8]) }))
		e.v(vpermi2d, 4, 0, 1)
		e.v(vmovups, words, 0, 4)
	} else {
		e.transpose4()
	}
	for b := range 4 {
		e.shiftI(vpsrldI, 2, v, words, byte(8*b))
		e.scaleValue(v, t)
		e.v(vmulps, v, v, e.all32(math.Float32bits(1<<16)))
		e.v(vstoreups, v, 0, s.plus(scratchScaleB+b*e.bytes()))
	}
}

// scaleOfA puts the factors of chunk c of a register of A into v: for rows 0–7, or 8–15 if lower is 1, and for the 16
// of k that each pair of threads holds. Thread 2·selector of a group has the scales of its row, the next thread those
// of the row eight below.
func (e *emitter) scaleOfA(v, half, lower, c, t int) {
	e.v(vbroadcast, t, 0, e.row(rowThreadA)(0))
	e.v(vpaddd, t, t, t)
	if lower == 1 {
		e.v(vpaddd, t, t, e.all32(1))
	}
	e.v(vmovups, v, 0, e.row(rowScaleA)(c))
	e.v(vpermilpsV, v, v, t)
	e.v(vpsrlvd, v, v, e.vector32(func(i int) uint32 { return uint32(16*half + 8*(i%4/2)) }))
	e.scaleValue(v, t)
}
