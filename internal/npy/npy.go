// Package npy reads and writes NumPy's .npy and .npz files as raw elements, of every dtype that a model can have. The
// header is parsed here because the available library panics on a malformed one and does not support float16.
package npy

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spark-compile/spark-compile/internal/atomicfile"
	"github.com/spark-compile/spark-compile/internal/memory"
)

// Array is a dense array: little-endian elements in row-major order.
type Array struct {
	DType string // names of ir.DType: f16, f32, u8, i64 …
	Shape []int
	Data  []byte
}

// descriptor is NumPy's string for a type, of which the last character is its size in bytes, and ours.
type descriptor struct{ descr, name string }

var descriptors = []descriptor{
	{"|b1", "bool"}, {"|i1", "i8"}, {"|u1", "u8"}, {"<i2", "i16"}, {"<u2", "u16"}, {"<i4", "i32"}, {"<u4", "u32"},
	{"<i8", "i64"}, {"<u8", "u64"}, {"<f2", "f16"}, {"<f4", "f32"}, {"<f8", "f64"},
}

const (
	maxBytes  = 1 << 40 // that a header may declare
	maxHeader = 10_000  // bytes, as numpy.load has it
	maxRank   = 64      // likewise
)

// Read reads one .npy stream. What the budget of memory has no room for is an error.
func Read(r io.Reader) (*Array, error) { return read(r, 0) }

// read is Read of a stream that is known to end after so many bytes; 0: nothing is known.
func read(r io.Reader, length int64) (*Array, error) {
	a, columns, err := describe(r)
	if err != nil {
		return nil, err
	}
	size := a.size()
	bytes := size
	for _, d := range a.Shape {
		bytes *= d
	}
	need := int64(bytes)
	if columns && len(a.Shape) > 1 {
		need *= 2
	}
	if err := memory.Default().Check(need, fmt.Sprintf("an array of shape %v", a.Shape)); err != nil {
		return nil, err
	}
	// A header may declare more than there is: room is made for what there can be, and grows with the data.
	a.Data, err = memory.ReadAll(io.LimitReader(r, int64(bytes)), min(int64(bytes), length))
	if err != nil {
		return nil, err
	}
	if len(a.Data) != bytes {
		return nil, fmt.Errorf("%d bytes of data, shape %v needs %d", len(a.Data), a.Shape, bytes)
	}
	if columns && len(a.Shape) > 1 {
		a.Data = rowMajor(a.Data, a.Shape, size)
	}
	return a, nil
}

// Describe reads the header of one .npy stream: an array without its data.
func Describe(r io.Reader) (*Array, error) {
	a, _, err := describe(r)
	return a, err
}

// describe also says whether the elements are column-major.
func describe(r io.Reader) (a *Array, columns bool, err error) {
	h, err := readHeader(r)
	if err != nil {
		return nil, false, fmt.Errorf("not a .npy file: %w", err)
	}
	i := slices.IndexFunc(descriptors, func(d descriptor) bool { return d.descr == h.descr })
	if i < 0 {
		return nil, false, fmt.Errorf("elements of NumPy type %.20q are not supported", h.descr)
	}
	a = &Array{DType: descriptors[i].name, Shape: h.shape}
	bytes := a.size()
	for _, d := range a.Shape {
		if d < 0 || d > 0 && bytes > maxBytes/d {
			return nil, false, fmt.Errorf("shape %v is too large", a.Shape)
		}
		bytes *= d
	}
	return a, h.columns, nil
}

// size of an element that NumPy has, in bytes.
func (a *Array) size() int {
	i := slices.IndexFunc(descriptors, func(d descriptor) bool { return d.name == a.DType })
	return int(descriptors[i].descr[2] - '0')
}

// reHeader is the header that NumPy writes: a Python literal with sorted keys.
var reHeader = regexp.MustCompile(`^\{'descr': '([^']*)', 'fortran_order': (True|False), 'shape': \(([0-9, ]*)\), \}\s*$`)

type header struct {
	descr   string
	columns bool // column-major
	shape   []int
}

