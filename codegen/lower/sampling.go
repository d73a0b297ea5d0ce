package lower

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/ir"
)

var _ = register(map[string]rule{"Resize": resize, "GridSample": gridSample, "RoiAlign": roiAlign, "RoiAlignWeights": roiAlignWeights})

// unrolledTaps is the number of taps of a Resize that are written out instead of looped over.
const unrolledTaps = 16

// axisTaps are the taps of one dimension of a Resize as tables.
type axisTaps struct {
	dim, taps     int
	index, weight int // operands: i32 [out, taps] and f32 or f64 [out, taps]
	out           int
	affine        int // > 0: the index is j/affine; < 0: j·-affine
}

func resize(l *Lowering, n *ir.Node, _ int, idx []*expr.Expr) *expr.Expr {
	b := l.B
	x := n.Inputs[0]
	d := n.Outputs[0].Type.DType
	t := expr.F32
	if d == ir.Float64 || !d.IsFloat() {
		t = expr.F64 // truncation would show the rounding of f32
	}
	nearest := n.Attrs.String("mode", "nearest") == "nearest"
	var dims []axisTaps
	all := 1
	outside := b.Bool(false)
	for i := range idx {
		index, weight, out := n.ResizeTaps(i)
		for j, o := range out {
			if o {
				outside = b.Or(outside, b.Eq(idx[i], b.Int(j)))
			}
		}
		if identity(index, weight, x.Type.Shape[i]) {
			continue
		}
		a := l.tapTables(i, index, weight, nearest, t)
		all *= a.taps
		dims = append(dims, a)
	}
	src := append([]*expr.Expr{}, idx...)
	var e *expr.Expr
	switch {
	case nearest:
		for _, a := range dims {
			src[a.dim] = l.tapIndex(a, idx[a.dim], b.Int(0), x.Type.Shape[a.dim])
		}
		e = l.Value(x, src)
	default:
		e = Convert(b, l.interpolate(x, dims, src, idx, t, all <= unrolledTaps), map[expr.Type]ir.DType{expr.F32: ir.Float32, expr.F64: ir.Float64}[t], d, false, "nearest")
	}
	if outside.IsConstInt(0) {
		return e
	}
	fill := Convert(b, b.F64(n.Attrs.Float("extrapolation", 0)), ir.Float64, d, false, "nearest")
	return b.Select(outside, fill, e)
}

func identity(index [][]int, weight [][]float64, size int) bool {
	if len(index) != size {
		return false
	}
	for j := range index {
		for k, i := range index[j] {
			if w := weight[j][k]; w != 0 && (i != j || w != 1) {
				return false
			}
		}
	}
	return true
}

func (l *Lowering) tapTables(dim int, index [][]int, weight [][]float64, nearest bool, t expr.Type) axisTaps {
	a := axisTaps{dim: dim, taps: 1, out: len(index)}
	if nearest {
		if a.affine = affineTaps(index); a.affine != 0 {
			return a
		}
	}
	for _, r := range index {
		a.taps = max(a.taps, len(r))
	}
	var ints, floats []byte
	for j, r := range index {
		for k := range a.taps {
			i, w := 0, 0.0
			if k < len(r) {
				i, w = r[k], weight[j][k]
			}
			ints = binary.LittleEndian.AppendUint32(ints, uint32(i))
			if t == expr.F64 {
				floats = binary.LittleEndian.AppendUint64(floats, math.Float64bits(w))
			} else {
				floats = binary.LittleEndian.AppendUint32(floats, math.Float32bits(float32(w)))
			}
		}
	}
	a.index = l.Table(ints)
	if !nearest {
		a.weight = l.Table(floats)
	}
	return a
}

// affineTaps recognises nearest sampling by whole factors.
func affineTaps(index [][]int) int {
	up, down := 0, 0
	for j, r := range index {
		if r[0] == 1 && up == 0 {
			up = j
		}
		if j == 1 {
			down = r[0]
		}
	}
	for j, r := range index {
		if up > 0 && r[0] != j/up {
			up = 0
		}
		if r[0] != j*down {
			down = 0
		}
	}
	if up > 0 {
		return up
	}
	return -down
}

func (l *Lowering) tapIndex(a axisTaps, j, k *expr.Expr, size int) *expr.Expr {
	b := l.B
	switch {
	case a.affine > 0:
		return b.FloorDiv(j, int64(a.affine))
	case a.affine < 0:
		return b.Scale(j, int64(-a.affine))
	}
	i := l.tap(a, a.index, j, k, ir.Int32)
	return b.Min(b.Max(i, b.Int(0)), b.Int(size-1)) // for the range analysis
}

