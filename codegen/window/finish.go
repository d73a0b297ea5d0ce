package window

import (
	"slices"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/codegen/lower"
	"github.com/spark-compile/spark-compile/ir"
)

// finish is the epilogue of one vector of channels, which a thread does for some vectors of the tile.
type finish struct {
	// variables: the place of the vector's first element
	member, image, oh, ow, channel *expr.Expr
	acc                            []*expr.Expr // variables: the anchor's sums

	out, scales int // operands; scales where the output is quantised in blocks
	rounded     []*expr.Expr
	values      []*expr.Expr // rounded, as they are stored
	index       *expr.Expr   // of the first element
	dtype       ir.DType
}

// lowerFinish builds the expressions of the epilogue, which stores its result if kept.
func (g *gen) lowerFinish(kept bool) error {
	b, p, f := g.b, g.p, &g.finish
	width := g.s.Finish
	f.image, f.member = g.image, g.member
	variable := func(name string, n, step int) *expr.Expr {
		if n == step {
			return b.Int(0)
		}
		return b.Var(g.prefix+name, expr.S32, 0, int64(n-step), int64(step))
	}
	f.oh, f.ow, f.channel = variable("oh", p.oh, 1), variable("ow", p.ow, 1), variable("channel", p.co, width)
	if kept {
		f.out = g.l.Output(0)
	}
	if p.blocks != nil {
		f.scales = g.l.Output(1)
	}
	at := func(channel *expr.Expr) []*expr.Expr { return []*expr.Expr{f.image, f.oh, f.ow, channel} }
	channel, y, anchor := b.Index(g.prefix+"one", p.co), p.output(), p.anchor.Outputs[0]
	sum := func(acc *expr.Expr) *expr.Expr { return g.sum(acc, channel) }
	own := at(channel)
	values, acc, err := g.l.Epilogue(lower.Vector{Anchor: p.anchor, Index: own, Channel: channel, First: f.channel, Width: width, Sum: sum},
		lower.Element{Of: y, Index: b.Unravel(b.Linear(own, anchor.Type.Shape), y.Type.Shape)})
	if err != nil {
		return err
	}
	f.rounded, f.values, f.acc = values[0], slices.Clone(values[0]), acc
	if p.blocks == nil {
		for v := range f.values {
			f.values[v], f.dtype = lower.Storage(b, f.values[v], y.Type.DType)
		}
	}
	idx, shape := at(f.channel), anchor.Type.Shape
	if g.l.Member != nil {
		idx, shape = append([]*expr.Expr{f.member}, idx...), append([]int{p.g}, shape...)
	}
	f.index = b.Linear(idx, shape)
	return nil
}

// sum is the anchor's value before rounding.
func (g *gen) sum(acc, channel *expr.Expr) *expr.Expr {
	b, a := g.b, g.p.anchor
	switch {
	case a.Op.Name == "AveragePool":
		return b.Div(acc, b.F32(float64(g.p.kh*g.p.kw)))
	case a.Bias() != nil && g.p.bias == nil:
		return b.Add(acc, g.l.Value(a.Bias(), []*expr.Expr{channel}))
	}
	return acc
}

// emitFinish runs the epilogue on vectors thread, thread + threads, … of the tile and stores them.
func (g *gen) emitFinish() {
	b, p, s, f := g.b, g.p, g.s, &g.finish
	total, threads := s.Rows*s.Columns*s.Channels/s.Finish, g.threads
	for from := 0; from < total; from += threads {
		n := b.Offset(g.thread, int64(from))
		at := b.Unravel(n, []int{s.Columns, s.Rows, s.Channels / s.Finish})
		oh, ow := b.Add(g.oh, at[1]), b.Add(g.ow, at[0])
		inside := b.And(b.Lt(n, b.Int(total)), b.And(b.Lt(oh, b.Int(p.oh)), b.Lt(ow, b.Int(p.ow))))
		g.em.Push()
		g.where(inside, func() {
			g.em.Push()
			sums := g.shared(g.spread(b.Scale(n, int64(4*s.Finish))))
			for i := 0; i < s.Finish; i += min(s.Finish, 4) {
				for v, r := range g.loadShared(sums, s.sumsAt(p)+4*i, min(s.Finish, 4)) {
					g.em.Bind(f.acc[i+v], r)
				}
			}
			g.em.Bind(f.oh, g.em.Emit(oh))
			g.em.Bind(f.ow, g.em.Emit(ow))
			g.em.Bind(f.channel, g.em.Emit(b.Add(g.channel, b.Scale(at[2], int64(s.Finish)))))
			if p.blocks != nil {
				g.em.StoreBlocks(f.out, f.scales, f.index, f.values, p.blocks.Attrs.Float("scale", 1), nil)
			} else {
				g.em.Store(f.out, f.index, f.dtype, f.values, nil)
			}
			g.em.Pop()
		})
		g.em.Pop()
	}
}
