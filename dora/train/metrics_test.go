package train

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMetricsAfterTheCheckpointAreWrittenAgain: a resumed run keeps those up to its update, and none of a line that was cut.
func TestMetricsAfterTheCheckpointAreWrittenAgain(t *testing.T) {
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

// TestUpdatesThatWereLeftOutAreGapsInTheCurves, not losses of 0: they would turn the logarithmic scale off, and a norm of 0 has no place on one.
func TestUpdatesThatWereLeftOutAreGapsInTheCurves(t *testing.T) {
	terms := func(x float64) map[string]float64 { return map[string]float64{"plan": x, "lead": x} }
	records := []Record{{Update: 1, Loss: 4, Norm: 2, Terms: terms(2)}, {Update: 3, Loss: 3, Norm: 1, Terms: terms(1.5)}}
	with := []Record{records[0], {Update: 2, Skipped: true}, records[1]}
	a, b := curves(records), curves(with)
	require.Len(t, b, len(a))
	for i := range a {
		text, gaps := string(a[i]), string(b[i])
		if !strings.Contains(text, "Learning rate") && !strings.Contains(text, "Speed") && !strings.Contains(text, "Share of") {
			assert.Equal(t, text, gaps)
		}
		assert.NotContains(t, gaps, "Inf")
		assert.NotContains(t, gaps, "NaN")
	}
}
