package train

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMetricsBehindTheCheckpointAreWrittenAgain: a resumed run keeps those up to its update, and none of a line that was cut.
func TestMetricsBehindTheCheckpointAreWrittenAgain(t *testing.T) {
	dir := t.TempDir()
	m, err := openMetrics(dir, nil)
	require.NoError(t, err)
	require.NoError(t, m.write(Record{Validation: &Evaluation{Loss: 9}}))
	for k := range 5 {
		require.NoError(t, m.write(Record{Update: k + 1, Loss: float64(k)}))
	}
	require.NoError(t, m.close())
	path := filepath.Join(dir, metricsFile)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, data[:len(data)-4], 0o644))
	all, err := readMetrics(dir, 100)
	require.NoError(t, err)
	assert.Len(t, all, 5)
	kept, err := readMetrics(dir, 3)
	require.NoError(t, err)
	require.Len(t, kept, 4)
	m, err = openMetrics(dir, kept)
	require.NoError(t, err)
	require.NoError(t, m.write(Record{Update: 4, Loss: 40}))
	require.NoError(t, m.close())
	all, err = readMetrics(dir, 100)
	require.NoError(t, err)
	assert.Equal(t, []Record{{Validation: &Evaluation{Loss: 9}}, {Update: 1}, {Update: 2, Loss: 1}, {Update: 3, Loss: 2}, {Update: 4, Loss: 40}}, all)
	none, err := readMetrics(t.TempDir(), 3)
	require.NoError(t, err)
	assert.Empty(t, none)
}
