package runtime

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/hal"
)

// SessionOptions binds inputs and outputs to existing memory, so that one model's output feeds another on the device, and the
// host copies nothing. What Session.At returns is checked: device, element type and shape must be those of the port. Of other
// memory only the size is known; the caller keeps it alive and its contents current. A run changes a bound state.
//
// The sessions run one after the other: what an input is bound to is what it is at the time of the run. A run of one waits for that of another
// that goes on though its context has ended.
type SessionOptions struct {
	Inputs  map[string]Binding
	Outputs map[string]Binding

	// Feeds copies what Session.At returned to an input on the device, at the start of every run that reads the input. If it
	// has the shape of a row of the input, the input is a history: its rows move up by one, and the newest becomes the last.
	// The history is zero at first; SetState sets it and State reads it, as if it were a state.
	Feeds map[string]Binding
}

// Binding is a place in device memory: what Session.At returns, or memory of the caller's.
type Binding struct {
	Memory hal.Memory
	Offset int

	of   *Session // nil: memory of the caller's
	what string   // output "hidden_state" of driving_vision.onnx
	port Port     // what lies there
	size int      // in bytes
}

// bindAlign is the widest access of a kernel, in bytes.
const bindAlign = 16

// String names what lies there.
func (b Binding) String() string {
	if b.of == nil {
		return "memory of the caller's"
	}
	return b.what
}

// Device is the device of the sessions that the options are bound to, nil if they are bound to none.
func (opt SessionOptions) Device() hal.Device {
	for _, side := range []map[string]Binding{opt.Inputs, opt.Outputs, opt.Feeds} {
		for _, name := range slices.Sorted(maps.Keys(side)) {
			if of := side[name].of; of != nil {
				return of.model.device
			}
		}
	}
	return nil
}

// At returns where an output, a named slice of an output, or an input lies on the device, to bind another session to it.
func (s *Session) At(name string) (Binding, error) {
	if s.entries == nil {
		return Binding{}, errClosed
	}
	p := s.model.Program
	if slices.ContainsFunc(p.States, func(st State) bool { return st.Delay > 1 && (st.Input == name || st.Output == name) }) {
		return Binding{}, fmt.Errorf("%s: %q is of a state with a delay, whose place changes from run to run: nothing can be bound to it", p.Model, name)
	}
	var have []string
	for _, q := range p.Outputs {
		if q.Name == name {
			return s.place(true, name, q), nil
		}
		have = append(have, q.Name)
	}
	for _, q := range p.Outputs {
		for _, part := range q.Slices {
			if part.Name != name {
				have = append(have, part.Name)
				continue
			}
			if part.Every > 0 {
				return Binding{}, fmt.Errorf("%s: %q is there for each sample of a batch: bind the whole output %q", p.Model, name, q.Name)
			}
			b := s.place(true, name, q)
			element := b.size / max(numel(q.Shape), 1)
			b.Offset, b.size = b.Offset+part.Start*element, (part.Stop-part.Start)*element
			b.port.Shape = []int{1, part.Stop - part.Start}
			return b, nil
		}
	}
	for _, q := range p.Inputs {
		if q.Name == name {
			return s.place(false, name, q), nil
		}
	}
	return Binding{}, fmt.Errorf("%s: no output %q: it has %s", p.Model, name, strings.Join(have, ", "))
}

// place is where a port lies; name is what it is called there.
func (s *Session) place(output bool, name string, q Port) Binding {
	at, what := s.ports[portKey{output, q.Name}], "input"
	if output {
		what = "output"
	} else {
		at.unbind() // of the host's bytes, it cannot fail
		at.given = true
	}
	return Binding{at.memory, at.offset, s, fmt.Sprintf("%s %q of %s", what, name, s.model.Program.Model), q, at.size}
}

