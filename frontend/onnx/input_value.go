package onnx

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/ir"
)

// InputValue makes a value for ImportOptions.Constants of the text that --input gives: a number, or several with
// commas between them, of the input's element type (true and false for bool). Its shape is the given one, or the
// declared one if shape is nil. One number fills a shape that is known; a dimension that the file leaves open is what
// is left over for it, if it is the only one, and else 1.
func (m *Model) InputValue(name, text string, shape []int) (*ir.Tensor, error) {
	inputs := m.Proto.GetGraph().GetInput()
	i := slices.IndexFunc(inputs, func(v *onnxpb.ValueInfoProto) bool { return v.GetName() == name })
	if i < 0 {
		return nil, m.fileError("--input %s=%s: it has no such input", name, text).WithRemedy("the inputs are %s", strings.Join(valueNames(inputs), ", "))
	}
	tt := inputs[i].GetType().GetTensorType()
	if tt == nil {
		return nil, m.fileError("--input %s=%s: this input is no tensor", name, text).WithRemedy("leave it out")
	}
	d, err := DType(tt.GetElemType())
	if err != nil {
		return nil, m.fileError("--input %s=%s: %w", name, text, err)
	}
	refused := func(format string, args ...any) error {
		return m.fileError("--input %s=%s: %w", name, text, fmt.Errorf(format, args...)).
			WithRemedy("give one number, all of them with commas between, or %s=FILE.npy", name)
	}
	parts := strings.Split(text, ",")
	t := ir.Type{DType: d}
	if t.Shape, err = valueShape(tt.GetShape(), shape, len(parts)); err != nil {
		return nil, refused("%w", err)
	}
	if n := t.Numel(); len(parts) != n && len(parts) != 1 {
		return nil, refused("%d numbers for %v", len(parts), t)
	}
	if !d.IsFloat() && !d.IsInt() && d != ir.Bool {
		return nil, refused("it has elements of %v", d)
	}
	if d.IsFloat() {
		xs := make([]float64, len(parts))
		for i, p := range parts {
			xs[i], err = strconv.ParseFloat(strings.TrimSpace(p), 64)
			if err != nil || math.IsInf(ir.ScalarFloat(d, xs[i]).FloatAt(0), 0) != math.IsInf(xs[i], 0) {
				return nil, refused("%q is no %v", p, d)
			}
		}
		if len(xs) == 1 {
			return ir.Splat(t, xs[0]), nil
		}
		return ir.FromFloats(t, xs), nil
	}
	xs := make([]int64, len(parts))
	for i, p := range parts {
		if xs[i], err = parseInteger(d, strings.TrimSpace(p)); err != nil {
			return nil, refused("%q is no %v", p, d)
		}
	}
	if len(xs) == 1 {
		return ir.SplatInt(t, xs[0]), nil
	}
	return ir.FromInts(t, xs), nil
}

// valueShape is the shape of a value of so many numbers for an input that is declared as s, unless one is given.
func valueShape(s *onnxpb.TensorShapeProto, given []int, numbers int) ([]int, error) {
	if given != nil {
		return given, ir.CheckShape(given)
	}
	if s == nil && numbers == 1 {
		return []int{}, nil // a scalar
	} else if s == nil {
		return []int{numbers}, nil
	}
	shape, known, open := []int{}, 1, []int{}
	for i, dim := range s.GetDim() {
		n, _ := size(dim)
		if shape = append(shape, max(n, 1)); n < 0 {
			open = append(open, i)
		}
		known *= max(n, 1)
	}
	if len(open) == 1 && numbers > 1 && numbers%known == 0 {
		shape[open[0]] = numbers / known
	}
	return shape, ir.CheckShape(shape)
}

func parseInteger(d ir.DType, text string) (int64, error) {
	switch {
	case d == ir.Bool && (text == "true" || text == "1"):
		return 1, nil
	case d == ir.Bool && (text == "false" || text == "0"):
		return 0, nil
	case d == ir.Bool:
		return 0, strconv.ErrSyntax
	case !d.IsSigned():
		x, err := strconv.ParseUint(text, 10, d.Bits())
		return int64(x), err
	}
	return strconv.ParseInt(text, 10, d.Bits())
}
