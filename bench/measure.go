package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/nvml"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/report"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// Options configure a measurement.
type Options struct {
	Runs   int // at least 1
	Warmup int
	Target string // variant to run on a device that accepts any
	Layers bool   // also time each launch by itself

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
	r.Samples, err = sample(opt.Runs, func() (float64, error) {
		begin := time.Now()
		err := s.Run(ctx)
		return since(begin), err
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
		took, err := s.Replay(ctx)
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
	flush, free, err := flusher(ctx, d, opt.L2Bytes)
	defer free()
	if err != nil {
		return fmt.Errorf("flushing the L2 cache: %w", err)
	}
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

// flusher captures a copy, on the device, of more bytes than the cache holds, which evicts the model's data. free releases
// what was allocated, after an error too.
func flusher(ctx context.Context, d hal.Device, l2 int) (graph hal.Graph, free func(), err error) {
	var held []func() error
	free = func() {
		for _, f := range slices.Backward(held) {
			f()
		}
	}
	var ranges [2]hal.Range
	for i := range ranges {
		m, err := d.Alloc(2*l2, hal.DeviceMemory)
		if err != nil {
			return nil, free, err
		}
		held, ranges[i] = append(held, m.Free), hal.Range{Memory: m, Bytes: 2 * l2}
	}
	graph, err = d.Capture(ctx, []hal.Op{{Src: ranges[0].Memory, Dst: ranges[1].Memory, Bytes: 2 * l2, Reads: ranges[:1], Writes: ranges[1:]}})
	if err == nil {
		held = append(held, graph.Close)
	}
	return graph, free, err
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
