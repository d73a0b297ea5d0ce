package progress

import (
	"fmt"
	"io"
	"time"
)

// Line shows events on a terminal, in one line that it writes again and again.
type Line struct {
	w     io.Writer
	now   func() time.Time
	begin time.Time
	shown time.Time
}

// NewLine shows on w; now is time.Now but in tests.
func NewLine(w io.Writer, now func() time.Time) *Line { return &Line{w: w, now: now, begin: now()} }

// often is the least time between two steps that are shown.
const often = 100 * time.Millisecond

// Tell shows an event: phase, part of the whole and the time left if the rest is as fast as what is done.
func (l *Line) Tell(e Event) {
	t := l.now()
	if !e.Begin && t.Sub(l.shown) < often {
		return
	}
	l.shown = t
	text := e.Phase
	if e.Steps > 0 {
		text += fmt.Sprintf(": %d of %d", e.Step, e.Steps)
	}
	if spent := t.Sub(l.begin); e.Part > 0.01 && spent > time.Second {
		left := time.Duration(float64(spent) * (1 - e.Part) / e.Part)
		text = fmt.Sprintf("%2.0f %%, %v left: %s", 100*e.Part, max(left.Round(time.Second), time.Second), text)
	}
	fmt.Fprintf(l.w, "\r\x1b[K%s", text)
}

// Clear takes the line away.
func (l *Line) Clear() { fmt.Fprint(l.w, "\r\x1b[K") }

// Lines prints a line for every phase that takes long, where there is no terminal.
func Lines(w io.Writer) func(Event) {
	return func(e Event) {
		if e.Begin && e.Long {
			fmt.Fprintln(w, e.Phase)
		}
	}
}
