package onnx

import (
	"fmt"
	"math"

	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/internal/memory"
	"github.com/spark-compile/spark-compile/ir"
)

var constantOperators = []operator{
	{name: "Constant", since: 7, convert: constantValue},
	{name: "ConstantOfShape", since: 9, shapes: []int{0}, convert: constantOfShape},
	{name: "Shape", since: 7, convert: shape},
	{name: "Size", since: 7, convert: func(s *site) {
		v := s.scalarInt(s.in(0).Type.Numel())
		s.sizeOf(s.in(0), v, 0, s.in(0).Type.Rank())
		s.out(0, v)
	}},
	{name: "EyeLike", since: 9, convert: eyeLike},
	{name: "Range", since: 11, shapes: []int{0, 1, 2}, convert: rangeOf},
}

func (s *site) scalarInt(v int) *ir.Value { return s.constant(ir.ScalarInt(ir.Int64, int64(v))) }

// constantKinds are the attributes of Constant that numbers come from.
var constantKinds = map[string]onnxpb.AttributeProto_AttributeType{
	"value":        onnxpb.AttributeProto_TENSOR,
	"sparse_value": onnxpb.AttributeProto_SPARSE_TENSOR,
	"value_float":  onnxpb.AttributeProto_FLOAT,
	"value_int":    onnxpb.AttributeProto_INT,
	"value_floats": onnxpb.AttributeProto_FLOATS,
	"value_ints":   onnxpb.AttributeProto_INTS,
}

// constantValue reads whichever of the attributes is set; value_string and value_strings are refused.
func constantValue(s *site) {
	for _, declared := range s.n.Attribute {
		name := declared.GetName()
		if name == "value_string" || name == "value_strings" {
			s.refuse("compute what depends on strings outside of the model", "strings are not supported")
		}
		kind, ok := constantKinds[name]
		if !ok {
			continue
		}
		a := s.attr(name, kind)
		if a == nil {
			continue
		}
		var t *ir.Tensor
		var err error
		switch name {
		case "value":
			t, err = s.im.m.Tensor(a.GetT())
		case "sparse_value":
			t, err = s.im.denseTensor(a.GetSparseTensor())
		case "value_float":
			t = ir.ScalarFloat(ir.Float32, float64(a.GetF()))
		case "value_int":
			t = ir.ScalarInt(ir.Int64, a.GetI())
		case "value_floats":
			xs := mapped(a.Floats, func(v float32) float64 { return float64(v) })
			t = ir.FromFloats(ir.T(ir.Float32, len(xs)), xs)
		case "value_ints":
			t = ir.FromInts(ir.T(ir.Int64, len(a.Ints)), a.Ints)
		}
		s.check(err)
		s.out(0, s.constant(t))
		return
	}
	s.fail("it has no value")
}

// denseTensor writes a sparse tensor out: indices are positions in the flat tensor, or one row of coordinates a value.
func (im *importer) denseTensor(sp *onnxpb.SparseTensorProto) (*ir.Tensor, error) {
	values, err := im.m.Tensor(sp.GetValues())
	if err != nil {
		return nil, err
	}
	at, err := im.m.Tensor(sp.GetIndices())
	if err != nil {
		return nil, err
	}
	shape, err := checkDims(sp.Dims)
	if err != nil {
		return nil, im.m.fileError("sparse tensor %q: %w", sp.GetValues().GetName(), err)
	}
	bad := func(format string, args ...any) *Error {
		return im.m.fileError("sparse tensor %q: %w", sp.GetValues().GetName(), fmt.Errorf(format, args...))
	}
	t := ir.T(values.DType, shape...)
	// Eight bytes an element to fill in, and then the tensor.
	if err := memory.Default().Check(8*int64(t.Numel())+int64(t.Bytes()), "writing it out"); err != nil {
		return nil, bad("%w", err).WithRemedy(allowMore)
	}
	out := ir.NewArray(t)
	n, dims := values.Numel(), shape
	if at.Rank() == 1 {
		dims = []int{out.Numel()}
	}
	if at.DType != ir.Int64 || at.Numel() != n*len(dims) || at.Rank() < 1 || at.Rank() > 2 {
		return nil, bad("indices %v do not fit %d values", at.Type, n)
	}
	for i := range n {
		pos := 0
		for k, d := range dims {
			c := int(at.IntAt(i*len(dims) + k))
			if c < 0 || c >= d {
				return nil, bad("index %d is outside %v", c, shape)
			}
			pos = pos*d + c
		}
		if out.F != nil {
			out.F[pos] = values.FloatAt(i)
		} else {
			out.I[pos] = values.IntAt(i)
		}
	}
	return out.Tensor(), nil
}

