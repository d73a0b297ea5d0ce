package viewer

import (
	"context"
	"sync"
)

// control is what browsers want of the loop.
type control struct {
	mu            sync.Mutex
	paused, ended bool
	steps         int  // to go while paused
	again         bool // from the start
	changed       chan struct{}
}

// state is what the page knows of it.
type state struct {
	Paused bool `json:"paused"`
	Ended  bool `json:"ended"`
}

// order is a browser's wish; false if there is none of that name.
func (c *control) order(what string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch what {
	case "pause":
		c.paused = true
	case "play":
		c.paused = false
	case "step":
		c.paused = true
		c.steps = 1
	case "again":
		c.again = true
	default:
		return false
	}
	c.tell()
	return true
}

// tell wakes whoever waits for a change.
func (c *control) tell() {
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *control) now() (state, chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return state{c.paused, c.ended}, c.changed
}

// Next waits while browsers want the drive to pause, and takes a step from them. again means that the drive is to begin once more; waited that time
// has passed which is not the drive's. At the end of the recording only again, or the context's end, ends the wait.
func (v *Viewer) Next(ctx context.Context, end bool) (again, waited bool, err error) {
	c := &v.control
	for {
		c.mu.Lock()
		if c.ended != end {
			c.ended = end
			c.tell()
		}
		again, step, paused, changed := c.again, c.steps > 0 && !end, c.paused, c.changed
		c.again = false
		if step && !again {
			c.steps--
		}
		c.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			return false, waited, ctx.Err()
		case again:
			return true, true, nil
		case step || !paused && !end:
			return false, waited, nil
		}
		waited = true
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}
