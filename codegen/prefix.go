package codegen

import (
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// BatchPrefix computes inputs of an entry's graph in smaller micro-batches: where first layers have much larger
// values than later ones, L2 keeps those of few samples only, while later ones fill the device with many.
// Micro-batches of one size take 8 to 16 % longer a frame for driver monitoring at batches of 8 to 64, 9 to 19 % for
// vision, and as long for policy, which uses none (fp16, sm_121, predicted, 2026-11-29).
type BatchPrefix struct {
	Graph   *ir.Graph // of Regions; its outputs are called as the inputs that they are slices of, and its inputs as those of the entry
	Repeats int       // per repetition of the entry's graph, each on the next slices
}

// SlicesOf says how the value that a prefix computes for a slice of a batch lies in that of the whole: in so many
// pieces with a constant stride. It is an error unless the types differ along one axis, and there by a factor of
// repeats.
func SlicesOf(slice, whole ir.Type, repeats int) (pieces int, err error) {
	axis := 0
	for axis < min(slice.Rank(), whole.Rank()) && slice.Shape[axis] == whole.Shape[axis] {
		axis++
	}
	want := slice.Clone()
	if axis < slice.Rank() {
		want.Shape[axis] *= repeats
	}
	if !want.Equal(whole) || axis == slice.Rank() {
		return 0, fmt.Errorf("%v is not one of %d slices of %v", slice, repeats, whole)
	}
	pieces = 1
	for _, n := range slice.Shape[:axis] {
		pieces *= n
	}
	return pieces, nil
}

// lowerPrefix makes the launches of the entry's batch prefix, once.
func (l *list) lowerPrefix(e Entry) error {
	f := e.Prefix
	for _, k := range e.States {
		if slices.ContainsFunc(f.Graph.Inputs, func(v *ir.Value) bool { return v.Name == k.Input }) {
			return fmt.Errorf("it reads %q, which later launches may change: leave states to the entry's graph", k.Input)
		}
	}
	p := &placer{buffers: l.driver.buffers, places: map[*ir.Value]place{}, joined: map[string]*storage{}}
	for _, in := range f.Graph.Inputs {
		s, err := p.slices("input", in.Name, runtime.InputBuffer, in.Type.Bytes()*f.Repeats, e.repeats())
		if err != nil {
			return err
		}
		s.prefixStride = in.Type.Bytes()
		p.places[in] = place{s, 0}
	}
	var outputs []place
	var copies []copyNeed
	for _, out := range f.Graph.Outputs {
		at := slices.IndexFunc(e.Graph.Inputs, func(v *ir.Value) bool { return v.Name == out.Name })
		if at < 0 {
			return fmt.Errorf("the entry's graph has no input %q", out.Name)
		}
		whole := e.Graph.Inputs[at].Type
		pieces, err := SlicesOf(out.Type, whole, f.Repeats)
		if err != nil {
			return fmt.Errorf("%q: %w", out.Name, err)
		}
		join, bytes := p.storage(out.Name, runtime.ArenaBuffer, whole.Bytes()), out.Type.Bytes()/pieces
		join.prefixStride = bytes
		p.joined[out.Name] = join
		own := place{join, 0}
		if pieces > 1 {
			own.at = p.storage(out.Name+"#slice", runtime.ArenaBuffer, out.Type.Bytes())
			for i := range pieces {
				copies = append(copies, copyNeed{src: place{own.at, i * bytes}, dst: place{join, i * bytes * f.Repeats}, bytes: bytes, what: "slice of " + out.Name})
			}
		}
		outputs = append(outputs, own)
	}
	if err := p.placeGraph(f.Graph, outputs); err != nil {
		return err
	}
	l.placer, l.before = p, p.places
	if err := l.lowerGraph(f.Graph); err != nil {
		return err
	}
	for _, c := range copies {
		l.emitCopy(c)
	}
	l.prefixLaunches, l.prefixRepeats = len(l.pending), f.Repeats
	return nil
}

// shifted are the launches of one repetition, moved to the slices of another: of the list, and within it of its
// prefix.
func shifted(list []launch, repetition, prefix int) (out []launch) {
	by := func(s *storage) int { return repetition*s.advance() + prefix*s.prefixStride }
	for _, p := range list {
		p.params, p.reads, p.writes = slices.Clone(p.params), slices.Clone(p.reads), slices.Clone(p.writes)
		for i, q := range p.params {
			if q.at != nil {
				p.params[i].offset += by(q.at)
			}
		}
		for _, spans := range [][]span{p.reads, p.writes} {
			for i, s := range spans {
				spans[i].offset += by(s.at)
			}
		}
		out = append(out, p)
	}
	return out
}

// repeat makes the repetitions of the launches, each on the next slices. They share the arena, so hazards order them.
func (l *list) repeat() {
	prefix, rest := l.pending[:l.prefixLaunches], l.pending[l.prefixLaunches:]
	var all []launch
	for r := range l.repeats {
		for f := range l.prefixRepeats {
			all = append(all, shifted(prefix, r, f)...)
		}
		all = append(all, shifted(rest, r, 0)...)
	}
	l.pending = all
}

// once are the launches of the first repetition.
func (l *list) once() []launch { return l.pending[:len(l.pending)/l.repeats] }
