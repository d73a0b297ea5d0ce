package scenario

import (
	"context"
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/dora/dataset"
	"github.com/spark-compile/spark-compile/dora/route"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/openpilot"
)

// TestRoute_IsTheRoadThatWasDriven: what a log says of a drive becomes its road, and frames stand along it.
func TestRoute_IsTheRoadThatWasDriven(t *testing.T) {
	dir := t.TempDir()
	s := dataset.Synthesis{Routes: 1, Seconds: 8, Width: 64, Height: 40, Middle: true}
	require.NoError(t, dataset.Synthesise(t.Context(), dir, s))
	f, r, err := OpenRoute(t.Context(), dir)
	require.NoError(t, err)
	require.Len(t, r.Poses, 8*openpilot.Rate)
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
	require.ErrorContains(t, err, `scenario "fast" has cruise, and would run on the road of `)
	other, err := Family{Name: "beside", Values: map[string]float64{"offset": .5}}.On(f)
	require.NoError(t, err)
	scenario, err = other.Draw(1, 0)
	require.NoError(t, err)
	require.Equal(t, .5, scenario.Get("offset"))
	require.NotNil(t, scenario.Road)
}

// TestRecordedRoads_GoOnWhereTheCarCreeps: a car in a bend crawls at 0.4 m/s for half a minute, while its yaw rate and
// its climb are off; its road stays the bend.
func TestRecordedRoads_GoOnWhereTheCarCreeps(t *testing.T) {
	const bend, slope = 0.004, 0.02
	creeps := func(seconds float64) bool { return seconds >= 5 && seconds < 35 }
	noise := func(k int) float64 { return 0.02 + 0.04*math.Sin(float64(k)/9) } // rad/s, and m/s up
	drive := &madeDrive{curvature: func(float64) float64 { return bend }, grade: slope, hz: 20}
	var frames []dataset.DriveFrame
	at := madeRow{}
	for k := range 40 * 20 {
		at.time, at.speed, at.climb = float64(k)/20, 10, 0
		turn := bend * at.speed
		if creeps(at.time) {
			at.speed, at.climb = 0.4, noise(k)
			turn = noise(k)
		}
		at.way += at.speed / 20
		at.heading += turn / 20
		at.east, at.north = at.east-math.Sin(at.heading)*at.speed/20, at.north+math.Cos(at.heading)*at.speed/20
		at.up += at.speed / 20 * slope
		drive.rows = append(drive.rows, at)
		frames = append(frames, dataset.DriveFrame{Seconds: at.time, Speed: at.speed, Turn: turn})
	}
	segment := filepath.Join(t.TempDir(), "route", "0")
	drive.comma2k19(t, segment)
	log := filepath.Join(t.TempDir(), "00000001--0123456789--0", "rlog")
	drive.rlog(t, log, func(k int, p *route.LivePose) {
		if creeps(float64(k) / 20) {
			p.AngularVelocityDevice = route.XYZ{Z: float32(-noise(k)), Valid: true}
			p.VelocityDevice.Z = float32(noise(k))
		}
	}, route.CarParams{})
	families := map[string]func() (*Family, error){
		"a route": func() (*Family, error) { return recordingOf(frames).family("route", "") },
		"a log": func() (*Family, error) {
			f, _, err := importLog(t.Context(), log, "log")
			return f, err
		},
		"poses": func() (*Family, error) { return importPoses(t.Context(), filepath.Join(segment, poseDir), "poses") },
	}
	for name, open := range families {
		f, err := open()
		require.NoError(t, err, name)
		for k, x := range f.Road.Curvature {
			require.InDelta(t, bend, x, 5e-4, "%s: knot %d", name, k)
		}
		for k, x := range f.Road.Grade {
			require.InDelta(t, slope, x, 1e-3, "%s: knot %d", name, k)
		}
	}
}
