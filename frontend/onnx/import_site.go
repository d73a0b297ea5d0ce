package onnx

import (
	"slices"

	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/ir"
)

// site is one node under conversion. A conversion reads inputs and attributes from it, adds ops to the graph and sets
// the outputs. A failure leaves the conversion by a panic with stop, as in a recursive-descent parser, and convert
// returns it as an error: error checks after every step would bury the arithmetic.
type site struct {
	im    *importer
	sc    *scope
	n     *onnxpb.NodeProto
	opset int64

	follows padding // of the number that decides the output's shape
}

func (im *importer) site(sc *scope, n *onnxpb.NodeProto) *site {
	return &site{im: im, sc: sc, n: n, opset: sc.opsets[Domain(n.GetDomain())]}
}

// stop is what fail and refuse panic with.
type stop struct{ err error }

// convert runs the operator's conversion.
func (s *site) convert(op *operator) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case stop:
			err = r.err
		default:
			panic(r)
		}
	}()
	for i, name := range s.n.Input {
		if name != "" && s.sc.lookup(name) == nil {
			return s.errorf("input %d, %q, is not defined", i, name)
		}
	}
	op.convert(s)
	s.markFollowing()
	for i, name := range s.n.Output {
		if name != "" && s.wants(i) && s.sc.values[name] == nil {
			s.refuse("export the model without what reads it", "output %d is not supported", i)
		}
	}
	return nil
}

// errorf is an error at the node.
func (s *site) errorf(format string, args ...any) *Error {
	return s.im.m.fileError(format, args...).at(s.n, s.sc.label(s.n), s.opset)
}

// fail ends the conversion because the file is wrong.
func (s *site) fail(format string, args ...any) { panic(stop{s.errorf(format, args...)}) }

// refuse ends the conversion because the compiler does not support a valid file; remedy is what the user can do about
// it.
func (s *site) refuse(remedy, format string, args ...any) {
	panic(stop{s.errorf(format, args...).AsUnsupported("%s", remedy)})
}

// check ends the conversion if err is not nil. An error that already names a node is passed on unchanged.
func (s *site) check(err error) {
	if err == nil {
		return
	}
	if e, ok := err.(*Error); ok {
		panic(stop{e.at(s.n, s.sc.label(s.n), s.opset)})
	}
	s.fail("%w", err)
}

// Inputs and outputs.

// opt returns input i, or nil if it is absent.
func (s *site) opt(i int) *ir.Value {
	v := s.any(i)
	if _, ok := s.im.sequences[v]; ok {
		s.refuse("take a tensor out of it by SequenceAt, or join it by ConcatFromSequence", "input %d is a sequence", i)
	}
	return v
}

// any returns input i, a tensor or a sequence, or nil if it is absent.
func (s *site) any(i int) *ir.Value {
	if i >= len(s.n.Input) || s.n.Input[i] == "" {
		return nil
	}
	return s.sc.lookup(s.n.Input[i])
}

// in returns input i, which the operator requires.
func (s *site) in(i int) *ir.Value {
	v := s.opt(i)
	if v == nil {
		s.fail("input %d is missing", i)
	}
	return v
}

// all returns all inputs of a variadic operator, of which it needs at least one.
func (s *site) all() []*ir.Value {
	var vs []*ir.Value
	for i := range s.n.Input {
		vs = append(vs, s.in(i))
	}
	if len(vs) == 0 {
		s.fail("it has no inputs")
	}
	return vs
}

// wants reports whether output i exists and is read.
func (s *site) wants(i int) bool {
	return i < len(s.n.Output) && s.n.Output[i] != "" && s.sc.used[s.n.Output[i]]
}

// out sets output i. In the model's own graph the value takes the file's name unless it has one.
func (s *site) out(i int, v *ir.Value) {
	if i >= len(s.n.Output) || s.n.Output[i] == "" {
		return
	}
	name := s.n.Output[i]
	s.sc.values[name] = v
	if s.sc.top && v.Def != nil && isFresh(v.Name) && !isFresh(name) {
		v.Name = name
	}
}

// isFresh reports whether Graph.Fresh may have made a name. A name of the file that looks like one is not used.
func isFresh(name string) bool { return slices.Contains([]byte(name), '~') }

// Attributes.

// find returns an attribute of any kind, or nil.
func (s *site) find(name string) *onnxpb.AttributeProto {
	i := slices.IndexFunc(s.n.Attribute, func(a *onnxpb.AttributeProto) bool { return a.GetName() == name })
	if i < 0 {
		return nil
	}
	return s.sc.resolveAttr(s.n.Attribute[i])
}

func (s *site) hasAttr(name string) bool { return s.find(name) != nil }

// need fails unless the attribute is there.
func (s *site) need(name string) {
	if !s.hasAttr(name) {
		s.fail("attribute %q is missing", name)
	}
}

func (s *site) attr(name string, kind onnxpb.AttributeProto_AttributeType) *onnxpb.AttributeProto {
	a := s.find(name)
	// Files of IR version 1 and some exporters omit the type; the field that is set implies it.
	if t := a.GetType(); a != nil && t != kind && t != onnxpb.AttributeProto_UNDEFINED {
		s.fail("attribute %q is of kind %v, want %v", name, t, kind)
	}
	return a
}

