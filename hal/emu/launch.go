package emu

import (
	"context"
	"fmt"
	"sync"
	"unsafe"

	"github.com/spark-compile/spark-compile/hal/emu/internal/jit"
	"github.com/spark-compile/spark-compile/internal/parallel"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// launch is a kernel launch, resolved.
type launch struct {
	dev       *Device
	prog      *program
	grid      [3]int
	block     [3]int
	blocks    int // in the grid
	threads   int // in a block
	shared    int // bytes of dynamic shared memory
	params    []byte
	dependent bool
	memories  []*memory // for messages

	reads, writes []span // where the kernel may load and store
	prefetches    []span // with checks on: what it may prefetch
	check         *launchCheck
	track         *tracking  // with checks on: registers to follow
	profile       *profile   // where the device counts
	executes      []bool     // by pc, where only counts are wanted; nil: all
	code          *jit.Code  // native, or nil
	learned       []jit.Site // where native code has found memory, by its instructions
}

// A block that runs for turnSteps without ending yields to others, in case it waits for them; a worker may have
// started up to liveBlocks.
const (
	turnSteps  = 1 << 20
	liveBlocks = 32
)

// run executes all blocks. If several fail, it returns the first block's error. shadow is scratch memory for the
// checks.
func (l *launch) run(ctx context.Context, shadow *[]uint64) error {
	if l.check != nil {
		l.begin(shadow)
	} else {
		l.locate()
	}
	workers := min(l.dev.opts.Workers, l.blocks)
	s := &schedule{launch: l, limit: workers * liveBlocks, errBlock: l.blocks}
	parallel.Drain(workers, func() bool { return s.turn(ctx) })
	if s.err == nil && l.check != nil {
		s.err = l.check.end()
	}
	for _, b := range s.free {
		if b.native != nil {
			l.learned = append(l.learned[:0], b.native.sites...)
		}
	}
	l.dev.release(s.free)
	return s.err
}

// locate finds the bytes of the launch's memories, since other host memory may have been bound. Addresses that native
// code has learned are valid until that changes.
func (l *launch) locate() {
	moved := l.learned == nil
	for i, m := range l.memories {
		s := &l.reads[i]
		moved = moved || unsafe.SliceData(s.data) != unsafe.SliceData(m.data) || len(s.data) != len(m.data)
		s.data = m.data
	}
	if moved && l.code != nil {
		l.learned = l.code.NewSites()
	}
}

// schedule hands blocks out to workers.
type schedule struct {
	launch *launch
	limit  int

	mu       sync.Mutex
	next     int      // the first block not started
	live     int      // started and not yet ended
	changes  int      // turns in which a block may have written
	proofs   []proof  // blocks that cannot go on unless memory changes
	dead     bool     // all running blocks are among proofs
	parked   []*block // yielded
	free     []*block // ended, to be reused
	err      error
	errBlock int
}

// turn runs a block until it ends or yields. It returns false where there is none to run. A block that has yielded goes to
// whichever worker asks next: the one that ran it, if no other.
func (s *schedule) turn(ctx context.Context) bool {
	b := s.take()
	if b == nil {
		return false
	}
	if b.err = ctx.Err(); b.err == nil {
		b.turn()
	}
	s.give(b)
	return true
}

// give takes back the block that a worker ran.
func (s *schedule) give(b *block) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.judge(b)
	switch {
	case s.dead:
	case b.err != nil:
		s.live--
		if b.index < s.errBlock {
			s.err, s.errBlock = b.err, b.index
		}
		// All blocks before this one have started. Let them end, so that every run reports the same error.
		s.next = s.launch.blocks
	case b.done:
		s.live--
		s.free = append(s.free, b)
		if p := s.launch.profile; p != nil {
			p.add(b.sites)
		}
	default:
		s.parked = append(s.parked, b)
	}
}

// take returns the next block to run, or nil.
func (s *schedule) take() *block {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.dead:
		return nil
	case s.next < s.launch.blocks && s.live < s.limit:
		var n *block
		if i := len(s.free); i > 0 {
			n, s.free = s.free[i-1], s.free[:i-1]
		} else {
			n = s.launch.dev.idleBlock().fit(s.launch)
		}
		n.begin(s.next)
		s.next++
		s.live++
		return s.start(n)
	case len(s.parked) == 0:
		return nil
	case s.live > 0 && len(s.proofs) == s.live && s.err == nil:
		s.err, s.dead = s.deadlock(), true
		return nil
	}
	n := s.parked[0]
	s.parked = s.parked[1:]
	return s.start(n)
}

