package onnx

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/ir"
)

func TestTypedAndRawTensors(t *testing.T) {
	type pb = onnxpb.TensorProto
	for _, c := range []struct {
		name  string
		d     ir.DType
		dims  []int64
		proto *pb
		want  []byte
	}{
		{"f32 typed", ir.Float32, []int64{2}, &pb{FloatData: []float32{1, -2}}, []byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0}},
		{"f64 typed", ir.Float64, []int64{1}, &pb{DoubleData: []float64{1}}, []byte{0, 0, 0, 0, 0, 0, 0xf0, 0x3f}},
		{"i64 typed", ir.Int64, nil, &pb{Int64Data: []int64{-2}}, []byte{0xfe, 255, 255, 255, 255, 255, 255, 255}},
		{"u64 typed", ir.Uint64, nil, &pb{Uint64Data: []uint64{1 << 63}}, []byte{0, 0, 0, 0, 0, 0, 0, 0x80}},
		{"u32 typed", ir.Uint32, nil, &pb{Uint64Data: []uint64{1<<32 - 1}}, []byte{255, 255, 255, 255}},
		{"i32 typed", ir.Int32, nil, &pb{Int32Data: []int32{-2}}, []byte{0xfe, 255, 255, 255}},
		{"i16 typed", ir.Int16, nil, &pb{Int32Data: []int32{-2}}, []byte{0xfe, 255}},
		{"u16 typed", ir.Uint16, nil, &pb{Int32Data: []int32{65535}}, []byte{255, 255}},
		{"i8 typed", ir.Int8, []int64{2}, &pb{Int32Data: []int32{-128, 127}}, []byte{0x80, 0x7f}},
		{"u8 typed", ir.Uint8, nil, &pb{Int32Data: []int32{255}}, []byte{255}},
		{"bool typed", ir.Bool, []int64{2}, &pb{Int32Data: []int32{1, 0}}, []byte{1, 0}},
		{"bool raw, any byte but 0 is true", ir.Bool, []int64{3}, &pb{RawData: []byte{0, 1, 7}}, []byte{0, 1, 1}},
		{"f16 typed by bits", ir.Float16, nil, &pb{Int32Data: []int32{0xbc00}}, []byte{0, 0xbc}},
		{"f16 typed by sign-extended bits", ir.Float16, nil, &pb{Int32Data: []int32{-0x4400}}, []byte{0, 0xbc}},
		{"bf16 typed", ir.BFloat16, nil, &pb{Int32Data: []int32{0x3f80}}, []byte{0x80, 0x3f}},
		{"e4m3 typed", ir.Float8E4M3FN, nil, &pb{Int32Data: []int32{0xb8}}, []byte{0xb8}},
		{"e8m0 raw", ir.Float8E8M0, nil, &pb{RawData: []byte{127}}, []byte{127}},
		{"i4 typed, two an entry", ir.Int4, []int64{3}, &pb{Int32Data: []int32{0x21, 0x0f}}, []byte{0x21, 0x0f}},
		{"u4 raw", ir.Uint4, []int64{3}, &pb{RawData: []byte{0x21, 0x0f}}, []byte{0x21, 0x0f}},
		{"e2m1 typed", ir.Float4E2M1, []int64{1, 2}, &pb{Int32Data: []int32{0x7a}}, []byte{0x7a}},
		{"i2 typed, four an entry", ir.Int2, []int64{5}, &pb{Int32Data: []int32{0xe4, 3}}, []byte{0xe4, 3}},
		{"no elements", ir.Float32, []int64{0, 3}, &pb{}, nil},
		{"no elements, raw", ir.Float32, []int64{0, 3}, &pb{RawData: []byte{}}, nil},
		{"empty raw and typed data", ir.Uint8, nil, &pb{RawData: []byte{}, Int32Data: []int32{5}}, []byte{5}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := proto.Clone(c.proto).(*pb)
			p.Dims, p.DataType = c.dims, proto.Int32(int32(DataType(c.d)))
			got, err := (&Model{}).Tensor(p)
			require.NoError(t, err)
			require.Equal(t, c.d, got.DType)
			require.Len(t, got.Shape, len(c.dims))
			require.Equal(t, string(c.want), string(got.Data))
		})
	}
}

