package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spark-compile/spark-compile/bench/machine"
	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/nvml"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/report"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// Options configure a measurement.
type Options struct {
	Runs   int // at least 1
	Warmup int
	Target string // variant to run on a device that accepts any
	Layers bool   // also time each launch

	LayerTime time.Duration // that timing launches may take on a device with a clock, about; 0: 2.5 s

	Timeline bool // also run with stamps in the kernels

	Ablate []Without // also compare with devices that lack a mechanism

	Predict *target.Target // also predict the run and its launches, if the device measured is this one and no CPU; nil: not

	Source  nvml.Source // of clocks and power; nil for none
	Bus     string      // the GPU's PCI address in Source
	L2Bytes int         // size of the GPU's L2 cache, to flush it; 0 if unknown or if there is none
}

// Inputs generates deterministic inputs for a program, as bytes by input name.
func Inputs(p *runtime.Program) (map[string][]byte, error) {
	g := &ir.Graph{}
	for _, in := range p.Inputs {
		d, err := ir.ParseDType(in.DType)
		if err != nil {
			return nil, fmt.Errorf("input %q: %w", in.Name, err)
		}
		g.Inputs = append(g.Inputs, &ir.Value{Name: in.Name, Type: ir.T(d, in.Shape...)})
	}
	out := map[string][]byte{}
	for name, a := range compile.Inputs(g) {
		out[name] = a.Tensor().Dense()
	}
	return out, nil
}

// Measure measures a program on a device. It also returns the outputs of the first run by name.
func Measure(ctx context.Context, p *runtime.Program, d hal.Device, opt Options) (*Result, map[string][]float64, error) {
	r := &Result{}
	begin := time.Now()
	s, err := Open(ctx, p, d, opt.Target)
	if err != nil {
		return nil, nil, err
	}
	defer s.Close()
	r.LoadMS = since(begin)
	r.Program = report.Describe(p, s.Model().Variant)

	begin = time.Now()
	if err := s.Run(ctx); err != nil {
		return nil, nil, err
	}
	r.FirstMS = since(begin)
	outputs, err := s.Float64s()
	if err != nil {
		return nil, nil, err
	}
	for range opt.Warmup {
		if err := s.Run(ctx); err != nil {
			return nil, nil, err
		}
	}
	w := &watcher{source: opt.Source, bus: opt.Bus}
	if err := w.during(func() error { return r.waits(ctx, s, opt) }); err != nil {
		return nil, nil, err
	}
	if hasClock(d) {
		if err := r.replays(ctx, s, d, opt, w); err != nil {
			return nil, nil, err
		}
	}
	v := s.Model().Variant
	for _, x := range opt.Ablate {
		a, err := ablate(ctx, p, s, d, x, opt, w)
		if err != nil {
			return nil, nil, fmt.Errorf("without %s: %w", x.Mechanism, err)
		}
		r.Ablations = append(r.Ablations, *a)
	}
	if opt.Layers {
		if r.Layers, err = layers(ctx, p, v, d, opt.LayerTime, w); err != nil {
			return nil, nil, err
		}
	}
	if opt.Timeline {
		if r.Timeline, err = timeline(ctx, p, v, d, w); err != nil {
			return nil, nil, fmt.Errorf("timeline: %w", err)
		}
	}
	r.State = stateOf(w.seen)
	if opt.Predict != nil && hasClock(d) {
		if err := r.predict(ctx, p, v, opt.Predict); err != nil {
			return nil, nil, err
		}
	}
	return r, outputs, nil
}

// waits times what a caller of Run waits.
func (r *Result) waits(ctx context.Context, s *runtime.Session, opt Options) (err error) {
	clocks, _ := opt.Source.(nvml.Clock)
	r.Samples, err = sample(opt.Runs, func() (float64, error) {
		begin := time.Now()
		err := s.Run(ctx)
		took := since(begin)
		if clocks != nil {
			if f := clocks.SM(opt.Bus); f.OK {
				r.ClocksMHz = append(r.ClocksMHz, f.Value)
			}
		}
		return took, err
	})
	if err != nil {
		return err
	}
	r.Summary = report.Summarise(r.Samples)
	return nil
}

