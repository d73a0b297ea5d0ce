package atomicfile

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAFileIsReplacedAsAWhole(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.json")
	require.NoError(t, Write(path, []byte("old")))
	s, err := Stage(path, []byte("new"))
	require.NoError(t, err)
	have, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "old", string(have), "before Commit")
	require.NoError(t, s.Commit())
	s.Discard()
	have, err = os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "new", string(have))
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o644), info.Mode())
}

func TestNothingIsLeftBehind(t *testing.T) {
	dir := t.TempDir()
	s, err := Stage(filepath.Join(dir, "a"), nil)
	require.NoError(t, err)
	s.Discard()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "folder"), 0o755))
	require.ErrorContains(t, Write(filepath.Join(dir, "folder"), nil), "it is a directory")
	require.ErrorContains(t, Write(filepath.Join(dir, "nowhere", "a"), nil), "no directory")
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1, "only folder")
}
