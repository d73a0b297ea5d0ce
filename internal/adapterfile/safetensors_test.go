package adapterfile

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/memory"
	"github.com/spark-compile/spark-compile/internal/testing/hostile"
)

// file is a file with the header and so many bytes of data.
func file(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, data)...)
}

func TestSafetensors_RoundTrip(t *testing.T) {
	f := &TensorFile{Metadata: map[string]string{"base": "a\n\"<é>", "car": ""}, Tensors: map[string]Tensor{
		"b": {DType: "F32", Shape: []int{2, 1}, Data: []byte{1, 2, 3, 4, 5, 6, 7, 8}}, "a": {DType: "BF16", Shape: nil, Data: []byte{9, 8}},
		"empty": {DType: "I64", Shape: []int{3, 0}, Data: []byte{}},
	}}
	path := filepath.Join(t.TempDir(), "a.safetensors")
	require.NoError(t, f.Write(path))
	back, err := ReadTensors(path)
	require.NoError(t, err)
	assert.Equal(t, f, back)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Zero(t, (binary.LittleEndian.Uint64(data)+8)%8)
	again, err := back.Encode()
	require.NoError(t, err)
	assert.Equal(t, data, again)
	for n := range data { // cut anywhere, it is refused
		_, err := DecodeTensors(data[:n])
		assert.Error(t, err, n)
	}
	_, err = ReadTensors(filepath.Join(t.TempDir(), "none"))
	assert.ErrorIs(t, err, os.ErrNotExist)
}

func TestSafetensors_RefusesFalseHeaders(t *testing.T) {
	for _, c := range []struct {
		data []byte
		want string
	}{
		{[]byte("short"), "it has 5 bytes"},
		{binary.LittleEndian.AppendUint64(nil, 1<<63), "its header has 9223372036854775808 bytes, the file 8"},
		{binary.LittleEndian.AppendUint64(nil, 1<<62+3), "truncated"},
		{file(`[]`, 0), "no JSON object"},
		{file("{\"\xff\":1}", 0), "no UTF-8"},
		{file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 4), `"a" is there twice`},
		{file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}}`, 4), `unknown field "x"`},
		{file(`{"a":{"dtype":"Q4","shape":[1],"data_offsets":[0,4]}}`, 4), `tensor "a": elements of type "Q4"`},
		{file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}}`, 4), "lie outside the 4 bytes"},
		{file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}`, 4), "lie outside"},
		{file(`{"a":{"dtype":"F32","shape":[1]}}`, 4), "lie outside"},
		{file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}`, 4), "larger than the 4 bytes"},
		{file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}`, 8), "needs 8 bytes"},
		{file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}}`, 8), "needs 4 bytes"},
		{file(`{"a":{"dtype":"F32","shape":[],"data_offsets":[0,8]}}`, 8), "needs 4 bytes"},
		{file(`{"a":{"dtype":"F32","shape":[0],"data_offsets":[0,4]}}`, 4), "needs 0 bytes"},
		{file(`{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}`, 4), "negative"},
		{file(`{"a":{"dtype":"F32","shape":[4294967296,4294967296000000000,0],"data_offsets":[0,0]}}`, 0), "larger than the 0 bytes"},
		{file(`{"a":{"dtype":"F32","shape":[9223372036854775807,3],"data_offsets":[0,4]}}`, 4), "larger than"},
		{file(`{"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}}`, 4), `"a"`},
		{file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}}`, 6), `tensor "b" begins at byte 2, where the one before it ends at 4`},
		{file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8), "begins at byte 4"},
		{file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 9), "5 bytes of data belong to no tensor"},
		{file(`{"__metadata__":{"a":1}}`, 0), "__metadata__"},
		{file(`{} {}`, 0), "behind the JSON object"},
		{file(`{"a":{"dtype":"F32","shape":[`+strings.Repeat("1,", 20)+`1],"data_offsets":[0,4]}}`, 4), "21 dimensions"},
		{file(`{"a":`, 0), "header"},
	} {
		_, err := DecodeTensors(c.data)
		assert.ErrorContains(t, err, c.want, "%q", c.data)
	}
}

func TestSafetensors_RefusesToWrite(t *testing.T) {
	f := &TensorFile{Tensors: map[string]Tensor{"a": {DType: "F32", Shape: []int{2}, Data: make([]byte, 4)}}}
	path := filepath.Join(t.TempDir(), "a.safetensors")
	assert.ErrorContains(t, f.Write(path), `tensor "a": shape [2]`)
	assert.NoFileExists(t, path)
}

func FuzzDecode(f *testing.F) {
	f.Add(file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 4))
	f.Add(file(`{"__metadata__":{"a":"b"}}`, 0))
	f.Add(file(`{"a":{"dtype":"F32","shape":[`+strings.Repeat("1,", 15)+`1],"data_offsets":[0,4]}}`, 4))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\x7f{}"))
	defer memory.Limit(1 << 20)()
	f.Fuzz(func(t *testing.T, data []byte) {
		hostile.Bounded(t, len(data), 256, func() {
			if g, err := DecodeTensors(data); err == nil {
				again, err := g.Encode()
				require.NoError(t, err)
				back, err := DecodeTensors(again)
				require.NoError(t, err)
				require.Equal(t, len(g.Tensors), len(back.Tensors))
			}
		})
	})
}

func TestDecode_HeadersThatAskForMemory(t *testing.T) {
	list := strings.Repeat("1,", 40000) + "1"
	for name, c := range map[string]struct{ data, want string }{
		"length":  {"\xff\xff\xff\xff\xff\xff\xff\x7f{}", "its header has 9223372036854775807 bytes, the file 10"},
		"depth":   {string(file(`{"a":`+strings.Repeat("[", 20000), 0)), "exceeded max depth"},
		"dims":    {string(file(`{"a":{"dtype":"U8","shape":[`+list+`],"data_offsets":[0,1]}}`, 1)), "needs 19.6 MiB"},
		"members": {string(file(`{"a":{},"`+strings.Repeat(`":{},"`, 20000)+`":{}}`, 0)), "needs 19.6 MiB of memory"},
		"offsets": {string(file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}}`, 1)),
			"they have 3 numbers, want 2"},
		"name": {string(file(`{"`+strings.Repeat("a", 99999)+`":{"dtype":"X","shape":[1],"data_offsets":[0,1]}}`, 1)),
			`elements of type "X"`},
	} {
		t.Run(name, func(t *testing.T) {
			defer memory.Limit(16 << 20)()
			hostile.Bounded(t, len(c.data), 16, func() {
				_, err := DecodeTensors([]byte(c.data))
				require.ErrorContains(t, err, c.want)
				require.Less(t, len(err.Error()), 1000)
			})
		})
	}
}

func TestRead_KeepsTheBudget(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.safetensors")
	require.NoError(t, os.WriteFile(path, nil, 0o666))
	require.NoError(t, os.Truncate(path, 1<<40))
	_, err := ReadTensors(path)
	require.ErrorContains(t, err, path+": reading it needs 1 TiB of memory")
}