// Open loads a program onto a device and sets its inputs to those of Inputs.
func Open(ctx context.Context, p *runtime.Program, d hal.Device, target string) (*runtime.Session, error) {
	in, err := Inputs(p)
	if err != nil {
		return nil, err
	}
	s, err := runtime.Open(ctx, p, d, runtime.ModelOptions{Target: target})
	if err != nil {
		return nil, err
	}
	for name, data := range in {
		if err := s.Set(name, data); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

func since(begin time.Time) float64 { return report.Milliseconds(time.Since(begin)) }

func sample(n int, one func() (float64, error)) ([]float64, error) {
	out := make([]float64, n)
	for i := range out {
		var err error
		if out[i], err = one(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// launchRuns are the launches of which a sample of launch-to-launch times is the mean.
const launchRuns = 10

// graphTimer times the graph of a session by itself.
type graphTimer struct {
	s     *runtime.Session
	flush hal.Graph // reads what else fills the L2 cache; nil: there is none
	free  func() error
}

// timerOf returns the timer of a session on a device. The caller frees it.
func timerOf(ctx context.Context, s *runtime.Session, d hal.Device, opt Options) (*graphTimer, error) {
	t := &graphTimer{s: s, free: func() error { return nil }}
	if opt.L2Bytes > 0 {
		var err error
		if t.flush, t.free, err = machine.Reader(ctx, d, 2*opt.L2Bytes); err != nil {
			return nil, fmt.Errorf("flushing the L2 cache: %w", err)
		}
	}
	return t, nil
}

// launchToLaunch is a sample of the time from a launch to the next, in ms.
func (t *graphTimer) launchToLaunch(ctx context.Context) (float64, error) {
	took, err := t.s.Replay(ctx, hal.Timing{Runs: launchRuns})
	return report.Milliseconds(took) / launchRuns, err
}

// cold is the time of a launch with the cache flushed, in ms.
func (t *graphTimer) cold(ctx context.Context) (float64, error) {
	took, err := t.s.Replay(ctx, hal.Timing{Before: t.flush})
	return report.Milliseconds(took), err
}

// replays times the graph alone: launch to launch, and on a GPU also with its L2 cache flushed.
func (r *Result) replays(ctx context.Context, s *runtime.Session, d hal.Device, opt Options, w *watcher) (err error) {
	t, err := timerOf(ctx, s, d, opt)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.free()) }()
	series := func(one func(context.Context) (float64, error)) (*report.Summary, error) {
		samples, err := sample(opt.Runs, func() (float64, error) { return one(ctx) })
		if err != nil {
			return nil, err
		}
		x := report.Summarise(samples)
		return &x, nil
	}
	return w.during(func() error {
		if r.LaunchToLaunch, err = series(t.launchToLaunch); err != nil {
			return err
		}
		host := r.P50 - r.LaunchToLaunch.P50
		r.HostMS = &host
		if t.flush != nil {
			r.Cold, err = series(t.cold)
		}
		return err
	})
}

// Accuracy compares each output with a reference of the same name, in the program's order.
func Accuracy(p *runtime.Program, got, want map[string][]float64) ([]report.Output, error) {
	var out []report.Output
	for _, q := range p.Outputs {
		ref, ok := want[q.Name]
		if !ok {
			continue
		}
		m, err := runtime.Compare(got[q.Name], ref, 1e-3, 1e-5)
		if err != nil {
			return nil, fmt.Errorf("output %q: %w", q.Name, err)
		}
		// JSON has no infinity.
		m.MaxAbs, m.RelL2 = min(m.MaxAbs, math.MaxFloat64), min(m.RelL2, math.MaxFloat64)
		out = append(out, report.Output{Name: q.Name, Metrics: m})
	}
	return out, nil
}
