package adapterfile

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spark-compile/spark-compile/internal/atomicfile"
	"github.com/spark-compile/spark-compile/internal/memory"
)

// Tensor is a dense tensor: little-endian elements in row-major order.
type Tensor struct {
	DType string // the format's name: F64, F32, F16, BF16, I64 …
	Shape []int
	Data  []byte
}

// TensorFile is a safetensors file: the length of a JSON header in eight bytes, the header with type, shape and offset of each tensor, then the
// tensors' bytes without gaps. Files come from strangers, so everything in the header is checked before it is used.
type TensorFile struct {
	Tensors  map[string]Tensor
	Metadata map[string]string // nil: none
}

// sizes are the bytes of an element.
var sizes = map[string]int{
	"BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
	"U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8,
}

const (
	metadata  = "__metadata__"
	maxHeader = 100 << 20 // as the reference implementation has it
	maxRank   = 16
	maxDim    = 1 << 40
)

// entry is a tensor as the header has it.
type entry struct {
	DType   string  `json:"dtype"`
	Shape   []int64 `json:"shape"`
	Offsets []int64 `json:"data_offsets"`
}

// ReadTensors reads a file. Errors name it, and the tensor where one is wrong.
func ReadTensors(path string) (*TensorFile, error) {
	data, err := memory.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f, err := DecodeTensors(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

// DecodeTensors reads what Read reads. Tensors share data's memory.
func DecodeTensors(data []byte) (*TensorFile, error) {
	if len(data) < 8 {
		return nil, fmt.Errorf("not a safetensors file: it has %d bytes", len(data))
	}
	size := binary.LittleEndian.Uint64(data)
	if size > maxHeader || size > uint64(len(data)-8) {
		return nil, fmt.Errorf("not a safetensors file, or a truncated one: its header has %d bytes, the file %d", size, len(data))
	}
	header, body := data[8:8+size], data[8+size:]
	if !utf8.Valid(header) {
		return nil, errors.New("the header is no UTF-8")
	}
	if err := memory.CheckJSON(header); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	f := &TensorFile{Tensors: map[string]Tensor{}}
	entries := map[string]entry{}
	err := eachMember(header, func(name string, value json.RawMessage) error {
		if name == metadata {
			return strict(value, &f.Metadata)
		}
		var e entry
		if err := strict(value, &e); err != nil {
			return err
		}
		entries[name] = e
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(entries)) { // so that the error is always the same one
		e := entries[name]
		if err := e.check(len(body)); err != nil {
			return nil, fmt.Errorf("tensor %.200q: %w", name, err)
		}
		t := Tensor{DType: e.DType, Data: body[e.Offsets[0]:e.Offsets[1]:e.Offsets[1]]}
		for _, d := range e.Shape {
			t.Shape = append(t.Shape, int(d))
		}
		f.Tensors[name] = t
	}
	return f, covered(entries, int64(len(body)))
}

// check holds an entry against the bytes that there are.
func (e entry) check(body int) error {
	size := int64(sizes[e.DType])
	switch {
	case size == 0:
		return fmt.Errorf("elements of type %.20q are not supported", e.DType)
	case len(e.Offsets) != 2:
		return fmt.Errorf("data_offsets lie outside the data: they have %d numbers, want 2", len(e.Offsets))
	case e.Offsets[0] < 0 || e.Offsets[1] < e.Offsets[0] || e.Offsets[1] > int64(body):
		return fmt.Errorf("data_offsets %v lie outside the %d bytes of data", e.Offsets, body)
	case len(e.Shape) > maxRank:
		return fmt.Errorf("%d dimensions, at most %d are supported", len(e.Shape), maxRank)
	}
	empty := slices.Contains(e.Shape, 0)
	for _, d := range e.Shape {
		if d < 0 || d > maxDim || !empty && size > int64(body)/d {
			return fmt.Errorf("shape %v is negative or larger than the %d bytes of data", e.Shape, body)
		}
		if !empty {
			size *= d
		}
	}
	if empty {
		size = 0
	}
	if got := e.Offsets[1] - e.Offsets[0]; got != size {
		return fmt.Errorf("shape %v of %s needs %d bytes, data_offsets %v have %d", e.Shape, e.DType, size, e.Offsets, got)
	}
	return nil
}

// covered checks that the tensors are contiguous.
func covered(entries map[string]entry, body int64) error {
	names := slices.SortedFunc(maps.Keys(entries), func(a, b string) int {
		x, y := entries[a].Offsets, entries[b].Offsets
		return cmp.Or(cmp.Compare(x[0], y[0]), cmp.Compare(x[1], y[1]), strings.Compare(a, b))
	})
	at := int64(0)
	for _, name := range names {
		if o := entries[name].Offsets; o[0] != at {
			return fmt.Errorf("tensor %.200q begins at byte %d, where the one before it ends at %d", name, o[0], at)
		}
		at = entries[name].Offsets[1]
	}
	if at != body {
		return fmt.Errorf("%d bytes of data belong to no tensor", body-at)
	}
	return nil
}

// eachMember calls f with the members of a JSON object in order. A name that is there twice is an error.
func eachMember(data []byte, f func(name string, value json.RawMessage) error) error {
	d := json.NewDecoder(bytes.NewReader(data))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return fmt.Errorf("no JSON object")
	}
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return err
		}
		name := t.(string) // a key is a string, or Token fails
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return fmt.Errorf("%.200q: %w", name, err)
		}
		if seen[name] {
			return fmt.Errorf("%.200q is there twice", name)
		}
		seen[name] = true
		if err := f(name, value); err != nil {
			return fmt.Errorf("%.200q: %w", name, err)
		}
	}
	if _, err := d.Token(); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("something stands behind the JSON object")
	}
	return nil
}

// strict decodes a JSON value whose members are all known.
func strict(value json.RawMessage, to any) error {
	d := json.NewDecoder(bytes.NewReader(value))
	d.DisallowUnknownFields()
	return d.Decode(to)
}

// Encode writes the format: tensors by name, the header filled up with spaces so that they begin at a multiple of eight bytes.
// Equal files give equal bytes.
func (f *TensorFile) Encode() ([]byte, error) {
	header := map[string]any{}
	if len(f.Metadata) > 0 {
		header[metadata] = f.Metadata
	}
	at := 0
	names := slices.Sorted(maps.Keys(f.Tensors))
	for _, name := range names {
		t := f.Tensors[name]
		e := entry{DType: t.DType, Shape: []int64{}, Offsets: []int64{int64(at), int64(at + len(t.Data))}}
		for _, d := range t.Shape {
			e.Shape = append(e.Shape, int64(d))
		}
		at += len(t.Data)
		if err := e.check(at); err != nil {
			return nil, fmt.Errorf("tensor %q: %w", name, err)
		}
		header[name] = e
	}
	var b bytes.Buffer
	b.Write(make([]byte, 8))
	j := json.NewEncoder(&b) // maps go by name
	j.SetEscapeHTML(false)
	if err := j.Encode(header); err != nil {
		return nil, err
	}
	b.Truncate(b.Len() - 1) // the line's end
	for b.Len()%8 != 0 {
		b.WriteByte(' ')
	}
	binary.LittleEndian.PutUint64(b.Bytes(), uint64(b.Len()-8))
	for _, name := range names {
		b.Write(f.Tensors[name].Data)
	}
	return b.Bytes(), nil
}

// Write writes a file, whole or not at all.
func (f *TensorFile) Write(path string) error {
	data, err := f.Encode()
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return atomicfile.Write(path, data)
}
