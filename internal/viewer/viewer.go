// Package viewer is a window on a drive: a web page that shows, frame by frame, what one or two driving models make of it. The page is part
// of the program and needs no network.
//
//	viewer.go    what is shown, as the page gets it
//	serve.go     the server: page, events, pictures, orders
//	control.go   pause, step, from the start
//	picture.go   a camera's picture as JPEG
//	page/        the page: view.js draws
package viewer

import (
	"encoding/json"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/spark-compile/spark-compile/runtime"
	"github.com/spark-compile/spark-compile/runtime/modeld"
)

// Package is what the page says of a compiled package.
type Package struct {
	Name      string `json:"name"`
	Precision string `json:"precision"`
	Device    string `json:"device"`
}

// most is how many packages a page has place for.
const most = 2

// kept is how many frames' pictures a browser can still ask for.
const kept = 8

// Viewer shows a drive to any number of browsers. They see the latest frame; one that is slow misses some.
type Viewer struct {
	packages []Package
	total    int
	control  control

	mu      sync.Mutex
	frames  []*shown        // the last few, the latest last
	changed chan struct{}   // closed when there is a new one
	spent   []time.Duration // by each package, in steps
	steps   []int
}

// New is a viewer of a recording of so many frames for one or two packages.
func New(packages []Package, total int) (*Viewer, error) {
	if len(packages) < 1 || len(packages) > most {
		return nil, fmt.Errorf("%d packages: the page shows one or two side by side", len(packages))
	}
	v := &Viewer{packages: packages, total: total, changed: make(chan struct{}), spent: make([]time.Duration, len(packages)), steps: make([]int, len(packages))}
	v.control.changed = make(chan struct{})
	return v, nil
}

// Shown is a frame and what each package says of it.
type Shown struct {
	Index       int // in the recording, from 0
	Frame       modeld.Frame
	Calibration modeld.Calibration
	Outputs     []*modeld.Outputs // of each package
}

// Show shows a frame. It keeps it, so pictures must not change, and waits for no browser.
func (v *Viewer) Show(s Shown) error {
	if len(s.Outputs) != len(v.packages) {
		return fmt.Errorf("outputs of %d packages, want %d", len(s.Outputs), len(v.packages))
	}
	road, wide, err := s.Calibration.Projections()
	if err != nil {
		return err
	}
	m := message{Frame: s.Frame.ID, Index: s.Index, Total: v.total, Missed: s.Outputs[0].Missed, Width: s.Frame.Road.Width, Height: s.Frame.Road.Height,
		Project: map[string][9]float64{roadCamera: flat(road), wideCamera: flat(wide)}}
	v.mu.Lock()
	defer v.mu.Unlock()
	for i, out := range s.Outputs {
		if out.Ran {
			v.steps[i]++
			v.spent[i] += out.Stats.Prepare + out.Stats.Run + out.Stats.Parse
		}
		p := packaged(out)
		p.Times.Mean = number(milliseconds(v.spent[i]) / float64(v.steps[i]))
		m.Packages = append(m.Packages, p)
	}
	if len(s.Outputs) == most {
		if m.Difference, err = between(s.Outputs[0], s.Outputs[1]); err != nil {
			return err
		}
	}
	if len(v.frames) > 0 {
		m.Sequence = v.frames[len(v.frames)-1].sequence + 1
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(v.frames) == kept {
		v.frames = append(v.frames[:0], v.frames[1:]...)
	}
	v.frames = append(v.frames, &shown{sequence: m.Sequence, text: text, cameras: map[string]*camera{roadCamera: {picture: s.Frame.Road}, wideCamera: {picture: s.Frame.Wide}}})
	close(v.changed)
	v.changed = make(chan struct{})
	return nil
}

// shown is a frame as browsers get it.
type shown struct {
	sequence int
	text     []byte
	cameras  map[string]*camera
}

// number is null in JSON where it is not finite, which JSON has no word for.
type number float64

func (x number) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(x))
}

func numbers(x []float64) []number {
	out := make([]number, len(x))
	for i, v := range x {
		out[i] = number(v)
	}
	return out
}

// message is a frame in JSON, as view.js reads it.
type message struct {
	Sequence   int                   `json:"sequence"` // counts what is shown
	Frame      uint32                `json:"frame"`
	Index      int                   `json:"index"`
	Total      int                   `json:"total"`
	Missed     int                   `json:"missed"`
	Width      int                   `json:"width"` // of the cameras' pictures
	Height     int                   `json:"height"`
	Project    map[string][9]float64 `json:"project"` // from points to pixels, by rows
	Packages   []said                `json:"packages"`
	Difference *difference           `json:"difference"`
}

