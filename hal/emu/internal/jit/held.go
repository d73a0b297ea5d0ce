//go:build linux && amd64

package jit

import "github.com/spark-compile/spark-compile/internal/ptx"

// Code for whole warps holds the last results in registers as well as in rows, so that the instructions that use them need not
// wait for memory (AVX-512). Rows are complete all the same: code may stop anywhere, but it is entered only where nothing is
// held, or through code that loads what is.

// The registers from firstHeld on hold vectors: no instruction of Compute, Load, Store or Shuffle uses them otherwise.
const firstHeld, holding = 22, 8

// held is chunk c of a 32-bit row.
type held struct {
	row   int32 // -1: none
	c     int
	loose bool // its NaNs are not canonical: for instructions that treat all NaNs alike
}

// hold copies vector v, which is or becomes chunk c of a row, to a register.
func (e *emitter) hold(row int32, c, v int, loose bool) {
	if e.drop(row, c); !e.wide || e.m || e.steps {
		return
	}
	e.v(vmovups, firstHeld+e.turn, 0, v)
	e.holds[e.turn] = held{row, c, loose}
	e.turn = (e.turn + 1) % holding
}

// exact is the operand of chunk c of a 32-bit row; loose is one whose NaNs may be others.
func (e *emitter) exact(row int32, c int) any { return e.operand(row, c, false) }
func (e *emitter) loose(row int32, c int) any { return e.operand(row, c, true) }

func (e *emitter) operand(row int32, c int, loose bool) any {
	for i, h := range e.holds {
		if h.row == row && h.c == c && (loose || !h.loose) {
			return firstHeld + i
		}
	}
	return e.r(row, c)
}

// drop forgets that a register holds chunk c of a row.
func (e *emitter) drop(row int32, c int) {
	for i, h := range e.holds {
		if h.row == row && h.c == c {
			e.holds[i].row = -1
		}
	}
}

func (e *emitter) forget() {
	for i := range e.holds {
		e.holds[i].row = -1
	}
}

// enterable makes the current instruction an entry, if the one before may have been left to the interpreter.
func (e *emitter) enterable() {
	holds, empty := e.holds, true
	for _, h := range holds {
		empty = empty && h.row < 0
	}
	if empty {
		return
	}
	if e.entry[e.pc] = -1; e.insts[e.pc-1].Def.Does == ptx.Compute {
		return
	}
	pc := e.pc
	e.entry[pc] = e.newLabel()
	e.cold = append(e.cold, func() {
		e.place(e.entry[pc])
		for i, h := range holds {
			if h.row >= 0 {
				e.v(vmovups, firstHeld+i, 0, e.r(h.row, h.c))
			}
		}
		e.jmp(e.pcs[pc])
	})
}
