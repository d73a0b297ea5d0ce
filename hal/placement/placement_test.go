package placement

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHomes(t *testing.T) {
	for _, c := range []struct {
		cached, memory float64 // of the host's memory, the device's taking 100
		host           bool
	}{{100, 100, false}, {96, 100, false}, {90, 100, true}, {90, 103, false}, {100, 90, true}, {101, 90, true}, {300, 90, false}, {90, 90, true}} {
		h := Placement{Device: "GPU", Driver: "581", Cached: Times{1, 100, c.cached}, Memory: Times{2, 100, c.memory}}
		h.Decide()
		require.Equal(t, c.host, h.Host, "%+v", c)
	}
}

func TestPlacement_IsPerDeviceAndDriver(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	_, ok := Load(dir, "GPU", "581")
	require.False(t, ok)
	h := Placement{Format: format, Device: "GPU", Driver: "581", Cached: Times{1, 2, 3}, Memory: Times{4, 5, 6}, Host: true}
	require.NoError(t, h.Write(dir))
	got, ok := Load(dir, "GPU", "581")
	require.True(t, ok)
	require.Equal(t, h, got)
	for _, other := range [][2]string{{"GPU", "582"}, {"another", "581"}} {
		_, ok = Load(dir, other[0], other[1])
		require.False(t, ok, "%v", other)
	}
	for _, damage := range []string{"", "{", `{"format": 2}`, `{"format": 1, "device": "another", "driver": "581"}`} {
		require.NoError(t, os.WriteFile(path(dir, "GPU", "581"), []byte(damage), 0o644))
		_, ok = Load(dir, "GPU", "581")
		require.False(t, ok, "%q", damage)
	}
}
