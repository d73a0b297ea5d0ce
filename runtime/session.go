package runtime

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/spark-compile/spark-compile/hal"
)

// Session is one user's working set of a Model: arena, inputs, outputs, states, variables and a captured graph for each
// entry. It is for one goroutine at a time.
type Session struct {
	model      *Model
	ports      map[portKey]*port
	kept       map[string]*port // states and variables that the user can reach
	owned      []hal.Memory
	entries    map[string]*captured // nil once closed
	alone      bool                 // the session owns the model and closes it
	bound      []*Session           // whose memory it is bound to
	all        []*port              // by buffer
	rings      []*ring              // states with a delay
	hostInputs []*port              // inputs that are bound to the host's memory

	running atomic.Bool // a goroutine is in a run

	left  atomic.Bool // a run goes on though its context has ended
	atEnd func()      // is called at its end; nil: nothing

	mu     sync.Mutex
	closed bool
	lent   map[*Session]string // open sessions that are bound to this one's memory, and what of theirs is
}

// captured is an entry's graph, and what the host copies for it.
type captured struct {
	entry         *Entry
	graph         *turn            // of the last run, or of the next
	graphs        map[string]*turn // where states have delays: by whose turn it is
	copies        int              // of feeds, before the entry's launches
	sent, fetched []*port
	rings, moves  []*ring // states with a delay that a run touches, and those of them that it writes
}

type portKey struct {
	output bool
	name   string
}

// port is an input, an output, or a state or variable, which may be both: its memory, and a host copy if the host cannot
// see that memory.
type port struct {
	what   string // input "x"
	memory hal.Memory
	offset int
	host   []byte // the memory itself, or a staging copy
	size   int
	staged bool
	pinned hal.Memory // page-locked memory that copies go through; nil: host itself, or the device has none
	bound  *Binding   // the memory is somebody else's, who fills or reads it on the device
	own    hal.Memory // while memory of the host's is bound in its place
	given  bool       // other sessions may be bound to the memory
	ring   *ring      // of a state with a delay: its memory changes from run to run
	fed    *feed      // copied from somebody else's memory at the start of a run
	late   bool       // a state or variable: fetched when asked for
	in     bool       // Run sends it: not a state or variable, which SetState sends
	out    bool
}

var errClosed = errors.New("session is closed")

// ErrConcurrent is the error of a run that another goroutine's run of the same session has not left yet. The other one goes on.
var ErrConcurrent = errors.New("another goroutine is in a run: a session is for one goroutine at a time, and a model may have several")

// ErrInUse says that a session or a model was not closed, since another session needs it.
var ErrInUse = errors.New("in use")

// Open loads a program onto a device for a single session. Closing the session closes the model too.
func Open(ctx context.Context, p *Program, d hal.Device, opt ModelOptions) (*Session, error) {
	return OpenBound(ctx, p, d, opt, SessionOptions{})
}

// OpenBound is Open with options of the session.
func OpenBound(ctx context.Context, p *Program, d hal.Device, opt ModelOptions, bind SessionOptions) (*Session, error) {
	m, err := NewModel(ctx, p, d, opt)
	if err != nil {
		return nil, err
	}
	s, err := m.NewSession(ctx, bind)
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	s.alone = true
	return s, nil
}

// NewSession allocates the session's memory and captures the graphs.
func (m *Model) NewSession(ctx context.Context, opt SessionOptions) (*Session, error) {
	s := &Session{model: m, ports: map[portKey]*port{}, kept: map[string]*port{}, entries: map[string]*captured{}, lent: map[*Session]string{}}
	m.sessions.Add(1)
	if err := s.open(ctx, opt); err != nil {
		s.Close()
		return nil, fmt.Errorf("%s: %w", m.Program.Model, err)
	}
	return s, nil
}

func (s *Session) open(ctx context.Context, opt SessionOptions) error {
	if err := s.borrow(opt); err != nil {
		return err
	}
	places, err := s.places(opt)
	if err != nil {
		return err
	}
	if err := overlaps(places); err != nil {
		return err
	}
	if err := s.joinRings(places); err != nil {
		return err
	}
	s.all = places
	for i := range s.model.Variant.Entries {
		e := &s.model.Variant.Entries[i]
		c, err := s.capture(ctx, e, places)
		if s.entries[e.Name] = c; err != nil {
			return fmt.Errorf("capturing %d launches of entry %s: %w", len(e.Launches), e.Name, err)
		}
		c.rings, c.moves = s.touched(e)
		c.graphs = map[string]*turn{c.turns(): c.graph}
	}
	return nil
}

