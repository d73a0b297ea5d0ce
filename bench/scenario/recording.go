package scenario

import (
	"context"
	"fmt"
	"iter"
	"math"

	"github.com/spark-compile/spark-compile/runtime"
	"github.com/spark-compile/spark-compile/runtime/modeld"
)

// The corridor in which frames are reprojected, from the car that recorded them. A loop that leaves it ends.
const (
	corridorSide  = 2.0 // m to either side
	corridorTurn  = 0.1 // rad to either side
	corridorReach = 3.0 // m from the last frame that was passed
)

// Corridor says what the corridor is.
var Corridor = fmt.Sprintf("%v m to either side of the car that recorded, %v rad, and %v m from the last frame",
	corridorSide, corridorTurn, corridorReach)

// Recording is a drive as its cameras recorded it. Loops see its frames from where they are: the last frame that was
// passed, warped by the homography of a flat road below the horizon, and turned above it. What stands above the road,
// such as cars, is seen where it would lie on the road.
type Recording struct {
	Name   string  // in errors
	Height float64 // of the camera above the road, m; 0: modeld.CameraHeight
	Poses  []Pose  // of the frames, in their order
	// Frames yields the frames of Poses. It is called once for each run; not all need to be taken.
	Frames func(ctx context.Context) iter.Seq2[modeld.Frame, error]
	Damage []string // where logs of it are damaged: what comes before counts
}

// Pose is where the car was that recorded a frame, on the road of the scenarios, and how its cameras were mounted.
type Pose struct {
	Station     float64 // m along the road; loops start at 0
	Offset      float64 // m from the centre of the lane, left positive
	Heading     float64 // rad to the road, left positive
	Calibration modeld.Calibration
}

// frameDistance is the least distance between frames, in metres. One frame of a standing car is enough.
const frameDistance = 0.1

// taken are the numbers of the frames that loops see, or an error if they leave gaps.
func (r *Recording) taken() ([]int, error) {
	if len(r.Poses) == 0 || r.Frames == nil {
		return nil, fmt.Errorf("recording %q has no frames with poses", r.Name)
	}
	if !(r.Height >= 0 && r.Height < 10) {
		return nil, fmt.Errorf("recording %q: the camera is %v m above the road; want 0 to 10, and 0 for %v",
			r.Name, r.Height, modeld.CameraHeight)
	}
	var out []int
	last := math.Inf(-1)
	for i, p := range r.Poses {
		for _, x := range []struct {
			name  string
			value float64
		}{{"station", p.Station}, {"offset", p.Offset}, {"heading", p.Heading}} {
			if math.IsNaN(x.value) || math.IsInf(x.value, 0) {
				return nil, fmt.Errorf("recording %q: frame %d: its %s is %v; leave the frame out", r.Name, i, x.name, x.value)
			}
		}
		switch advance := p.Station - last; {
		case len(out) == 0 && p.Station > 0:
			return nil, fmt.Errorf("recording %q: its first frame is at %.2f m, and loops start at 0; count stations from "+
				"the first frame", r.Name, p.Station)
		case len(out) > 0 && advance > corridorReach:
			return nil, fmt.Errorf("recording %q: frames %d and %d are %.1f m apart, and pictures reach %v m; take the part "+
				"before or behind", r.Name, out[len(out)-1], i, advance, corridorReach)
		case advance >= frameDistance:
			out, last = append(out, i), p.Station
		}
	}
	if last <= 0 {
		return nil, fmt.Errorf("recording %q: the car did not move; take a part in which it does", r.Name)
	}
	return out, nil
}

// show makes pictures those of a recording. Other cars than it shows are refused.
func (d *design) show(ctx context.Context, r *Recording, a Algorithm, scenarios []Scenario) (err error) {
	if d.view == nil {
		return fmt.Errorf("recording %q: algorithm %q sees no pictures; leave the recording out, or give driving models",
			r.Name, a.algorithm())
	}
	for _, s := range scenarios {
		for i := range Cars {
			if name := car(i, "present"); s.Get(name) > 0.5 {
				return fmt.Errorf("scenario %q: %s is 1, and no car of a scenario is in the pictures of recording %q; set "+
					"it to 0", s.Name, name, r.Name)
			}
		}
	}
	d.view.film, err = filmOf(ctx, r, 2*d.view.height, 2*d.view.width)
	return err
}

// stateFilm is the film on the device, which nothing changes.
const stateFilm = "film"

// load gives a session what no batch changes.
func (d *design) load(s *runtime.Session) error {
	if d.view == nil || d.view.film == nil {
		return nil
	}
	return s.SetState(stateFilm, d.view.film.data)
}
