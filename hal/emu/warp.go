package emu

import (
	"iter"
	"math/bits"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

type warpState uint8

const (
	ready warpState = iota
	atBarrier
	exited
)

// never is a pc that no instruction has.
const never = 1 << 30

// split is a group of lanes that waits for the running group to reach its pc, or to pass it.
type split struct {
	pc   int
	mask uint32
}

// warp is 32 lanes and their registers.
type warp struct {
	b  *block
	id int
	r  []row32
	q  []row64
	p  []uint32 // predicates, one bit per lane

	pc      int
	mask    uint32 // lanes of the running group
	live    uint32 // lanes that have not exited
	full    uint32 // lanes that exist
	pending []split
	nextPC  int // least pc of pending
	state   warpState
	barrier int
	waited  uint32   // lanes that executed griddepcontrol.wait
	defined []uint32 // by register that the checks follow: the lanes that have written it

	off    [32]uint64 // scratch of address resolution
	hint   int        // the span of the last access
	tr     row32      // results under a partial mask
	tq     row64
	copies []asyncCopy
	group  int // cp.async groups committed
}

func (w *warp) firstLane() int { return bits.TrailingZeros32(w.mask | 1<<31) }

// merge puts the running group among the pending ones and continues with all groups at the least pc.
func (w *warp) merge() {
	if w.mask != 0 {
		w.pending = append(w.pending, split{w.pc, w.mask})
	}
	w.pc, w.mask = never, 0
	for _, s := range w.pending {
		w.pc = min(w.pc, s.pc)
	}
	w.nextPC = never
	rest := w.pending[:0]
	for _, s := range w.pending {
		if s.pc == w.pc {
			w.mask |= s.mask
		} else {
			rest = append(rest, s)
			w.nextPC = min(w.nextPC, s.pc)
		}
	}
	w.pending = rest
}

// branch sends the lanes of taken to target, the others on.
func (w *warp) branch(target int, taken uint32) {
	switch rest := w.mask &^ taken; {
	case rest == 0:
		w.pc = target
	case taken == 0:
		w.pc++
	default:
		w.pending = append(w.pending, split{target, taken})
		w.mask = rest
		w.pc++
		w.merge()
	}
}

// exit ends lanes.
func (w *warp) exit(mask uint32) {
	w.live &^= mask
	w.mask &^= mask
	w.pc++
	if w.mask != 0 {
		return
	}
	if w.live == 0 {
		w.state = exited
		return
	}
	w.merge()
}

// executing is the mask of the lanes that execute an instruction: those of the running group whose guard is true.
func (w *warp) executing(in *inst) uint32 {
	if in.guard < 0 {
		return w.mask
	}
	if in.negate {
		return w.mask &^ w.p[in.guard]
	}
	return w.mask & w.p[in.guard]
}

// lanes iterates over the lanes of a mask in ascending order.
func lanes(mask uint32) iter.Seq[int] {
	return func(yield func(int) bool) {
		for m := mask; m != 0; m &= m - 1 {
			if !yield(bits.TrailingZeros32(m) & 31) {
				return
			}
		}
	}
}

const all32 = 1<<32 - 1

// run executes at most budget instructions and returns their number. It stops at a barrier, and when all lanes have
// exited.
func (w *warp) run(budget int64) int64 {
	code := w.b.l.prog.code
	r, q, p := w.r, w.q, w.p
	var followed []trackInst
	if t := w.b.l.track; t != nil {
		followed = t.at
	}
	native := w.stepping()
	var n int64
	for ; n < budget && w.state == ready; n++ {
		if w.pc >= w.nextPC {
			w.merge()
		}
		in := &code[w.pc]
		mask := w.executing(in)
		if followed != nil {
			w.registers(in, &followed[w.pc])
		}
		if mask == 0 && in.guard >= 0 && in.kind != kindBranch {
			w.pc++
			continue
		}
		if native != nil && in.kind < kindBranch && w.step(native, mask) {
			w.pc++
			continue
		}
		switch in.kind {
		case kindR:
			d := resultRow(&r[in.d], &w.tr, mask)
			in.fR(d, &r[in.a], &r[in.b], &r[in.c])
			keepLanes(&r[in.d], d, mask)
		case kindQ:
			d := resultRow(&q[in.d], &w.tq, mask)
			in.fQ(d, &q[in.a], &q[in.b], &q[in.c])
			keepLanes(&q[in.d], d, mask)
		case kindQR:
			c := &w.tq // mul.wide has no third operand, and there may be no Q row but the destination
			if int(in.c) < len(q) {
				c = &q[in.c]
			}
			d := resultRow(&q[in.d], &w.tq, mask)
			in.fQR(d, &r[in.a], &r[in.b], c)
			keepLanes(&q[in.d], d, mask)
		case kindRQ:
			d := resultRow(&r[in.d], &w.tr, mask)
			in.fRQ(d, &q[in.a])
			keepLanes(&r[in.d], d, mask)
		case kindQQR:
			d := resultRow(&q[in.d], &w.tq, mask)
			in.fQQR(d, &q[in.a], &r[in.b])
			keepLanes(&q[in.d], d, mask)
		case kindPR:
			p[in.d] = p[in.d]&^mask | in.fPR(&r[in.a], &r[in.b])&mask
		case kindPQ:
			p[in.d] = p[in.d]&^mask | in.fPQ(&q[in.a], &q[in.b])&mask
		case kindP:
			p[in.d] = p[in.d]&^mask | in.fP(p[in.a], p[in.b])&mask
		case kindSelR:
			d := resultRow(&r[in.d], &w.tr, mask)
			in.fSel(d, &r[in.a], &r[in.b], p[in.c])
			keepLanes(&r[in.d], d, mask)
		case kindSelQ:
			d := resultRow(&q[in.d], &w.tq, mask)
			in.fSelQ(d, &q[in.a], &q[in.b], p[in.c])
			keepLanes(&q[in.d], d, mask)
		case kindBranch:
			if in.def.Together == ptx.AgreeingLanes && mask != w.mask && mask != 0 {
				w.violate(Divergence, in, w.firstLane(), "", "lanes %#x of %#x take it", mask, w.mask)
			}
			w.branch(int(in.imm), mask)
			continue
		case kindExit:
			w.exit(mask)
			continue
		case kindParam:
			w.loadParam(in, mask)
		case kindGlobal:
			w.global(in, mask)
		case kindShared:
			w.shared(in, mask)
		case kindEffect:
			w.effect(in, mask, native)
		}
		w.pc++
	}
	return n
}

// effect executes an instruction that touches more than registers of its own lane.
func (w *warp) effect(in *inst, mask uint32, native *nativeBlock) {
	switch in.def.Together {
	case ptx.AllLanes:
		w.together(in, mask, all32)
	case ptx.BlockLanes:
		w.together(in, mask, w.full)
	case ptx.LivingLanes:
		w.together(in, mask, w.live)
	}
	check := w.b.check
	switch in.def.Does {
	case ptx.Atomic:
		if in.def.Args[1].Space == "shared" {
			w.atomicShared(in, mask)
		} else {
			w.atomic(in, mask)
		}
	case ptx.CopyAsync:
		w.copyAsync(in, mask)
	case ptx.Prefetch:
		w.prefetch(in, mask)
	case ptx.CommitCopies:
		w.group++ // groups belong to threads, but all threads of a warp close theirs together
	case ptx.WaitCopies:
		w.waitGroup(in)
	case ptx.Multiply:
		if f := in.def.Undefined; f != nil {
			if lane, why := f(w.r, in.vec); why != "" {
				w.violate(ScaleSelector, in, lane, "", "%s", why)
			}
		}
		if native == nil || !w.step(native, mask) {
			in.fMMA(w.r, in.vec)
		}
	case ptx.LoadMatrix:
		w.loadMatrix(in)
	case ptx.StoreMatrix:
		w.storeMatrix(in)
	case ptx.MoveMatrix:
		in.def.Eval.(func(d, a *row32))(&w.r[in.d], &w.r[in.a])
	case ptx.Shuffle:
		w.shuffle(in, mask)
	case ptx.Reduce:
		w.reduce(in, mask)
	case ptx.Barrier:
		w.state, w.barrier = atBarrier, int(in.imm)
	case ptx.WarpBarrier:
		for lane := range lanes(mask) {
			if member := w.r[in.a][lane] & w.full; member != mask {
				w.violate(Divergence, in, lane, "", "member mask %#x, executing lanes %#x", member, mask)
			}
		}
		if check != nil {
			check.warpBarrier(w, in)
		}
	case ptx.Fence:
		if check != nil {
			check.fence(w, mask)
		}
	case ptx.GridWait:
		w.waited |= mask
		if check != nil {
			check.launch.waited.Store(true)
		}
	}
}

// together checks that all of want execute an instruction.
func (w *warp) together(in *inst, mask, want uint32) {
	if mask != want {
		w.violate(Divergence, in, bits.TrailingZeros32(want&^mask), "", "lanes %#x of %#x execute it", mask, want)
	}
}

// resultRow is where an instruction writes its result: the row itself, or a spare one from which keepLanes copies the
// executing lanes.
func resultRow[T uint32 | uint64](row, spare *[32]T, mask uint32) *[32]T {
	if mask == all32 {
		return row
	}
	return spare
}

func keepLanes[T uint32 | uint64](row, result *[32]T, mask uint32) {
	if mask != all32 {
		blend(row, result, mask)
	}
}

func blend[T uint32 | uint64](d, s *[32]T, mask uint32) {
	for l := range d {
		if mask>>l&1 != 0 {
			d[l] = s[l]
		}
	}
}

// shuffle is shfl.sync (PTX ISA, shfl.sync, pseudocode).
func (w *warp) shuffle(in *inst, mask uint32) {
	src, bs, cs, members := w.r[in.a], &w.r[in.b], &w.r[in.c], &w.r[in.vec[1]]
	source := in.def.Eval.(ptx.Source)
	var out row32
	var in1 uint32
	for lane := range lanes(mask) {
		if members[lane]&w.live != mask {
			w.violate(Divergence, in, lane, "", "member mask %#x, executing lanes %#x", members[lane], mask)
		}
		j, inRange := source(uint32(lane), bs[lane], cs[lane])
		if inRange {
			in1 |= 1 << lane
		}
		if mask>>j&1 == 0 {
			w.violate(Divergence, in, lane, "", "it reads lane %d, which does not execute it", j)
		}
		out[lane] = src[j]
	}
	blend(&w.r[in.d], &out, mask)
	pd := in.vec[0]
	w.p[pd] = w.p[pd]&^mask | in1&mask
}

// reduce is redux.sync: all members get what combines their values.
func (w *warp) reduce(in *inst, mask uint32) {
	src, members := &w.r[in.a], &w.r[in.b]
	var sum uint32
	first := true
	for lane := range lanes(mask) {
		if members[lane]&w.live != mask {
			w.violate(Divergence, in, lane, "", "member mask %#x, executing lanes %#x", members[lane], mask)
		}
		if first {
			sum, first = src[lane], false
		} else {
			sum = in.fTwo(sum, src[lane])
		}
	}
	fill(&w.tr, sum)
	blend(&w.r[in.d], &w.tr, mask)
}