// capture makes an entry's graph, and lists the inputs to send to it and the outputs to fetch.
func (s *Session) capture(ctx context.Context, e *Entry, places []*port) (*captured, error) {
	c := &captured{entry: e}
	ops, err := s.feeds(e, places)
	if err != nil {
		return nil, err
	}
	c.copies = len(ops)
	add := func(list *[]*port, p *port) {
		if p.staged && !slices.Contains(*list, p) {
			*list = append(*list, p)
		}
	}
	for i := range e.Launches {
		l := &e.Launches[i]
		ops = append(ops, delayed(s.op(l, places), c.copies))
		for _, a := range l.Reads {
			if p := places[a.Buffer]; p.in {
				add(&c.sent, p)
			}
		}
		for _, a := range l.Writes {
			if p := places[a.Buffer]; p.out && !p.late {
				add(&c.fetched, p)
			}
		}
	}
	g, err := s.model.device.Capture(ctx, ops)
	if err != nil {
		return c, err
	}
	c.graph = &turn{g, map[*port]hal.Memory{}}
	for _, p := range s.hostInputs {
		c.graph.at[p] = p.memory
	}
	return c, nil
}

func portNames(ports []Port) (out []string) {
	for _, q := range ports {
		out = append(out, q.Name)
	}
	return out
}

// places gives every buffer of the variant memory: an index into them is an index into the variant's buffers.
func (s *Session) places(opt SessionOptions) ([]*port, error) {
	v := s.model.Variant
	var arena hal.Memory
	if v.ArenaBytes > 0 {
		var err error
		if arena, err = s.alloc(v.ArenaBytes, hal.ScratchMemory); err != nil {
			return nil, fmt.Errorf("arena of %d bytes: %w", v.ArenaBytes, err)
		}
	}
	places := make([]*port, len(v.Buffers))
	for i, b := range v.Buffers {
		switch b.Kind {
		case ArenaBuffer:
			places[i] = &port{memory: arena, offset: b.Offset}
		case ConstantBuffer:
			places[i] = &port{memory: s.model.weights, offset: b.Offset}
		default:
			var err error
			if places[i], err = s.own(b, opt); err != nil {
				return nil, err
			}
		}
	}
	return places, nil
}

// own gives a buffer memory of the session, or what it is bound to, and registers it if it is a port.
func (s *Session) own(b Buffer, opt SessionOptions) (*port, error) {
	p := &port{what: fmt.Sprintf("%s %q", b.Kind, b.Name)}
	var keys []portKey
	at, kind := Binding{}, hal.HostVisible
	st := s.model.Program.state(b.Name)
	next := s.model.Program.delayed(b.Name)
	switch {
	case b.Kind == InputBuffer:
		keys, at = []portKey{{false, b.Name}}, opt.Inputs[b.Name]
	case b.Kind == OutputBuffer:
		keys, at = []portKey{{true, b.Name}}, opt.Outputs[b.Name]
	case b.Kind == StateBuffer && next:
		keys = []portKey{{true, b.Name}}
	case st != nil:
		keys, at = []portKey{{false, st.Input}}, opt.Inputs[b.Name]
		if st.Delay > 1 && at.Memory != nil {
			return nil, fmt.Errorf("%s: a state with a delay has memory of its own, and is bound to no other", p.what)
		}
		if st.Output != "" && st.Delay < 2 {
			keys = append(keys, portKey{true, st.Output})
		}
	case b.Kind == StateBuffer: // what kernels keep for themselves, or adapters
		kind = hal.DeviceMemory
	}
	p.late = b.Kind == StateBuffer || b.Kind == VariableBuffer
	if err := s.give(p, b, at, kind); err != nil {
		return nil, fmt.Errorf("%s: %w", p.what, err)
	}
	for _, k := range keys {
		s.ports[k] = p
		p.out = p.out || k.output
	}
	if from, ok := opt.Feeds[b.Name]; ok && b.Kind == InputBuffer {
		p.fed = &feed{from: from, bytes: b.Bytes}
	}
	p.in = b.Kind == InputBuffer && p.fed == nil
	if !p.in && b.Kind != OutputBuffer && !next && (kind == hal.HostVisible || s.model.Program.Adapters.keeps(b.Name)) {
		s.kept[b.Name] = p
	}
	return p, nil
}