func constantOfShape(s *site) {
	dims := s.knownInts(0, "the shape")
	s.check(ir.CheckShape(dims))
	one := ir.ScalarFloat(ir.Float32, 0)
	if a := s.attr("value", onnxpb.AttributeProto_TENSOR); a != nil {
		t, err := s.im.m.Tensor(a.GetT())
		s.check(err)
		if t.Numel() != 1 {
			s.fail("value is %v, want one element", t.Type)
		}
		one = t
	}
	s.out(0, s.constant(&ir.Tensor{Type: ir.T(one.DType, append([]int{}, dims...)...), Data: one.Data, Splat: true}))
}

// shape is the slice [start,end) of the input's shape; both are clamped (Shape 15).
func shape(s *site) {
	dims := s.in(0).Type.Shape
	r := len(dims)
	start, end := clampIndex(s.int("start", 0), r, 0, r), clampIndex(s.int("end", r), r, 0, r)
	v := s.vector(dims[start:max(start, end)]...)
	s.sizeOf(s.in(0), v, start, end)
	s.out(0, v)
}

func eyeLike(s *site) {
	x := s.exactly(s.in(0), 2)
	d := s.dtype("dtype", x.Type.DType)
	s.bound(x.Type.Shape...)
	rows, columns, k := x.Type.Shape[0], x.Type.Shape[1], s.int("k", 0)
	xs := make([]float64, rows*columns)
	for i := max(0, -k); i < rows && i < columns-k; i++ {
		xs[i*columns+i+k] = 1
	}
	s.out(0, s.numbers(d, xs, rows, columns))
}

// rangeOf has max(⌈(limit-start)/delta⌉, 0) elements start + i·delta.
func rangeOf(s *site) {
	args := make([]*ir.Tensor, 3)
	for i, what := range []string{"start", "limit", "delta"} {
		args[i] = s.known(i, what)
		if args[i] == nil || args[i].Numel() != 1 || args[i].DType != args[0].DType {
			s.fail("start, limit and delta must be scalars of one type")
		}
	}
	d := args[0].DType
	if d.IsFloat() {
		start, limit, delta := args[0].FloatAt(0), args[1].FloatAt(0), args[2].FloatAt(0)
		n := max(math.Ceil((limit-start)/delta), 0)
		if !(n <= maxFold) {
			s.refuse("compute it outside of the model", "the range from %v to %v by %v has more than %d elements", start, limit, delta, maxFold)
		}
		xs := make([]float64, int(n))
		for i := range xs {
			xs[i] = start + float64(float64(i)*delta)
		}
		s.out(0, s.floatsConst(d, xs, len(xs)))
		return
	}
	start, limit, delta := args[0].IntAt(0), args[1].IntAt(0), args[2].IntAt(0)
	if delta == 0 {
		s.fail("delta is 0")
	}
	var xs []int64
	for v := start; delta > 0 && v < limit || delta < 0 && v > limit; v += delta {
		if xs = append(xs, v); len(xs) > maxFold {
			s.refuse("compute it outside of the model", "the range from %d to %d by %d has more than %d elements", start, limit, delta, maxFold)
		}
	}
	s.out(0, s.constant(ir.FromInts(ir.T(d, len(xs)), xs)))
}