// Memory returns where an input or output of that very name lies on the device; false if there is none.
func (s *Session) Memory(output bool, name string) (Binding, bool) {
	ports := s.model.Program.Inputs
	if output {
		ports = s.model.Program.Outputs
	}
	i := slices.Index(portNames(ports), name)
	if i < 0 || s.entries == nil {
		return Binding{}, false
	}
	return s.place(output, name, ports[i]), true
}

func numel(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// borrow checks the bindings, and keeps the sessions whose memory they name from closing.
func (s *Session) borrow(opt SessionOptions) error {
	p := s.model.Program
	for _, side := range []struct {
		what  string
		ports []Port
		at    map[string]Binding
		fed   bool
	}{{"input", p.Inputs, opt.Inputs, false}, {"output", p.Outputs, opt.Outputs, false}, {"input", p.Inputs, opt.Feeds, true}} {
		for _, name := range slices.Sorted(maps.Keys(side.at)) {
			b, i := side.at[name], slices.Index(portNames(side.ports), name)
			if i < 0 {
				return fmt.Errorf("no %s %q to bind: the model has %s", side.what, name, strings.Join(portNames(side.ports), ", "))
			}
			if b.Memory == nil {
				return fmt.Errorf("%s %q is bound to nil memory", side.what, name)
			}
			for _, st := range p.States {
				if side.what == "output" && st.Output == name {
					return fmt.Errorf("output %q is the new value of state %q: bind that input instead", name, st.Input)
				}
			}
			if side.fed {
				if err := opt.feedable(p, side.ports[i], b); err != nil {
					return err
				}
			}
			if err := s.matches(fmt.Sprintf("%s %q", side.what, name), side.ports[i], b, side.fed); err != nil {
				return err
			}
		}
	}
	return nil
}

// feedable rejects feeds of what other options, or the program, fill.
func (opt SessionOptions) feedable(p *Program, q Port, b Binding) error {
	switch _, bound := opt.Inputs[q.Name]; {
	case bound:
		return fmt.Errorf("input %q is both bound and fed", q.Name)
	case p.state(q.Name) != nil:
		return fmt.Errorf("input %q is a state, which the model itself updates: it cannot be fed", q.Name)
	case b.of == nil:
		return fmt.Errorf("input %q is fed from memory of the caller's, whose shape is not known: Feeds takes what Session.At returns", q.Name)
	}
	return nil
}

// matches compares a port with what it is bound to, and borrows that from its session.
func (s *Session) matches(what string, q Port, b Binding, fed bool) error {
	if b.of == nil {
		return nil
	}
	verb := "is bound to"
	if fed {
		verb = "is fed from"
	}
	if here, there := s.model.device, b.of.model.device; here != there {
		return fmt.Errorf("%s %s %v, which is on another device (%s; this one is %s): load both models on one device", what, verb, b, there.Info().Name, here.Info().Name)
	}
	if same := slices.Equal(q.Shape, b.port.Shape); q.DType != b.port.DType || !same && !(fed && isRow(b.port.Shape, q.Shape)) {
		want := "want the same type and shape"
		if fed {
			want = "want the same type, and the same shape or that of a row"
		}
		return fmt.Errorf("%s, %v, %s %v, %v: %s", what, q, verb, b, b.port, want)
	}
	return b.of.markBound(s, fmt.Sprintf("%s of %s", what, s.model.Program.Model))
}

// isRow reports whether a shape is that of a row of another: [1,512] is one of [1,25,512].
func isRow(row, of []int) bool {
	long := func(shape []int) []int {
		for len(shape) > 0 && shape[0] == 1 {
			shape = shape[1:]
		}
		return shape
	}
	row, of = long(row), long(of)
	return len(of) > 0 && slices.Equal(row, of[1:]) || slices.Equal(row, of)
}

// markBound notes that a session is bound to this one's memory.
func (s *Session) markBound(to *Session, what string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("%s is bound to %s, which is closed", what, s.model.Program.Model)
	}
	if s.lent[to] != "" {
		what = s.lent[to] + " and " + what
	} else {
		to.bound = append(to.bound, s)
	}
	s.lent[to] = what
	return nil
}

