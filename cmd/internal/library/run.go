package library

import (
	"context"
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/hal/detect"
)

// Run runs on arrays of inputs, and fills the arrays of outputs. They are in the order of the description, each of its port's bytes. An input
// that is nil is what the session's own memory of it has (Memory), which a run on an array may change or not. An output that is nil is
// not wanted. A state is set by its input, else it is what the last run left.
func (m *Model) Run(ctx context.Context, inputs, outputs [][]byte) error {
	if err := m.enter(); err != nil {
		return err
	}
	defer m.leave()
	if m.loop != nil {
		return fmt.Errorf("%s is open as a loop, whose steps fill its inputs: open it as a model to run it on inputs of your own", m.program.Model)
	}
	if err := fits("input", inputs, m.inputs); err != nil {
		return err
	}
	if err := fits("output", outputs, m.outputs); err != nil {
		return err
	}
	defer m.giveBack()
	for i, x := range inputs {
		switch q := &m.inputs[i]; {
		case x == nil:
		case q.here != nil && len(x) >= bindFrom:
			m.lent = append(m.lent, q.Name)
			if _, err := m.session.BindHostMemory(q.Name, x); err != nil {
				return err
			}
		case q.here != nil:
			copy(q.here, x)
		default:
			if err := m.session.Set(q.Name, x); err != nil {
				return err
			}
		}
	}
	if err := m.session.Run(ctx); err != nil {
		return detect.Explain(err)
	}
	for i, x := range outputs {
		switch q := &m.outputs[i]; {
		case x == nil:
		case q.here != nil:
			copy(x, q.here)
		default:
			if err := m.read(q, x); err != nil {
				return err
			}
		}
	}
	return nil
}

// bindFrom is the size from which an input is read in place, if the device can: copying a smaller one takes less
// time than changing an address in a graph.
const bindFrom = 64 << 10

// giveBack has the session read its own memory again in place of the caller's, of which nothing may be kept.
func (m *Model) giveBack() {
	for _, name := range m.lent {
		if _, err := m.session.BindHostMemory(name, nil); err != nil {
			m.lost = err // the caller's memory may still be read: nothing more runs
		}
	}
	m.lent = m.lent[:0]
}

// read reads the new value of a state.
func (m *Model) read(q *port, to []byte) error {
	if x := m.session.Output(q.Name); x != nil {
		copy(to, x)
		return nil
	}
	at, ok := m.session.Memory(true, q.Name)
	if !ok {
		return fmt.Errorf("no output %q", q.Name)
	}
	if err := at.Memory.Read(to, at.Offset); err != nil {
		return fmt.Errorf("output %q: %w", q.Name, err)
	}
	return nil
}

func fits(what string, arrays [][]byte, ports []port) error {
	if len(arrays) != len(ports) {
		return fmt.Errorf("%d arrays of %ss, the model has %d", len(arrays), what, len(ports))
	}
	for i, x := range arrays {
		if x != nil && len(x) != ports[i].bytes {
			return fmt.Errorf("%s %q has %d bytes, got %d", what, ports[i].Name, ports[i].bytes, len(x))
		}
	}
	return nil
}

// Sizes are the bytes of inputs and outputs. They never change.
func (m *Model) Sizes() (inputs, outputs []int) {
	for _, q := range m.inputs {
		inputs = append(inputs, q.bytes)
	}
	for _, q := range m.outputs {
		outputs = append(outputs, q.bytes)
	}
	return inputs, outputs
}

// Memory is the session's own memory of an input or output: an input may be written before a run and an output
// read after one, without a copy. It is nil for memory that the host cannot see and for states. It must not be
// used once the model is closed.
func (m *Model) Memory(output bool, index int) ([]byte, error) {
	if err := m.enter(); err != nil {
		return nil, err
	}
	defer m.leave()
	list := m.inputs
	if output {
		list = m.outputs
	}
	if index < 0 || index >= len(list) {
		return nil, fmt.Errorf("port %d: the model has %d", index, len(list))
	}
	if list[index].state {
		return nil, nil
	}
	return list[index].here, nil
}

// State is the current value of a state, by the name of its input: of one with a delay, the values that as many runs will read.
func (m *Model) State(name string) ([]byte, error) {
	if err := m.enter(); err != nil {
		return nil, err
	}
	defer m.leave()
	if err := m.known(name); err != nil {
		return nil, err
	}
	return m.session.State(name)
}

// SetState sets a state, by the name of its input.
func (m *Model) SetState(name string, data []byte) error {
	if err := m.enter(); err != nil {
		return err
	}
	defer m.leave()
	if err := m.known(name); err != nil {
		return err
	}
	return m.session.SetState(name, data)
}

func (m *Model) known(name string) error {
	var names []string
	for _, q := range m.inputs {
		if q.state {
			names = append(names, q.Name)
		}
	}
	switch {
	case slices.Contains(names, name):
		return nil
	case len(names) == 0:
		return fmt.Errorf("no state %q: %s keeps none", name, m.program.Model)
	}
	return fmt.Errorf("no state %q: %s keeps %q", name, m.program.Model, names)
}

// Reset makes every state zero: the next run is the first of a drive.
func (m *Model) Reset() error {
	if err := m.enter(); err != nil {
		return err
	}
	defer m.leave()
	if m.driving != nil {
		return m.driving.Reset()
	}
	for _, q := range m.inputs {
		if !q.state {
			continue
		}
		old, err := m.session.State(q.Name)
		if err != nil {
			return err
		}
		if err := m.session.SetState(q.Name, make([]byte, len(old))); err != nil {
			return err
		}
	}
	return nil
}
