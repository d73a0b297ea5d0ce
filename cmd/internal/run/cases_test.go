package run

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/gopkg"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/runtime"
)

func TestReadDir_NamesOfAnyLength(t *testing.T) {
	dir := t.TempDir()
	names := []string{"y", "decoder/out", strings.Repeat("decoder/", 40)}
	var outputs []runtime.Port
	for i, name := range names {
		a := &npy.Array{DType: "u8", Shape: []int{1}, Data: []byte{byte(i)}}
		require.NoError(t, npy.WriteFile(filepath.Join(dir, gopkg.FileName(name)+".npy"), a))
		outputs = append(outputs, runtime.Port{Name: name, DType: "u8", Shape: []int{1}})
	}
	got, err := readDir(dir, outputs)
	require.NoError(t, err)
	for i, name := range names {
		require.NotNil(t, got[name], name)
		require.Equal(t, []byte{byte(i)}, got[name].Data)
	}
}
