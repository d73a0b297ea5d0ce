package ir

import "slices"

// kept is a result of a reduction with the dimensions that the reduction dropped, of size 1.
func (g *Gradient) kept(n *Node, v *Value) *Value {
	return g.shaped(v, reducedShape(n.Inputs[0].Type.Shape, n.Attrs.Ints("axes"), true)...)
}

func (n *Node) reducedCount() int {
	return n.Inputs[0].Type.Numel() / max(n.Outputs[0].Type.Numel(), 1)
}

func gradReduceSum(g *Gradient, n *Node) []*Value {
	return []*Value{g.Add("Expand", Attrs{"shape": n.Inputs[0].Type.Shape}, g.kept(n, g.Dy[0]))}
}

func gradReduceMean(g *Gradient, n *Node) []*Value {
	dy := g.times(g.kept(n, g.Dy[0]), 1/float64(max(n.reducedCount(), 1)))
	return []*Value{g.Add("Expand", Attrs{"shape": n.Inputs[0].Type.Shape}, dy)}
}

// gradReduceExtreme: equal elements share the gradient, as PyTorch's amax and JAX's.
func gradReduceExtreme(g *Gradient, n *Node) []*Value {
	dy := g.kept(n, g.Dy[0])
	there := g.cast(g.op("Equal", n.Inputs[0], g.kept(n, n.Outputs[0])), dy.dtype())
	count := g.Add("ReduceSum", Attrs{"axes": n.Attrs.Ints("axes"), "keepdims": true}, there)
	return []*Value{g.op("Mul", there, g.op("Div", dy, count))}
}

func (v *Value) dtype() DType { return v.Type.DType }

// gradReduceProd multiplies the elements before and after each element, rather than dividing: zeros are then
// harmless.
func gradReduceProd(g *Gradient, n *Node) []*Value {
	x, axes := n.Inputs[0], n.Attrs.Ints("axes")
	var perm []int
	for i := range x.Type.Shape {
		if !slices.Contains(axes, i) {
			perm = append(perm, i)
		}
	}
	perm = append(perm, axes...)
	back := make([]int, len(perm))
	moved := make([]int, len(perm))
	for i, p := range perm {
		back[p], moved[i] = i, x.Type.Shape[p]
	}
	rows := n.Outputs[0].Type.Numel()
	v := g.Reshape(g.transposed(x, perm...), rows, n.reducedCount())
	others := g.op("Mul",
		g.Add("CumProd", Attrs{"axis": 1, "exclusive": true}, v),
		g.Add("CumProd", Attrs{"axis": 1, "exclusive": true, "reverse": true}, v))
	dx := g.op("Mul", others, g.Reshape(g.Dy[0], rows, 1))
	return []*Value{g.transposed(g.Reshape(dx, moved...), back...)}
}

func gradCumSum(g *Gradient, n *Node) []*Value {
	attrs := n.Attrs.Clone()
	attrs["reverse"] = !n.Attrs.Bool("reverse")
	return []*Value{g.Add("CumSum", attrs, g.Dy[0])}
}

// gradCumProd takes each element out of the products by itself: products of n elements cost n² here.
func gradCumProd(g *Gradient, n *Node) []*Value {
	x, axis := n.Inputs[0].Type, n.Attrs.Int("axis", 0)
	d := x.Shape[axis]
	after := x.Rank() - axis - 1
	pair := func(f func(j, k int) bool) *Value { // a bool for each j (who is taken out) and k
		a := NewArray(T(Bool, slices.Concat([]int{d, d}, slices.Repeat([]int{1}, after))...))
		for i := range a.I {
			if f(i/d, i%d) {
				a.I[i] = 1
			}
		}
		return g.Constant(a.Tensor())
	}
	reverse, exclusive := n.Attrs.Bool("reverse"), n.Attrs.Bool("exclusive")
	stretched := func(v *Value) *Value { return g.Reshape(v, slices.Insert(slices.Clone(x.Shape), axis, 1)...) }
	without := g.op("Where", pair(func(j, k int) bool { return j == k }), g.Like(n.Inputs[0], 1), stretched(n.Inputs[0]))
	attrs := n.Attrs.Clone()
	attrs["axis"] = axis + 1
	products := g.op("Mul", g.Add("CumProd", attrs, without), stretched(g.Dy[0]))
	reads := pair(func(j, k int) bool {
		if reverse {
			j, k = k, j
		}
		return k > j || k == j && !exclusive
	})
	return []*Value{g.Add("ReduceSum", Attrs{"axes": []int{axis + 1}}, g.op("Where", reads, products, g.Like(g.Dy[0], 0)))}
}

func gradTopK(g *Gradient, n *Node) []*Value {
	if g.Dy[0] == nil {
		return nil
	}
	attrs := Attrs{"axis": n.Attrs.Int("axis", 0)}
	return []*Value{g.Add("ScatterElements", attrs, g.zeros(g.Dy[0], n.Inputs[0].Type.Shape...), n.Outputs[1], g.Dy[0])}
}

func gradSoftmax(g *Gradient, n *Node) []*Value {
	return []*Value{g.softmaxBack(n.Outputs[0], g.Dy[0], n.Attrs.Int("axis", 0))}
}

func (g *Gradient) softmaxBack(y, dy *Value, axis int) *Value {
	return g.Add("SoftmaxGrad", Attrs{"axis": axis}, y, dy)
}

func gradLogSoftmax(g *Gradient, n *Node) []*Value {
	sum := g.Add("ReduceSum", Attrs{"axes": []int{n.Attrs.Int("axis", 0)}, "keepdims": true}, g.Dy[0])
	return []*Value{g.op("Sub", g.Dy[0], g.op("Mul", g.op("Exp", n.Outputs[0]), sum))}
}

// gradNorm is the rule of LayerNorm and RMSNorm. The gradient of the scale is summed over what the norm gives without
// it.
func gradNorm(g *Gradient, n *Node) []*Value {
	dy, dx := g.Dy[0], make([]*Value, len(n.Inputs))
	if g.Wants(0) {
		in := []*Value{n.Inputs[0], dy}
		if s := n.In(1); s != nil {
			in = append(in, s)
		}
		dx[0] = g.Add(n.Op.Name+"Grad", n.Attrs, in...)
	}
	if g.Wants(1) {
		dx[1] = g.op("Mul", dy, g.Add(n.Op.Name, n.Attrs, n.Inputs[0]))
	}
	if g.Wants(2) {
		dx[2] = dy
	}
	return dx
}
