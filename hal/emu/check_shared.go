package emu

import (
	"fmt"
	"math/bits"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// blockCheck is what the checks know about a block: happens-before between its warps, by barriers.
type blockCheck struct {
	b      *block
	launch *launchCheck

	shift uint // a word of the shadow stands for 1<<shift bytes: the kernel's narrowest shared store
	words []word
	// clock counts what orders the lanes of a warp: barriers and bar.warp.sync. seen is each warp's clock at the last
	// barrier: accesses up to it happen before everything after the barrier.
	clock []uint32
	seen  []uint32
	epoch int // barriers passed
	// atomics holds the words that were last written by atomics. Of several that nothing orders, a word knows only
	// the last.
	atomics map[uint64]atomicWord

	know ownKnowledge // between blocks, by release and acquire
}

// word is the shadow of a word of shared memory. A stamp packs, from the lowest bit: 5 bits of lane, 5 of warp, 21 of
// the clock, and a flag.
type word struct {
	writer   uint32 // last writer; 0: never written; flag: a cp.async that was not waited for
	reader   uint32 // last reader; flag: several lanes of its warp
	readers  uint32 // warps that read since barrier number gen
	gen      uint32
	writerPC uint16
	readerPC uint16
}

const stampFlag = 1 << 31

// atomicWord is a word whose last write was atomic, by this stamp: the next atomic cannot race with it, but with the
// plain write before.
type atomicWord struct {
	stamp, plain uint32
	plainPC      uint16
}

func newBlockCheck(b *block) *blockCheck {
	n := len(b.warps)
	c := &blockCheck{b: b, launch: b.l.check, shift: uint(bits.TrailingZeros(uint(b.l.prog.grainShared))),
		clock: make([]uint32, n), seen: make([]uint32, n)}
	c.words = make([]word, (len(b.shared)+1<<c.shift-1)>>c.shift)
	return c
}

func (c *blockCheck) begin() {
	clear(c.words)
	for i := range c.clock {
		c.clock[i], c.seen[i] = 1, 0
	}
	c.epoch, c.know = 0, ownKnowledge{}
	clear(c.atomics)
}

// barrier orders everything before it before everything after it; w is a warp that takes part.
func (c *blockCheck) barrier(w *warp) {
	in := &c.b.l.prog.code[w.pc-1]
	for i := range c.b.warps {
		if o := &c.b.warps[i]; o.live != o.full {
			lane := bits.TrailingZeros32(o.full &^ o.live)
			w.violate(Divergence, in, w.firstLane(), "", "thread %v has exited", c.b.thread(o.id*32+lane))
		}
	}
	c.epoch++
	for i := range c.clock {
		c.seen[i] = c.clock[i]
		c.tick(&c.b.warps[i], in)
	}
	c.know.barrier()
}

func (c *blockCheck) tick(w *warp, in *inst) {
	c.clock[w.id]++
	if c.clock[w.id] >= 1<<21 {
		panic(fault{fmt.Errorf("emu: kernel %s: line %d: more than 2^21 barriers; run it without checks", c.b.l.prog.name, in.stmt.Line)})
	}
}

func (c *blockCheck) warpBarrier(w *warp, in *inst) {
	if w.mask == w.live {
		c.tick(w, in)
		c.know.warpBarrier(w.id)
	}
}

func describeShared(off uint64, size int) string {
	return fmt.Sprintf("shared memory at offset %d of %d", int32(uint32(off)), size)
}

// before reports whether the access of a stamp happens before what a lane of the warp does now.
func (c *blockCheck) before(stamp uint32, w, lane uint32) bool {
	sw, clock := stamp>>5&31, stamp>>10&(1<<21-1)
	if sw == w {
		return clock < c.clock[w] || stamp&31 == lane
	}
	return clock <= c.seen[sw]
}

func (c *blockCheck) sharedRead(w *warp, in *inst, mask uint32, size uint64) {
	r := c.reading(w, 0)
	if mask != all32 {
		for l := range lanes(mask) {
			r.read(w, in, uint32(l), 0, w.off[l], size)
		}
		return
	}
	leaders, many := leaders(&w.off)
	stamp := r.stamp
	for l := range lanes(leaders) {
		r.stamp = stamp | many>>l<<31
		r.read(w, in, uint32(l), 0, w.off[l], size)
	}
}

// leaders picks one lane to represent others that read the same address, in the patterns in which the threads of a tile
// share operands; many marks the leaders that represent more than themselves.
func leaders(off *[32]uint64) (lead, many uint32) {
	var of [32]uint8
	for l := range off {
		o := off[l]
		switch {
		case l >= 1 && off[l-1] == o:
			of[l] = of[l-1]
		case l >= 8 && off[l-8] == o:
			of[l] = of[l-8]
		case l >= 4 && off[l-4] == o:
			of[l] = of[l-4]
		case l >= 16 && off[l-16] == o:
			of[l] = of[l-16]
		default:
			of[l] = uint8(l)
			lead |= 1 << l
			continue
		}
		many |= 1 << (of[l] & 31)
	}
	return lead, many
}

// matrixRead is ldmatrix: row g of matrix i lies at the address of lane 8i+g; lane 4g+t receives its t-th 4 bytes.
func (c *blockCheck) matrixRead(w *warp, in *inst) {
	flag, step := uint32(0), uint32(1)
	if in.def.Eval.(ptx.Transposed) { // each element goes to another lane
		flag, step = stampFlag, 0
	}
	r := c.reading(w, flag)
	for l := range uint32(32) {
		to := 4 * (l % 8)
		if step == 0 {
			to = l
		}
		r.read(w, in, to, step, w.off[l], 16)
	}
}

// reader holds what all lanes of a reading instruction share.
type reader struct {
	c     *blockCheck
	stamp uint32 // of lane 0
	bit   uint32 // of the warp
	gen   uint32
	pc    uint16
}

func (c *blockCheck) reading(w *warp, flag uint32) reader {
	id := uint32(w.id)
	return reader{c: c, stamp: c.clock[id]<<10 | id<<5 | flag, bit: 1 << id, gen: uint32(c.epoch), pc: uint16(min(w.pc, 1<<16-1))}
}

// read is a lane's read of size bytes at off; with step 1 every further 4 bytes are the next lane's.
func (r *reader) read(w *warp, in *inst, lane, step uint32, off, size uint64) {
	c := r.c
	words := c.words[off>>c.shift : (off+size-1)>>c.shift+1]
	seen := c.seen
	for i := range words {
		e := &words[i]
		at := lane
		if step != 0 {
			at += uint32(i) << c.shift >> 2
		}
		s := e.writer
		if sw := int(s >> 5 & 31); s-1 >= stampFlag-1 || sw >= len(seen) || s>>10 > seen[sw] && r.unordered(s, at) {
			c.badRead(w, in, at, off&^(1<<c.shift-1)+uint64(i)<<c.shift, e)
		}
		stamp := r.stamp | at
		if e.gen == r.gen && e.readers != 0 {
			d := (e.reader ^ stamp) &^ stampFlag
			if d&^31 == 0 { // the same warp, as before
				if d != 0 {
					e.reader |= stampFlag
				}
				continue
			}
			e.readers |= r.bit
		} else {
			e.gen, e.readers = r.gen, r.bit
		}
		e.reader, e.readerPC = stamp, r.pc
	}
}

// unordered reports whether a write does not happen before the read of the lane, or of one that it represents.
func (r *reader) unordered(s, lane uint32) bool {
	if r.stamp >= stampFlag && (s^r.stamp)&(stampFlag-1)>>5 == 0 {
		return true
	}
	return !r.c.before(s, r.stamp>>5&31, lane)
}

func (c *blockCheck) badRead(w *warp, in *inst, lane uint32, off uint64, e *word) {
	where := describeShared(off, len(c.b.shared))
	switch {
	case e.writer == 0:
		w.violate(Uninitialized, in, int(lane), where, "")
	case e.writer&stampFlag != 0:
		c.violateWith(AsyncUnwaited, w, in, lane, where, e.writer, e.writerPC, true)
	}
	c.violateWith(SharedRace, w, in, lane, where, e.writer, e.writerPC, true)
}

func (c *blockCheck) violateWith(rule Rule, w *warp, in *inst, lane uint32, where string, stamp uint32, pc uint16, write bool) {
	a := &Access{Block: c.b.id, Thread: c.b.thread(int(stamp & 1023)), Write: write}
	c.b.locateLine(a, int(pc))
	v := &Violation{Rule: rule, Kernel: c.b.l.prog.name, Access: w.access(in, int(lane)), Where: where, Conflict: a}
	v.Access.Write = in.def.Writes()
	panic(fault{v})
}

func (c *blockCheck) sharedWrite(w *warp, in *inst, mask uint32, size uint64) {
	c.writeLanes(w, in, mask, size, 0)
}

// sharedAtomic checks a read-modify-write of a word, which races only with plain accesses.
func (c *blockCheck) sharedAtomic(w *warp, in *inst, mask uint32) {
	if c.atomics == nil {
		c.atomics = map[uint64]atomicWord{}
	}
	id := uint32(w.id)
	for l := range lanes(mask) {
		stamp := c.clock[id]<<10 | id<<5 | uint32(l)
		for i := w.off[l] >> c.shift; i <= (w.off[l]+3)>>c.shift; i++ {
			e := &c.words[i]
			if e.writer == 0 {
				w.violate(Uninitialized, in, l, describeShared(i<<c.shift, len(c.b.shared)), "")
			}
			a := c.atomics[i]
			if e.writer != a.stamp {
				a.plain, a.plainPC = e.writer, e.writerPC
			}
			e.writer, e.writerPC = a.plain, a.plainPC
			c.suspectWrite(w, in, uint32(l), i<<c.shift, e)
			a.stamp = stamp
			e.writer, e.writerPC, e.readers = stamp, uint16(min(w.pc, 1<<16-1)), 0
			c.atomics[i] = a
		}
	}
}

// matrixWrite is stmatrix: row g of matrix i goes to the address of lane 8i+g, its t-th 4 bytes come from lane 4g+t.
func (c *blockCheck) matrixWrite(w *warp, in *inst) {
	id := uint32(w.id)
	for l := range uint32(8 * len(in.vec)) {
		first, last := w.off[l]>>c.shift, (w.off[l]+15)>>c.shift
		for i := first; i <= last; i++ {
			from := 4*(l%8) + uint32(i-first)<<c.shift>>2
			e := &c.words[i]
			c.suspectWrite(w, in, from, i<<c.shift, e)
			e.writer, e.writerPC, e.readers = c.clock[id]<<10|id<<5|from, uint16(min(w.pc, 1<<16-1)), 0
		}
	}
}

// asyncWrite begins a cp.async: nobody may access its words before asyncArrived.
func (c *blockCheck) asyncWrite(w *warp, in *inst, mask uint32, size uint64) {
	c.writeLanes(w, in, mask, size, stampFlag)
}

func (c *blockCheck) writeLanes(w *warp, in *inst, mask uint32, size uint64, flag uint32) {
	id := uint32(w.id)
	first := c.clock[id]<<10 | id<<5 | flag // the stamp of lane 0
	gen, pc := uint32(c.epoch), uint16(min(w.pc, 1<<16-1))
	seen := c.seen
	for l := range lanes(mask) {
		off := w.off[l]
		words := c.words[off>>c.shift : (off+size-1)>>c.shift+1]
		for i := range words {
			e := &words[i]
			s := e.writer
			if sw := int(s >> 5 & 31); s >= stampFlag || sw >= len(seen) || s>>10 > seen[sw] && !c.before(s, id, uint32(l)) ||
				e.gen == gen && e.readers != 0 {
				if flag == 0 && e.writerPC == pc && (e.gen != gen || e.readers == 0) && (w.storesAlike(in, mask, s, l) || w.storedAlready(in, s, l)) {
					e.writer, e.readers = first|uint32(l), 0
					continue
				}
				c.suspectWrite(w, in, uint32(l), off&^(1<<c.shift-1)+uint64(i)<<c.shift, e)
			}
			e.writer, e.writerPC, e.readers = first|uint32(l), pc, 0
		}
	}
}

// storesAlike reports whether this very instruction stores the same value to the same place for the lane of an
// earlier write as for lane l; storedAlready whether another warp has done so, by the same instruction. Either write
// may take effect, and PTX's memory model does not require programs to be free of data races, so what a thread reads
// after a barrier is defined.
func (w *warp) storesAlike(in *inst, mask uint32, stamp uint32, l int) bool {
	before := int(stamp & 31)
	if stamp>>5&31 != uint32(w.id) || stamp>>10 != w.b.check.clock[w.id] || before >= l || mask>>before&1 == 0 || w.off[before] != w.off[l] {
		return false
	}
	for _, row := range in.vec {
		if in.wide && w.q[row][before] != w.q[row][l] || !in.wide && (w.r[row][before]^w.r[row][l])<<(32-8*min(in.size, 4)) != 0 {
			return false
		}
	}
	return true
}

func (w *warp) storedAlready(in *inst, stamp uint32, l int) bool {
	if stamp >= stampFlag || stamp>>5&31 == uint32(w.id) {
		return false
	}
	have := w.b.shared[w.off[l]:]
	for j, row := range in.vec {
		var v uint64
		if in.wide {
			v = w.q[row][l]
		} else {
			v = uint64(w.r[row][l])
		}
		for i := range int(in.size) {
			if have[j*int(in.size)+i] != byte(v>>(8*i)) {
				return false
			}
		}
	}
	return true
}

// suspectWrite decides whether a write races: its word was accessed since the last barrier, or a copy to it is in
// flight.
func (c *blockCheck) suspectWrite(w *warp, in *inst, lane uint32, off uint64, e *word) {
	id := uint32(w.id)
	if s := e.writer; s != 0 && (s >= stampFlag || !c.before(s, id, lane)) {
		rule := SharedRace
		if s >= stampFlag {
			rule = AsyncUnwaited
		}
		c.violateWith(rule, w, in, lane, describeShared(off, len(c.b.shared)), s, e.writerPC, true)
	}
	if e.gen != uint32(c.epoch) || e.readers == 0 {
		return
	}
	r := e.reader
	own, others := r>>5&31 == id, e.readers&^(1<<id)
	if others == 0 && !(own && r>>10&(1<<21-1) == c.clock[id] && (r&31 != lane || r >= stampFlag)) {
		return
	}
	if own && others != 0 {
		r = uint32(bits.TrailingZeros32(others)) << 5 // some lane of that warp
	}
	c.violateWith(SharedRace, w, in, lane, describeShared(off, len(c.b.shared)), r, e.readerPC, false)
}

// asyncArrived records a copy's words as written by the issuing lanes now.
func (c *blockCheck) asyncArrived(w *warp, a *asyncCopy) {
	id := uint32(w.id)
	for l := range lanes(a.mask) {
		off := uint64(a.dst[l])
		words := c.words[off>>c.shift : (off+uint64(a.size)-1)>>c.shift+1]
		for i := range words {
			words[i].writer = c.clock[id]<<10 | id<<5 | uint32(l)
		}
	}
}
