package run

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kong"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/cli"
	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/openpilot/generation"
	"github.com/spark-compile/spark-compile/internal/report"
	"github.com/spark-compile/spark-compile/internal/viewer"
	"github.com/spark-compile/spark-compile/runtime"
	"github.com/spark-compile/spark-compile/runtime/modeld"
	"github.com/spark-compile/spark-compile/runtime/modeld/replay"
)

// replayFlags are those of --replay.
type replayFlags struct {
	Replay string    `help:"Run openpilot's loop over a directory of frames: NNNNNN.npz, or NNNNNN_road.png and NNNNNN_wide.png. Takes one package, or two to compare." placeholder:"DIR"`
	View   address   `help:"Show what --replay does in a browser, at 20 frames a second: at 127.0.0.1:8080, or at another address after --view." placeholder:"HOST:PORT"`
	RPY    []float64 `name:"rpy" help:"Roll, pitch and yaw of the device in --replay, in radians; 0,0,0 by default." placeholder:"R,P,Y"`
	VEgo   float64   `name:"v-ego" help:"Speed of the car in --replay, in m/s." default:"20" placeholder:"V"`
}

// address is the value of a flag that may stand alone: --view or --view=HOST:PORT.
type address string

// viewAddress is that of --view alone.
const viewAddress = "127.0.0.1:8080"

// IsBool says that the flag needs no value.
func (*address) IsBool() bool { return true }

// Decode reads what follows "=", if anything does.
func (a *address) Decode(ctx *kong.DecodeContext) error {
	*a = viewAddress
	if ctx.Scan.Peek().Type == kong.FlagValueToken {
		if text, ok := ctx.Scan.Pop().Value.(string); ok {
			*a = address(text)
		}
	}
	return nil
}

// addressed joins --view and an address that follows it, which a package's directory could follow as well.
func addressed(args []string) (joined []string) {
	for i := 0; i < len(args); i++ {
		if args[i] == "--view" && i+1 < len(args) && looksLikeAddress.MatchString(args[i+1]) {
			joined = append(joined, args[i]+"="+args[i+1])
			i++
			continue
		}
		joined = append(joined, args[i])
	}
	return joined
}

var looksLikeAddress = regexp.MustCompile(`^[^/]*:\d+$`)

// checkReplay reports flags that do not go with --replay, or need it.
func (f *flags) checkReplay() error {
	if f.Replay == "" {
		for flag, given := range map[string]bool{"--view": f.View != "", "--rpy": f.RPY != nil} {
			if given {
				return fmt.Errorf("%s needs frames: give a directory of them with --replay DIR", flag)
			}
		}
		if f.Other != "" {
			return fmt.Errorf("%s and %s: only --replay DIR takes two packages", f.Model, f.Other)
		}
		return nil
	}
	for flag, given := range map[string]bool{"--input": len(f.Input) > 0, "--random": f.Random != nil, "--expect": f.Expect != "", "--suite": len(f.Suite) > 0, "--ptx": f.PTX != "",
		"--profile": f.Profile, "--trace": len(f.Trace) > 0, "--runs": f.Runs != 1, "--precision": f.Precision != ""} {
		if given {
			return fmt.Errorf("--replay and %s cannot be combined", flag)
		}
	}
	switch {
	case f.Model == "":
		return errors.New("no package: give the directory of a compiled one, or two")
	case f.Other != "" && (f.OutputDir != "" || f.JSON != ""):
		return errors.New("--output-dir and --json write what one package does, and two are given")
	case f.RPY != nil && len(f.RPY) != 3:
		return fmt.Errorf("--rpy has %s: want roll, pitch and yaw", console.Count(len(f.RPY), "number"))
	}
	return nil
}

// replayed is a package whose loop runs over the frames.
type replayed struct {
	name    string
	program *runtime.Program
	driving *modeld.Driving    // or
	monitor *modeld.Monitoring // that
	stages  [4][]float64       // prepare, run, parse and all of it, in ms
	missed  int
}

var stageNames = [4]string{"prepare", "run", "parse", "step"}

// add notes a step.
func (r *replayed) add(s modeld.Stats) {
	all := []time.Duration{s.Prepare, s.Run, s.Parse, s.Prepare + s.Run + s.Parse}
	for i, d := range all {
		r.stages[i] = append(r.stages[i], report.Milliseconds(d))
	}
}

func (r *replayed) close() error {
	if r.driving != nil {
		return r.driving.Close()
	}
	if r.monitor != nil {
		return r.monitor.Close()
	}
	return nil
}