// tap reads tap k of output coordinate j from a table. If the result is padded, j may lie outside: the guard covers
// tables too.
func (l *Lowering) tap(a axisTaps, table int, j, k *expr.Expr, d ir.DType) *expr.Expr {
	b := l.B
	return l.fetch(table, b.Add(b.Scale(j, int64(a.taps)), k), d, j.Lo >= 0 && j.Hi < int64(a.out))
}

// interpolate sums over the taps of the dimensions, one after the other.
func (l *Lowering) interpolate(x *ir.Value, dims []axisTaps, src, idx []*expr.Expr, t expr.Type, unroll bool) *expr.Expr {
	b := l.B
	if len(dims) == 0 {
		return asFloat(b, l.Value(x, src), x.Type.DType, t)
	}
	a := dims[0]
	d := ir.Float32
	if t == expr.F64 {
		d = ir.Float64
	}
	term := func(k *expr.Expr) *expr.Expr {
		j := idx[a.dim]
		w := l.tap(a, a.weight, j, k, d)
		at := set(src, a.dim, l.tapIndex(a, j, k, x.Type.Shape[a.dim]))
		return b.Mul(w, l.interpolate(x, dims[1:], at, idx, t, unroll))
	}
	if !unroll {
		k := l.vars([]int{a.taps}, src...)
		return b.Reduce(expr.Sum, live(k), term(k[0]))
	}
	e := term(b.Int(0))
	for k := 1; k < a.taps; k++ {
		m := term(b.Int(k))
		e = b.Fma(m.Args[0], m.Args[1], e)
	}
	return e
}

// gridSample computes in F64: where samples change places, rounding of coordinates would show.
func gridSample(l *Lowering, n *ir.Node, _ int, idx []*expr.Expr) *expr.Expr {
	b := l.B
	x, g := n.Inputs[0], n.Inputs[1]
	size := x.Type.Shape[2:]
	r := len(size)
	s := sampler{l: l, mode: n.Attrs.String("mode", "linear"), padding: n.Attrs.String("padding", "zeros"), align: n.Attrs.Bool("align_corners")}
	var firsts []*expr.Expr
	var weights [][]*expr.Expr
	usable := b.Bool(true)
	for i := range r {
		at := append(append([]*expr.Expr{idx[0]}, idx[2:]...), b.Int(r-1-i))
		p := s.place(b.Cast(l.Value(g, at), expr.F64), size[i])
		usable = b.And(usable, b.Le(b.Abs(p), b.F64(1<<30)))
		floor := b.Floor(p)
		first := b.Cast(floor, expr.S32)
		w := s.weights(b.Sub(p, floor))
		if s.mode == "cubic" {
			first = b.Offset(first, -1)
		}
		firsts, weights = append(firsts, first), append(weights, w)
	}
	var sum func(i int, at []*expr.Expr, ok *expr.Expr, weight *expr.Expr) *expr.Expr
	sum = func(i int, at []*expr.Expr, ok, weight *expr.Expr) *expr.Expr {
		if i == r {
			v := asFloat(b, l.Value(x, append([]*expr.Expr{idx[0], idx[1]}, at...)), x.Type.DType, expr.F64)
			return b.Select(ok, b.Mul(weight, v), b.F64(0))
		}
		var e *expr.Expr
		for k, w := range weights[i] {
			p, in := s.pixel(b.Offset(firsts[i], int64(k)), size[i])
			term := sum(i+1, append(slices.Clip(at), p), b.And(ok, in), b.Mul(weight, w))
			if e != nil {
				term = b.Add(e, term)
			}
			e = term
		}
		return e
	}
	e := sum(0, nil, usable, b.F64(1))
	return Convert(b, e, ir.Float64, n.Outputs[0].Type.DType, false, "nearest")
}

type sampler struct {
	l             *Lowering
	mode, padding string
	align         bool
}

func (s *sampler) bounds(d int) (lo, hi float64) {
	if s.align {
		return 0, float64(d - 1)
	}
	return -0.5, float64(d) - 0.5
}

// place maps a normalised coordinate to the input, with padding applied to the coordinate.
func (s *sampler) place(v *expr.Expr, d int) *expr.Expr {
	b := s.l.B
	f := b.F64
	v = b.Add(v, f(1))
	x := b.Mul(b.Mul(v, f(0.5)), f(float64(d-1)))
	if !s.align {
		x = b.Mul(b.Sub(b.Mul(v, f(float64(d))), f(1)), f(0.5))
	}
	if s.mode == "nearest" {
		x = b.Round(x)
	}
	lo, hi := s.bounds(d)
	out := b.Or(b.Lt(x, f(lo)), b.Lt(f(hi), x))
	switch s.padding {
	case "border":
		x = b.Select(out, b.Min(b.Max(x, f(0)), f(float64(d-1))), x)
	case "reflection":
		x = b.Select(out, s.reflect(x, lo, hi), x)
	}
	return x
}

