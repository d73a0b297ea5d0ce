package passes

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// offsetter adds constants to values of a region's body: to constants that are added already, or in nodes of their own.
// Constants are f32; those that differ by member have them as their first dimension.
type offsetter struct {
	g    *ir.Graph
	node *ir.Node
}

// addAfter makes all readers of a body's input but the anchor read the sum of it and t.
func (e *offsetter) addAfter(p *ir.Value, t *ir.Tensor, byMember bool) error {
	var only *ir.Node // the one reader, unless there are more
	count := 0
	a := e.node.Region.Anchor()
	for _, n := range e.node.Region.Body.Nodes {
		if n != a && slices.Contains(n.Inputs, p) {
			only = n
			count++
		}
	}
	switch {
	case slices.Contains(e.node.Region.Body.Outputs, p):
	case count == 0:
		return nil
	case count == 1 && only.Op.Name == "Add" && only.Inputs[0] != only.Inputs[1] && only.Outputs[0].Type.Equal(p.Type):
		return e.add(only.Outputs[0], t, byMember)
	}
	return e.insert(p, t, byMember)
}

// add makes all readers of v read the sum of it and t.
func (e *offsetter) add(v *ir.Value, t *ir.Tensor, byMember bool) error {
	if i, ok := e.mergeable(v, t.Shape, byMember); ok {
		e.merge(i, t, byMember)
		return nil
	}
	shape := t.Shape
	if byMember {
		shape = shape[1:]
	}
	a := e.node.Region.Anchor()
	if a == nil || v != a.Outputs[0] || a.Bias() == nil || !a.Bias().IsConst() {
		return e.insert(v, t, byMember)
	}
	xs := t.Floats() // the bias is the same for every channel
	for i := range xs {
		xs[i] += a.Bias().Const.FloatAt(0)
	}
	t = ir.FromFloats(t.Type, xs)
	t.Shape = append(slices.Clone(t.Shape[:len(t.Shape)-len(shape)]), t.Numel()/e.node.Region.Count())
	a.Inputs = slices.Clone(a.Inputs)
	a.Inputs[a.Op.Bias] = e.operand(t, byMember)
	return nil
}

// mergeable finds a constant operand of the type of t.
func (e *offsetter) mergeable(v *ir.Value, shape []int, byMember bool) (int, bool) {
	if byMember {
		shape = shape[1:]
	}
	i, ok := e.term(e.total(v))
	if !ok {
		return 0, false
	}
	own := e.node.Region.Body.Inputs[i].Type
	return i, own.DType == ir.Float32 && slices.Equal(trimmed(own.Shape), trimmed(shape))
}

// trimmed is a shape without the dimensions of size 1 that broadcasting adds.
func trimmed(shape []int) []int {
	for len(shape) > 1 && shape[0] == 1 {
		shape = shape[1:]
	}
	return shape
}

// merge adds t to a constant operand. One of all members becomes one a member if t is.
func (e *offsetter) merge(i int, t *ir.Tensor, byMember bool) {
	o, own := &e.node.Region.Operands[i], e.node.Inputs[i].Const
	shape, xs, ys := own.Shape, own.Floats(), t.Floats()
	switch {
	case byMember && !o.Batched:
		shape, xs, o.Batched = slices.Concat([]int{e.node.Region.Members}, shape), slices.Repeat(xs, e.node.Region.Members), true
	case o.Batched && !byMember:
		ys = slices.Repeat(ys, e.node.Region.Members)
	}
	for k, y := range ys {
		xs[k] += y
	}
	e.node.Inputs[i] = e.g.Constant(e.node.Inputs[i].Name, ir.FromFloats(ir.Type{DType: own.DType, Shape: slices.Clone(shape)}, xs))
}

// total is the end of the sums of which v is a term, all of which add as much as v does.
func (e *offsetter) total(v *ir.Value) *ir.Value {
	for _, n := range e.node.Region.Body.Nodes {
		if n.Op.Name == "Add" && slices.Contains(n.Inputs, v) && e.uses(v) == 1 && n.Outputs[0].Type.Equal(v.Type) {
			v = n.Outputs[0]
		}
	}
	return v
}

// term finds a constant input of the region that only v's sum reads: the anchor's bias, or one added after the
// anchor.
func (e *offsetter) term(v *ir.Value) (input int, ok bool) {
	if v.Def == nil {
		i := slices.Index(e.node.Region.Body.Inputs, v)
		return i, i >= 0 && e.node.Inputs[i].IsConst()
	}
	from := v.Def.Inputs
	switch {
	case v.Def == e.node.Region.Anchor() && v.Def.Bias() != nil && v.Def.ChannelAxis() == v.Type.Rank()-1:
		from = []*ir.Value{v.Def.Bias()}
	case v.Def.Op.Name != "Add":
		return 0, false
	}
	for _, x := range from {
		if x != nil && e.uses(x) == 1 && (x.Def == nil || x.Type.Equal(v.Type)) {
			if i, ok := e.term(x); ok {
				return i, true
			}
		}
	}
	return 0, false
}

// uses is the number of places where a value of the body is read.
func (e *offsetter) uses(v *ir.Value) int {
	count := 0
	for _, n := range e.node.Region.Body.Nodes {
		for _, x := range n.Inputs {
			if x == v {
				count++
			}
		}
	}
	for _, x := range e.node.Region.Body.Outputs {
		if x == v {
			count++
		}
	}
	return count
}

// insert adds a node after v, or first if v is an input, which the anchor goes on to read unchanged.
func (e *offsetter) insert(v *ir.Value, t *ir.Tensor, byMember bool) error {
	r := e.node.Region
	n, err := r.Body.NewNode("Add", e.node.Name, nil, v, e.operand(t, byMember))
	if err != nil {
		return err
	}
	at := 0
	if v.Def != nil {
		at = slices.Index(r.Body.Nodes, v.Def) + 1
	}
	anchor := r.Anchor()
	for _, m := range r.Body.Nodes {
		for i, x := range m.Inputs {
			if x == v && (m != anchor || v.Def != nil) {
				m.Inputs[i] = n.Outputs[0]
			}
		}
	}
	for i, x := range r.Body.Outputs {
		if x == v {
			r.Body.Outputs[i] = n.Outputs[0]
		}
	}
	r.Body.Nodes = slices.Insert(r.Body.Nodes, at, n)
	return nil
}

// operand gives the region another constant operand.
func (e *offsetter) operand(t *ir.Tensor, byMember bool) *ir.Value {
	r, shape := e.node.Region, t.Shape
	if byMember {
		shape = shape[1:]
	}
	r.Operands = append(r.Operands, ir.Operand{Batched: byMember, Storage: ir.Storage{DType: t.DType}})
	e.node.Inputs = append(e.node.Inputs, e.g.Constant(e.node.Name, t))
	return r.Body.AddInput(r.Body.Fresh("offset"), ir.Type{DType: t.DType, Shape: slices.Clone(shape)})
}
