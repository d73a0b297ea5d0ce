package target

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseSplitsArchitectures(t *testing.T) {
	for arch, want := range map[string]struct {
		n      int
		suffix string
	}{"sm_121": {121, ""}, "sm_121a": {121, "a"}, "sm_120f": {120, "f"}, "sm_75": {75, ""}} {
		n, suffix, err := Parse(arch)
		require.NoError(t, err)
		require.Equal(t, want.n, n)
		require.Equal(t, want.suffix, suffix)
	}
	for _, bad := range []string{"", "sm_", "sm_a", "gfx90", "121", "sm_-9", "sm_90b"} {
		_, _, err := Parse(bad)
		require.ErrorContains(t, err, "want sm_ and a number", bad)
	}
}

func TestForIsTheNewestThatRuns(t *testing.T) {
	for arch, want := range map[string]string{"": "sm_121", "sm_130": "sm_121", "sm_121a": "sm_121", "sm_120": "sm_90", "sm_89": "sm_80"} {
		got, err := For(arch)
		require.NoError(t, err)
		require.Equal(t, want, got.Name, arch)
	}
	_, err := For("sm_75")
	require.ErrorContains(t, err, "older than every target (sm_121, sm_90, sm_80)")
}

func TestUnknownNamesListWhatThereIs(t *testing.T) {
	_, err := Lookup("sm_42")
	require.ErrorContains(t, err, "sm_121, sm_90, sm_80")
	_, err = OfDevice("gtx480")
	require.ErrorContains(t, err, "gb10, h200, a100")
}
