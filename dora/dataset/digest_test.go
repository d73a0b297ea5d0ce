package dataset

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/dora/camera"
	"github.com/spark-compile/spark-compile/dora/route"
)

// flip changes a byte in the middle of a file, and leaves its size, inode and mtime.
func flip(t *testing.T, path string) {
	t.Helper()
	st, err := os.Stat(path)
	require.NoError(t, err)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	b := make([]byte, 1)
	_, err = f.ReadAt(b, st.Size()/2)
	require.NoError(t, err)
	_, err = f.WriteAt([]byte{b[0] ^ 1}, st.Size()/2)
	require.NoError(t, errorsOf(err, f.Close(), os.Chtimes(path, time.Time{}, st.ModTime())))
}

// aged sets mtimes below a directory an hour back: digests of files that were just written are not cached.
func aged(t *testing.T, dir string) {
	t.Helper()
	then := time.Now().Add(-time.Hour)
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		return errorsOf(err, os.Chtimes(path, then, then))
	}))
}

func TestDigests_SeeAByteInTheMiddle(t *testing.T) {
	for _, cached := range []bool{false, true} {
		dir, d := t.TempDir(), digests{}
		if cached {
			d.dir = t.TempDir()
		}
		path := filepath.Join(dir, "frames", "fcamera.hevc")
		require.NoError(t, os.Mkdir(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, make([]byte, 300<<10), 0o644))
		aged(t, dir)
		of := func(path string) string {
			text, err := d.of(t.Context(), path, true)
			require.NoError(t, err)
			return text
		}
		file, parent := of(path), of(dir)
		assert.Equal(t, []string{file, parent}, []string{of(path), of(dir)})
		flip(t, path)
		assert.NotEqual(t, file, of(path))
		assert.NotEqual(t, parent, of(dir))
		flip(t, path)
		assert.Equal(t, []string{file, parent}, []string{of(path), of(dir)}, "it has its first contents")
		require.NoError(t, os.Rename(path, path+"2"))
		assert.NotEqual(t, parent, of(dir), "names count")
	}
}

// TestDigests_ReadUnchangedFilesOnce changes the cached digest, which shows whether it is used.
func TestDigests_ReadUnchangedFilesOnce(t *testing.T) {
	dir, d := t.TempDir(), digests{t.TempDir()}
	path := filepath.Join(dir, "rlog")
	require.NoError(t, os.WriteFile(path, []byte("log"), 0o644))
	digest := fmt.Sprintf("%x", sha256.Sum256([]byte("log")))
	of := func() string {
		text, err := d.of(t.Context(), path, true)
		require.NoError(t, err)
		return text
	}
	entries := func() []string {
		all, err := filepath.Glob(filepath.Join(d.dir, "*"))
		require.NoError(t, err)
		return all
	}
	first := of()
	assert.Empty(t, entries(), "it was just written, and may change within the resolution of its mtime")
	aged(t, dir)
	assert.Equal(t, first, of())
	require.Len(t, entries(), 1)
	data, err := os.ReadFile(entries()[0])
	require.NoError(t, err)
	require.Contains(t, string(data), digest)
	require.NoError(t, os.WriteFile(entries()[0], bytes.ReplaceAll(data, []byte(digest), []byte("00")), 0o644))
	assert.NotEqual(t, first, of())
	aged(t, dir) // another ctime
	assert.Equal(t, first, of(), "it is read again")
	require.NoError(t, os.WriteFile(entries()[0], data[:len(data)/2], 0o644))
	assert.Equal(t, first, of(), "a damaged entry")
	_, err = d.of(t.Context(), path+"2", true)
	assert.ErrorIs(t, err, os.ErrNotExist)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = digests{}.of(ended, path, true)
	assert.ErrorIs(t, err, context.Canceled)
}

// unpacked replaces a segment's rlog.zst by rlog, in which one byte may change without breaking a checksum.
func unpacked(t *testing.T, segment string) string {
	t.Helper()
	packed := filepath.Join(segment, "rlog.zst")
	data, err := os.ReadFile(packed)
	require.NoError(t, err)
	z, err := zstd.NewReader(bytes.NewReader(data))
	require.NoError(t, err)
	defer z.Close()
	raw, err := io.ReadAll(z)
	require.NoError(t, err)
	path := filepath.Join(segment, "rlog")
	require.NoError(t, errorsOf(os.WriteFile(path, raw, 0o644), os.Remove(packed)))
	return path
}

// fakeFFmpeg is a decoder of 80 black frames, which runs a command first.
func fakeFFmpeg(t *testing.T, command string) {
	t.Helper()
	tool := filepath.Join(t.TempDir(), "ffmpeg")
	script := "#!/bin/sh\n" + command + `
printf 'YUV4MPEG2 W64 H40\n'
for i in $(seq 80); do printf 'FRAME\n'; head -c 3840 /dev/zero; done
`
	require.NoError(t, os.WriteFile(tool, []byte(script), 0o755))
	t.Setenv(camera.FFmpegVariable, tool)
}

// videoRoute is a directory with a segment whose road camera is a video of so many bytes.
func videoRoute(t *testing.T, size int) (dir, segment, video string) {
	t.Helper()
	dir = routesOf(t, Synthesis{Routes: 1, Seconds: 4, Width: 64, Height: 40})
	segments, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	video = filepath.Join(segments[0], "fcamera.hevc")
	require.NoError(t, os.RemoveAll(filepath.Join(segments[0], "fcamera")))
	require.NoError(t, os.WriteFile(video, make([]byte, size), 0o644))
	return dir, segments[0], video
}

