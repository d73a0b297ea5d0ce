package modeld

import (
	"context"
	"time"
)

// Pacer makes a replay as slow as the cameras, 20 frames a second. The zero value is ready.
type Pacer struct {
	start  time.Time
	frames int64
}

// Wait returns when the next frame is due: at once for the first, then each 50 ms after it. A frame that is late does not delay those
// after it, so that the mean rate stays: they are due at their own times, and may follow at once. If ctx ends first its error is returned,
// and the same frame is due next.
func (p *Pacer) Wait(ctx context.Context) error {
	if p.start.IsZero() {
		p.start = time.Now()
	}
	due := p.start.Add(time.Duration(p.frames) * time.Second / 20)
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		p.frames++
		return nil
	}
}
