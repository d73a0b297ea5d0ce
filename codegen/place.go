package codegen

import (
	"fmt"

	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// storage is a buffer before it has an index.
type storage struct {
	name         string
	kind         runtime.BufferKind
	bytes        int
	slice        int      // bytes of a port that each repetition of the launch list goes on by; 0: all use the same
	prefixStride int      // bytes between repetitions of a batch prefix; 0: all use the same
	data         []byte   // of a constant, and a variable's initial value
	index        int      // in Variant.Buffers, once it is there; -1 before
	into         *storage // that has the same bytes: the state of which this is the new value
}

// buffers of all entries, in the order in which they were made.
type buffers struct {
	all   []*storage
	ports map[string]*storage // by "input NAME" and "output NAME"
}

// place is where a value's bytes begin, in the first repetition of the launch list.
type place struct {
	at     *storage
	offset int
}

// advance is how many bytes each repetition goes on by.
func (s *storage) advance() int {
	if s.into != nil {
		return s.into.slice
	}
	return s.slice
}

// joins reports whether slices of a batch prefix are joined there.
func (s *storage) joins() bool { return s.kind == runtime.ArenaBuffer && s.prefixStride > 0 }

// copyNeed is a view that aliasing cannot express: its bytes must be copied once src is computed.
type copyNeed struct {
	src, dst place
	bytes    int
	view     *ir.Node // the view that needs it; nil: an output, copied at the end
	what     string
}

// placer decides for each value where it lives. Values are written once, so aliasing is safe wherever bytes coincide.
type placer struct {
	*buffers
	places   map[*ir.Value]place
	copies   []copyNeed
	feedback []feedback
	joined   map[string]*storage // what a batch prefix computes, by name
}

// feedback is the storage of a state binding's input, and the one in which a run leaves its new value.
type feedback struct{ old, next *storage }

func (b *buffers) storage(name string, kind runtime.BufferKind, bytes int) *storage {
	s := &storage{name: name, kind: kind, bytes: bytes, index: -1}
	b.all = append(b.all, s)
	return s
}

// port is the storage of an input or output, which all entries that have one of that name share.
func (b *buffers) port(side, name string, kind runtime.BufferKind, bytes int) (*storage, error) {
	key := side + " " + name
	s := b.ports[key]
	switch {
	case s == nil:
		s = b.storage(name, kind, bytes)
		b.ports[key] = s
	case s.kind != kind || s.bytes != bytes:
		return nil, fmt.Errorf("%s %q is a buffer of kind %s of %d bytes, but in another entry of kind %s of %d bytes: give them different names", side, name, kind, bytes, s.kind, s.bytes)
	}
	return s, nil
}

// slices is a port of which each repetition of a launch list has a slice.
func (b *buffers) slices(side, name string, kind runtime.BufferKind, bytes, repeats int) (*storage, error) {
	s, err := b.port(side, name, kind, bytes*repeats)
	if err == nil && repeats > 1 {
		s.slice = bytes
	}
	return s, err
}

// placePorts places inputs and outputs. An output is separate from the state binding's input whose new value it is.
func (p *placer) placePorts(e Entry) (outputs []place, err error) {
	kept := map[string]*StateBinding{} // by input and by output
	for i, k := range e.States {
		kept["input "+k.Input], kept["output "+k.Output] = &e.States[i], &e.States[i]
	}
	for _, in := range e.Graph.Inputs {
		if s := p.joined[in.Name]; s != nil {
			p.places[in] = place{s, 0}
			continue
		}
		kind, k := runtime.InputBuffer, kept["input "+in.Name]
		switch {
		case k != nil && k.Initial != nil:
			kind = runtime.VariableBuffer
		case k != nil:
			kind = runtime.StateBuffer
		}
		if kind == runtime.VariableBuffer && e.repeats() > 1 {
			return nil, fmt.Errorf("input %q is a variable, which all samples share, so no repetition has a slice of it: compile the whole batch as one", in.Name)
		}
		s, err := p.slices("input", in.Name, kind, in.Type.Bytes(), e.repeats())
		if err != nil {
			return nil, err
		}
		if k != nil {
			s.data = k.Initial
		}
		p.places[in] = place{s, 0}
	}
	for _, out := range e.Graph.Outputs {
		k, bytes := kept["output "+out.Name], out.Type.Bytes()
		var s *storage
		if k == nil {
			s, err = p.slices("output", out.Name, runtime.OutputBuffer, bytes, e.repeats())
		} else {
			s, err = p.next(*k, bytes, e.repeats())
		}
		if err != nil {
			return nil, err
		}
		outputs = append(outputs, place{s, 0})
	}
	return outputs, nil
}

// next is where an entry leaves the new value of a state binding, or of a slice of it.
func (p *placer) next(k StateBinding, bytes, repeats int) (*storage, error) {
	old := p.ports["input "+k.Input]
	if old == nil || old.bytes != bytes*repeats {
		return nil, fmt.Errorf("output %q of %d bytes cannot be the new value of %q, which is not an input of that size: give both the same type and shape", k.Output, bytes, k.Input)
	}
	key := "output " + k.Output
	if k.Delay > 1 { // old values lie elsewhere: the session lets buffers take turns
		return p.slices("output", k.Output, runtime.StateBuffer, bytes, repeats)
	}
	if s := p.ports[key]; s != nil && s != old {
		return nil, fmt.Errorf("output %q is the new value of %q, but not in another entry: give them different names", k.Output, k.Input)
	}
	p.ports[key] = old
	s := p.storage(k.Output, runtime.ArenaBuffer, bytes)
	p.feedback = append(p.feedback, feedback{old, s})
	return s, nil
}

// placeValues places the values of an entry's graph; joined is what its batch prefix computes.
func placeValues(e Entry, b *buffers, joined map[string]*storage) (*placer, error) {
	p := &placer{buffers: b, places: map[*ir.Value]place{}, joined: joined}
	outputs, err := p.placePorts(e)
	if err != nil {
		return nil, err
	}
	return p, p.placeGraph(e.Graph, outputs)
}

// placeGraph runs once backwards, so that outputs and concatenations claim their producers, and once forwards.
func (p *placer) placeGraph(g *ir.Graph, outputs []place) error {
	for i, out := range g.Outputs {
		p.claim(out, outputs[i])
	}
	for i := len(g.Nodes) - 1; i >= 0; i-- {
		if err := p.backward(g.Nodes[i]); err != nil {
			return err
		}
	}
	for _, n := range g.Nodes {
		if err := p.forward(n); err != nil {
			return err
		}
	}
	for i, out := range g.Outputs {
		if p.places[out] == outputs[i] {
			continue
		}
		src, err := p.of(out)
		if err != nil {
			return err
		}
		p.copies = append(p.copies, copyNeed{src: src, dst: outputs[i], bytes: out.Type.Bytes(), what: "output " + out.Name})
	}
	return nil
}

// claim asks that a node's output live at a place; the first claim wins.
func (p *placer) claim(v *ir.Value, at place) bool {
	if v.Def == nil {
		return false
	}
	if _, taken := p.places[v]; taken {
		return false
	}
	p.places[v] = at
	return true
}

func isView(n *ir.Node) bool { return n.IsFamily(ir.FamilyView) }

// backward hands a view's place on to what it views, where all bytes of the operand fit.
func (p *placer) backward(n *ir.Node) error {
	if !isView(n) {
		return nil
	}
	views, err := viewParts(n)
	if err != nil {
		return err
	}
	for k, out := range n.Outputs {
		at, placed := p.places[out]
		if !placed {
			if len(views[k]) == 1 {
				continue
			}
			at = place{p.storage(out.Name, runtime.ArenaBuffer, out.Type.Bytes()), 0}
			p.places[out] = at
		}
		for _, part := range views[k] {
			if part.source.Type.Bytes() == part.bytes && part.from == 0 {
				p.claim(part.source, place{at.at, at.offset + part.to})
			}
		}
	}
	return nil
}

// forward fixes every output, and notes copies where a view's operand lives elsewhere.
func (p *placer) forward(n *ir.Node) error {
	if !isView(n) {
		for _, out := range n.Outputs {
			if _, ok := p.places[out]; !ok {
				p.places[out] = place{p.storage(out.Name, runtime.ArenaBuffer, out.Type.Bytes()), 0}
			}
		}
		return nil
	}
	views, err := viewParts(n)
	if err != nil {
		return err
	}
	for k, out := range n.Outputs {
		if err := p.view(n, out, views[k]); err != nil {
			return err
		}
	}
	return nil
}

// view places an output of a view, unless backward has.
func (p *placer) view(n *ir.Node, out *ir.Value, parts []viewPart) error {
	at, placed := p.places[out]
	if !placed { // one part: an alias
		src, err := p.of(parts[0].source)
		if err != nil {
			return err
		}
		p.places[out] = place{src.at, src.offset + parts[0].from}
		return nil
	}
	for _, part := range parts {
		src, err := p.of(part.source)
		if err != nil {
			return err
		}
		from, to := place{src.at, src.offset + part.from}, place{at.at, at.offset + part.to}
		if from != to && part.bytes > 0 {
			p.copies = append(p.copies, copyNeed{src: from, dst: to, bytes: part.bytes, view: n, what: "view " + n.Name})
		}
	}
	return nil
}

// of returns where a value lives; constants have their place given when they are first seen.
func (p *placer) of(v *ir.Value) (place, error) {
	if at, ok := p.places[v]; ok {
		return at, nil
	}
	if v.IsConst() {
		s := p.storage(v.Name, runtime.ConstantBuffer, v.Type.Bytes())
		s.data = v.Const.Dense()
		at := place{s, 0}
		p.places[v] = at
		return at, nil
	}
	return place{}, fmt.Errorf("value %q has no place: this is a bug in the code generator, please report it", v.Name)
}

// viewPart says that bytes of source from an offset are the view's bytes at another.
type viewPart struct {
	source          *ir.Value // of the graph, not of the body
	from, to, bytes int
}

// viewParts reads the outputs of a view region, which the verifier has checked to be views: a chain of nodes that
// rename or cut the bytes of one input, or one Concat.
func viewParts(n *ir.Node) ([][]viewPart, error) {
	stored, err := n.Explicit()
	if err != nil {
		return nil, fmt.Errorf("view %q: %w", n.Name, err)
	}
	outer := map[*ir.Value]*ir.Value{}
	for i, in := range stored.Region.Body.Inputs {
		outer[in] = n.Inputs[i]
	}
	var views [][]viewPart
	for _, v := range stored.Region.Body.Outputs {
		views = append(views, partsOf(v, outer))
	}
	return views, nil
}

func partsOf(v *ir.Value, outer map[*ir.Value]*ir.Value) []viewPart {
	if src, ok := outer[v]; ok {
		return []viewPart{{source: src, bytes: v.Type.Bytes()}}
	}
	n := v.Def
	parts := partsOf(n.Inputs[0], outer)
	switch n.Op.Name {
	case "Concat":
		at := n.Inputs[0].Type.Bytes()
		for _, in := range n.Inputs[1:] {
			part := partsOf(in, outer)[0]
			part.to = at
			parts = append(parts, part)
			at += in.Type.Bytes()
		}
	case "Slice":
		from, _ := n.SliceOffset()
		parts[0].from += from * v.Type.DType.Bits() / 8
		parts[0].bytes = v.Type.Bytes()
	}
	return parts
}

// align is the alignment that a place guarantees, in every repetition.
func (p place) align() int {
	a := alignment
	for p.offset%a != 0 || p.at.advance()%a != 0 || p.at.prefixStride%a != 0 {
		a /= 2
	}
	return a
}
