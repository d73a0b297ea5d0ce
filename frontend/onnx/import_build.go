package onnx

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// Adding ops. An error in these methods ends the conversion; see site.

// op adds an op without attributes.
func (s *site) op(name string, in ...*ir.Value) *ir.Value { return s.add(name, nil, in...) }

// add adds an op and returns its first output.
func (s *site) add(name string, attrs ir.Attrs, in ...*ir.Value) *ir.Value {
	return s.addAll(name, attrs, in...)[0]
}

// addAll adds an op and returns all outputs. An op on constants is evaluated instead.
func (s *site) addAll(name string, attrs ir.Attrs, in ...*ir.Value) []*ir.Value {
	for len(in) > 0 && in[len(in)-1] == nil {
		in = in[:len(in)-1]
	}
	n, err := s.im.g.NewNode(name, s.sc.label(s.n), attrs, in...)
	if err != nil {
		s.fail("%w", err)
	}
	outs := s.fold(n)
	s.track(n, outs)
	if outs == nil {
		s.im.g.Nodes = append(s.im.g.Nodes, n)
		outs = n.Outputs
	}
	return outs
}

// Constants.

func (s *site) constant(t *ir.Tensor) *ir.Value { return s.im.g.Constant(s.sc.label(s.n), t) }

// scalar is a constant of rank 0.
func (s *site) scalar(d ir.DType, x float64) *ir.Value {
	return s.numbers(d, []float64{x})
}

// fill is a constant of one value in every element.
func (s *site) fill(d ir.DType, x float64, shape ...int) *ir.Value {
	return s.constant(ir.Splat(ir.T(d, slices.Clone(shape)...), x))
}

func (s *site) vector(xs ...int) *ir.Value { return s.constant(ir.Vector(xs...)) }

// maxMade limits the elements of constants that conversions compute from shapes and attributes.
const maxMade = 1 << 24

// bound rejects constants that would be absurdly large.
func (s *site) bound(shape ...int) {
	if err := ir.CheckShape(shape); err != nil || product(shape) > maxMade {
		s.refuse("compile it for smaller shapes", "it would need a constant of shape %v, of more than %d elements", shape, maxMade)
	}
}

// floatsConst is a constant of a floating-point type.
func (s *site) floatsConst(d ir.DType, xs []float64, shape ...int) *ir.Value {
	if !d.IsFloat() {
		s.fail("an operand is of type %v, want a floating-point type", d)
	}
	return s.constant(ir.FromFloats(ir.T(d, shape...), xs))
}

// intsConst is an i64 constant.
func (s *site) intsConst(xs []int64, shape ...int) *ir.Value {
	return s.constant(ir.FromInts(ir.T(ir.Int64, shape...), xs))
}

// iota is 0, 1, … n-1 as a constant of type d along dimension axis of a value of the given rank.
func (s *site) iota(d ir.DType, n, axis, rank int) *ir.Value {
	s.bound(n)
	shape := ones(rank)
	shape[axis] = n
	return s.numbers(d, mapped(iotaInts(n), func(i int) float64 { return float64(i) }), shape...)
}

// numbers is a constant of any type.
func (s *site) numbers(d ir.DType, xs []float64, shape ...int) *ir.Value {
	if d.IsFloat() {
		return s.floatsConst(d, xs, shape...)
	}
	return s.constant(ir.FromInts(ir.T(d, shape...), mapped(xs, func(x float64) int64 { return int64(x) })))
}

// known returns the data of an input that must be a constant, nil if it is absent; what names it in the error.
func (s *site) known(i int, what string) *ir.Tensor {
	v := s.opt(i)
	if v == nil {
		return nil
	}
	t := s.valueOf(v)
	if t == nil {
		s.dependsOnData(i, what)
	}
	s.knows(v)
	return t
}

// dependsOnData rejects a node because input i is not a constant.
func (s *site) dependsOnData(i int, what string) {
	e := s.errorf("%s is computed from data (input %d, %q), so shapes would depend on data", what, i, s.n.Input[i])
	panic(stop{e.AsUnsupported("make it a constant")})
}

// knownInts returns the elements of a constant integer input, nil if it is absent.
func (s *site) knownInts(i int, what string) []int {
	t := s.known(i, what)
	if t == nil {
		return nil
	}
	if t.DType.IsFloat() {
		s.fail("%s is %v, want integers", what, t.Type)
	}
	s.bound(t.Shape...)
	return mapped(t.Ints(), func(v int64) int { return int(v) })
}

// knownInt returns the only element of a constant integer input.
func (s *site) knownInt(i int, what string, def int) int {
	list := s.knownInts(i, what)
	if list == nil {
		return def
	}
	if len(list) != 1 {
		s.fail("%s has %d elements, want one", what, len(list))
	}
	return list[0]
}

// Movement.