// readHeader reads magic, version and header (numpy.lib.format, versions 1 to 3).
func readHeader(r io.Reader) (h header, err error) {
	var fixed [8]byte
	if _, err := io.ReadFull(r, fixed[:]); err != nil {
		return h, err
	}
	if string(fixed[:6]) != "\x93NUMPY" || fixed[6] < 1 || fixed[6] > 3 {
		return h, errors.New("no NumPy magic")
	}
	length := make([]byte, 2)
	if fixed[6] > 1 {
		length = make([]byte, 4)
	}
	if _, err := io.ReadFull(r, length); err != nil {
		return h, err
	}
	n := binary.LittleEndian.Uint32(append(length, 0, 0))
	if n > maxHeader {
		return h, fmt.Errorf("a header of %d bytes, more than %d", n, maxHeader)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return h, err
	}
	m := reHeader.FindStringSubmatch(string(text))
	if m == nil {
		return h, fmt.Errorf("header %.100q", text)
	}
	h = header{m[1], m[2] == "True", []int{}}
	dims := strings.FieldsFunc(m[3], func(r rune) bool { return r == ',' || r == ' ' })
	if len(dims) > maxRank {
		return h, fmt.Errorf("%d dimensions, more than the %d of NumPy", len(dims), maxRank)
	}
	for _, d := range dims {
		v, err := strconv.Atoi(d)
		if err != nil {
			return h, fmt.Errorf("dimension %.40s is too large", d)
		}
		h.shape = append(h.shape, v)
	}
	return h, nil
}

// rowMajor reorders column-major data.
func rowMajor(data []byte, shape []int, size int) []byte {
	out := make([]byte, 0, len(data))
	index := make([]int, len(shape))
	for range len(data) / size {
		at, stride := 0, 1
		for d := range shape {
			at += index[d] * stride
			stride *= shape[d]
		}
		out = append(out, data[at*size:(at+1)*size]...)
		for d := len(shape) - 1; d >= 0; d-- {
			if index[d]++; index[d] < shape[d] {
				break
			}
			index[d] = 0
		}
	}
	return out
}

// Write writes one .npy stream, format version 1.0. Types that NumPy lacks (bf16, fp8 …) are written as unsigned
// integers of their width.
func Write(w io.Writer, a *Array) error {
	descr := "|u1"
	if i := slices.IndexFunc(descriptors, func(d descriptor) bool { return d.name == a.DType }); i >= 0 {
		descr = descriptors[i].descr
	} else if a.DType == "bf16" {
		descr = "<u2"
	}
	var dims strings.Builder
	for _, d := range a.Shape {
		fmt.Fprintf(&dims, "%d, ", d)
	}
	shape := strings.TrimSuffix(dims.String(), " ")
	if len(a.Shape) != 1 {
		shape = strings.TrimSuffix(shape, ",")
	}
	header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, shape)
	const preamble = 10
	pad := (64 - (preamble+len(header)+1)%64) % 64
	header += strings.Repeat(" ", pad) + "\n"
	if len(header) > math.MaxUint16 {
		return errors.New("too many dimensions")
	}
	if _, err := w.Write(append([]byte{0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, byte(len(header)), byte(len(header) >> 8)}, header...)); err != nil {
		return err
	}
	_, err := w.Write(a.Data)
	return err
}

// ReadFile reads a .npy file.
func ReadFile(path string) (*Array, error) {
	f, err := memory.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	a, err := read(f, f.Size())
	if err == nil {
		err = f.Unchanged()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return a, nil
}

// WriteFile writes a .npy file.
func WriteFile(path string, a *Array) error {
	var b bytes.Buffer
	if err := Write(&b, a); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return atomicfile.Write(path, b.Bytes())
}

// WriteZip writes a .npz file: the same arrays give the same bytes.
func WriteZip(path string, arrays map[string]*Array) error {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for _, n := range slices.Sorted(maps.Keys(arrays)) {
		w, err := z.CreateHeader(&zip.FileHeader{Name: n + ".npy", Method: zip.Deflate})
		if err != nil {
			return err
		}
		if err := Write(w, arrays[n]); err != nil {
			return fmt.Errorf("%s: %s: %w", filepath.Base(path), n, err)
		}
	}
	if err := z.Close(); err != nil {
		return err
	}
	return atomicfile.Write(path, b.Bytes())
}
