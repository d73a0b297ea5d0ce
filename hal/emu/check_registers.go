package emu

import (
	"math/bits"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// tracking finds reads of registers that were never written. A data-flow analysis proves that most reads are safe; only
// the registers of the others are followed while the kernel runs, one bit per lane.
type tracking struct {
	registers []ptx.Reg   // that are followed
	at        []trackInst // by pc
}

// trackInst is what an instruction does with followed registers.
type trackInst struct {
	reads, writes []tracked
}

type tracked struct {
	reg    ptx.Reg
	index  int
	choice choice
}

// choice says in which lanes an operand is read: all that execute, or only those in which selp selects it.
type choice uint8

const (
	always choice = iota
	ifTrue
	ifFalse
	asGuard // in all lanes of the group, to decide which of them execute
)

// registerAccess is a register that an instruction names.
type registerAccess struct {
	reg    ptx.Reg
	choice choice
}

// registersOf lists what an instruction reads and writes.
func registersOf(in *ptx.Instr) (reads, writes []registerAccess) {
	add := func(list *[]registerAccess, o ptx.Operand, c choice) {
		if r, ok := o.(ptx.Reg); ok {
			*list = append(*list, registerAccess{r, c})
		}
	}
	if in.Guarded {
		add(&reads, in.Guard, asGuard)
	}
	for i, o := range in.Operands {
		switch o := o.(type) {
		case ptx.Addr:
			add(&reads, o.Base, always)
		case ptx.Pair:
			add(&writes, o.D, always)
			add(&writes, o.P, always)
		case ptx.Vec:
			for _, e := range o {
				if in.Def.Args[i].Kind == ptx.ArgDst {
					add(&writes, e, always)
				} else {
					add(&reads, e, always)
				}
			}
		default:
			if in.Def.Args[i].Kind == ptx.ArgDst {
				add(&writes, o, always)
			} else {
				add(&reads, o, choice(in.Def.Args[i].Chosen))
			}
		}
	}
	return reads, writes
}

// track analyses a program. It returns nil if every read is proved safe.
func track(p *program) *tracking {
	var base [ptx.NumClasses + 1]int
	for c, n := range p.kernel.Regs {
		base[c+1] = base[c] + n
	}
	number := func(r ptx.Reg) int { return base[r.Class] + r.ID }
	n := base[ptx.NumClasses]

	in := definedAtEntry(p, n, number)
	followed := map[int]int{}
	var registers []ptx.Reg
	walk(p, in, number, func(pc int, have bitset, reads, _ []registerAccess) {
		for _, r := range reads {
			if _, ok := followed[number(r.reg)]; !ok && !have.has(number(r.reg)) {
				followed[number(r.reg)] = len(followed)
				registers = append(registers, r.reg)
			}
		}
	})
	if len(followed) == 0 {
		return nil
	}
	t := &tracking{registers: registers, at: make([]trackInst, len(p.code))}
	walk(p, in, number, func(pc int, have bitset, reads, writes []registerAccess) {
		at := &t.at[pc]
		for _, r := range reads {
			if i, ok := followed[number(r.reg)]; ok && !have.has(number(r.reg)) {
				at.reads = append(at.reads, tracked{r.reg, i, r.choice})
			}
		}
		for _, w := range writes {
			if i, ok := followed[number(w.reg)]; ok {
				at.writes = append(at.writes, tracked{reg: w.reg, index: i})
			}
		}
	})
	return t
}

type bitset []uint64

func (b bitset) has(i int) bool { return b[i/64]>>(i%64)&1 != 0 }
func (b bitset) add(i int)      { b[i/64] |= 1 << (i % 64) }

// successors of an instruction.
func successors(p *program, pc int) []int {
	in := &p.code[pc]
	switch {
	case in.kind == kindBranch && in.guard < 0:
		return []int{int(in.imm)}
	case in.kind == kindBranch:
		return []int{pc + 1, int(in.imm)}
	case in.kind == kindExit && in.guard < 0:
		return nil
	}
	return []int{pc + 1}
}

// leadersOf marks the instructions at which basic blocks begin.
func leadersOf(p *program) []bool {
	lead := make([]bool, len(p.code)+1)
	lead[0] = true
	for pc := range p.code {
		next := successors(p, pc)
		if len(next) == 1 && next[0] == pc+1 {
			continue
		}
		lead[pc+1] = true
		for _, s := range next {
			lead[s] = true
		}
	}
	return lead
}

// definedAtEntry solves, for each basic block, which registers every path to it has written; keyed by first pc.
// Blocks that nothing reaches are absent. Of a kernel with so many blocks and registers that the sets would take much
// memory, it knows of none.
func definedAtEntry(p *program, n int, number func(ptx.Reg) int) map[int]bitset {
	lead := leadersOf(p)
	words := (n + 63) / 64
	blocks := 0
	for _, leads := range lead {
		if leads {
			blocks++
		}
	}
	if blocks*words > maxLiveWords {
		none, in := make(bitset, words), map[int]bitset{}
		for pc, leads := range lead {
			if leads {
				in[pc] = none
			}
		}
		return in
	}
	in := map[int]bitset{0: make(bitset, words)}
	work := []int{0}
	for len(work) > 0 {
		b := work[len(work)-1]
		work = work[:len(work)-1]
		out := append(bitset{}, in[b]...)
		last := b
		for pc := b; ; pc++ {
			last = pc
			if ins := p.code[pc].stmt.Instr; ins != nil && !ins.Guarded {
				_, writes := registersOf(ins)
				for _, w := range writes {
					out.add(number(w.reg))
				}
			}
			if pc+1 >= len(p.code) || lead[pc+1] {
				break
			}
		}
		for _, s := range successors(p, last) {
			if s >= len(p.code) {
				continue
			}
			old, ok := in[s]
			if !ok {
				in[s] = append(bitset{}, out...)
				work = append(work, s)
				continue
			}
			changed := false
			for i := range old {
				if m := old[i] & out[i]; m != old[i] {
					old[i], changed = m, true
				}
			}
			if changed {
				work = append(work, s)
			}
		}
	}
	return in
}

// walk calls f for every reachable instruction with the registers that are surely written before it.
func walk(p *program, in map[int]bitset, number func(ptx.Reg) int, f func(pc int, have bitset, reads, writes []registerAccess)) {
	lead := leadersOf(p)
	var have bitset
	for pc := range p.code {
		if lead[pc] {
			have = nil
			if b, ok := in[pc]; ok {
				have = append(bitset{}, b...)
			}
		}
		ins := p.code[pc].stmt.Instr
		if have == nil || ins == nil {
			continue
		}
		reads, writes := registersOf(ins)
		f(pc, have, reads, writes)
		if !ins.Guarded {
			for _, w := range writes {
				have.add(number(w.reg))
			}
		}
	}
}

// registers checks what the instruction reads and notes what it writes.
func (w *warp) registers(in *inst, t *trackInst) {
	if len(t.reads)+len(t.writes) == 0 {
		return
	}
	mask := w.executing(in)
	for _, r := range t.reads {
		want := mask
		switch r.choice {
		case asGuard:
			want = w.mask
		case ifTrue:
			want &= w.p[in.c]
		case ifFalse:
			want &^= w.p[in.c]
		}
		if bad := want &^ w.defined[r.index]; bad != 0 {
			w.violate(UndefinedRegister, in, bits.TrailingZeros32(bad), "register "+r.reg.String(), "")
		}
	}
	for _, r := range t.writes {
		w.defined[r.index] |= mask
	}
}
