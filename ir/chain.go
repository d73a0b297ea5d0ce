package ir

import (
	"fmt"
	"slices"
)

// A chain is a region whose body is two regions, the second of which reads the first: one kernel computes both, and what is between
// them need not be read from memory. The body states each as it was a launch of its own, with its storage, so the value between is
// rounded to what it was stored as. Two windows are a chain, and a contraction behind a window or behind a loop that normalises rows:
// the matrix that it multiplies is then computed where it is read.

// NewChain makes the chain of two regions of a graph, which stay as they are. Its results are the first's, if kept, and the second's.
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

// chainContract: two regions of as many members, of which the second reads the first's only output, once: a window as the image that
// it slides over, a contraction as its first matrix. What is in front of a contraction is no result.
func (r *Region) chainContract() error {
	nodes := r.Body.Nodes
	if r.Members > 0 || !r.isPlain() || len(nodes) != 2 || nodes[0].Region == nil || nodes[1].Region == nil {
		return fmt.Errorf("not two regions whose own storage says how values lie in memory")
	}
	if i := slices.IndexFunc(r.Body.Outputs, func(v *Value) bool { return v.Def == nil }); i >= 0 {
		return fmt.Errorf("result %d is an operand", i)
	}
	return Chains(nodes[0], nodes[1], slices.ContainsFunc(r.Body.Outputs, func(v *Value) bool { return v.Def == nodes[0] }))
}

// Chains reports why two regions of a graph cannot become a chain, of which the first's output is a result too if it is kept; nil if
// they can.
func Chains(first, second *Node, kept bool) error {
	switch {
	case first.IsFamily(FamilyWindow) && second.IsFamily(FamilyWindow):
	case !second.IsFamily(FamilyContraction) || !first.IsFamily(FamilyWindow) && !first.normalisesRows():
		return fmt.Errorf("not two windows, nor a contraction behind a window or a loop that normalises rows")
	case kept:
		return fmt.Errorf("what the contraction multiplies has other readers")
	}
	return second.chains(first)
}

// chains reports why a region cannot be the second of a chain behind first; nil if it can.
func (n *Node) chains(first *Node) error {
	r, y := n.Region, first.Outputs[0]
	i := slices.Index(n.Inputs, y)
	switch from, _, ok := r.Source(r.Anchor().Inputs[0]); {
	case len(first.Outputs) != 1:
		return fmt.Errorf("the first region has several results, or one in blocks")
	case !ok || i < 0 || from != i:
		return fmt.Errorf("the second region's anchor does not read the first's output first")
	case slices.Contains(n.Inputs[i+1:], y) || len(r.Body.Uses()[r.Body.Inputs[i]]) != 1:
		return fmt.Errorf("the second region reads the first's output more than once")
	case r.Members != first.Region.Members || r.Members > 0 && !r.Operands[i].Stacked:
		return fmt.Errorf("members of the second region read others than their own of the first")
	}
	return nil
}

// normalisesRows reports whether a region is a loop whose only heavy node makes of each row, along the last axis, one as long.
func (n *Node) normalisesRows() bool {
	if !n.IsFamily(FamilyLoop) || len(n.Outputs) != 1 {
		return false
	}
	rows := 0
	for _, m := range n.Region.Body.Nodes {
		switch t := m.Outputs[0].Type; {
		case m.Role() == RoleLight && m.Op.Kind != KindMovement:
		case m.Op.Kind == KindReduction && m.Op.Rereads && m.Inputs[0].Type.Equal(t) && m.Attrs.Int("axis", 0) == t.Rank()-1:
			rows++
		default:
			return false
		}
	}
	return rows == 1
}
