package randgraph

import (
	"fmt"
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// fresh adds a value that no node computes.
func (b *build) fresh(t *ir.Tensor, k kind) *value {
	b.count++
	prefix := map[kind]string{isInput: "x", isDefault: "d", isInitializer: "c", isConstant: "k"}[k]
	v := &value{name: fmt.Sprint(prefix, b.count), Type: t.Type, data: t.Array(), kind: k, known: k == isInitializer || k == isConstant}
	b.values = append(b.values, v)
	return v
}

// constant is a value that the file knows; often one that is there already.
func (b *build) constant(t *ir.Tensor) *value {
	for _, v := range b.values {
		if (v.kind == isInitializer || v.kind == isConstant) && v.Type.Equal(t.Type) && v.data.Tensor().Equal(t) && b.chance(.8) {
			return v
		}
	}
	if b.chance(.15) {
		return b.fresh(t, isConstant)
	}
	return b.fresh(t, isInitializer)
}

func (b *build) ints(xs ...int) *value  { return b.constant(ir.Vector(xs...)) }
func (b *build) scalarInt(x int) *value { return b.constant(ir.ScalarInt(ir.Int64, int64(x))) }
func (b *build) floats(xs ...float64) *value {
	return b.constant(ir.FromFloats(ir.T(ir.Float32, len(xs)), xs))
}

// Numbers of new tensors.

// numbers draws a tensor's elements by a function.
func tensorOf(t ir.Type, f func(i int) float64) *ir.Tensor {
	a := ir.NewArray(t)
	for i := range t.Numel() {
		if a.F != nil {
			a.F[i] = f(i)
		} else {
			a.I[i] = int64(f(i))
		}
	}
	return a.Tensor()
}

// plain is a tensor of ordinary numbers: eighths, normal or positive ones; small integers.
func (b *build) plain(d ir.DType, shape ...int) *ir.Tensor {
	t := ir.T(d, append([]int{}, shape...)...)
	switch {
	case d == ir.Bool:
		return tensorOf(t, func(int) float64 { return float64(b.r.IntN(2)) })
	case d.IsInt():
		lo, hi := -6, 7
		if b.chance(.15) {
			lo, hi = -100, 101
		}
		if !d.IsSigned() {
			lo, hi = 0, hi+3
		}
		if bits := d.Bits(); bits < 8 {
			lo, hi = max(lo, -(1<<(bits-1))), min(hi, 1<<(bits-1))
		}
		return tensorOf(t, func(int) float64 { return float64(lo + b.r.IntN(hi-lo)) })
	}
	switch b.r.IntN(4) {
	case 0:
		return tensorOf(t, func(int) float64 { return float64(b.r.IntN(49)-24) / 8 })
	case 1:
		return tensorOf(t, func(int) float64 { return .25 + 2*b.r.Float64() })
	}
	return tensorOf(t, func(int) float64 { return b.r.NormFloat64() })
}

// given makes a value of a new tensor: an input or a constant.
func (b *build) given(t *ir.Tensor) *value {
	switch x := b.r.Float64(); {
	case x < .6:
		return b.fresh(t, isInput)
	case x < .63 && b.opset >= 9:
		return b.fresh(t, isDefault)
	}
	return b.constant(t)
}

// dtype chooses among allowed types, mostly the graph's main one.
func (b *build) dtype(allowed []ir.DType) ir.DType {
	if slices.Contains(allowed, b.main) && b.chance(.8) {
		return b.main
	}
	if len(allowed) == 0 {
		b.redraw()
	}
	return oneOf(b, allowed...)
}

// types are those that input i allows.
func (b *build) types(i int) []ir.DType { return b.s.inputs[min(i, len(b.s.inputs)-1)].types }

// dim is a dimension: mostly small, now and then one at the edge of a vector or a tile.
func (b *build) dim() int {
	if b.chance(.08) {
		return oneOf(b, 15, 16, 17, 31, 32, 33)
	}
	return 1 + b.r.IntN(8)
}

func (b *build) shape(lo, hi int) []int {
	s := make([]int, b.between(lo, hi))
	for {
		n := 1
		for i := range s {
			s[i] = b.dim()
			n *= s[i]
		}
		if n <= 600 {
			return s
		}
	}
}

// pick is a value that is there, mostly of late, or else a new one.
func (b *build) pick(fits func(*value) bool, fresh func() *value) *value {
	var list []*value
	for _, v := range b.values {
		if v.Numel() > 0 && fits(v) {
			list = append(list, v)
		}
	}
	if len(list) > 0 && b.chance(.85) {
		late := list[max(0, len(list)-3):]
		if b.chance(.3) {
			late = list
		}
		return oneOf(b, late...)
	}
	return fresh()
}

// tensor is a value of an allowed type, of lo to hi dimensions.
func (b *build) tensor(allowed []ir.DType, lo, hi int) *value {
	return b.pick(func(v *value) bool {
		return slices.Contains(allowed, v.DType) && v.Rank() >= lo && v.Rank() <= hi
	}, func() *value { return b.given(b.plain(b.dtype(allowed), b.shape(lo, hi)...)) })
}

// x is input 0, of any rank up to 5.
func (b *build) x() *value { return b.tensor(b.types(0), 0, 5) }

// exactly is a value of one type.
func (b *build) exactly(d ir.DType, shape ...int) *value {
	t := ir.T(d, shape...)
	return b.pick(func(v *value) bool { return v.Type.Equal(t) }, func() *value { return b.given(b.plain(d, shape...)) })
}

// weights are parameters: mostly constants, of a size that keeps sums of n products near 1.
func (b *build) weights(d ir.DType, n int, shape ...int) *value {
	scale := 1 / math.Sqrt(float64(max(n, 1)))
	t := tensorOf(ir.T(d, append([]int{}, shape...)...), func(int) float64 { return scale * b.r.NormFloat64() })
	if !d.IsFloat() {
		t = b.plain(d, shape...)
	}
	if b.chance(.75) {
		return b.constant(t)
	}
	return b.fresh(t, isInput)
}

// positive are numbers from lo to hi.
func (b *build) uniform(d ir.DType, lo, hi float64, shape ...int) *value {
	t := tensorOf(ir.T(d, append([]int{}, shape...)...), func(int) float64 { return lo + (hi-lo)*b.r.Float64() })
	return b.given(t)
}

// partner is a value of v's type, or of d, that broadcasts with v's shape.
func (b *build) partner(d ir.DType, shape []int) *value {
	return b.pick(func(w *value) bool {
		s, err := ir.Broadcast(shape, w.Shape)
		return w.DType == d && err == nil && ir.T(d, s...).Numel() <= mostElements
	}, func() *value { return b.given(b.plain(d, b.broadcast(shape)...)) })
}

// broadcast is a shape that broadcasts with another one.
func (b *build) broadcast(shape []int) []int {
	s := slices.Clone(shape[b.between(0, len(shape)):])
	if b.chance(.4) {
		s = slices.Clone(shape)
	}
	for i, d := range s {
		if b.chance(.25) {
			s[i] = 1
		} else if d == 1 && b.chance(.3) {
			s[i] = b.between(2, 4)
		}
	}
	if len(s) == len(shape) && len(s) < 5 && b.chance(.1) {
		s = append([]int{b.between(1, 3)}, s...)
	}
	return s
}

// axis of a value of a rank; negative ones since the opset that brought them.
func (b *build) axis(rank int) int {
	if rank == 0 {
		b.redraw()
	}
	a := b.r.IntN(rank)
	if b.opset >= 13 && b.chance(.3) {
		a -= rank
	}
	return a
}

// axes are some axes, perhaps none.
func (b *build) axes(rank, least int) []int {
	list := b.r.Perm(rank)[:b.between(min(least, rank), rank)]
	if b.chance(.7) {
		slices.Sort(list)
	}
	for i := range list {
		if b.opset >= 13 && b.chance(.2) {
			list[i] -= rank
		}
	}
	return list
}
