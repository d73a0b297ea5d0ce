package lower

import (
	"math"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/internal/minifloat"
	"github.com/spark-compile/spark-compile/ir"
)

var _ = register(map[string]rule{"MaxPool": maxPool, "AveragePool": averagePool, "LpPool": averagePool})

func maxPool(l *Lowering, n *ir.Node, out int, idx []*expr.Expr) *expr.Expr {
	b := l.B
	x := n.Inputs[0]
	d := x.Type.DType
	batch, ch, at := image(n, idx)
	size, _ := extents(n, x.Type.Shape)
	k := l.vars(n.Attrs.Ints("kernel"), idx...)
	in, inside := l.taps(n, size, at, k)
	src := imageIndex(n, batch, ch, in)
	least := l.leastOf(d)
	e := l.Under(inside, least, func() *expr.Expr { return l.Value(x, src) })
	ordered := order(b, e, d)
	best := b.Reduce(expr.Max, live(k), ordered)
	if out == 0 {
		return order(b, best, d)
	}
	same := alike(b, ordered, best)
	none := b.ConstInt(expr.S64, math.MaxInt64)
	linear := b.Cast(b.Linear(src, x.Type.Shape), expr.S64)
	first := b.Reduce(expr.Min, live(k), b.Select(b.And(inside, same), linear, none))
	if n.Attrs.Bool("column_major") {
		plane := int64(1)
		for _, s := range size {
			plane *= int64(s)
		}
		safe := b.Max(first, b.ConstInt(expr.S64, 0))
		rest := b.FloorMod(safe, plane)
		turned := b.Sub(safe, rest)
		step := int64(1)
		for i, p := range b.Unravel(rest, size) {
			turned = b.Add(turned, b.Scale(b.Cast(p, expr.S64), step))
			step *= int64(size[i])
		}
		first = b.Select(b.Eq(first, none), none, turned)
	}
	return b.Select(b.Eq(first, none), b.ConstInt(expr.S64, -1), first)
}

// leastOf is the least value of an element type.
func (l *Lowering) leastOf(d ir.DType) *expr.Expr {
	if d.IsFloat() {
		return Round(l.B, l.B.Float(Type(d), math.Inf(-1)), d)
	}
	lo, _ := minifloat.Range(d.Bits(), d.IsInt() && d.IsSigned())
	return l.B.ConstInt(Type(d), lo)
}

func averagePool(l *Lowering, n *ir.Node, _ int, idx []*expr.Expr) *expr.Expr {
	b := l.B
	x := n.Inputs[0]
	d := x.Type.DType
	batch, ch, at := image(n, idx)
	size, _ := extents(n, x.Type.Shape)
	kernel := n.Attrs.Ints("kernel")
	k := l.vars(kernel, idx...)
	in, inside := l.taps(n, size, at, k)
	t := Type(d)
	e := l.orZero(inside, x, imageIndex(n, batch, ch, in))
	if n.Op.Name == "LpPool" {
		p := b.Float(t, float64(n.Attrs.Int("p", 2)))
		s := b.Reduce(expr.Sum, live(k), b.Pow(b.Abs(e), p))
		root := b.Pow(s, b.Float(t, 1/p.F))
		if p.F == 2 {
			root = b.Sqrt(s)
		}
		return Round(b, root, d)
	}
	sum := b.Reduce(expr.Sum, live(k), e)
	return Round(b, b.Div(sum, b.Cast(l.divisor(n, size, at), t)), d)
}

// divisor counts the taps of an average dimension by dimension: those inside the input, with include_pad those in the
// padding too.
func (l *Lowering) divisor(n *ir.Node, size []int, at []*expr.Expr) *expr.Expr {
	b := l.B
	strides, dilations, pads := n.Attrs.Ints("strides"), n.Attrs.Ints("dilations"), n.Attrs.Ints("pads")
	count := b.Int(1)
	for i, kn := range n.Attrs.Ints("kernel") {
		lo, hi := int64(0), int64(size[i])
		if n.Attrs.Bool("include_pad") {
			lo, hi = int64(-pads[i]), int64(size[i]+pads[len(size)+i])
		}
		c := b.Int(0)
		for k := range kn {
			x := b.Offset(b.Scale(at[i], int64(strides[i])), int64(k*dilations[i]-pads[i]))
			c = b.Add(c, b.Cast(b.Within(x, lo, hi), expr.S32))
		}
		count = b.Mul(count, c)
	}
	return count
}
