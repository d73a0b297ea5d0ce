package ir

import (
	"fmt"
	"slices"
)

// Gradient is what a gradient rule works on. It builds the nodes that compute the gradients of a node's inputs from
// Dy, those of its outputs. A gradient has the shape of its value and its element type, or f32 where that is no float
// of 16 bits or more: codes between QuantizeLinear and DequantizeLinear.
type Gradient struct {
	*Expansion
	Dy   []*Value // of each output; nil: zero
	want []bool
}

// Wants reports whether the gradient of input i is asked for.
func (g *Gradient) Wants(i int) bool { return i < len(g.want) && g.want[i] }

// Refuse says why a gradient that is asked for cannot be built.
func (g *Gradient) Refuse(format string, args ...any) []*Value {
	if g.err == nil {
		g.err = fmt.Errorf(format, args...)
	}
	return nil
}

// gradientType is the type of the gradient of a value.
func gradientType(v *Value) Type {
	if d := v.Type.DType; d.IsFloat() && d.Bits() >= 16 {
		return v.Type
	}
	return T(Float32, v.Type.Shape...)
}

// Gradients appends to g the nodes that compute Σ dys[i]·∂ys[i]/∂xs[j], where a nil dys[i] means ones (a scalar
// loss). xs may be any values: inputs, constants, results. It returns one value for each of xs, a constant of zeros
// where none of ys depends on it. Contributions to a value that is read several times are added in the reverse order
// of its readers, so that two calls give the same graph. An op without a gradient in between is an error that names
// its node; so is a rule that refuses.
func (g *Graph) Gradients(ys, dys, xs []*Value) ([]*Value, error) {
	b := &backward{Expansion: &Expansion{graph: g, name: "gradient"}}
	seeds := map[*Value]*Value{}
	for i, y := range ys {
		dy := dys[i]
		t := gradientType(y)
		switch {
		case !y.Type.DType.IsFloat():
			return nil, fmt.Errorf("%%%s is %v: only floating-point values have a gradient", y.Name, y.Type)
		case dy == nil && y.Type.Numel() != 1:
			return nil, fmt.Errorf("%%%s is %v: a loss is one number", y.Name, y.Type)
		case dy == nil:
			dy = g.Constant("one", Splat(t, 1))
		case !dy.Type.Equal(t):
			return nil, fmt.Errorf("gradient of %%%s is %v, want %v", y.Name, dy.Type, t)
		}
		b.accumulate(seeds, y, dy)
	}
	sums := b.walk(g.Nodes, seeds, xs)
	if b.err != nil {
		return nil, b.err
	}
	out := make([]*Value, len(xs))
	for i, x := range xs {
		if out[i] = sums[x]; out[i] == nil {
			out[i] = g.Constant("zero", Splat(gradientType(x), 0))
		}
	}
	g.Nodes = append(g.Nodes, b.nodes...)
	return out, nil
}

// backward is reverse-mode differentiation while it goes on (Griewank and Walther, Evaluating Derivatives, chapter 3).
type backward struct{ *Expansion }

// walk goes back over the nodes from the gradients in sums, to which it adds those of what the nodes read, as far as xs
// depends on it.
func (b *backward) walk(nodes []*Node, sums map[*Value]*Value, xs []*Value) map[*Value]*Value {
	active := dependents(nodes, xs)
	for i := len(nodes) - 1; i >= 0 && b.err == nil; i-- {
		n := nodes[i]
		dy := make([]*Value, len(n.Outputs))
		reached := false
		for k, v := range n.Outputs {
			dy[k] = sums[v]
			reached = reached || dy[k] != nil
		}
		want := make([]bool, len(n.Inputs))
		for k, v := range n.Inputs {
			want[k] = v != nil && active[v]
		}
		if !reached || !slices.Contains(want, true) {
			continue
		}
		b.name = n.Name
		dx := b.rule(n, dy, want)
		for k, v := range n.Inputs {
			if b.err == nil && want[k] && k < len(dx) && dx[k] != nil {
				b.accumulate(sums, v, b.fit(dx[k], gradientType(v)))
			}
		}
		if b.err != nil {
			b.err = fmt.Errorf("gradient of node %q (%s): %w", n.Name, n.Op.Name, b.err)
		}
	}
	return sums
}