func TestTensorRefuses(t *testing.T) {
	type pb = onnxpb.TensorProto
	const f32, i8, u32, boolean = 1, 3, 12, 9
	for _, c := range []struct {
		name, want string
		dtype      int32
		dims       []int64
		proto      *pb
	}{
		{"short raw data", "4 bytes of data, but f32[2] takes 8", f32, []int64{2}, &pb{RawData: make([]byte, 4)}},
		{"no data", "0 entries in float_data, but shape [2] needs 2", f32, []int64{2}, &pb{}},
		{"too much typed data", "2 entries in float_data, but shape [] needs 1", f32, nil, &pb{FloatData: []float32{1, 2}}},
		{"data in the wrong field", "f32 elements in double_data, where the format has them in float_data", f32, nil, &pb{DoubleData: []float64{1}}},
		{"data twice", "data in more than one field", f32, nil, &pb{FloatData: []float32{1}, RawData: make([]byte, 4)}},
		{"negative dimension", "dimension 1 is negative: [2 -1]", f32, []int64{2, -1}, &pb{}},
		{"overflow", "overflow", f32, []int64{1 << 40, 1 << 40}, &pb{}},
		{"overflow after a zero", "overflow", f32, []int64{0, 1 << 62, 1 << 62}, &pb{}},
		{"int8 out of range", "entry 0 of int32_data is 128, not within -128…127 as i8 needs", i8, nil, &pb{Int32Data: []int32{128}}},
		{"uint32 out of range", "element 0 is 4294967296, not a u32", u32, nil, &pb{Uint64Data: []uint64{1 << 32}}},
		{"bool out of range", "not within 0…1", boolean, nil, &pb{Int32Data: []int32{2}}},
		{"string", "element type string is not supported", 8, nil, &pb{StringData: [][]byte{[]byte("a")}}},
		{"complex", "element type complex64 is not supported", 14, nil, &pb{FloatData: []float32{1, 2}}},
		{"undefined", "element type undefined is not supported", 0, nil, &pb{}},
		{"unknown type", "element type 99 does not exist in the format", 99, nil, &pb{}},
		{"segment", "stored in segments", f32, nil, &pb{Segment: &onnxpb.TensorProto_Segment{}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := proto.Clone(c.proto).(*pb)
			p.Name, p.Dims, p.DataType = proto.String("w"), c.dims, proto.Int32(c.dtype)
			_, err := (&Model{Path: "m.onnx"}).Tensor(p)
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, `m.onnx: tensor "w"`)
			var e *Error
			require.ErrorAs(t, err, &e)
		})
	}
}

func TestSplats(t *testing.T) {
	fill := func(n int, pattern ...byte) []byte {
		var out []byte
		for len(out) < n {
			out = append(out, pattern...)
		}
		return out[:n]
	}
	differs := fill(1024, 1, 2, 3, 4)
	differs[1023] = 9
	for _, c := range []struct {
		name string
		t    ir.Type
		data []byte
		want []byte // nil: not a splat
	}{
		{"f32", ir.T(ir.Float32, 256), fill(1024, 1, 2, 3, 4), []byte{1, 2, 3, 4}},
		{"f32, last byte differs", ir.T(ir.Float32, 256), differs, nil},
		{"f32 below the limit", ir.T(ir.Float32, 255), fill(1020, 1, 2, 3, 4), nil},
		{"u8", ir.T(ir.Uint8, 16, 16), fill(256, 7), []byte{7}},
		{"u8 of two values", ir.T(ir.Uint8, 256), fill(256, 7, 8), nil},
		{"i4, odd count, padding differs", ir.T(ir.Int4, 257), append(fill(128, 0x55), 0xf5), []byte{5}},
		{"i4 of two values", ir.T(ir.Int4, 256), fill(128, 0x56), nil},
		{"u2", ir.T(ir.Uint2, 256), fill(64, 0xaa), []byte{2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := TensorProto(&ir.Tensor{Type: c.t, Data: c.data})
			got, err := (&Model{}).Tensor(p)
			require.NoError(t, err)
			require.Equal(t, c.want != nil, got.Splat)
			if !got.Splat {
				require.Equal(t, c.data, got.Data)
				return
			}
			require.Equal(t, c.want, got.Data)
			again, err := (&Model{}).Tensor(TensorProto(got))
			require.NoError(t, err)
			require.Equal(t, got, again, "writing a splat and reading it gives it back")
		})
	}
}

