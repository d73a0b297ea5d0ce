package runtime

import (
	"fmt"
	"slices"
)

// span is a range of a session's memory: arena ranges share one space, whatever buffers they belong to.
type span struct{ space, from, to int }

func (a span) meets(b span) bool {
	return a.space == b.space && a.from < b.to && b.from < a.to
}

// hazards of a launch are the ranges that order it: what it reads, except constants, and what it writes.
type hazards struct{ reads, writes []span }

// of reports whether two launches must run in their order: one writes what the other reads or writes.
func (h hazards) of(earlier hazards) bool {
	return anyMeets(h.reads, earlier.writes) || anyMeets(h.writes, earlier.writes) || anyMeets(h.writes, earlier.reads)
}

func anyMeets(a, b []span) bool {
	return slices.ContainsFunc(a, func(x span) bool { return slices.ContainsFunc(b, x.meets) })
}

func (v *Variant) hazards(launches []Launch) []hazards {
	out := make([]hazards, len(launches))
	for i, l := range launches {
		out[i] = hazards{v.spans(l.Reads, true), v.spans(l.Writes, false)}
	}
	return out
}

// spans maps accesses to physical ranges; reads of constants are left out, since nothing writes them.
func (v *Variant) spans(list []Access, reading bool) []span {
	var out []span
	for _, a := range list {
		b := v.Buffers[a.Buffer]
		if a.Bytes == 0 || reading && b.Kind == ConstantBuffer {
			continue
		}
		s := span{a.Buffer, a.Offset, a.Offset + a.Bytes}
		if b.Kind == ArenaBuffer {
			s = span{-1, b.Offset + a.Offset, b.Offset + a.Offset + a.Bytes}
		}
		out = append(out, s)
	}
	return out
}

// Order fills in After of every launch: the earlier launches whose writes it reads or overwrites, or whose reads it
// overwrites. Edges implied by a path of other edges are left out.
func (v *Variant) Order(launches []Launch) {
	touches := v.hazards(launches)
	before := make([]bitset, len(launches)) // everything that must have ended
	for i := range launches {
		before[i] = newBitset(len(launches))
		launches[i].After = []int{}
		for j := i - 1; j >= 0; j-- {
			if before[i].has(j) || !touches[i].of(touches[j]) {
				continue
			}
			launches[i].After = append(launches[i].After, j)
			before[i].set(j)
			before[i].or(before[j])
		}
		slices.Reverse(launches[i].After)
	}
}

// checkOrder reports two launches that a device might wrongly run in either order or at once.
func (v *Variant) checkOrder(launches []Launch) error {
	touches := v.hazards(launches)
	before := make([]bitset, len(launches))
	for i, l := range launches {
		before[i] = newBitset(len(launches))
		for _, j := range l.After {
			before[i].set(j)
			before[i].or(before[j])
		}
		for j := range i {
			if !before[i].has(j) && touches[i].of(touches[j]) {
				return fmt.Errorf("launches %d and %d touch the same memory, one of them writes it, and no path of After orders them", i, j)
			}
		}
	}
	return nil
}

type bitset []uint64

func newBitset(n int) bitset    { return make(bitset, (n+63)/64) }
func (b bitset) has(i int) bool { return b[i/64]>>(i%64)&1 != 0 }
func (b bitset) set(i int)      { b[i/64] |= 1 << (i % 64) }
func (b bitset) or(other bitset) {
	for i := range other {
		b[i] |= other[i]
	}
}
