package library

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOpenSim_SaysWhichDrivesAreLeftOut, in a line each.
func TestOpenSim_SaysWhichDrivesAreLeftOut(t *testing.T) {
	dir := t.TempDir()
	names := []string{}
	for _, d := range []struct{ name, speed string }{{"moving", "20"}, {"parked", "0"}, {"still", "0"}} {
		text := "t,vEgo,roll,targetLateralAcceleration\n0," + d.speed + ",0,0\n1," + d.speed + ",0,0\n"
		names = append(names, filepath.Join(dir, d.name+".csv"))
		require.NoError(t, os.WriteFile(names[len(names)-1], []byte(text), 0o644))
	}
	s, err := OpenSim(t.Context(), SimOptions{Scenarios: names, N: 1, Device: "cpu"})
	require.NoError(t, err)
	defer s.Close()
	about := s.Describe()
	require.Equal(t, []string{"moving"}, about.Scenarios)
	require.Equal(t, "recorded drive left out: "+names[1]+": the car goes 0.0 m in it; want 10 m at least\n"+
		"recorded drive left out: "+names[2]+": the car goes 0.0 m in it; want 10 m at least", about.Notice)
}
