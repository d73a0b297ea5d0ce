package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spark-compile/spark-compile/bench"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/config"
	"github.com/spark-compile/spark-compile/hal/detect"
	"github.com/spark-compile/spark-compile/hal/machine"
	"github.com/spark-compile/spark-compile/hal/nvml"
	"github.com/spark-compile/spark-compile/internal/cli"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/report"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/toolchain"
	"github.com/spark-compile/spark-compile/runtime"
)

// session is one run of the command.
type session struct {
	flags
	out, err io.Writer

	device hal.Device
	target string // to compile ONNX files for

	assembler *toolchain.Ptxas // for --predict; nil without ptxas
	machine   *cost.File       // of --machine-file; nil: the target's figures
	options   bench.Options
	report    *bench.Report
	python    string // interpreter with ONNX Runtime; "" if there is none
	programs  []*runtime.Program
}

func (s *session) run(ctx context.Context) error {
	if s.Machine {
		if len(s.Ablate) > 0 {
			return errors.New("--ablate measures models: leave out --machine")
		}
		return s.measureMachine(ctx)
	}
	switch {
	case s.Output != "":
		return errors.New("-o is for --machine: use --json for a report")
	case len(s.Models) == 0:
		return errors.New("no model: give DIR or MODEL.onnx, or --machine")
	case s.Runs < 1 || s.Warmup < 0:
		return fmt.Errorf("--runs %d --warmup %d: want at least 1 and 0", s.Runs, s.Warmup)
	case s.Predict && len(s.Ablate)+len(s.given()) > 0:
		return errors.New("--predict measures nothing: leave out --ablate and what turns mechanisms on or off")
	case s.MaxSlowdown != nil && (s.Baseline == "" || *s.MaxSlowdown < 1):
		return errors.New("--max-slowdown: want a ratio of at least 1, and a --baseline")
	}
	for i, name := range s.Ablate {
		if err := new(hal.Switches).Set(name, false); err != nil {
			return fmt.Errorf("--ablate %w", err)
		}
		if slices.Contains(s.Ablate[:i], name) {
			return fmt.Errorf("--ablate %s: named twice", name)
		}
	}
	for _, path := range []string{s.JSON, s.HTML, s.Timeline} {
		if path == "" {
			continue
		}
		if err := report.CheckPath(path); err != nil {
			return err
		}
	}
	precisions, err := s.precisions()
	if err != nil {
		return err
	}
	if s.MachineFile != "" {
		if s.machine, err = cost.ReadFile(s.MachineFile); err != nil {
			return err
		}
	}
	if s.Predict {
		return s.predict(ctx, precisions)
	}
	var base *bench.Report
	if s.Baseline != "" {
		if base, err = bench.Read(s.Baseline); err != nil {
			return err
		}
	}
	if err := s.open(ctx); err != nil {
		return err
	}
	defer s.device.Close()
	done := s.prepare(ctx)
	defer done()
	if err := s.openWithout(ctx); err != nil {
		return err
	}
	defer s.closeWithout()
	for _, path := range s.Models {
		if err := s.model(ctx, path, precisions); err != nil {
			return err
		}
	}
	if s.Concurrent {
		if s.report.Concurrent, err = bench.Together(ctx, s.programs, s.device, s.options); err != nil {
			return fmt.Errorf("all models at the same time: %w", err)
		}
	}
	if base != nil {
		for _, name := range s.report.Compare(base) {
			s.note(fmt.Sprintf("%s has no %s on %s", s.Baseline, name, s.report.Device))
		}
	}
	return s.finish()
}

// open opens the device that --device names.
func (s *session) open(ctx context.Context) error {
	d, notice, err := detect.Open(ctx, detect.Options{Name: s.Device, Called: "--device", Switches: s.given()})
	if err != nil {
		return err
	}
	s.device = d
	s.note(notice)
	return nil
}

