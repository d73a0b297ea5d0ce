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
	perm, err := n.intsOf("perm", x.Rank())
	if err != nil {
		return nil, err
	}
	shape, seen := make([]int, len(perm)), make([]bool, len(perm))
	for i, p := range perm {
		if p < 0 || p >= len(perm) || seen[p] {
			return nil, fmt.Errorf("perm=%v is no permutation of the %d dimensions of %v", perm, x.Rank(), x)
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
	if !broadcastsTo(x.Shape, shape) {
		return nil, fmt.Errorf("%v does not expand to %v", x, shape)
	}
	return one(x.DType, slices.Clone(shape)...)
}

func inferSlice(n *Node) ([]Type, error) {
	x := n.Inputs[0].Type
	starts, err := n.intsOf("starts", x.Rank())
	if err != nil {
		return nil, err
	}
	sizes, err := n.intsOf("sizes", x.Rank())
	if err != nil {
		return nil, err
	}
	steps := n.Attrs.Ints("steps")
	if steps != nil && len(steps) != x.Rank() {
		return nil, fmt.Errorf("steps=%v, want %d values", steps, x.Rank())
	}
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
		room := 0 // indices that a walk from start may still visit
		switch {
		case start < 0 || start >= d:
		case step > 0:
			room = (d-1-start)/step + 1
		default:
			room = 1
			if step > -d {
				room = start/-step + 1
			}
		}
		if size > room {
			return nil, fmt.Errorf("dimension %d: %d elements from %d by %d leave [0,%d)", i, size, start, step, d)
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
	for i, v := range n.Inputs[1:] {
		if err := n.alike(0, i+1); err != nil {
			return nil, err
		}
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
	begin, err := n.intsOf("begin", x.Rank())
	if err != nil {
		return nil, err
	}
	end, err := n.intsOf("end", x.Rank())
	if err != nil {
		return nil, err
	}
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
			return nil, fmt.Errorf("dimension %d is empty: nothing to pad it with", i)
		}
	}
	return one(x.DType, shape...)
}

func inferTile(n *Node) ([]Type, error) {
	x := n.Inputs[0].Type
	repeats, err := n.intsOf("repeats", x.Rank())
	if err != nil {
		return nil, err
	}
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
	if err := n.want(1, index); err != nil {
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

// checkElementIndices holds indices of GatherElements and ScatterElements against x.
func (n *Node) checkElementIndices() error {
	x, idx := n.Inputs[0].Type, n.Inputs[1].Type
	axis, err := n.axisOf("axis", 0, x.Rank())
	if err != nil {
		return err
	}
	if err := n.want(1, index); err != nil {
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
	if err := n.want(1, index); err != nil {
		return nil, err
	}
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
	err := firstError(n.checkElementIndices(), n.alike(0, 2), n.shaped(2, n.Inputs[1].Type.Shape...), n.checkScatterReduction())
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
		return n.want(0, numeric)
	}
	return nil
}

func inferScatterND(n *Node) ([]Type, error) {
	x, idx := n.Inputs[0].Type, n.Inputs[1].Type
	if err := firstError(n.want(1, index), n.alike(0, 2), n.checkScatterReduction()); err != nil {
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
	depth, axis := n.Attrs.Int("depth", 0), n.Attrs.Int("axis", -1)
	if axis == -1 {
		axis = idx.Rank()
	}
	if axis < 0 || axis > idx.Rank() {
		return nil, fmt.Errorf("axis=%d is outside an output of rank %d", axis, idx.Rank()+1)
	}
	if depth < 0 || depth > maxElements {
		return nil, fmt.Errorf("depth=%d", depth)
	}
	if err := firstError(n.want(0, numeric), n.shaped(1, 2)); err != nil {
		return nil, err
	}
	return one(values.DType, slices.Insert(slices.Clone(idx.Shape), axis, depth)...)
}

func inferReverseSequence(n *Node) ([]Type, error) {
	x := n.Inputs[0].Type
	b, err := n.axisOf("batch_axis", 1, x.Rank())
	if err != nil {
		return nil, err
	}
	t, err := n.axisOf("time_axis", 0, x.Rank())
	if err != nil {
		return nil, err
	}
	if b == t {
		return nil, fmt.Errorf("batch_axis and time_axis are both %d", b)
	}
	if err := firstError(n.want(1, index), n.shaped(1, x.Shape[b])); err != nil {
		return nil, err
	}
	return one(x.DType, x.Shape...)
}
