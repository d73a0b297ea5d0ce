package ir

import (
	"fmt"
	"slices"
)

// A chain is a region whose body is two windows, the second of which reads the first: one kernel computes both, and what is between
// them need not be read from memory. The body states each as it was a launch of its own, with its storage, so the value between is
// rounded to what it was stored as, and results are those of two launches, bit for bit.

// NewChain makes the chain of two windows of a graph, which stay as they are. Its results are the first's, if kept, and the second's.
// The node shares these outputs, which stay theirs, and belongs to no graph until it takes their place.
func NewChain(first, second *Node, kept bool) *Node {
	r := &Region{Family: FamilyChain, Body: NewGraph("")}
	n := &Node{Op: LookupOp("Region"), Name: first.Name, Attrs: Attrs{}, Region: r}
	inside := map[*Value]*Value{}
	for _, m := range []*Node{first, second} {
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
	n.Outputs = slices.Clone(second.Outputs)
	if kept {
		n.Outputs = slices.Concat(first.Outputs, second.Outputs)
	}
	for _, v := range n.Outputs {
		r.Body.Outputs = append(r.Body.Outputs, inside[v])
		r.Results = append(r.Results, Storage{DType: v.Type.DType})
	}
	return n
}

// Parts are the regions that n is a chain of, on values of the graph: they compute what n does, one launch after the other. What is
// between them and no result of n is a value of the body. They share n's outputs, which stay n's, and belong to no graph. A region of
// another family is its only part.
func (n *Node) Parts() []*Node {
	if !n.IsFamily(FamilyChain) {
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

// chainContract: two windows as Chains wants them, and results that they compute.
func (r *Region) chainContract() error {
	nodes := r.Body.Nodes
	if r.Members > 0 || !r.isPlain() || len(nodes) != 2 {
		return fmt.Errorf("not two regions whose own storage says how values lie in memory")
	}
	if i := slices.IndexFunc(r.Body.Outputs, func(v *Value) bool { return v.Def == nil }); i >= 0 {
		return fmt.Errorf("result %d is an operand", i)
	}
	return Chains(nodes[0], nodes[1])
}

// Chains reports why two regions cannot be a chain; nil if they can: windows of as many members, of which the second reads the first's
// only output, once, as the image that its window slides over.
func Chains(first, second *Node) error {
	if !first.IsFamily(FamilyWindow) || !second.IsFamily(FamilyWindow) {
		return fmt.Errorf("not two windows")
	}
	r, y := second.Region, first.Outputs[0]
	i := slices.Index(second.Inputs, y)
	switch from, _, ok := r.Source(r.Anchor().Inputs[0]); {
	case len(first.Outputs) != 1:
		return fmt.Errorf("the first window stores blocks")
	case !ok || i < 0 || from != i:
		return fmt.Errorf("the second window does not slide over the first's output")
	case slices.Contains(second.Inputs[i+1:], y) || len(r.Body.Uses()[r.Body.Inputs[i]]) != 1:
		return fmt.Errorf("the second window reads the first's output more than once")
	case r.Members != first.Region.Members || r.Members > 0 && !r.Operands[i].Stacked:
		return fmt.Errorf("members of the second window read others than their own of the first")
	}
	return nil
}
