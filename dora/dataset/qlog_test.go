package dataset

import (
	"context"
	"math"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/dora/route"
	"github.com/spark-compile/spark-compile/internal/openpilot"
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
		assert.Equal(t, single(openpilot.At(from+f-f%20).RPY), m.RPY, "calibrations come every 20th frame")
		if f%20 < 5 {
			assert.Equal(t, a.Inputs["img"][len(a.Inputs["img"])/2:], b.Inputs["img"][len(a.Inputs["img"])/2:], "the same frame by the same calibration")
		}
		speed, _ := openpilot.Motion(from + f - f%2)
		assert.InDelta(t, speed, m.Speed, 1e-5, "the car's state comes every second frame")
		assert.True(t, math.IsNaN(float64(b.Truth["plan"][15])))
	}
}

// TestTheFirstFramesHaveTheFirstCalibration, where it is logged a little later; not where it comes late, or says that there is none.
func TestTheFirstFramesHaveTheFirstCalibration(t *testing.T) {
	for name, k := range map[string]struct {
		until  int // frames before the calibration
		status route.CalStatus
		known  int // moments
	}{
		"a quarter of a second": {5, route.Calibrated, 40},
		"a second":              {20, route.Calibrated, 40},
		"late":                  {22, route.Calibrated, 18},
		"none":                  {3, route.Uncalibrated, 0},
	} {
		path := filepath.Join(t.TempDir(), "rlog")
		w, err := route.Create(path)
		require.NoError(t, err)
		l := &scribe{w: w}
		for i := range 40 {
			if i == k.until {
				l.write(route.KindLiveCalibration, &route.LiveCalibration{CalStatus: k.status, RPYCalib: []float32{0, .25, 0}})
			}
			l.write(route.KindRoadCameraState, &route.FrameData{FrameID: uint32(i)})
			l.write(route.KindRoadEncodeIdx, &route.EncodeIndex{FrameID: uint32(i), SegmentID: uint32(i), Type: route.FullHEVC})
		}
		require.NoError(t, errorsOf(l.err, w.Close()))
		timeline, err := readTimeline(context.Background(), path, false)
		require.NoError(t, err)
		known := 0
		for _, m := range timeline.Moments {
			if m.Known {
				known++
				assert.Equal(t, [3]float64{0, .25, 0}, m.RPY)
			}
		}
		assert.Equal(t, k.known, known, name)
	}
}

// TestACameraThatDoesNotSayItsSensor leaves what the others said: all of a device's are alike.
func TestACameraThatDoesNotSayItsSensor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rlog")
	w, err := route.Create(path)
	require.NoError(t, err)
	l := &scribe{w: w}
	l.write(route.KindRoadCameraState, &route.FrameData{FrameID: 1, Sensor: route.Sensor(3)})
	l.write(route.KindDriverCameraState, &route.FrameData{FrameID: 1})
	require.NoError(t, errorsOf(l.err, w.Close()))
	for _, driver := range []bool{false, true} {
		timeline, err := readTimeline(context.Background(), path, driver)
		require.NoError(t, err)
		assert.Equal(t, "os04c10", timeline.Sensor)
	}
}