// openWithout opens the device once more for each mechanism of --ablate. They stay open together, so that times can be taken in turns.
func (s *session) openWithout(ctx context.Context) error {
	for _, name := range s.Ablate {
		off := s.given()
		off[name] = false
		d, _, err := detect.Open(ctx, detect.Options{Name: s.Device, Called: "--device", Switches: off})
		if err != nil {
			return errors.Join(fmt.Errorf("--ablate %s: %w", name, err), s.closeWithout())
		}
		s.options.Ablate = append(s.options.Ablate, bench.Without{Mechanism: name, Device: d})
		if was, is := s.device.Info().Name, d.Info().Name; was != is {
			return errors.Join(fmt.Errorf("--ablate %s: the device is %s now, and was %s: name one by --device", name, is, was), s.closeWithout())
		}
	}
	return nil
}

func (s *session) closeWithout() (err error) {
	for _, x := range s.options.Ablate {
		err = errors.Join(err, x.Device.Close())
	}
	s.options.Ablate = nil
	return err
}

func (s *session) note(text string) {
	if text != "" && !s.Quiet {
		fmt.Fprintln(s.err, "spark-bench:", text)
	}
}

// precisions resolves --precision; without it, the environment's precision or the default.
func (s *session) precisions() ([]string, error) {
	given := s.Precision
	if len(given) == 0 {
		given = []string{""}
	}
	var out []string
	for _, p := range given {
		name, err := cli.Precision(p, s.err)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out, nil
}

// prepare describes machine and device in the report, and finds the sources of clocks and the peer.
func (s *session) prepare(ctx context.Context) (done func()) {
	info := s.device.Info()
	s.report = &bench.Report{Version: bench.Version, Device: fmt.Sprintf("%s (%s)", info.Name, info.Backend), Runs: s.Runs, Warmup: s.Warmup,
		SwitchesOff: info.Switches.Off(), Definitions: bench.Definitions(s.device)}
	s.options = bench.Options{Runs: s.Runs, Warmup: s.Warmup, Target: s.Target, Layers: s.Layers || s.HTML != "", Timeline: s.Timeline != ""}
	m := machine.Current()
	s.report.Machine, s.report.Driver = m.Name()+" ("+m.Platform+")", m.Driver
	done = func() {}
	if info.Backend == config.CUDA {
		if i := slices.IndexFunc(m.GPUs, func(g machine.GPU) bool { return g.Ordinal >= 0 && g.Name == info.Name }); i >= 0 {
			s.options.Bus, s.options.L2Bytes = m.GPUs[i].Bus, m.GPUs[i].L2Bytes
		}
		if source, err := nvml.Open(nvml.Options{}); err == nil {
			s.options.Source = source
			done = func() { source.Close() }
		} else {
			s.note(fmt.Sprintf("not recording clocks and power: %v", err))
		}
	}
	if s.target = s.Target; s.target == "" {
		if t, err := target.For(info.Target); err != nil {
			s.note(err.Error())
		} else {
			s.target = t.Name
		}
	}
	if t, err := target.Lookup(s.target); err == nil && (s.options.Layers || s.options.Timeline) {
		if s.options.Predict, err = s.machine.On(t); err != nil {
			s.note(err.Error())
		}
	}
	if s.Peer {
		var err error
		if s.python, err = toolchain.FindPython(); err == nil {
			_, err = toolchain.PythonPackageVersion(ctx, s.python, "onnxruntime")
		}
		if err != nil {
			s.note(fmt.Sprintf("no comparison with ONNX Runtime: %v", err))
			s.python = ""
		}
	}
	return done
}

// model measures one argument: a package as compiled, or an ONNX file in every precision.
func (s *session) model(ctx context.Context, path string, precisions []string) error {
	p, err := cli.Package(path)
	if err != nil {
		return err
	}
	if p != nil {
		if len(s.Precision) > 0 || len(s.Shape) > 0 {
			s.note(path + " is already compiled: --precision and --shape apply to ONNX files only")
		}
		_, _, err = s.measure(ctx, p, 0)
		return err
	}
	var reference map[string][]float64
	if s.Reference {
		if reference, err = s.fp32(ctx, path); err != nil {
			return err
		}
	}
	var peer *bench.Peer // ONNX Runtime, measured once per model
	var theirs map[string][]float64
	begin := len(s.report.Results)
	outputs := map[string]map[string][]float64{}
	for _, precision := range precisions {
		p, took, err := s.compile(ctx, path, compile.Options{Precision: precision})
		if err != nil {
			return err
		}
		r, out, err := s.measure(ctx, p, took)
		if err != nil {
			return err
		}
		outputs[precision] = out
		if peer == nil && s.python != "" {
			if peer, theirs, err = bench.ONNXRuntime(ctx, s.python, path, p, s.options); ctx.Err() != nil { // it was killed
				return ctx.Err()
			}
			if err != nil {
				s.note(fmt.Sprintf("%s: %v", path, err))
				s.python = "" // report it once
			}
		}
		if peer != nil {
			other := *peer
			other.Ratio = peer.P50 / r.P50
			if other.Outputs, err = bench.Accuracy(p, out, theirs); err != nil {
				return err
			}
			r.ONNXRuntime = &other
		}
	}
	if reference == nil {
		return nil
	}
	for i := range s.report.Results[begin:] {
		r := &s.report.Results[begin+i]
		if r.Outputs, err = bench.Accuracy(s.programs[begin+i], outputs[r.Precision], reference); err != nil {
			return err
		}
	}
	return nil
}

// measure measures a program and adds it to the report.
func (s *session) measure(ctx context.Context, p *runtime.Program, compiled time.Duration) (*bench.Result, map[string][]float64, error) {
	s.note(fmt.Sprintf("%s %s: %s", p.Model, p.Precision, console.Count(s.Runs, "run")))
	r, out, err := bench.Measure(ctx, p, s.device, s.options)
	if err != nil {
		return nil, nil, fmt.Errorf("%s %s: %w", p.Model, p.Precision, detect.Explain(err))
	}
	if compiled > 0 {
		ms := report.Milliseconds(compiled)
		r.CompileMS = &ms
	}
	s.report.Results = append(s.report.Results, *r)
	s.programs = append(s.programs, p)
	return &s.report.Results[len(s.report.Results)-1], out, nil
}

// fp32 computes the model's outputs in fp32, and does not round them to what the file stores.
func (s *session) fp32(ctx context.Context, path string) (map[string][]float64, error) {
	p, _, err := s.compile(ctx, path, compile.Options{Precision: "fp32", F32Outputs: true})
	if err != nil {
		return nil, err
	}
	run, err := bench.Open(ctx, p, s.device, s.Target)
	if err != nil {
		return nil, err
	}
	defer run.Close()
	if err := run.Run(ctx); err != nil {
		return nil, err
	}
	return run.Float64s()
}

// compile compiles an ONNX file for the session's target and shapes.
func (s *session) compile(ctx context.Context, path string, opt compile.Options) (*runtime.Program, time.Duration, error) {
	m, err := onnx.Load(path)
	if err != nil {
		return nil, 0, err
	}
	opt.Targets, opt.Import = []string{s.target}, onnx.ImportOptions{Shapes: s.Shape, MaxOutput: s.MaxOutput}
	r, err := compile.Compile(ctx, m, opt)
	if err != nil {
		return nil, 0, err
	}
	r.Program.Provenance = r.Provenance()
	return r.Program, r.Compile, nil
}

// finish writes the reports. It returns errSlower if a model is slower than --max-slowdown allows.
func (s *session) finish() error {
	if err := s.report.Print(s.out); err != nil {
		return err
	}
	if s.JSON != "" {
		if err := s.report.Write(s.JSON); err != nil {
			return err
		}
	}
	if s.Timeline != "" {
		if err := s.report.WriteTrace(s.Timeline); err != nil {
			return err
		}
	}
	if s.HTML != "" {
		if err := s.report.WriteHTML(s.HTML); err != nil {
			return err
		}
	}
	if s.MaxSlowdown == nil {
		return nil
	}
	var slow []string
	for _, r := range s.report.Results {
		if d := r.Baseline; d != nil && d.Verdict == "slower" && d.Ratio > *s.MaxSlowdown {
			slow = append(slow, fmt.Sprintf("%s %s × %.3f", r.Model, r.Precision, d.Ratio))
		}
	}
	if len(slow) > 0 {
		return fmt.Errorf("%w: %s", errSlower, strings.Join(slow, ", "))
	}
	return nil
}
