package lower

import (
	"cmp"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/ir"
)

var _ = register(map[string]rule{"WarpFrame": warpFrame})

// warpFrame computes a pixel as ir's row says it, operation by operation: what is rounded there is rounded here. All
// but the loads is the same for all frames.
func warpFrame(l *Lowering, n *ir.Node, _ int, idx []*expr.Expr) *expr.Expr {
	w := warper{l: l, n: n, i: idx[0]}
	return w.pixel(idx[1], idx[2], idx[3])
}

// warper samples one frame, that of matrix i.
type warper struct {
	l *Lowering
	n *ir.Node
	i *expr.Expr

	width, height, base, stride, step *expr.Expr // of the plane that is read
}

// pixel is that of plane c at row r and column x.
func (w *warper) pixel(c, r, x *expr.Expr) *expr.Expr {
	l, b := w.l, w.l.B
	format := func(k int) *expr.Expr { return l.Value(w.n.Inputs[1], []*expr.Expr{b.Int(k)}) }
	w.width, w.height, w.base, w.stride, w.step = format(0), format(1), b.Int(0), format(2), b.Int(1)
	isChroma := b.Bool(false)
	if phases := w.n.Attrs.Ints("phases"); len(phases) > 0 {
		luma := len(phases) / 2
		isChroma = b.Le(b.Int(luma), c)
		row, column := b.Int(0), b.Int(0)
		for k := range luma {
			is := b.Eq(c, b.Int(k))
			row, column = b.Select(is, b.Int(phases[2*k]), row), b.Select(is, b.Int(phases[2*k+1]), column)
		}
		r, x = b.Select(isChroma, r, b.Add(b.Scale(r, 2), row)), b.Select(isChroma, x, b.Add(b.Scale(x, 2), column))
		half := func(v *expr.Expr) *expr.Expr { return b.Select(isChroma, b.Shr(v, b.Int(1)), v) }
		w.width, w.height = half(w.width), half(w.height)
		w.base = b.Select(isChroma, b.Add(format(3), b.Offset(c, int64(-luma))), w.base)
		w.step = b.Select(isChroma, b.Int(2), w.step)
	}
	m := func(k int) *expr.Expr { return w.entry(k, isChroma) }
	fx, fy := b.Cast(x, expr.F32), b.Cast(r, expr.F32)
	at := func(k int) *expr.Expr { return b.Add(b.Add(b.Mul(m(3*k), fx), b.Mul(m(3*k+1), fy)), m(3*k+2)) }
	z := at(2)
	if !w.n.Flag("linear") {
		return w.fetch(w.whole(b.Div(at(0), z), z), w.whole(b.Div(at(1), z), z))
	}
	s := b.Div(b.F32(32), z)
	u, v := w.whole(b.Mul(at(0), s), z), w.whole(b.Mul(at(1), s), z)
	a, d := b.And(u, b.Int(31)), b.And(v, b.Int(31))
	su, sv := b.Shr(u, b.Int(5)), b.Shr(v, b.Int(5))
	sum := b.Int(512)
	for k := range 4 {
		wx, wy := b.Sub(b.Int(32), a), b.Sub(b.Int(32), d)
		if k%2 == 1 {
			wx = a
		}
		if k/2 == 1 {
			wy = d
		}
		p := w.fetch(b.Offset(su, int64(k%2)), b.Offset(sv, int64(k/2)))
		sum = b.Add(sum, b.Mul(b.Mul(wx, wy), p))
	}
	return b.Shr(sum, b.Int(10))
}

// entry is that of a plane's matrix (ir's warp.chroma).
func (w *warper) entry(k int, isChroma *expr.Expr) *expr.Expr {
	l, b := w.l, w.l.B
	m := func(k int) *expr.Expr { return l.Value(w.n.Inputs[0], []*expr.Expr{w.i, b.Int(k / 3), b.Int(k % 3)}) }
	times := func(s float64, v *expr.Expr) *expr.Expr { return b.Mul(v, b.F32(s)) }
	if len(w.n.Attrs.Ints("phases")) == 0 {
		return m(k)
	}
	if !w.n.Flag("linear") {
		if s := [9]float64{1, 1, .5, 1, 1, .5, 2, 2, 1}[k]; s != 1 {
			return b.Mul(m(k), b.Select(isChroma, b.F32(s), b.F32(1)))
		}
		return m(k)
	}
	half := func(r int) *expr.Expr { return b.Add(b.Add(times(.5, m(3*r)), times(.5, m(3*r+1))), m(3*r+2)) }
	var v *expr.Expr
	switch {
	case k == 8:
		v = half(2)
	case k >= 6:
		v = times(2, m(k))
	case k%3 == 2:
		v = b.Sub(times(.5, half(k/3)), times(.25, half(2)))
	default:
		v = b.Sub(m(k), times(.5, m(6+k%3)))
	}
	return b.Select(isChroma, v, m(k))
}

// whole rounds a coordinate to an integer; z is what it was divided by.
func (w *warper) whole(x, z *expr.Expr) *expr.Expr {
	const farthest = 1 << 20
	b := w.l.B
	r := b.Round(b.Max(b.F32(-farthest), b.Min(b.Select(b.Or(b.Eq(z, b.F32(0)), b.IsNaN(x)), b.F32(0), x), b.F32(farthest))))
	return b.Cast(r, expr.S32)
}

// fetch is the byte at column x and row y, or what is outside.
func (w *warper) fetch(x, y *expr.Expr) *expr.Expr {
	l, b := w.l, w.l.B
	inside := func(v, size *expr.Expr) *expr.Expr { return b.Max(b.Int(0), b.Min(v, b.Offset(size, -1))) }
	u, v := inside(x, w.width), inside(y, w.height)
	at := b.Add(w.base, b.Add(b.Mul(v, w.stride), b.Mul(u, w.step)))
	frames := w.n.Inputs[2:]
	at = b.Max(b.Int(0), b.Min(at, b.Int(frames[0].Type.Shape[0]-1)))
	var p *expr.Expr
	for i := len(frames) - 1; i >= 0; i-- {
		mine := b.Within(w.i, int64(i), int64(i+1))
		index := []*expr.Expr{b.Select(mine, at, b.Int(-1))} // not provably inside, so that no other frame is read
		p = l.Under(mine, cmp.Or(p, b.Int(0)), func() *expr.Expr { return l.Value(frames[i], index) })
	}
	if fill := w.n.Attrs.Int("fill", -1); fill >= 0 {
		p = b.Select(b.And(b.Eq(u, x), b.Eq(v, y)), p, b.Int(fill))
	}
	return p
}
