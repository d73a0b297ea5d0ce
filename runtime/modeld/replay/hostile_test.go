package replay

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/memory"
	"github.com/spark-compile/spark-compile/internal/testing/hostile"
)

// encoded is a picture as a PNG file.
func encoded(t testing.TB, img image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, png.Encode(&b, img))
	return b.Bytes()
}

// resized gives a PNG's header another size, and 16 bits of a colour type, interlaced or not. (PNG, section 11.2.1)
func resized(file []byte, width, height uint32, kind, interlaced byte) []byte {
	const header = 8 + 4 // signature, and the length of the first chunk
	out := bytes.Clone(file)
	binary.BigEndian.PutUint32(out[header+4:], width)
	binary.BigEndian.PutUint32(out[header+8:], height)
	copy(out[header+12:], []byte{16, kind, 0, 0, interlaced})
	binary.BigEndian.PutUint32(out[header+17:], crc32.ChecksumIEEE(out[header:header+17]))
	return out
}

// TestFromPNG_KeepsTheBudget: the size that a file of a few bytes says it has is checked before memory is taken.
func TestFromPNG_KeepsTheBudget(t *testing.T) {
	path := filepath.Join(t.TempDir(), "1_road.png")
	small := encoded(t, image.NewGray(image.Rect(0, 0, 4, 2)))
	defer memory.Limit(64 << 20)()
	const colour, transparent = 2, 6
	for _, kind := range []byte{colour, transparent} {
		for interlaced := range byte(2) {
			require.NoError(t, os.WriteFile(path, resized(small, 32768, 32768, kind, interlaced), 0o644))
			var err error
			hostile.Bounded(t, len(small), 1, func() { _, err = fromPNG(path) })
			require.ErrorIs(t, err, memory.ErrBudget)
		}
	}
}

func TestFromPNG_OfWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "1_road.png")
	require.NoError(t, syscall.Mkfifo(path, 0o644))
	for _, path := range []string{path, dir, "/dev/zero"} {
		_, err := fromPNG(path)
		require.ErrorContains(t, err, "not a regular file", path)
	}
}

// FuzzFromPNG: whatever the bytes, reading them keeps the memory budget, and gives a picture of the file's size or an
// error.
func FuzzFromPNG(f *testing.F) {
	rgb := image.NewNRGBA(image.Rect(0, 0, 4, 2))
	for i := range rgb.Pix {
		rgb.Pix[i] = 255
	}
	palette := image.NewPaletted(image.Rect(0, 0, 4, 2), color.Palette{color.Black, color.White})
	grey, deep := image.NewGray16(image.Rect(0, 0, 4, 2)), image.NewNRGBA64(image.Rect(0, 0, 4, 2))
	for _, img := range []image.Image{rgb, palette, grey, deep} {
		file := encoded(f, img)
		f.Add(file)
		f.Add(file[:len(file)-1])
		f.Add(resized(file, 1<<15, 1<<15, 6, 1))
		f.Add(resized(file, 1024, 1024, 6, 1))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, file []byte) {
		const budget = 8 << 20
		defer memory.Limit(budget)()
		path := filepath.Join(dir, "1_road.png")
		require.NoError(t, os.WriteFile(path, file, 0o644))
		var width, height, bytes int
		var err error
		hostile.Bounded(t, budget+len(file), 1, func() {
			picture, failed := fromPNG(path)
			width, height, bytes, err = picture.Width, picture.Height, len(picture.Data), failed
		})
		if err != nil {
			return
		}
		config, err := png.DecodeConfig(mustOpen(t, path))
		require.NoError(t, err)
		require.Equal(t, []int{config.Width, config.Height, width * height * 3 / 2}, []int{width, height, bytes})
	})
}

func mustOpen(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f
}
