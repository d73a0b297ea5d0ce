package dataset

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"github.com/spark-compile/spark-compile/dora/camera"
	"github.com/spark-compile/spark-compile/dora/route"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/openpilot"
	"github.com/spark-compile/spark-compile/runtime/modeld"
)

// Synthesis says which routes to make.
type Synthesis struct {
	Routes        int // 2 by default
	Seconds       int // of each; 20 by default
	Seed          uint64
	Width, Height int  // of the cameras' pictures, even; 240 × 150 by default
	Driver        bool // the driver camera too
	Middle        bool // the car keeps to the middle of its lane, on a winding road without other cars
	Video         bool // cameras as .hevc, by ffmpeg; else as directories of .npz files
	Camera        camera.Options
}

func (s *Synthesis) defaults() error {
	for _, x := range []struct {
		into *int
		by   int
	}{{&s.Routes, 2}, {&s.Seconds, 20}, {&s.Width, 240}, {&s.Height, 150}} {
		if *x.into == 0 {
			*x.into = x.by
		}
	}
	if s.Routes < 1 || s.Seconds < 1 || s.Width < 16 || s.Height < 16 || s.Width%2 != 0 || s.Height%2 != 0 {
		return fmt.Errorf("%d routes of %d seconds, in pictures of %d × %d pixels: want at least one of each, and even sizes from 16 on", s.Routes, s.Seconds, s.Width, s.Height)
	}
	return nil
}

// Lengths of a route, in frames.
const (
	segmentFrames = 60 * openpilot.Rate
	framePeriod   = 1_000_000_000 / openpilot.Rate // ns
)

// Synthesise writes routes of a drawn drive (internal/openpilot) to a directory: logs as a device writes them, and what its cameras saw. Each route begins elsewhere on
// the drive. The same settings give the same bytes, but for videos, which are ffmpeg's. Where it fails, or the context ends, what it has written is removed.
func Synthesise(ctx context.Context, dir string, s Synthesis) (err error) {
	if err := s.defaults(); err != nil {
		return err
	}
	var written []string
	defer func() {
		if err == nil {
			return
		}
		for _, path := range written {
			err = errors.Join(err, os.RemoveAll(path))
		}
	}()
	rng := rand.New(rand.NewPCG(s.Seed, 1))
	for k := range s.Routes {
		first := int(rng.Uint32N(1 << 16))
		id := fmt.Sprintf("%08x--%010x", k, rng.Uint64N(1<<40))
		for n, done := 0, 0; done < s.Seconds*openpilot.Rate; n++ {
			count := min(segmentFrames, s.Seconds*openpilot.Rate-done)
			segment := filepath.Join(dir, fmt.Sprintf("%s--%d", id, n))
			written = append(written, segment)
			if err := s.segment(ctx, segment, n, first+done, done, count); err != nil {
				return err
			}
			done += count
		}
	}
	return nil
}

// eyes are the cameras: those of a comma 3X, with fewer pixels. The driver camera is like the wide one.
func (s *Synthesis) eyes() (road, wide openpilot.Camera) {
	by := float64(s.Width) / 1928
	return openpilot.Camera{Focal: float64(2648 * by), Width: s.Width, Height: s.Height}, openpilot.Camera{Focal: float64(567 * by), Width: s.Width, Height: s.Height}
}

// scene is what a camera sees in each frame.
func (s *Synthesis) scene(c openpilot.Camera) func(frame int) openpilot.Picture {
	if s.Middle {
		return c.DrawMiddle
	}
	return c.Draw
}

// segment writes one: from is its first frame on the drive, done how many the route had before.
func (s *Synthesis) segment(ctx context.Context, dir string, number, from, done, count int) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	film := s.frames
	if s.Video {
		film = s.videos
	}
	if err := film(ctx, dir, from, count); err != nil {
		return err
	}
	w, err := route.Create(filepath.Join(dir, "rlog.zst"))
	if err != nil {
		return err
	}
	l := &scribe{w: w, driver: s.Driver, middle: s.Middle}
	l.begin(number)
	for i := range count {
		l.frame(from+i, uint32(done+i), uint32(i), int32(number))
	}
	l.end()
	return errors.Join(l.err, w.Close())
}

// videos films a segment in HEVC.
func (s *Synthesis) videos(ctx context.Context, dir string, from, count int) error {
	road, wide := s.eyes()
	films := map[string]func(int) openpilot.Picture{"fcamera.hevc": s.scene(road), "ecamera.hevc": s.scene(wide)}
	if s.Driver {
		films["dcamera.hevc"] = wide.DrawDriver
	}
	for _, name := range slices.Sorted(maps.Keys(films)) {
		if err := camera.Encode(ctx, filepath.Join(dir, name), drawn(films[name], from, count), s.Camera); err != nil {
			return err
		}
	}
	return nil
}

// frames films a segment in directories of arrays.
func (s *Synthesis) frames(ctx context.Context, dir string, from, count int) error {
	road, wide := s.eyes()
	films := map[route.Role]map[string]func(int) openpilot.Picture{
		route.RoadCamera: {"road": s.scene(road), "wide": s.scene(wide)}}
	if s.Driver {
		films[route.DriverCamera] = map[string]func(int) openpilot.Picture{"driver": wide.DrawDriver}
	}
	for role, names := range films {
		if err := os.MkdirAll(filepath.Join(dir, string(role)), 0o755); err != nil {
			return err
		}
		for i := range count {
			if err := ctx.Err(); err != nil {
				return err
			}
			arrays := map[string]*npy.Array{}
			for name, draw := range names {
				arrays[name] = draw(from + i).Array()
			}
			if err := npy.WriteZip(filepath.Join(dir, string(role), fmt.Sprintf("%06d.npz", i)), arrays); err != nil {
				return err
			}
		}
	}
	return nil
}

