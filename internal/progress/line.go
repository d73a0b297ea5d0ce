package progress

import (
	"fmt"
	"io"
	"time"
)

// Line shows events on a terminal, in one line that it writes again and again.
type Line struct {
	w     io.Writer
	width func() int
	now   func() time.Time
	begin time.Time
	shown time.Time
	full  bool // something stands there
}

// NewLine shows on w, a terminal of a width in characters, 0 where that is not known; now is time.Now but in tests.
func NewLine(w io.Writer, width func() int, now func() time.Time) *Line {
	return &Line{w: w, width: width, now: now, begin: now()}
}

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
	// Of a line that the terminal wraps, only the end could be taken away. The last column stays free, where some wrap already.
	if r, width := []rune(text), l.width(); width > 0 && len(r) >= width {
		text = string(r[:width-1])
	}
	fmt.Fprintf(l.w, "\r\x1b[K%s", text)
	l.full = true
}

// Clear takes the line away, if there is one.
func (l *Line) Clear() {
	if l.full {
		fmt.Fprint(l.w, "\r\x1b[K")
		l.full = false
	}
}

// Lines prints a line for every phase that takes long, where there is no terminal.
func Lines(w io.Writer) func(Event) {
	return func(e Event) {
		if e.Begin && e.Long {
			fmt.Fprintln(w, e.Phase)
		}
	}
}
