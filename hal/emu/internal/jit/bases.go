package jit

import (
	"cmp"
	"slices"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// Before a run begins, the addresses of its loads are checked, so that it can be left to the interpreter as a
// whole. Loads have few bases: addresses from which they have constant distances. A base is in a row when the run
// begins, or is computed in the run from what is.

// base is an address in shared memory by lane.
type base struct {
	row       int32
	from      int       // the first instruction that reads it
	size      int       // of each access
	low, high int64     // the least distance and the greatest
	offsets   int       // where they lie in scratch memory
	likely    ptx.Row32 // an example of the addresses
}

// limit is how many bytes must follow the lowest access of a base.
func (b *base) limit() int { return b.size + int(b.high-b.low) }

// mostBases bounds the bases of a run: their offsets are in scratch memory.
const mostBases = 32

// mostLifted bounds the instructions that compute a base.
const mostLifted = 8

// The mask registers, in masked code, of the running lanes of both chunks.
const runningMask = 6

// The registers that hold offsets of both chunks, the greatest of all offsets and the bits of all, and what is lifted.
const offsets, greatest, allBits, firstLifted = 16, 18, 19, 5

// writer is the last instruction of the run before i that writes a row, or -1.
func (x *run) writer(row int32, i int) int {
	for i--; i >= 0 && !x.insts[i].writes(row); i-- {
	}
	return i
}

// liftable is the number of instructions that compute a row as it is before instruction i of the run, or more than
// mostLifted if it is not computed by few simple ones on what is there when the run begins.
func (x *run) liftable(row int32, i int) int {
	w := x.writer(row, i)
	if w < 0 {
		return 0
	}
	in := &x.insts[w]
	form, ok := lanewiseForm(in)
	rows, n, whole := in.operands()
	if !ok || !form.simple || form.loose || !whole {
		return mostLifted + 1
	}
	sum := 1
	for _, r := range rows[:n] {
		if sum += x.liftable(r, w); sum > mostLifted {
			break
		}
	}
	return sum
}

// lift emits chunk c of a row as it is before instruction i of the run, and returns the operand. Registers from next on
// are free.
func (e *emitter) lift(row int32, i, c int, next *int) any {
	x := &e.run
	w := x.writer(row, i)
	if w < 0 {
		return e.r(row, c)
	}
	in := &x.insts[w]
	rows, n, _ := in.operands()
	operands := map[int32]int{}
	for _, r := range rows[:n] {
		if v, ok := e.lift(r, w, c, next).(int); ok {
			operands[r] = v
		}
	}
	form, _ := lanewiseForm(in)
	x.lifted, e.out = operands, *next
	form.body(e, in, c)
	x.lifted, e.out = nil, 0
	*next++
	return *next - 1
}

// add adds load i of the run to the bases, or reports that it cannot.
func (x *run) add(i int, likely *ptx.Row32) bool {
	in := &x.insts[i]
	size := in.Size * len(in.Vec)
	w := x.writer(in.A, i)
	n := slices.IndexFunc(x.bases, func(b base) bool {
		return b.row == in.A && b.size == size && x.writer(b.row, b.from) == w
	})
	if n < 0 {
		if len(x.bases) == mostBases || x.liftable(in.A, i) > mostLifted {
			return false
		}
		n = len(x.bases)
		x.bases = append(x.bases, base{row: in.A, from: i, size: size, low: in.Imm, high: in.Imm, offsets: 128 * n,
			likely: *likely})
	}
	b := &x.bases[n]
	low, high := min(b.low, in.Imm), max(b.high, in.Imm)
	if (in.Imm-b.low)%int64(size) != 0 || high-low > 1<<20 {
		return false
	}
	b.low, b.high = low, high
	x.baseOf[i] = n
	return true
}

// begin checks the addresses of a run's loads. If one is not in order, the interpreter goes on. Lanes that do not run
// load with the others, unless their addresses are out of bounds.
func (e *emitter) begin() {
	bases := slices.Clone(e.run.bases)
	if len(bases) == 0 {
		return
	}
	slices.SortStableFunc(bases, func(a, b base) int { return cmp.Or(a.limit()-b.limit(), a.size-b.size) })
	e.scratch()
	if !e.masked {
		e.checkBases(bases, false, e.bail())
		return
	}
	partial, done, bail, own := e.newLabel(), e.newLabel(), e.bail(), e.run
	e.checkBases(bases, false, partial)
	e.place(done)
	e.cold = append(e.cold, func() {
		e.run = own
		e.place(partial)
		e.checkBases(bases, true, bail)
		e.jmp(done)
	})
}

// checkedWith reports whether the addresses of two bases are checked as one: their greatest, and all their bits.
func (b *base) checkedWith(other *base) bool {
	return b.limit() == other.limit() && b.size == other.size
}

// checkBases leaves the offsets and ways of bases, those that are checked together in a row, in scratch memory, or
// branches. With running set, lanes that do not run have offset 0.
func (e *emitter) checkBases(bases []base, running bool, fail label) {
	for i := range bases {
		b := &bases[i]
		e.v(vmovups, 4, 0, e.all32(uint32(b.low)-sharedBase))
		for c := range 2 {
			next := firstLifted
			e.v(vpaddd, offsets+c, 4, e.lift(b.row, b.from, c, &next))
			if running {
				e.x.evex(vmovups, w512, offsets+c, 0, offsets+c, mod{k: runningMask + c, zero: true}, 0)
			}
			e.v(vstoreups, offsets+c, 0, at(r14, b.offsets+64*c))
		}
		if i == 0 || !bases[i-1].checkedWith(b) {
			e.v(vmovups, greatest, 0, offsets)
			e.v(vmovups, allBits, 0, offsets)
		} else {
			e.v(vpmaxud, greatest, greatest, offsets)
			e.v(vpor, allBits, allBits, offsets)
		}
		e.v(vpmaxud, greatest, greatest, offsets+1)
		e.v(vpor, allBits, allBits, offsets+1)
		if running {
			e.movi32(b.way(), int32(len(ways)-1))
		} else {
			e.classify(b)
		}
		if i+1 == len(bases) || !bases[i+1].checkedWith(b) {
			e.checkShared(greatest, allBits, b.limit(), b.size, fail)
		}
	}
}

// A way is how the lanes of a base load, as determined when a run begins. It is stored after the offsets.
type way struct {
	group  int  // lanes that load together; 0: each by itself
	spread bool // they load neighbours; else the same
	same   bool // all groups load the same
	load   vectorLoad
}

// ways, of which several may fit, are in ascending order of what they cost.
var ways = [...]way{
	{8, false, false, alikeByOctets},
	{8, true, true, byOctets},
	{4, true, false, byQuads},
	{4, false, false, alike},
	{0, false, false, byLanes},
}

// fits reports whether addresses can be loaded in this way.
func (w way) fits(address *ptx.Row32, size int) bool {
	for l := range address {
		first, step := 0, 0
		if !w.same {
			first = l / w.group * w.group
		}
		if w.spread {
			step = size
		}
		if address[l]-address[first] != uint32(l%w.group*step) {
			return false
		}
	}
	return true
}

// order is the ways of a base, the likeliest first.
func (b *base) order() []int {
	likely := slices.IndexFunc(ways[:], func(w way) bool { return w.group == 0 || w.fits(&b.likely, b.size) })
	order := []int{likely}
	for i := range ways {
		if i != likely {
			order = append(order, i)
		}
	}
	return order
}

// way is where a base's way is stored.
func (b *base) way() mem { return at(r14, 128*mostBases+b.offsets/32) }

// classify finds the way of a base, whose offsets are in registers.
func (e *emitter) classify(b *base) {
	done := e.newLabel()
	order := slices.DeleteFunc(b.order(), func(i int) bool { return ways[i].group == 0 })
	var try func(n int)
	try = func(n int) {
		if n == len(order) {
			e.movi32(b.way(), int32(len(ways)-1))
			return
		}
		w, no := ways[order[n]], e.newLabel()
		switch {
		case w.same:
			e.octets(b.size, no)
		case w.spread:
			e.groups(w.group, b.size, no)
		default:
			e.groups(w.group, 0, no)
		}
		e.movi32(b.way(), int32(order[n]))
		e.cold = append(e.cold, func() {
			e.place(no)
			try(n + 1)
			e.jmp(done)
		})
		if n > 0 {
			e.jmp(done)
		}
	}
	try(0)
	e.place(done)
}

// octets branches unless lanes access neighbouring memory of size bytes each, all groups of eight the same.
func (e *emitter) octets(size int, no label) {
	const from, first = 2, 3
	lane := e.vector32(func(i int) uint32 { return uint32(i % 8 * size) })
	e.v(vbroadcastd, first, 0, offsets)
	for c := range 2 {
		e.v(vpsubd, from, offsets+c, lane)
		e.compare(vpcmpud, 1+c, from, first, 4)
	}
	e.x.kortest(1, 2)
	e.jcc(ccNE, no)
}

// load emits chunk c of load i of a run.
func (e *emitter) load(i, c int) {
	x := &e.run
	in, b := &x.insts[i], &x.bases[x.baseOf[i]]
	var to []int
	for range in.Vec {
		v := e.free(c)
		x.held[v].row = reserved
		to = append(to, v)
	}
	distance := int(in.Imm - b.low)
	order, done := b.order(), e.newLabel()
	var emit func(n int)
	emit = func(n int) {
		others := e.newLabel()
		if n+1 < len(order) {
			e.alu32i(aluCmp, b.way(), int32(order[n]))
			e.jcc(ccNE, others)
			e.cold = append(e.cold, func() {
				e.place(others)
				emit(n + 1)
				e.jmp(done)
			})
		}
		ways[order[n]].load(e, c, to, rShared, distance, func(r, l int) { e.mov32(r, at(r14, b.offsets+4*l)) })
		if n > 0 && n+1 < len(order) {
			e.jmp(done)
		}
	}
	emit(0)
	e.place(done)
	for n, row := range in.Vec {
		if old := x.find(row); old >= 0 {
			x.held[old] = held{row: none}
		}
		x.held[to[n]] = held{row: row, dirty: true, used: x.at}
	}
}