// abandoned are the sessions whose run goes on although its context has ended, among those that this one is bound
// to and those bound to it.
func (s *Session) abandoned() (out []*Session) {
	for _, from := range s.bound {
		if from.left.Load() {
			out = append(out, from)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for to := range s.lent {
		if to.left.Load() {
			out = append(out, to)
		}
	}
	return out
}

// returned takes back what was lent.
func (s *Session) returned(by *Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.lent, by)
}

// release reports who still needs the session's memory.
func (s *Session) release() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.lent) > 0 {
		return fmt.Errorf("%s: %w by %s: close that model first", s.model.Program.Model, ErrInUse, strings.Join(slices.Sorted(maps.Values(s.lent)), ", "))
	}
	s.closed = true
	return nil
}

// overlaps rejects bindings of which one is written where another is: no edge of the graph orders them.
func overlaps(places []*port) error {
	type span struct {
		what   string
		memory hal.Memory
		lo, hi int
		writes bool
	}
	var all []span
	for _, p := range places {
		if p.bound != nil {
			all = append(all, span{p.what, p.memory, p.offset, p.offset + p.size, !p.in})
		}
		if p.fed != nil {
			all = append(all, span{"what feeds " + p.what, p.fed.from.Memory, p.fed.from.Offset, p.fed.from.Offset + p.fed.from.size, false})
		}
	}
	for i, a := range all {
		for _, b := range all[:i] {
			if (a.writes || b.writes) && a.memory == b.memory && a.lo < b.hi && b.lo < a.hi {
				return fmt.Errorf("%s and %s are bound to the same memory, and a run writes it", b.what, a.what)
			}
		}
	}
	return nil
}

// feed is where an input is copied from at the start of a run.
type feed struct {
	from    Binding
	bytes   int        // of the input
	scratch hal.Memory // for the rows that move up; nil if there are none
}

// feeds are the copies that fill the fed inputs which an entry reads, in a chain.
func (s *Session) feeds(e *Entry, places []*port) (ops []hal.Op, err error) {
	add := func(dst hal.Memory, to int, src hal.Memory, from, bytes int) {
		op := hal.Op{Dst: dst, DstOffset: to, Src: src, SrcOffset: from, Bytes: bytes,
			Reads: []hal.Range{{Memory: src, Offset: from, Bytes: bytes}}, Writes: []hal.Range{{Memory: dst, Offset: to, Bytes: bytes}}}
		if len(ops) > 0 {
			op.After = []int{len(ops) - 1}
		}
		ops = append(ops, op)
	}
	for i, p := range places {
		if p.fed == nil || !slices.ContainsFunc(e.Launches, func(l Launch) bool {
			return slices.ContainsFunc(l.Reads, func(a Access) bool { return a.Buffer == i })
		}) {
			continue
		}
		f := p.fed
		kept := f.bytes - f.from.size
		if kept > 0 {
			if f.scratch == nil {
				if f.scratch, err = s.alloc(kept, hal.DeviceMemory); err != nil {
					return nil, fmt.Errorf("%s: %d bytes to move its rows: %w", p.what, kept, err)
				}
			}
			add(f.scratch, 0, p.memory, p.offset+f.from.size, kept)
			add(p.memory, p.offset, f.scratch, 0, kept)
		}
		add(p.memory, p.offset+kept, f.from.Memory, f.from.Offset, f.from.size)
	}
	return ops, nil
}

// delayed makes a launch of a list follow that many copies.
func delayed(op hal.Op, copies int) hal.Op {
	if copies == 0 {
		return op
	}
	after := make([]int, 0, len(op.After)+1)
	for _, a := range op.After {
		after = append(after, a+copies)
	}
	if len(after) == 0 { // all others come after one of these
		after, op.Dependent = append(after, copies-1), false
	}
	op.After = after
	return op
}
