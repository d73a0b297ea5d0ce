package ir

import (
	"fmt"
	"slices"
)

// A chain is a region whose body is several regions, each of which reads the one in front of it: one kernel computes all, and what is between
// them need not be read from memory. The body states each as it was a launch of its own, with its storage, so values between are
// rounded to what they were stored as. Two windows are a chain, and a contraction behind a window, behind a loop that normalises rows, behind an attention or behind
// another product: the matrix that it multiplies is then computed where it is read. So is, in front of such a window, the contraction of the pixels
// that it slides over, and in front of such a product the loop that normalises its rows.
// Loops are a chain too: what blocks of the last read of those in front of it, each computes for itself.

// NewChain makes the chain of regions of a graph, which stay as they are. Its results are the last one's, behind the first's if these are
// kept. The node shares these outputs, which stay theirs, and belongs to no graph until it takes their place.
func NewChain(parts []*Node, kept bool) *Node {
	first, last := parts[0], parts[len(parts)-1]
	r := &Region{Family: FamilyChain, Body: NewGraph("")}
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

// LastPart is the part that computes n's last outputs.
func (n *Node) LastPart() *Node {
	parts := n.Parts()
	return parts[len(parts)-1]
}

// chainContract: regions of as many members, each of which but the first reads the only output of the one in front of it, once: a window as
// the image that it slides over, a contraction as its first matrix. What is between them is no result, but for two windows. Loops read results of
// the one in front, of which there may be several, in any way, and have members of their own.
func (r *Region) chainContract() error {
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
		if !n.IsFamily(FamilyLoop) && (len(n.Outputs) != 1 || len(uses[n.Outputs[0]]) != 1) {
			return fmt.Errorf("the next region does not read what %s computes, once", n.Name)
		}
	}
	return Chains(nodes, slices.ContainsFunc(r.Body.Outputs, func(v *Value) bool { return v.Def != nodes[last] }))
}

// Chains reports why regions of a graph cannot become a chain, of which the first's output is a result too if it is kept; nil if
// they can. What is between others than the first two must have no other readers.
func Chains(parts []*Node, kept bool) error {
	first, last := parts[0], parts[len(parts)-1]
	switch {
	case !slices.ContainsFunc(parts, func(n *Node) bool { return !n.IsFamily(FamilyLoop) }):
		return loopsChain(parts)
	case len(parts) == 2 && first.IsFamily(FamilyWindow) && last.IsFamily(FamilyWindow):
	case !multipliesChain(parts):
		return fmt.Errorf("not two windows, nor loops, nor a contraction behind a window, a contraction and a window, a loop that normalises rows, an attention, a product, or such a loop and a product")
	case kept:
		return fmt.Errorf("what the contraction multiplies has other readers")
	}
	for i, n := range parts[1:] {
		if err := n.chains(parts[i]); err != nil {
			return err
		}
	}
	return nil
}

// loopsChain reports why loops cannot become a chain; nil if they can.
func loopsChain(parts []*Node) error {
	for i, n := range parts[1:] {
		first := parts[i]
		if !slices.ContainsFunc(n.Inputs, func(v *Value) bool { return slices.Contains(first.Outputs, v) }) {
			return fmt.Errorf("%s does not read what %s computes", n.Name, first.Name)
		}
		if slices.ContainsFunc(first.Region.Results, func(s Storage) bool { return s.Block > 0 }) {
			return fmt.Errorf("what %s computes lies in blocks", first.Name)
		}
	}
	return nil
}

// multipliesChain reports whether the last of several regions is a contraction, and those in front of it are what computes its first matrix.
func multipliesChain(parts []*Node) bool {
	first, last := parts[0], parts[len(parts)-1]
	switch {
	case !last.IsFamily(FamilyContraction):
		return false
	case len(parts) == 2:
		return first.IsFamily(FamilyWindow) || first.normalisesRows() || first.multiplies() || first.attends()
	case len(parts) != 3:
		return false
	}
	return first.IsFamily(FamilyContraction) && parts[1].IsFamily(FamilyWindow) || first.normalisesRows() && parts[1].multiplies()
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

// multiplies reports whether a region is one product, of a matrix or an image.
func (n *Node) multiplies() bool {
	return n.IsFamily(FamilyContraction) && slices.Contains([]string{"MatMul", "Conv"}, n.Region.Anchor().Op.Name)
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

// attends reports whether a region is an attention.
func (n *Node) attends() bool {
	if !n.IsFamily(FamilyContraction) {
		return false
	}
	a := n.Region.Anchor()
	return a != nil && a.Op.Name == "Attention"
}
