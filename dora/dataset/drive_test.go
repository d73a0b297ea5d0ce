package dataset

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/dora/route"
	"github.com/spark-compile/spark-compile/internal/openpilot"
	"github.com/spark-compile/spark-compile/runtime/modeld"
)

// TestDrive_IsWhatWasDriven: motion, calibration and pictures of a route of two segments, frame by frame.
func TestDrive_IsWhatWasDriven(t *testing.T) {
	dir := t.TempDir()
	s := Synthesis{Routes: 1, Seconds: 61, Width: 32, Height: 20, Middle: true}
	require.NoError(t, Synthesise(t.Context(), dir, s))
	d, err := OpenDrive(t.Context(), dir)
	require.NoError(t, err)
	require.Len(t, d.Frames, 61*openpilot.Rate)
	require.InDelta(t, modeld.CameraHeight, d.Height, 1e-6)
	require.NoError(t, s.defaults())
	road, wide := s.eyes()
	i, first := 0, -1
	for f, err := range d.Pictures(t.Context()) {
		require.NoError(t, err)
		if i == 0 { // which frame of the drive it begins with is random
			for k := range 1 << 16 {
				if _, speed, turn := openpilot.MiddleAt(k); near(speed, d.Frames[0].Speed) && near(-speed*turn, d.Frames[0].Turn) {
					first = k
					break
				}
			}
			require.GreaterOrEqual(t, first, 0)
		}
		if i%397 == 0 {
			require.Equal(t, modeld.Picture(road.DrawMiddle(first + i)).Data[:32], f.Road.Data[:32], "frame %d", i)
			require.Equal(t, wide.DrawMiddle(first+i).Array().Data, f.Wide.Data, "frame %d", i)
		}
		_, speed, turn := openpilot.MiddleAt(first + i)
		require.InDelta(t, speed, d.Frames[i].Speed, 1e-5)
		require.InDelta(t, -speed*turn, d.Frames[i].Turn, 1e-5)
		require.InDelta(t, float64(i)/openpilot.Rate, d.Frames[i].Seconds, 1e-9)
		c := d.Frames[i].Calibration
		require.Equal(t, modeld.Intrinsics(road), c.Road)
		require.InDelta(t, openpilot.At(first + i - i%5).RPY[1], c.RPY[1], 1e-6, "frame %d", i)
		i++
	}
	require.Len(t, d.Frames, i)
}

func near(x, y float64) bool { return x-y < 1e-6 && y-x < 1e-6 }

// TestDrive_OfARouteThatIsNotWhole is refused by what it lacks.
func TestDrive_OfARouteThatIsNotWhole(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, Synthesise(t.Context(), dir, Synthesis{Routes: 2, Seconds: 1, Width: 32, Height: 20}))
	_, err := OpenDrive(t.Context(), dir)
	require.ErrorContains(t, err, "has several routes")
	segments, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	write := func(path string, kinds ...route.Kind) {
		w, err := route.Create(path)
		require.NoError(t, err)
		l := &scribe{w: w}
		l.begin(0)
		has := map[route.Kind]bool{}
		for _, k := range kinds {
			has[k] = true
		}
		for i := range uint32(20) {
			sof := uint64(1e10) + uint64(i)*framePeriod
			if has[route.KindLiveCalibration] {
				l.write(route.KindLiveCalibration, &route.LiveCalibration{CalStatus: route.Calibrated, RPYCalib: []float32{0, 0, 0}})
			}
			if has[route.KindCarState] {
				l.write(route.KindCarState, &route.CarState{VEgo: 9})
			}
			index := route.EncodeIndex{FrameID: i, Type: route.FullHEVC, SegmentID: i, TimestampSOF: sof}
			l.write(route.KindRoadEncodeIdx, &index)
			if has[route.KindWideRoadEncodeIdx] {
				l.write(route.KindWideRoadEncodeIdx, &index)
			}
			if has[route.KindCameraOdometry] {
				l.write(route.KindCameraOdometry, &route.CameraOdometry{FrameID: i, Trans: []float32{9, 0, 0}, Rot: []float32{0, 0, 0}})
			}
		}
		l.end()
		require.NoError(t, l.err)
		require.NoError(t, w.Close())
	}
	log := filepath.Join(segments[0], "rlog.zst")
	calibrated, moves, wide := route.KindLiveCalibration, route.KindCameraOdometry, route.KindWideRoadEncodeIdx
	car := route.KindCarState
	for want, kinds := range map[string][]route.Kind{"no valid calibration": {moves, wide, car}, "no poses": {calibrated, wide, car},
		"no wide camera": {calibrated, moves, car}, "has no carState": {calibrated, moves, wide}} {
		write(log, kinds...)
		_, err = OpenDrive(t.Context(), segments[0])
		require.ErrorContains(t, err, want)
		_, err = OpenMotion(t.Context(), segments[0])
		if want == "no wide camera" {
			require.NoError(t, err, "nobody sees its pictures")
		} else {
			require.ErrorContains(t, err, want)
		}
	}
	write(log, calibrated, moves, wide, car)
	_, err = OpenDrive(t.Context(), segments[0])
	require.NoError(t, err)
	frames := filepath.Join(segments[1], "fcamera")
	for i := 7; i < 20; i++ {
		require.NoError(t, os.Remove(filepath.Join(frames, fmt.Sprintf("%06d.npz", i))))
	}
	d, err := OpenDrive(t.Context(), segments[1])
	require.NoError(t, err)
	count := 0
	for _, err = range d.Pictures(t.Context()) {
		count++
	}
	require.ErrorContains(t, err, "frame 7: the video ends before its log")
	require.Equal(t, 8, count)
	require.NoError(t, os.RemoveAll(frames))
	_, err = OpenDrive(t.Context(), segments[1])
	require.ErrorContains(t, err, "no video of the road camera")
	motion, err := OpenMotion(t.Context(), segments[1])
	require.NoError(t, err)
	require.Len(t, motion.Frames, len(d.Frames))
}

// asked counts how often a context is asked whether it was cancelled.
type asked struct {
	context.Context
	times int
}

func (c *asked) Err() error { c.times++; return nil }

// TestDrive_AsksForAnInterruptAtEachSegment of comma2k19, whose poses are read without a context.
func TestDrive_AsksForAnInterruptAtEachSegment(t *testing.T) {
	root := t.TempDir()
	const segments, frames = 2, 260
	for i := range segments {
		segment := writePoses(t, root, 1000, frames)
		if i == segments-1 {
			require.NoError(t, os.Remove(filepath.Join(segment, "global_pose", "frame_times")))
		}
		require.NoError(t, os.Rename(segment, filepath.Join(filepath.Dir(segment), fmt.Sprint(10+i))))
	}
	found, all := &asked{Context: t.Context()}, &asked{Context: t.Context()}
	_, err := route.Find(found, root)
	require.NoError(t, err)
	_, err = OpenDrive(all, root)
	require.ErrorContains(t, err, "11/global_pose/frame_times")
	require.Equal(t, segments, all.times-found.times)
}
