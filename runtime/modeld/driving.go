package modeld

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/openpilot/generation"
	"github.com/spark-compile/spark-compile/runtime"
)

// ErrRunning says that a step was asked for while another one runs.
var ErrRunning = errors.New("a step is running in another goroutine: one loop is for one goroutine, open a second one")

var errClosed = errors.New("the loop is closed")

// Options of a loop.
type Options struct {
	Target string // variant of the program; "": the device's own
	// CopyFrames copies pictures to the device even where it could read them in the caller's memory.
	CopyFrames bool
}

// Driving is the loop around a program of driving models. It is for one goroutine at a time.
type Driving struct {
	loop
	desire   edges
	drops    drops
	commands commands
	metas    metas
}

// NewDriving loads a program, which spark-compile made of driving models, onto a device. An error lists what the program lacks. The device must
// outlive the loop.
func NewDriving(ctx context.Context, p *runtime.Program, d hal.Device, opt Options) (*Driving, error) {
	if _, err := loopOf(p, generation.Driving); err != nil {
		return nil, err
	}
	s, err := runtime.Open(ctx, p, d, runtime.ModelOptions{Target: opt.Target})
	if err != nil {
		return nil, err
	}
	m, err := Drive(s)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	m.owned, m.copies = true, opt.CopyFrames
	return m, nil
}

// Drive is the loop around an open session of a program of driving models, such as the session of a generated package's Model. Who opened the
// session closes it.
func Drive(s *runtime.Session) (*Driving, error) {
	p := s.Model().Program
	row, err := loopOf(p, generation.Driving)
	if err != nil {
		return nil, err
	}
	m := &Driving{loop: loop{session: s, program: p, row: row}}
	m.commands.rule = rule(row.Commands)
	known := map[string]int{desireInput: desires}
	for _, v := range row.Vectors() {
		known[v.Name] = len(v.Terms)
	}
	if err := m.begin(known); err != nil {
		return nil, err
	}
	return m, s.Prepare(context.Background(), "run") // or the first steps would make the graphs
}

const desireInput = "desire"

// loopOf is the generation of a program that is a step of a kind.
func loopOf(p *runtime.Program, kind string) (*generation.Row, error) {
	if p.Loop == nil {
		var names []string
		for _, in := range p.Inputs {
			names = append(names, in.Name)
		}
		return nil, fmt.Errorf("%s: it is a model alone, with inputs %s, and no step of modeld, with frame, transforms and camera: compile it with --modeld, or a vision model together with its policy", p.Model, strings.Join(names, ", "))
	}
	if p.Loop.Kind != kind {
		return nil, fmt.Errorf("%s: it is a step of %s, not of %s", p.Model, p.Loop.Kind, kind)
	}
	row := generation.Named(p.Loop.Rule)
	if row == nil || row.Kind != kind {
		return nil, fmt.Errorf("%s: its models are of the generation %q, which is not known: use the spark-compile that made it", p.Model, p.Loop.Rule)
	}
	return row, nil
}

