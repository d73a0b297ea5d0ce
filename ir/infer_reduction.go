package ir

import (
	"fmt"
	"slices"
)

// reduced is the rule of ReduceX over element types of class c.
func reduced(c class) func(n *Node) ([]Type, error) {
	return func(n *Node) ([]Type, error) {
		x := n.Inputs[0].Type
		if err := n.want(0, c); err != nil {
			return nil, err
		}
		axes := n.Attrs.Ints("axes")
		for i, a := range axes {
			if a < 0 || a >= x.Rank() || i > 0 && a <= axes[i-1] {
				return nil, fmt.Errorf("axes=%v: want ascending axes of %v", axes, x)
			}
		}
		return one(x.DType, reducedShape(x.Shape, axes, n.Attrs.Bool("keepdims"))...)
	}
}

func reducedShape(shape, axes []int, keep bool) []int {
	out := []int{}
	for i, d := range shape {
		switch {
		case !slices.Contains(axes, i):
			out = append(out, d)
		case keep:
			out = append(out, 1)
		}
	}
	return out
}

func inferArg(n *Node) ([]Type, error) {
	x := n.Inputs[0].Type
	axis, err := n.axisOf("axis", 0, x.Rank())
	if err != nil {
		return nil, err
	}
	if x.Shape[axis] == 0 {
		return nil, fmt.Errorf("axis %d of %v is empty", axis, x)
	}
	if err := n.want(0, numeric); err != nil {
		return nil, err
	}
	return one(Int64, reducedShape(x.Shape, []int{axis}, n.Attrs.Bool("keepdims"))...)
}

// alongAxis is the rule of ops that keep the shape and work along attribute axis.
func alongAxis(c class) func(n *Node) ([]Type, error) {
	return func(n *Node) ([]Type, error) {
		x := n.Inputs[0].Type
		if _, err := n.axisOf("axis", 0, x.Rank()); err != nil {
			return nil, err
		}
		if err := n.want(0, c); err != nil {
			return nil, err
		}
		return one(x.DType, x.Shape...)
	}
}

func inferTopK(n *Node) ([]Type, error) {
	x := n.Inputs[0].Type
	axis, err := n.axisOf("axis", 0, x.Rank())
	if err != nil {
		return nil, err
	}
	if err := n.want(0, numeric); err != nil {
		return nil, err
	}
	k := n.Attrs.Int("k", 0)
	if k < 0 || k > x.Shape[axis] {
		return nil, fmt.Errorf("k=%d of %d elements along axis %d", k, x.Shape[axis], axis)
	}
	shape := slices.Clone(x.Shape)
	shape[axis] = k
	return []Type{{x.DType, shape}, {Int64, slices.Clone(shape)}}, nil
}
