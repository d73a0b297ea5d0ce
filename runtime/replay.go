package runtime

import (
	"context"
	"fmt"
	"time"

	"github.com/spark-compile/spark-compile/hal"
)

// Replay runs the entry named run on the inputs that are already on the device and fetches no output, to time a run whose data
// stay on the device. The time is the device's own if it has a clock (CUDA events), else the host's.
func (s *Session) Replay(ctx context.Context) (time.Duration, error) {
	return s.ReplayEntry(ctx, "run")
}

// ReplayEntry is Replay of another entry.
func (s *Session) ReplayEntry(ctx context.Context, name string) (time.Duration, error) {
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
	if t, ok := e.graph.Graph.(hal.Timer); ok {
		took, err = t.RunTimed(ctx)
	} else {
		begin := time.Now()
		err = e.graph.Run(ctx)
		took = time.Since(begin)
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", s.model.Program.Model, s.leaves(err))
	}
	return took, nil
}
