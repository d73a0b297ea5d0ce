package cuda

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spark-compile/spark-compile/hal"
)

// How a run is waited for whose context may end: models run for less than a millisecond, and a sleep is longer than
// it says.
const (
	spinning = 2 * time.Millisecond   // asks the driver again and again
	pause    = 100 * time.Microsecond // from then on, between two questions
)

// wait waits until all that is on the stream has ended, or ctx has. In the latter case the stream goes on: what it
// uses stays allocated until it ends.
func (g *graph) wait(ctx context.Context) error {
	if ctx.Done() == nil {
		err := g.device.call("cuStreamSynchronize", g.stream)
		g.running = false
		return err
	}
	for begin := time.Now(); ; {
		err := g.device.call("cuStreamQuery", g.stream)
		if !errors.Is(err, hal.ErrBusy) {
			g.running = false
			return err
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%w: the GPU did not end the run in time, and cannot be stopped (%w): its memory stays in use until it ends; "+
				"end the process if it never does", err, hal.ErrBusy)
		}
		if time.Since(begin) > spinning {
			time.Sleep(pause)
		}
	}
}

// Wait waits for the end of a run whose context has ended.
func (g *graph) Wait(ctx context.Context) error {
	if g.on != nil {
		if err := g.on.Wait(ctx); errors.Is(err, hal.ErrBusy) {
			return err
		}
		g.on = nil
	}
	if !g.running {
		return nil
	}
	return g.device.do(func() error { return g.wait(ctx) })
}

// settled is hal.ErrBusy while a run goes on whose context has ended.
func (g *graph) settled() error {
	if g.on != nil {
		if err := g.on.settled(); err != nil {
			return err
		}
		g.on = nil
	}
	if !g.running {
		return nil
	}
	err := g.device.call("cuStreamQuery", g.stream)
	if !errors.Is(err, hal.ErrBusy) {
		g.running = false
		return nil // nobody waits any more for what the run met
	}
	return fmt.Errorf("%w: a run whose context has ended goes on", err)
}
