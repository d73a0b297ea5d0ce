package ir

import (
	"context"
	"fmt"
	"slices"
)

// EvalOptions control how a graph is evaluated.
type EvalOptions struct {
	// Round rounds every node's outputs to their element type, as a program that stores each of them does. In the
	// body of a Region values are rounded only where the body casts and at the region's outputs. Without it
	// floating-point values are float64 throughout; only 8-bit and narrower floats are always rounded, by the casts
	// that make them.
	Round bool
	// Observe, if set, sees every value of the graph when it has been computed; not those of bodies.
	Observe func(v *Value, a *Array)
}

// Evaluate computes the graph's outputs, by value name, from its inputs by name. Arrays are never modified.
func Evaluate(ctx context.Context, g *Graph, inputs map[string]*Array, opt EvalOptions) (map[string]*Array, error) {
	list := make([]*Array, len(g.Inputs))
	for i, v := range g.Inputs {
		if list[i] = inputs[v.Name]; list[i] == nil {
			return nil, fmt.Errorf("input %%%s (%v) is missing", v.Name, v.Type)
		}
	}
	outs, err := EvaluateList(ctx, g, list, opt)
	if err != nil {
		return nil, err
	}
	byName := make(map[string]*Array, len(outs))
	for i, v := range g.Outputs {
		byName[v.Name] = outs[i]
	}
	return byName, nil
}

// EvaluateList is Evaluate with inputs and outputs in the order of the graph's.
func EvaluateList(ctx context.Context, g *Graph, inputs []*Array, opt EvalOptions) ([]*Array, error) {
	if err := g.fits(ctx); err != nil {
		return nil, err
	}
	e := evaluation{ctx: ctx, opt: opt}
	return e.graph(g, inputs, false)
}

type evaluation struct {
	ctx context.Context
	opt EvalOptions
}

// graph evaluates g; inBody says that it is the body of a region.
func (e *evaluation) graph(g *Graph, inputs []*Array, inBody bool) ([]*Array, error) {
	if len(inputs) != len(g.Inputs) {
		return nil, fmt.Errorf("%d inputs, want %d", len(inputs), len(g.Inputs))
	}
	env := make(map[*Value]*Array, len(g.Nodes)+len(inputs))
	reads := map[*Value]int{} // that are still to come
	for _, n := range g.Nodes {
		for _, v := range n.Inputs {
			reads[v]++
		}
	}
	for _, v := range g.Outputs {
		reads[v]++
	}
	for i, v := range g.Inputs {
		if a := inputs[i]; !a.Type.Equal(v.Type) || a.Len() != a.Numel() {
			return nil, fmt.Errorf("input %%%s is %v, want %v", v.Name, a.Type, v.Type)
		}
		env[v] = inputs[i]
		if e.opt.Round && !inBody {
			env[v] = inputs[i].Rounded()
		}
		e.observe(v, env[v], inBody)
	}
	read := func(v *Value) (*Array, error) {
		if v == nil {
			return nil, nil
		}
		a := env[v]
		if a == nil && v.IsConst() {
			a = v.Const.Array()
			env[v] = a
		}
		if a == nil {
			return nil, fmt.Errorf("%%%s is read before it is computed", v.Name)
		}
		if reads[v]--; reads[v] == 0 {
			delete(env, v)
		}
		return a, nil
	}
	for _, n := range g.Nodes {
		if err := e.ctx.Err(); err != nil {
			return nil, err
		}
		in := make([]*Array, len(n.Inputs))
		for i, v := range n.Inputs {
			a, err := read(v)
			if err != nil {
				return nil, fmt.Errorf("node %q (%s): %w", n.Name, n.Op.Name, err)
			}
			in[i] = a
		}
		out, err := e.node(n, in, inBody)
		if err != nil {
			return nil, fmt.Errorf("node %q (%s): %w", n.Name, n.Op.Name, err)
		}
		for i, v := range n.Outputs {
			e.observe(v, out[i], inBody)
			if reads[v] > 0 {
				env[v] = out[i]
			}
		}
	}
	outs := make([]*Array, len(g.Outputs))
	for i, v := range g.Outputs {
		a, err := read(v)
		if err != nil {
			return nil, fmt.Errorf("output %d: %w", i, err)
		}
		outs[i] = a
	}
	return outs, nil
}

