package onnx

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// sequenceOperators are resolved at import: sequences have a fixed length, and positions in them are constants.
var sequenceOperators = []operator{
	{name: "SequenceEmpty", since: 11, convert: func(s *site) { s.outSequence(nil) }},
	{name: "SequenceConstruct", since: 11, convert: func(s *site) { s.outSequence(s.all()) }},
	{name: "SequenceLength", since: 11, convert: func(s *site) { s.out(0, s.scalarInt(len(s.sequence(0)))) }},
	{name: "SequenceAt", since: 11, shapes: []int{1}, convert: func(s *site) {
		list := s.sequence(0)
		s.out(0, list[s.position(len(list))])
	}},
	{name: "SequenceErase", since: 11, shapes: []int{1}, convert: func(s *site) {
		list := s.sequence(0)
		at := len(list) - 1
		if s.opt(1) != nil || at < 0 {
			at = s.position(len(list))
		}
		s.outSequence(slices.Delete(list, at, at+1))
	}},
	{name: "SequenceInsert", since: 11, shapes: []int{2}, convert: sequenceInsert},
	{name: "ConcatFromSequence", since: 11, convert: concatFromSequence},
	{name: "SplitToSequence", since: 11, shapes: []int{1}, convert: splitToSequence},
}

// sequence returns the tensors of input i, a copy.
func (s *site) sequence(i int) []*ir.Value {
	if i < len(s.n.Input) {
		if v := s.sc.lookup(s.n.Input[i]); v != nil {
			if list, ok := s.im.sequences[v]; ok {
				return slices.Clone(list)
			}
		}
	}
	s.fail("input %d is not a sequence", i)
	return nil
}

// outSequence sets output 0 to a sequence. A value without a type stands for it.
func (s *site) outSequence(list []*ir.Value) {
	v := &ir.Value{Name: "sequence~"}
	s.im.sequences[v] = list
	s.out(0, v)
}

// position is input 1, the place of one of n tensors, counted from the end if negative.
func (s *site) position(n int) int {
	if s.opt(1) == nil {
		s.fail("the position is missing, or the sequence is empty")
	}
	at := s.knownInt(1, "the position", 0)
	if at < -n || at >= n {
		s.fail("position %d is out of range for a sequence of %d tensors", at, n)
	}
	if at < 0 {
		at += n
	}
	return at
}

// sequenceInsert inserts a tensor before a position, or at the end if there is none.
func sequenceInsert(s *site) {
	list := s.sequence(0)
	at := s.knownInt(2, "the position", len(list))
	if at < -len(list) || at > len(list) {
		s.fail("position %d is out of range for a sequence of %d tensors", at, len(list))
	}
	if at < 0 {
		at += len(list)
	}
	s.outSequence(slices.Insert(list, at, s.in(1)))
}

// concatFromSequence joins tensors along an axis, a new one with new_axis.
func concatFromSequence(s *site) {
	list := s.sequence(0)
	if len(list) == 0 {
		s.fail("the sequence is empty")
	}
	s.need("axis")
	newAxis := s.bool("new_axis", false)
	first := list[0].Type
	rank := first.Rank()
	if newAxis {
		rank++
	}
	axis := s.axis(s.int("axis", 0), rank)
	if newAxis {
		for i, v := range list {
			if !v.Type.Equal(first) {
				s.fail("its tensors are %v and %v, want one type", first, v.Type)
			}
			list[i] = s.unsqueeze(v, axis)
		}
	}
	s.out(0, s.concat(axis, list...))
}

// splitToSequence splits a tensor along an axis: into parts of one size, of given sizes, or into single elements,
// whose dimension is dropped unless keepdims.
func splitToSequence(s *site) {
	x := s.in(0)
	axis := s.axisOf(x, 0)
	n := x.Type.Shape[axis]
	sizes, keep := []int(nil), true
	switch split := s.known(1, "split"); {
	case split == nil:
		s.bound(n)
		sizes, keep = ones(n), s.bool("keepdims", true)
	case split.Rank() == 0:
		size := s.knownInt(1, "split", 0)
		if size < 1 {
			s.fail("split is %d, want at least 1", size)
		}
		for at := 0; at < n; at += size {
			sizes = append(sizes, min(size, n-at))
		}
	default:
		sizes = s.knownInts(1, "split")
	}
	if len(sizes) > s.im.opt.MaxUnroll {
		s.refuse("split it into fewer parts", "it yields %d tensors, more than %d", len(sizes), s.im.opt.MaxUnroll)
	}
	var list []*ir.Value
	at := 0
	for _, size := range sizes {
		if size < 0 || size > n-at {
			s.fail("split %v does not fit dimension %d of %v", sizes, axis, x.Type)
		}
		part := s.part(x, axis, at, size)
		if !keep {
			part = s.index(x, axis, at)
		}
		list, at = append(list, part), at+size
	}
	if at != n {
		s.fail("split %v does not fit dimension %d of %v", sizes, axis, x.Type)
	}
	s.outSequence(list)
}
