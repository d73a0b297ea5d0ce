package passes

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// scalarOf returns the value of a constant whose elements are all equal.
func scalarOf(v *ir.Value) (float64, bool) {
	if v == nil || !v.IsConst() {
		return 0, false
	}
	if v.Type.Numel() == 1 || v.Const.Splat && v.Type.Numel() > 0 {
		return v.Const.FloatAt(0), true
	}
	return 0, false
}

// intsOf returns the elements of an integer constant.
func intsOf(v *ir.Value) ([]int, bool) {
	if !v.IsConst() || !v.Type.DType.IsInt() {
		return nil, false
	}
	out := make([]int, v.Type.Numel())
	for i, x := range v.Const.Ints() {
		out[i] = int(x)
	}
	return out, true
}

// channelOf returns, for a floating-point constant that broadcasts to shape and varies along axis alone, one number for
// each position on the axis.
func channelOf(v *ir.Value, shape []int, axis int) ([]float64, bool) {
	if v == nil || !v.IsConst() || !v.Type.DType.IsFloat() || !ir.BroadcastsTo(v.Type.Shape, shape) {
		return nil, false
	}
	out := make([]float64, shape[axis])
	if c, ok := scalarOf(v); ok {
		return slices.Repeat([]float64{c}, len(out)), true
	}
	at := axis - (len(shape) - v.Type.Rank())
	if at < 0 || v.Type.Shape[at] != v.Type.Numel() || v.Type.Numel() != len(out) {
		return nil, false
	}
	copy(out, v.Const.Floats())
	return out, true
}

// constant returns a floating-point constant, a splat if all elements are equal.
func (s *sweep) constant(hint string, d ir.DType, shape []int, xs []float64) *ir.Value {
	return s.g.Constant(hint, ir.FromFloats(ir.Type{DType: d, Shape: slices.Clone(shape)}, xs).Compact())
}

// scalar makes a constant of rank 0.
func (s *sweep) scalar(hint string, d ir.DType, x float64) *ir.Value {
	return s.g.Constant(hint, ir.ScalarFloat(d, x))
}

// shaped1 is the shape of n elements along axis of a value of the rank, 1 elsewhere.
func shaped1(rank, axis, n int) []int {
	shape := slices.Repeat([]int{1}, rank)
	shape[axis] = n
	return shape
}
