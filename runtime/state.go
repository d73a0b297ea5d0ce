package runtime

import (
	"fmt"
	"io"
	"slices"
)

// state is the pair of a kept input, or nil.
func (p *Program) state(input string) *State {
	for i := range p.States {
		if p.States[i].Input == input {
			return &p.States[i]
		}
	}
	return nil
}

// delayed reports whether an output is the new value of a state with a delay.
func (p *Program) delayed(output string) bool {
	return slices.ContainsFunc(p.States, func(s State) bool { return s.Delay > 1 && s.Output == output })
}

// SetState writes a state or variable, which otherwise keeps what the last run left there. Its name is the buffer's, which is
// the input's for a state of the model. It is hal.ErrBusy while the device runs on after the context of a run has ended, and writes
// nothing but says so, once, where that run has failed. Of a state with a delay, data are the value that the next run reads, or those of all runs that
// read what is there already, the next one's first.
func (s *Session) SetState(name string, data []byte) error {
	p, err := s.state(name)
	if err != nil {
		return err
	}
	if p.ring != nil {
		return p.ring.write(name, data)
	}
	if len(data) != p.size {
		return fmt.Errorf("state %q has %d bytes, got %d", name, p.size, len(data))
	}
	return p.memory.Write(data, p.offset)
}

// State reads the current value of a state or variable. It is hal.ErrBusy while the device runs on after the context of a run has
// ended, and says so, once, where that run has failed: nobody knows what it left. Of a state with a delay it is the values that as many runs will
// read, the next one's first.
func (s *Session) State(name string) ([]byte, error) {
	p, err := s.state(name)
	if err != nil {
		return nil, err
	}
	if p.ring != nil {
		return p.ring.read()
	}
	data := make([]byte, p.size)
	return data, p.memory.Read(data, p.offset)
}

func (s *Session) state(name string) (*port, error) {
	if s.entries == nil {
		return nil, errClosed
	}
	p := s.kept[name]
	if p == nil {
		return nil, fmt.Errorf("no state %q", name)
	}
	if err := s.wait(over); err != nil { // an abandoned run is still going, or has failed
		return nil, err
	}
	return p, nil
}

// Save writes the weights file with the current value of every variable: sessions of the program with that file start from
// there.
func (s *Session) Save(w io.Writer) error {
	weights := slices.Clone(s.model.Program.Weights)
	for _, b := range s.model.Variant.Buffers {
		if b.Kind != VariableBuffer {
			continue
		}
		data, err := s.State(b.Name)
		if err != nil {
			return err
		}
		copy(weights[b.Offset:], data)
	}
	_, err := w.Write(weights)
	return err
}
