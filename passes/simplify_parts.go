package passes

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// Gradients of the parts of a tensor are padded to its shape and added, and what has several parts is cut where its
// parts are read: the rules of this file put both together again.

// zeroPad is v as a Pad by zeros that nothing else reads, or nil.
func zeroPad(s *sweep, v *ir.Value) *ir.Node {
	n := defOp(v, "Pad")
	if n == nil || !s.only(v) || n.Attrs.String("mode", "constant") != "constant" || n.Attrs.Float("value", 0) != 0 {
		return nil
	}
	if negative := func(p int) bool { return p < 0 }; slices.ContainsFunc(n.Attrs.Ints("begin"), negative) || slices.ContainsFunc(n.Attrs.Ints("end"), negative) {
		return nil
	}
	return n
}

// joinPads turns the sum of two padded values that are neighbours along one dimension into their padded Concat.
func joinPads(s *sweep, n *ir.Node) bool {
	return mirrored(n, func(a, b *ir.Value) bool {
		p, q := zeroPad(s, a), zeroPad(s, b)
		if p == nil || q == nil || p == q || !a.Type.Equal(b.Type) {
			return false
		}
		begin, end := slices.Clone(p.Attrs.Ints("begin")), slices.Clone(p.Attrs.Ints("end"))
		axis := -1
		for i, lo := range q.Attrs.Ints("begin") {
			if lo == begin[i] && q.Attrs.Ints("end")[i] == end[i] {
				continue
			}
			if axis >= 0 || lo != begin[i]+p.Inputs[0].Type.Shape[i] {
				return false
			}
			axis = i
		}
		if axis < 0 {
			return false
		}
		end[axis] = q.Attrs.Ints("end")[axis]
		y := s.add("Concat", n.Name, ir.Attrs{"axis": axis}, p.Inputs[0], q.Inputs[0])
		s.replace(n.Outputs[0], s.add("Pad", n.Name, ir.Attrs{"begin": begin, "end": end}, y))
		return true
	})
}

// joinParts moves a value as a whole where a Concat puts its parts together again, each of which was moved alike.
func joinParts(s *sweep, n *ir.Node) bool {
	whole, path := movedPart(s, n, 0)
	for i := 1; i < len(n.Inputs) && whole != nil; i++ {
		v, p := movedPart(s, n, i)
		if v != whole || !slices.EqualFunc(p, path, func(a, b *ir.Node) bool {
			return a.Op == b.Op && slices.Equal(a.Attrs.Ints("perm"), b.Attrs.Ints("perm")) && a.Outputs[0].Type.Equal(b.Outputs[0].Type)
		}) {
			return false
		}
	}
	if whole == nil || len(n.Inputs) < 2 {
		return false
	}
	parts := func(shape []int) []int { return slices.Concat([]int{len(n.Inputs)}, shape) }
	first := slices.Clone(whole.Type.Shape)
	first[0] /= len(n.Inputs)
	y := s.add("Reshape", n.Name, ir.Attrs{"shape": parts(first)}, whole)
	for _, m := range path {
		if m.Op.Name == "Reshape" {
			y = s.add("Reshape", m.Name, ir.Attrs{"shape": parts(m.Outputs[0].Type.Shape)}, y)
			continue
		}
		perm := []int{0}
		for _, d := range m.Attrs.Ints("perm") {
			perm = append(perm, d+1)
		}
		y = s.add("Transpose", m.Name, ir.Attrs{"perm": perm}, y)
	}
	perm := identityPerm(y.Type.Rank())
	axis := n.Attrs.Int("axis", 0)
	perm = slices.Insert(perm[1:], axis, 0)
	y = s.add("Transpose", n.Name, ir.Attrs{"perm": perm}, y)
	s.replace(n.Outputs[0], s.add("Reshape", n.Name, ir.Attrs{"shape": n.Outputs[0].Type.Shape}, y))
	return true
}

// movedPart returns the value of which input i of a Concat is the i-th of as many equal parts along the first
// dimension, and the nodes that have moved that part, in order; nil if it is none, or if something else reads it.
func movedPart(s *sweep, n *ir.Node, i int) (whole *ir.Value, path []*ir.Node) {
	v := n.Inputs[i]
	for ; s.only(v) && defOp(v, "Reshape", "Transpose") != nil; v = v.Def.Inputs[0] {
		path = append(path, v.Def)
	}
	cut := defOp(v, "Slice")
	if cut == nil || !s.only(v) || !forward(cut) {
		return nil, nil
	}
	starts, sizes := make([]int, cut.Inputs[0].Type.Rank()), slices.Clone(cut.Inputs[0].Type.Shape)
	if len(sizes) == 0 || sizes[0]%len(n.Inputs) != 0 {
		return nil, nil
	}
	sizes[0] /= len(n.Inputs)
	starts[0] = i * sizes[0]
	if !slices.Equal(cut.Attrs.Ints("starts"), starts) || !slices.Equal(cut.Attrs.Ints("sizes"), sizes) {
		return nil, nil
	}
	slices.Reverse(path)
	return cut.Inputs[0], path
}

// sliceOfPad reads what was padded where no padding is taken.
func sliceOfPad(s *sweep, n *ir.Node) bool {
	pad := defOp(n.Inputs[0], "Pad")
	if pad == nil || !forward(n) {
		return false
	}
	x, starts, sizes := pad.Inputs[0], slices.Clone(n.Attrs.Ints("starts")), n.Attrs.Ints("sizes")
	for i, b := range pad.Attrs.Ints("begin") {
		if starts[i] -= b; starts[i] < 0 || starts[i]+sizes[i] > x.Type.Shape[i] {
			return false
		}
	}
	s.replace(n.Outputs[0], s.add("Slice", n.Name, ir.Attrs{"starts": starts, "sizes": sizes}, x))
	return true
}
