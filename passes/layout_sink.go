package passes

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// sinkTranspose moves transposes from a node's operands to its result, if the op can work on untransposed operands.
// Any transpose sinks through movement ops, but only one that follows an image op sinks through arithmetic.
func sinkTranspose(s *sweep, n *ir.Node) {
	if len(n.Outputs) != 1 || len(n.Inputs) == 0 {
		return
	}
	if n.Op.Pointwise() || n.Op.Name == "Concat" {
		sinkThroughPointwise(s, n)
		return
	}
	t := defOp(n.Inputs[0], "Transpose")
	if t == nil {
		return
	}
	x, perm := t.Inputs[0], t.Attrs.Ints("perm")
	switch n.Op.Name {
	case "Transpose":
		sinkIntoTranspose(s, n, t)
		return
	case "Reshape":
		sinkThroughReshape(s, n, x, perm)
		return
	case "Slice", "Expand", "Tile", "Pad":
	default:
		if !slices.Equal(perm, toFirst(len(perm))) {
			return
		}
	}
	attrs, after := sunkAttrs(n, perm)
	if attrs == nil {
		return
	}
	inputs := slices.Clone(n.Inputs)
	inputs[0] = x
	y := s.add(n.Op.Name, n.Name, attrs, inputs...)
	s.replace(n.Outputs[0], transposed(s, t.Name, y, after))
}

// transposed adds a transpose unless it is a no-op.
func transposed(s *sweep, name string, v *ir.Value, perm []int) *ir.Value {
	if isIdentityPerm(perm) {
		return v
	}
	return s.add("Transpose", name, ir.Attrs{"perm": perm}, v)
}

func sinkIntoTranspose(s *sweep, n, t *ir.Node) {
	perm := permute(t.Attrs.Ints("perm"), n.Attrs.Ints("perm"))
	if isIdentityPerm(perm) {
		become(s, n, t.Inputs[0])
		return
	}
	s.replace(n.Outputs[0], s.add("Transpose", n.Name, ir.Attrs{"perm": perm}, t.Inputs[0]))
}

// sunkAttrs are n's attributes for an operand stored before the transposition perm, and the transposition that its
// result then needs; nil if n cannot work on that order.
func sunkAttrs(n *ir.Node, perm []int) (ir.Attrs, []int) {
	attrs, back := n.Attrs.Clone(), inversePerm(perm)
	reorder := func(names ...string) {
		for _, name := range names {
			if v := attrs.Ints(name); v != nil {
				attrs[name] = permute(v, back)
			}
		}
	}
	switch n.Op.Name {
	case "Slice":
		reorder("starts", "sizes", "steps")
	case "Expand":
		if n.Outputs[0].Type.Rank() != len(perm) {
			return nil, nil
		}
		reorder("shape")
	case "Tile":
		reorder("repeats")
	case "Pad":
		reorder("begin", "end")
	case "Resize":
		reorder("sizes")
		attrs["scales"] = permute(n.Attrs.Floats("scales"), back)
		if roi := n.Attrs.Floats("roi"); len(roi) > 0 {
			attrs["roi"] = slices.Concat(permute(roi[:len(perm)], back), permute(roi[len(perm):], back))
		}
	case "Softmax", "LogSoftmax", "CumSum", "CumProd", "BatchNorm":
		axis, ok := n.Attrs["axis"].(int)
		if !ok && n.Op.Name == "BatchNorm" {
			axis = 1
		}
		attrs["axis"] = perm[axis]
	case "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd":
		return sunkReduction(n, perm)
	default:
		return nil, nil
	}
	return attrs, perm
}

// sunkReduction reduces the same elements of the untransposed operand.
func sunkReduction(n *ir.Node, perm []int) (ir.Attrs, []int) {
	attrs := n.Attrs.Clone()
	var axes []int
	for _, a := range n.Attrs.Ints("axes") {
		axes = append(axes, perm[a])
	}
	slices.Sort(axes)
	attrs["axes"] = axes
	if n.Attrs.Bool("keepdims") {
		return attrs, perm
	}
	var kept []int // dimensions of the operand that stay, in order
	for d := range perm {
		if !slices.Contains(axes, d) {
			kept = append(kept, d)
		}
	}
	after := []int{}
	for i, p := range perm {
		if !slices.Contains(n.Attrs.Ints("axes"), i) {
			after = append(after, slices.Index(kept, p))
		}
	}
	return attrs, after
}

