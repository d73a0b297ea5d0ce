package toolchain

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func program(t *testing.T, path string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755))
	return path
}

// TestTheInterpreterIsFound where SPARK_PYTHON says, else in a virtual environment above, else on the PATH.
func TestTheInterpreterIsFound(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("SPARK_PYTHON", "")
	t.Setenv("PATH", filepath.Join(dir, "bin"))
	_, err := FindPython()
	require.ErrorIs(t, err, ErrNoPython)
	require.ErrorContains(t, err, "PATH")

	old := program(t, filepath.Join(dir, "bin", "python"))
	found, err := FindPython()
	require.NoError(t, err)
	require.Equal(t, old, found)
	three := program(t, filepath.Join(dir, "bin", "python3"))
	found, err = FindPython()
	require.NoError(t, err)
	require.Equal(t, three, found)

	venv := program(t, filepath.Join(dir, ".venv", "bin", "python"))
	found, err = FindPython()
	require.NoError(t, err)
	require.Equal(t, venv, found)

	named := program(t, filepath.Join(dir, "named"))
	t.Setenv("SPARK_PYTHON", named)
	found, err = FindPython()
	require.NoError(t, err)
	require.Equal(t, named, found)
	t.Setenv("SPARK_PYTHON", named+"x")
	_, err = FindPython()
	require.ErrorContains(t, err, "SPARK_PYTHON")
}
