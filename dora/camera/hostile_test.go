package camera

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOpenVideo_OfWhatIsNoFile: ffmpeg is not started, which would wait for ever.
func TestOpenVideo_OfWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	fifo, zero := filepath.Join(dir, "fifo.hevc"), filepath.Join(dir, "zero.hevc")
	require.NoError(t, syscall.Mkfifo(fifo, 0o644))
	require.NoError(t, os.Symlink("/dev/zero", zero))
	for _, path := range []string{fifo, zero, dir} {
		_, err := OpenVideo(t.Context(), path, Options{FFmpeg: "sh"})
		require.ErrorContains(t, err, path+": not a regular file: give a file")
	}
}
