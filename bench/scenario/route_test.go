package scenario

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/dora/dataset"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/drive"
)

// TestRoute_IsTheRoadThatWasDriven: what a log says of a drive becomes its road, and frames stand along it.
func TestRoute_IsTheRoadThatWasDriven(t *testing.T) {
	dir := t.TempDir()
	s := dataset.Synthesis{Routes: 1, Seconds: 8, Width: 64, Height: 40, Middle: true}
	require.NoError(t, dataset.Synthesise(t.Context(), dir, s))
	f, r, err := OpenRoute(t.Context(), dir)
	require.NoError(t, err)
	require.Len(t, r.Poses, 8*drive.Rate)
	d, err := dataset.OpenDrive(t.Context(), dir)
	require.NoError(t, err)
	scenario, err := f.Draw(1, 0)
	require.NoError(t, err)
	for i, p := range r.Poses {
		require.InDelta(t, d.Frames[i].Turn/d.Frames[i].Speed, scenario.road(p.Station), 2e-5, "frame %d", i)
	}
	require.InDelta(t, d.Frames[0].Speed, scenario.Get("speed"), 1e-4)
	// A car that steers as the road bends stays where the frames are, all the way.
	follows := &Callback{Name: "follows", Width: 64, Height: 32,
		Look: func(_ context.Context, _ int, _ []byte, seen, commands [][]float32) error {
			copy(commands[0], seen[observed("road2")])
			clear(commands[1])
			return nil
		}}
	run := &Runner{Device: openEmu(t, emu.Options{}), Recording: r}
	out, err := run.RunBatch(t.Context(), []Scenario{scenario}, follows, 1, 1)
	require.NoError(t, err)
	require.Equal(t, Pictures, out.Tier)
	require.Zero(t, metricOf(t, out, 0, "left_corridor"))
	require.InDelta(t, r.Poses[len(r.Poses)-1].Station, metricOf(t, out, 0, "progress"), 4)

	_, err = Family{Name: "own", Road: f.Road}.On(f)
	require.ErrorContains(t, err, "a road of its own")
	_, err = Family{Name: "fast", Values: map[string]float64{"cruise": 30}}.On(f)
	require.ErrorContains(t, err, `cruise is a parameter of "fast", and its road of knots has recorded speeds: leave one out`)
	other, err := Family{Name: "beside", Values: map[string]float64{"offset": .5}}.On(f)
	require.NoError(t, err)
	scenario, err = other.Draw(1, 0)
	require.NoError(t, err)
	require.Equal(t, .5, scenario.Get("offset"))
	require.NotNil(t, scenario.Road)
}