func external(kv ...string) *onnxpb.TensorProto {
	t := &onnxpb.TensorProto{Name: proto.String("w"), Dims: []int64{2}, DataType: proto.Int32(2),
		DataLocation: onnxpb.TensorProto_EXTERNAL.Enum()}
	for i := 0; i < len(kv); i += 2 {
		t.ExternalData = append(t.ExternalData, &onnxpb.StringStringEntryProto{Key: &kv[i], Value: &kv[i+1]})
	}
	return t
}

func TestExternalData(t *testing.T) {
	dir := t.TempDir()
	modelDir := filepath.Join(dir, "model")
	require.NoError(t, os.MkdirAll(filepath.Join(modelDir, "sub"), 0o755))
	write := func(name, data string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644))
	}
	write("secret", "secret")
	write("model/w.bin", "0123456789")
	write("model/sub/w.bin", "ab")
	write("model/lfs.bin", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 2\n")
	require.NoError(t, os.Symlink("../secret", filepath.Join(modelDir, "link")))
	m := &Model{Path: filepath.Join(modelDir, "m.onnx")}

	for _, c := range []struct {
		name, want string
		t          *onnxpb.TensorProto
	}{
		{"whole range", "34", external("location", "w.bin", "offset", "3", "length", "2")},
		{"no length", "89", external("location", "w.bin", "offset", "8")},
		{"no offset", "ab", external("location", "sub/w.bin")},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := m.Tensor(c.t)
			require.NoError(t, err)
			require.Equal(t, c.want, string(got.Data))
		})
	}
	for _, c := range []struct {
		name, want string
		t          *onnxpb.TensorProto
	}{
		{"no location", "external data without a location", external("offset", "3")},
		{"no such file", `external data "none.bin": no such file or directory; put the file next to the model`, external("location", "none.bin")},
		{"beyond the end", "bytes 9 to 11 lie outside the file, which has 10", external("location", "w.bin", "offset", "9")},
		{"far beyond the end", "lie outside the file", external("location", "w.bin", "offset", "9223372036854775807")},
		{"negative offset", `offset of its external data: "-1" is not a number of bytes`, external("location", "w.bin", "offset", "-1")},
		{"wrong length", "3 bytes of external data, but its type takes 2", external("location", "w.bin", "length", "3")},
		{"parent directory", "the path leaves the model's directory", external("location", "../secret")},
		{"absolute path", "the path leaves the model's directory", external("location", filepath.Join(dir, "secret"))},
		{"symbolic link out", "escapes", external("location", "link")},
		{"directory", "not a regular file", external("location", "sub")},
		{"LFS pointer", "a Git LFS pointer, not the data itself; run git lfs pull", external("location", "lfs.bin")},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := m.Tensor(c.t)
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, `tensor "w"`)
		})
	}
	t.Run("model that is no file", func(t *testing.T) {
		_, err := (&Model{}).Tensor(external("location", "w.bin"))
		require.ErrorContains(t, err, "the model was not read from a file")
	})
}
