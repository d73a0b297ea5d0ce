package jit

import (
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// A run is a sequence of instructions, each of which loads vectors or computes a 32-bit row from rows lane by lane,
// in code with AVX-512. Lanes do not meet in it, so it is emitted for one vector of lanes at a time:
// rows are then held in registers, read once, and written once, at its end. It is entered at its first instruction
// alone, and nothing in it leaves it.

// held is a register that holds the current chunk of a row.
type held struct {
	row   int32 // or none, or reserved: for the result of the current instruction
	dirty bool  // memory has not got it yet
	loose bool  // its NaNs are not canonical: for instructions that treat all NaNs alike
	used  int   // the last instruction that named it
}

const reserved = none - 1

// longest bounds a run, and with it the time that its emission takes, which is square.
const longest = 512

// The registers that hold rows: from simpleHeld on in runs of simple forms alone, otherwise from firstHeld on, as the
// others compute in those below.
const simpleHeld, withLoads, firstHeld, lastHeld = 2, 8, 14, 30

// run is the state of a run's emission.
type run struct {
	active bool
	insts  []Inst
	reads  [][]int32 // 32-bit rows by instruction, other than bases
	at     int       // the instruction being emitted
	first  int       // the first register that holds rows
	held   [lastHeld + 1]held
	bases  []base
	baseOf map[int]int   // of a load, by instruction
	lifted map[int32]int // registers of operands of what is computed before the run
}

// length is the number of instructions from pc on that make a run.
func (e *emitter) length(pc int) int {
	if !e.wide || e.steps {
		return 0
	}
	x := &e.run
	x.bases, x.baseOf = nil, map[int]int{}
	computes := false
	n := 0
	for ; n < longest && pc+n < len(e.insts) && (n == 0 || !e.leader[pc+n]); n++ {
		in := &e.insts[pc+n]
		if in.Guard >= 0 {
			break
		}
		x.insts = e.insts[pc : pc+n+1]
		if _, ok := lanewiseForm(in); ok {
			computes = true
		} else if _, ok := comparisonForm(in); ok {
			computes = true
		} else if !loadsVectors(in) || !x.add(n, e.likely[pc+n]) {
			break
		}
	}
	if !computes { // loads alone gain nothing
		return 0
	}
	return n
}

// loadsVectors reports whether an instruction loads two or four words from shared memory.
func loadsVectors(in *Inst) bool {
	plain := in.Def.Does == ptx.Load && in.Def.Order == ptx.Plain
	return plain && in.space() == "shared" && in.Size == 4 && len(in.Vec) > 1
}

// lanewiseForm is the form of an instruction that may be part of a run.
func lanewiseForm(in *Inst) (lanewise, bool) {
	f, ok := native[in.Def.Op].(lanewise)
	return f, ok && in.Def.Does == ptx.Compute && f.file == r
}

// comparisonForm is the form of a comparison that may be part of a run.
func comparisonForm(in *Inst) (comparison, bool) {
	f, ok := native[in.Def.Op].(comparison)
	return f, ok && in.Def.Does == ptx.Compute && f.file == r
}

// emitRun emits n instructions from the current one on.
func (e *emitter) emitRun(n int) {
	pc := e.pc
	x := &e.run
	*x = run{insts: e.insts[pc : pc+n], first: simpleHeld, bases: x.bases, baseOf: x.baseOf}
	for i := range x.insts {
		rows, n, _ := x.insts[i].operands()
		x.reads = append(x.reads, rows[:n])
	}
	for i := range x.insts {
		if f, ok := lanewiseForm(&x.insts[i]); !ok && x.insts[i].Def.Does == ptx.Compute {
			continue // a comparison
		} else if !ok {
			x.first = max(x.first, withLoads)
		} else if !f.simple {
			x.first = firstHeld
		}
	}
	if e.masked {
		e.await()
		e.x.kmovd(runningMask, rMask)
		e.x.kshiftr(runningMask+1, runningMask, 16)
	}
	e.begin()
	x.active = true
	for c := range e.chunks() {
		for i := range x.held {
			x.held[i] = held{row: none}
		}
		for x.at = range x.insts {
			in := &x.insts[x.at]
			f, ok := lanewiseForm(in)
			if compare, ok := comparisonForm(in); ok {
				compare.inRun(e, in, c)
				x.forget(in)
				continue
			}
			if !ok {
				e.load(x.at, c)
				x.forget(in)
				continue
			}
			result := e.free(c)
			x.held[result].row = reserved
			if e.out = 0; f.simple {
				e.out = result
			}
			if f.body(e, in, c); !f.simple {
				e.v(vmovups, result, 0, 0)
				e.out = result
			}
			for _, v := range [...]int{result, x.find(in.D)} {
				if v >= 0 {
					x.held[v] = held{row: none}
				}
			}
			x.held[e.out] = held{in.D, true, f.loose, x.at}
			x.forget(in)
		}
		for v := range x.held {
			e.spill(v, c)
		}
	}
	x.active, e.out = false, 0
	for i := range n {
		e.pc = pc + i
		if i > 0 {
			e.place(e.pcs[e.pc])
			e.entry[e.pc] = -1
		}
	}
}

// forget frees the registers of rows that nothing reads after an instruction.
func (x *run) forget(in *Inst) {
	for v := range x.held {
		if row := x.held[v].row; row >= 0 && slices.Contains(in.Dies, row) {
			x.held[v] = held{row: none}
		}
	}
}

// find is the register that holds a row, or -1.
func (x *run) find(row int32) int {
	for v := range x.held {
		if x.held[v].row == row {
			return v
		}
	}
	return -1
}

// free returns a register that holds nothing, having written what it held if it must. The rows of the current
// instruction stay where they are.
func (e *emitter) free(c int) int {
	x := &e.run
	best, distance := -1, -1
	for v := x.first; v <= lastHeld; v++ {
		h := &x.held[v]
		if h.row == none {
			return v
		}
		if h.row == reserved || h.used == x.at || slices.Contains(x.reads[x.at], h.row) {
			continue
		}
		if d := x.next(h.row); d > distance {
			best, distance = v, d
		}
	}
	e.spill(best, c)
	return best
}

// next is how far the next instruction of the run is which reads the row.
func (x *run) next(row int32) int {
	for i := x.at + 1; i < len(x.insts); i++ {
		if slices.Contains(x.reads[i], row) {
			return i - x.at
		}
		if x.insts[i].writes(row) {
			break
		}
	}
	return math.MaxInt
}

// writes reports whether a 32-bit row is a result of the instruction of a run.
func (in *Inst) writes(row int32) bool {
	if in.Def.Does == ptx.Load {
		return slices.Contains(in.Vec, row)
	}
	return in.D == row && ptx.ClassOf(in.Def.Args[0].Type) != ptx.Pred
}

// operands are the n 32-bit rows that the instruction of a run computes from; whole reports that it has no others.
func (in *Inst) operands() (rows [3]int32, n int, whole bool) {
	if in.Def.Does == ptx.Load {
		return rows, 0, false
	}
	whole = true
	slots := [...]int32{in.A, in.B, in.C}
	at := 0
	for _, a := range in.Def.Args[1:] {
		if a.Kind == ptx.ArgImm {
			continue
		}
		if c := ptx.ClassOf(a.Type); at == len(slots) || c == ptx.Pred || c == ptx.B64 || c == ptx.F64 {
			whole = false
		} else {
			rows[n] = slots[at]
			n++
		}
		at++
	}
	return rows, n, whole
}

// spill writes what a register holds, if memory has not got it, and frees the register.
func (e *emitter) spill(v, c int) {
	h := &e.run.held[v]
	if h.row >= 0 && h.dirty {
		e.makeExact(v)
		to := e.r(h.row, c)
		if e.masked {
			e.vk(vstoreups, v, 0, to, runningMask+c)
		} else {
			e.v(vstoreups, v, 0, to)
		}
	}
	*h = held{row: none}
}

// makeExact makes the NaNs of a held row canonical; mask register 5 is clobbered.
func (e *emitter) makeExact(v int) {
	if h := &e.run.held[v]; h.loose {
		e.compare(vcmpps, 5, v, v, 3)
		e.pick(5, 0, v, e.vNaN)
		h.loose = false
	}
}

// exact is the operand of chunk c of a 32-bit row; loose is one whose NaNs may be others.
func (e *emitter) exact(row int32, c int) any {
	o := e.loose(row, c)
	if v, ok := o.(int); ok {
		e.makeExact(v)
	}
	return o
}

func (e *emitter) loose(row int32, c int) any {
	x := &e.run
	if v, ok := e.run.lifted[row]; ok {
		return v
	}
	if !x.active {
		return e.r(row, c)
	}
	v := x.find(row)
	if v < 0 {
		if x.next(row) == math.MaxInt {
			return e.r(row, c)
		}
		v = e.free(c)
		e.v(vmovups, v, 0, e.r(row, c))
		x.held[v] = held{row: row}
	}
	x.held[v].used = x.at
	return v
}

// register is an operand in a register: its own, or v.
func (e *emitter) register(v int, operand any) int {
	if own, ok := operand.(int); ok {
		return own
	}
	e.v(vmovups, v, 0, operand)
	return v
}