// said is what a package says of a frame.
type said struct {
	Ran          bool   `json:"ran"`
	Plan         *plan  `json:"plan"`
	Lanes        []line `json:"lanes"`
	Edges        []line `json:"edges"`
	Leads        []lead `json:"leads"`
	Curvature    number `json:"curvature"`
	Acceleration number `json:"acceleration"`
	Stop         bool   `json:"stop"`
	Desired      *value `json:"desired"`
	Confidence   string `json:"confidence"` // "" of models that do not say
	Times        times  `json:"times"`
}

type plan struct {
	X     []number `json:"x"`
	Y     []number `json:"y"`
	Z     []number `json:"z"`
	Speed number   `json:"speed"` // now
}

type line struct {
	Y           []number `json:"y"`
	Z           []number `json:"z"`
	Probability number   `json:"probability"`
}

type lead struct {
	X           number `json:"x"`
	Y           number `json:"y"`
	Speed       number `json:"speed"`
	Probability number `json:"probability"`
}

type value struct {
	Value number `json:"value"`
	Std   number `json:"std"`
}

// times are in milliseconds.
type times struct {
	Prepare number `json:"prepare"`
	Run     number `json:"run"`
	Parse   number `json:"parse"`
	Mean    number `json:"mean"` // of all three, over the frames so far
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

var confidences = map[modeld.Confidence]string{modeld.Red: "red", modeld.Yellow: "yellow", modeld.Green: "green"}

// packaged is what a package's outputs say.
func packaged(out *modeld.Outputs) said {
	s := said{Ran: out.Ran, Lanes: lines(out.LaneLines), Edges: lines(out.RoadEdges), Leads: []lead{},
		Curvature: number(out.CurvatureCommand), Acceleration: number(out.AccelerationCommand), Stop: out.ShouldStop,
		Times: times{Prepare: number(milliseconds(out.Stats.Prepare)), Run: number(milliseconds(out.Stats.Run)), Parse: number(milliseconds(out.Stats.Parse))}}
	if out.Plan != nil {
		p := plan{Speed: number(out.Plan.Velocity[0][0])}
		for _, at := range out.Plan.Position {
			p.X, p.Y, p.Z = append(p.X, number(at[0])), append(p.Y, number(at[1])), append(p.Z, number(at[2]))
		}
		s.Plan = &p
	}
	for _, l := range out.Leads {
		s.Leads = append(s.Leads, lead{number(l.X[0]), number(l.Y[0]), number(l.V[0]), number(l.Probability)})
	}
	if out.DesiredCurvature != nil {
		s.Desired = &value{number(out.DesiredCurvature.Value), number(out.DesiredCurvature.Std)}
	}
	if out.Meta != nil {
		s.Confidence = confidences[out.Confidence]
	}
	return s
}

func lines(list []modeld.Line) []line {
	out := []line{}
	for _, l := range list {
		out = append(out, line{numbers(l.Y[:]), numbers(l.Z[:]), number(l.Probability)})
	}
	return out
}

// difference is how far two packages differ in a frame.
type difference struct {
	Path      number `json:"path"`  // largest distance of points of the same time, m
	Lanes     number `json:"lanes"` // largest distance of a lane line's points, m
	Curvature number `json:"curvature"`
	RelL2     number `json:"relL2"` // of all numbers of the models' outputs
}

// between compares what two packages say. It is nil where not both have run.
func between(a, b *modeld.Outputs) (*difference, error) {
	if !a.Ran || !b.Ran {
		return nil, nil
	}
	d := &difference{Path: number(math.NaN()), Lanes: number(math.NaN()), Curvature: number(math.Abs(a.CurvatureCommand - b.CurvatureCommand)), RelL2: number(math.NaN())}
	if a.Plan != nil && b.Plan != nil {
		d.Path = 0
		for k, p := range a.Plan.Position {
			q := b.Plan.Position[k]
			d.Path = max(d.Path, number(math.Hypot(math.Hypot(p[0]-q[0], p[1]-q[1]), p[2]-q[2])))
		}
	}
	for i := range min(len(a.LaneLines), len(b.LaneLines)) {
		for k := range modeld.Points {
			distance := number(math.Hypot(a.LaneLines[i].Y[k]-b.LaneLines[i].Y[k], a.LaneLines[i].Z[k]-b.LaneLines[i].Z[k]))
			if i+k == 0 {
				d.Lanes = distance
			}
			d.Lanes = max(d.Lanes, distance)
		}
	}
	var ours, theirs []float64
	for name, x := range a.Raw {
		if y := b.Raw[name]; len(y) == len(x) {
			ours, theirs = append(ours, x...), append(theirs, y...)
		}
	}
	if len(ours) > 0 {
		m, err := runtime.Compare(theirs, ours, 0, 0)
		if err != nil {
			return nil, err
		}
		d.RelL2 = number(m.RelL2)
	}
	return d, nil
}

func flat(m [3][3]float64) (out [9]float64) {
	for i := range out {
		out[i] = m[i/3][i%3]
	}
	return out
}