// give allocates a buffer and puts its first value there, unless it is bound to memory whose contents are somebody else's.
func (s *Session) give(p *port, b Buffer, at Binding, kind hal.MemoryKind) error {
	p.size = b.Bytes
	switch {
	case at.Memory == nil:
		m, err := s.alloc(b.Bytes, kind)
		if err != nil {
			return fmt.Errorf("%d bytes: %w", b.Bytes, err)
		}
		p.memory = m
		if b.Kind == VariableBuffer {
			if err := m.Write(s.model.Program.Weights[b.Offset:b.Offset+b.Bytes], 0); err != nil {
				return err
			}
		}
	case at.Offset < 0 || at.Offset > at.Memory.Size()-b.Bytes:
		return fmt.Errorf("needs %d bytes at offset %d, but the bound memory has %d", b.Bytes, at.Offset, at.Memory.Size())
	case (at.Memory.Addr()+uint64(at.Offset))%bindAlign != 0:
		return fmt.Errorf("%s is at offset %d of its memory, and kernels need a multiple of %d bytes; Feeds copies a slice of an output to where it may lie", at, at.Offset, bindAlign)
	default:
		p.memory, p.offset, p.bound = at.Memory, at.Offset, &at
	}
	if kind != hal.HostVisible {
		return nil
	}
	// What a user holds of an output after Close must not be memory of the driver that is gone then: reading it would end the process.
	// Outputs are small, so they are copied. Inputs are not: they are filled in place, and not after Close.
	switch view := p.memory.Bytes(); {
	case view != nil && (b.Kind != OutputBuffer || p.bound != nil):
		p.host = view[p.offset : p.offset+b.Bytes]
	case p.bound == nil:
		p.staged = true
		return s.stage(p, b)
	}
	return nil
}

// stage gives a port a host copy of memory that the host does not see. Copies between page-locked memory and the device need no staging by
// the driver, so inputs are filled in page-locked memory, and outputs, which may outlive the session, pass through it.
func (s *Session) stage(p *port, b Buffer) error {
	var err error
	if p.memory.Bytes() == nil && (b.Kind == InputBuffer || b.Kind == OutputBuffer) {
		p.pinned, err = s.alloc(b.Bytes, hal.PinnedMemory)
	}
	switch {
	case errors.Is(err, hal.ErrNoSuchMemory) || errors.Is(err, hal.ErrOutOfMemory): // pageable copies are slower, and work
		p.pinned = nil
	case err != nil:
		return fmt.Errorf("%d bytes of page-locked memory: %w", b.Bytes, err)
	case p.pinned != nil && p.pinned.Bytes() == nil:
		p.pinned = nil
	}
	if p.pinned != nil && b.Kind == InputBuffer {
		p.host, p.pinned = p.pinned.Bytes()[:b.Bytes], nil
		return nil
	}
	p.host = make([]byte, b.Bytes)
	return nil
}

// fetch copies a port's memory to the host.
func (p *port) fetch() error {
	if p.pinned == nil {
		return p.memory.Read(p.host, p.offset)
	}
	staging := p.pinned.Bytes()[:len(p.host)]
	err := p.memory.Read(staging, p.offset)
	copy(p.host, staging)
	return err
}

// alloc allocates at least one byte, so that empty tensors have an address.
func (s *Session) alloc(n int, kind hal.MemoryKind) (hal.Memory, error) {
	m, err := s.model.device.Alloc(max(n, 1), kind)
	if err == nil {
		s.owned = append(s.owned, m)
	}
	return m, err
}

func (s *Session) op(l *Launch, places []*port) hal.Op {
	op := hal.Op{Kernel: l.Kernel, Module: s.model.module, Grid: l.Grid, Block: l.Block, Shared: l.Shared, After: l.After, Dependent: l.Dependent, Priority: l.Priority}
	for _, p := range l.Params {
		value := p.Value
		if p.Buffer >= 0 {
			at := places[p.Buffer]
			value = at.memory.Addr() + uint64(at.offset+p.Offset)
		}
		op.Params = append(op.Params, value)
		op.Sizes = append(op.Sizes, p.Bytes)
	}
	op.Reads, op.Writes = s.ranges(l.Reads, places), s.ranges(l.Writes, places)
	op.Varies = l.Copy == nil && slices.ContainsFunc(l.Reads, func(a Access) bool { return places[a.Buffer].in && places[a.Buffer].bound == nil })
	switch i := l.prefetchSize(); {
	case l.Prefetch == nil:
	case i >= 0 && s.model.device.Info().Switches.NoPrefetch:
		op.Params[i] = 0
	default:
		op.Prefetch = s.ranges([]Access{*l.Prefetch}, places)
	}
	if c := l.Copy; c != nil {
		src, dst := places[c.Src.Buffer], places[c.Dst.Buffer]
		op.Src, op.SrcOffset = src.memory, src.offset+c.Src.Offset
		op.Dst, op.DstOffset = dst.memory, dst.offset+c.Dst.Offset
		op.Bytes = c.Bytes
	}
	return op
}