// drawn are what a camera sees.
func drawn(draw func(frame int) openpilot.Picture, from, count int) iter.Seq[modeld.Picture] {
	return func(yield func(modeld.Picture) bool) {
		for i := range count {
			if !yield(modeld.Picture(draw(from + i))) {
				return
			}
		}
	}
}

// scribe writes a log.
type scribe struct {
	w      *route.Writer
	driver bool // there is a driver camera
	middle bool // as Synthesis has it
	time   uint64
	err    error
}

func (l *scribe) write(kind route.Kind, message any) {
	if l.err == nil {
		l.err = l.w.Write(route.Event{Time: l.time, Kind: kind, Valid: true}, message)
	}
	l.time += 10_000
}

func (l *scribe) begin(segment int) {
	start := route.StartOfSegment
	if segment == 0 {
		start = route.StartOfRoute
	}
	l.write(route.KindInitData, &route.InitData{DeviceType: route.Tici, DongleID: "0123456789abcdef", Version: "synthetic"})
	l.write(route.KindSentinel, &route.Sentinel{Type: start})
	l.write(route.KindCarParams, &route.CarParams{CarFingerprint: "SYNTHETIC", SteerActuatorDelay: 0.2, LongitudinalActuatorDelay: 0.3, Wheelbase: 2.7})
}

func (l *scribe) end() { l.write(route.KindSentinel, &route.Sentinel{Type: route.EndOfSegment}) }

// frame writes what a device logs in 50 ms: the car's state before the exposure, the cameras', then what the model made of it.
func (l *scribe) frame(on int, id, inFile uint32, segment int32) {
	sof := uint64(10_000_000_000) + uint64(id)*framePeriod
	l.time = sof - framePeriod/2
	in := openpilot.At(on)
	speed, curvature := openpilot.Motion(on)
	if l.middle {
		_, speed, curvature = openpilot.MiddleAt(on)
	}
	if id%5 == 0 || inFile == 0 { // 4 Hz
		l.write(route.KindLiveCalibration, &route.LiveCalibration{CalStatus: route.Calibrated, CalPerc: 100, RPYCalib: floats(in.RPY), Height: []float32{modeld.CameraHeight}})
		l.write(route.KindLiveDelay, &route.LiveDelay{LateralDelay: 0.25})
	}
	l.write(route.KindDriverMonitoringState, &route.DriverMonitoringState{IsRHD: in.RightHandDrive})
	state, to := laneChange(in.Desire)
	for range 5 { // 100 Hz
		l.write(route.KindCarState, &route.CarState{VEgo: float32(speed), YawRate: float32(speed * curvature), CANValid: true, LeftBlinker: to == route.LaneChangeToLeft, RightBlinker: to == route.LaneChangeToRight})
		l.write(route.KindCarControl, &route.CarControl{Enabled: true, LatActive: true, LongActive: true, CurrentCurvature: float32(curvature)})
		l.write(route.KindControlsState, &route.ControlsState{Curvature: float32(curvature), DesiredCurvature: float32(curvature)})
	}
	l.time = sof
	const exposure, offset = 5_000_000, 2_000_000
	l.write(route.KindRoadCameraState, &route.FrameData{FrameID: id, TimestampSOF: sof, TimestampEOF: sof + exposure, Sensor: route.Sensor(2)})
	l.write(route.KindWideRoadCameraState, &route.FrameData{FrameID: id, TimestampSOF: sof + offset, TimestampEOF: sof + offset + exposure, Sensor: route.Sensor(2)})
	index := route.EncodeIndex{FrameID: id, Type: route.FullHEVC, EncodeID: id, SegmentNum: segment, SegmentID: inFile, TimestampSOF: sof, TimestampEOF: sof + exposure}
	l.write(route.KindRoadEncodeIdx, &index)
	index.TimestampSOF, index.TimestampEOF = sof+offset, sof+offset+exposure
	l.write(route.KindWideRoadEncodeIdx, &index)
	if l.driver {
		index.TimestampSOF, index.TimestampEOF = sof+2*offset, sof+2*offset+exposure
		l.write(route.KindDriverCameraState, &route.FrameData{FrameID: id, TimestampSOF: index.TimestampSOF, TimestampEOF: index.TimestampEOF, Sensor: route.Sensor(2)})
		l.write(route.KindDriverEncodeIdx, &index)
	}
	l.write(route.KindModelV2, &route.ModelV2{FrameID: id, TimestampEOF: sof + exposure,
		Action: route.Action{DesiredCurvature: float32(curvature)},
		Meta:   route.Meta{LaneChangeState: state, LaneChangeDirection: to}})
	l.write(route.KindCameraOdometry, &route.CameraOdometry{FrameID: id, TimestampEOF: sof + exposure, Trans: floats([3]float64{speed, 0, 0}), Rot: floats([3]float64{0, 0, float64(speed * curvature)})})
}

// laneChange is what a log says of a desire; of turns it says nothing.
func laneChange(desire int) (route.LaneChangeState, route.LaneChangeDirection) {
	switch route.Desire(desire) {
	case route.LaneChangeLeft:
		return route.LaneChangeStarting, route.LaneChangeToLeft
	case route.LaneChangeRight:
		return route.LaneChangeStarting, route.LaneChangeToRight
	}
	return route.LaneChangeOff, route.NoLaneChange
}

func floats(x [3]float64) []float32 { return []float32{float32(x[0]), float32(x[1]), float32(x[2])} }
