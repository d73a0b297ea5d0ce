package onnx

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/ir"
)

// maxElements limits the elements of a tensor, so that sizes in bytes and index arithmetic cannot overflow.
const maxElements = 1 << 40

// splatMin is the number of elements from which a tensor of equal elements is kept as a splat.
const splatMin = 256

// Tensor decodes constant data: raw, typed or in another file. Data of raw tensors is a sub-slice of the model's bytes
// where the formats agree, and must not be modified. A tensor of at least 256 equal elements becomes a splat. Strings,
// complex and 6-bit elements are not supported. Errors are of type *Error.
func (m *Model) Tensor(t *onnxpb.TensorProto) (*ir.Tensor, error) {
	out, err := m.tensor(t)
	if _, ours := err.(*Error); err != nil && !ours {
		err = m.fileError("tensor %q: %w", t.GetName(), err)
	}
	return out, err
}

func (m *Model) tensor(t *onnxpb.TensorProto) (*ir.Tensor, error) {
	d, err := DType(t.GetDataType())
	if err != nil {
		return nil, m.fileError("tensor %q: %w", t.GetName(), err).AsUnsupported("export it with numbers of up to 64 bits")
	}
	if t.Segment != nil {
		return nil, m.fileError("tensor %q is stored in segments, which is not supported", t.GetName()).AsUnsupported("store it whole")
	}
	shape, err := checkDims(t.Dims)
	if err != nil {
		return nil, err
	}
	out := &ir.Tensor{Type: ir.Type{DType: d, Shape: shape}}
	switch {
	case t.GetDataLocation() == onnxpb.TensorProto_EXTERNAL:
		if err := onlySource(t, false); err != nil {
			return nil, err
		}
		out.Data, err = m.externalData(t, out.Bytes())
	case len(t.RawData) > 0:
		if err := onlySource(t, true); err != nil {
			return nil, err
		}
		out.Data = t.RawData
	default:
		out.Data, err = typedData(t, d, out.Numel())
	}
	if err != nil {
		return nil, err
	}
	if len(out.Data) != out.Bytes() {
		return nil, fmt.Errorf("%d bytes of data, but %v takes %d", len(out.Data), out.Type, out.Bytes())
	}
	if d == ir.Bool {
		out.Data = normalizeBools(out.Data)
	}
	if one := splat(out); one != nil {
		out.Data, out.Splat = one, true
	}
	return out, nil
}

// checkDims turns the format's dimensions into a shape whose size in bytes cannot overflow.
func checkDims(dims []int64) ([]int, error) {
	shape := make([]int, len(dims))
	n := int64(1) // product of the dimensions that are not 0: an empty tensor must not hide absurd ones
	for i, d := range dims {
		if d < 0 {
			return nil, fmt.Errorf("dimension %d is negative: %v", i, dims)
		}
		if d > maxElements || d > 0 && n > maxElements/d {
			return nil, fmt.Errorf("dimensions %v overflow: more than %d elements", dims, int64(maxElements))
		}
		if d > 0 {
			n *= d
		}
		shape[i] = int(d)
	}
	return shape, nil
}

// onlySource reports data in typed fields in addition to raw or external data.
func onlySource(t *onnxpb.TensorProto, raw bool) error {
	if len(t.FloatData)+len(t.Int32Data)+len(t.Int64Data)+len(t.DoubleData)+len(t.Uint64Data)+len(t.StringData) > 0 ||
		!raw && len(t.RawData) > 0 {
		return errors.New("data in more than one field")
	}
	return nil
}

