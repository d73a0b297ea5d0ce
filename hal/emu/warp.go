package emu

import (
	"math/bits"
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
	p  []uint32 // a predicate is a bit a lane

	pc      int
	mask    uint32 // lanes of the running group
	live    uint32 // lanes that have not exited
	full    uint32 // lanes that exist
	pending []split
	nextPC  int // least pc of pending
	state   warpState
	barrier int
	waited  uint32   // lanes that executed griddepcontrol.wait
	defined []uint32 // of the registers that the checks follow: lanes that wrote them

	off    [32]uint64 // scratch of address resolution
	hint   int        // the span of the last access
	tr     row32      // results under a partial mask
	tq     row64
	copies []asyncCopy
	group  int // cp.async groups committed
	fresh  int // copies in no group yet
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

const all32 = 1<<32 - 1

// run executes at most budget instructions and returns how many it did. It stops at a barrier and when the lanes have
// exited.
func (w *warp) run(budget int64) int64 {
	code := w.b.l.prog.code
	r, q, p := w.r, w.q, w.p
	var followed []trackInst
	if t := w.b.l.track; t != nil {
		followed = t.at
	}
	var n int64
	for ; n < budget && w.state == ready; n++ {
		if w.pc >= w.nextPC {
			w.merge()
		}
		in := &code[w.pc]
		mask := w.mask
		if followed != nil {
			w.registers(in, &followed[w.pc])
		}
		if in.guard >= 0 {
			g := p[in.guard]
			if in.negate {
				g = ^g
			}
			mask &= g
			if mask == 0 && in.kind != kindBranch {
				w.pc++
				continue
			}
		}
		switch in.kind {
		case kindR:
			if mask == all32 {
				in.fR(&r[in.d], &r[in.a], &r[in.b], &r[in.c])
			} else {
				in.fR(&w.tr, &r[in.a], &r[in.b], &r[in.c])
				blend(&r[in.d], &w.tr, mask)
			}
		case kindQ:
			if mask == all32 {
				in.fQ(&q[in.d], &q[in.a], &q[in.b], &q[in.c])
			} else {
				in.fQ(&w.tq, &q[in.a], &q[in.b], &q[in.c])
				blendQ(&q[in.d], &w.tq, mask)
			}
		case kindQR:
			c := &w.tq // mul.wide has no third operand, and there may be no Q row but the destination
			if int(in.c) < len(q) {
				c = &q[in.c]
			}
			if mask == all32 {
				in.fQR(&q[in.d], &r[in.a], &r[in.b], c)
			} else {
				in.fQR(&w.tq, &r[in.a], &r[in.b], c)
				blendQ(&q[in.d], &w.tq, mask)
			}
		case kindRQ:
			if mask == all32 {
				in.fRQ(&r[in.d], &q[in.a])
			} else {
				in.fRQ(&w.tr, &q[in.a])
				blend(&r[in.d], &w.tr, mask)
			}
		case kindQQR:
			if mask == all32 {
				in.fQQR(&q[in.d], &q[in.a], &r[in.b])
			} else {
				in.fQQR(&w.tq, &q[in.a], &r[in.b])
				blendQ(&q[in.d], &w.tq, mask)
			}
		case kindPR:
			p[in.d] = p[in.d]&^mask | in.fPR(&r[in.a], &r[in.b])&mask
		case kindPQ:
			p[in.d] = p[in.d]&^mask | in.fPQ(&q[in.a], &q[in.b])&mask
		case kindP:
			p[in.d] = p[in.d]&^mask | in.fP(p[in.a], p[in.b])&mask
		case kindSelR:
			if mask == all32 {
				selectR(&r[in.d], &r[in.a], &r[in.b], p[in.c])
			} else {
				selectR(&w.tr, &r[in.a], &r[in.b], p[in.c])
				blend(&r[in.d], &w.tr, mask)
			}
		case kindSelQ:
			if mask == all32 {
				selectQ(&q[in.d], &q[in.a], &q[in.b], p[in.c])
			} else {
				selectQ(&w.tq, &q[in.a], &q[in.b], p[in.c])
				blendQ(&q[in.d], &w.tq, mask)
			}
		case kindBranch:
			if in.uniform && mask != w.mask && mask != 0 {
				w.violate(Divergence, in, w.firstLane(), "", "lanes %#x of %#x take it", mask, w.mask)
			}
			w.branch(int(in.imm), mask)
			continue
		case kindExit:
			w.exit(mask)
			continue
		default:
			w.effect(in, mask)
		}
		w.pc++
	}
	return n
}

// effect executes an instruction that touches more than registers of its own lane.
func (w *warp) effect(in *inst, mask uint32) {
	switch in.kind {
	case kindLoadParam:
		w.loadParam(in, mask)
	case kindLoadGlobal, kindStoreGlobal:
		w.global(in, mask)
	case kindLoadShared, kindStoreShared:
		w.shared(in, mask)
	case kindAtomic:
		w.atomic(in, mask)
	case kindPrefetch, kindNop:
	case kindCopyAsync:
		w.copyAsync(in, mask)
	case kindCommit:
		w.commit(in, mask)
	case kindWaitGroup:
		w.waitGroup(in, mask)
	case kindMMA:
		w.together(in, mask, all32)
		in.fMMA(w.r, in.vec)
	case kindMMAScaled:
		w.together(in, mask, all32)
		if lane, why := badSelector(w.r, in.vec); why != "" {
			w.violate(ScaleSelector, in, lane, "", "%s", why)
		}
		in.fMMA(w.r, in.vec)
	case kindLoadMatrix:
		w.together(in, mask, all32)
		w.loadMatrix(in)
	case kindShuffle:
		w.shuffle(in, mask)
	case kindBarrier:
		w.together(in, mask, w.full)
		w.state, w.barrier = atBarrier, int(in.imm)
	case kindWarpBarrier:
		for m := mask; m != 0; m &= m - 1 {
			lane := bits.TrailingZeros32(m)
			if member := w.r[in.a][lane] & w.full; member != mask {
				w.violate(Divergence, in, lane, "", "member mask %#x, executing lanes %#x", member, mask)
			}
		}
		if w.b.check != nil {
			w.b.check.warpBarrier(w, in)
		}
	case kindFence:
		if w.b.check != nil {
			w.b.check.fence(w, mask)
		}
	case kindGridWait:
		w.waited |= mask
		if w.b.check != nil {
			w.b.check.launch.waited.Store(true)
		}
	}
}

// together checks that all of want execute an .aligned instruction.
func (w *warp) together(in *inst, mask, want uint32) {
	if mask != want {
		w.violate(Divergence, in, bits.TrailingZeros32(want&^mask), "", "lanes %#x of %#x execute it", mask, want)
	}
}

func blend(d, s *row32, mask uint32) {
	for l := range d {
		if mask>>l&1 != 0 {
			d[l] = s[l]
		}
	}
}

func blendQ(d, s *row64, mask uint32) {
	for l := range d {
		if mask>>l&1 != 0 {
			d[l] = s[l]
		}
	}
}

func selectR(d, a, b *row32, m uint32) {
	for l := range d {
		k := -(m >> l & 1)
		d[l] = a[l]&k | b[l]&^k
	}
}

func selectQ(d, a, b *row64, m uint32) {
	for l := range d {
		k := -uint64(m >> l & 1)
		d[l] = a[l]&k | b[l]&^k
	}
}

// shuffleMode is how shfl.sync computes the source lane.
type shuffleMode int64

const (
	shuffleIdx shuffleMode = iota
	shuffleUp
	shuffleDown
	shuffleBfly
)

var shuffleModes = map[string]shuffleMode{"idx": shuffleIdx, "up": shuffleUp, "down": shuffleDown, "bfly": shuffleBfly}

// shuffle is shfl.sync (PTX ISA, shfl.sync, pseudocode).
func (w *warp) shuffle(in *inst, mask uint32) {
	src, bs, cs, members := w.r[in.a], &w.r[in.b], &w.r[in.c], &w.r[in.vec[1]]
	var out row32
	var in1 uint32
	for m := mask; m != 0; m &= m - 1 {
		lane := bits.TrailingZeros32(m)
		if members[lane]&w.live != mask {
			w.violate(Divergence, in, lane, "", "member mask %#x, executing lanes %#x", members[lane], mask)
		}
		bval, cval, seg := int(bs[lane]&31), int(cs[lane]&31), int(cs[lane]>>8&31)
		most, least := lane&seg|cval&^seg, lane&seg
		var j int
		var ok bool
		switch shuffleMode(in.imm) {
		case shuffleUp:
			j = lane - bval
			ok = j >= most
		case shuffleDown:
			j = lane + bval
			ok = j <= most
		case shuffleBfly:
			j = lane ^ bval
			ok = j <= most
		case shuffleIdx:
			j = least | bval&^seg
			ok = j <= most
		}
		if !ok {
			j = lane
		} else {
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
