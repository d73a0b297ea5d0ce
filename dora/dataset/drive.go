package dataset

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"

	"github.com/spark-compile/spark-compile/dora/route"
	"github.com/spark-compile/spark-compile/runtime/modeld"
)

// Drive is a recorded route, frame by frame: how the car moved, and what its cameras saw.
type Drive struct {
	Name     string
	Height   float64      // of the camera above the road, m; 0: the log does not say
	Frames   []DriveFrame // those of the road camera with a calibration and a frame of the wide one
	Damage   []string     // where logs are damaged: what comes before counts
	segments []driveSegment
}

// DriveFrame is what is known of the car at a frame.
type DriveFrame struct {
	Seconds     float64 // since the first one
	Speed       float64 // m/s
	Turn        float64 // rad/s to the left
	Calibration modeld.Calibration
}

// driveSegment is a segment, and those of its moments that are frames.
type driveSegment struct {
	*route.Segment
	timeline *timeline
	moments  []int
}

// oneEyed is the device with one camera, whose picture models have twice, as modeld gives it to them.
const oneEyed = "neo"

const noWide = "it has no wide camera (ecamera.hevc), which driving models see beside the road camera: take a route with both"

// OpenDrive reads the log of the route below a directory; its pictures are read by Pictures. The car's motion is that
// of its camera (cameraOdometry), or of the poses of comma2k19.
func OpenDrive(ctx context.Context, dir string) (*Drive, error) {
	d, err := openDrive(ctx, dir, true)
	if err != nil {
		return nil, err
	}
	return d, d.measure(ctx)
}

// OpenMotion is OpenDrive of a route whose pictures nobody sees: it needs no videos. Calibrations are those of the log
// alone.
func OpenMotion(ctx context.Context, dir string) (*Drive, error) { return openDrive(ctx, dir, false) }

func openDrive(ctx context.Context, dir string, pictures bool) (*Drive, error) {
	found, err := route.Find(ctx, dir)
	if err != nil {
		return nil, err
	}
	d := &Drive{Name: found.Segments[0].Route}
	start := uint64(0)
	for i := range found.Segments {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s := driveSegment{Segment: &found.Segments[i]}
		if s.Route != d.Name {
			return nil, fmt.Errorf("%s has several routes, such as %s and %s: name the directory of one", dir, d.Name, s.Route)
		}
		if err := s.read(ctx, pictures); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name(), err)
		}
		if s.timeline.Damage != "" {
			d.Damage = append(d.Damage, s.timeline.Damage)
		}
		for _, k := range s.moments {
			m := &s.timeline.Moments[k]
			if len(d.Frames) == 0 {
				start = m.SOF
			}
			f := DriveFrame{Seconds: float64(int64(m.SOF-start)) / 1e9, Speed: m.Speed, Turn: -m.Rot[2]}
			if m.Global != nil {
				f.Turn = -float64(m.Curvature * m.Speed)
			}
			if n := len(d.Frames); n > 0 && f.Seconds <= d.Frames[n-1].Seconds {
				return nil, fmt.Errorf("%s: frame %d: its time is not later than that of the frame before; take the segments "+
					"before it alone", s.Name(), m.Road)
			}
			f.Calibration.RPY = m.RPY
			d.Frames = append(d.Frames, f)
			if d.Height == 0 {
				d.Height = m.Height
			}
		}
		d.segments = append(d.segments, s)
	}
	return d, nil
}

