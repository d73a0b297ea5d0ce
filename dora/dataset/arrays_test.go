package dataset

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

func writeSample(t *testing.T, path string, x ...float32) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, npy.WriteZip(path, map[string]*npy.Array{
		"x":          {DType: "f32", Shape: []int{1, len(x)}, Data: runtime.Bytes(x)},
		"truth:plan": {DType: "f32", Shape: []int{2}, Data: runtime.Bytes([]float32{x[0], float32(math.NaN())})},
	}))
}

var inputX = []Input{{"x", ir.T(ir.Float32, 1, 2)}}

func open(t *testing.T, dir string, warn *[]string) Set {
	t.Helper()
	s, err := Open(context.Background(), dir, Options{Inputs: inputX, Warn: func(text string) { *warn = append(*warn, text) }})
	require.NoError(t, err)
	return s
}

// TestFilesAreSamples: directories are routes; what is damaged, or lacks an input, is named and left out.
func TestFilesAreSamples(t *testing.T) {
	dir := t.TempDir()
	writeSample(t, filepath.Join(dir, "a", "0.npz"), 1, 2)
	writeSample(t, filepath.Join(dir, "a", "1.npz"), 3, 4)
	writeSample(t, filepath.Join(dir, "b", "0.npz"), 5, 6)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "b", "1.npz"), []byte("PK"), 0o644))
	require.NoError(t, npy.WriteZip(filepath.Join(dir, "b", "2.npz"), map[string]*npy.Array{"y": {DType: "f32", Shape: []int{1}, Data: make([]byte, 4)}}))
	var warned []string
	s := open(t, dir, &warned)
	require.Len(t, warned, 2)
	assert.Contains(t, warned[0], "1.npz is left out")
	assert.Contains(t, warned[1], `2.npz is left out: it has no array "x", which is an input of the model; it has y`)
	require.Equal(t, 3, s.Len())
	assert.Equal(t, []string{"a", "a", "b"}, []string{s.Route(0), s.Route(1), s.Route(2)})
	x, err := s.Sample(context.Background(), 2)
	require.NoError(t, err)
	assert.Equal(t, "b/0", x.Key)
	assert.Equal(t, []float32{5, 6}, runtime.View[float32](x.Inputs["x"]))
	assert.Equal(t, float32(5), x.Truth["plan"][0])
	assert.True(t, math.IsNaN(float64(x.Truth["plan"][1])))
}

// TestFilesOfOtherTypesAndShapesAreLeftOut when a set is opened, not while it is trained on. Floats of another width are taken.
func TestFilesOfOtherTypesAndShapesAreLeftOut(t *testing.T) {
	dir := t.TempDir()
	good := &npy.Array{DType: "f64", Shape: []int{1, 2}, Data: make([]byte, 16)}
	for name, arrays := range map[string]map[string]*npy.Array{
		"double":   {"x": good, "other": {DType: "i64", Shape: []int{3}, Data: make([]byte, 24)}},
		"integers": {"x": {DType: "i64", Shape: []int{1, 2}, Data: make([]byte, 16)}},
		"long":     {"x": {DType: "f32", Shape: []int{1, 3}, Data: make([]byte, 12)}},
		"measured": {"x": good, "truth:plan": {DType: "u8", Shape: []int{2}, Data: make([]byte, 2)}},
	} {
		require.NoError(t, npy.WriteZip(filepath.Join(dir, name+".npz"), arrays))
	}
	var warned []string
	s := open(t, dir, &warned)
	require.Equal(t, 1, s.Len())
	_, err := s.Sample(context.Background(), 0)
	require.NoError(t, err)
	require.Len(t, warned, 3)
	assert.Contains(t, warned[0], `integers.npz is left out: array "x": elements of type i64, want f32`)
	assert.Contains(t, warned[1], `long.npz is left out: array "x": shape [1 3], want [1 2]`)
	assert.Contains(t, warned[2], `measured.npz is left out: array "truth:plan": elements of type u8, want f32`)
	require.NoError(t, os.Remove(filepath.Join(dir, "double.npz")))
	_, err = Open(context.Background(), dir, Options{Inputs: inputX})
	assert.ErrorContains(t, err, `none of its 3 .npz files has the model's inputs x: `)
	assert.ErrorContains(t, err, `integers.npz: array "x": elements of type i64, want f32`)
}

// TestTheFingerprintIsOfTheContents, not of the place.
func TestTheFingerprintIsOfTheContents(t *testing.T) {
	var warned []string
	print := func(x ...float32) string {
		dir := t.TempDir()
		writeSample(t, filepath.Join(dir, "0.npz"), x...)
		return open(t, dir, &warned).Fingerprint()
	}
	assert.Equal(t, print(1, 2), print(1, 2))
	assert.NotEqual(t, print(1, 2), print(1, 3))
}

func TestDirectoriesWithoutSamples(t *testing.T) {
	dir := t.TempDir()
	empty, file := filepath.Join(dir, "empty"), filepath.Join(dir, "file")
	require.NoError(t, os.Mkdir(empty, 0o755))
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	bad := filepath.Join(dir, "bad")
	require.NoError(t, os.Mkdir(bad, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(bad, "0.npz"), nil, 0o644))
	for spec, want := range map[string]string{
		filepath.Join(dir, "none"):  "there is no such directory",
		empty:                       "empty holds neither segments of routes (directories with an rlog) nor .npz files",
		file:                        "is no directory",
		"comma_car_segments:" + dir: "has no logs or videos of openpilot",
		bad:                         "none of its 1 .npz files has the model's inputs x",
	} {
		_, err := Open(context.Background(), spec, Options{Inputs: inputX})
		assert.ErrorContains(t, err, want)
	}
	// A file that changed after it was opened.
	writeSample(t, filepath.Join(bad, "0.npz"), 1, 2)
	var warned []string
	s := open(t, bad, &warned)
	writeSample(t, filepath.Join(bad, "0.npz"), 1, 2, 3)
	_, err := s.Sample(context.Background(), 0)
	assert.ErrorContains(t, err, `0.npz: array "x"`)
}
