package ir

import (
	"fmt"
	"slices"
)

func inferReshape(n *Node) ([]Type, error) {
	x, shape := n.Inputs[0].Type, n.Attrs.Ints("shape")
	if err := CheckShape(shape); err != nil {
		return nil, err
	}
	if t := T(x.DType, shape...); t.Numel() != x.Numel() {
		return nil, fmt.Errorf("%v has %d elements, shape %v has %d", x, x.Numel(), shape, t.Numel())
	}
	return one(x.DType, slices.Clone(shape)...)
}

func inferTranspose(n *Node) ([]Type, error) {
	x := n.Inputs[0].Type
	perm := n.Attrs.Ints("perm")
	shape, seen := make([]int, len(perm)), make([]bool, len(perm))
	for i, p := range perm {
		if p < 0 || p >= len(perm) || seen[p] {
			return nil, fmt.Errorf("perm=%v is not a permutation of the %d dimensions of %v", perm, x.Rank(), x)
		}
		seen[p], shape[i] = true, x.Shape[p]
	}
	return one(x.DType, shape...)
}

func inferExpand(n *Node) ([]Type, error) {
	x, shape := n.Inputs[0].Type, n.Attrs.Ints("shape")
	if err := CheckShape(shape); err != nil {
		return nil, err
	}
	if !BroadcastsTo(x.Shape, shape) {
		return nil, fmt.Errorf("%v does not expand to %v", x, shape)
	}
	return one(x.DType, slices.Clone(shape)...)
}

func inferSlice(n *Node) ([]Type, error) {
	x := n.Inputs[0].Type
	starts, sizes, steps := n.Attrs.Ints("starts"), n.Attrs.Ints("sizes"), n.Attrs.Ints("steps")
	for i, size := range sizes {
		step := 1
		if steps != nil {
			step = steps[i]
		}
		if step == 0 || size < 0 {
			return nil, fmt.Errorf("dimension %d: size %d, step %d", i, size, step)
		}
		if size == 0 {
			continue
		}
		d, start := x.Shape[i], starts[i]
		slack := 0 // indices that a walk from start may still visit
		switch {
		case start < 0 || start >= d:
		case step > 0:
			slack = (d-1-start)/step + 1
		default:
			slack = 1
			if step > -d {
				slack = start/-step + 1
			}
		}
		if size > slack {
			return nil, fmt.Errorf("dimension %d: %d elements from %d in steps of %d exceed [0,%d)", i, size, start, step, d)
		}
	}
	return one(x.DType, slices.Clone(sizes)...)
}

func inferConcat(n *Node) ([]Type, error) {
	x := n.Inputs[0].Type
	axis, err := n.axisOf("axis", 0, x.Rank())
	if err != nil {
		return nil, err
	}
	shape := slices.Clone(x.Shape)
	for _, v := range n.Inputs[1:] {
		s := v.Type.Shape
		ok := len(s) == len(shape)
		for j := 0; ok && j < len(s); j++ {
			ok = j == axis || s[j] == shape[j]
		}
		if !ok {
			return nil, fmt.Errorf("%v and %v differ outside axis %d", x, v.Type, axis)
		}
		shape[axis] += s[axis]
	}
	return one(x.DType, shape...)
}

func inferPad(n *Node) ([]Type, error) {
	x := n.Inputs[0].Type
	if err := n.oneOf("mode", "constant", "constant", "reflect", "edge", "wrap"); err != nil {
		return nil, err
	}
	begin, end := n.Attrs.Ints("begin"), n.Attrs.Ints("end")
	shape := make([]int, x.Rank())
	for i, d := range x.Shape {
		if max(begin[i], end[i]) > maxElements || min(begin[i], end[i]) < -maxElements {
			return nil, fmt.Errorf("dimension %d: pads %d and %d are out of range", i, begin[i], end[i])
		}
		shape[i] = d + begin[i] + end[i]
		if shape[i] < 0 {
			return nil, fmt.Errorf("dimension %d: pads %d and %d crop more than its %d elements", i, begin[i], end[i], d)
		}
		if d == 0 && shape[i] > 0 && n.Attrs.String("mode", "constant") != "constant" {
			return nil, fmt.Errorf("dimension %d is empty, so mode %s has nothing to repeat", i, n.Attrs.String("mode", "constant"))
		}
	}
	return one(x.DType, shape...)
}

