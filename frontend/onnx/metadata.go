package onnx

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
)

// outputSlicesKey is the metadata key under which openpilot's models describe their output vector: base64 of a pickled
// dict[str, slice].
const outputSlicesKey = "output_slices"

// Slice is a named part of the output vector: elements Start to End-1.
type Slice struct {
	Name       string
	Start, End int
}

// Metadata returns the value of a metadata_props entry.
func (m *Model) Metadata(key string) (value string, ok bool) {
	for _, p := range m.Proto.GetMetadataProps() {
		if p.GetKey() == key {
			return p.GetValue(), true
		}
	}
	return "", false
}

// OutputSlices reads openpilot's output_slices, in the file's order and resolved against an output of n elements: a
// negative bound counts from the end, a missing one is the end. It returns nil if the model has none. The pickle is
// read as data only; a pickle that contains anything else is an error. Errors are of type *Error.
func (m *Model) OutputSlices(n int) ([]Slice, error) {
	text, ok := m.Metadata(outputSlicesKey)
	if !ok {
		return nil, nil
	}
	slices, err := parseOutputSlices(text, n)
	if err != nil {
		return nil, m.fileError("metadata %s: %w", outputSlicesKey, err).WithRemedy("write that entry again as a pickled dict of slices, or remove it")
	}
	return slices, nil
}

func parseOutputSlices(text string, n int) ([]Slice, error) {
	if len(text) > 2*maxPickle {
		return nil, fmt.Errorf("%d characters is too long", len(text))
	}
	text = strings.Join(strings.Fields(text), "") // Python's encoder breaks lines
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("not base64: %w", err)
	}
	v, err := unpickle(data)
	if err != nil {
		return nil, err
	}
	return resolveSlices(v, n)
}

// resolveSlices turns an unpickled dict[str, slice] into ranges of n elements.
func resolveSlices(v any, n int) ([]Slice, error) {
	d, ok := v.(*pyDict)
	if !ok {
		return nil, fmt.Errorf("the pickle holds a %s, not a dict of slices", pyKind(v))
	}
	out := make([]Slice, 0, len(d.keys))
	for _, name := range d.keys {
		s, ok := d.values[name].(pySlice)
		if !ok {
			return nil, fmt.Errorf("%q is a %s, not a slice", name, pyKind(d.values[name]))
		}
		start, err := resolveBound(s.start, 0, n)
		if err != nil {
			return nil, fmt.Errorf("the start of slice %q: %w", name, err)
		}
		end, err := resolveBound(s.stop, n, n)
		if err != nil {
			return nil, fmt.Errorf("the end of slice %q: %w", name, err)
		}
		if end < start {
			return nil, fmt.Errorf("slice %q ends at %d, before it starts at %d", name, end, start)
		}
		out = append(out, Slice{name, start, end})
	}
	return out, nil
}

// resolveBound resolves a bound within n elements. Python would clamp one outside them; here it means that the model
// and its metadata contradict each other.
func resolveBound(b *int64, missing, n int) (int, error) {
	if b == nil {
		return missing, nil
	}
	x := *b
	if x < 0 {
		x += int64(n)
	}
	if x < 0 || x > int64(n) {
		return 0, fmt.Errorf("%d is outside the output's %d elements", *b, n)
	}
	return int(x), nil
}

// EncodeOutputSlices is the inverse of OutputSlices: it returns the value of output_slices, a pickle of protocol 4.
func EncodeOutputSlices(slices []Slice) string {
	str := func(out []byte, s string) []byte { // BINUNICODE
		out = append(out, 'X')
		out = binary.LittleEndian.AppendUint32(out, uint32(len(s)))
		return append(out, s...)
	}
	num := func(out []byte, n int) []byte { // BININT
		return binary.LittleEndian.AppendUint32(append(out, 'J'), uint32(n))
	}
	p := []byte("\x80\x04}(")
	for _, s := range slices {
		p = str(p, s.Name)
		p = append(p, "cbuiltins\nslice\n"...)
		p = num(num(p, s.Start), s.End)
		p = append(p, "N\x87R"...) // slice(start, end, None)
	}
	p = append(p, "u."...)
	return base64.StdEncoding.EncodeToString(p)
}

// Ports lists the names of a file's inputs, without initializers that are listed as inputs, and of its outputs.
func (m *Model) Ports() (inputs, outputs []string) {
	g := m.Proto.GetGraph()
	weights := map[string]bool{}
	for _, w := range g.GetInitializer() {
		weights[w.GetName()] = true
	}
	for _, v := range g.GetInput() {
		if !weights[v.GetName()] {
			inputs = append(inputs, v.GetName())
		}
	}
	return inputs, valueNames(g.GetOutput())
}
