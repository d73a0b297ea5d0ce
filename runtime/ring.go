package runtime

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/hal"
)

// ring is the memory of a state with a delay: one place more than the delay, which take turns. A run reads what the run so many runs ago
// wrote, and writes what lies longest.
type ring struct {
	slots   []hal.Memory
	at      int   // that the next run writes
	in, out *port // what kernels read and write; out is where the last run wrote, until the next one
}

// touched are the states with a delay that launches of an entry read or write, and those that they write.
func (s *Session) touched(e *Entry) (all, written []*ring) {
	for _, r := range s.rings {
		is := func(p *port) func(a Access) bool { return func(a Access) bool { return s.all[a.Buffer] == p } }
		writes := slices.ContainsFunc(e.Launches, func(l Launch) bool { return slices.ContainsFunc(l.Writes, is(r.out)) })
		if writes {
			written = append(written, r)
		}
		if writes || slices.ContainsFunc(e.Launches, func(l Launch) bool { return slices.ContainsFunc(l.Reads, is(r.in)) }) {
			all = append(all, r)
		}
	}
	return all, written
}

// joinRings makes the buffers of each state with a delay take turns.
func (s *Session) joinRings(places []*port) error {
	v := s.model.Variant
	for _, st := range s.model.Program.States {
		if st.Delay < 2 {
			continue
		}
		r := &ring{}
		for i, b := range v.Buffers {
			switch {
			case b.Kind == StateBuffer && b.Name == st.Input:
				r.in = places[i]
			case b.Kind == StateBuffer && b.Name == st.Output:
				r.out = places[i]
			}
		}
		if r.in == nil || r.out == nil {
			return fmt.Errorf("state %q with a delay of %d has no buffers for both its values", st.Input, st.Delay)
		}
		r.slots = []hal.Memory{r.out.memory, r.in.memory}
		for len(r.slots) <= st.Delay {
			m, err := s.alloc(r.in.size, hal.HostVisible)
			if err != nil {
				return fmt.Errorf("%s: %d bytes: %w", r.in.what, r.in.size, err)
			}
			r.slots = append(r.slots, m)
		}
		r.in.ring, r.out.ring = r, r
		s.rings = append(s.rings, r)
	}
	return nil
}

// turn points the buffers of states with a delay at the places of the entry's next run, and makes the graph for that, unless there is one.
func (s *Session) turn(ctx context.Context, e *captured) error {
	if len(e.rings) == 0 {
		return nil
	}
	for _, r := range e.moves {
		r.out.memory = r.slots[r.at]
	}
	key := e.turns()
	if g := e.graphs[key]; g != nil {
		e.graph = g
		return nil
	}
	c, err := s.capture(ctx, e.entry, s.all) // where inputs lie now
	if err != nil {
		return fmt.Errorf("%s: capturing %d launches of entry %s: %w", s.model.Program.Model, len(e.entry.Launches), e.entry.Name, err)
	}
	e.graph, e.graphs[key] = c.graph, c.graph
	return nil
}

// mostTurns are those that Prepare makes graphs for; no model has as many.
const mostTurns = 64

// Prepare makes the graphs of all turns that states with a delay take while one entry runs again and again, and has the device try whether
// it reads the host's memory where a Loop binds frames. Without it each run that comes to a new turn does it first, in some milliseconds.
// Nothing runs and no state changes.
func (s *Session) Prepare(ctx context.Context, entry string) error {
	e, err := s.entry(entry)
	if err != nil {
		return err
	}
	if err := s.wait(ctx); err != nil {
		return err
	}
	if loop := s.model.Program.Loop; loop != nil && len(loop.Frames) > 0 {
		m, err := s.mapped(make([]byte, 4096))
		if m != nil {
			err = m.Free()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.model.Program.Model, err)
		}
	}
	period := 1
	for _, r := range e.moves {
		for n := period; period%len(r.slots) != 0; period += n { // the least common multiple
		}
	}
	if len(e.moves) == 0 || period > mostTurns {
		return nil
	}
	was := map[*ring]ring{}
	for _, r := range e.moves {
		was[r] = ring{at: r.at, in: &port{memory: r.in.memory}, out: &port{memory: r.out.memory}}
	}
	defer func() {
		for r, then := range was {
			r.at, r.in.memory, r.out.memory = then.at, then.in.memory, then.out.memory
		}
	}()
	for range period {
		if err := s.turn(ctx, e); err != nil {
			return err
		}
		s.turned(e)
	}
	return nil
}

// turns says which places the entry's next run takes.
func (e *captured) turns() string {
	var b strings.Builder
	for _, r := range e.rings {
		fmt.Fprintf(&b, "%d ", r.at)
	}
	return b.String()
}

// turned moves the states on that a run of the entry has written.
func (s *Session) turned(e *captured) {
	for _, r := range e.moves {
		r.at = (r.at + 1) % len(r.slots)
		r.in.memory = r.slots[(r.at+1)%len(r.slots)]
	}
}

// past is where the value lies that the run k runs from now reads, from 0.
func (r *ring) past(k int) hal.Memory { return r.slots[(r.at+1+k)%len(r.slots)] }

// read returns all values that are to come, the next run's first.
func (r *ring) read() ([]byte, error) {
	data := make([]byte, r.in.size*(len(r.slots)-1))
	for k := range len(r.slots) - 1 {
		if err := r.past(k).Read(data[k*r.in.size:(k+1)*r.in.size], 0); err != nil {
			return nil, err
		}
	}
	return data, nil
}

// write sets the value that the next run reads, or all that are to come.
func (r *ring) write(name string, data []byte) error {
	if n, all := len(data), len(r.slots)-1; n != r.in.size && n != all*r.in.size {
		return fmt.Errorf("state %q has %d bytes, and %d of all %d runs to come, got %d", name, r.in.size, all*r.in.size, all, n)
	}
	for k := range len(data) / max(r.in.size, 1) {
		if err := r.past(k).Write(data[k*r.in.size:(k+1)*r.in.size], 0); err != nil {
			return err
		}
	}
	return nil
}
