package lower

import (
	"cmp"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/ir"
)

var _ = register(map[string]rule{
	"Reshape": reshape, "Transpose": transpose, "Expand": expand, "Slice": slice, "Concat": concat, "Pad": pad, "Tile": tile,
	"Gather": gather, "GatherElements": gatherElements, "GatherND": gatherND, "ScatterElements": scatterElements, "ScatterND": scatterND,
	"Trilu": trilu, "ReverseSequence": reverseSequence,
})

func reshape(l *Lowering, n *ir.Node, _ int, idx []*expr.Expr) *expr.Expr {
	b := l.B
	return l.Value(n.Inputs[0], b.Unravel(b.Linear(idx, n.Outputs[0].Type.Shape), n.Inputs[0].Type.Shape))
}

func transpose(l *Lowering, n *ir.Node, _ int, idx []*expr.Expr) *expr.Expr {
	src := make([]*expr.Expr, len(idx))
	for i, p := range n.Attrs.Ints("perm") {
		src[p] = idx[i]
	}
	return l.Value(n.Inputs[0], src)
}

func expand(l *Lowering, n *ir.Node, _ int, idx []*expr.Expr) *expr.Expr {
	return l.at(n.Inputs[0], idx)
}

func slice(l *Lowering, n *ir.Node, _ int, idx []*expr.Expr) *expr.Expr {
	starts, steps := n.Attrs.Ints("starts"), n.Attrs.Ints("steps")
	src := make([]*expr.Expr, len(idx))
	for i, x := range idx {
		step := 1
		if steps != nil {
			step = steps[i]
		}
		src[i] = l.B.Offset(l.B.Scale(x, int64(step)), int64(starts[i]))
	}
	return l.Value(n.Inputs[0], src)
}

func concat(l *Lowering, n *ir.Node, _ int, idx []*expr.Expr) *expr.Expr {
	b := l.B
	axis := n.Attrs.Int("axis", 0)
	x := idx[axis]
	var e *expr.Expr
	at, zero := int64(n.Outputs[0].Type.Shape[axis]), b.Zero(Type(n.Outputs[0].Type.DType))
	for i := len(n.Inputs) - 1; i >= 0; i-- {
		v := n.Inputs[i]
		size := int64(v.Type.Shape[axis])
		at -= size
		if size == 0 || x.Lo >= at+size || x.Hi < at {
			continue
		}
		f := func() *expr.Expr { return l.Value(v, set(idx, axis, b.Offset(x, -at))) }
		e = l.Under(b.Within(x, at, at+size), cmp.Or(e, zero), f)
	}
	return e
}

func pad(l *Lowering, n *ir.Node, _ int, idx []*expr.Expr) *expr.Expr {
	b := l.B
	shape, begin := n.Inputs[0].Type.Shape, n.Attrs.Ints("begin")
	mode := n.Attrs.String("mode", "constant")
	src := make([]*expr.Expr, len(idx))
	inside := b.Bool(true)
	for i, x := range idx {
		j, d := b.Offset(x, int64(-begin[i])), int64(shape[i])
		in := b.Within(j, 0, d)
		switch {
		case in.IsConstInt(1):
		case mode == "constant":
			inside = b.And(inside, in)
		case mode == "edge" || d == 1:
			j = b.Min(b.Max(j, b.Int(0)), b.Int(int(d-1)))
		case mode == "wrap":
			j = b.FloorMod(j, d)
		default: // reflect
			m := b.FloorMod(j, 2*(d-1))
			j = b.Min(m, b.Sub(b.Int(int(2*(d-1))), m))
		}
		src[i] = j
	}
	t := n.Outputs[0].Type.DType
	fill := Convert(b, b.F64(n.Attrs.Float("value", 0)), ir.Float64, t, false, "nearest")
	return l.Under(inside, fill, func() *expr.Expr { return l.Value(n.Inputs[0], src) })
}

func tile(l *Lowering, n *ir.Node, _ int, idx []*expr.Expr) *expr.Expr {
	src := make([]*expr.Expr, len(idx))
	for i, x := range idx {
		src[i] = l.B.FloorMod(x, int64(n.Inputs[0].Type.Shape[i]))
	}
	return l.Value(n.Inputs[0], src)
}