func (s *site) reshape(v *ir.Value, shape ...int) *ir.Value {
	if slices.Equal(v.Type.Shape, shape) {
		return v
	}
	return s.add("Reshape", ir.Attrs{"shape": append([]int{}, shape...)}, v)
}

func (s *site) transpose(v *ir.Value, perm ...int) *ir.Value {
	if slices.IsSorted(perm) {
		return v
	}
	return s.add("Transpose", ir.Attrs{"perm": slices.Clone(perm)}, v)
}

// swapAxes exchanges two dimensions.
func (s *site) swapAxes(v *ir.Value, a, b int) *ir.Value {
	perm := iotaInts(v.Type.Rank())
	perm[a], perm[b] = perm[b], perm[a]
	return s.transpose(v, perm...)
}

func (s *site) expand(v *ir.Value, shape ...int) *ir.Value {
	if slices.Equal(v.Type.Shape, shape) {
		return v
	}
	return s.add("Expand", ir.Attrs{"shape": append([]int{}, shape...)}, v)
}

func (s *site) concat(axis int, vs ...*ir.Value) *ir.Value {
	if len(vs) == 1 {
		return vs[0]
	}
	return s.add("Concat", ir.Attrs{"axis": axis}, vs...)
}

// part is size elements of v from start along an axis.
func (s *site) part(v *ir.Value, axis, start, size int) *ir.Value {
	if start == 0 && size == v.Type.Shape[axis] {
		return v
	}
	starts := make([]int, v.Type.Rank())
	starts[axis] = start
	sizes := slices.Clone(v.Type.Shape)
	sizes[axis] = size
	return s.add("Slice", ir.Attrs{"starts": starts, "sizes": sizes}, v)
}

// index is element i of v along an axis, which disappears.
func (s *site) index(v *ir.Value, axis, i int) *ir.Value {
	p := s.part(v, axis, i, 1)
	return s.reshape(p, slices.Delete(slices.Clone(p.Type.Shape), axis, axis+1)...)
}

// unsqueeze inserts a dimension of 1 before dimension axis.
func (s *site) unsqueeze(v *ir.Value, axis int) *ir.Value {
	return s.reshape(v, slices.Insert(slices.Clone(v.Type.Shape), axis, 1)...)
}

// pad adds elements around v.
func (s *site) pad(v *ir.Value, begin, end []int, value float64) *ir.Value {
	if allZero(begin) && allZero(end) {
		return v
	}
	return s.add("Pad", ir.Attrs{"begin": begin, "end": end, "value": value}, v)
}

// padEnd appends n elements to v along an axis.
func (s *site) padEnd(v *ir.Value, axis, n int, value float64) *ir.Value {
	end := make([]int, v.Type.Rank())
	end[axis] = n
	return s.pad(v, make([]int, len(end)), end, value)
}

// alongChannel gives a vector of per-channel parameters the shape in which it broadcasts over dimension 1 of a value of
// the given rank.
func (s *site) alongChannel(v *ir.Value, rank int) *ir.Value { return s.alongAxis(v, 1, rank) }

func (s *site) alongAxis(v *ir.Value, axis, rank int) *ir.Value {
	if v.Type.Rank() != 1 {
		s.fail("a parameter is %v, want one dimension", v.Type)
	}
	shape := ones(rank - axis)
	shape[0] = v.Type.Shape[0]
	return s.reshape(v, shape...)
}

// Arithmetic and types.

// cast converts to a type; it is v itself if that has the type already.
func (s *site) cast(v *ir.Value, d ir.DType) *ir.Value {
	if v.Type.DType == d {
		return v
	}
	return s.add("Cast", ir.Attrs{"to": d}, v)
}

// wideType is the type in which an operator that becomes several ops computes, so that it rounds to a narrow type
// only once.
func wideType(d ir.DType) ir.DType {
	if d.IsFloat() && d != ir.Float64 {
		return ir.Float32
	}
	return d
}

func (s *site) wide(v *ir.Value) *ir.Value { return s.cast(v, wideType(v.Type.DType)) }

// like is a scalar constant of v's type.
func (s *site) like(v *ir.Value, x float64) *ir.Value { return s.scalar(v.Type.DType, x) }

func (s *site) where(cond, a, b *ir.Value) *ir.Value { return s.op("Where", cond, a, b) }

// reduce applies a ReduceX op over axes, which must be sorted.
func (s *site) reduce(op string, v *ir.Value, axes []int, keep bool) *ir.Value {
	return s.add(op, ir.Attrs{"axes": append([]int{}, axes...), "keepdims": keep}, v)
}

func ones(n int) []int { return slices.Repeat([]int{1}, n) }

func iotaInts(n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = i
	}
	return s
}

func allZero(xs []int) bool { return !slices.ContainsFunc(xs, func(x int) bool { return x != 0 }) }

func product(xs []int) int {
	p := 1
	for _, x := range xs {
		p *= x
	}
	return p
}
