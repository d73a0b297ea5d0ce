package passes

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// reshapeTo replaces n by a reshape of x to n's shape, or by x itself.
func reshapeTo(s *sweep, n *ir.Node, x *ir.Value) bool {
	if !become(s, n, x) {
		s.replace(n.Outputs[0], s.add("Reshape", n.Name, ir.Attrs{"shape": n.Outputs[0].Type.Shape}, x))
	}
	return true
}

// simplifyReshape removes no-op reshapes and merges consecutive ones.
func simplifyReshape(s *sweep, n *ir.Node) bool {
	if become(s, n, n.Inputs[0]) {
		return true
	}
	if inner := defOp(n.Inputs[0], "Reshape"); inner != nil {
		return reshapeTo(s, n, inner.Inputs[0])
	}
	return undoneReshape(s, n)
}

// undoneReshape drops two reshapes around a unary op if the second undoes the first.
func undoneReshape(s *sweep, n *ir.Node) bool {
	op := n.Inputs[0].Def
	if op == nil || !s.only(n.Inputs[0]) || !op.Op.Pointwise() || len(op.Inputs) != 1 {
		return false
	}
	first := defOp(op.Inputs[0], "Reshape")
	if first == nil || !slices.Equal(first.Inputs[0].Type.Shape, n.Outputs[0].Type.Shape) {
		return false
	}
	s.replace(n.Outputs[0], s.add(op.Op.Name, op.Name, op.Attrs, first.Inputs[0]))
	return true
}

// simplifyTranspose composes two in a row and turns one that moves only dimensions of size 1 into a reshape.
func simplifyTranspose(s *sweep, n *ir.Node) bool {
	x, perm := n.Inputs[0], n.Attrs.Ints("perm")
	if isIdentityPerm(perm) {
		return become(s, n, x)
	}
	if ir.KeepsOrder(perm, x.Type.Shape) {
		return reshapeTo(s, n, x)
	}
	inner := defOp(x, "Transpose")
	if inner == nil {
		return false
	}
	composed := permute(inner.Attrs.Ints("perm"), perm)
	s.replace(n.Outputs[0], s.add("Transpose", n.Name, ir.Attrs{"perm": composed}, inner.Inputs[0]))
	return true
}

func isIdentityPerm(perm []int) bool { return slices.Equal(perm, identityPerm(len(perm))) }

// identityPerm lists 0, 1, … n-1.
func identityPerm(n int) []int {
	perm := make([]int, n)
	for i := range perm {
		perm[i] = i
	}
	return perm
}

// inversePerm undoes perm.
func inversePerm(perm []int) []int {
	out := make([]int, len(perm))
	for i, p := range perm {
		out[p] = i
	}
	return out
}

// permute lists x in the order of perm.
func permute[E any](x []E, perm []int) []E {
	out := make([]E, len(perm))
	for i, p := range perm {
		out[i] = x[p]
	}
	return out
}

func simplifyExpand(s *sweep, n *ir.Node) bool {
	if become(s, n, n.Inputs[0]) {
		return true
	}
	if inner := defOp(n.Inputs[0], "Expand"); inner != nil {
		s.setInput(n, 0, inner.Inputs[0])
		return true
	}
	if n.Inputs[0].Type.Numel() == n.Outputs[0].Type.Numel() {
		return reshapeTo(s, n, n.Inputs[0])
	}
	return false
}

// simplifySlice removes a slice of everything, composes slices and reads through a Concat into the part it takes.
func simplifySlice(s *sweep, n *ir.Node) bool {
	x := n.Inputs[0]
	starts, sizes := n.Attrs.Ints("starts"), n.Attrs.Ints("sizes")
	steps := sliceSteps(n)
	if forward(n) && become(s, n, x) {
		return true
	}
	if inner := defOp(x, "Slice"); inner != nil {
		start, step := slices.Clone(inner.Attrs.Ints("starts")), slices.Clone(sliceSteps(inner))
		for i := range start {
			start[i] += starts[i] * step[i]
			step[i] *= steps[i]
		}
		s.replace(n.Outputs[0], s.add("Slice", n.Name, sliceAttrs(start, sizes, step), inner.Inputs[0]))
		return true
	}
	concat := defOp(x, "Concat")
	if concat == nil || !forward(n) {
		return false
	}
	axis, at := concat.Attrs.Int("axis", 0), 0
	for _, part := range concat.Inputs {
		size := part.Type.Shape[axis]
		if starts[axis] >= at && starts[axis]+sizes[axis] <= at+size {
			inPart := slices.Clone(starts)
			inPart[axis] -= at
			s.replace(n.Outputs[0], s.add("Slice", n.Name, ir.Attrs{"starts": inPart, "sizes": sizes}, part))
			return true
		}
		at += size
	}
	return false
}

