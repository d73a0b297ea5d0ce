package dataset

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/dora/route"
)

// writeCar writes a log as commaCarSegments has them, of a minute.
func writeCar(t *testing.T, dir, segment, car, name string) string {
	t.Helper()
	path := filepath.Join(dir, "segments", "0123456789abcdef", "00000001--0123456789", segment, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	w, err := route.Create(path)
	require.NoError(t, err)
	require.NoError(t, w.Write(route.Event{Time: 5e9, Kind: route.KindCarParams, Valid: true}, &route.CarParams{CarFingerprint: car}))
	for i := range 100 {
		frames := route.CANFrames{{Address: uint32(i), Data: []byte{1, 2, 3}}}
		require.NoError(t, w.Write(route.Event{Time: 5e9 + uint64(i+1)*600e6, Kind: route.KindCAN, Valid: true}, &frames))
	}
	require.NoError(t, w.Close())
	return path
}

// TestLogsOfCarsAreCounted, and what is damaged is named; there is nothing in them to show a model.
func TestLogsOfCarsAreCounted(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	writeCar(t, dir, "0", "HONDA CIVIC", "rlog.zst")
	writeCar(t, dir, "1", "HONDA CIVIC", "rlog.zst")
	writeCar(t, dir, "2", "TOYOTA RAV4", "rlog.zst")
	var warned []string
	opt := Options{Inputs: DrivingInputs(), Warn: func(text string) { warned = append(warned, text) }}
	open := func() Set {
		t.Helper()
		warned = nil
		set, err := Open(ctx, "comma_car_segments:"+dir, opt)
		require.NoError(t, err)
		return set
	}
	set := open()
	assert.Empty(t, warned)
	assert.Zero(t, set.Len())
	count := set.(Counted).Count()
	assert.Equal(t, 3, count.Segments)
	assert.Equal(t, map[string]int{"HONDA CIVIC": 2, "TOYOTA RAV4": 1}, count.Cars)
	assert.Equal(t, map[string]int{"can": 300, "carParams": 3}, count.Events)
	assert.InDelta(t, 3./60, count.Hours, 1e-9)
	whole := set.Fingerprint()
	assert.Equal(t, whole, open().Fingerprint())

	// A log that is cut, one that was not fetched, and none.
	cut := writeCar(t, dir, "3", "TOYOTA RAV4", "rlog")
	data, err := os.ReadFile(cut)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(cut, data[:len(data)-40], 0o644))
	pointer := writeCar(t, dir, "4", "TOYOTA RAV4", "rlog.zst")
	require.NoError(t, os.WriteFile(pointer, []byte("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 7\n"), 0o644))
	set = open()
	require.Len(t, warned, 2)
	assert.Contains(t, warned[0], "only the pointer of Git LFS is there")
	assert.Contains(t, warned[1], "is damaged at byte")
	assert.Equal(t, 4, set.(Counted).Count().Segments)
	assert.NotEqual(t, whole, set.Fingerprint())
	_, err = set.Sample(ctx, 0)
	assert.Error(t, err)

	require.NoError(t, os.RemoveAll(filepath.Join(dir, "segments")))
	bad := filepath.Join(dir, "segments", "0123456789abcdef", "00000001--0123456789", "0")
	require.NoError(t, os.MkdirAll(bad, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(bad, "rlog.zst"), []byte("none of a log's bytes"), 0o644))
	_, err = Open(ctx, "comma_car_segments:"+dir, opt)
	assert.ErrorContains(t, err, "none of its logs can be read: 0123456789abcdef|00000001--0123456789--0: ")
	ended, cancel := context.WithCancel(ctx)
	cancel()
	writeCar(t, dir, "1", "TOYOTA RAV4", "rlog.zst")
	_, err = Open(ended, "comma_car_segments:"+dir, opt)
	assert.ErrorIs(t, err, context.Canceled)
}
