package runtime

import (
	"context"
	"fmt"
	"time"

	"github.com/spark-compile/spark-compile/hal"
)

// Replay runs the graph on the inputs that are on the device already and fetches no output: what a run costs where data
// stay on the device. The time is the device's own where it has a clock (CUDA events), else the host's.
func (s *Session) Replay(ctx context.Context) (time.Duration, error) {
	if s.graph == nil {
		return 0, errClosed
	}
	var took time.Duration
	var err error
	if t, ok := s.graph.(hal.Timer); ok {
		took, err = t.RunTimed(ctx)
	} else {
		begin := time.Now()
		err = s.graph.Run(ctx)
		took = time.Since(begin)
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", s.model.Program.Model, err)
	}
	return took, nil
}