// Step runs the models on a frame. Outputs are the caller's to keep. Where frames were missed, a program of a release that skips the models then
// only moves pictures on: Outputs.Ran is false. Where the device sees the host's memory it reads pictures where they lie (Stats.InPlace): they stay
// as they are until Step returns, and after hal.ErrBusy until a later step has run. An error leaves histories as they were, or as the step makes them where the device failed.
func (m *Driving) Step(ctx context.Context, f Frame, in Inputs) (*Outputs, error) {
	if err := m.enter(); err != nil {
		return nil, err
	}
	defer m.leave()
	begin := time.Now()
	if in.Desire < 0 || in.Desire >= desires {
		return nil, fmt.Errorf("desire %d: want 0 to %d", in.Desire, desires-1)
	}
	if err := in.finite(); err != nil {
		return nil, err
	}
	l := m.program.Loop
	var road, wide [9]float32 // zeros until the calibration is known, as openpilot's
	if in.Calibration != nil {
		var err error
		if road, wide, err = in.Calibration.Warps(l.Width); err != nil {
			return nil, err
		}
	}
	inPlace, err := m.see(ctx, append(road[:], wide[:]...), []string{"road", "wide"}, []Picture{f.Road, f.Wide})
	if err != nil {
		return nil, err
	}
	car := generation.Car{RightHandDrive: in.RightHandDrive, Speed: in.VEgo, LateralDelay: in.LateralDelay, LongitudinalDelay: in.LongitudinalDelay}
	for _, v := range m.row.Vectors() {
		if err := m.set(v.Name, v.Values(car)...); err != nil {
			return nil, err
		}
	}
	// From here on nothing that was given is refused, so that no pulse or missed frame is counted twice.
	drops, desire := m.drops, m.desire
	missed, ratio := m.drops.next(f.ID)
	pulse := m.desire.pulse(in.Desire)
	if err := m.set(desireInput, pulse[:]...); err != nil {
		return nil, err
	}
	entry := "run"
	if missed > 0 && l.Missed != generation.MissedRuns {
		entry = runtime.SkipEntry
	}
	stats := Stats{Prepare: time.Since(begin), InPlace: inPlace}
	begin = time.Now()
	if err := m.session.RunEntry(ctx, entry); err != nil {
		if ctx.Err() != nil && !errors.Is(err, hal.ErrBusy) { // nothing has run
			m.drops, m.desire = drops, desire
		}
		return nil, err
	}
	stats.Run = time.Since(begin)
	begin = time.Now()
	out := &Outputs{}
	if entry != runtime.SkipEntry {
		raw, named, err := m.outputs()
		if err != nil {
			return nil, err
		}
		if out, err = parseOutputs(raw, m.row); err != nil {
			return nil, fmt.Errorf("%s: %w", m.program.Model, err)
		}
		out.Ran, out.Raw = true, named
		m.commands.next(out, in)
		if out.Meta != nil {
			out.HardBrakePredicted, out.Confidence = m.metas.next(f.ID, out.Meta)
		}
		stats.Parse = time.Since(begin)
	}
	out.FrameID, out.Captured, out.Valid = f.ID, f.Captured, in.Calibration != nil
	out.Missed, out.DropRatio, out.Stats = missed, ratio, stats
	return out, nil
}

// Reset forgets everything that was seen: the next step is the first of a drive.
func (m *Driving) Reset() error {
	if err := m.enter(); err != nil {
		return err
	}
	defer m.leave()
	for _, st := range m.program.States {
		old, err := m.session.State(st.Input)
		if err != nil {
			return err
		}
		if err := m.session.SetState(st.Input, make([]byte, len(old))); err != nil {
			return err
		}
	}
	m.desire, m.drops, m.metas, m.commands = edges{}, drops{}, metas{}, commands{rule: m.commands.rule}
	return nil
}

// loop is what loops around programs of both kinds do.
type loop struct {
	session *runtime.Session
	program *runtime.Program
	row     *generation.Row
	owned   bool
	copies  bool // pictures, always
	busy    atomic.Bool
	closed  bool
}

// begin checks that a step can fill all inputs.
func (m *loop) begin(known map[string]int) error {
	p := m.program
	for _, in := range p.Inputs {
		n, ours := known[in.Name]
		switch {
		case ours:
			for _, d := range in.Shape {
				n /= d
			}
			if n != 1 || !slices.Contains([]string{"f32", "f16"}, in.DType) {
				return fmt.Errorf("%s: input %q is %v: want %d numbers of f32 or f16", p.Model, in.Name, in, known[in.Name])
			}
		case slices.Contains(p.Loop.Frames, in.Name) || in.Name == runtime.TransformsInput || in.Name == runtime.CameraInput:
		case slices.ContainsFunc(p.States, func(s runtime.State) bool { return s.Input == in.Name }):
		default:
			return fmt.Errorf("%s: input %q, %v, is none that openpilot's modeld has: compile the model without --modeld and feed it yourself", p.Model, in.Name, in)
		}
	}
	return nil
}

func (m *loop) enter() error {
	if !m.busy.CompareAndSwap(false, true) {
		return ErrRunning
	}
	if m.closed {
		m.busy.Store(false)
		return errClosed
	}
	return nil
}

func (m *loop) leave() { m.busy.Store(false) }

// Session is the session that the loop runs.
func (m *loop) Session() *runtime.Session { return m.session }

// Program is what the loop runs.
func (m *loop) Program() *runtime.Program { return m.program }

// Close closes the session if the loop opened it. No step can follow.
func (m *loop) Close() error {
	if !m.busy.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer m.leave()
	if m.closed {
		return nil
	}
	if !m.owned {
		for _, name := range m.program.Loop.Frames { // bound memory is the caller's again
			if _, err := m.session.BindHostMemory(name, nil); errors.Is(err, hal.ErrBusy) {
				return err
			}
		}
		m.closed = true
		return nil
	}
	if err := m.session.Close(); err != nil {
		return err
	}
	m.closed = true
	return nil
}
