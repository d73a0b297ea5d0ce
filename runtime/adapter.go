package runtime

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/adapterfile"
)

// What a program whose adapter is left open has.
const (
	AdapterInput = "adapter_slot" // i32: the slot that a run takes; a program with one slot has no such input
	AdapterState = "adapter"      // f32 [slots, size]
	AdapterGains = "adapter.gain" // f32 [slots, rows]: m/‖V‖ - 1 of every row, so that a slot of zeros changes nothing
	AdapterEntry = "prepare"      // computes the gains of a slot
)

// Adapters says that a program's adapter is left open: a session loads files into slots and chooses one for each run.
type Adapters struct {
	Base    string         `json:"base"`             // fingerprint of the model: SHA-256 of its file
	Storage string         `json:"beside,omitempty"` // how its weights are stored, rounded; "": as in the file, or in the precision
	Slots   int            `json:"slots"`
	Size    int            `json:"size"` // numbers of a slot
	Layers  []AdapterLayer `json:"layers"`
}

// AdapterLayer is a layer that takes an adapter, and where its tensors lie in a slot: A [Rank, Row], B [Out, Rank/Group] with the
// scale in it, M [Out], which is infinite where an adapter leaves the layer's norms alone. Rank 0: there is only M.
type AdapterLayer struct {
	adapterfile.Layer
	Rank int `json:"rank,omitempty"`
	A    int `json:"a,omitempty"`
	B    int `json:"b,omitempty"`
	M    int `json:"m"`
}

func (a *Adapters) validate(p *Program) error {
	if a.Slots < 1 || a.Size < 1 || a.Size > math.MaxInt32/a.Slots {
		return fmt.Errorf("adapters: %d slots of %d numbers", a.Slots, a.Size)
	}
	for _, l := range a.Layers {
		inside := func(at, n int) bool { return at >= 0 && n >= 0 && n <= a.Size && at <= a.Size-n }
		if l.Out < 1 || l.Row < 1 || l.Group < 1 || l.Out > a.Size || l.Row > math.MaxInt32 || l.Rank < 0 || l.Rank%l.Group != 0 || l.Rank > a.Size ||
			!inside(l.M, l.Out) || !inside(l.A, l.Rank*l.Row) || !inside(l.B, l.Out*(l.Rank/l.Group)) || slices.ContainsFunc(l.Taps, func(t int) bool { return t < 1 }) {
			return fmt.Errorf("adapters: layer %q does not lie in a slot of %d numbers", l.Module, a.Size)
		}
	}
	for i := range p.Variants {
		v := &p.Variants[i]
		has := slices.ContainsFunc(v.Buffers, func(b Buffer) bool {
			return b.Name == AdapterState && b.Kind == StateBuffer && b.Bytes == 4*a.Size*a.Slots
		})
		if !has || v.Entry(AdapterEntry) == nil {
			return fmt.Errorf("adapters: variant %s has no state %s of their size, or no entry %s", v.Target, AdapterState, AdapterEntry)
		}
	}
	return nil
}

// keeps reports whether a state is one of the adapters'.
func (a *Adapters) keeps(state string) bool {
	return a != nil && (state == AdapterState || state == AdapterGains)
}

// LoadAdapter reads an adapter's file, as spark-dora or PEFT writes it, into a slot, counted from 0. It copies the adapter to
// the device, none of the model's weights, and computes what runs need of it. An adapter of another base is refused, and one
// whose rank is above what slots take.
func (s *Session) LoadAdapter(ctx context.Context, slot int, path string) error {
	a, err := s.adapters(slot)
	if err != nil {
		return err
	}
	m := adapterfile.Model{Name: s.model.Program.Model, Base: a.Base}
	for i := range a.Layers {
		m.Layers = append(m.Layers, &a.Layers[i].Layer)
	}
	f, err := adapterfile.Read(path, m)
	if err != nil {
		return err
	}
	x := make([]float32, a.Size)
	for i := range a.Layers {
		l := &a.Layers[i]
		var part *adapterfile.Part
		for _, e := range f.Entries {
			if e.Module == l.Module {
				part = e.Part
			}
		}
		if err := l.place(x, part, a.Storage); err != nil {
			return fmt.Errorf("%s: layer %q: %w", path, l.Module, err)
		}
	}
	return s.setAdapter(ctx, slot, x)
}

