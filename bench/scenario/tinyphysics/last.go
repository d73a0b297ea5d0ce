package tinyphysics

import (
	"maps"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// lastPosition makes the logits of the last position a graph's output in place of those of all, and computes only that
// position of every value of which no other is read: in a causal transformer, the last layer's attention, MLP and head.
// The graph has no dead nodes.
func lastPosition(g *ir.Graph) error {
	c := &cut{g: g, axis: map[*ir.Value]int{g.Outputs[0]: 1}, by: map[*ir.Value]*ir.Value{}}
	for _, n := range slices.Backward(g.Nodes) {
		c.demand(n)
	}
	nodes := g.Nodes
	g.Nodes = nil
	for _, n := range nodes {
		if err := c.node(n); err != nil {
			return err
		}
	}
	last, err := c.last(g.Outputs[0], 1)
	if err != nil {
		return err
	}
	return g.Build(logits, func(x *ir.Expansion) {
		last = x.Reshape(last, last.Type.Shape[0], vocabulary)
		last.Name = logits
		g.Outputs = []*ir.Value{last}
	})
}

// whole is the axis of a value of which all is read.
const whole = -1

// cut narrows a graph to the last position.
type cut struct {
	g    *ir.Graph
	axis map[*ir.Value]int       // the axis of which only the last index is read, or whole
	by   map[*ir.Value]*ir.Value // values → themselves at the last index of their axis
}

// demand notes what a node reads of its inputs, once that is known of all that read its outputs.
func (c *cut) demand(n *ir.Node) {
	axes := make([]int, len(n.Inputs))
	if !c.narrows(n) || !inputAxes(n, c.axis[n.Outputs[0]], axes) {
		for i := range axes {
			axes[i] = whole
		}
		for _, v := range n.Outputs {
			c.axis[v] = whole
		}
	}
	for i, v := range n.Inputs {
		if v == nil {
			continue
		}
		if before, ok := c.axis[v]; ok && before != axes[i] {
			axes[i] = whole
		}
		c.axis[v] = axes[i]
	}
}

// narrows reports whether a node computes one index of its output alone.
func (c *cut) narrows(n *ir.Node) bool {
	axis, read := c.axis[n.Outputs[0]]
	return read && axis != whole && len(n.Outputs) == 1
}

// inputAxes gives the axis of each input that is read at its last index for the last index along an output's axis;
// whole where all of the input is read. It is false if the node has no such rule.
func inputAxes(n *ir.Node, axis int, axes []int) bool {
	out, in := n.Outputs[0].Type.Shape, n.Inputs[0].Type.Shape
	same := func() bool {
		axes[0] = axis
		return in[axis] == out[axis]
	}
	switch {
	case n.Op.Pointwise():
		for i, v := range n.Inputs {
			if axes[i] = whole; v == nil {
				continue
			}
			if a := axis - len(out) + v.Type.Rank(); a >= 0 && v.Type.Shape[a] > 1 {
				axes[i] = a
			}
		}
		return true
	case n.Op.Name == "MatMul":
		axes[0], axes[1] = axis, whole
		return axis == len(out)-2 && len(in) == len(out) && !n.Attrs.Bool("transA")
	case n.Op.Name == "Softmax" || n.Op.Name == "LayerNorm":
		for i := range axes {
			axes[i] = whole // gain and bias
		}
		return axis < n.Attrs.Int("axis", 0) && same()
	case n.Op.Name == "ReduceMean":
		return n.Attrs.Bool("keepdims") && !slices.Contains(n.Attrs.Ints("axes"), axis) && same()
	case n.Op.Name == "Concat":
		for i := range axes {
			axes[i] = axis
		}
		return axis != n.Attrs.Int("axis", 0)
	case n.Op.Name == "Transpose":
		axes[0] = n.Attrs.Ints("perm")[axis]
		return true
	case n.Op.Name == "Slice":
		return !slices.Contains(n.Attrs.Ints("steps"), -1) && same()
	case n.Op.Name == "Reshape":
		axes[0] = reshaped(in, out, axis)
		return axes[0] != whole
	}
	return false
}

// reshaped is the axis before a Reshape that is one of its output's axes: as long, after as many elements.
func reshaped(in, out []int, axis int) int {
	outer := 1
	for _, n := range out[:axis] {
		outer *= n
	}
	count := 1
	for i, n := range in {
		if count == outer && n == out[axis] {
			return i
		}
		count *= n
	}
	return whole
}

// node appends a node, or one that computes its last index.
func (c *cut) node(n *ir.Node) error {
	axes := make([]int, len(n.Inputs))
	if !c.narrows(n) || !inputAxes(n, c.axis[n.Outputs[0]], axes) {
		c.g.Nodes = append(c.g.Nodes, n)
		return nil
	}
	axis, inputs := c.axis[n.Outputs[0]], slices.Clone(n.Inputs)
	for i, v := range inputs {
		if axes[i] != whole {
			var err error
			if inputs[i], err = c.last(v, axes[i]); err != nil {
				return err
			}
		}
	}
	attrs := maps.Clone(n.Attrs)
	one := func(attr string, to int) {
		list := slices.Clone(n.Attrs.Ints(attr))
		list[axis] = to
		attrs[attr] = list
	}
	switch n.Op.Name {
	case "Reshape":
		one("shape", 1)
	case "Slice":
		one("starts", 0)
		one("sizes", 1)
	}
	m, err := c.g.Add(n.Op.Name, n.Name, attrs, inputs...)
	if err != nil {
		return err
	}
	m.From, c.by[n.Outputs[0]] = n.From, m.Outputs[0]
	return nil
}

// last is a value at the last index of an axis.
func (c *cut) last(v *ir.Value, axis int) (*ir.Value, error) {
	if by := c.by[v]; by != nil {
		return by, nil
	}
	starts, sizes := make([]int, v.Type.Rank()), slices.Clone(v.Type.Shape)
	starts[axis], sizes[axis] = sizes[axis]-1, 1
	n, err := c.g.Add("Slice", "last", ir.Attrs{"starts": starts, "sizes": sizes}, v)
	if err != nil {
		return nil, err
	}
	return n.Outputs[0], nil
}
