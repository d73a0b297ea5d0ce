package train

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/dora/dataset"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// TestResume_RefusesChangedData: a byte in the middle of a log, whose size and mtime stay.
func TestResume_RefusesChangedData(t *testing.T) {
	fulltest.Long(t)
	opt := lessonsOf(t, 24)
	opt.Set, opt.Data = nil, t.TempDir()
	opt.Epochs, opt.BatchSize, opt.MicroBatch, opt.Val, opt.Warmup = 1, 4, 4, 0, 0
	drive := dataset.Synthesis{Routes: 1, Seconds: 4, Width: 64, Height: 40}
	require.NoError(t, dataset.Synthesise(t.Context(), opt.Data, drive))
	logs, err := filepath.Glob(filepath.Join(opt.Data, "*", "rlog.zst"))
	require.NoError(t, err)
	require.Len(t, logs, 1)
	packed, err := os.ReadFile(logs[0])
	require.NoError(t, err)
	z, err := zstd.NewReader(nil)
	require.NoError(t, err)
	defer z.Close()
	raw, err := z.DecodeAll(packed, nil)
	require.NoError(t, err)
	require.Greater(t, len(raw), 256<<10)
	log := strings.TrimSuffix(logs[0], ".zst") // of which a byte may change without breaking a checksum
	require.NoError(t, os.WriteFile(log, raw, 0o644))
	require.NoError(t, os.Remove(logs[0]))
	vision, err := driving.Made("vision", driving.Tiny)
	require.NoError(t, err)
	opt.Vision = filepath.Join(filepath.Dir(opt.Model), "vision.onnx")
	require.NoError(t, os.WriteFile(opt.Vision, vision.ONNX, 0o644))
	_, err = Run(t.Context(), opt, alone(t))
	require.NoError(t, err)
	opt.Resume = true
	_, err = Run(t.Context(), opt, alone(t))
	require.NoError(t, err, "nothing changed")
	st, err := os.Stat(log)
	require.NoError(t, err)
	raw[len(raw)/2] ^= 1
	require.NoError(t, os.WriteFile(log, raw, 0o644))
	require.NoError(t, os.Chtimes(log, time.Time{}, st.ModTime()))
	_, err = Run(t.Context(), opt, alone(t))
	assert.ErrorContains(t, err, "was trained with other settings: --data has other contents: give the same")
}