// load opens the loop.
func (r *replayed) load(ctx context.Context, d hal.Device, target string) (err error) {
	opt := modeld.Options{Target: target}
	if l := r.program.Loop; l != nil && l.Kind == generation.Monitoring {
		r.monitor, err = modeld.NewMonitoring(ctx, r.program, d, opt)
		return err
	}
	r.driving, err = modeld.NewDriving(ctx, r.program, d, opt)
	return err
}

// replay runs the packages over the frames of a directory.
func (f *flags) replay(ctx context.Context, stdout, stderr io.Writer) (err error) {
	frames, err := replay.Open(f.Replay)
	if err != nil {
		return err
	}
	var loops []*replayed
	for _, dir := range []string{f.Model, f.Other} {
		if dir == "" {
			continue
		}
		p, err := cli.Package(dir)
		switch {
		case err != nil:
			return err
		case p == nil:
			return fmt.Errorf("%s: --replay runs compiled packages: compile a vision model and its policy, or one model with --modeld, and give the directory", dir)
		}
		loops = append(loops, &replayed{name: filepath.Base(filepath.Clean(dir)), program: p})
	}
	d, _, notices, err := f.open(ctx, func(d hal.Device) error {
		for i, r := range loops {
			if err := r.load(ctx, d, f.Target); err != nil {
				for _, earlier := range loops[:i] {
					err = errors.Join(err, earlier.close())
				}
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	defer d.Close()
	for _, r := range loops {
		defer func() { err = errors.Join(err, r.close()) }()
	}
	for _, n := range notices {
		fmt.Fprintln(stderr, "spark-run:", n)
	}
	if f.OutputDir != "" {
		if err := os.MkdirAll(f.OutputDir, 0o755); err != nil {
			return err
		}
	}
	device := fmt.Sprintf("%s (%s)", d.Info().Name, d.Info().Backend)
	if loops[0].monitor != nil {
		if f.View != "" || len(loops) > 1 {
			return fmt.Errorf("%s: a driver-monitoring model: --view, and two packages, are for driving models", f.Model)
		}
		err = f.monitor(ctx, frames, loops[0])
	} else if err = f.sameKind(loops); err == nil {
		err = f.drive(ctx, stdout, frames, loops, device)
	}
	if err != nil && (f.View == "" || !errors.Is(err, context.Canceled)) { // an interrupt is how a view ends
		return err
	}
	if err := f.statistics(stdout, frames, loops, device); err != nil || f.JSON == "" {
		return err
	}
	return loops[0].report(d.Info()).Write(f.JSON)
}

// report is what --json says of a package.
func (r *replayed) report(device hal.Info) *report.Report {
	s := r.session()
	out := report.Of(r.program, s.Model().Variant)
	out.RanOn(device)
	out.Runs, out.Missed = len(r.stages[0]), r.missed
	if out.Runs > 0 {
		steps := report.Summarise(r.stages[len(stageNames)-1])
		out.Summary, out.Stages = &steps, map[string]report.Summary{}
		for i, name := range stageNames[:len(stageNames)-1] {
			out.Stages[name] = report.Summarise(r.stages[i])
		}
	}
	return out
}

func (r *replayed) session() *runtime.Session {
	if r.driving != nil {
		return r.driving.Session()
	}
	return r.monitor.Session()
}

// sameKind refuses to compare a driver-monitoring package with a driving one.
func (f *flags) sameKind(loops []*replayed) error {
	for _, r := range loops {
		if r.driving == nil {
			return fmt.Errorf("%s: a driver-monitoring model beside a driving one: give two driving packages", f.Other)
		}
	}
	return nil
}

// rpy is --rpy.
func (f *flags) rpy() (rpy [3]float64) {
	copy(rpy[:], f.RPY)
	return rpy
}

// drive runs driving packages over the frames, once or, with --view, until the context ends.
func (f *flags) drive(ctx context.Context, stdout io.Writer, frames *replay.Directory, loops []*replayed, device string) error {
	var v *viewer.Viewer
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if f.View != "" {
		var list []viewer.Package
		for _, r := range loops {
			list = append(list, viewer.Package{Name: r.name, Precision: r.program.Precision, Device: device})
		}
		var err error
		if v, err = viewer.New(list, frames.Len()); err != nil {
			return err
		}
		l, err := viewer.Listen(ctx, string(f.View))
		if err != nil {
			return fmt.Errorf("--view: %w", err)
		}
		fmt.Fprintf(stdout, "http://%s/ shows the drive; Ctrl-C ends it\n", l.Addr())
		served := make(chan struct{})
		go func() {
			defer close(served)
			if err := v.Serve(ctx, l); err != nil {
				stop(fmt.Errorf("--view: %w", err))
			}
		}()
		defer func() {
			stop(nil)
			<-served
		}()
	}
	for {
		again, err := f.once(ctx, frames, loops, v)
		if err == nil && v != nil && !again {
			_, _, err = v.Next(ctx, true)
		}
		switch {
		case err != nil:
			return cmp.Or(context.Cause(ctx), err)
		case v == nil:
			return nil
		}
		for _, r := range loops {
			if err := r.driving.Reset(); err != nil {
				return err
			}
		}
	}
}

// once runs driving packages over the frames once. again says that a browser wants the drive from the start.
func (f *flags) once(ctx context.Context, frames *replay.Directory, loops []*replayed, v *viewer.Viewer) (again bool, err error) {
	pacer, i := &modeld.Pacer{}, 0
	for frame, err := range frames.Frames() {
		if err != nil {
			return false, err
		}
		if v != nil {
			again, waited, err := v.Next(ctx, false)
			if err != nil || again {
				return again, err
			}
			if waited {
				pacer = &modeld.Pacer{}
			}
			if err := pacer.Wait(ctx); err != nil {
				return false, err
			}
		}
		cameras, _ := replay.Cameras(frame.Road.Width, frame.Road.Height)
		in := modeld.Inputs{VEgo: f.VEgo, Calibration: &modeld.Calibration{RPY: f.rpy(), Road: cameras.Road, WideCamera: cameras.Wide}}
		shown := viewer.Shown{Index: i, Frame: frame, Calibration: *in.Calibration}
		for _, r := range loops {
			out, err := r.driving.Step(ctx, frame, in)
			if err != nil {
				return false, fmt.Errorf("%s: frame %d: %w", r.name, frame.ID, err)
			}
			r.missed += out.Missed
			if out.Ran {
				r.add(out.Stats)
				if err := f.keep(frame.ID, out.Raw); err != nil {
					return false, err
				}
			}
			shown.Outputs = append(shown.Outputs, out)
		}
		if v != nil {
			if err := v.Show(shown); err != nil {
				return false, err
			}
		}
		i++
	}
	return false, nil
}

// monitor runs a driver-monitoring package over the frames.
func (f *flags) monitor(ctx context.Context, frames *replay.Directory, r *replayed) error {
	for frame, err := range frames.DriverFrames() {
		if err != nil {
			return err
		}
		cameras, _ := replay.Cameras(frame.Picture.Width, frame.Picture.Height)
		out, err := r.monitor.Step(ctx, frame, modeld.MonitoringInputs{RPY: f.rpy(), Camera: cameras.Driver})
		if err != nil {
			return fmt.Errorf("%s: frame %d: %w", r.name, frame.ID, err)
		}
		r.add(out.Stats)
		if err := f.keep(frame.ID, out.Raw); err != nil {
			return err
		}
	}
	return nil
}

// keep writes the outputs of a frame to --output-dir.
func (f *flags) keep(frame uint32, raw map[string][]float64) error {
	if f.OutputDir == "" {
		return nil
	}
	arrays := map[string]*npy.Array{}
	for name, x := range raw {
		a := &npy.Array{DType: "f64", Shape: []int{len(x)}}
		for _, v := range x {
			a.Data = binary.LittleEndian.AppendUint64(a.Data, math.Float64bits(v))
		}
		arrays[name] = a
	}
	return npy.WriteZip(filepath.Join(f.OutputDir, fmt.Sprintf("%06d.npz", frame)), arrays)
}

// statistics prints how long the stages took.
func (f *flags) statistics(w io.Writer, frames *replay.Directory, loops []*replayed, device string) error {
	for _, r := range loops {
		fmt.Fprintf(w, "%s, %s %s on %s: %s of %s, %d missed\n", r.name, r.program.Model, r.program.Precision, device, console.Count(len(r.stages[0]), "step"), frames.Path(), r.missed)
		if len(r.stages[0]) == 0 {
			continue
		}
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		columns := report.Columns(len(r.stages[0]))
		fmt.Fprint(t, "stage\t")
		for _, c := range columns {
			fmt.Fprintf(t, "%s\t", strings.TrimSpace(c.Title+" ms"))
		}
		fmt.Fprintln(t)
		for i, name := range stageNames {
			s := report.Summarise(r.stages[i])
			fmt.Fprintf(t, "%s\t", name)
			for _, c := range columns {
				fmt.Fprintf(t, "%.3f\t", c.Of(&s))
			}
			fmt.Fprintln(t)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	return nil
}
