package passes

import (
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// emit replaces the graph's nodes by the clusters' regions, in topological order.
func (f *fuser) emit() error {
	slices.SortFunc(f.all, func(a, b *cluster) int { return f.pos[a.root] - f.pos[b.root] })
	to := map[*ir.Value]*ir.Value{}
	var regions []*ir.Node
	for _, c := range f.all {
		if c.root.Role() == ir.RoleRegion {
			regions = append(regions, c.root)
			continue
		}
		for _, outputs := range f.outputsOf(c) {
			n, err := makeRegion(f.g, c, outputs)
			if err != nil {
				return fmt.Errorf("region of node %q (%s): %w", c.root.Name, c.root.Op.Name, err)
			}
			regions = append(regions, n)
			for i, v := range outputs {
				to[v] = n.Outputs[i]
			}
		}
	}
	f.g.Nodes = regions
	substitute(f.g, to)
	return f.g.Toposort()
}

// outputsOf lists the values that leave the cluster, grouped by number of elements: a node whose outputs differ in it
// becomes several regions. A contraction's stay together.
func (f *fuser) outputsOf(c *cluster) [][]*ir.Value {
	var groups [][]*ir.Value
	nodes := f.sorted(c)
	slices.Reverse(nodes)
	for _, n := range nodes {
		for _, v := range n.Outputs {
			if !f.leaves(c, v) {
				continue
			}
			k := slices.IndexFunc(groups, func(g []*ir.Value) bool {
				return c.family == ir.FamilyContraction || g[0].Type.Numel() == v.Type.Numel()
			})
			if k < 0 {
				groups = append(groups, []*ir.Value{v})
			} else {
				groups[k] = append(groups[k], v)
			}
		}
	}
	return groups
}

func (f *fuser) leaves(c *cluster, v *ir.Value) bool {
	for _, u := range f.uses[v] {
		if u.Node == nil || !c.nodes[u.Node] {
			return true
		}
	}
	return false
}

// regionName is the name of the node that a reader would look for.
func regionName(c *cluster) string {
	if c.heavy != nil {
		return c.heavy.Name
	}
	return c.root.Name
}

// inOrder lists the nodes that the outputs need, operands first: an order that does not depend on the graph's, so that
// isomorphic clusters get the same body.
func (c *cluster) inOrder(outputs []*ir.Value) []*ir.Node {
	var list []*ir.Node
	seen := map[*ir.Node]bool{}
	var visit func(n *ir.Node)
	visit = func(n *ir.Node) {
		if n == nil || !c.nodes[n] || seen[n] {
			return
		}
		seen[n] = true
		for _, v := range n.Inputs {
			if v != nil {
				visit(v.Def)
			}
		}
		list = append(list, n)
	}
	for _, v := range outputs {
		visit(v.Def)
	}
	return list
}

// makeRegion copies what the outputs need of a cluster into a body. Constants that are not splats become inputs.
func makeRegion(g *ir.Graph, c *cluster, outputs []*ir.Value) (*ir.Node, error) {
	b := newBody(regionName(c))
	b.allInputs = !c.readsValue()
	for _, n := range c.inOrder(outputs) {
		if err := b.copyNode(n); err != nil {
			return nil, err
		}
	}
	for _, v := range outputs {
		b.g.Outputs = append(b.g.Outputs, b.to[v])
	}
	n, err := g.NewRegion(c.family, regionName(c), b.g, b.inputs...)
	if err == nil && (c.family == ir.FamilyContraction || c.family == ir.FamilyWindow) {
		err = storeAsRead(n.Region)
	}
	return n, err
}

// storeAsRead declares operands that the anchor reads through a Cast to a wider type as values of that type, stored
// in the original one. Other readers cast them back, which is exact.
func storeAsRead(r *ir.Region) error {
	a := r.Anchor()
	var first []*ir.Node // new nodes, which only depend on operands
	narrowed := map[*ir.Value]*ir.Value{}
	for _, v := range a.Inputs {
		if v == nil {
			continue
		}
		from, _ := v.Origin()
		cast := from.Def
		if cast == nil || !promotesHalf(cast) {
			continue
		}
		wide := cast.Outputs[0].Type.DType
		x, path := cast.Inputs[0].Origin()
		operand := narrowed[x]
		if operand == nil {
			if operand = x; !slices.Contains(r.Body.Inputs, x) {
				continue
			}
			to := ir.Attrs{"to": x.Type.DType}
			x.Type = ir.Type{DType: wide, Shape: x.Type.Shape}
			down, err := r.Body.NewNode("Cast", "v", to, x)
			if err != nil {
				return err
			}
			r.Body.ReplaceAll(x, down.Outputs[0])
			first = append(first, down)
			narrowed[down.Outputs[0]] = x
		}
		y := operand
		for _, m := range path {
			n, err := r.Body.NewNode(m.Op.Name, m.Name, m.Attrs, y)
			if err != nil {
				return err
			}
			n.From = m.From
			first, y = append(first, n), n.Outputs[0]
		}
		r.Body.ReplaceAll(cast.Outputs[0], y)
	}
	r.Body.Nodes = append(first, r.Body.Nodes...)
	r.Body.RemoveDead()
	return nil
}

// body is a region's subgraph under construction.
type body struct {
	g      *ir.Graph
	to     map[*ir.Value]*ir.Value
	inputs []*ir.Value // outer values of g.Inputs
	// allInputs makes every constant an input: a region that reads nothing else still needs one.
	allInputs bool
}

// readsValue reports whether the cluster reads anything but constants.
func (c *cluster) readsValue() bool {
	for n := range c.nodes {
		for _, v := range n.Inputs {
			if v != nil && !v.IsConst() && !c.nodes[v.Def] {
				return true
			}
		}
	}
	return false
}

func newBody(name string) *body {
	return &body{g: ir.NewGraph(name), to: map[*ir.Value]*ir.Value{}}
}

// value returns the body's value for an outer one.
func (b *body) value(v *ir.Value) *ir.Value {
	if v == nil {
		return nil
	}
	if w := b.to[v]; w != nil {
		return w
	}
	if v.IsConst() && isSplat(v.Const) && !b.allInputs {
		b.to[v] = b.g.Constant("c", v.Const)
		return b.to[v]
	}
	return b.input(v)
}

// input adds an outer value to the body's inputs.
func (b *body) input(v *ir.Value) *ir.Value {
	if b.to[v] == nil {
		b.to[v] = b.g.AddInput("p"+itoa(len(b.inputs)), v.Type)
		b.inputs = append(b.inputs, v)
	}
	return b.to[v]
}

// matrixInputs lists the inputs that are always inputs of the region, even if they are splats: kernels load them.
func matrixInputs(n *ir.Node) []int {
	switch n.Role() {
	case ir.RoleContraction:
		return n.Op.Matrix
	case ir.RoleWindow:
		if n.Op.Name == "Conv" {
			return []int{0, 1} // an image may be constant where weights are not
		}
		return []int{0}
	}
	if n.Op.Name == "SegmentedMatVec" {
		return []int{1}
	}
	return nil
}

func isSplat(t *ir.Tensor) bool { return t.Splat || t.Numel() <= 1 }

// copyNode appends a copy of n that reads the body's values.
func (b *body) copyNode(n *ir.Node) error {
	inputs := make([]*ir.Value, len(n.Inputs))
	matrices := matrixInputs(n)
	for i, v := range n.Inputs {
		if slices.Contains(matrices, i) {
			inputs[i] = b.input(v)
		} else {
			inputs[i] = b.value(v)
		}
	}
	m, err := b.g.Add(n.Op.Name, "v", n.Attrs, inputs...)
	if err != nil {
		return err
	}
	m.Name, m.From = n.Name, n.From
	for i, v := range n.Outputs {
		b.to[v] = m.Outputs[i]
	}
	return nil
}
