package lower

import (
	"math"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/ir"
)

var _ = register(map[string]rule{
	"MatMul": matMul, "Conv": conv, "ConvTranspose": convTranspose, "Attention": attention,
	"SegmentedMatVec": segmentedMatVec,
})

// total is Σ body over the variables, plus the bias at an index if the node has one, rounded to the output's type.
func (l *Lowering) total(n *ir.Node, vars []*expr.Expr, body *expr.Expr, biasAt ...*expr.Expr) *expr.Expr {
	e := l.B.Reduce(expr.Sum, live(vars), body)
	if len(biasAt) > 0 && n.In(2) != nil {
		e = l.B.Add(e, l.Value(n.In(2), biasAt))
	}
	return Round(l.B, e, n.Outputs[0].Type.DType)
}

func matMul(l *Lowering, n *ir.Node, _ int, idx []*expr.Expr) *expr.Expr {
	a, w := n.Inputs[0], n.Inputs[1]
	ra, rb := a.Type.Rank(), w.Type.Rank()
	rest := append([]*expr.Expr{}, idx...)
	var row, col *expr.Expr
	if rb > 1 {
		col, rest = rest[len(rest)-1], rest[:len(rest)-1]
	}
	if ra > 1 {
		row, rest = rest[len(rest)-1], rest[:len(rest)-1]
	}
	ka := ra - 1
	if n.Attrs.Bool("transA") {
		ka = ra - 2
	}
	size := a.Type.Shape[ka]
	if size == 0 {
		return l.B.Zero(Type(a.Type.DType))
	}
	k := l.vars([]int{size}, idx...)[0]
	operand := func(v *ir.Value, rank int, outer *expr.Expr, kAxis int) *expr.Expr {
		if rank == 1 {
			return l.Value(v, []*expr.Expr{k})
		}
		at := make([]*expr.Expr, rank)
		for i := range rank - 2 {
			at[i] = rest[len(rest)-(rank-2)+i]
			if v.Type.Shape[i] == 1 {
				at[i] = l.B.Int(0)
			}
		}
		at[kAxis] = k
		at[2*rank-3-kAxis] = outer
		return l.Value(v, at)
	}
	kb := rb - 2
	if n.Attrs.Bool("transB") {
		kb = rb - 1
	}
	return l.total(n, []*expr.Expr{k}, l.B.Mul(operand(a, ra, row, ka), operand(w, rb, col, kb)))
}

// image splits an index into an image by the node's layout.
func image(n *ir.Node, idx []*expr.Expr) (batch, channel *expr.Expr, spatial []*expr.Expr) {
	if n.Attrs.String("layout", "NCHW") == "NHWC" {
		return idx[0], idx[len(idx)-1], idx[1 : len(idx)-1]
	}
	return idx[0], idx[1], idx[2:]
}

func imageIndex(n *ir.Node, batch, channel *expr.Expr, spatial []*expr.Expr) []*expr.Expr {
	if n.Attrs.String("layout", "NCHW") == "NHWC" {
		return append(append([]*expr.Expr{batch}, spatial...), channel)
	}
	return append([]*expr.Expr{batch, channel}, spatial...)
}

// extents are the spatial sizes and the number of channels of an image.
func extents(n *ir.Node, shape []int) (spatial []int, channels int) {
	if n.Attrs.String("layout", "NCHW") == "NHWC" {
		return shape[1 : len(shape)-1], shape[len(shape)-1]
	}
	return shape[2:], shape[1]
}

// taps are the input coordinates of an output position under a kernel at offsets k, and whether they lie inside.
func (l *Lowering) taps(n *ir.Node, size []int, at, k []*expr.Expr) (in []*expr.Expr, inside *expr.Expr) {
	b := l.B
	strides, dilations, pads := n.Attrs.Ints("strides"), n.Attrs.Ints("dilations"), n.Attrs.Ints("pads")
	inside = b.Bool(true)
	for i := range size {
		x := b.Add(b.Scale(at[i], int64(strides[i])), b.Offset(b.Scale(k[i], int64(dilations[i])), int64(-pads[i])))
		inside = b.And(inside, b.Within(x, 0, int64(size[i])))
		in = append(in, x)
	}
	return in, inside
}

