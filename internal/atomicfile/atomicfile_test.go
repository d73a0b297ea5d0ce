package atomicfile

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
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

func TestTemporaryFilesAreRemoved(t *testing.T) {
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

func TestWrite_FollowsSymbolicLinks(t *testing.T) {
	dir := t.TempDir()
	file, link, dangling := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "dangling")
	require.NoError(t, os.WriteFile(file, []byte("old"), 0o600))
	require.NoError(t, os.Symlink("file", link))
	require.NoError(t, os.Symlink("sub/new", dangling))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
	for path, target := range map[string]string{link: file, dangling: filepath.Join(dir, "sub", "new")} {
		require.NoError(t, Write(path, []byte("new")))
		to, err := os.Lstat(path)
		require.NoError(t, err)
		require.NotZero(t, to.Mode()&os.ModeSymlink, "the link stays a link")
		have, err := os.ReadFile(target)
		require.NoError(t, err)
		require.Equal(t, "new", string(have))
	}
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode(), "a file keeps its mode")
	loop := filepath.Join(dir, "loop")
	require.NoError(t, os.Symlink("loop", loop))
	require.ErrorIs(t, Write(loop, nil), unix.ELOOP)
}

// As root a rename over /dev/null would replace the machine's device.
func TestWrite_InPlaceWhereNoRegularFileIs(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	require.NoError(t, unix.Mkfifo(fifo, 0o600))
	require.NoError(t, os.Symlink("fifo", filepath.Join(dir, "link")))
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<14) // more than a pipe holds
	for _, name := range []string{"fifo", "link"} {
		read := make(chan []byte)
		go func() {
			data, _ := os.ReadFile(fifo)
			read <- data
		}()
		require.NoError(t, Write(filepath.Join(dir, name), big))
		require.Equal(t, big, <-read)
	}
	info, err := os.Lstat(fifo)
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&os.ModeNamedPipe)
	s, err := Stage(fifo, nil)
	require.NoError(t, err, "and nobody has to read it to find that it can be written")
	s.Discard()

	require.NoError(t, Write("/dev/null", []byte("x")))
	info, err = os.Stat("/dev/null")
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&os.ModeDevice)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 2)
}

func TestWrite_ToOpenDescriptors(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	for _, dir := range []string{"/dev/fd/", "/proc/self/fd/"} {
		require.NoError(t, Write(fmt.Sprint(dir, w.Fd()), []byte("x")))
	}
	require.ErrorContains(t, Write(fmt.Sprint("/dev/fd/", r.Fd()), nil), "bad file descriptor")
	require.NoError(t, w.Close())
	have, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Equal(t, "xx", string(have))
	for path, want := range map[string]bool{"-": true, "/dev/stdout": true, "/dev/fd/1": true, "/dev/fd/2": false, "./-": false, "a": false} {
		require.Equal(t, want, IsStdout(path), path)
	}

	// A file opened by the shell is appended to, not overwritten.
	log := filepath.Join(t.TempDir(), "log")
	f, err := os.Create(log)
	require.NoError(t, err)
	defer f.Close()
	_, err = f.WriteString("before ")
	require.NoError(t, err)
	require.NoError(t, Write(fmt.Sprint("/dev/fd/", f.Fd()), []byte("after")))
	text, err := os.ReadFile(log)
	require.NoError(t, err)
	require.Equal(t, "before after", string(text))
}

func TestWrite_FullDisk(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full")
	}
	err := Write("/dev/full", []byte("x"))
	require.ErrorIs(t, err, unix.ENOSPC)
	require.ErrorContains(t, err, "writing /dev/full")
}

func TestWrite_LongNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), strings.Repeat("n", 255))
	require.NoError(t, Write(path, []byte("x")))
}