func (s *schedule) start(b *block) *block {
	b.since = s.changes
	return b
}

// block is a thread block in execution.
type block struct {
	l      *launch
	index  int
	id     [3]int
	warps  []warp
	shared []byte
	steps  int64
	waits  *waiting // found at the end of the last turn
	idle   bool     // the last turn found it waiting at its beginning
	since  int      // the schedule's changes when the turn began
	proved int      // the schedule's changes for which it is among the proofs
	done   bool
	err    error
	check  *blockCheck
	sites  []Site // by pc, where the launch is profiled
	native *nativeBlock
	banks  *[32][32]uint32
	cache  *cache

	touched sectors // by the instruction that is counted
}

// fit makes the block, which no launch has, one of a launch.
func (b *block) fit(l *launch) *block {
	b.l, b.native = l, newNativeBlock(l, b.native)
	b.shared, b.warps = resized(b.shared, l.shared), resized(b.warps, (l.threads+31)/32)
	p := l.prog
	for i := range b.warps {
		w := &b.warps[i]
		w.b, w.id = b, i
		w.r, w.q, w.p = resized(w.r, p.nR), resized(w.q, p.nQ), resized(w.p, p.nP)
		if l.track != nil {
			w.defined = resized(w.defined, len(l.track.registers))
		}
		w.full = uint32(1)<<min(32, uint(l.threads-32*i)) - 1
		if i > 0 { // constants, and special registers that are the same for all
			copy(w.r[p.regR:], b.warps[0].r[p.regR:])
			copy(w.q[p.regQ:], b.warps[0].q[p.regQ:])
		} else {
			for _, c := range p.constR {
				fill(&w.r[c.row], c.value)
			}
			for _, c := range p.constQ {
				fill(&w.q[c.row], c.value)
			}
		}
		for _, s := range p.specials {
			switch {
			case s.block || i > 0 && s.launch: // begin fills them, or they are copied above
			case s.launch:
				fill(&w.r[s.row], b.special(s.name, 0))
			default:
				for lane := range w.r[s.row] {
					w.r[s.row][lane] = b.special(s.name, i*32+lane)
				}
			}
		}
	}
	if l.check != nil {
		b.check = newBlockCheck(b)
	}
	if l.profile != nil {
		b.sites, b.banks = make([]Site, len(p.code)), new([32][32]uint32)
		b.cache = new(cache)
	}
	return b
}

// resized is a slice of n elements, which reuses s if its capacity suffices. Its contents are undefined.
func resized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// idleBlock is a block that no launch has, or has any more.
func (d *Device) idleBlock() *block {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := len(d.idle)
	if n == 0 {
		return &block{}
	}
	b := d.idle[n-1]
	d.idle = d.idle[:n-1]
	return b
}

// idleBytes is the most that a block may have which is left to later launches.
const idleBytes = 32 << 20

// release leaves the blocks of a launch that has ended, one a worker at most, to later ones: zeroing and collecting
// their memory takes as long as small kernels do.
func (d *Device) release(blocks []*block) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range blocks {
		bytes := len(b.shared)
		for i := range b.warps {
			w := &b.warps[i]
			bytes += 128*cap(w.r) + 256*cap(w.q) + int(unsafe.Sizeof(asyncCopy{}))*cap(w.copies)
		}
		if bytes > idleBytes || len(d.idle) == d.opts.Workers {
			continue
		}
		for i := range b.warps {
			w := &b.warps[i]
			*w = warp{r: w.r, q: w.q, p: w.p, defined: w.defined, pending: w.pending, copies: w.copies}
		}
		if b.native != nil {
			b.native.code = nil
		}
		d.idle = append(d.idle, &block{warps: b.warps, shared: b.shared, native: b.native})
	}
}

