package contraction

import (
	"fmt"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/layout"
	"github.com/spark-compile/spark-compile/codegen/lower"
	"github.com/spark-compile/spark-compile/ir"
)

// group is the number of neighbouring columns that a thread finishes together: 16 bytes of what is stored, of f32 32, of
// e4m3 8 where that cuts the columns evenly, of NVFP4 a block.
func (p *problem) group() int {
	if p.out.dtype.Bits() <= 8 && p.n%16 == 0 {
		return 16
	}
	return 8
}

// epilogue is what happens to an accumulator: the nodes behind the anchor as one scalar function of the accumulator and of
// operands, each read at the anchor's output index.
type epilogue struct {
	b      *expr.Builder
	result []*expr.Expr // for every column of a group
	acc    []*expr.Expr // variables: the accumulators
	z      []*expr.Expr // variables: the output coordinate, n of the group's first column
	m, n   *expr.Expr
	wide   bool // a group is stored 16 bytes at a time, or with the 8 that it has
	exact  bool // every group of columns is inside or outside of the matrix as a whole
}

// planEpilogue builds the function and decides how the output is accessed.
func planEpilogue(p *problem, pl *plan, ctx *kernel.Context) (*epilogue, error) {
	if d := p.out.dtype; !isHalf(d) && d != ir.Float32 && d != ir.Float8E4M3FN && p.quantise == nil {
		return nil, fmt.Errorf("output of type %s", d)
	}
	b := expr.NewBuilder()
	b.Target = ctx.Target
	group := p.group()
	e := &epilogue{b: b, exact: p.n%group == 0}
	width := min(16, group*p.out.dtype.Bits()/8)
	e.wide = e.exact && runs(&p.out, group) && p.quantise == nil && ctx.AlignOf(p.out.value)%width == 0
	for i, d := range p.z {
		e.z = append(e.z, b.Index(fmt.Sprintf("z%d", i), d))
	}
	e.m = b.Index("m", p.m)
	e.n = b.Int(0)
	if p.n > group {
		e.n = b.Var("n", expr.S32, 0, int64((ceilDiv(p.n, group)-1)*group), int64(group))
	}
	for j := 0; j < group; j++ {
		e.acc = append(e.acc, b.Var(fmt.Sprintf("acc%d", j), expr.F32, 0, 0, 1))
		w := &walk{p: p, pl: pl, e: e, n: b.Offset(e.n, int64(j)), acc: e.acc[j], memo: map[*ir.Value]*expr.Expr{}}
		if !e.exact {
			w.inside = b.Lt(w.n, b.Int(p.n))
		}
		x, err := w.value(p.chain[len(p.chain)-1])
		if err != nil {
			return nil, err
		}
		if p.quantise == nil {
			var stored ir.DType
			x, stored = lower.Storage(b, x, p.out.dtype)
			x = expr.Stored([]*expr.Expr{x}, stored)[0] // the store rounds
		}
		e.result = append(e.result, x)
	}
	return e, nil
}

// walk builds the function for one column of a group.
type walk struct {
	p      *problem
	pl     *plan
	e      *epilogue
	n, acc *expr.Expr
	inside *expr.Expr // of the matrix; nil: always
	memo   map[*ir.Value]*expr.Expr
}

// value is a value of the body that depends on the anchor, at this column.
func (w *walk) value(v *ir.Value) (*expr.Expr, error) {
	if x, ok := w.memo[v]; ok {
		return x, nil
	}
	x, err := w.make(v)
	if err != nil {
		return nil, err
	}
	w.memo[v] = x
	return x, nil
}

func (w *walk) make(v *ir.Value) (*expr.Expr, error) {
	b, anchor := w.e.b, w.p.anchor
	if v == anchor.Outputs[0] {
		return w.anchor()
	}
	n := v.Def
	switch {
	case n.Op.Name == "Reshape" || n.Op.Name == "Transpose":
		return w.value(n.Inputs[0])
	case n.Op.Kind != ir.KindElementwise:
		return nil, fmt.Errorf("%s (%s) cannot follow the anchor", n.Name, n.Op.Name)
	}
	args := make([]*expr.Expr, len(n.Inputs))
	for i, in := range n.Inputs {
		var err error
		switch {
		case in == nil:
		case w.p.depends[in]:
			args[i], err = w.value(in)
		default:
			args[i], err = w.side(in, v)
		}
		if err != nil {
			return nil, err
		}
	}
	return scalar(b, n, args)
}

