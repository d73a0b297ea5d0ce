package dataset

import (
	"context"
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/dora/route"
	"github.com/spark-compile/spark-compile/internal/drive"
)

// TestAQLogGivesItsRoutesSamples: of a log with as few messages as a qlog has, each frame that was encoded is a moment still, with what was known when it was. The way that
// the car went is not known: the camera's motion is there twice a second.
func TestAQLogGivesItsRoutesSamples(t *testing.T) {
	ctx := context.Background()
	dir := routesOf(t, Synthesis{Routes: 1, Seconds: 6, Width: 96, Height: 60})
	open := func() *routes {
		set, err := Open(ctx, dir, Options{Inputs: takes(t, "vision"), Warn: func(text string) { t.Error(text) }})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, set.Close()) })
		return set.(*routes)
	}
	whole := open()
	segments, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	thin(t, segments[0], "qlog.zst", map[route.Kind]int{route.KindCarState: 10, route.KindControlsState: 10, route.KindCarControl: 10, route.KindRoadCameraState: 20, route.KindWideRoadCameraState: 20,
		route.KindDriverMonitoringState: 10, route.KindLiveCalibration: 4, route.KindCameraOdometry: 10, route.KindModelV2: 0})
	few := open()
	require.Equal(t, whole.Len(), few.Len())
	from := onDrive(t, whole.segments[0])
	for i := range few.Len() {
		a, err := whole.Sample(ctx, i)
		require.NoError(t, err)
		b, err := few.Sample(ctx, i)
		require.NoError(t, err)
		assert.Equal(t, a.Key, b.Key)
		f := 4 + 4*i
		m := few.segments[0].index.Timeline.Moments[f]
		assert.Equal(t, single(drive.At(from+f-f%20).RPY), m.RPY, "calibrations come every 20th frame")
		if f%20 < 5 {
			assert.Equal(t, a.Inputs["img"][len(a.Inputs["img"])/2:], b.Inputs["img"][len(a.Inputs["img"])/2:], "the same frame by the same calibration")
		}
		speed, _ := drive.Motion(from + f - f%2)
		assert.InDelta(t, speed, m.Speed, 1e-5, "the car's state comes every second frame")
		assert.True(t, math.IsNaN(float64(b.Truth["plan"][15])))
	}
}
