package npy

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestArraysSurviveWriteAndRead(t *testing.T) {
	arrays := map[string]*Array{
		"half":   {"f16", []int{2, 1}, []byte{0, 0x3c, 0, 0x40}},
		"scalar": {"f32", []int{}, []byte{0, 0, 0x80, 0x3f}},
		"vector": {"i64", []int{1}, []byte{7, 0, 0, 0, 0, 0, 0, 0}},
		"empty":  {"u8", []int{3, 0, 2}, []byte{}},
		"bools":  {"bool", []int{2}, []byte{1, 0}},
	}
	for name, a := range arrays {
		var b bytes.Buffer
		require.NoError(t, Write(&b, a))
		got, err := Read(&b)
		require.NoError(t, err, name)
		require.Equal(t, a, got, name)
	}
	path := filepath.Join(t.TempDir(), "all.npz")
	require.NoError(t, WriteZip(path, arrays))
	got, err := ReadZip(path)
	require.NoError(t, err)
	require.Equal(t, arrays, got)
}

func TestColumnMajorBecomesRowMajor(t *testing.T) {
	require.Equal(t, []byte{1, 2, 3, 4, 5, 6}, rowMajor([]byte{1, 4, 2, 5, 3, 6}, []int{2, 3}, 1))
	require.Equal(t, []byte{0, 4, 2, 6, 1, 5, 3, 7}, rowMajor([]byte{0, 1, 2, 3, 4, 5, 6, 7}, []int{2, 2, 2}, 1))
}

func TestNpy_RefusesOtherFiles(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, Write(&b, &Array{"f32", []int{1 << 30}, []byte{1, 2, 3, 4}}))
	whole := b.String()
	for name, c := range map[string]struct{ data, says string }{
		"empty":         {"", "not a .npy file"},
		"text":          {"hello, this is no array at all", "not a .npy file"},
		"too few bytes": {whole, "needs 4294967296"},
		"huge":          {strings.Replace(whole, "(1073741824,), }           ", "(1073741824, 1073741824), }", 1), "too large"},
		"complex":       {strings.Replace(whole, "<f4", "<c8", 1), "not supported"},
		"big-endian":    {strings.Replace(whole, "<f4", ">f4", 1), "not supported"},
	} {
		_, err := Read(strings.NewReader(c.data))
		require.Error(t, err, name)
		require.ErrorContains(t, err, c.says, name)
	}
}

func TestNumPyReadsWhatWeWriteAndWeReadWhatItWrites(t *testing.T) {
	python := os.Getenv("SPARK_PYTHON")
	if python == "" {
		t.Skip("SPARK_PYTHON is not set: NumPy is not asked")
	}
	dir := t.TempDir()
	ours, theirs := filepath.Join(dir, "a.npz"), filepath.Join(dir, "b.npz")
	want := map[string]*Array{"x": {"f16", []int{2, 3}, []byte{0, 0x3c, 0, 0x40, 0, 0, 1, 0, 2, 0, 3, 0}}, "s": {"u8", []int{}, []byte{9}}}
	require.NoError(t, WriteZip(ours, want))
	out, err := exec.Command(python, "-c", "import sys, numpy as np; z = np.load(sys.argv[1]); np.savez(sys.argv[2], x=np.asfortranarray(z['x']), s=z['s'])", ours, theirs).CombinedOutput()
	require.NoError(t, err, string(out))
	got, err := ReadZip(theirs)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// A .npz file of a few bytes can declare an array of any size.
func TestReadZip_KeepsToTheBudgetOfMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bomb.npz")
	f, err := os.Create(path)
	require.NoError(t, err)
	z := zip.NewWriter(f)
	good, err := z.Create("x.npy")
	require.NoError(t, err)
	require.NoError(t, Write(good, &Array{DType: "u8", Shape: []int{2}, Data: []byte{1, 2}}))
	w, err := z.CreateRaw(&zip.FileHeader{Name: "unused.npy", Method: zip.Deflate, CompressedSize64: 1, UncompressedSize64: 1 << 50})
	require.NoError(t, err)
	_, err = w.Write([]byte{0})
	require.NoError(t, err)
	require.NoError(t, z.Close())
	require.NoError(t, f.Close())
	_, err = ReadZip(path)
	require.ErrorContains(t, err, "bomb.npz: unused.npy: reading it needs 1.02e+03 TiB of memory")
	_, err = ReadNamed(path, 100, "unused")
	require.ErrorContains(t, err, "unused.npy")
	some, err := ReadNamed(path, 200, "x", "y")
	require.NoError(t, err, "what nobody asked for is not read")
	require.Len(t, some, 1)
}

func TestArrayAs_RoundsToFloatsThatNumPyLacks(t *testing.T) {
	a := &Array{DType: "f32", Shape: []int{3}, Data: f32(1, -2.5, 1e30)}
	for dtype, want := range map[string][]byte{
		"bf16": {0x80, 0x3f, 0x20, 0xc0, 0x4a, 0x71}, "f16": {0, 0x3c, 0, 0xc1, 0, 0x7c}, "e4m3": {0x38, 0xc2, 0x7f},
	} {
		got, err := a.As(dtype, []int{3})
		require.NoError(t, err)
		require.Equal(t, want, got, dtype)
	}
	_, err := a.As("e2m1", []int{3})
	require.EqualError(t, err, "elements of type f32, want e2m1")
}

func TestFloat64s_UnpacksElementsOfLessThanAByte(t *testing.T) {
	for dtype, want := range map[string][]float64{
		"u4": {1, 15}, "i4": {1, -1}, "u2": {1, 0, 3, 3}, "i2": {1, 0, -1, -1}, "e2m1": {.5, -6},
	} {
		got, err := Float64s(dtype, []byte{0xf1})
		require.NoError(t, err)
		require.Equal(t, want, got, dtype)
	}
}

func f32(xs ...float32) (out []byte) {
	for _, x := range xs {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
	}
	return out
}