// resolve turns an index read from memory, negative from the end, into an S32 in [0, d). Wrong indices are clamped: no
// access leaves a tensor.
func (l *Lowering) resolve(x *expr.Expr, d int) *expr.Expr {
	b := l.B
	x = b.Select(b.Lt(x, b.Zero(x.Type)), b.Offset(x, int64(d)), x)
	x = b.Min(b.Max(x, b.Zero(x.Type)), b.ConstInt(x.Type, int64(max(d-1, 0))))
	return b.Cast(x, expr.S32)
}

// Scattered are the value that an update of a scatter along one axis has, at the update's index, and where it goes: the
// number of an element of the output.
func (l *Lowering) Scattered(n *ir.Node, idx []*expr.Expr) (value, at *expr.Expr) {
	shape, axis := n.Outputs[0].Type.Shape, n.Attrs.Int("axis", 0)
	to := l.resolve(l.Value(n.Inputs[1], idx), shape[axis])
	return l.Value(n.Inputs[2], idx), l.B.Linear(set(idx, axis, to), shape)
}

func gather(l *Lowering, n *ir.Node, _ int, idx []*expr.Expr) *expr.Expr {
	x, ind := n.Inputs[0], n.Inputs[1]
	axis, r := n.Attrs.Int("axis", 0), ind.Type.Rank()
	k := l.resolve(l.Value(ind, idx[axis:axis+r]), x.Type.Shape[axis])
	src := append(append(append([]*expr.Expr{}, idx[:axis]...), k), idx[axis+r:]...)
	return l.Value(x, src)
}

func gatherElements(l *Lowering, n *ir.Node, _ int, idx []*expr.Expr) *expr.Expr {
	x, ind := n.Inputs[0], n.Inputs[1]
	axis := n.Attrs.Int("axis", 0)
	return l.Value(x, set(idx, axis, l.resolve(l.Value(ind, idx), x.Type.Shape[axis])))
}

func gatherND(l *Lowering, n *ir.Node, _ int, idx []*expr.Expr) *expr.Expr {
	x, ind := n.Inputs[0], n.Inputs[1]
	batch, r := n.Attrs.Int("batch_dims", 0), ind.Type.Rank()
	k := ind.Type.Shape[r-1]
	src := append([]*expr.Expr{}, idx[:batch]...)
	for j := range k {
		at := append(append([]*expr.Expr{}, idx[:r-1]...), l.B.Int(j))
		src = append(src, l.resolve(l.Value(ind, at), x.Type.Shape[batch+j]))
	}
	return l.Value(x, append(src, idx[r-1:]...))
}

// scatter combines x at an index with the updates that hit it. hit and update are functions of the update's position,
// given by vars in row-major order.
func (l *Lowering) scatter(n *ir.Node, idx, vars []*expr.Expr, hit func(at []*expr.Expr) *expr.Expr, update func(at []*expr.Expr) *expr.Expr) *expr.Expr {
	b := l.B
	d := n.Outputs[0].Type.DType
	x := l.Value(n.Inputs[0], idx)
	shape := make([]int, len(vars))
	for i, v := range vars {
		shape[i] = int(v.Hi + 1)
	}
	reduction := n.Attrs.String("reduction", "none")
	if reduction == "none" {
		last := b.Reduce(expr.Max, live(vars), b.Select(hit(vars), b.Linear(vars, shape), b.Int(-1)))
		u := update(b.Unravel(b.Max(last, b.Int(0)), shape))
		return b.Select(b.Le(b.Int(0), last), u, x)
	}
	u := update(vars)
	p := hit(vars)
	switch reduction {
	case "add":
		return Round(b, b.Add(x, b.Reduce(expr.Sum, live(vars), b.Select(p, u, b.Zero(u.Type)))), d)
	case "mul":
		return Round(b, b.Mul(x, b.Reduce(expr.Prod, live(vars), b.Select(p, u, b.Number(u.Type, 1)))), d)
	}
	op := expr.Max
	if reduction == "min" {
		op = expr.Min
	}
	flip := func(e *expr.Expr) *expr.Expr { return order(b, e, d) }
	best := b.Reduce(op, live(vars), b.Select(p, flip(u), b.Identity(op, u.Type)))
	if op == expr.Max {
		return flip(b.Max(flip(x), best))
	}
	return flip(b.Min(flip(x), best))
}