// typedData encodes the elements of the field that the format prescribes for the element type (TensorProto in the
// format's description); the other fields must be empty.
func typedData(t *onnxpb.TensorProto, d ir.DType, n int) ([]byte, error) {
	field, ok := map[ir.DType]string{ir.Float32: "float_data", ir.Float64: "double_data", ir.Int64: "int64_data",
		ir.Uint32: "uint64_data", ir.Uint64: "uint64_data"}[d]
	if !ok {
		field = "int32_data"
	}
	lens := map[string]int{
		"float_data": len(t.FloatData), "int32_data": len(t.Int32Data), "int64_data": len(t.Int64Data),
		"double_data": len(t.DoubleData), "uint64_data": len(t.Uint64Data), "string_data": len(t.StringData),
	}
	for _, f := range sortedKeys(lens) {
		if f != field && lens[f] > 0 {
			return nil, fmt.Errorf("%v elements in %s, where the format has them in %s", d, f, field)
		}
	}
	// Sub-byte elements are packed into bytes, and each entry of int32_data is such a byte.
	want := n
	if d.Bits() < 8 {
		want = (n*d.Bits() + 7) / 8
	}
	if lens[field] != want {
		return nil, fmt.Errorf("%d entries in %s, but shape %v needs %d", lens[field], field, t.Dims, want)
	}
	switch {
	case field == "int32_data":
		return appendInt32s(nil, t.Int32Data, d)
	case d == ir.Uint32:
		if i := slices.IndexFunc(t.Uint64Data, func(v uint64) bool { return v > math.MaxUint32 }); i >= 0 {
			return nil, fmt.Errorf("element %d is %d, not a %v", i, t.Uint64Data[i], d)
		}
		return binary.Append(nil, binary.LittleEndian, mapped(t.Uint64Data, func(v uint64) uint32 { return uint32(v) }))
	}
	data := map[string]any{"float_data": t.FloatData, "double_data": t.DoubleData, "int64_data": t.Int64Data, "uint64_data": t.Uint64Data}
	return binary.Append(nil, binary.LittleEndian, data[field])
}

// appendInt32s encodes int32_data. Floats narrower than f32 are stored by their bits, elements narrower than a byte in
// bytes; both may have been sign-extended by the writer.
func appendInt32s(out []byte, data []int32, d ir.DType) ([]byte, error) {
	lo, hi := int32(math.MinInt32), int32(math.MaxInt32)
	switch bits := max(d.Bits(), 8); {
	case d == ir.Bool:
		lo, hi = 0, 1
	case bits == 32:
	case d.Bits() < 8 || d.IsFloat():
		lo, hi = -1<<(bits-1), 1<<bits-1
	case d.IsSigned():
		lo, hi = -1<<(bits-1), 1<<(bits-1)-1
	default:
		lo, hi = 0, 1<<bits-1
	}
	for i, v := range data {
		if v < lo || v > hi {
			return nil, fmt.Errorf("entry %d of int32_data is %d, not within %d…%d as %v needs", i, v, lo, hi, d)
		}
		switch d.Bits() {
		case 32:
			out = binary.LittleEndian.AppendUint32(out, uint32(v))
		case 16:
			out = binary.LittleEndian.AppendUint16(out, uint16(v))
		default:
			out = append(out, byte(v))
		}
	}
	return out, nil
}

// normalizeBools returns data with every true as 1: kernels read bools as numbers.
func normalizeBools(data []byte) []byte {
	if !slices.ContainsFunc(data, func(b byte) bool { return b > 1 }) {
		return data
	}
	return mapped(data, func(b byte) byte { return min(b, 1) })
}

// splat returns the one element of a tensor whose elements are all equal bit for bit, or nil.
func splat(t *ir.Tensor) []byte {
	n := t.Numel()
	if n < splatMin {
		return nil
	}
	bits := t.DType.Bits()
	if bits >= 8 {
		w := bits / 8
		if !bytes.Equal(t.Data[:w], t.Data[w:2*w]) || !bytes.Equal(t.Data[w:], t.Data[:len(t.Data)-w]) {
			return nil
		}
		return t.Data[:w:w]
	}
	mask := byte(1<<bits - 1)
	first := t.Data[0] & mask
	for i := range n {
		if t.Data[i*bits/8]>>(i*bits%8)&mask != first {
			return nil
		}
	}
	return []byte{first}
}