// dependents are xs and the values that carry a gradient to one of them: floats computed from them, and codes.
func dependents(nodes []*Node, xs []*Value) map[*Value]bool {
	active := map[*Value]bool{}
	for _, x := range xs {
		active[x] = true
	}
	for _, n := range nodes {
		if !slices.ContainsFunc(n.Inputs, func(v *Value) bool { return v != nil && active[v] }) {
			continue
		}
		codes := n.Op.Name == "QuantizeLinear" || n.Op.Kind == KindMovement && active[n.Inputs[0]]
		for _, v := range n.Outputs {
			if v.Type.DType.IsFloat() || codes {
				active[v] = true
			}
		}
	}
	return active
}

// rule applies the row's rule, or those of what a composite op stands for.
func (b *backward) rule(n *Node, dy []*Value, want []bool) []*Value {
	switch {
	case n.Op.Grad != nil:
		return n.Op.Grad(&Gradient{Expansion: b.Expansion, Dy: dy, want: want}, n)
	case n.Op.Expand == nil:
		b.err = fmt.Errorf("the op has no gradient")
		return nil
	}
	nodes, outs, err := n.Expand(b.graph)
	if err != nil {
		b.err = err
		return nil
	}
	b.nodes = append(b.nodes, nodes...)
	sums := map[*Value]*Value{}
	for i, v := range outs {
		if dy[i] != nil {
			b.accumulate(sums, v, dy[i])
		}
	}
	var xs []*Value
	for i, v := range n.Inputs {
		if want[i] {
			xs = append(xs, v)
		}
	}
	b.walk(nodes, sums, xs)
	dx := make([]*Value, len(n.Inputs))
	for i, v := range n.Inputs {
		if want[i] && !slices.Contains(n.Inputs[:i], v) { // once, if it is read twice
			dx[i] = sums[v]
		}
	}
	return dx
}

// accumulate adds dv to the gradient of v.
func (b *backward) accumulate(sums map[*Value]*Value, v, dv *Value) {
	if before := sums[v]; before != nil {
		dv = b.Add("Add", nil, before, dv)
	}
	sums[v] = dv
}

// fit gives a gradient the type of its value: what was broadcast is summed.
func (x *Expansion) fit(dv *Value, t Type) *Value {
	if x.err != nil {
		return dv
	}
	if !slices.Equal(dv.Type.Shape, t.Shape) {
		dv = x.sumTo(dv, t.Shape)
	}
	if x.err == nil && dv.Type.DType != t.DType {
		dv = x.Add("Cast", Attrs{"to": t.DType}, dv)
	}
	return dv
}

// sumTo undoes a broadcast of shape: it sums over the dimensions that were added or stretched.
func (x *Expansion) sumTo(v *Value, shape []int) *Value {
	if x.err != nil {
		return v
	}
	extra := v.Type.Rank() - len(shape)
	if !BroadcastsTo(shape, v.Type.Shape) {
		// A rule may give one number for all.
		if !BroadcastsTo(v.Type.Shape, shape) {
			x.err = fmt.Errorf("gradient of shape %v for a value of shape %v", v.Type.Shape, shape)
			return v
		}
		return x.Add("Expand", Attrs{"shape": shape}, v)
	}
	axes := []int{}
	for i, d := range v.Type.Shape {
		if i < extra || shape[i-extra] != d {
			axes = append(axes, i)
		}
	}
	if len(axes) > 0 {
		v = x.Add("ReduceSum", Attrs{"axes": axes}, v)
	}
	return x.shaped(v, shape...)
}

// op appends a node without attributes.
func (x *Expansion) op(name string, in ...*Value) *Value { return x.Add(name, nil, in...) }

// times multiplies by a number.
func (x *Expansion) times(v *Value, number float64) *Value { return x.op("Mul", v, x.Like(v, number)) }

// zeros is a constant of v's element type.
func (x *Expansion) zeros(v *Value, shape ...int) *Value {
	if x.err != nil {
		return v
	}
	return x.Constant(Splat(T(v.Type.DType, shape...), 0))
}

// cast is v as element type d.
func (x *Expansion) cast(v *Value, d DType) *Value {
	if x.err != nil || v.Type.DType == d {
		return v
	}
	return x.Add("Cast", Attrs{"to": d}, v)
}

// transposed permutes dimensions.
func (x *Expansion) transposed(v *Value, perm ...int) *Value {
	if slices.IsSorted(perm) {
		return v
	}
	return x.Add("Transpose", Attrs{"perm": perm}, v)
}