// TestOpen_AChangedByteInvalidatesTheCache: of a log or video, in its middle. Nothing else is decoded again.
func TestOpen_AChangedByteInvalidatesTheCache(t *testing.T) {
	dir, segment, video := videoRoute(t, 300<<10)
	log, cache, decoded := unpacked(t, segment), t.TempDir(), filepath.Join(t.TempDir(), "decoded")
	fakeFFmpeg(t, "echo >> '"+decoded+"'")
	opt := Options{Inputs: takes(t, "vision"), Cache: cache, Warn: func(text string) { t.Log(text) }}
	aged(t, dir)
	open := func() (fingerprint string, decodings int) {
		set, err := Open(t.Context(), dir, opt)
		require.NoError(t, err)
		defer set.Close()
		data, err := os.ReadFile(decoded)
		require.NoError(t, err)
		return set.Fingerprint(), len(data)
	}
	st, err := os.Stat(log)
	require.NoError(t, err)
	require.Greater(t, st.Size(), int64(256<<10), "its middle is neither in the first nor in the last 64 KiB")
	seen := map[string]bool{}
	for k, change := range []func(){func() {}, func() { flip(t, log) }, func() { flip(t, video) }} {
		change()
		first, n := open()
		assert.Equal(t, k+1, n)
		again, n := open()
		assert.Equal(t, k+1, n, "nothing changed")
		assert.Equal(t, first, again)
		seen[first] = true
	}
	assert.Len(t, seen, 3)
}

// TestOpen_RefusesAFileThatChangesMeanwhile: what was decoded is of another content than its key says.
func TestOpen_RefusesAFileThatChangesMeanwhile(t *testing.T) {
	dir, _, video := videoRoute(t, 10)
	cache := t.TempDir()
	fakeFFmpeg(t, "echo more >> '"+video+"'")
	_, err := Open(t.Context(), dir, Options{Inputs: takes(t, "vision"), Cache: cache})
	assert.ErrorContains(t, err, "changed while it was read: open the data again")
	kept, err := filepath.Glob(filepath.Join(cache, "*.json"))
	require.NoError(t, err)
	assert.Empty(t, kept)
}

// TestContent_DependsOnStepAndDensity: models that take other frames share no cache.
func TestContent_DependsOnStepAndDensity(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rlog")
	require.NoError(t, os.WriteFile(path, []byte("log"), 0o644))
	seen := map[string]bool{}
	for _, c := range []contract{
		{step: 4}, {step: 1}, {step: 4, dense: true}, {step: 4, sees: true}, {step: 4, rule: "luma"},
		{step: 4, look: camera.Driving(512, 256, true)},
	} {
		text, err := c.content(t.Context(), []string{path, ""}, t.TempDir(), true)
		require.NoError(t, err)
		seen[text] = true
	}
	assert.Len(t, seen, 6)
}

// TestRouteDigest_IsOfContents: a byte of a log or video counts, the directory and the cache do not.
func TestRouteDigest_IsOfContents(t *testing.T) {
	dir, segment, video := videoRoute(t, 300<<10)
	log, cache := unpacked(t, segment), t.TempDir()
	aged(t, dir)
	of := func(dir, cache string) string {
		text, err := RouteDigest(t.Context(), dir, cache)
		require.NoError(t, err)
		return text
	}
	first := of(dir, cache)
	entries, err := os.ReadDir(filepath.Join(cache, digestDir))
	require.NoError(t, err)
	assert.Len(t, entries, 2)
	assert.Equal(t, []string{first, first, first}, []string{of(dir, cache), of(dir, ""), of(dir, filepath.Join(log, "none"))})
	for _, path := range []string{log, video} {
		flip(t, path)
		assert.NotEqual(t, first, of(dir, cache), path)
		flip(t, path)
	}
	moved := filepath.Join(t.TempDir(), "moved")
	require.NoError(t, os.Rename(dir, moved))
	assert.Equal(t, first, of(moved, cache))
	_, err = RouteDigest(t.Context(), dir, cache)
	assert.ErrorContains(t, err, "no such file")
}

// TestCodeVersion_HasAllCode that makes what is cached: a file is in it, or is listed here as one that is not.
func TestCodeVersion_HasAllCode(t *testing.T) {
	for dir, c := range map[string]struct {
		source fs.FS
		other  []string // makes nothing that is cached
	}{
		".": {source, []string{"arrays", "cars", "dataset", "digest", "history", "open", "order", "place", "routes",
			"stamp_linux", "stamp_other", "synthesise", "synthetic", "version"}},
		"../route":  {route.Source(), []string{"encode", "writer", "source"}},
		"../camera": {camera.Source(), []string{"draw", "encode", "warper", "source"}},
	} {
		paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
		require.NoError(t, err)
		for _, path := range paths {
			name := filepath.Base(path)
			other := name == "doc.go" || strings.HasSuffix(name, "_test.go")
			if other || slices.Contains(c.other, strings.TrimSuffix(name, ".go")) {
				continue
			}
			_, err := fs.Stat(c.source, name)
			assert.NoError(t, err, "%s: name it in the go:embed line of source", path)
		}
	}
	assert.Len(t, codeVersion(), 64)
}
