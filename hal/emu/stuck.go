package emu

import (
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// A block that has run for a long time may be waiting for another block, or looping for ever. stuck decides that
// exactly: a warp that comes back to an instruction with the same registers, and has stored nothing in between, will
// repeat the same instructions until memory changes. A launch is declared dead only if that holds for all of its
// running blocks.

// probeSteps bounds the search for a repeated state. Loops that wait are shorter.
const probeSteps = 1 << 14

// snapshot is everything but memory that decides what a warp does next.
type snapshot struct {
	pc      int
	mask    uint32
	live    uint32
	r       []row32
	q       []row64
	p       []uint32
	pending []split
}

func (w *warp) snapshot() snapshot {
	n := w.b.l.prog
	return snapshot{w.pc, w.mask, w.live, slices.Clone(w.r[:n.regR]), slices.Clone(w.q[:n.regQ]), slices.Clone(w.p), slices.Clone(w.pending)}
}

func (w *warp) equals(s *snapshot) bool {
	n := w.b.l.prog
	return w.pc == s.pc && w.mask == s.mask && w.live == s.live && slices.Equal(w.p, s.p) && slices.Equal(w.pending, s.pending) &&
		slices.Equal(w.r[:n.regR], s.r) && slices.Equal(w.q[:n.regQ], s.q)
}

// waiting describes what a looping warp waits for.
type waiting struct {
	warp  *warp
	in    *inst // the load whose value does not change; nil if there is none
	lane  int
	where string
}

// stuck follows each warp that can run until its state repeats. It returns nil as soon as one of them gets on.
func (b *block) stuck() (*waiting, error) {
	var first *waiting
	for i := range b.warps {
		w := &b.warps[i]
		if w.state != ready {
			continue
		}
		f, err := w.goesRound()
		if f == nil || err != nil {
			return nil, err
		}
		if first == nil || first.in == nil {
			first = f
		}
	}
	return first, nil
}

func (w *warp) goesRound() (f *waiting, err error) {
	defer func() {
		if r := recover(); r != nil {
			v, ok := r.(fault)
			if !ok {
				panic(r)
			}
			err = v.err
		}
	}()
	code := w.b.l.prog.code
	f = &waiting{warp: w}
	// Snapshots at growing distances (Brent's cycle detection) find a repeated state whatever the loop's length.
	at, next := w.snapshot(), 64
	for n := 1; n <= probeSteps; n++ {
		if w.pc >= w.nextPC {
			w.merge()
		}
		in := &code[w.pc]
		if in.changesMemory() {
			return nil, nil
		}
		if in.kind == kindGlobal || in.kind == kindShared { // a load: a store changes memory
			f.in, f.lane = in, w.firstLane()
			if in.kind == kindGlobal {
				f.where = w.b.l.describe(w.q[in.a][f.lane&31] + uint64(in.imm))
			} else {
				f.where = describeShared(uint64(w.r[in.a][f.lane&31]+uint32(in.imm)-sharedBase), len(w.b.shared))
			}
		}
		w.b.steps += w.advance(1)
		if w.state != ready {
			return nil, nil
		}
		if w.equals(&at) {
			return f, nil
		}
		if n == next {
			at, next, f.in = w.snapshot(), 2*next, nil
		}
	}
	return nil, nil
}

// changesMemory says whether an instruction can change what another warp waits for, or ends an asynchronous copy.
func (in *inst) changesMemory() bool {
	return in.def.Writes() || in.def.Does == ptx.CommitCopies || in.def.Does == ptx.WaitCopies
}

// turn runs the block for a while. If it was waiting at the end of its last turn and still is, the turn ends at once.
func (b *block) turn() {
	b.idle = false
	if b.waits != nil {
		b.probe()
		if b.idle = b.waits != nil; b.idle || b.err != nil {
			return
		}
	}
	b.resume(turnSteps)
	if !b.done && b.err == nil {
		b.probe()
	}
}

func (b *block) probe() {
	b.waits, b.err = b.stuck()
	if b.waits != nil && b.waits.in == nil {
		b.err = b.waits.endless()
	}
}

// proof is a block that waits.
type proof struct {
	index int
	at    Access
	where string
}

// judge notes whether the block that ends its turn waits. If no block has written since the turn began, it waits
// until one writes; once that is so for all running blocks, none ever will.
func (s *schedule) judge(b *block) {
	if !b.idle {
		s.changes++
		s.proofs = s.proofs[:0]
		return
	}
	if b.since == s.changes && b.proved != s.changes {
		b.proved = s.changes
		f := b.waits
		s.proofs = append(s.proofs, proof{b.index, f.warp.access(f.in, f.lane), f.where})
	}
}

// deadlock reports a launch all of whose running blocks wait.
func (s *schedule) deadlock() error {
	slices.SortFunc(s.proofs, func(a, b proof) int { return a.index - b.index })
	first := s.proofs[0]
	v := &Violation{Rule: Deadlock, Kernel: s.launch.prog.name, Access: first.at, Where: first.where}
	v.Detail = fmt.Sprintf("%d of %d blocks are running, and each waits for a write that none of them will make", s.live, s.launch.blocks)
	if n := s.launch.blocks - s.next; n > 0 {
		v.Detail += fmt.Sprintf("; %d more start when one of these ends", n)
	}
	if len(s.proofs) > 1 {
		v.Conflict = &s.proofs[1].at
	}
	return v
}

// endless reports a warp that loops without reading memory.
func (f *waiting) endless() error {
	w := f.warp
	return &Violation{Rule: StepLimit, Kernel: w.b.l.prog.name, Access: w.access(&w.b.l.prog.code[w.pc], w.firstLane()),
		Detail: "the loop repeats without changing anything, so it never ends: make its condition depend on something that it changes"}
}