// order maps u64 to S64 (and back) such that signed order is unsigned order; other types stay.
func order(b *expr.Builder, e *expr.Expr, d ir.DType) *expr.Expr {
	if d == ir.Uint64 {
		return b.Xor(e, b.ConstInt(expr.S64, -1<<63))
	}
	return e
}

// live drops indices of range 1.
func live(vars []*expr.Expr) []*expr.Expr {
	var out []*expr.Expr
	for _, v := range vars {
		if v.Op == expr.OpVar {
			out = append(out, v)
		}
	}
	return out
}

// vars returns reduction variables over a shape; a dimension of 1 is the constant 0.
func (l *Lowering) vars(shape []int, indices ...*expr.Expr) []*expr.Expr {
	out := make([]*expr.Expr, len(shape))
	for i, d := range shape {
		if d == 1 {
			out[i] = l.B.Int(0)
		} else {
			out[i] = l.B.ReduceVar(d, i, indices)
		}
	}
	return out
}

func scatterElements(l *Lowering, n *ir.Node, _ int, idx []*expr.Expr) *expr.Expr {
	b := l.B
	x, ind, upd := n.Inputs[0], n.Inputs[1], n.Inputs[2]
	axis := n.Attrs.Int("axis", 0)
	shape := ind.Type.Shape
	if ind.Type.Numel() == 0 {
		return l.Value(x, idx)
	}
	covered := b.Bool(true)
	at := append([]*expr.Expr{}, idx...)
	for i := range idx {
		if i != axis {
			covered = b.And(covered, b.Lt(idx[i], b.Int(shape[i])))
			at[i] = b.Min(idx[i], b.Int(shape[i]-1))
		}
	}
	k := l.vars([]int{shape[axis]}, idx...)
	hit := func(v []*expr.Expr) *expr.Expr {
		return b.And(covered, b.Eq(l.resolve(l.Value(ind, set(at, axis, v[0])), x.Type.Shape[axis]), idx[axis]))
	}
	return l.scatter(n, idx, k, hit, func(v []*expr.Expr) *expr.Expr { return l.Value(upd, set(at, axis, v[0])) })
}

func scatterND(l *Lowering, n *ir.Node, _ int, idx []*expr.Expr) *expr.Expr {
	b := l.B
	x, ind, upd := n.Inputs[0], n.Inputs[1], n.Inputs[2]
	r := ind.Type.Rank()
	k := ind.Type.Shape[r-1]
	if ind.Type.Numel() == 0 && k > 0 {
		return l.Value(x, idx)
	}
	vars := l.vars(ind.Type.Shape[:r-1], idx...)
	hit := func(v []*expr.Expr) *expr.Expr {
		p := b.Bool(true)
		for j := range k {
			at := append(append([]*expr.Expr{}, v...), b.Int(j))
			p = b.And(p, b.Eq(l.resolve(l.Value(ind, at), x.Type.Shape[j]), idx[j]))
		}
		return p
	}
	return l.scatter(n, idx, vars, hit, func(v []*expr.Expr) *expr.Expr {
		return l.Value(upd, append(append([]*expr.Expr{}, v...), idx[k:]...))
	})
}

func trilu(l *Lowering, n *ir.Node, _ int, idx []*expr.Expr) *expr.Expr {
	b := l.B
	r := len(idx)
	d := b.Sub(idx[r-1], idx[r-2])
	k := b.Int(n.Attrs.Int("k", 0))
	keep := b.Le(k, d)
	if !n.Flag("upper") {
		keep = b.Le(d, k)
	}
	return l.orZero(keep, n.Inputs[0], idx)
}

func reverseSequence(l *Lowering, n *ir.Node, _ int, idx []*expr.Expr) *expr.Expr {
	b := l.B
	batch, time := n.Attrs.Int("batch_axis", 1), n.Attrs.Int("time_axis", 0)
	d := n.Inputs[0].Type.Shape[time]
	length := l.Value(n.Inputs[1], []*expr.Expr{idx[batch]})
	length = b.Cast(b.Min(b.Max(length, b.Zero(length.Type)), b.ConstInt(length.Type, int64(d))), expr.S32)
	t := idx[time]
	j := b.Select(b.Lt(t, length), b.Sub(b.Offset(length, -1), t), t)
	j = b.Min(b.Max(j, b.Int(0)), b.Int(d-1)) // for the range analysis
	return l.Value(n.Inputs[0], set(idx, time, j))
}
