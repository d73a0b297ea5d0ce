package lower

import (
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/internal/minifloat"
	"github.com/spark-compile/spark-compile/ir"
)

var _ = register(map[string]rule{
	"ReduceSum": reduce, "ReduceMean": reduce, "ReduceMax": reduce, "ReduceMin": reduce, "ReduceProd": reduce,
	"ArgMax": arg, "ArgMin": arg,
	"CumSum": cumulative, "CumProd": cumulative, "TopK": topK,
})

// over returns, for a reduction of x over axes, the index into x whose reduced coordinates are fresh variables, and
// those variables. kept holds the other coordinates in order.
func (l *Lowering) over(shape, axes []int, kept []*expr.Expr) (at, vars []*expr.Expr) {
	var sizes []int
	for _, a := range axes {
		sizes = append(sizes, shape[a])
	}
	vars = l.vars(sizes, kept...)
	at = make([]*expr.Expr, len(shape))
	k, v := 0, 0
	for i := range shape {
		if slices.Contains(axes, i) {
			at[i] = vars[v]
			v++
		} else {
			at[i] = kept[k]
			k++
		}
	}
	return at, vars
}

func reduce(l *Lowering, n *ir.Node, _ int, idx []*expr.Expr) *expr.Expr {
	b := l.B
	x := n.Inputs[0]
	axes, d := n.Attrs.Ints("axes"), x.Type.DType
	kept := idx
	if n.Attrs.Bool("keepdims") {
		kept = nil
		for i, e := range idx {
			if !slices.Contains(axes, i) {
				kept = append(kept, e)
			}
		}
	}
	count := 1
	for _, a := range axes {
		count *= x.Type.Shape[a]
	}
	op := map[string]expr.ReduceOp{"ReduceSum": expr.Sum, "ReduceMean": expr.Sum, "ReduceMax": expr.Max, "ReduceMin": expr.Min, "ReduceProd": expr.Prod}[n.Op.Name]
	if count == 0 {
		return l.emptyReduction(n, op, d)
	}
	at, vars := l.over(x.Type.Shape, axes, kept)
	e := l.Value(x, at)
	switch {
	case d == ir.Bool:
		r := b.Reduce(op, live(vars), b.Cast(e, expr.S32))
		return b.Ne(r, b.Int(0))
	case n.Op.Name == "ReduceMean" && !d.IsFloat():
		s := b.Reduce(op, live(vars), b.Cast(e, expr.S64))
		if d == ir.Uint64 {
			return b.DivU(s, b.ConstInt(expr.S64, int64(count)))
		}
		return wrapInt(b, b.Cast(b.Div(s, b.ConstInt(expr.S64, int64(count))), e.Type), d)
	}
	compares := op == expr.Max || op == expr.Min
	if compares {
		e = order(b, e, d)
	}
	r := b.Reduce(op, live(vars), e)
	if compares {
		r = order(b, r, d)
	}
	if n.Op.Name == "ReduceMean" {
		r = b.Div(r, b.Float(r.Type, float64(count)))
	}
	return Round(b, r, d)
}

func (l *Lowering) emptyReduction(n *ir.Node, op expr.ReduceOp, d ir.DType) *expr.Expr {
	b := l.B
	t := Type(d)
	lo, hi := int64(0), int64(1)
	if d.IsInt() {
		lo, hi = minifloat.Range(d.Bits(), d.IsSigned())
	}
	if d == ir.Uint64 {
		hi = -1 // its bits
	}
	switch {
	case n.Op.Name == "ReduceMean" && d.IsFloat():
		return b.Float(t, math.NaN())
	case op == expr.Sum:
		return b.Zero(t)
	case op == expr.Prod:
		return b.Number(t, 1)
	case d.IsFloat():
		return Round(b, b.Identity(op, t), d)
	case op == expr.Max:
		return b.ConstInt(t, lo)
	}
	return b.ConstInt(t, hi)
}