func inferTile(n *Node) ([]Type, error) {
	x := n.Inputs[0].Type
	repeats := n.Attrs.Ints("repeats")
	if err := CheckShape(repeats); err != nil {
		return nil, fmt.Errorf("repeats=%v: %w", repeats, err)
	}
	shape := make([]int, x.Rank())
	for i, r := range repeats {
		if d := x.Shape[i]; d > 0 && r > maxElements/d {
			return nil, fmt.Errorf("repeats=%v of %v exceed 2^40 elements", repeats, x)
		}
		shape[i] = x.Shape[i] * r
	}
	return one(x.DType, shape...)
}

func inferGather(n *Node) ([]Type, error) {
	x, idx := n.Inputs[0].Type, n.Inputs[1].Type
	axis, err := n.axisOf("axis", 0, x.Rank())
	if err != nil {
		return nil, err
	}
	return one(x.DType, slices.Concat(x.Shape[:axis], idx.Shape, x.Shape[axis+1:])...)
}

func inferGatherElements(n *Node) ([]Type, error) {
	if err := n.checkElementIndices(); err != nil {
		return nil, err
	}
	return one(n.Inputs[0].Type.DType, n.Inputs[1].Type.Shape...)
}

// checkElementIndices checks the indices of GatherElements and ScatterElements against x.
func (n *Node) checkElementIndices() error {
	x, idx := n.Inputs[0].Type, n.Inputs[1].Type
	axis, err := n.axisOf("axis", 0, x.Rank())
	if err != nil {
		return err
	}
	if idx.Rank() != x.Rank() {
		return fmt.Errorf("indices %v and x %v differ in rank", idx, x)
	}
	for i, d := range idx.Shape {
		if i != axis && d > x.Shape[i] {
			return fmt.Errorf("indices %v exceed x %v in dimension %d", idx, x, i)
		}
	}
	return nil
}

func inferGatherND(n *Node) ([]Type, error) {
	x, idx := n.Inputs[0].Type, n.Inputs[1].Type
	b := n.Attrs.Int("batch_dims", 0)
	if idx.Rank() < 1 || b < 0 || b >= min(x.Rank(), idx.Rank()) {
		return nil, fmt.Errorf("batch_dims=%d does not fit x %v and indices %v", b, x, idx)
	}
	if !slices.Equal(x.Shape[:b], idx.Shape[:b]) {
		return nil, fmt.Errorf("x %v and indices %v differ in the first %d dimensions", x, idx, b)
	}
	k := idx.Shape[idx.Rank()-1]
	if k < 1 || b+k > x.Rank() {
		return nil, fmt.Errorf("index tuples of %d elements do not fit x %v", k, x)
	}
	return one(x.DType, slices.Concat(idx.Shape[:idx.Rank()-1], x.Shape[b+k:])...)
}

func inferScatterElements(n *Node) ([]Type, error) {
	err := firstError(n.checkElementIndices(), n.shaped(2, n.Inputs[1].Type.Shape...), n.checkScatterReduction())
	if err != nil {
		return nil, err
	}
	return one(n.Inputs[0].Type.DType, n.Inputs[0].Type.Shape...)
}

func (n *Node) checkScatterReduction() error {
	if err := n.oneOf("reduction", "none", "none", "add", "mul", "max", "min"); err != nil {
		return err
	}
	if n.Attrs.String("reduction", "none") != "none" {
		return n.want(0, "number")
	}
	return nil
}

