package runtime

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/spark-compile/spark-compile/hal"
)

// BindHostMemory makes runs read an input from the host's memory, until other memory is bound or the input is set:
// camera frames stay in the camera's buffer. If the device does not see the host's memory, or data are not aligned to 16
// bytes, they are copied instead, and inPlace is false. The caller keeps the data alive, and unchanged while a run reads
// them. A frame of a Loop may be shorter than its input: kernels read as much as the input named camera says.
//
// BindHostMemory(name, nil) unbinds it: runs read the session's own memory again. It returns hal.ErrBusy while the
// device runs on after the context of a run has ended; such a run's error is returned.
func (s *Session) BindHostMemory(name string, data []byte) (inPlace bool, err error) {
	if s.entries == nil {
		return false, errClosed
	}
	p := s.ports[portKey{false, name}]
	loop := s.model.Program.Loop
	short := loop != nil && slices.Contains(loop.Frames, name)
	switch {
	case p == nil || !p.in:
		return false, s.Set(name, data) // which says what is wrong, or sets a state
	case p.bound != nil:
		return false, fmt.Errorf("%s is bound to %s: no other memory can be", p.what, p.bound)
	case data != nil && len(data) != p.size && !(short && len(data) < p.size):
		return false, fmt.Errorf("%s has %d bytes, got %d", p.what, p.size, len(data))
	}
	if err := s.wait(over); err != nil {
		return false, err
	}
	var mapped hal.Memory
	if !p.given { // else other sessions read the input's own memory
		if mapped, err = s.mapped(data); err != nil {
			return false, fmt.Errorf("%s: %w", p.what, err)
		}
	}
	if err := p.unbind(); err != nil {
		return false, err
	}
	if mapped == nil {
		copy(p.host, data)
		return false, nil
	}
	p.own, p.memory = p.memory, mapped
	if !slices.Contains(s.hostInputs, p) {
		s.hostInputs = append(s.hostInputs, p)
	}
	return true, nil
}

// mapped is the host's memory as the device's; nil if kernels cannot read it there.
func (s *Session) mapped(data []byte) (hal.Memory, error) {
	d, ok := s.model.device.(hal.Mapper)
	if !ok || len(data) == 0 || uintptr(unsafe.Pointer(unsafe.SliceData(data)))%bindAlign != 0 {
		return nil, nil
	}
	m, err := d.Map(data)
	if errors.Is(err, hal.ErrNoSuchMemory) {
		return nil, nil
	}
	return m, err
}

// unbind returns an input to the session's own memory.
func (p *port) unbind() error {
	if p.own == nil {
		return nil
	}
	bound := p.memory
	p.memory, p.own = p.own, nil
	return bound.Free()
}

// turn is an entry's graph for one turn of the states with a delay, and where it reads inputs that are bound to the host's memory.
type turn struct {
	hal.Graph
	at map[*port]hal.Memory
}

// nowhere is the memory of an input of which nobody knows where the graph reads it.
type nowhere struct{ hal.Memory }

func (nowhere) Addr() uint64 { return 0 }
func (nowhere) Size() int    { return -1 }

// follow points the graph of an entry's next run at the memory that inputs were bound to since.
func (s *Session) follow(ctx context.Context, e *captured) error {
	g := e.graph
	var moved []*port
	for _, p := range s.hostInputs {
		at := g.at[p]
		if at == nil { // it was made before anything was bound
			if at = p.own; at == nil {
				at = p.memory
			}
		}
		if at.Addr() != p.memory.Addr() || at.Size() != p.memory.Size() {
			moved = append(moved, p)
		}
	}
	if len(moved) == 0 {
		return nil
	}
	if err := s.update(ctx, e, moved); err != nil {
		for _, p := range moved { // some launches may have been moved: the next run moves all
			g.at[p] = nowhere{}
		}
		return fmt.Errorf("%s: moving inputs: %w", s.model.Program.Model, err)
	}
	for _, p := range moved {
		e.graph.at[p] = p.memory
	}
	return nil
}

// update gives launches that read some inputs the addresses of today, or makes the graph anew where that cannot be.
func (s *Session) update(ctx context.Context, e *captured, moved []*port) error {
	var which []int
	u, can := e.graph.Graph.(hal.Updater)
	for i, l := range e.entry.Launches {
		if slices.ContainsFunc(l.Reads, func(a Access) bool { return slices.Contains(moved, s.all[a.Buffer]) }) {
			which, can = append(which, i), can && l.Copy == nil
		}
	}
	if !can {
		c, err := s.capture(ctx, e.entry, s.all)
		if err != nil {
			return err
		}
		old := e.graph
		e.graph, e.graphs[e.turns()] = c.graph, c.graph
		return old.Close()
	}
	for _, i := range which {
		if err := u.Update(e.copies+i, delayed(s.op(&e.entry.Launches[i], s.all), e.copies)); err != nil {
			return err
		}
	}
	return nil
}
