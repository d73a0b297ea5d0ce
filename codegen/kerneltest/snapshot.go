package kerneltest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/internal/target"
)

// Snapshot compares a kernel's text with testdata/NAME.ptx, or writes that.
func Snapshot(t *testing.T, name string, spec *kernel.Spec, tgt *target.Target, update bool) {
	t.Helper()
	text := "// " + spec.Schedule + "\n" + spec.Build(tgt, name).String()
	path := filepath.Join("testdata", name+".ptx")
	if update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), text, "go test -run Snapshots -update rewrites it")
}