// reflect folds x into [lo, hi].
func (s *sampler) reflect(x *expr.Expr, lo, hi float64) *expr.Expr {
	b := s.l.B
	f := b.F64
	span := hi - lo
	if span == 0 {
		return f(lo)
	}
	below := b.Lt(x, f(lo))
	d := b.Select(below, b.Sub(f(lo), x), b.Sub(x, f(hi)))
	folds := b.Trunc(b.Div(d, f(span)))
	rest := b.Sub(d, b.Mul(folds, f(span)))
	half := b.Mul(folds, f(0.5))
	even := b.Eq(b.Floor(half), half)
	up := b.Not(b.Xor(even, below))
	y := b.Select(up, b.Add(f(lo), rest), b.Sub(f(hi), rest))
	return b.Select(b.And(b.Le(f(lo), x), b.Le(x, f(hi))), x, b.Select(b.Lt(b.Abs(x), f(math.Inf(1))), y, f(lo)))
}

func (s *sampler) weights(ratio *expr.Expr) []*expr.Expr {
	b := s.l.B
	f := b.F64
	switch s.mode {
	case "nearest":
		return []*expr.Expr{f(1)}
	case "linear":
		return []*expr.Expr{b.Sub(f(1), ratio), ratio}
	}
	// Keys' kernel with a = -0.75 at distances 1+r, r, 1-r, 2-r.
	const a = -0.75
	near := func(d *expr.Expr) *expr.Expr {
		return b.Add(b.Mul(b.Sub(b.Mul(f(a+2), d), f(a+3)), b.Mul(d, d)), f(1))
	}
	far := func(d *expr.Expr) *expr.Expr {
		return b.Sub(b.Mul(b.Add(b.Mul(b.Sub(b.Mul(f(a), d), f(5*a)), d), f(8*a)), d), f(4*a))
	}
	return []*expr.Expr{far(b.Add(f(1), ratio)), near(ratio), near(b.Sub(f(1), ratio)), far(b.Sub(f(2), ratio))}
}

// pixel is the index within a dimension after padding, and whether there is one.
func (s *sampler) pixel(i *expr.Expr, d int) (*expr.Expr, *expr.Expr) {
	b := s.l.B
	in := b.Within(i, 0, int64(d))
	clamp := func(x *expr.Expr) *expr.Expr { return b.Min(b.Max(x, b.Int(0)), b.Int(d-1)) }
	switch s.padding {
	case "border":
		in = b.Bool(true)
	case "reflection":
		lo, hi := s.bounds(d)
		r := b.Cast(b.Trunc(s.reflect(b.Cast(i, expr.F64), lo, hi)), expr.S32)
		return clamp(b.Select(in, i, r)), b.Bool(true)
	}
	return clamp(i), in
}

