package runtime

import (
	"context"
	"fmt"
	"time"

	"github.com/spark-compile/spark-compile/hal"
)

// Replay runs the entry named run on the inputs that are already on the device and fetches no output, to time runs whose data stay on
// the device. It returns the time of all t.Runs runs: the device's own if it has a clock (CUDA events), else the host's.
func (s *Session) Replay(ctx context.Context, t hal.Timing) (time.Duration, error) {
	return s.ReplayEntry(ctx, "run", t)
}

// ReplayEntry is Replay of another entry.
func (s *Session) ReplayEntry(ctx context.Context, name string, t hal.Timing) (time.Duration, error) {
	if !s.running.CompareAndSwap(false, true) {
		return 0, fmt.Errorf("%s: %w", s.model.Program.Model, ErrConcurrent)
	}
	defer s.running.Store(false)
	e, err := s.entry(name)
	if err != nil {
		return 0, err
	}
	if err := s.wait(ctx); err != nil {
		return 0, err
	}
	if err := s.turn(ctx, e); err != nil {
		return 0, err
	}
	if err := s.follow(ctx, e); err != nil {
		return 0, err
	}
	var took time.Duration
	if timer, ok := e.graph.Graph.(hal.Timer); ok {
		took, err = timer.RunTimed(ctx, t)
	} else {
		took, err = runTimed(ctx, e.graph, t)
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", s.model.Program.Model, s.leaves(err))
	}
	return took, nil
}

// runTimed times runs by the host's clock.
func runTimed(ctx context.Context, g hal.Graph, t hal.Timing) (time.Duration, error) {
	if t.Before != nil {
		if err := t.Before.Run(ctx); err != nil {
			return 0, err
		}
	}
	begin := time.Now()
	for range max(t.Runs, 1) {
		if err := g.Run(ctx); err != nil {
			return 0, err
		}
	}
	return time.Since(begin), nil
}
