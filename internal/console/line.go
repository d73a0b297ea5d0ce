package console

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
	begin time.Time // of the work
	part  float64   // of the last event
	from  float64
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
	if e.Part < l.part || e.From != l.from {
		l.begin = t
	}
	l.part, l.from = e.Part, e.From
	if !e.Begin && t.Sub(l.shown) < often {
		return
	}
	l.shown = t
	text := Escape(e.Phase)
	if e.Steps > 0 {
		text += fmt.Sprintf(": %d of %d", e.Step, e.Steps)
	}
	if spent, done := t.Sub(l.begin), e.Part-e.From; done > 0.01*(1-e.From) && spent > time.Second {
		left := time.Duration(float64(spent) * (1 - e.Part) / done)
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
			fmt.Fprintln(w, Escape(e.Phase))
		}
	}
}