func roiAlign(l *Lowering, n *ir.Node, _ int, idx []*expr.Expr) *expr.Expr {
	b := l.B
	x, rois := n.Inputs[0], n.Inputs[1]
	h, w := x.Type.Shape[2], x.Type.Shape[3]
	oh, ow := n.Outputs[0].Type.Shape[2], n.Outputs[0].Type.Shape[3]
	ratio := n.Attrs.Int("sampling_ratio", 0)
	f := b.F64
	offset, least := 0.5, math.Inf(-1)
	if !n.Flag("half_pixel") {
		offset, least = 0, 1
	}
	box := func(i int) *expr.Expr {
		v := b.Cast(l.Value(rois, []*expr.Expr{idx[0], b.Int(i)}), expr.F64)
		return b.Sub(b.Mul(v, f(n.Attrs.Float("scale", 1))), f(offset))
	}
	batch := l.resolve(l.Value(n.Inputs[2], idx[:1]), x.Type.Shape[0])
	maximum := n.Attrs.String("mode", "avg") == "max"
	q := l.vars([]int{ratio, ratio}, idx...)
	// along is the coordinate of a sample in one dimension.
	along := func(from, to *expr.Expr, p, q *expr.Expr, bins int) *expr.Expr {
		bin := b.Div(b.Max(b.Sub(to, from), f(least)), f(float64(bins)))
		step := b.Div(b.Mul(b.Add(b.Cast(q, expr.F64), f(0.5)), bin), f(float64(ratio)))
		return b.Add(b.Add(from, b.Mul(b.Cast(p, expr.F64), bin)), step)
	}
	y := along(box(1), box(3), idx[2], q[0], oh)
	xx := along(box(0), box(2), idx[3], q[1], ow)
	inside := b.And(b.And(b.Le(f(-1), y), b.Le(y, f(float64(h)))), b.And(b.Le(f(-1), xx), b.Le(xx, f(float64(w)))))
	corner := func(v *expr.Expr, d int) (lo, hi, frac *expr.Expr) {
		v = b.Max(v, f(0))
		lo = b.Min(b.Max(b.Cast(v, expr.S32), b.Int(0)), b.Int(d-1))
		hi = b.Min(b.Offset(lo, 1), b.Int(d-1))
		v = b.Select(b.Eq(lo, b.Int(d-1)), b.Cast(lo, expr.F64), v)
		return lo, hi, b.Sub(v, b.Cast(lo, expr.F64))
	}
	y0, y1, ly := corner(y, h)
	x0, x1, lx := corner(xx, w)
	my, mx := b.Sub(f(1), ly), b.Sub(f(1), lx)
	term := func(wy, wx, py, px *expr.Expr) *expr.Expr {
		v := b.Cast(l.Value(x, []*expr.Expr{batch, idx[1], py, px}), expr.F64)
		return b.Select(inside, b.Mul(b.Mul(wy, wx), v), f(0))
	}
	terms := []*expr.Expr{term(my, mx, y0, x0), term(my, lx, y0, x1), term(ly, mx, y1, x0), term(ly, lx, y1, x1)}
	e := terms[0]
	for _, t := range terms[1:] {
		if maximum {
			e = b.Max(e, t)
		} else {
			e = b.Add(e, t)
		}
	}
	if maximum {
		e = b.Reduce(expr.Max, live(q), e)
	} else {
		e = b.Div(b.Reduce(expr.Sum, live(q), e), f(float64(ratio*ratio)))
	}
	return Convert(b, e, ir.Float64, n.Outputs[0].Type.DType, false, "nearest")
}

// roiAlignWeights computes coordinates in the same type and order as the evaluator, which says why.
func roiAlignWeights(l *Lowering, n *ir.Node, _ int, idx []*expr.Expr) *expr.Expr {
	b := l.B
	rois := n.Inputs[0]
	bins, size, ratio := n.Attrs.Int("bins", 1), n.Attrs.Int("size", 1), n.Attrs.Int("sampling_ratio", 0)
	t, offset, corner := expr.F32, 0.5, 0
	if rois.Type.DType == ir.Float64 {
		t = expr.F64
	}
	if !n.Flag("half_pixel") {
		offset = 0
	}
	if n.Flag("vertical") {
		corner = 1
	}
	f := func(v float64) *expr.Expr { return b.Float(t, v) }
	edge := func(i int) *expr.Expr {
		v := asFloat(b, l.Value(rois, []*expr.Expr{idx[0], b.Int(i)}), rois.Type.DType, t)
		return b.Sub(b.Mul(v, f(n.Attrs.Float("scale", 1))), f(offset))
	}
	atLeast := func(least float64, v *expr.Expr) *expr.Expr { return b.Select(b.Lt(v, f(least)), f(least), v) }
	from := edge(corner)
	length := b.Sub(edge(corner+2), from)
	if !n.Flag("half_pixel") {
		length = atLeast(1, length)
	}
	bin := b.Div(length, f(float64(bins)))
	pixel := b.Cast(idx[2], t)
	start := b.Add(from, b.Mul(b.Cast(idx[1], t), bin))
	samples, count, first := f(float64(ratio)), ratio, f(0)
	at := func(i *expr.Expr) *expr.Expr {
		return b.Add(start, b.Div(b.Mul(b.Add(i, f(0.5)), bin), samples))
	}
	if ratio == 0 {
		samples, count = b.Ceil(bin), ir.AdaptiveSamples
		first = atLeast(0, b.Floor(b.Div(b.Sub(b.Sub(pixel, f(1)), at(f(0))), b.Div(bin, samples))))
	}
	q := l.vars([]int{count}, idx...)
	i := b.Add(first, b.Cast(q[0], t))
	y := at(i)
	inside := b.And(b.Lt(i, samples), b.And(b.Le(f(-1), y), b.Le(y, f(float64(size)))))
	y = b.Min(b.Max(y, f(0)), f(float64(size-1)))
	hat := b.Max(f(0), b.Sub(f(1), b.Abs(b.Sub(y, pixel))))
	sum := b.Reduce(expr.Sum, live(q), b.Select(inside, hat, f(0)))
	return b.Div(sum, b.Select(b.Lt(f(1), samples), samples, f(1)))
}