func (e *evaluation) observe(v *Value, a *Array, inBody bool) {
	if e.opt.Observe != nil && !inBody {
		e.opt.Observe(v, a)
	}
}

func (e *evaluation) node(n *Node, in []*Array, inBody bool) ([]*Array, error) {
	var out []*Array
	var err error
	switch {
	case n.IsFamily(FamilyFused):
		out, err = e.fused(n, in)
	case n.Op.Kind == KindRegion:
		out, err = e.region(n, in)
	case n.Op.Expand != nil:
		out, err = e.composite(n, in)
	case n.Op.Eval != nil:
		out, err = n.Op.Eval(n, in)
	default:
		out, err = evalPointwise(n, in)
	}
	if err != nil {
		return nil, err
	}
	if len(out) != len(n.Outputs) {
		return nil, fmt.Errorf("evaluation yields %d outputs, want %d", len(out), len(n.Outputs))
	}
	for i, v := range n.Outputs {
		if a := out[i]; !a.Type.Equal(v.Type) || a.Len() != a.Numel() {
			return nil, fmt.Errorf("evaluation yields output %d as %v with %d elements, want %v", i, a.Type, a.Len(), v.Type)
		}
		if e.opt.Round && (!inBody || n.Op.Name == "Cast") {
			out[i] = out[i].Rounded()
		}
	}
	return out, nil
}

// EvaluateNode computes the outputs of one node, unrounded. Absent inputs are nil.
func EvaluateNode(n *Node, in []*Array) ([]*Array, error) {
	e := evaluation{ctx: context.Background()}
	return e.node(n, in, false)
}

// fused evaluates the parts one after the other, each as a region of its own.
func (e *evaluation) fused(n *Node, in []*Array) ([]*Array, error) {
	known := map[*Value]*Array{}
	for i, v := range n.Inputs {
		known[v] = in[i]
	}
	of := func(values []*Value) []*Array {
		out := make([]*Array, len(values))
		for i, v := range values {
			out[i] = known[v]
		}
		return out
	}
	for _, part := range n.Parts() {
		out, err := e.node(part, of(part.Inputs), false)
		if err != nil {
			return nil, fmt.Errorf("part %q: %w", part.Name, err)
		}
		for i, v := range part.Outputs {
			known[v] = out[i]
		}
	}
	return of(n.Outputs), nil
}

// region applies the body, with storage spelled out, to every member.
func (e *evaluation) region(n *Node, in []*Array) ([]*Array, error) {
	x, err := n.Explicit()
	if err != nil {
		return nil, err
	}
	known := map[*Value]*Array{}
	for i, v := range n.Inputs {
		known[v] = in[i]
	}
	all := make([]*Array, len(x.Inputs))
	for i, v := range x.Inputs {
		if all[i] = known[v]; all[i] == nil {
			all[i] = v.Const.Array()
		}
	}
	r := x.Region
	if r.Members == 0 {
		return e.graph(r.Body, all, true)
	}
	out := make([]*Array, len(n.Outputs))
	for i, v := range n.Outputs {
		out[i] = NewArray(v.Type)
	}
	for m := range r.Members {
		results, err := e.graph(r.Body, r.member(all, m), true)
		if err != nil {
			return nil, fmt.Errorf("member %d: %w", m, err)
		}
		for i, a := range results {
			out[i].SetMember(m, a)
		}
	}
	return out, nil
}

// member lists what member m reads of each operand.
func (r *Region) member(in []*Array, m int) []*Array {
	part := slices.Clone(in)
	for i, a := range in {
		if r.Operands[i].Batched {
			part[i] = a.Member(m)
		}
	}
	return part
}

// Member returns part m along the first dimension; it shares the elements.
func (a *Array) Member(m int) *Array {
	p := &Array{Type: Type{a.DType, a.Shape[1:]}}
	n := p.Numel()
	if a.F != nil {
		p.F = a.F[m*n : (m+1)*n]
	} else {
		p.I = a.I[m*n : (m+1)*n]
	}
	return p
}

// SetMember copies into part m along the first dimension.
func (a *Array) SetMember(m int, part *Array) { a.copyFrom(m*part.Len(), part, 0, part.Len()) }

// copyFrom copies count elements of src from position from on to position at on.
func (a *Array) copyFrom(at int, src *Array, from, count int) {
	if a.F != nil {
		copy(a.F[at:at+count], src.F[from:])
	} else {
		copy(a.I[at:at+count], src.I[from:])
	}
}