func (s *Session) ranges(list []Access, places []*port) []hal.Range {
	out := make([]hal.Range, 0, len(list))
	for _, a := range list {
		at := places[a.Buffer]
		if at.own != nil { // a frame may be shorter
			a.Bytes = min(a.Bytes, max(at.memory.Size()-a.Offset, 0))
		}
		out = append(out, hal.Range{Memory: at.memory, Offset: at.offset + a.Offset, Bytes: a.Bytes,
			Constant: s.model.Variant.Buffers[a.Buffer].Kind == ConstantBuffer})
	}
	return out
}

// Input returns the bytes of an input, to be filled before Run: the device's own memory where it is unified, else a copy
// that Run sends. It unbinds host memory. Nil if there is no such input, or if another session fills it.
func (s *Session) Input(name string) []byte {
	if p := s.ports[portKey{false, name}]; p != nil {
		if p.fed != nil || p.bound != nil && p.bound.of != nil {
			return nil
		}
		p.unbind() // of the host's bytes, it cannot fail
	}
	return s.host(portKey{false, name})
}

// Output returns the bytes of an output, valid after Run and until the next one. The new value of a state is fetched only now where the
// device has memory of its own. Nil if there is no such output, if it is bound to memory that the host does not see, which Float64s reads, or if fetching fails.
func (s *Session) Output(name string) []byte { return s.host(portKey{true, name}) }

func (s *Session) host(k portKey) []byte {
	p := s.ports[k]
	if p == nil {
		return nil
	}
	if p.ring != nil {
		if view := p.memory.Bytes(); view != nil {
			return view
		}
	}
	if p.late && p.staged {
		if err := p.fetch(); err != nil {
			return nil
		}
	}
	return p.host
}

// Set fills an input, or a state, from the bytes of an array of its type and shape.
func (s *Session) Set(name string, data []byte) error {
	if s.entries == nil {
		return errClosed
	}
	if s.kept[name] != nil {
		return s.SetState(name, data)
	}
	in := s.Input(name)
	if p := s.ports[portKey{false, name}]; p != nil && in == nil {
		return fmt.Errorf("%s is bound to %s: it is filled on the device", p.what, p.bound)
	}
	if in == nil {
		return fmt.Errorf("no input %q: the model has %s", name, strings.Join(portNames(s.model.Program.Inputs), ", "))
	}
	if len(data) != len(in) {
		return fmt.Errorf("input %q has %d bytes, got %d", name, len(in), len(data))
	}
	copy(in, data)
	return nil
}

// Float64s returns the outputs of the last run by name. It is hal.ErrBusy while the device runs on after the context of that run has ended, and says so,
// once, where that run has failed.
func (s *Session) Float64s() (map[string][]float64, error) {
	if s.entries == nil {
		return nil, errClosed
	}
	if err := s.wait(over); err != nil {
		return nil, err
	}
	out := map[string][]float64{}
	for _, q := range s.model.Program.Outputs {
		p := s.ports[portKey{true, q.Name}]
		data := p.host
		if p.late || data == nil {
			data = make([]byte, p.size)
			if err := p.memory.Read(data, p.offset); err != nil {
				return nil, fmt.Errorf("output %q: %w", q.Name, err)
			}
		}
		x, err := Float64s(q.DType, data)
		if err != nil {
			return nil, fmt.Errorf("output %q: %w", q.Name, err)
		}
		out[q.Name] = x[:numel(q.Shape)]
	}
	return out, nil
}

// Model is what the session runs.
func (s *Session) Model() *Model { return s.model }

// Run runs the entry named run.
func (s *Session) Run(ctx context.Context) error { return s.RunEntry(ctx, "run") }

