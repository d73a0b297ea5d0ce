package ir

import "slices"

// IsView reports whether n's output has the bytes of a part of its first input, in their order.
func (n *Node) IsView() bool {
	switch n.Op.Name {
	case "Reshape":
		return true
	case "Transpose":
		return KeepsOrder(n.Attrs.Ints("perm"), n.Inputs[0].Type.Shape)
	case "Slice":
		from, ok := n.SliceOffset()
		y := n.Outputs[0].Type
		return ok && y.Numel() > 0 && y.DType.wholeBytes(from) && y.DType.wholeBytes(y.Numel())
	}
	return false
}

// wholeBytes reports whether n elements end where a byte does.
func (d DType) wholeBytes(n int) bool { return n*d.Bits()%8 == 0 }

// KeepsOrder reports whether a transpose of a shape moves only dimensions of size 1.
func KeepsOrder(perm, shape []int) bool {
	last := -1
	for _, d := range perm {
		if shape[d] == 1 {
			continue
		}
		if d < last {
			return false
		}
		last = d
	}
	return true
}

// SliceOffset returns where a Slice starts, in elements, if its elements lie one after the other in its input.
func (n *Node) SliceOffset() (int, bool) {
	in, out := n.Inputs[0].Type.Shape, n.Outputs[0].Type.Shape
	for i, step := range n.Attrs.Ints("steps") {
		if step != 1 && out[i] > 1 {
			return 0, false
		}
	}
	starts := n.Attrs.Ints("starts")
	offset, stride, cut := 0, 1, false // an inner dimension is cut: all outer ones must have size 1
	for d := len(in) - 1; d >= 0; d-- {
		if cut && out[d] != 1 {
			return 0, false
		}
		cut = cut || out[d] != in[d]
		offset += starts[d] * stride
		stride *= in[d]
	}
	return offset, true
}

// IsFlatConcat reports whether the inputs of a Concat, each of whole bytes, lie one after the other in its output.
func (n *Node) IsFlatConcat() bool {
	if n.Op.Name != "Concat" || slices.ContainsFunc(n.Inputs, func(v *Value) bool { return !v.Type.DType.wholeBytes(v.Type.Numel()) }) {
		return false
	}
	for _, d := range n.Outputs[0].Type.Shape[:n.Attrs.Int("axis", 0)] {
		if d != 1 {
			return false
		}
	}
	return true
}
