package scenario

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestManeuverFamilies_AreDriven: the built-in controller drives each without a collision, as openpilot's test asks of
// its planner, and a car that never brakes does not.
func TestManeuverFamilies_AreDriven(t *testing.T) {
	var list []Scenario
	for i := range ManeuverFamilies {
		f, err := FamilyOf(ManeuverFamilies[i].Name)
		require.NoError(t, err)
		for k := range 6 {
			s, err := f.Draw(1, k)
			require.NoError(t, err)
			list = append(list, s)
		}
	}
	pid, err := BuiltIn("pid")
	require.NoError(t, err)
	r, err := (&Runner{Device: device(t)}).RunBatch(t.Context(), list, pid, 1, 1)
	require.NoError(t, err)
	for i, s := range list {
		require.Zero(t, metric(t, r, i, "collision"), "%s %d", s.Name, i)
		require.InDelta(t, s.Get("duration"), metric(t, r, i, "duration"), 0.051, s.Name)
	}
	r, err = (&Runner{Device: device(t)}).RunBatch(t.Context(), list, constant(0, 0), 1, 1)
	require.NoError(t, err)
	hit := map[string]bool{}
	for i, s := range list {
		hit[s.Name] = hit[s.Name] || metric(t, r, i, "collision") > 0
	}
	for _, name := range []string{"approach-slower", "approach-stopped", "lead-decelerates", "lead-stops"} {
		require.True(t, hit[name], name)
	}
}