func scalar(b *expr.Builder, n *ir.Node, args []*expr.Expr) (*expr.Expr, error) {
	if x := lower.Scalar(b, n, args); x != nil {
		return x, nil
	}
	return nil, fmt.Errorf("%s (%s) has no scalar form", n.Name, n.Op.Name)
}

// anchor is the accumulator, with a convolution's bias, rounded to the anchor's type.
func (w *walk) anchor() (*expr.Expr, error) {
	b, n := w.e.b, w.p.anchor
	x := w.acc
	if bias := n.Bias(); bias != nil {
		s, err := trace(w.p.region, bias)
		if err != nil {
			return nil, err
		}
		view, ok := s.view.Reshape(n.ChannelShape(bias.Type.Numel()))
		if ok {
			view, ok = view.Broadcast(n.Outputs[0].Type.Shape)
		}
		if !ok {
			return nil, fmt.Errorf("bias of type %s", bias.Type)
		}
		l, err := w.load(s, view)
		if err != nil {
			return nil, err
		}
		x = b.Add(x, l)
	}
	return lower.Round(b, x, n.Outputs[0].Type.DType), nil
}

// side is an operand of the epilogue, v, that meets the anchor's chain at node output at.
func (w *walk) side(v, at *ir.Value) (*expr.Expr, error) {
	chain, err := pathTo(at, w.p.anchor.Outputs[0], w.p.depends)
	if err != nil {
		return nil, err
	}
	return w.sideAt(v, at.Type.Shape, chain)
}

func (w *walk) sideAt(v *ir.Value, shape []int, chain []*ir.Value) (*expr.Expr, error) {
	s, err := trace(w.p.region, v)
	if err == nil {
		view, ok := s.view.Broadcast(shape)
		if !ok {
			return nil, fmt.Errorf("%s does not broadcast to %v", v.Name, shape)
		}
		if view, err = pullBack(view, chain); err != nil {
			return nil, err
		}
		return w.load(s, view)
	}
	n := v.Def
	if n == nil || n.Op.Kind != ir.KindElementwise {
		return nil, err
	}
	args := make([]*expr.Expr, len(n.Inputs))
	for i, in := range n.Inputs {
		if in == nil {
			continue
		}
		if args[i], err = w.sideAt(in, shape, chain); err != nil {
			return nil, err
		}
	}
	return scalar(w.e.b, n, args)
}

// load reads a source at this column; view is in the anchor's coordinates.
func (w *walk) load(s *source, view layout.View) (*expr.Expr, error) {
	b := w.e.b
	if s.dtype.Bits() < 8 {
		return nil, fmt.Errorf("operand of type %s", s.dtype)
	}
	if s.data != nil && (s.data.Numel() == 1 || s.data.Splat) {
		t := lower.Type(s.dtype)
		if t.IsFloat() {
			return b.Float(t, s.data.FloatAt(0)), nil
		}
		if t == expr.Pred {
			return b.Bool(s.data.IntAt(0) != 0), nil
		}
		return b.ConstInt(t, s.data.IntAt(0)), nil
	}
	o, err := w.p.spread(view)
	if err != nil {
		return nil, err
	}
	if s.member != 0 {
		o.z[0] = []layout.Mode{{Size: w.p.z[0], Stride: s.member}}
	}
	index := b.Int(o.offset)
	for i, modes := range o.z {
		index = b.Add(index, offsetExpr(b, modes, w.e.z[i]))
	}
	index = b.Add(index, offsetExpr(b, o.row, w.e.m))
	index = b.Add(index, offsetExpr(b, o.col, w.n))
	varies := false
	for _, m := range o.col {
		varies = varies || m.Stride != 0
	}
	memory := lower.Memory(b, s.dtype)
	var inside, zero *expr.Expr
	if w.inside != nil && varies {
		inside, zero = w.inside, b.Zero(expr.Loaded(memory))
	}
	return lower.Decode(b, b.Load(w.pl.leafParam(s.value), index, memory, inside, zero), s.dtype), nil
}

// offsetExpr is the element offset of coordinate x.
func offsetExpr(b *expr.Builder, modes []layout.Mode, x *expr.Expr) *expr.Expr {
	off := b.Int(0)
	for i := len(modes) - 1; i >= 0; i-- {
		d := x
		if i > 0 {
			d = b.FloorMod(x, int64(modes[i].Size))
			x = b.FloorDiv(x, int64(modes[i].Size))
		}
		off = b.Add(off, b.Scale(d, int64(modes[i].Stride)))
	}
	return off
}