// UnloadAdapter empties a slot: runs that take it compute what the model does.
func (s *Session) UnloadAdapter(ctx context.Context, slot int) error {
	a, err := s.adapters(slot)
	if err != nil {
		return err
	}
	x := make([]float32, a.Size)
	for i := range a.Layers {
		if err := a.Layers[i].place(x, nil, a.Storage); err != nil {
			return err
		}
	}
	return s.setAdapter(ctx, slot, x)
}

// UseAdapter chooses the slot that the following runs take. At first that is 0.
func (s *Session) UseAdapter(slot int) error {
	a, err := s.adapters(slot)
	if err != nil || a.Slots == 1 {
		return err
	}
	return s.Set(AdapterInput, binary.LittleEndian.AppendUint32(nil, uint32(slot)))
}

// adapters are those of the program, if it has that slot.
func (s *Session) adapters(slot int) (*Adapters, error) {
	if s.entries == nil {
		return nil, errClosed
	}
	a := s.model.Program.Adapters
	switch {
	case a == nil:
		return nil, fmt.Errorf("%s: the program takes no adapters: compile it with --adapter-slots", s.model.Program.Model)
	case slot < 0 || slot >= a.Slots:
		return nil, fmt.Errorf("%s: adapter slot %d: there are %d, counted from 0", s.model.Program.Model, slot, a.Slots)
	}
	return a, nil
}

// setAdapter writes a slot and computes its gains.
func (s *Session) setAdapter(ctx context.Context, slot int, x []float32) error {
	if err := errors.Join(s.wait(ctx), ctx.Err()); err != nil {
		return err
	}
	p, err := s.state(AdapterState)
	if err != nil {
		return err
	}
	if err := p.memory.Write(Bytes(x), p.offset+4*len(x)*slot); err != nil {
		return err
	}
	in := s.Input(AdapterInput)
	if in == nil {
		return s.RunEntry(ctx, AdapterEntry)
	}
	chosen := slices.Clone(in)
	back := func() { copy(in, chosen) }
	if err := s.UseAdapter(slot); err != nil {
		return err
	}
	err = s.RunEntry(ctx, AdapterEntry)
	if errors.Is(err, hal.ErrBusy) { // it reads the slot as long as it goes on
		s.atEnd = back
	} else {
		back()
	}
	return err
}

// place puts the layer's part of an adapter, nil if it has none, into a slot of zeros. base is how the program
// rounds weights: an adapter trained with rounded weights corrects their errors, so it needs the same ones. One
// trained with the file's own weights fits any.
func (l *AdapterLayer) place(x []float32, p *adapterfile.Part, base string) error {
	m := x[l.M : l.M+l.Out]
	for o := range m {
		m[o] = float32(math.Inf(1))
	}
	if p == nil {
		return nil
	}
	if p.Rank > l.Rank {
		return fmt.Errorf("rank %d, and the program's slots take up to %d: compile the adapter into the model with --adapter", p.Rank, l.Rank)
	}
	copy(m, p.M)
	if p.Base != "" && p.Base != base {
		have := "has the file's"
		if base != "" {
			have = "has them in " + base
		}
		storage, _, fitted := strings.Cut(p.Base, ":")
		if fitted {
			storage += " and --calibrate with the inputs of then"
		}
		return fmt.Errorf("it was trained with weights rounded to %s, and the program %s: compile with --adapter-base %s, or the adapter into the model with --adapter", p.Base, have, storage)
	}
	// Ranks of a group that the adapter lacks stay zero.
	have, rank, s := p.Rank/l.Group, l.Rank/l.Group, p.Scale()
	for g := range l.Group {
		copy(x[l.A+g*rank*l.Row:], p.A[g*have*l.Row:(g+1)*have*l.Row])
	}
	for o := range l.Out {
		for k := range have {
			x[l.B+o*rank+k] = float32(s * float64(p.B[o*have+k]))
		}
	}
	return nil
}
