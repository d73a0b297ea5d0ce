package passes

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// flattenIntoWeights removes a transposition before a flattening if only constant matrices read the result, directly
// or through elementwise ops: the matrices' rows are permuted instead.
func flattenIntoWeights(g *ir.Graph) {
	uses := g.Uses()
	for _, n := range g.Nodes {
		if n.Op.Name != "Reshape" {
			continue
		}
		t := defOp(n.Inputs[0], "Transpose")
		if t == nil {
			continue
		}
		order := flattenedOrder(n, t)
		if order == nil {
			continue
		}
		if f := (flattened{order: order, values: map[*ir.Value]bool{}}); f.follow(n.Outputs[0], uses) {
			f.apply(g)
			n.Inputs[0] = t.Inputs[0]
			uses = g.Uses()
		}
	}
}

// flattenedOrder returns, for a reshape whose last dimension gathers all dimensions that the transposition moved, where
// each element along it comes from: order[i] is the place in n's result of what is i-th in the untransposed order.
func flattenedOrder(n, t *ir.Node) []int {
	shape, perm := n.Inputs[0].Type.Shape, t.Attrs.Ints("perm")
	to := n.Outputs[0].Type.Shape
	if len(to) == 0 || n.Outputs[0].Type.Numel() == 0 {
		return nil
	}
	last := to[len(to)-1]
	first := len(shape) // the dimensions from here on make the last one
	for size := 1; size < last; {
		first--
		size *= shape[first]
		if size > last || first == 0 && size < last {
			return nil
		}
	}
	if (ir.Type{Shape: shape[first:]}).Numel() != last || !isIdentityPerm(perm[:first]) {
		return nil
	}
	back := inversePerm(perm)[first:] // dimensions in the order before the transposition
	order := make([]int, last)
	eachOffset(permute(shape, back), transposedStrides(shape, back), func(i, at int) { order[i] = at })
	return order
}

// flattened is a set of values whose last dimension may be reordered, and the nodes that must take part.
type flattened struct {
	order     []int
	values    map[*ir.Value]bool
	pointwise []*ir.Node
	products  []*ir.Node
}

// follow collects everything that reads v and reports whether all of it can be reordered.
func (f *flattened) follow(v *ir.Value, uses map[*ir.Value][]ir.Use) bool {
	work := []*ir.Value{v}
	f.values[v] = true
	for len(work) > 0 {
		v, work = work[0], work[1:]
		for _, u := range uses[v] {
			switch {
			case u.Node == nil:
				return false
			case u.Node.Op.Name == "MatMul":
				w, ok := u.Node.Weights()
				if !ok || u.Index != 0 || w.InAxis != v.Type.Rank()-1 || !u.Node.Inputs[1].IsConst() {
					return false
				}
				f.products = append(f.products, u.Node)
			case u.Node.Op.Pointwise() && slices.Equal(u.Node.Outputs[0].Type.Shape, v.Type.Shape):
				if y := u.Node.Outputs[0]; !f.values[y] {
					f.values[y] = true
					f.pointwise = append(f.pointwise, u.Node)
					work = append(work, y)
				}
			default:
				return false
			}
		}
	}
	for _, n := range f.pointwise {
		for _, w := range n.Inputs {
			if !f.values[w] && !w.IsConst() {
				return false
			}
		}
	}
	return true
}

// apply reorders constants along the last dimension and the matrices' rows.
func (f *flattened) apply(g *ir.Graph) {
	for _, n := range f.pointwise {
		for i, c := range n.Inputs {
			if r := c.Type.Rank(); c.IsConst() && r > 0 && c.Type.Shape[r-1] == len(f.order) {
				n.Inputs[i] = g.Constant(c.Name, reorderTensor(c.Const, r-1, f.order))
			}
		}
	}
	for _, n := range f.products {
		w, _ := n.Weights()
		b := n.Inputs[1]
		n.Inputs[1] = g.Constant(b.Name, moved(b.Const, func(t *ir.Tensor) *ir.Tensor { return reorderTensor(t, w.InputAxis(), f.order) }))
	}
}

// reorderTensor lists the elements along an axis in the given order.
func reorderTensor(t *ir.Tensor, axis int, order []int) *ir.Tensor {
	if t.Splat {
		return t
	}
	a := t.Array()
	out := ir.NewArray(t.Type)
	inner := ir.Type{Shape: t.Shape[axis+1:]}.Numel()
	for i := range out.Numel() {
		j := i / inner % len(order)
		from := i + (order[j]-j)*inner
		if out.F != nil {
			out.F[i] = a.F[from]
		} else {
			out.I[i] = a.I[from]
		}
	}
	return out.Tensor()
}