func inferScatterND(n *Node) ([]Type, error) {
	x, idx := n.Inputs[0].Type, n.Inputs[1].Type
	if err := n.checkScatterReduction(); err != nil {
		return nil, err
	}
	if idx.Rank() < 1 {
		return nil, fmt.Errorf("indices %v have no last dimension", idx)
	}
	k := idx.Shape[idx.Rank()-1]
	if k > x.Rank() {
		return nil, fmt.Errorf("index tuples of %d elements do not fit x %v", k, x)
	}
	if err := n.shaped(2, slices.Concat(idx.Shape[:idx.Rank()-1], x.Shape[k:])...); err != nil {
		return nil, err
	}
	return one(x.DType, x.Shape...)
}

func inferTrilu(n *Node) ([]Type, error) {
	x := n.Inputs[0].Type
	if x.Rank() < 2 {
		return nil, fmt.Errorf("x is %v, want at least two dimensions", x)
	}
	return one(x.DType, x.Shape...)
}

func inferOneHot(n *Node) ([]Type, error) {
	idx, values := n.Inputs[0].Type, n.Inputs[1].Type
	depth, axis := n.Attrs.Int("depth", 0), n.oneHotAxis()
	if axis < 0 || axis > idx.Rank() {
		return nil, fmt.Errorf("axis=%d is outside an output of rank %d", axis, idx.Rank()+1)
	}
	if depth < 0 || depth > maxElements {
		return nil, fmt.Errorf("depth=%d", depth)
	}
	if err := n.shaped(1, 2); err != nil {
		return nil, err
	}
	return one(values.DType, slices.Insert(slices.Clone(idx.Shape), axis, depth)...)
}

// oneHotAxis is the dimension of a OneHot's output that counts to its depth.
func (n *Node) oneHotAxis() int {
	if axis := n.Attrs.Int("axis", -1); axis != -1 {
		return axis
	}
	return n.Inputs[0].Type.Rank()
}

// expandOneHot compares each index, negative ones counted from the end, with 0, 1, … depth-1.
func expandOneHot(x *Expansion, n *Node) []*Value {
	index, depth, axis := n.Inputs[0], n.Attrs.Int("depth", 0), n.oneHotAxis()
	if d := index.Type.DType; d.IsInt() && d.Bits() < 32 { // which might not hold depth
		index = x.Add("Cast", Attrs{"to": Int32}, index)
	} else if d.IsFloat() {
		index = x.Add("Floor", nil, index)
	}
	v := x.Reshape(index, slices.Insert(slices.Clone(n.Inputs[0].Type.Shape), axis, 1)...)
	v = x.Add("Where", nil, x.Add("Less", nil, v, x.Like(v, 0)), x.Add("Add", nil, v, x.Like(v, float64(depth))), v)
	if x.err != nil {
		return nil
	}
	count := NewArray(T(v.Type.DType, slices.Concat([]int{depth}, slices.Repeat([]int{1}, n.Inputs[0].Type.Rank()-axis))...))
	for i := range depth {
		count.set(i, float64(i))
	}
	value := func(i int) *Value {
		return x.Add("Slice", Attrs{"starts": []int{i}, "sizes": []int{1}}, n.Inputs[1])
	}
	return []*Value{x.Add("Where", nil, x.Add("Equal", nil, v, x.Constant(count.Tensor())), value(1), value(0))}
}

func inferReverseSequence(n *Node) ([]Type, error) {
	x := n.Inputs[0].Type
	b, errB := n.axisOf("batch_axis", 1, x.Rank())
	t, errT := n.axisOf("time_axis", 0, x.Rank())
	if err := firstError(errB, errT); err != nil {
		return nil, err
	}
	if b == t {
		return nil, fmt.Errorf("batch_axis and time_axis are both %d", b)
	}
	if err := n.shaped(1, x.Shape[b]); err != nil {
		return nil, err
	}
	return one(x.DType, x.Shape...)
}
