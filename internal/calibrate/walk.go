package calibrate

import (
	"context"
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/internal/parallel"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

// step is one region, split after its anchor so that weights can be fitted to the anchor's outputs.
type step struct {
	node     *ir.Node
	site     *passes.Site // nil: no weights to quantise
	channels int          // of the anchor's output; 0: the region is not cut
	axis     int          // of the channels, members included
	product  *product     // computes the anchor of a site; nil: head does
	weights  *ir.Tensor   // of the anchor, instead of the region's; nil: those
	operand  *ir.Node     // inputs → what the anchor multiplies, of a site; nil: one of the inputs as it is
	head     *ir.Node     // inputs → anchor's output
	tail     *ir.Node     // inputs and the anchor's output → outputs
	ending   ending       // does what the tail does; nil: only its kernel can
}

func newStep(n *ir.Node) (*step, error) {
	s := &step{node: n}
	if site, ok := passes.SiteOf(n); ok {
		s.site = &site
	}
	a := n.Region.Anchor()
	if a == nil {
		return s, nil
	}
	weights, ok := a.Weights()
	if out := a.Outputs[0].Type; !ok || weights.RowAxis > 0 || out.DType != ir.Float32 || out.Numel() == 0 {
		return s, nil
	}
	s.channels = weights.Outputs()
	s.axis = a.ChannelAxis()
	if n.Region.Members > 0 {
		s.axis++
	}
	var err error
	if s.head, err = upTo(n, a.Outputs[0]); err != nil {
		return nil, err
	}
	if s.tail, err = from(n, a.Outputs[0], s.head.Outputs[0]); err != nil {
		return nil, err
	}
	s.ending = endingOf(s.tail)
	if s.site == nil {
		return s, nil
	}
	s.product = productOf(s.site)
	if !s.site.Direct {
		s.operand, err = upTo(n, a.Inputs[0])
	}
	return s, err
}

// upTo is the region that computes a value of n's body.
func upTo(n *ir.Node, v *ir.Value) (*ir.Node, error) {
	r, to := n.Region.CloneMapped()
	r.Body.Outputs, r.Results = []*ir.Value{to[v]}, []ir.Storage{{DType: v.Type.DType}}
	r.Body.RemoveDead()
	return ir.NewGraph("").RegionNode(n.Name, r, n.Inputs...)
}

// from is the region that computes n's outputs from its inputs and a value of its body, which outer is outside.
func from(n *ir.Node, v, outer *ir.Value) (*ir.Node, error) {
	r, to := n.Region.CloneMapped()
	in := r.Body.AddInput("anchor", v.Type)
	r.Body.ReplaceAll(to[v], in)
	r.Body.RemoveDead()
	r.Operands = append(r.Operands, ir.Operand{Batched: r.Members > 0, Storage: ir.Storage{DType: v.Type.DType}})
	return ir.NewGraph("").RegionNode(n.Name, r, append(slices.Clone(n.Inputs), outer)...)
}

// withConst is a region that reads another constant as an operand.
func withConst(n *ir.Node, operand int, t *ir.Tensor) *ir.Node {
	c := *n
	c.Inputs = slices.Clone(n.Inputs)
	c.Inputs[operand] = &ir.Value{Name: n.Inputs[operand].Name, Type: t.Type, Const: t}
	return &c
}

// lane holds the values of one version of the graph, exact or quantised, on every input.
type lane struct {
	values map[*ir.Value][]*ir.Tensor
}

// lane begins a version of the graph on the first inputs.
func (w *walk) lane(inputs int) *lane {
	l := &lane{map[*ir.Value][]*ir.Tensor{}}
	for v, all := range w.given {
		l.values[v] = all[:inputs]
	}
	return l
}

// all are the operands of a node on inputs from to to; nil stands for constants.
func (l *lane) all(n *ir.Node, from, to int) [][]*ir.Tensor {
	out := make([][]*ir.Tensor, to-from)
	for at := range out {
		out[at] = make([]*ir.Tensor, len(n.Inputs))
		for i, v := range n.Inputs {
			if !v.IsConst() {
				out[at][i] = l.values[v][from+at]
			}
		}
	}
	return out
}

// same reports whether a node reads the same tensors in two lanes.
func (l *lane) same(m *lane, n *ir.Node) bool {
	for _, v := range n.Inputs {
		if !v.IsConst() && !slices.Equal(l.values[v], m.values[v]) {
			return false
		}
	}
	return true
}

// copies are tensors that may be changed.
func copies(outs [][]*ir.Tensor, pool *BufferPool) [][]*ir.Tensor {
	to := make([][]*ir.Tensor, len(outs))
	for at, row := range outs {
		for _, t := range row {
			to[at] = append(to[at], pool.copied(t))
		}
	}
	return to
}

// column is every input's arrays of one node input or output.
func column(of [][]*ir.Tensor, i int) []*ir.Tensor {
	out := make([]*ir.Tensor, len(of))
	for at := range of {
		out[at] = of[at][i]
	}
	return out
}

// Evaluator computes regions of f32.
type Evaluator interface {
	// Evaluate yields the outputs of a region for the operands of each input; those of constants are not read. Tensors are
	// dense. The outputs may be made in a room. They are the caller's, who may change them, but those of a region of views, which may share
	// operands.
	Evaluate(ctx context.Context, n *ir.Node, in [][]*ir.Tensor, pool *BufferPool) ([][]*ir.Tensor, error)
	// Keep says that regions will be evaluated again and again, or that what they needed can go once they were.
	Keep(again bool) error
}

// Reference evaluates regions in float64, and rounds their outputs to their types.
type Reference struct{}

// Keep implements Evaluator.
func (Reference) Keep(bool) error { return nil }

// Evaluate implements Evaluator by the reference evaluator.
func (Reference) Evaluate(ctx context.Context, n *ir.Node, in [][]*ir.Tensor, _ *BufferPool) ([][]*ir.Tensor, error) {
	consts := make([]*ir.Array, len(n.Inputs))
	for i, v := range n.Inputs {
		if v.IsConst() {
			consts[i] = v.Const.Array()
		}
	}
	outs := make([][]*ir.Tensor, len(in))
	for at := range in {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		operands := slices.Clone(consts)
		for i, t := range in[at] {
			if operands[i] == nil {
				operands[i] = t.Array()
			}
		}
		arrays, err := ir.EvaluateNode(n, operands)
		if err != nil {
			return nil, err
		}
		for _, a := range arrays {
			outs[at] = append(outs[at], a.Tensor())
		}
	}
	return outs, nil
}

// evaluate runs a region. Its anchor, if it is cut there, may see other operands than the rest.
func evaluate(ctx context.Context, e Evaluator, s *step, anchorIn, in [][]*ir.Tensor, pool *BufferPool) ([][]*ir.Tensor, error) {
	if s.head == nil {
		return e.Evaluate(ctx, s.node, in, pool)
	}
	anchors, err := s.anchors(ctx, e, anchorIn, pool)
	if err != nil {
		return nil, err
	}
	return s.finish(ctx, e, in, anchors, 0, pool)
}

// finish computes a step's outputs from its anchor's outputs, or returns those if nothing follows the anchor. It
// may reuse or free their memory, except for the first keep of them.
func (s *step) finish(ctx context.Context, e Evaluator, in [][]*ir.Tensor, anchors []*ir.Tensor, keep int, pool *BufferPool) (outs [][]*ir.Tensor, err error) {
	if s.ending != nil {
		outs = make([][]*ir.Tensor, len(anchors))
		t := s.node.Outputs[0].Type
		parallel.For(len(anchors), func(at int) {
			to := &ir.Tensor{Type: t, Data: anchors[at].Data}
			if at < keep && len(s.ending) > 0 {
				to.Data = slices.Clone(to.Data)
			}
			s.ending.of(floats(to), s.node, in[at])
			outs[at] = []*ir.Tensor{to}
		})
		return outs, nil
	}
	operands := make([][]*ir.Tensor, len(in))
	for at, a := range anchors {
		operands[at] = append(slices.Clip(in[at]), a)
	}
	outs, err = e.Evaluate(ctx, s.tail, operands, pool)
	pool.Give(anchors[keep:])
	return outs, err
}

// anchors is what the anchor of a step that is cut there yields, by input.
func (s *step) anchors(ctx context.Context, e Evaluator, in [][]*ir.Tensor, pool *BufferPool) ([]*ir.Tensor, error) {
	if s.product == nil {
		head := s.head
		if s.weights != nil {
			head = withConst(head, s.site.Weight, s.weights)
		}
		out, err := e.Evaluate(ctx, head, in, pool)
		return column(out, 0), err
	}
	x, err := s.multiplied(ctx, e, in, pool)
	if err != nil {
		return nil, err
	}
	w := s.weights
	if w == nil {
		w = s.site.Weights().Const
	}
	out := s.product.of(ctx, x, w, pool)
	if !s.site.Direct {
		pool.Give(x)
	}
	return out, ctx.Err()
}

// multiplied is what the anchor of a site multiplies, by input.
func (s *step) multiplied(ctx context.Context, e Evaluator, in [][]*ir.Tensor, pool *BufferPool) ([]*ir.Tensor, error) {
	if s.site.Direct {
		out := column(in, s.site.X)
		for at, t := range out {
			out[at] = asFloats(t)
		}
		return out, nil
	}
	out, err := e.Evaluate(ctx, s.operand, in, pool)
	return column(out, 0), err
}

// with is a step with other weights.
func (s *step) with(weights *ir.Tensor) *step {
	out := *s
	out.weights = weights
	return &out
}

// release forgets the values that nothing reads after step i. The tensors of all but the first inputs, which something else may keep, make
// room for others.
func (l *lane) release(w *walk, i, keep int, pool *BufferPool) {
	for _, v := range w.done(i) {
		if w.own[v] && len(l.values[v]) > keep {
			pool.Give(l.values[v][keep:])
		}
		delete(l.values, v)
	}
}

// walk visits the regions of a graph in order.
type walk struct {
	g      *ir.Graph
	steps  []*step
	last   map[*ir.Value]int // step after which nothing reads a value
	inputs int
	given  map[*ir.Value][]*ir.Tensor // the inputs
	own    map[*ir.Value]bool         // no view shares its memory, nor is it given
}

func newWalk(g *ir.Graph, inputs []map[string]*ir.Array) (*walk, error) {
	w := &walk{g: g, inputs: len(inputs), last: map[*ir.Value]int{}, given: map[*ir.Value][]*ir.Tensor{}, own: map[*ir.Value]bool{}}
	for _, v := range g.Inputs {
		for _, in := range inputs {
			w.given[v] = append(w.given[v], in[v.Name].As(v.Type.DType).Tensor())
		}
	}
	for i, n := range g.Nodes {
		s, err := newStep(n)
		if err != nil {
			return nil, fmt.Errorf("region %q: %w", n.Name, err)
		}
		w.steps = append(w.steps, s)
		view := n.IsFamily(ir.FamilyView)
		for _, v := range n.Inputs {
			w.last[v] = i
			w.own[v] = w.own[v] && !view
		}
		for _, v := range n.Outputs {
			w.own[v] = !view
		}
	}
	for _, v := range g.Outputs {
		w.last[v] = len(g.Nodes)
	}
	return w, nil
}

// done are the values that are last read by step i.
func (w *walk) done(i int) []*ir.Value {
	var out []*ir.Value
	for _, v := range w.steps[i].node.Inputs {
		if w.last[v] == i {
			out = append(out, v)
		}
	}
	return out
}

func (l *lane) put(n *ir.Node, outs [][]*ir.Tensor) {
	for k, v := range n.Outputs {
		l.values[v] = column(outs, k)
	}
}

// exactRun keeps what the exact graph computes on the first inputs: alone reads it again and again.
type exactRun struct {
	inputs int
	acc    [][]*ir.Tensor   // by step: the anchor's output
	outs   [][][]*ir.Tensor // by step and input
}

// newExactRun keeps one input, or none where one fit is all.
func newExactRun(w *walk, several bool) *exactRun {
	m := &exactRun{0, make([][]*ir.Tensor, len(w.steps)), make([][][]*ir.Tensor, len(w.steps))}
	if several {
		m.inputs = 1
	}
	return m
}

// exactStep evaluates step i of the exact graph on the first inputs, and returns its outputs by input. If the step
// is split after its anchor and with is not nil, with sees the anchor's outputs, which it must not retain.
func (c *Calibration) exactStep(ctx context.Context, i, inputs int, l *lane, with func(acc []*ir.Tensor) error) ([][]*ir.Tensor, error) {
	s, known := c.walk.steps[i], c.memory.outs[i]
	outs, from := slices.Clone(known[:min(len(known), inputs)]), min(len(known), inputs)
	in, pool := l.all(s.node, from, inputs), c.pool
	if from < c.memory.inputs { // what is kept needs memory of its own
		pool = nil
	}
	var acc, anchors []*ir.Tensor
	if s.head != nil {
		if from < inputs {
			var err error
			if anchors, err = s.anchors(ctx, c.evaluator, in, pool); err != nil {
				return nil, err
			}
		}
		acc = append(slices.Clone(c.memory.acc[i][:from]), anchors...)
		if with != nil {
			if err := with(acc); err != nil {
				return nil, err
			}
		}
	}
	if from < inputs {
		var more [][]*ir.Tensor
		var err error
		if s.head == nil {
			more, err = c.evaluator.Evaluate(ctx, s.node, in, pool)
		} else {
			more, err = s.finish(ctx, c.evaluator, in, anchors, max(0, c.memory.inputs-from), pool)
		}
		if err != nil {
			return nil, err
		}
		for at := range more {
			if err := c.finite(s.node, more[at], from+at); err != nil {
				return nil, err
			}
		}
		outs = append(outs, more...)
	}
	if len(known) < c.memory.inputs {
		c.memory.outs[i] = slices.Clone(outs[:min(len(outs), c.memory.inputs)]) // a part would keep all
		c.memory.acc[i] = slices.Clone(acc[:min(len(acc), c.memory.inputs)])
	}
	return outs, nil
}
