package memory

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReadFile_KeepsTheBudget(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(path, make([]byte, 1000), 0o666))
	defer Limit(1000)()
	data, err := ReadFile(path)
	require.NoError(t, err)
	require.Len(t, data, 1000)
	defer Limit(999)()
	_, err = ReadFile(path)
	const want = ": reading it needs 1000 bytes of memory, more than the 999 bytes that it may take (--memory)"
	require.EqualError(t, err, "read "+path+want)
	_, err = ReadIn(os.DirFS(filepath.Dir(path)), "f")
	require.ErrorContains(t, err, "read f: reading it needs 1000 bytes")
}

// A sparse file has any size without taking room, and a device or a pipe says nothing of its size.
func TestReadFile_OfWhatHasNoEnd(t *testing.T) {
	defer Limit(1 << 20)()
	path := filepath.Join(t.TempDir(), "sparse")
	require.NoError(t, os.WriteFile(path, nil, 0o666))
	require.NoError(t, os.Truncate(path, 1<<40))
	_, err := ReadFile(path)
	require.ErrorContains(t, err, "1 TiB of memory")
	_, err = ReadFile("/dev/zero")
	require.ErrorContains(t, err, "read /dev/zero: reading it needs")
}

func TestReadFile_Changed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(path, []byte("one"), 0o666))
	f, err := Open(path)
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, f.Unchanged())
	require.NoError(t, os.WriteFile(path, []byte("three"), 0o666))
	require.ErrorContains(t, f.Unchanged(), "changed while it was read")
}

func TestOpen_FIFO(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	require.NoError(t, syscall.Mkfifo(path, 0o666))
	_, err := openFor(path, 0)
	require.EqualError(t, err, "open "+path+": a FIFO that nothing writes to: start its writer, or give a file")
	_, err = OpenRegular(path)
	require.ErrorContains(t, err, "not a regular file")
	_, err = OpenIn(filepath.Dir(path), "fifo")
	require.ErrorContains(t, err, "not a regular file")
	_, err = ReadIn(os.DirFS(filepath.Dir(path)), "fifo")
	require.ErrorContains(t, err, "not a regular file")

	go func() {
		w, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err == nil {
			_, err = io.WriteString(w, strings.Repeat("words", 1000))
			err = errors.Join(err, w.Close())
		}
		if err != nil {
			panic(err)
		}
	}()
	data, err := ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, strings.Repeat("words", 1000), string(data))
}

func TestOpenIn_StaysInside(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "in"), 0o777))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "secret"), nil, 0o666))
	require.NoError(t, os.Symlink("../secret", filepath.Join(dir, "in", "link")))
	for _, name := range []string{"link", "../secret", filepath.Join(dir, "secret")} {
		_, err := OpenIn(filepath.Join(dir, "in"), name)
		require.Error(t, err, name)
	}
	_, err := OpenIn(dir, "in")
	require.ErrorIs(t, err, errNotRegular)
	_, err = OpenIn(dir, "secret")
	require.NoError(t, err)
	_, err = Open(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestUnmarshal_KeepsTheBudget(t *testing.T) {
	defer Limit(64 << 10)()
	var into []struct{ A, B, C, D string }
	list := func(n int) []byte { return []byte("[" + strings.Repeat("{},", n) + "{}]") }
	require.NoError(t, Unmarshal(list(50), &into))
	require.ErrorContains(t, Unmarshal(list(100), &into), "JSON of 304 bytes needs")
	require.ErrorContains(t, UnmarshalStrict(list(100), &into), "JSON of 304 bytes needs")
	require.Error(t, UnmarshalStrict([]byte(`[{"E":""}]`), &into))
	require.EqualError(t, UnmarshalStrict([]byte(`[] []`), &into), "something follows its end")
}
