package emu

import (
	"math/bits"
	"slices"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// Compilers to PTX give each value a register of its own, which the driver maps to the few that a thread has. So does
// this: registers that are never live together share rows, and the rows of a warp stay in the processor's first cache.

// rowOf is the row of each register, by class and number. Predicates have rows of their own.
type rowOf [ptx.NumClasses][]int32

// classesR and classesQ are the classes of registers in the files of 32-bit and 64-bit rows.
var (
	classesR = []ptx.Class{ptx.B32, ptx.F32, ptx.B16, ptx.B8}
	classesQ = []ptx.Class{ptx.B64, ptx.F64}
)

// allocateRows maps the registers of a kernel to rows and returns the numbers of rows: of 32 bits and of 64 bits.
// labels are the indices of instructions. A register that may be read before it is written has a row from the
// beginning on. In a kernel with too many registers and branches for maxLiveWords, each register has a row of its
// own. dies has the 32-bit rows that nothing reads after an instruction until they are written again.
func allocateRows(k *ptx.Kernel, labels map[string]int) (rows rowOf, dies map[int][]int32, nR, nQ int) {
	var base [ptx.NumClasses + 1]int
	for c, n := range k.Regs {
		base[c+1] = base[c] + n
		rows[c] = make([]int32, n)
		for i := range rows[c] {
			rows[c][i] = int32(i)
		}
	}
	code := instructions(k)
	blocks := basicBlocks(code, labels)
	if len(blocks)*base[ptx.NumClasses]/64 > maxLiveWords {
		rows, nR, nQ = separateRows(k, rows)
		return rows, nil, nR, nQ
	}
	lives := lifetimes(code, blocks, base)
	for _, file := range []struct {
		classes []ptx.Class
		rows    *int
	}{{classesR, &nR}, {classesQ, &nQ}} {
		var regs []lifetime
		for _, c := range file.classes {
			for i := range k.Regs[c] {
				if l := lives[base[c]+i]; l.end >= 0 {
					l.row = &rows[c][i]
					regs = append(regs, l)
				} else {
					rows[c][i] = 0 // nothing names it
				}
			}
		}
		*file.rows = shareRows(regs)
	}
	dies = map[int][]int32{}
	for _, c := range classesR {
		for i, row := range rows[c] {
			if end := lives[base[c]+i].end; end >= 0 {
				dies[end] = append(dies[end], row)
			}
		}
	}
	return rows, dies, nR, nQ
}

// maxLiveWords bounds the memory of the analysis: 64-bit words of sets of registers, of each of which there are three.
const maxLiveWords = 1 << 21

// separateRows gives each register a row of its own.
func separateRows(k *ptx.Kernel, rows rowOf) (separate rowOf, nR, nQ int) {
	for _, file := range []struct {
		classes []ptx.Class
		n       *int
	}{{classesR, &nR}, {classesQ, &nQ}} {
		for _, c := range file.classes {
			for i := range rows[c] {
				rows[c][i] += int32(*file.n)
			}
			*file.n += k.Regs[c]
		}
	}
	return rows, nR, nQ
}

// instructions are those of a kernel, without labels.
func instructions(k *ptx.Kernel) (code []*ptx.Instr) {
	for i := range k.Body {
		if in := k.Body[i].Instr; in != nil {
			code = append(code, in)
		}
	}
	return code
}

// lifetime is a range of instructions outside of which a register's value is of no use; its end is -1 if it is never
// accessed.
type lifetime struct {
	begin, end int
	row        *int32
}

// shareRows assigns rows to lifetimes, the least that is free, and returns their number: a linear scan (Poletto and
// Sarkar, 1999). Lifetimes that meet in one instruction do not share.
func shareRows(lives []lifetime) (rows int) {
	slices.SortStableFunc(lives, func(a, b lifetime) int { return a.begin - b.begin })
	ending := slices.Clone(lives)
	slices.SortStableFunc(ending, func(a, b lifetime) int { return a.end - b.end })
	free := make(bitset, (len(lives)+63)/64)
	for _, l := range lives {
		for ; ending[0].end < l.begin; ending = ending[1:] {
			free.add(int(*ending[0].row))
		}
		*l.row = int32(rows)
		if w := slices.IndexFunc(free, func(w uint64) bool { return w != 0 }); w >= 0 {
			*l.row = int32(64*w + bits.TrailingZeros64(free[w]))
			free[w] &= free[w] - 1
		} else {
			rows++
		}
	}
	return rows
}

// lifetimes are those of the registers of code, numbered by class from base on.
func lifetimes(code []*ptx.Instr, blocks []basicBlock, base [ptx.NumClasses + 1]int) []lifetime {
	lives := make([]lifetime, base[ptx.NumClasses])
	for i := range lives {
		lives[i] = lifetime{begin: len(code), end: -1}
	}
	at := func(reg, pc int) {
		l := &lives[reg]
		l.begin, l.end = min(l.begin, pc), max(l.end, pc)
	}
	words := (len(lives) + 63) / 64
	for i := range blocks {
		b := &blocks[i]
		b.needs, b.kills, b.live = make(bitset, words), make(bitset, words), make(bitset, words)
		for pc := b.begin; pc < b.end; pc++ {
			reads, writes := registersOf(code[pc])
			for _, r := range reads {
				reg := base[r.reg.Class] + r.reg.ID
				if at(reg, pc); !b.kills.has(reg) {
					b.needs.add(reg)
				}
			}
			for _, w := range writes {
				reg := base[w.reg.Class] + w.reg.ID
				if at(reg, pc); !code[pc].Guarded { // else lanes that do not execute it keep what they have
					b.kills.add(reg)
				}
			}
		}
	}
	for changed := true; changed; { // live: at the beginning of a block
		changed = false
		for i := len(blocks) - 1; i >= 0; i-- {
			b := &blocks[i]
			for w := range words {
				out := uint64(0)
				for _, s := range b.next {
					out |= blocks[s].live[w]
				}
				if in := b.needs[w] | out&^b.kills[w]; in != b.live[w] {
					b.live[w], changed = in, true
				}
			}
		}
	}
	each := func(set bitset, pc int) {
		for w, word := range set {
			for ; word != 0; word &= word - 1 {
				at(64*w+bits.TrailingZeros64(word), pc)
			}
		}
	}
	for _, b := range blocks {
		each(b.live, b.begin)
		for _, s := range b.next {
			each(blocks[s].live, b.end-1)
		}
	}
	return lives
}

// basicBlock is a range of instructions without branches into it or out of it.
type basicBlock struct {
	begin, end         int
	next               []int // blocks
	needs, kills, live bitset
}

// basicBlocks splits code. Labels at its end, and branches out of it, lead nowhere.
func basicBlocks(code []*ptx.Instr, labels map[string]int) []basicBlock {
	target := func(in *ptx.Instr) int {
		if ref, ok := in.Operands[0].(ptx.Ref); ok {
			if pc, ok := labels[string(ref)]; ok {
				return pc
			}
		}
		return len(code)
	}
	leads := make([]bool, len(code)+1)
	leads[0] = true
	for pc, in := range code {
		switch in.Def.Does {
		case ptx.Branch:
			leads[target(in)], leads[pc+1] = true, true
		case ptx.Exit:
			leads[pc+1] = true
		}
	}
	var blocks []basicBlock
	of := make([]int, len(code)+1)
	for pc := range code {
		if leads[pc] {
			blocks = append(blocks, basicBlock{begin: pc})
		}
		of[pc] = len(blocks) - 1
		blocks[len(blocks)-1].end = pc + 1
	}
	of[len(code)] = -1
	for i := range blocks {
		b := &blocks[i]
		last := code[b.end-1]
		next := []int{of[b.end]}
		switch {
		case last.Def.Does == ptx.Branch && last.Guarded:
			next = append(next, of[target(last)])
		case last.Def.Does == ptx.Branch:
			next = []int{of[target(last)]}
		case last.Def.Does == ptx.Exit && !last.Guarded:
			next = nil
		}
		b.next = slices.DeleteFunc(next, func(n int) bool { return n < 0 })
	}
	return blocks
}