func conv(l *Lowering, n *ir.Node, _ int, idx []*expr.Expr) *expr.Expr {
	b := l.B
	x, w := n.Inputs[0], n.Inputs[1]
	batch, oc, at := image(n, idx)
	size, _ := extents(n, x.Type.Shape)
	group := n.Attrs.Int("group", 1)
	cin, perGroup := w.Type.Shape[1], w.Type.Shape[0]/group
	kernel := w.Type.Shape[2:]
	nhwc := n.Attrs.String("layout", "NCHW") == "NHWC"
	var vars, k []*expr.Expr
	var c *expr.Expr
	if nhwc {
		vars = l.vars(append(append([]int{}, kernel...), cin), idx...)
		k, c = vars[:len(kernel)], vars[len(kernel)]
	} else {
		vars = l.vars(append([]int{cin}, kernel...), idx...)
		c, k = vars[0], vars[1:]
	}
	if cin == 0 {
		vars = nil
	}
	in, inside := l.taps(n, size, at, k)
	ic := b.Add(b.Scale(b.FloorDiv(oc, int64(perGroup)), int64(cin)), c)
	xv := l.orZero(inside, x, imageIndex(n, batch, ic, in))
	wv := l.Value(w, append([]*expr.Expr{oc, c}, k...))
	return l.total(n, vars, b.Mul(xv, wv), oc)
}

func convTranspose(l *Lowering, n *ir.Node, _ int, idx []*expr.Expr) *expr.Expr {
	b := l.B
	x, w := n.Inputs[0], n.Inputs[1]
	batch, oc, at := image(n, idx)
	size, channels := extents(n, x.Type.Shape)
	group := n.Attrs.Int("group", 1)
	cin, perGroup := channels/group, w.Type.Shape[1]
	kernel := w.Type.Shape[2:]
	vars := l.vars(append(append([]int{}, kernel...), cin), idx...)
	k, c := vars[:len(kernel)], vars[len(kernel)]
	strides, dilations, pads := n.Attrs.Ints("strides"), n.Attrs.Ints("dilations"), n.Attrs.Ints("pads")
	inside := b.Bool(true)
	var in []*expr.Expr
	for i := range size {
		// Input i reaches output i·stride - begin + k·dilation.
		t := b.Sub(b.Offset(at[i], int64(pads[i])), b.Scale(k[i], int64(dilations[i])))
		s := int64(strides[i])
		p := b.FloorDiv(t, s)
		inside = b.And(inside, b.And(b.Eq(b.FloorMod(t, s), b.Int(0)), b.Within(p, 0, int64(size[i]))))
		in = append(in, p)
	}
	ic := b.Add(b.Scale(b.FloorDiv(oc, int64(perGroup)), int64(cin)), c)
	xv := l.orZero(inside, x, imageIndex(n, batch, ic, in))
	wv := l.Value(w, append([]*expr.Expr{ic, b.FloorMod(oc, int64(perGroup))}, k...))
	return l.total(n, vars, b.Mul(xv, wv), oc)
}

