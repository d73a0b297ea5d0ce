package modeld

import (
	"encoding/binary"
	"math"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/toolchain"
)

// arrays are values by name, CASE.NAME.
type arrays map[string][]float64

// twin runs a command of testdata/twin.py, or skips the test where there is no numpy. rows is the length of rows of arrays that
// have them.
func twin(t *testing.T, command string, in arrays, rows int) arrays {
	t.Helper()
	py, err := toolchain.FindPython()
	if err != nil || exec.Command(py, "-c", "import numpy").Run() != nil {
		t.Skip("no Python with numpy: set SPARK_PYTHON")
	}
	dir := t.TempDir()
	files := map[string]*npy.Array{}
	for name, values := range in {
		a := &npy.Array{DType: "f64", Shape: []int{len(values)}}
		if rows > 0 {
			a.Shape = []int{len(values) / rows, rows}
		}
		for _, v := range values {
			a.Data = binary.LittleEndian.AppendUint64(a.Data, math.Float64bits(v))
		}
		files[name] = a
	}
	source, destination := filepath.Join(dir, "in.npz"), filepath.Join(dir, "out.npz")
	require.NoError(t, npy.WriteZip(source, files))
	text, err := exec.Command(py, "testdata/twin.py", command, source, destination).CombinedOutput()
	require.NoError(t, err, "%s", text)
	read, err := npy.ReadZip(destination)
	require.NoError(t, err)
	out := arrays{}
	for name, a := range read {
		out[name], err = npy.Float64s(a.DType, a.Data)
		require.NoError(t, err)
	}
	return out
}

// same holds values against the twin's: all names, all values, to 1e-12 of each.
func same(t *testing.T, want, got arrays) {
	t.Helper()
	for name := range got {
		require.Contains(t, want, name)
	}
	for name, w := range want {
		g := got[name]
		require.Len(t, g, len(w), name)
		for i := range w {
			if math.IsNaN(w[i]) && math.IsNaN(g[i]) || w[i] == g[i] {
				continue
			}
			require.LessOrEqual(t, math.Abs(w[i]-g[i]), 1e-12*math.Abs(w[i]), "%s[%d]: %v, want %v", name, i, g[i], w[i])
		}
	}
}
