package console

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestThePartNeverFallsAndEndsAtOne goes through work of which less is begun than was expected, and then more.
func TestThePartNeverFallsAndEndsAtOne(t *testing.T) {
	for name, candidates := range map[string]int{"fewer": 1, "more": 9} {
		t.Run(name, func(t *testing.T) {
			var events []Event
			m := New(func(e Event) { events = append(events, e) })
			fitted, reported := m.Expect(60), m.Expect(10)
			m.Begin(0, "passes")
			m.Begin(30, "fitting %d regions", 2)
			m.Step(1, 2, .5)
			m.Step(2, 2, 1)
			for range candidates {
				m.Begin(10, "a candidate")
			}
			fitted()
			m.Begin(10, "the same in fp16")
			m.Step(1, 1, 1)
			reported()
			last := 0.0
			for _, e := range events {
				require.GreaterOrEqual(t, e.Part, last)
				last = e.Part
			}
			require.Equal(t, 1.0, last)
			require.Equal(t, Event{Phase: "fitting 2 regions", Long: true, Step: 1, Steps: 2, Part: 15. / 70}, events[2])
			require.False(t, events[0].Long)
		})
	}
	var none *Meter
	none.Expect(1)()
	none.Begin(1, "nothing")
	none.Step(1, 1, 1)
	require.Nil(t, New(nil))
}

// TestTheLineSaysWhatTimeIsLeft at a quarter of the work after ten seconds.
func TestTheLineSaysWhatTimeIsLeft(t *testing.T) {
	var out bytes.Buffer
	at := time.Unix(0, 0)
	width := 0
	l := NewLine(&out, func() int { return width }, func() time.Time { return at })
	l.Clear() // nothing to take away
	l.Tell(Event{Phase: "passes", Begin: true})
	at = at.Add(10 * time.Second)
	l.Tell(Event{Phase: "fitting 85 regions", Step: 20, Steps: 85, Part: .25, Long: true})
	l.Tell(Event{Phase: "fitting 85 regions", Step: 21, Steps: 85, Part: .26, Long: true}) // too soon
	l.Clear()
	require.Equal(t, "\r\x1b[Kpasses\r\x1b[K25 %, 30s left: fitting 85 regions: 20 of 85\r\x1b[K", out.String())

	out.Reset()
	l.Tell(Event{Phase: "reading", Part: 1})
	for update := 90; update <= 92; update++ { // resumed: the first ninety updates took none of this time, nor did reading
		at = at.Add(10 * time.Second)
		l.Tell(Event{Phase: "update", Step: update, Steps: 100, Part: float64(update) / 100, From: 0.9})
	}
	require.Contains(t, out.String(), "\r\x1b[Kupdate: 90 of 100\r")
	require.Contains(t, out.String(), "92 %, 1m20s left: update: 92 of 100")
	l.Clear()

	out.Reset()
	width = 12
	l.Tell(Event{Phase: "µ passes and more", Begin: true})
	l.Clear()
	l.Clear()
	require.Equal(t, "\r\x1b[Kµ passes an\r\x1b[K", out.String(), "it fits")

	out.Reset()
	tell := Lines(&out)
	tell(Event{Phase: "passes", Begin: true})
	tell(Event{Phase: "fitting 85 regions", Begin: true, Long: true})
	tell(Event{Phase: "fitting 85 regions", Long: true, Step: 1, Steps: 85})
	require.Equal(t, "fitting 85 regions\n", out.String())
}
