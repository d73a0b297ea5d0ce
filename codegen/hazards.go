package codegen

import (
	"github.com/spark-compile/spark-compile/runtime"
)

// span is a range of physical memory: arena ranges share one space, whatever buffers they belong to.
type span struct{ space, from, to int }

func (a span) meets(b span) bool {
	return a.space == b.space && a.from < b.to && b.from < a.to
}

// addHazards fills After of every launch: the earlier launches whose writes it reads or overwrites, or whose reads it
// overwrites. Edges that a path of others implies are left out.
func addHazards(v *runtime.Variant, launches []runtime.Launch) {
	reads, writes := make([][]span, len(launches)), make([][]span, len(launches))
	for i, l := range launches {
		reads[i], writes[i] = spans(v, l.Reads, true), spans(v, l.Writes, false)
	}
	before := make([]bitset, len(launches)) // everything that must have ended
	for i := range launches {
		before[i] = newBitset(len(launches))
		launches[i].After = []int{}
		for j := i - 1; j >= 0; j-- {
			if before[i].has(j) || !conflict(reads[i], writes[i], reads[j], writes[j]) {
				continue
			}
			launches[i].After = append(launches[i].After, j)
			before[i].set(j)
			before[i].or(before[j])
		}
		reverse(launches[i].After)
	}
}

// spans maps accesses to physical ranges; constants are never written and are left out of reads.
func spans(v *runtime.Variant, list []runtime.Access, reading bool) []span {
	var out []span
	for _, a := range list {
		b := v.Buffers[a.Buffer]
		if a.Bytes == 0 || reading && b.Kind == runtime.ConstantBuffer {
			continue
		}
		s := span{a.Buffer, a.Offset, a.Offset + a.Bytes}
		if b.Kind == runtime.ArenaBuffer {
			s = span{-1, b.Offset + a.Offset, b.Offset + a.Offset + a.Bytes}
		}
		out = append(out, s)
	}
	return out
}

func conflict(r, w, r0, w0 []span) bool {
	return anyMeets(r, w0) || anyMeets(w, w0) || anyMeets(w, r0)
}

func anyMeets(a, b []span) bool {
	for _, x := range a {
		for _, y := range b {
			if x.meets(y) {
				return true
			}
		}
	}
	return false
}

func reverse(s []int) {
	for i, j := 0, len(s)-1; i < j; i, j = i+1, j-1 {
		s[i], s[j] = s[j], s[i]
	}
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
