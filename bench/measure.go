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
	Layers bool   // also time each launch by itself

	Timeline bool // also run with stamps in the kernels

	Predict *target.Target // also predict the run and its launches on this device; nil: not

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
	done := watch(opt.Source, opt.Bus, 100*time.Millisecond)
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
	r.State = done()
	if err != nil {
		return nil, nil, err
	}
	r.Summary = report.Summarise(r.Samples)
	if err := r.replays(ctx, s, d, opt); err != nil {
		return nil, nil, err
	}
	if opt.Layers {
		if r.Layers, err = layers(ctx, p, s.Model().Variant, d); err != nil {
			return nil, nil, err
		}
	}
	if opt.Timeline {
		if r.Timeline, err = timeline(ctx, p, s.Model().Variant, d); err != nil {
			return nil, nil, fmt.Errorf("timeline: %w", err)
		}
	}
	if opt.Predict != nil {
		if err := r.predict(ctx, p, s.Model().Variant, opt.Predict); err != nil {
			return nil, nil, err
		}
	}
	return r, outputs, nil
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

// replays times the graph alone: warm, and on a GPU also with its L2 cache flushed before each run.
func (r *Result) replays(ctx context.Context, s *runtime.Session, d hal.Device, opt Options) error {
	replay := func() (float64, error) {
		took, err := s.Replay(ctx, hal.Timing{})
		return report.Milliseconds(took), err
	}
	samples, err := sample(opt.Runs, replay)
	if err != nil {
		return err
	}
	warm := report.Summarise(samples)
	r.Replay = &warm
	if opt.L2Bytes == 0 {
		return nil
	}
	flush, free, err := machine.Reader(ctx, d, 2*opt.L2Bytes)
	if err != nil {
		return fmt.Errorf("flushing the L2 cache: %w", err)
	}
	defer free()
	samples, err = sample(opt.Runs, func() (float64, error) {
		if err := flush.Run(ctx); err != nil {
			return 0, err
		}
		return replay()
	})
	if err != nil {
		return err
	}
	cold := report.Summarise(samples)
	r.Cold = &cold
	return nil
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
