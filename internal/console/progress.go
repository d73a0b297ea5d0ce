// Package console prints for people: counts in English, untrusted text with its control characters replaced, and the progress of long work.
package console

import (
	"fmt"
	"sync"
)

// Event says what is being done.
type Event struct {
	Phase string // fitting 85 regions
	Begin bool   // of the phase
	Long  bool   // the phase takes a noticeable part of the whole
	Step  int    // of Steps, the last one that is done
	Steps int
	Part  float64 // of the whole that is done, from 0 to 1; where it falls other work has begun
	From  float64 // the part that was done before, by an earlier run: it took none of this one's time
}

// Meter adds up work. A nil Meter tells nobody.
type Meter struct {
	tell func(Event)

	mu    sync.Mutex
	total float64 // expected
	begun float64 // in phases that have ended
	units float64 // of the present phase
	last  Event
}

// New tells a function of every step; without a function it returns nil.
func New(tell func(Event)) *Meter {
	if tell == nil {
		return nil
	}
	return &Meter{tell: tell}
}

// Expect announces units of work. The function that it returns says that this work has ended, however much it was.
func (m *Meter) Expect(units float64) (ended func()) {
	if m == nil {
		return func() {}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	from := m.begun + m.units
	m.total += units
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.total += m.begun + m.units - from - units
	}
}

// Begin ends a phase and begins one that takes some of the units that are expected; 0: hardly any.
func (m *Meter) Begin(units float64, format string, args ...any) {
	if m == nil {
		return
	}
	m.mu.Lock()
	m.begun += m.units
	m.units = units
	m.last = Event{Phase: fmt.Sprintf(format, args...), Begin: true, Long: units > 0, Part: m.part(0)}
	e := m.last
	m.mu.Unlock()
	m.tell(e)
}

// Step says that a step of the phase is done, and with it a part of the phase from 0 to 1.
func (m *Meter) Step(step, steps int, part float64) {
	if m == nil {
		return
	}
	m.mu.Lock()
	m.last.Begin, m.last.Step, m.last.Steps, m.last.Part = false, step, steps, m.part(part)
	e := m.last
	m.mu.Unlock()
	m.tell(e)
}

// part is the part of the whole, if one of the phase is done.
func (m *Meter) part(done float64) float64 {
	if m.total <= 0 {
		return m.last.Part
	}
	return max(m.last.Part, min(1, (m.begun+float64(m.units*done))/max(m.total, m.begun+m.units)))
}
