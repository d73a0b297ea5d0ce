// Package simulated is the CPU device as a GPU whose runs take what the cost model says they take on a machine: for tests of what
// measures, which must find that machine again, and for dry runs.
package simulated

import (
	"context"
	"slices"
	"time"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/profile"
)

// Device is such a device. Its kernels compute nothing but what their counts hang on.
type Device struct {
	hal.Device
	On   *cost.Machine
	Name string
	Fail func() error // asked before every timed run; nil: none fails

	counts []*emu.Counts
}

// Open opens a device that takes as long as a machine.
func Open(on *cost.Machine) (*Device, error) {
	s := &Device{On: on, Name: "simulated"}
	d, err := emu.Open(emu.Options{CountOnly: true, Profile: func(c *emu.Counts) { s.counts = append(s.counts, c) }})
	s.Device = d
	return s, err
}

// Info says that it is a GPU of the machine's target.
func (s *Device) Info() hal.Info {
	info := s.Device.Info()
	info.Name, info.Backend, info.Target = s.Name, "cuda", s.On.Name
	return info
}

// Capture keeps the launches beside the graph.
func (s *Device) Capture(ctx context.Context, ops []hal.Op) (hal.Graph, error) {
	g, err := s.Device.Capture(ctx, ops)
	if err != nil {
		return nil, err
	}
	return &graph{g, s, slices.Clone(ops)}, nil
}

type graph struct {
	hal.Graph
	d   *Device
	ops []hal.Op
}

// RunTimed runs the graph once and returns what the model says of its launches, constants in L2, times the number of runs.
func (g *graph) RunTimed(ctx context.Context, timing hal.Timing) (time.Duration, error) {
	if g.d.Fail != nil {
		if err := g.d.Fail(); err != nil {
			return 0, err
		}
	}
	g.d.counts = nil
	if err := g.Run(ctx); err != nil {
		return 0, err
	}
	times, dependent := make([]cost.Time, len(g.ops)), make([]bool, len(g.ops))
	for i, op := range g.ops {
		times[i], dependent[i] = g.d.On.Copy(op.Bytes), op.Dependent
	}
	for _, c := range g.d.counts {
		times[c.Op] = g.d.On.Estimate(profile.WorkOf(g.d.On, c))
	}
	return time.Duration(1e3 * float64(max(timing.Runs, 1)) * cost.Sequence(times, dependent)), nil
}
