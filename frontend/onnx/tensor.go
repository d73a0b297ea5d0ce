package onnx

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/ir"
)

// maxElements bounds the elements of one tensor, so that sizes in bytes and index arithmetic cannot overflow.
const maxElements = 1 << 40

// splatMin is the number of elements from which a tensor of equal elements is kept as a splat.
const splatMin = 256

// Tensor decodes constant data: raw, typed or in another file. Data of raw tensors is a sub-slice of the model's bytes
// where the formats agree, and must not be modified. A tensor of at least 256 equal elements comes back as a splat.
// Strings, complex and 6-bit elements are refused. Errors are of type *Error.
func (m *Model) Tensor(t *onnxpb.TensorProto) (*ir.Tensor, error) {
	out, err := m.tensor(t)
	if err == nil {
		return out, nil
	}
	if e, ok := err.(*Error); ok {
		return nil, e
	}
	return nil, m.fileError("tensor %q: %w", t.GetName(), err)
}

func (m *Model) tensor(t *onnxpb.TensorProto) (*ir.Tensor, error) {
	d, err := DType(t.GetDataType())
	if err != nil {
		return nil, m.fileError("tensor %q: %w", t.GetName(), err).AsUnsupported()
	}
	if t.Segment != nil {
		return nil, m.fileError("tensor %q is stored in segments, which is not supported", t.GetName()).AsUnsupported()
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

// onlySource reports data in typed fields beside raw or external data.
func onlySource(t *onnxpb.TensorProto, raw bool) error {
	if len(t.FloatData)+len(t.Int32Data)+len(t.Int64Data)+len(t.DoubleData)+len(t.Uint64Data)+len(t.StringData) > 0 ||
		!raw && len(t.RawData) > 0 {
		return fmt.Errorf("data in more than one field")
	}
	return nil
}

// typedData encodes the elements of the field that the format prescribes for the element type (TensorProto in the
// format's description); the other fields must be empty.
func typedData(t *onnxpb.TensorProto, d ir.DType, n int) ([]byte, error) {
	lens := map[string]int{
		"float_data": len(t.FloatData), "int32_data": len(t.Int32Data), "int64_data": len(t.Int64Data),
		"double_data": len(t.DoubleData), "uint64_data": len(t.Uint64Data), "string_data": len(t.StringData),
	}
	field := typedField(d)
	for _, f := range []string{"float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data"} {
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
	le := binary.LittleEndian
	out := make([]byte, 0, (n*d.Bits()+7)/8)
	switch field {
	case "float_data":
		for _, v := range t.FloatData {
			out = le.AppendUint32(out, math.Float32bits(v))
		}
	case "double_data":
		for _, v := range t.DoubleData {
			out = le.AppendUint64(out, math.Float64bits(v))
		}
	case "int64_data":
		for _, v := range t.Int64Data {
			out = le.AppendUint64(out, uint64(v))
		}
	case "uint64_data":
		for i, v := range t.Uint64Data {
			if d == ir.Uint64 {
				out = le.AppendUint64(out, v)
				continue
			}
			if v > math.MaxUint32 {
				return nil, fmt.Errorf("element %d is %d, not a %v", i, v, d)
			}
			out = le.AppendUint32(out, uint32(v))
		}
	case "int32_data":
		return appendInt32s(out, t.Int32Data, d)
	}
	return out, nil
}

// typedField is the field of TensorProto for elements of type d.
func typedField(d ir.DType) string {
	switch d {
	case ir.Float32:
		return "float_data"
	case ir.Float64:
		return "double_data"
	case ir.Int64:
		return "int64_data"
	case ir.Uint32, ir.Uint64:
		return "uint64_data"
	default:
		return "int32_data"
	}
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
	for i, b := range data {
		if b > 1 {
			out := bytes.Clone(data)
			for j := i; j < len(out); j++ {
				if out[j] != 0 {
					out[j] = 1
				}
			}
			return out
		}
	}
	return data
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
