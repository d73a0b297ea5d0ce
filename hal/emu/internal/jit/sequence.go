package jit

import "slices"

// Matrix products come in blocks, in which each A meets several B and each B several A. With AVX-512, a sequence of
// mma of 16-bit elements converts an operand once, and keeps the result in scratch memory for the next ones.

// Scratch memory of a sequence, after that of a single mma: A, each of its elements in four neighbouring lanes, and
// the B that it has met.
const (
	sequenceA      = scratchBytes
	sequenceB      = sequenceA + 4096
	sequenceBBytes = 512
	mostB          = 8
	sequenceBytes  = sequenceB + mostB*sequenceBBytes
)

// sequence is the number of mma from pc on that make a sequence; of a single one it is 0.
func (e *emitter) sequence(pc int) int {
	if !e.wide || e.masked || e.steps {
		return 0
	}
	op := e.insts[pc].Def.Op
	if p, ok := products[op]; !ok || p.scaled || p.a.perWord != 2 || p.b.perWord != 2 {
		return 0
	}
	n := 0
	for pc+n < len(e.insts) && (n == 0 || !e.leader[pc+n]) && e.insts[pc+n].Def.Op == op && e.insts[pc+n].Guard < 0 {
		n++
	}
	if n == 1 {
		return 0
	}
	return n
}

// emitSequence emits n mma from the current instruction on, and is entered only at the first. Sums are registers of
// another class than operands, so none of them overwrites a saved operand.
func (e *emitter) emitSequence(n int) {
	pc := e.pc
	op := e.insts[pc].Def.Op
	p := products[op]
	var a []int32         // rows of the A in scratch memory
	var bs [mostB][]int32 // and of the B
	next := 0             // where the next B goes
	e.scratch()           // r14, in all of the sequence
	s := at(r14, 0)
	rows := func(i, from, to int) []int32 { return e.insts[pc+i].Vec[from:to] }
	for i := range n {
		in := &e.insts[pc+i]
		if e.pc = pc + i; i > 0 {
			e.place(e.pcs[e.pc])
			e.entry[e.pc] = -1
		}
		e.fragments(in)
		b := rows(i, rowB, rowC)
		slot := slices.IndexFunc(bs[:], func(have []int32) bool { return slices.Equal(have, b) })
		met := slot >= 0
		if !met {
			slot, next = next, (next+1)%mostB
			bs[slot] = b
		}
		e.lea(rFactors, s.plus(sequenceB+slot*sequenceBBytes))
		if !met {
			e.call(e.sub(op+" B", func() { e.spreadB(&p, at(rFactors, 0)) }))
		}
		own := rows(i, rowA, rowB)
		again := i+1 < n && slices.Equal(rows(i+1, rowA, rowB), own)
		switch {
		case slices.Equal(a, own):
			e.call(e.sub(op+" C", func() { e.multiplySpread(&p) }))
		case again:
			a = own
			e.call(e.sub(op+" A", func() { e.spreadA(&p) }))
			e.call(e.sub(op+" C", func() { e.multiplySpread(&p) }))
		default:
			e.call(e.sub(op+" single", func() { e.mmaAVX512(&p) }))
		}
	}
}

// spreadOfA is where element i of a thread's word lies for four rows of A, in scratch memory.
func spreadOfA(half, thread, i, j int) int { return sequenceA + 64*(((half*4+thread)*2+i)*4+j) }

// spreadA converts A into scratch memory.
func (e *emitter) spreadA(p *product) {
	for half := range 2 {
		for j := range 4 {
			const words, t, out = 24, 25, 28
			e.v(vmovups, words, 0, e.row(rowA+2*half+j/2)(j%2))
			e.unpack(p.a, words, 2, t, func(int) int { return out }, func(i int) {
				for thread := range 4 {
					e.vi(vpermilps, 29, 0, out, byte(thread*0x55))
					e.v(vstoreups, 29, 0, at(r14, spreadOfA(half, thread, i, j)))
				}
			})
		}
	}
}

// multiplySpread is mmaAVX512 with an A that spreadA has converted.
func (e *emitter) multiplySpread(p *product) {
	e.loadSums()
	for half := range 2 {
		for thread := range 4 {
			for i := range 2 {
				b := p.rowOfB(half, thread, i)
				e.v(vbroadcastX, 24, 0, at(rFactors, b))
				e.v(vbroadcastX, 25, 0, at(rFactors, b+16))
				for j := range 4 {
					e.v(vmovups, 26+j, 0, at(r14, spreadOfA(half, thread, i, j)))
					c := j%2 + 4*(j/2) // c0 or c2; c1 or c3 stand two further
					e.v(vfmadd231ps, c, 26+j, 24)
					e.v(vfmadd231ps, c+2, 26+j, 25)
				}
			}
		}
	}
	e.storeSums()
}