// sliceSteps are the steps of a Slice, 1 where it has none.
func sliceSteps(n *ir.Node) []int {
	if steps := n.Attrs.Ints("steps"); steps != nil {
		return steps
	}
	return slices.Repeat([]int{1}, len(n.Attrs.Ints("starts")))
}

// forward reports whether a Slice takes neighbours.
func forward(n *ir.Node) bool {
	return !slices.ContainsFunc(sliceSteps(n), func(step int) bool { return step != 1 })
}

// sliceAttrs are a Slice's attributes in one form: the step of a single element is 1, and steps of 1 are left out.
func sliceAttrs(starts, sizes, steps []int) ir.Attrs {
	attrs := ir.Attrs{"starts": starts, "sizes": sizes}
	for i, st := range steps {
		if st != 1 && sizes[i] > 1 {
			attrs["steps"] = steps
		} else {
			steps[i] = 1
		}
	}
	return attrs
}

// simplifyConcat drops empty parts, flattens a Concat of Concats along one axis and removes a Concat of one part.
func simplifyConcat(s *sweep, n *ir.Node) bool {
	axis := n.Attrs.Int("axis", 0)
	var parts []*ir.Value
	for _, v := range n.Inputs {
		inner := defOp(v, "Concat")
		switch {
		case v.Type.Shape[axis] == 0:
		case inner != nil && inner.Attrs.Int("axis", 0) == axis && s.only(v):
			parts = append(parts, inner.Inputs...)
		default:
			parts = append(parts, v)
		}
	}
	if len(parts) == 1 {
		return become(s, n, parts[0])
	}
	if len(parts) == 0 || slices.Equal(parts, n.Inputs) {
		return false
	}
	s.replace(n.Outputs[0], s.add("Concat", n.Name, ir.Attrs{"axis": axis}, parts...))
	return true
}

func simplifyTile(s *sweep, n *ir.Node) bool {
	if become(s, n, n.Inputs[0]) {
		return true
	}
	for i, r := range n.Attrs.Ints("repeats") {
		if r != 1 && n.Inputs[0].Type.Shape[i] != 1 {
			return false
		}
	}
	s.replace(n.Outputs[0], s.add("Expand", n.Name, ir.Attrs{"shape": n.Outputs[0].Type.Shape}, n.Inputs[0]))
	return true
}

// simplifyPad removes padding by nothing; padding that only crops is a slice.
func simplifyPad(s *sweep, n *ir.Node) bool {
	begin, end := n.Attrs.Ints("begin"), n.Attrs.Ints("end")
	starts := make([]int, len(begin))
	for i := range begin {
		if begin[i] > 0 || end[i] > 0 {
			return false
		}
		starts[i] = -begin[i]
	}
	if become(s, n, n.Inputs[0]) {
		return true
	}
	s.replace(n.Outputs[0], s.add("Slice", n.Name, ir.Attrs{"starts": starts, "sizes": n.Outputs[0].Type.Shape}, n.Inputs[0]))
	return true
}

// gatherToSlice turns a Gather of one constant index, or of evenly spaced ones, into a Slice.
func gatherToSlice(s *sweep, n *ir.Node) bool {
	x, axis := n.Inputs[0], n.Attrs.Int("axis", 0)
	index, ok := intsOf(n.Inputs[1])
	if !ok || len(index) == 0 {
		return false
	}
	dim, step := x.Type.Shape[axis], 1
	for i, j := range index {
		if j < 0 {
			index[i] += dim
		}
	}
	if len(index) > 1 {
		step = index[1] - index[0]
	}
	if step == 0 {
		return false
	}
	for i, j := range index {
		if j != index[0]+i*step || j < 0 || j >= dim {
			return false
		}
	}
	starts, sizes, steps := make([]int, x.Type.Rank()), slices.Clone(x.Type.Shape), slices.Repeat([]int{1}, x.Type.Rank())
	starts[axis], sizes[axis], steps[axis] = index[0], len(index), step
	slice := s.add("Slice", n.Name, sliceAttrs(starts, sizes, steps), x)
	return reshapeTo(s, n, slice)
}
