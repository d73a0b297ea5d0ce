package library

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/spark-compile/spark-compile/bench/scenario"
	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/config"
	"github.com/spark-compile/spark-compile/hal/detect"
	"github.com/spark-compile/spark-compile/internal/console"
)

// SimOptions say which closed loops there are.
type SimOptions struct {
	Scenarios []string `json:"scenarios"` // built in, or files
	N         int      `json:"n"`         // loops of each
	Seed      uint64   `json:"seed"`
	Device    string   `json:"device"` // as of Options
}

// SimDescription says what the rows of a simulation's arrays are.
type SimDescription struct {
	Device       string     `json:"device"`
	Notice       string     `json:"notice,omitzero"` // a line each: drives that are left out, and why not a better device
	Scenarios    []string   `json:"scenarios"`
	Metrics      []SimField `json:"metrics"`
	Observations []SimField `json:"observations"`
	Params       []SimField `json:"params"`
	Step         float64    `json:"step"` // s
}

// SimField is a row of an array.
type SimField struct {
	Name string  `json:"name"`
	Unit string  `json:"unit,omitzero"`
	Doc  string  `json:"doc,omitzero"`
	Low  float64 `json:"low,omitzero"`
	High float64 `json:"high,omitzero"`
	Kind string  `json:"kind,omitzero"` // of a metric: failure, gain, cost or neutral
}

// Sim is closed loops by the batch: n of each scenario, grouped by scenario. Concurrent calls are refused with
// ErrBusy.
type Sim struct {
	opt      SimOptions
	families []scenario.Family
	device   hal.Device
	notice   string
	drawn    []scenario.Scenario // of each loop
	env      *scenario.Environment
	mu       sync.Mutex
}

// maxLoops is the most loops of a simulation.
const maxLoops = 1 << 20

// OpenSim draws loops and opens a device for them.
func OpenSim(ctx context.Context, opt SimOptions) (*Sim, error) {
	if opt.Device == "cpu" {
		opt.Device = config.Emu
	}
	s := &Sim{opt: opt}
	var left []error
	var err error
	if s.families, left, err = scenario.Load(ctx, opt.Scenarios...); err != nil {
		return nil, err
	}
	if len(s.families) == 0 {
		return nil, errors.New("there is no scenario: name one that is built in, or a file")
	}
	if opt.N < 1 || opt.N > maxLoops/len(s.families) {
		return nil, fmt.Errorf("n is %d, of %s: want 1 to %d loops in all", opt.N, console.Count(len(s.families), "scenario"), maxLoops)
	}
	for i := range s.families {
		for k := range opt.N {
			x, err := s.families[i].Draw(opt.Seed, k)
			if err != nil {
				return nil, err
			}
			s.drawn = append(s.drawn, x)
		}
	}
	if s.device, s.notice, err = detect.Open(ctx, detect.Options{Name: opt.Device, Called: "device"}); err != nil {
		return nil, err
	}
	var notices []string
	for _, err := range left {
		notices = append(notices, scenario.Left(err))
	}
	if s.notice != "" {
		notices = append(notices, s.notice)
	}
	s.notice = strings.Join(notices, "\n")
	return s, nil
}

// Close ends it. Later calls are refused with ErrClosed.
func (s *Sim) Close() error {
	if !s.mu.TryLock() {
		return ErrBusy
	}
	defer s.mu.Unlock()
	if s.device == nil {
		return ErrClosed
	}
	var err error
	if s.env != nil {
		err = s.env.Close()
	}
	err = errors.Join(err, s.device.Close())
	s.env, s.device = nil, nil
	return err
}

// enter keeps other threads out.
func (s *Sim) enter() error {
	if !s.mu.TryLock() {
		return ErrBusy
	}
	if s.device == nil {
		s.mu.Unlock()
		return ErrClosed
	}
	return nil
}

// Loops is how many there are.
func (s *Sim) Loops() int { return len(s.drawn) }

// Describe says what the arrays hold.
func (s *Sim) Describe() *SimDescription {
	d := &SimDescription{Notice: s.notice, Step: scenario.Step}
	if s.device != nil {
		d.Device = s.device.Info().Name
	}
	for _, f := range s.families {
		d.Scenarios = append(d.Scenarios, f.Name)
	}
	for _, m := range scenario.Metrics {
		kind := "cost"
		switch {
		case m.Failure:
			kind = "failure"
		case m.Neutral:
			kind = "neutral"
		case m.Higher:
			kind = "gain"
		}
		d.Metrics = append(d.Metrics, SimField{Name: m.Name, Unit: m.Unit, Doc: m.Doc, Kind: kind})
	}
	for _, o := range scenario.Observations {
		d.Observations = append(d.Observations, SimField{Name: o.Name, Unit: o.Unit, Doc: o.Doc})
	}
	for _, p := range scenario.Params {
		d.Params = append(d.Params, SimField{Name: p.Name, Unit: p.Unit, Doc: p.Doc, Low: p.Low, High: p.High})
	}
	return d
}

// Params writes the parameters of the loops, [loops, params].
func (s *Sim) Params(out []float64) {
	for i, x := range s.drawn {
		copy(out[i*len(scenario.Params):], x.Values)
	}
}

// Run drives all loops as they were drawn by an algorithm of a name, built in or an ONNX file, and writes their metrics, [loops, metrics].
func (s *Sim) Run(ctx context.Context, algorithm string, metrics []float64) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.mu.Unlock()
	a, err := scenario.Named(algorithm)
	if err != nil {
		return err
	}
	r, err := (&scenario.Runner{Device: s.device}).RunBatch(ctx, s.drawn, a, 1, s.opt.Seed)
	if err != nil {
		return err
	}
	for i, row := range r.Metrics {
		copy(metrics[i*len(row):], row)
	}
	return nil
}

// Reset starts loops: loop i of a scenario is drawn as that scenario's loop numbers[i], or goes on if that is negative.
func (s *Sim) Reset(ctx context.Context, numbers []int64, seed uint64) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if s.env == nil {
		var err error
		if s.env, err = scenario.NewEnvironment(ctx, s.device, s.drawn); err != nil {
			return err
		}
	}
	list := make([]scenario.Scenario, len(s.drawn))
	for i, k := range numbers {
		if k < 0 {
			continue
		}
		var err error
		if list[i], err = s.families[i/s.opt.N].Draw(seed, int(k)); err != nil {
			return err
		}
	}
	if err := s.env.Reset(list, seed); err != nil {
		return err
	}
	for i, x := range list {
		if x.Values != nil {
			s.drawn[i] = x
		}
	}
	return nil
}

// Observe writes what loops see, [observations, loops].
func (s *Sim) Observe(ctx context.Context, out []float32) error {
	return s.stepping(func() error {
		seen, err := s.env.Observe(ctx)
		for i, row := range seen {
			copy(out[i*len(row):], row)
		}
		return err
	})
}

// Step drives all loops by commands, [2, loops], and writes which go on, [loops], and metrics so far, [loops, metrics].
func (s *Sim) Step(ctx context.Context, commands []float32, alive []uint8, metrics []float64) error {
	return s.stepping(func() error {
		n := len(s.drawn)
		goes, rows, err := s.env.Step(ctx, [][]float32{commands[:n], commands[n : 2*n]})
		if err != nil {
			return err
		}
		for i, row := range rows {
			alive[i] = 0
			if goes[i] {
				alive[i] = 1
			}
			copy(metrics[i*len(row):], row)
		}
		return nil
	})
}

func (s *Sim) stepping(run func() error) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if s.env == nil {
		return errors.New("loops have not been started: reset them first")
	}
	return run()
}
