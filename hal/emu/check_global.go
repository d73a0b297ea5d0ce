package emu

import (
	"encoding/binary"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// launchCheck is what the checks know about a launch: happens-before between its blocks.
type launchCheck struct {
	l           *launch
	waited      atomic.Bool // some thread executed griddepcontrol.wait
	overwritten []span      // written and not read: what they held before is gone

	// ordered is held while an acquire or release updates what is known and then accesses memory. Without it, two
	// blocks could learn of each other in one order and access memory in the other.
	ordered  sync.Mutex
	released map[uint64]knowledge // by address: what an acquire of it learns
}

// owners remembers who last wrote and read each grain of a range in this launch. A stamp packs, from the lowest bit: 14
// bits of pc, 5 of lane, 5 of warp, 15 of the warp's clock, 24 of block+1, and 1 for atomics.
type owners struct {
	lo     uint64
	shift  uint
	writer []uint64
	reader []uint64
}

const (
	stampAtomic = 1 << 63
	manyReaders = stampAtomic // read by several blocks: the stamp of none
	lastClock   = 1<<15 - 1   // stands for this clock and all later ones
)

func newOwners(s *span, grain int) *owners {
	return &owners{lo: s.lo, shift: uint(bits.TrailingZeros(uint(grain)))}
}

func stampOf(w *warp, lane int, atomic bool) uint64 {
	s := uint64(min(w.pc, 1<<14-1)) | uint64(lane)<<14 | uint64(w.id)<<19 |
		uint64(min(w.b.check.clock[w.id], lastClock))<<24 | uint64(w.b.index+1)<<39
	if atomic {
		s |= stampAtomic
	}
	return s
}

func stampBlock(s uint64) int { return int(s>>39&(1<<24-1)) - 1 }

// conflict describes the other side of a race.
func (c *blockCheck) conflict(s uint64, write bool) *Access {
	if s == manyReaders {
		return &Access{Write: write}
	}
	l := c.b.l
	i := stampBlock(s)
	a := &Access{Write: write, Thread: c.b.thread(int(s >> 14 & 1023)),
		Block: [3]int{i % l.grid[0], i / l.grid[0] % l.grid[1], i / (l.grid[0] * l.grid[1])}}
	c.b.locateLine(a, int(s&(1<<14-1)))
	return a
}

// locateLine fills in line and text of an instruction.
func (b *block) locateLine(a *Access, pc int) {
	if pc < len(b.l.prog.code) && b.l.prog.code[pc].stmt.Instr != nil {
		a.Line, a.Text = b.l.prog.code[pc].stmt.Line, b.l.prog.code[pc].stmt.Instr.String()
	}
}

// grains is the number of writer stamps of a written span; it has as many reader stamps.
func (s *span) grains() int { return int((s.hi-s.lo)>>s.owners.shift) + 1 }

// begin prepares for a run of the launch. The stamps live in shadow, which the launches of a graph share.
func (l *launch) begin(shadow *[]uint64) {
	l.check.waited.Store(false)
	clear(l.check.released)
	need := 0
	for i := range l.writes {
		need += 2 * l.writes[i].grains()
	}
	if cap(*shadow) < need {
		*shadow = make([]uint64, need)
	}
	rest := (*shadow)[:need]
	clear(rest)
	for i := range l.writes {
		w := &l.writes[i]
		n := w.grains()
		w.owners.writer, w.owners.reader, rest = rest[:n], rest[n:2*n], rest[2*n:]
	}
	for _, s := range l.check.overwritten {
		s.mem.forget(int(s.lo-s.mem.addr), int(s.hi-s.lo))
	}
}

// end makes the checks that need the whole launch.
func (c *launchCheck) end() error {
	if c.l.dependent && !c.waited.Load() {
		return &Violation{Rule: DependentEarly, Kernel: c.l.prog.name,
			Detail: "a dependent launch ended without any thread executing griddepcontrol.wait: the launches after it do not wait for those before it"}
	}
	return nil
}

// early checks that the lanes have executed griddepcontrol.wait.
func (c *blockCheck) early(w *warp, in *inst, s *span, mask uint32) {
	if m := mask &^ w.waited; m != 0 && c.b.l.dependent {
		lane := bits.TrailingZeros32(m)
		w.violate(DependentEarly, in, lane, c.b.l.describe(s.lo+w.off[lane]), "")
	}
}

// firstSet is the index of the first byte that is not 0, or -1.
func firstSet(u []byte) int {
	switch {
	case len(u) == 2 && binary.LittleEndian.Uint16(u) == 0, len(u) == 4 && binary.LittleEndian.Uint32(u) == 0,
		len(u) == 16 && binary.LittleEndian.Uint64(u)|binary.LittleEndian.Uint64(u[8:]) == 0:
		return -1
	}
	return slices.IndexFunc(u, func(b byte) bool { return b != 0 })
}

// defined checks that a lane reads only bytes that were written.
func (c *blockCheck) defined(w *warp, in *inst, s *span, lane int, size uint64) {
	if u := s.mem.undefined; u != nil {
		addr := s.lo + w.off[lane]
		if i := firstSet(u[addr-s.mem.addr:][:size]); i >= 0 {
			w.violate(Uninitialized, in, lane, c.b.l.describe(addr+uint64(i)), "")
		}
	}
}

func (c *blockCheck) globalRead(w *warp, in *inst, s *span, mask uint32, size uint64) {
	if !s.constant {
		c.early(w, in, s, mask)
	}
	own := s.owners
	if s.mem.undefined == nil && own == nil {
		return
	}
	for l := range lanes(mask) {
		addr := s.lo + w.off[l]
		c.defined(w, in, s, l, size)
		if own == nil {
			continue
		}
		c.ownersAt(s, addr, size, func(o *owners, g uint64) {
			stamp := stampOf(w, l, in.def.Order != ptx.Plain)
			old := atomic.LoadUint64(&o.writer[g])
			if old != 0 && c.unordered(w, l, old) && (in.def.Order == ptx.Plain || old&stampAtomic == 0) {
				c.race(w, in, l, o.lo+g<<o.shift, old, true)
			}
			if r := atomic.LoadUint64(&o.reader[g]); r != 0 && (r == manyReaders || stampBlock(r) != c.b.index) {
				stamp = manyReaders
			}
			atomic.StoreUint64(&o.reader[g], stamp)
		})
	}
	if in.def.Order == ptx.Acquire {
		c.acquire(w, s, mask)
	}
}

func (c *blockCheck) globalWrite(w *warp, in *inst, s *span, mask uint32, size uint64) {
	c.early(w, in, s, mask)
	base := s.lo - s.mem.addr
	o := s.owners
	for l := range lanes(mask) {
		if u := s.mem.undefined; u != nil {
			clear(u[base+w.off[l]:][:size])
		}
		stamp := stampOf(w, l, in.def.Order != ptx.Plain)
		for g, last := w.off[l]>>o.shift, (w.off[l]+size-1)>>o.shift; g <= last; g++ {
			old := atomic.SwapUint64(&o.writer[g], stamp)
			if old != 0 && c.unordered(w, l, old) && (in.def.Order == ptx.Plain || old&stampAtomic == 0) {
				if old&^(31<<14) == stamp&^(31<<14) && w.storesAlike(in, mask, uint32(old>>14&1023)|c.clock[w.id]<<10, l) {
					continue
				}
				c.race(w, in, l, o.lo+g<<o.shift, old, true)
			}
			r := atomic.LoadUint64(&o.reader[g])
			if r == 0 || in.def.Order != ptx.Plain && r&stampAtomic != 0 {
				continue
			}
			if r == manyReaders && c.know.nothing(uint32(w.id), uint32(l)) || r != manyReaders && c.unordered(w, l, r) {
				c.race(w, in, l, o.lo+g<<o.shift, r, false)
			}
		}
	}
	if in.def.Order == ptx.Release {
		c.release(w, s, mask, true)
	}
}

// atomic checks a read-modify-write, which races only with plain accesses.
func (c *blockCheck) atomic(w *warp, in *inst, s *span, mask uint32) {
	c.early(w, in, s, mask)
	for l := range lanes(mask) {
		c.defined(w, in, s, l, 4)
		o := s.owners
		for g, last := w.off[l]>>o.shift, (w.off[l]+3)>>o.shift; g <= last; g++ {
			old := atomic.SwapUint64(&o.writer[g], stampOf(w, l, true))
			if old != 0 && old&stampAtomic == 0 && c.unordered(w, l, old) {
				c.race(w, in, l, o.lo+g<<o.shift, old, true)
			}
		}
	}
	releasing := c.know.fenced[w.id] & mask
	if in.def.Order == ptx.AcqRel {
		releasing = mask
	}
	c.release(w, s, releasing, false)
	if in.def.Order == ptx.AcqRel {
		c.acquire(w, s, mask)
	} else {
		c.learnFrom(&c.know.pending[w.id], s, w, mask)
	}
}

// ownersAt calls f for the grains of an access that the launch also writes.
func (c *blockCheck) ownersAt(s *span, addr, size uint64, f func(o *owners, g uint64)) {
	for i := range c.b.l.writes {
		ws := &c.b.l.writes[i]
		lo, hi := max(addr, ws.lo), min(addr+size, ws.hi)
		if lo >= hi {
			continue
		}
		o := ws.owners
		for g := (lo - o.lo) >> o.shift; g <= (hi-1-o.lo)>>o.shift; g++ {
			f(o, g)
		}
	}
}

// unordered reports whether nothing orders an earlier access before what the lane does now.
func (c *blockCheck) unordered(w *warp, lane int, stamp uint64) bool {
	b := stampBlock(stamp)
	at, warp, other := uint32(stamp>>24&lastClock), uint32(stamp>>19&31), uint32(stamp>>14&31)
	switch {
	case at == lastClock:
		return false
	case b != c.b.index:
		return !c.know.covers(uint32(w.id), uint32(lane), int32(b), warp, at, other)
	case warp == uint32(w.id):
		return at >= c.clock[warp] && other != uint32(lane)
	}
	return at > c.seen[warp]
}

func (c *blockCheck) race(w *warp, in *inst, lane int, addr, other uint64, write bool) {
	panic(fault{&Violation{Rule: GlobalRace, Kernel: c.b.l.prog.name, Access: w.access(in, lane),
		Where: c.b.l.describe(addr), Conflict: c.conflict(other, write)}})
}

// release publishes what the lanes know and have done at the locations that they access; a store replaces what was
// published there before. launch.ordered is held.
func (c *blockCheck) release(w *warp, s *span, mask uint32, replace bool) {
	if mask == 0 {
		return
	}
	lc := c.launch
	for lane := range lanes(mask) {
		addr := s.lo + w.off[lane]
		k := lc.released[addr]
		if k == nil || replace {
			k = knowledge{}
			lc.released[addr] = k
		}
		c.know.into(k, uint32(w.id), uint32(lane))
		own := k.of(int32(c.b.index))
		for i, clock := range c.seen {
			own[i].learn(horizon{clock: clock + 1})
		}
		own[w.id].learn(horizon{c.clock[w.id], 1 << lane})
	}
}

func (c *blockCheck) acquire(w *warp, s *span, mask uint32) {
	c.learnFrom(&c.know.lanes[w.id], s, w, mask)
}

// learnFrom gives each lane what was released at its location. launch.ordered is held.
func (c *blockCheck) learnFrom(k *map[uint32]knowledge, s *span, w *warp, mask uint32) {
	for lane := range lanes(mask) {
		learnLane(k, uint32(lane), c.launch.released[s.lo+w.off[lane]])
	}
}

// fence turns relaxed atomics of the lanes before it into acquires and those after it into releases.
func (c *blockCheck) fence(w *warp, mask uint32) {
	c.know.fenced[w.id] |= mask
	for m := mask; m != 0; m &= m - 1 {
		lane := uint32(bits.TrailingZeros32(m))
		learnLane(&c.know.lanes[w.id], lane, c.know.pending[w.id][lane])
	}
}