func attention(l *Lowering, n *ir.Node, _ int, idx []*expr.Expr) *expr.Expr {
	b := l.B
	q, k, v := n.Inputs[0], n.Inputs[1], n.Inputs[2]
	batch, head, row, col := idx[0], idx[1], idx[2], idx[3]
	heads, kvHeads := q.Type.Shape[1], k.Type.Shape[1]
	kv := b.FloorDiv(head, int64(heads/kvHeads))
	t := l.vars([]int{k.Type.Shape[2]}, batch, head, row)[0]
	d := l.vars([]int{q.Type.Shape[3]}, batch, head, row, t)[0]
	if k.Type.Shape[2] == 0 {
		return b.Zero(Type(q.Type.DType))
	}
	s := b.Reduce(expr.Sum, live([]*expr.Expr{d}), b.Mul(l.Value(q, []*expr.Expr{batch, head, row, d}), l.Value(k, []*expr.Expr{batch, kv, t, d})))
	typ := s.Type
	s = b.Mul(s, b.Float(typ, n.Attrs.Float("scale", 1)))
	if c := n.Attrs.Float("softcap", 0); c > 0 {
		s = b.Mul(b.Tanh(b.Div(s, b.Float(typ, c))), b.Float(typ, c))
	}
	if m := n.In(3); m != nil {
		s = b.Add(s, b.Cast(l.at(m, []*expr.Expr{batch, head, row, t}), typ))
	}
	least := b.Float(typ, math.Inf(-1))
	if n.Attrs.Bool("causal") {
		s = b.Select(b.Lt(row, t), least, s)
	}
	ts := live([]*expr.Expr{t})
	top := b.Reduce(expr.Max, ts, s)
	p := b.Exp(b.Sub(s, top))
	sum := b.Reduce(expr.Sum, ts, p)
	y := b.Div(b.Reduce(expr.Sum, ts, b.Mul(p, l.Value(v, []*expr.Expr{batch, kv, t, col}))), sum)
	y = b.Select(b.Eq(top, least), b.Float(typ, 0), y) // no key is seen (ONNX Attention 23)
	return Round(b, y, n.Outputs[0].Type.DType)
}

// constant returns the data of a value where the compiler knows it.
func (l *Lowering) constant(v *ir.Value) *ir.Tensor {
	if i, ok := l.inputs[v]; ok {
		return l.Region.Inputs[i].Const
	}
	return v.Const
}

// multiple is the greatest power of two up to 8 that divides every element of a constant; 1 if unknown.
func (l *Lowering) multiple(v *ir.Value) int64 {
	c := l.constant(v)
	if c == nil {
		return 1
	}
	m := int64(8)
	for _, x := range c.Ints() {
		for x%m != 0 {
			m /= 2
		}
	}
	return m
}

func segmentedMatVec(l *Lowering, n *ir.Node, _ int, idx []*expr.Expr) *expr.Expr {
	b := l.B
	x, w := n.Inputs[0], n.Inputs[1]
	width := w.Type.Shape[1]
	row := idx[0]
	if width == 0 {
		return b.Zero(Type(x.Type.DType))
	}
	k := l.vars([]int{width}, row)[0]
	// Loads stay vectors if offsets and lengths are known to be multiples of m: each is computed as m·(o/m), and
	// clamped so that the range analysis sees it inside x.
	common := func(v *ir.Value) (*expr.Expr, int64) {
		if c := l.constant(v); c != nil {
			if k := c.Compact(); k.Splat || k.Numel() == 1 {
				return b.Int(int(k.IntAt(0))), l.multiple(v)
			}
		}
		m := l.multiple(v)
		e := b.Cast(l.Value(v, idx), expr.S32)
		q := b.Shr(e, b.Int(map[int64]int{1: 0, 2: 1, 4: 2, 8: 3}[m]))
		return b.Scale(b.Min(b.Max(q, b.Int(0)), b.Int(x.Type.Numel()/int(m))), m), m
	}
	offset, _ := common(n.Inputs[3])
	length, m := common(n.Inputs[4])
	var in *expr.Expr
	if length.IsConst() {
		in = b.Lt(k, length)
	} else {
		in = b.Lt(b.FloorDiv(k, m), b.FloorDiv(length, m))
	}
	at := b.Add(offset, k)
	size := int64(x.Type.Numel())
	xv := l.orZero(in, x, []*expr.Expr{at})
	if offset.IsConst() && offset.I+int64(width) <= size {
		xv = b.Select(in, l.Value(x, []*expr.Expr{at}), b.Zero(Type(x.Type.DType)))
	}
	return l.total(n, []*expr.Expr{k}, b.Mul(xv, l.Value(w, []*expr.Expr{row, k})), idx...)
}