// attrOf reads an attribute of a kind by get; def stands for an absent one.
func attrOf[T any](s *site, name string, kind onnxpb.AttributeProto_AttributeType, def T, get func(*onnxpb.AttributeProto) T) T {
	if a := s.attr(name, kind); a != nil {
		return get(a)
	}
	return def
}

func (s *site) int(name string, def int) int {
	return attrOf(s, name, onnxpb.AttributeProto_INT, def, func(a *onnxpb.AttributeProto) int { return int(a.GetI()) })
}

func (s *site) bool(name string, def bool) bool {
	return attrOf(s, name, onnxpb.AttributeProto_INT, def, func(a *onnxpb.AttributeProto) bool { return a.GetI() != 0 })
}

func (s *site) float(name string, def float64) float64 {
	return attrOf(s, name, onnxpb.AttributeProto_FLOAT, def, func(a *onnxpb.AttributeProto) float64 { return float64(a.GetF()) })
}

func (s *site) string(name, def string) string {
	return attrOf(s, name, onnxpb.AttributeProto_STRING, def, func(a *onnxpb.AttributeProto) string { return string(a.GetS()) })
}

// Lists are nil if the attribute is absent.

func (s *site) ints(name string) []int {
	return attrOf(s, name, onnxpb.AttributeProto_INTS, nil, func(a *onnxpb.AttributeProto) []int {
		return mapped(a.Ints, func(v int64) int { return int(v) })
	})
}

// listOf is an attribute of n integers, which are def if it is absent.
func (s *site) listOf(name string, n, def int) []int {
	list := s.ints(name)
	if list == nil {
		return slices.Repeat([]int{def}, n)
	}
	if len(list) != n {
		s.fail("%s=%v, want %d values", name, list, n)
	}
	return list
}

func (s *site) floats(name string) []float64 {
	return attrOf(s, name, onnxpb.AttributeProto_FLOATS, nil, func(a *onnxpb.AttributeProto) []float64 {
		return mapped(a.Floats, func(v float32) float64 { return float64(v) })
	})
}

func (s *site) strings(name string) []string {
	return attrOf(s, name, onnxpb.AttributeProto_STRINGS, nil, func(a *onnxpb.AttributeProto) []string {
		return mapped(a.Strings, func(v []byte) string { return string(v) })
	})
}

// mapped is f of each element.
func mapped[T, U any](xs []T, f func(T) U) []U {
	out := make([]U, len(xs))
	for i, x := range xs {
		out[i] = f(x)
	}
	return out
}

// choice is a string attribute that must be one of the values; the first is the default.
func (s *site) choice(name string, values ...string) string {
	v := s.string(name, values[0])
	if !slices.Contains(values, v) {
		s.fail("%s is %q, want one of %q", name, v, values)
	}
	return v
}

func (s *site) graph(name string) *onnxpb.GraphProto {
	return attrOf(s, name, onnxpb.AttributeProto_GRAPH, nil, (*onnxpb.AttributeProto).GetG)
}

// dtype is an attribute that holds a number of TensorProto.DataType.
func (s *site) dtype(name string, def ir.DType) ir.DType {
	return attrOf(s, name, onnxpb.AttributeProto_INT, def, func(a *onnxpb.AttributeProto) ir.DType {
		d, err := DType(int32(a.GetI()))
		if err != nil {
			s.refuse("export it with numbers of up to 64 bits", "%s: %w", name, err)
		}
		return d
	})
}

// axis resolves a possibly negative axis of a value of the given rank.
func (s *site) axis(a, rank int) int {
	if a < -rank || a >= rank {
		s.fail("axis %d is out of range for a value of rank %d", a, rank)
	}
	if a < 0 {
		a += rank
	}
	return a
}

// axisOf is attribute axis, which counts dimensions of v.
func (s *site) axisOf(v *ir.Value, def int) int { return s.axis(s.int("axis", def), v.Type.Rank()) }

// axes resolves a list of axes and sorts it; repetitions are an error.
func (s *site) axes(list []int, rank int) []int {
	out := mapped(list, func(a int) int { return s.axis(a, rank) })
	slices.Sort(out)
	for i := 1; i < len(out); i++ {
		if out[i] == out[i-1] {
			s.fail("axis %d is listed twice", out[i])
		}
	}
	return out
}

// exactly fails unless v has the given number of dimensions, and returns v.
func (s *site) exactly(v *ir.Value, rank int) *ir.Value {
	if v.Type.Rank() != rank {
		s.fail("an input is %v, want %d dimensions", v.Type, rank)
	}
	return v
}

// rank fails unless v has at least the given number of dimensions.
func (s *site) rank(v *ir.Value, atLeast int) int {
	if r := v.Type.Rank(); r < atLeast {
		s.fail("an input is %v, want at least %d dimensions", v.Type, atLeast)
	}
	return v.Type.Rank()
}
