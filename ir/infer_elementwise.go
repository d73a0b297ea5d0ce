package ir

import "fmt"

// pointwise is the rule of elementwise ops whose inputs all have one element type of class c and whose output has it too.
func pointwise(c class) func(n *Node) ([]Type, error) { return pointwiseTo(c, Invalid) }

// pointwiseTo is pointwise with a fixed element type of the output; Invalid means the inputs'.
func pointwiseTo(c class, to DType) func(n *Node) ([]Type, error) {
	return func(n *Node) ([]Type, error) {
		shapes := make([][]int, len(n.Inputs))
		for i, v := range n.Inputs {
			if err := firstError(n.want(i, c), n.alike(0, i)); err != nil {
				return nil, err
			}
			shapes[i] = v.Type.Shape
		}
		shape, err := Broadcast(shapes...)
		if err != nil {
			return nil, err
		}
		d := to
		if d == Invalid {
			d = n.Inputs[0].Type.DType
		}
		return one(d, shape...)
	}
}

func inferPow(n *Node) ([]Type, error) {
	if err := firstError(n.want(0, numeric), n.want(1, numeric)); err != nil {
		return nil, err
	}
	shape, err := Broadcast(n.Inputs[0].Type.Shape, n.Inputs[1].Type.Shape)
	if err != nil {
		return nil, err
	}
	return one(n.Inputs[0].Type.DType, shape...)
}

func inferWhere(n *Node) ([]Type, error) {
	if err := firstError(n.want(0, bools), n.alike(1, 2)); err != nil {
		return nil, err
	}
	shape, err := Broadcast(n.Inputs[0].Type.Shape, n.Inputs[1].Type.Shape, n.Inputs[2].Type.Shape)
	if err != nil {
		return nil, err
	}
	return one(n.Inputs[1].Type.DType, shape...)
}

func inferCast(n *Node) ([]Type, error) {
	to := n.Attrs.DType("to")
	if !anyType.has(to) {
		return nil, fmt.Errorf("to is no element type")
	}
	if err := n.oneOf("round", "nearest", "nearest", "up", "down"); err != nil {
		return nil, err
	}
	return one(to, n.Inputs[0].Type.Shape...)
}

func inferBitCast(n *Node) ([]Type, error) {
	to, from := n.Attrs.DType("to"), n.Inputs[0].Type.DType
	if !anyType.has(to) || to.Bits() != from.Bits() {
		return nil, fmt.Errorf("%v and %v differ in width", from, to)
	}
	return one(to, n.Inputs[0].Type.Shape...)
}

func inferQuantize(n *Node) ([]Type, error) {
	to := n.Attrs.DType("to")
	if to.Bits() == 0 || to.Bits() > 16 || to == Bool || to == Float16 || to == BFloat16 {
		return nil, fmt.Errorf("to=%v is no quantised type", to)
	}
	x := n.Inputs[0].Type
	if !x.DType.IsFloat() && x.DType != Int32 {
		return nil, fmt.Errorf("x is %v, want a floating-point type or i32", x)
	}
	if z := n.In(2); z != nil && z.Type.DType != to {
		return nil, fmt.Errorf("zero is %v, want %v", z.Type, to)
	}
	if err := firstError(n.want(1, floats), n.checkScale()); err != nil {
		return nil, err
	}
	return one(to, x.Shape...)
}

func inferDequantize(n *Node) ([]Type, error) {
	to := n.Attrs.DType("to")
	if !to.IsFloat() {
		return nil, fmt.Errorf("to=%v, want a floating-point type", to)
	}
	x := n.Inputs[0].Type
	if x.DType == Bool || x.DType.Bits() > 16 && x.DType != Int32 {
		return nil, fmt.Errorf("x is %v, which is no quantised type", x)
	}
	if err := firstError(n.alike(0, 2), n.want(1, floats), n.checkScale()); err != nil {
		return nil, err
	}
	return one(to, x.Shape...)
}

// checkScale holds the shapes of scale and zero of a quantisation: one element, one an index of the axis, or blocks.
func (n *Node) checkScale() error {
	x, s := n.Inputs[0].Type, n.Inputs[1].Type
	if z := n.In(2); z != nil {
		if err := n.shaped(2, s.Shape...); err != nil {
			return err
		}
	}
	block := n.Attrs.Int("block", 0)
	if block < 0 {
		return fmt.Errorf("block=%d is negative", block)
	}
	if block == 0 && (s.Rank() == 0 || s.Rank() == 1 && s.Shape[0] == 1) {
		return nil
	}
	axis, err := n.axisOf("axis", 1, x.Rank())
	if err != nil {
		return err
	}
	if block == 0 {
		return n.shaped(1, x.Shape[axis])
	}
	want := x.Clone().Shape
	want[axis] = (want[axis] + block - 1) / block
	return n.shaped(1, want...)
}