// begin makes the block the grid's index-th, with shared memory zero, and registers if they may be read before they are
// written.
func (b *block) begin(index int) {
	g := b.l.grid
	b.index, b.done, b.err, b.steps = index, false, nil, 0
	b.waits, b.proved = nil, -1
	b.id = [3]int{index % g[0], index / g[0] % g[1], index / (g[0] * g[1])}
	p := b.l.prog
	clear(b.shared)
	for i := range b.warps {
		w := &b.warps[i]
		if p.track != nil {
			w.clear(p.track.registers)
		}
		clear(w.defined)
		w.pc, w.nextPC, w.pending = 0, never, w.pending[:0]
		w.mask, w.live, w.waited = w.full, w.full, 0
		w.state = ready
		w.copies, w.group = w.copies[:0], 0
		for _, s := range p.specials {
			if s.block {
				fill(&w.r[s.row], b.special(s.name, 0))
			}
		}
	}
	if b.check != nil {
		b.check.begin()
	}
	if b.cache != nil {
		clear(b.cache[:])
	}
}

// clear makes registers zero.
func (w *warp) clear(registers []ptx.Reg) {
	for _, r := range registers {
		switch row := w.b.l.prog.rows[r.Class][r.ID]; r.Class {
		case ptx.Pred:
			w.p[row] = 0
		case ptx.B64, ptx.F64:
			clear(w.q[row][:])
		default:
			clear(w.r[row][:])
		}
	}
}

// thread is the index of a thread in its block, from its linear number.
func (b *block) thread(n int) [3]int {
	d := b.l.block
	return [3]int{n % d[0], n / d[0] % d[1], n / (d[0] * d[1])}
}

// special is the value of a special register for a thread (PTX ISA 10).
func (b *block) special(name string, thread int) uint32 {
	switch name {
	case "%laneid":
		return uint32(thread % 32)
	case "%warpid":
		return uint32(thread / 32)
	case string(ptx.SM):
		return uint32(b.index % multiprocessors)
	}
	axis := name[len(name)-1] - 'x'
	switch name[:len(name)-2] {
	case "%tid":
		return uint32(b.thread(thread)[axis])
	case "%ntid":
		return uint32(b.l.block[axis])
	case "%ctaid":
		return uint32(b.id[axis])
	}
	return uint32(b.l.grid[axis])
}

// resume runs the block for a number of steps, or until it ends or fails.
func (b *block) resume(budget int64) {
	var running *warp
	defer func() {
		switch r := recover().(type) {
		case nil:
		case fault:
			b.err = r.err
		default:
			b.err = fmt.Errorf("emu: kernel %s, block %v, line %d: the emulator failed: %v", b.l.prog.name, b.id,
				b.l.prog.code[running.pc].stmt.Line, r)
		}
	}()
	for budget > 0 {
		live, waiting := 0, 0
		for i := range b.warps {
			w := &b.warps[i]
			if w.state == ready {
				running = w
				n := w.advance(1 << 16)
				budget -= n
				b.steps += n
			}
			switch w.state {
			case ready:
				live++
			case atBarrier:
				live++
				waiting++
			}
		}
		if live == 0 {
			b.done = true
			return
		}
		if b.steps > b.l.dev.opts.StepLimit {
			w := &b.warps[0]
			for i := range b.warps {
				if b.warps[i].state == ready {
					w = &b.warps[i]
				}
			}
			w.violate(StepLimit, &b.l.prog.code[w.pc], w.firstLane(), "", "%d instructions in one block", b.steps)
		}
		if waiting == live {
			b.release()
		}
	}
}

// release lets the warps past a barrier at which all of them wait.
func (b *block) release() {
	var first *warp
	for i := range b.warps {
		w := &b.warps[i]
		if w.state != atBarrier {
			continue
		}
		if first == nil {
			first = w
		}
		if w.barrier != first.barrier {
			in := &b.l.prog.code[w.pc-1]
			w.violate(Deadlock, in, w.firstLane(), "", "warp %d waits at barrier %d, warp %d at barrier %d", w.id, w.barrier,
				first.id, first.barrier)
		}
	}
	if b.check != nil {
		b.check.barrier(first)
	}
	for i := range b.warps {
		if b.warps[i].state == atBarrier {
			b.warps[i].state = ready
		}
	}
}
