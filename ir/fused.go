package ir

import (
	"fmt"
	"slices"
)

// A fused region has several regions as its body, each of which reads its predecessor. One kernel computes them all,
// so values between them need not go through memory. Each part keeps its own storage, so such values are rounded to
// what they would be stored as. This file checks dataflow; whether a kernel exists is up to the last part's family.

// NewFused fuses regions of a graph, which it leaves unchanged. The results are the last part's, preceded by the
// first's if kept. The new node shares those outputs, whose Def is unchanged, and belongs to no graph until it
// replaces the parts.
func NewFused(parts []*Node, kept bool) *Node {
	first, last := parts[0], parts[len(parts)-1]
	r := &Region{Family: FamilyFused, Body: NewGraph("")}
	n := &Node{Op: LookupOp("Region"), Name: first.Name, Attrs: Attrs{}, Region: r}
	inside := map[*Value]*Value{}
	for _, m := range parts {
		c := &Node{Op: m.Op, Name: m.Name, Attrs: m.Attrs, Region: m.Region.Clone(), From: m.From}
		for _, v := range m.Inputs {
			if inside[v] == nil {
				n.Inputs = append(n.Inputs, v)
				inside[v] = r.Body.AddInput(fmt.Sprint("p", len(n.Inputs)-1), v.Type.Clone())
				r.Operands = append(r.Operands, Operand{Storage: Storage{DType: v.Type.DType}})
			}
			c.Inputs = append(c.Inputs, inside[v])
		}
		for i, v := range m.Outputs {
			inside[v] = &Value{Name: v.Name, Type: v.Type.Clone(), Def: c, Index: i}
			c.Outputs = append(c.Outputs, inside[v])
		}
		r.Body.Nodes = append(r.Body.Nodes, c)
	}
	n.Outputs = slices.Clone(last.Outputs)
	if kept {
		n.Outputs = slices.Concat(first.Outputs, last.Outputs)
	}
	for _, v := range n.Outputs {
		r.Body.Outputs = append(r.Body.Outputs, inside[v])
		r.Results = append(r.Results, Storage{DType: v.Type.DType})
	}
	return n
}

// Parts are the regions fused in n, on values of the graph: as separate launches they compute what n does.
// Intermediate values that n does not return are values of the body. Parts share n's outputs, whose Def stays n, and
// belong to no graph. A region of another family is its only part.
func (n *Node) Parts() []*Node {
	if !n.IsFamily(FamilyFused) {
		return []*Node{n}
	}
	outer := map[*Value]*Value{}
	for i, v := range n.Region.Body.Inputs {
		outer[v] = n.Inputs[i]
	}
	for i, v := range n.Region.Body.Outputs {
		outer[v] = n.Outputs[i]
	}
	of := func(values []*Value) []*Value {
		out := slices.Clone(values)
		for i, v := range values {
			if o := outer[v]; o != nil {
				out[i] = o
			}
		}
		return out
	}
	var parts []*Node
	for _, m := range n.Region.Body.Nodes {
		parts = append(parts, &Node{Op: m.Op, Name: m.Name, Attrs: m.Attrs, Inputs: of(m.Inputs), Outputs: of(m.Outputs), Region: m.Region, From: m.From})
	}
	return parts
}

// LastPart is the part that computes n's last outputs.
func (n *Node) LastPart() *Node {
	parts := n.Parts()
	return parts[len(parts)-1]
}

// fusedContract: each region reads its predecessor's results. Only the first's and the last's may be results of the
// whole.
func (r *Region) fusedContract() error {
	nodes := r.Body.Nodes
	if r.Members > 0 || !r.isPlain() || len(nodes) < 2 || slices.ContainsFunc(nodes, func(n *Node) bool { return n.Region == nil }) {
		return fmt.Errorf("not several regions whose own storage says how values lie in memory")
	}
	if i := slices.IndexFunc(r.Body.Outputs, func(v *Value) bool { return v.Def == nil }); i >= 0 {
		return fmt.Errorf("result %d is an operand", i)
	}
	uses, last := r.Body.Uses(), len(nodes)-1
	for i, n := range nodes[1:last] {
		for _, v := range n.Outputs {
			if slices.Contains(r.Body.Outputs, v) || slices.ContainsFunc(uses[v], func(u Use) bool { return u.Node != nodes[i+2] }) {
				return fmt.Errorf("what %s computes has other readers than the next region", n.Name)
			}
		}
	}
	return CheckFusion(nodes)
}

// CheckFusion reports why regions of a graph cannot be fused; nil if they can. It assumes that only the first part
// has readers other than its successor.
func CheckFusion(parts []*Node) error {
	for i, n := range parts[1:] {
		if err := n.checkConsumer(parts[i]); err != nil {
			return err
		}
	}
	return nil
}

// checkConsumer reports why n cannot follow first in a fused region; nil if it can. A loop may read first's results
// in any way, and have members of its own. In other families the anchor reads first's only result (or the one in
// blocks, and its scales) once, as its first operand, and each member reads its own.
func (n *Node) checkConsumer(first *Node) error {
	r, y := n.Region, first.Outputs[0]
	if n.IsFamily(FamilyLoop) {
		switch {
		case !slices.ContainsFunc(n.Inputs, func(v *Value) bool { return slices.Contains(first.Outputs, v) }):
			return fmt.Errorf("%s does not read what %s computes", n.Name, first.Name)
		case slices.ContainsFunc(first.Region.Results, func(s Storage) bool { return s.Block > 0 }):
			return fmt.Errorf("what %s computes lies in blocks", first.Name)
		}
		return nil
	}
	anchor := r.Anchor()
	if anchor == nil {
		return fmt.Errorf("%s has no anchor", n.Name)
	}
	i := slices.Index(n.Inputs, y)
	switch from, _, ok := r.Source(anchor.Inputs[0]); {
	case !ok || i < 0 || from != i:
		return fmt.Errorf("the anchor of %s does not read what %s computes first", n.Name, first.Name)
	case len(first.Outputs) > 1 && !slices.Equal(first.Outputs, []*Value{y, n.BlockScales(i)}):
		return fmt.Errorf("%s has several results", first.Name)
	case slices.ContainsFunc(first.Outputs, func(v *Value) bool { return slices.Contains(n.Inputs[slices.Index(n.Inputs, v)+1:], v) }),
		len(r.Body.Uses()[r.Body.Inputs[i]]) != 1:
		return fmt.Errorf("%s reads what %s computes more than once", n.Name, first.Name)
	case r.Members != first.Region.Members || r.Members > 0 && !r.Operands[i].Batched:
		return fmt.Errorf("members of %s read others than their own of %s", n.Name, first.Name)
	}
	return nil
}
