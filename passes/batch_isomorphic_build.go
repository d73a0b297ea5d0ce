package passes

import (
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// build replaces the members of each class by one region.
func (s *batcher) build() error {
	first := map[*ir.Node]*class{}
	for _, c := range s.list {
		first[c.members[0]] = c
	}
	// A class is built where its last member stands; all that its members read is before that.
	left := map[*class]int{}
	for _, c := range s.list {
		left[c] = len(c.members)
	}
	var nodes []*ir.Node
	for _, n := range s.g.Nodes {
		for i, v := range n.Inputs {
			n.Inputs[i] = s.resolve(v)
		}
		p := s.of[n]
		if p.class == nil {
			nodes = append(nodes, n)
			continue
		}
		if left[p.class]--; left[p.class] > 0 {
			continue
		}
		made, err := s.buildClass(p.class)
		if err != nil {
			return fmt.Errorf("stacking region %q: %w", n.Name, err)
		}
		nodes = append(nodes, made...)
	}
	s.g.Nodes = nodes
	substitute(s.g, s.to)
	if err := s.g.Toposort(); err != nil {
		return fmt.Errorf("after stacking: %w", err)
	}
	s.g.RemoveDead()
	return nil
}

func (s *batcher) resolve(v *ir.Value) *ir.Value { return resolve(s.to, v) }

// buildClass returns the batched region, preceded by the views it needs and followed by a view for each member's
// outputs.
func (s *batcher) buildClass(c *class) ([]*ir.Node, error) {
	var n *ir.Node
	var nodes []*ir.Node
	var err error
	if c.joins {
		n, err = s.joined(c)
	} else {
		n, nodes, err = s.batched(c)
	}
	if err != nil {
		return nil, err
	}
	nodes = append(nodes, n)
	for r, m := range c.members {
		for k, v := range m.Outputs {
			size := v.Type.Numel()
			w, err := viewRegion(s.g, m.Name, span{n.Outputs[k], r * size, size}, v.Type.Shape)
			if err != nil {
				return nil, err
			}
			nodes = append(nodes, w)
			s.to[v] = w.Outputs[0]
		}
	}
	return nodes, nil
}

// batched makes the region with members.
func (s *batcher) batched(c *class) (*ir.Node, []*ir.Node, error) {
	members := len(c.members)
	r := c.members[0].Region.Clone()
	r.Members = members
	for _, m := range c.members[1:] {
		for k, n := range m.Region.Body.Nodes {
			first := r.Body.Nodes[k]
			first.From = ir.JoinOrigins(first.From, n.From)
		}
	}
	var inputs []*ir.Value
	var nodes []*ir.Node
	for i := range c.members[0].Inputs {
		v, view, err := s.batchedInput(c, i)
		if err != nil {
			return nil, nil, err
		}
		if view != nil {
			nodes = append(nodes, view)
		}
		inputs = append(inputs, v)
		r.Operands[i].Batched = v != s.resolve(c.members[0].Inputs[i])
	}
	for _, e := range differingConstants(c) {
		v := c.constantOperands(e)
		at := r.Body.Nodes[e.node].Inputs[e.input]
		r.Body.Nodes[e.node].Inputs[e.input] = r.Body.AddInput(fmt.Sprintf("p%d", len(inputs)), at.Type)
		r.Operands = append(r.Operands, ir.Operand{Batched: true, Storage: ir.Storage{DType: at.Type.DType}})
		inputs = append(inputs, s.g.Constant(c.members[0].Name, batchTensors(v)))
	}
	n, err := s.g.RegionNode(c.members[0].Name, r, inputs...)
	return n, nodes, err
}

// batchedInput returns input i of the batched region, and the view that makes it if one is needed.
func (s *batcher) batchedInput(c *class, i int) (*ir.Value, *ir.Node, error) {
	first := s.resolve(c.members[0].Inputs[i])
	same := true
	for _, n := range c.members {
		v := s.resolve(n.Inputs[i])
		same = same && (v == first || v.IsConst() && first.IsConst() && v.Const.Equal(first.Const))
	}
	if same {
		return first, nil, nil
	}
	if first.IsConst() {
		var list []*ir.Tensor
		for _, n := range c.members {
			list = append(list, n.Inputs[i].Const)
		}
		return s.g.Constant(first.Name, batchTensors(list)), nil, nil
	}
	// Views of members and runs of one value alike: consecutive spans of a value that is already batched.
	sp := spanThrough(first, s.resolve)
	for r, n := range c.members {
		if p := spanThrough(n.Inputs[i], s.resolve); p.base != sp.base || p.from != sp.from+r*sp.size {
			return nil, nil, fmt.Errorf("input %d of the members is not stacked", i)
		}
	}
	shape := slices.Concat([]int{len(c.members)}, first.Type.Shape)
	sp.size *= len(c.members)
	if sp.size == sp.base.Type.Numel() && slices.Equal(shape, sp.base.Type.Shape) {
		return sp.base, nil, nil
	}
	view, err := viewRegion(s.g, c.members[0].Name, sp, shape)
	if err != nil {
		return nil, nil, err
	}
	return view.Outputs[0], view, nil
}

// bodyEntry is an input of a node of a body.
type bodyEntry struct{ node, input int }

// differingConstants lists the constants in the members' bodies that are not the same in all of them.
func differingConstants(c *class) []bodyEntry {
	var list []bodyEntry
	for k, n := range c.members[0].Region.Body.Nodes {
		for i, v := range n.Inputs {
			if v == nil || !v.IsConst() {
				continue
			}
			e := bodyEntry{k, i}
			for _, t := range c.constantOperands(e) {
				if !t.Equal(v.Const) {
					list = append(list, e)
					break
				}
			}
		}
	}
	return list
}

func (c *class) constantOperands(e bodyEntry) []*ir.Tensor {
	var list []*ir.Tensor
	for _, m := range c.members {
		list = append(list, m.Region.Body.Nodes[e.node].Inputs[e.input].Const)
	}
	return list
}

// batchTensors puts constants of one type under a new leading dimension.
func batchTensors(list []*ir.Tensor) *ir.Tensor {
	t := list[0].Type
	out := &ir.Tensor{Type: ir.Type{DType: t.DType, Shape: slices.Concat([]int{len(list)}, t.Shape)}}
	for _, x := range list {
		out.Data = append(out.Data, x.Dense()...)
	}
	all := func(of func(c *ir.Codes) *ir.Tensor) *ir.Tensor {
		var parts []*ir.Tensor
		for _, x := range list {
			if x.Codes == nil || x.Codes.DType != list[0].Codes.DType || of(x.Codes) == nil {
				return nil
			}
			parts = append(parts, of(x.Codes))
		}
		return batchTensors(parts)
	}
	if list[0].Codes != nil {
		c := &ir.Codes{DType: list[0].Codes.DType, Scale: all(func(c *ir.Codes) *ir.Tensor { return c.Scale })}
		if c.Blocks = all(func(c *ir.Codes) *ir.Tensor { return c.Blocks }); c.Scale != nil {
			out.Codes = c
		}
	}
	return out
}

// joined makes the loop region that computes every member from its own inputs and writes them one after the other.
func (s *batcher) joined(c *class) (*ir.Node, error) {
	b := newBody(c.members[0].Name)
	parts := make([][]*ir.Value, len(c.members[0].Outputs))
	for _, m := range c.members {
		outs, err := b.inline(m, s.resolve)
		if err != nil {
			return nil, err
		}
		for k, v := range outs {
			r, err := b.g.Add("Reshape", "v", ir.Attrs{"shape": slices.Concat([]int{1}, v.Type.Shape)}, v)
			if err != nil {
				return nil, err
			}
			parts[k] = append(parts[k], r.Outputs[0])
		}
	}
	for _, list := range parts {
		n, err := b.g.Add("Concat", "v", ir.Attrs{"axis": 0}, list...)
		if err != nil {
			return nil, err
		}
		b.g.Outputs = append(b.g.Outputs, n.Outputs[0])
	}
	return s.g.NewRegion(ir.FamilyLoop, c.members[0].Name, b.g, b.inputs...)
}

// inline copies the body of region m into b and returns its outputs there.
func (b *body) inline(m *ir.Node, resolve func(*ir.Value) *ir.Value) ([]*ir.Value, error) {
	local := map[*ir.Value]*ir.Value{}
	for i, v := range m.Region.Body.Inputs {
		local[v] = b.value(resolve(m.Inputs[i]))
	}
	for _, n := range m.Region.Body.Nodes {
		inputs := make([]*ir.Value, len(n.Inputs))
		for i, v := range n.Inputs {
			switch {
			case v == nil:
			case v.IsConst():
				inputs[i] = b.g.Constant("c", v.Const)
			default:
				inputs[i] = local[v]
			}
		}
		k, err := b.g.Add(n.Op.Name, "v", n.Attrs, inputs...)
		if err != nil {
			return nil, err
		}
		k.Name, k.From = n.Name, n.From
		for i, v := range n.Outputs {
			local[v] = k.Outputs[i]
		}
	}
	outs := make([]*ir.Value, len(m.Region.Body.Outputs))
	for i, v := range m.Region.Body.Outputs {
		outs[i] = local[v]
	}
	return outs, nil
}