// read reads the log of a segment.
func (s *driveSegment) read(ctx context.Context, pictures bool) (err error) {
	log := knowledge(s.Segment)
	switch {
	case log == "":
		return errors.New("it has no log, which says how the car moved: want rlog.zst beside its videos")
	case pictures && eye(s.Segment, false) == "":
		return errors.New("it has no video of the road camera (fcamera.hevc)")
	case log == s.Files[route.GlobalPose]:
		s.timeline, err = posedTimeline(s.Segment)
	default:
		s.timeline, err = readTimeline(ctx, log, false)
	}
	if err != nil {
		return err
	}
	calibrated, moving := 0, []int(nil)
	for k, m := range s.timeline.Moments {
		if !m.Known {
			continue
		}
		calibrated++
		if !m.Moves && m.Global == nil {
			continue
		}
		moving = append(moving, k)
		if m.Wide >= 0 || s.timeline.Device == oneEyed {
			s.moments = append(s.moments, k)
		}
	}
	switch {
	case len(s.timeline.Moments) == 0:
		return errors.New("its log knows no frame of the road camera (fcamera.hevc); take the whole log, rlog.zst")
	case calibrated == 0:
		return errors.New("it has no valid calibration; take a later segment")
	case len(moving) == 0:
		return errors.New("it has no poses: its log does not say how the camera moved (cameraOdometry); take the whole log, rlog.zst")
	case s.timeline.Events[route.KindCarState.String()] == 0 && log != s.Files[route.GlobalPose]:
		return errors.New("its log has no carState, which says how fast the car drove; take the whole log, rlog.zst")
	case len(s.moments) == 0 && pictures:
		return errors.New(noWide)
	case len(s.moments) == 0:
		s.moments = moving
	}
	return nil
}

// measure finds the cameras of each segment, by their first pictures.
func (d *Drive) measure(ctx context.Context) error {
	at := 0
	for i := range d.segments {
		s := &d.segments[i]
		cameras, err := s.open(ctx)
		if err != nil {
			return err
		}
		road, wide, err := (&decoder{frames: cameras, roads: map[int]frame{}, wides: map[int]frame{}}).pair(s.first())
		cameras.close()
		if err != nil {
			return fmt.Errorf("%s: frame %d: %w", s.Name(), s.first().Road, err)
		}
		c, err := s.timeline.calibration(road, wide)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Name(), err)
		}
		for range s.moments {
			c.RPY = d.Frames[at].Calibration.RPY
			d.Frames[at].Calibration = c
			at++
		}
	}
	return nil
}

func (s *driveSegment) first() *moment { return &s.timeline.Moments[s.moments[0]] }

// open opens the segment's cameras.
func (s *driveSegment) open(ctx context.Context) (cameras, error) {
	st, err := os.Stat(eye(s.Segment, false)) // a directory has frames of both cameras
	if err != nil {
		return nil, err
	}
	if !st.IsDir() && s.timeline.Device != oneEyed && s.Files[route.WideCamera] == "" {
		return nil, fmt.Errorf("%s: %s", s.Name(), noWide)
	}
	return openCameras(ctx, s.Segment, false)
}

// Pictures yields the pictures of Frames, in their order, and ends after the first error.
func (d *Drive) Pictures(ctx context.Context) iter.Seq2[modeld.Frame, error] {
	return func(yield func(modeld.Frame, error) bool) {
		for i := range d.segments {
			s := &d.segments[i]
			cameras, err := s.open(ctx)
			if err != nil {
				yield(modeld.Frame{}, err)
				return
			}
			more := s.pictures(cameras, yield)
			cameras.close()
			if !more {
				return
			}
		}
	}
}

// pictures yields those of a segment; more says whether others are wanted.
func (s *driveSegment) pictures(frames cameras, yield func(modeld.Frame, error) bool) (more bool) {
	d := &decoder{frames: frames, t: s.timeline, roads: map[int]frame{}, wides: map[int]frame{}}
	for _, k := range s.moments {
		m := &s.timeline.Moments[k]
		road, wide, err := d.pair(m)
		if err != nil {
			yield(modeld.Frame{}, fmt.Errorf("%s: frame %d: %w", s.Name(), m.Road, err))
			return false
		}
		if !yield(modeld.Frame{Road: road, Wide: wide, ID: m.FrameID}, nil) {
			return false
		}
	}
	return true
}