// sinkThroughReshape swaps a transposition and a reshape that splits, merges or drops only dimensions that lie side by
// side, in the same order, before the transposition too.
func sinkThroughReshape(s *sweep, n *ir.Node, x *ir.Value, perm []int) {
	groups := reshapeGroups(n.Inputs[0].Type.Shape, n.Outputs[0].Type.Shape)
	if groups == nil {
		return
	}
	// Each group's dimensions must be consecutive in x, not counting those of size 1; their place there orders the
	// groups.
	for _, g := range groups {
		for j, d := range g.from[1:] {
			if !adjacent(x.Type.Shape, perm[g.from[j]], perm[d]) {
				return
			}
		}
	}
	slices.SortFunc(groups, func(a, b reshapeGroup) int { return perm[a.from[0]] - perm[b.from[0]] })
	to := n.Outputs[0].Type.Shape
	var dims []int // of n's result, in the order in which the reshape of x has them
	for _, g := range groups {
		dims = append(dims, g.to...)
	}
	for d, size := range to { // ones may stand anywhere: where n has them
		if size == 1 {
			dims = slices.Insert(dims, d, d)
		}
	}
	y := s.add("Reshape", n.Name, ir.Attrs{"shape": permute(to, dims)}, x)
	s.replace(n.Outputs[0], transposed(s, n.Name, y, inversePerm(dims)))
}

// adjacent reports whether dimension b follows a with nothing but ones between.
func adjacent(shape []int, a, b int) bool {
	return a < b && ir.Type{Shape: shape[a+1 : b]}.Numel() == 1
}

// reshapeGroup pairs dimensions of a reshape's operand with those of its result that hold the same elements. Dimensions
// of size 1 are in no group.
type reshapeGroup struct{ from, to []int }

// reshapeGroups splits a reshape into the smallest such pairs, in order; nil for empty tensors.
func reshapeGroups(from, to []int) []reshapeGroup {
	if (ir.Type{Shape: from}).Numel() == 0 {
		return nil
	}
	var groups []reshapeGroup
	i, j := skipOnes(from, 0), skipOnes(to, 0)
	for i < len(from) && j < len(to) {
		g := reshapeGroup{[]int{i}, []int{j}}
		a, b := from[i], to[j]
		i, j = skipOnes(from, i+1), skipOnes(to, j+1)
		for a != b {
			if a < b {
				g.from = append(g.from, i)
				a *= from[i]
				i = skipOnes(from, i+1)
			} else {
				g.to = append(g.to, j)
				b *= to[j]
				j = skipOnes(to, j+1)
			}
		}
		groups = append(groups, g)
	}
	return groups
}

// skipOnes is the first dimension from i on whose size is not 1.
func skipOnes(shape []int, i int) int {
	for i < len(shape) && shape[i] == 1 {
		i++
	}
	return i
}

// sinkThroughPointwise makes an op of several operands work in the order in which its transposed operands are stored.
// Constants follow for free; an operand in the other order gets a transposition of its own, which pays only if at least
// as many go away.
func sinkThroughPointwise(s *sweep, n *ir.Node) {
	rank := n.Outputs[0].Type.Rank()
	perm := toFirst(rank)
	if rank < 3 {
		return
	}
	gone, added := 0, 0
	for _, v := range n.Inputs {
		t := defOp(v, "Transpose")
		switch {
		case t != nil && slices.Equal(t.Attrs.Ints("perm"), perm):
			gone++
		case v.IsConst() || v.Type.Numel() == 1 && v.Type.Rank() <= 1:
		default:
			added++
		}
	}
	// For rank 3 the transposition is its own inverse: sinking at equal cost would go on for ever.
	if gone == 0 || added > gone || added == gone && rank == 3 {
		return
	}
	back := inversePerm(perm)
	inputs := make([]*ir.Value, len(n.Inputs))
	for i, v := range n.Inputs {
		t := defOp(v, "Transpose")
		switch {
		case t != nil && slices.Equal(t.Attrs.Ints("perm"), perm):
			inputs[i] = t.Inputs[0]
		case v.IsConst():
			inputs[i] = permuteConstant(s, v, back)
		case v.Type.Numel() == 1 && v.Type.Rank() <= 1:
			inputs[i] = v
		default:
			if v.Type.Rank() < rank {
				v = s.add("Reshape", n.Name, ir.Attrs{"shape": leadingOnes(v.Type.Shape, rank)}, v)
			}
			inputs[i] = s.add("Transpose", n.Name, ir.Attrs{"perm": back}, v)
		}
	}
	attrs := n.Attrs
	if n.Op.Name == "Concat" {
		attrs = attrs.Clone()
		attrs["axis"] = perm[n.Attrs.Int("axis", 0)]
	}
	y := s.add(n.Op.Name, n.Name, attrs, inputs...)
	s.replace(n.Outputs[0], s.add("Transpose", n.Name, ir.Attrs{"perm": perm}, y))
}