// RunEntry runs an entry (ErrConcurrent if another goroutine is in a run of the session): it sends the inputs that the entry reads where memory is not unified, runs the entry's graph, and
// fetches the outputs that it writes. Where the device runs on after the context of an earlier run has ended, of this entry or
// another, it first waits for that, and is hal.ErrBusy if ctx ends before.
func (s *Session) RunEntry(ctx context.Context, name string) error {
	if !s.running.CompareAndSwap(false, true) {
		return fmt.Errorf("%s: %w", s.model.Program.Model, ErrConcurrent)
	}
	defer s.running.Store(false)
	e, err := s.entry(name)
	if err != nil {
		return err
	}
	if err := s.wait(ctx); err != nil {
		return err
	}
	if err := s.turn(ctx, e); err != nil {
		return err
	}
	if err := s.follow(ctx, e); err != nil {
		return err
	}
	for _, p := range e.sent {
		if p.own != nil { // it is read where the host has it
			continue
		}
		if err := p.memory.Write(p.host, p.offset); err != nil {
			return fmt.Errorf("%s: %s: %w", s.model.Program.Model, p.what, err)
		}
	}
	err = e.graph.Run(ctx)
	if err == nil || errors.Is(err, hal.ErrBusy) { // else the next run writes where this one did
		s.turned(e)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", s.model.Program.Model, s.leaves(err))
	}
	for _, p := range e.fetched {
		if err := p.fetch(); err != nil {
			return fmt.Errorf("%s: %s: %w", s.model.Program.Model, p.what, err)
		}
	}
	return nil
}

// Wait waits for the end of a run whose context has ended, so that inputs may be filled again. It is hal.ErrBusy if ctx ends before, and
// says so, once, where that run has failed.
func (s *Session) Wait(ctx context.Context) error {
	if s.entries == nil {
		return errClosed
	}
	return s.wait(ctx)
}

// wait waits for the end of runs whose context has ended: the session's own, and those of sessions that have memory in common with it.
func (s *Session) wait(ctx context.Context) error {
	for _, with := range s.abandoned() {
		if err := with.ended(ctx); err != nil {
			return err
		}
	}
	return s.ended(ctx)
}

// ended waits for the end of the session's own run whose context has ended. There is one at most, and entries share memory.
func (s *Session) ended(ctx context.Context) error {
	for _, e := range s.entries {
		if e != nil && e.graph != nil {
			if err := e.graph.Wait(ctx); err != nil {
				return fmt.Errorf("%s: %w", s.model.Program.Model, s.leaves(err))
			}
		}
	}
	return s.leaves(nil)
}

// leaves notes whether a run goes on, and returns the run's error.
func (s *Session) leaves(err error) error {
	busy := errors.Is(err, hal.ErrBusy)
	if s.left.Store(busy); !busy && s.atEnd != nil {
		s.atEnd()
		s.atEnd = nil
	}
	return err
}

// idle is hal.ErrBusy while a run goes on whose context has ended, and which cannot be stopped. What else such a run met, nobody waits for any more.
func (s *Session) idle() error {
	for _, e := range s.entries {
		if e == nil || e.graph == nil {
			continue
		}
		if _, can := e.graph.Graph.(hal.Stopper); can {
			continue
		}
		if err := e.graph.Wait(over); errors.Is(err, hal.ErrBusy) {
			return fmt.Errorf("%s: %w", s.model.Program.Model, err)
		}
	}
	return nil
}

// stop ends a run whose context has ended, where the device can.
func (s *Session) stop() {
	for _, e := range s.entries {
		if e == nil || e.graph == nil {
			continue
		}
		if g, can := e.graph.Graph.(hal.Stopper); can {
			g.Stop()
		}
	}
}

// over is a context that has ended.
var over = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func (s *Session) entry(name string) (*captured, error) {
	if s.entries == nil {
		return nil, errClosed
	}
	e := s.entries[name]
	if e == nil {
		return nil, fmt.Errorf("%s: no entry %q", s.model.Program.Model, name)
	}
	return e, nil
}

// Close frees what the session allocated. It is an error while another session is bound to this one's memory (ErrInUse), or while
// a device that cannot be stopped runs on after the context of a run has ended (hal.ErrBusy), and the session stays open then.
func (s *Session) Close() error {
	if err := s.idle(); err != nil {
		return fmt.Errorf("%w; close it later", err)
	}
	if err := s.release(); err != nil {
		return err
	}
	s.stop()
	var err error
	for _, name := range slices.Sorted(maps.Keys(s.entries)) {
		e := s.entries[name]
		if e == nil {
			continue
		}
		for _, g := range e.graphs {
			if g != e.graph {
				err = errors.Join(err, g.Close())
			}
		}
		if e.graph != nil {
			err = errors.Join(err, e.graph.Close())
		}
	}
	for _, p := range s.hostInputs {
		err = errors.Join(err, p.unbind())
	}
	for _, m := range slices.Backward(s.owned) {
		err = errors.Join(err, m.Free())
	}
	if s.entries != nil {
		s.model.sessions.Add(-1)
	}
	for _, from := range s.bound {
		from.returned(s)
	}
	if s.owned, s.ports, s.kept, s.entries, s.bound = nil, nil, nil, nil, nil; s.alone {
		err = errors.Join(err, s.model.Close())
	}
	return err
}
