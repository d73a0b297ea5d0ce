package emu

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/hal"
)

// declare makes the launch's spans from the ranges that the op declares. A kernel may also load what it declared as
// written, once it has written it.
func (l *launch) declare(op hal.Op) error {
	c := &launchCheck{l: l, released: map[uint64]knowledge{}}
	l.check = c
	var err error
	if l.reads, err = spansOf(op.Reads); err != nil {
		return fmt.Errorf("Reads: %w", err)
	}
	if l.writes, err = spansOf(op.Writes); err != nil {
		return fmt.Errorf("Writes: %w", err)
	}
	prefetched, err := spansOf(op.Prefetch)
	if err != nil {
		return fmt.Errorf("Prefetch: %w", err)
	}
	for _, s := range slices.Concat(prefetched, l.reads) {
		if s.constant {
			l.prefetches = append(l.prefetches, s)
		}
	}
	for i := range l.writes {
		w := &l.writes[i]
		w.owners = newOwners(w, l.prog.grainGlobal)
		alone := true
		for j := range l.reads {
			if r := &l.reads[j]; r.lo < w.hi && w.lo < r.hi {
				r.owners, alone = w.owners, false
			}
		}
		// Device memory keeps what it holds: the counters of a split-K are there.
		if alone && w.mem.kind != hal.DeviceMemory {
			c.overwritten = append(c.overwritten, *w)
		}
	}
	l.reads = append(l.reads, l.writes...)
	return nil
}

// spansOf merges adjacent ranges, but not constants with others.
func spansOf(ranges []hal.Range) ([]span, error) {
	var out []span
	for _, r := range ranges {
		m, ok := r.Memory.(*memory)
		if !ok {
			return nil, fmt.Errorf("a range is in memory that this device did not allocate")
		}
		if r.Offset < 0 || r.Bytes < 0 || r.Offset > m.Size()-r.Bytes {
			return nil, fmt.Errorf("%d bytes at offset %d leave a %d-byte allocation", r.Bytes, r.Offset, m.Size())
		}
		if r.Bytes > 0 {
			lo := m.addr + uint64(r.Offset)
			out = append(out, span{lo: lo, hi: lo + uint64(r.Bytes), mem: m, constant: r.Constant})
		}
	}
	slices.SortStableFunc(out, func(a, b span) int {
		if a.constant != b.constant {
			return map[bool]int{true: 1, false: -1}[a.constant]
		}
		return cmp.Compare(a.lo, b.lo)
	})
	merged := out[:0]
	for _, s := range out {
		if n := len(merged); n > 0 && merged[n-1].hi >= s.lo && merged[n-1].lo <= s.lo && merged[n-1].mem == s.mem && merged[n-1].constant == s.constant {
			merged[n-1].hi = max(merged[n-1].hi, s.hi)
			continue
		}
		merged = append(merged, s)
	}
	for i := range merged {
		s := &merged[i]
		s.data = s.mem.data[s.lo-s.mem.addr : s.hi-s.mem.addr]
	}
	return merged, nil
}

// forgetScratch marks all scratch memory that the graph touches as never written.
func (g *graph) forgetScratch() {
	seen := map[*memory]bool{}
	forget := func(m *memory) {
		if m != nil && m.kind == hal.ScratchMemory && !seen[m] {
			seen[m] = true
			m.forget(0, len(m.data))
		}
	}
	for i := range g.ops {
		n := &g.ops[i]
		forget(n.src)
		forget(n.dst)
		if n.launch != nil {
			for _, s := range slices.Concat(n.launch.reads, n.launch.writes) {
				forget(s.mem)
			}
		}
	}
}

// missingEdge finds two ops, one of which writes what the other accesses, with no path of After edges between them.
func missingEdge(ops []hal.Op) error {
	before := make([][]uint64, len(ops)) // the ops that have ended when an op begins, as a bit set
	reads, writes := make([][]hal.Range, len(ops)), make([][]hal.Range, len(ops))
	for i, op := range ops {
		before[i] = make([]uint64, (len(ops)+63)/64)
		for _, a := range op.After {
			before[i][a/64] |= 1 << (a % 64)
			for w := range before[i] {
				before[i][w] |= before[a][w]
			}
		}
		reads[i], writes[i] = op.Reads, op.Writes
		if op.Kernel == "" {
			reads[i] = []hal.Range{{Memory: op.Src, Offset: op.SrcOffset, Bytes: op.Bytes}}
			writes[i] = []hal.Range{{Memory: op.Dst, Offset: op.DstOffset, Bytes: op.Bytes}}
		}
		for j := range i {
			if before[i][j/64]>>(j%64)&1 != 0 {
				continue
			}
			for _, c := range []struct {
				how  string
				a, b []hal.Range
			}{{"reads what op %d (%s) writes", writes[j], reads[i]}, {"writes what op %d (%s) writes", writes[j], writes[i]},
				{"writes what op %d (%s) reads", reads[j], writes[i]}} {
				if r, ok := overlap(c.a, c.b); ok {
					return &Violation{Rule: MissingEdge, Kernel: opName(op),
						Where:  fmt.Sprintf("offset %d of the %d-byte allocation at %#x", r.Offset, r.Memory.Size(), r.Memory.Addr()),
						Detail: fmt.Sprintf("op %d "+c.how+", without a path of After edges", i, j, opName(ops[j]))}
				}
			}
		}
	}
	return nil
}

// overlap returns the first range of b that a range of a meets.
func overlap(a, b []hal.Range) (hal.Range, bool) {
	for _, x := range a {
		for _, y := range b {
			if x.Memory == y.Memory && x.Offset < y.Offset+y.Bytes && y.Offset < x.Offset+x.Bytes {
				return y, true
			}
		}
	}
	return hal.Range{}, false
}