// before reports whether x stands before y in ascending order, NaN after every number.
func before(b *expr.Builder, x, y *expr.Expr, d ir.DType) *expr.Expr {
	if !d.IsFloat() {
		return less(b, x, y, d)
	}
	return b.Or(b.Lt(x, y), b.And(b.IsNaN(y), b.Not(b.IsNaN(x))))
}

// alike reports whether x and y are equal or both NaN.
func alike(b *expr.Builder, x, y *expr.Expr) *expr.Expr {
	if !x.Type.IsFloat() {
		return b.Eq(x, y)
	}
	return b.Or(b.Eq(x, y), b.And(b.IsNaN(x), b.IsNaN(y)))
}

func arg(l *Lowering, n *ir.Node, _ int, idx []*expr.Expr) *expr.Expr {
	b := l.B
	x := n.Inputs[0]
	d, axis := x.Type.DType, n.Attrs.Int("axis", 0)
	kept := idx
	if n.Attrs.Bool("keepdims") {
		kept = append(append([]*expr.Expr{}, idx[:axis]...), idx[axis+1:]...)
	}
	at, vars := l.over(x.Type.Shape, []int{axis}, kept)
	e := order(b, l.Value(x, at), d)
	op := expr.Max
	if n.Op.Name == "ArgMin" {
		op = expr.Min
		if d.IsFloat() {
			e = b.Select(b.IsNaN(e), b.Float(e.Type, math.Inf(1)), e) // NaN is after every number
		}
	}
	best := b.Reduce(op, live(vars), e)
	same := alike(b, e, best)
	first, none := expr.Min, b.Int(math.MaxInt32)
	if n.Attrs.Bool("last") {
		first, none = expr.Max, b.Int(-1)
	}
	r := b.Reduce(first, live(vars), b.Select(same, vars[0], none))
	return b.Cast(r, expr.S64)
}

func cumulative(l *Lowering, n *ir.Node, _ int, idx []*expr.Expr) *expr.Expr {
	b := l.B
	x := n.Inputs[0]
	axis := n.Attrs.Int("axis", 0)
	k := l.vars([]int{x.Type.Shape[axis]}, idx...)
	e := l.Value(x, set(idx, axis, k[0]))
	i, j := idx[axis], k[0]
	if n.Attrs.Bool("reverse") {
		i, j = j, i
	}
	in := b.Le(j, i)
	if n.Attrs.Bool("exclusive") {
		in = b.Lt(j, i)
	}
	op, neutral := expr.Sum, b.Zero(e.Type)
	if n.Op.Name == "CumProd" {
		op, neutral = expr.Prod, b.Number(e.Type, 1)
	}
	return Round(b, b.Reduce(op, live(k), b.Select(in, e, neutral)), n.Outputs[0].Type.DType)
}

// topK counts, for every element of the row, how many stand before it; element number k is the one with k before it.
func topK(l *Lowering, n *ir.Node, out int, idx []*expr.Expr) *expr.Expr {
	b := l.B
	x := n.Inputs[0]
	axis, d := n.Attrs.Int("axis", 0), x.Type.DType
	size := x.Type.Shape[axis]
	i := l.vars([]int{size}, idx...)[0]
	j := l.vars([]int{size}, append([]*expr.Expr{i}, idx...)...)[0]
	xi, xj := l.Value(x, set(idx, axis, i)), l.Value(x, set(idx, axis, j))
	lo, hi := xj, xi
	if n.Flag("largest") {
		lo, hi = xi, xj
	}
	first := b.Or(before(b, lo, hi, d), b.And(b.Not(before(b, hi, lo, d)), b.Lt(j, i)))
	rank := b.Reduce(expr.Sum, live([]*expr.Expr{j}), b.Cast(first, expr.S32))
	pick := b.Reduce(expr.Sum, live([]*expr.Expr{i}), b.Select(b.Eq(rank, idx[axis]), i, b.Int(0)))
	if out == 1 {
		return b.Cast(pick, expr.S64)
	}
	pick = b.Min(b.Max(pick, b.Int(0)), b.Int(size-1)) // for the range analysis
	return l.Value(x, set(idx, axis, pick))
}
