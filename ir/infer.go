package ir

import (
	"fmt"
	"slices"
)

// maxElements bounds the elements of one tensor: far above what a model holds, far below what overflows an int when it
// is multiplied by an element's size.
const maxElements = 1 << 40

// CheckShape rejects negative dimensions and tensors of more than 2^40 elements.
func CheckShape(shape []int) error {
	n := 1
	for _, d := range shape {
		switch {
		case d < 0:
			return fmt.Errorf("shape %v has a negative dimension", shape)
		case d > maxElements, d > 0 && n > maxElements/d:
			return fmt.Errorf("shape %v has more than 2^40 elements", shape)
		}
		n *= d
	}
	return nil
}

// Broadcast returns the common shape of the operands by NumPy's rule.
func Broadcast(shapes ...[]int) ([]int, error) {
	rank := 0
	for _, s := range shapes {
		rank = max(rank, len(s))
	}
	out := make([]int, rank)
	for i := range out {
		out[i] = 1
		for _, s := range shapes {
			j := i - (rank - len(s))
			if j < 0 || s[j] == 1 || s[j] == out[i] {
				continue
			}
			if out[i] != 1 {
				return nil, fmt.Errorf("shapes %v do not broadcast", shapes)
			}
			out[i] = s[j]
		}
	}
	return out, nil
}

// BroadcastsTo reports whether a value of shape s can be expanded to exactly the shape to.
func BroadcastsTo(s, to []int) bool {
	if len(s) > len(to) {
		return false
	}
	for i, d := range s {
		if d != 1 && d != to[i+len(to)-len(s)] {
			return false
		}
	}
	return true
}

func (d DType) valid() bool { return d != Invalid && d < numDTypes }

// classes are the sets of element types that inputs are declared with, and what a message calls them.
var classes = map[string]struct {
	text string
	has  func(DType) bool
}{
	"any":     {"any type", DType.valid},
	"number":  {"a number type", func(d DType) bool { return d.IsInt() || d.IsFloat() }},
	"float":   {"a floating-point type", DType.IsFloat},
	"integer": {"an integer type", DType.IsInt},
	"bool":    {"bool", func(d DType) bool { return d == Bool }},
	"index":   {"i32 or i64", func(d DType) bool { return d == Int32 || d == Int64 }},
}

// want checks that input i, if present, has an element type of the class.
func (n *Node) want(i int, class string) error {
	v := n.In(i)
	if v == nil || classes[class].has(v.Type.DType) {
		return nil
	}
	return fmt.Errorf("%s is %v, want %s", n.Op.inputName(i), v.Type, classes[class].text)
}

// alike requires two inputs, if present, to have one element type.
func (n *Node) alike(i, j int) error {
	a, b := n.In(i), n.In(j)
	if a == nil || b == nil || a.Type.DType == b.Type.DType {
		return nil
	}
	return fmt.Errorf("%s is %v but %s is %v: they must have one element type", n.Op.inputName(i), a.Type.DType, n.Op.inputName(j), b.Type.DType)
}

// shaped requires input i, if present, to have exactly the shape.
func (n *Node) shaped(i int, shape ...int) error {
	v := n.In(i)
	if v == nil || slices.Equal(v.Type.Shape, shape) {
		return nil
	}
	return fmt.Errorf("%s is %v, want shape %v", n.Op.inputName(i), v.Type, shape)
}

// inputName is the row's name of input i.
func (o *Op) inputName(i int) string {
	if p := o.input(i); !p.Variadic {
		return p.Name
	}
	return fmt.Sprintf("%s[%d]", o.input(i).Name, i-len(o.Inputs)+1)
}

// axisOf returns the attribute as an axis below rank.
func (n *Node) axisOf(attr string, def, rank int) (int, error) {
	a := n.Attrs.Int(attr, def)
	if a < 0 || a >= rank {
		return 0, fmt.Errorf("%s=%d is outside a value of rank %d", attr, a, rank)
	}
	return a, nil
}

// oneOf requires a string attribute to be one of the values.
func (n *Node) oneOf(attr, def string, values ...string) error {
	if s := n.Attrs.String(attr, def); !slices.Contains(values, s) {
		return fmt.Errorf("%s=%q, want one of %v", attr, s, values)
	}
	return nil
}

// intsOf returns an []int attribute of the given length.
func (n *Node) intsOf(attr string, length int) ([]int, error) {
	v := n.Attrs.Ints(attr)
	if len(v) != length {
		return nil, fmt.Errorf("%s=%v, want %d values", attr, v, length)
	}
	return v, nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// one wraps a single output type.
func one(d DType, shape ...int) ([]Type, error) { return []Type{{d, shape}}, nil }
