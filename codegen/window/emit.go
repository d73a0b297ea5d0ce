package window

import (
	"fmt"
	"math"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/lower"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

// negativeInfinity is where maxima begin.
var negativeInfinity = float32(math.Inf(-1))

// gen holds the expressions of one thread.
type gen struct {
	p *problem
	s schedule
	b *expr.Builder
	l *lower.Lowering

	thread *expr.Expr // linear index of the thread over all work
	row    *expr.Expr // row of the window, where rows are looped over
	// coordinates of the thread's first output
	member, image, oh, ow, channel *expr.Expr

	acc     [][]*expr.Expr // [pixel][channel] variables: the accumulators
	out     int            // operand
	scales  int            // operand, where the output is quantised in blocks
	results [][]*expr.Expr // [pixel][channel] what is stored
	store   []*expr.Expr   // [pixel] index of the first channel
	dtype   ir.DType
	weight  int // operand
}

func newGen(p *problem, s schedule, t *target.Target) *gen {
	b := expr.NewBuilder()
	b.FP8 = t.FP8
	g := &gen{p: p, s: s, b: b, l: lower.New(b, p.region)}
	g.thread = b.Index("thread", p.work(s))
	at := b.Unravel(g.thread, []int{p.g, p.n, p.oh, p.ow / s.Pixels, p.co / s.Channels})
	g.member, g.image, g.oh = at[0], at[1], at[2]
	g.ow, g.channel = b.Scale(at[3], int64(s.Pixels)), b.Scale(at[4], int64(s.Channels))
	if p.region.Attrs.Int("members", 0) > 0 {
		g.l.Member = g.member
	}
	g.row = b.Index("row", p.kh)
	return g
}

// lower builds the expressions of the epilogue, and fixes the operands.
func (g *gen) lower() error {
	b, p := g.b, g.p
	y, anchor := p.output(), p.anchor.Outputs[0]
	accs := map[[4]int]*expr.Expr{}
	elsewhere := false // the anchor is read at another index than its own
	for px := range g.s.Pixels {
		g.acc = append(g.acc, nil)
		for v := range g.s.Channels {
			acc := b.Var(fmt.Sprintf("acc%d.%d", px, v), expr.F32, 0, 0, 1)
			g.acc[px] = append(g.acc[px], acc)
			accs[keyOf(g.at(px, v))] = acc
		}
	}
	g.l.Provide(anchor, func(idx []*expr.Expr) *expr.Expr {
		acc := accs[keyOf(idx)]
		if acc == nil {
			elsewhere = true
			acc = g.acc[0][0]
		}
		return g.anchorValue(acc, idx)
	})
	g.out = g.l.Output(0)
	if p.blocks != nil {
		g.scales = g.l.Output(1)
	}
	if p.weights != nil {
		g.weight = g.l.Table(p.weights)
	}
	zero := b.Int(0)
	g.l.Value(p.anchor.Inputs[0], []*expr.Expr{zero, zero, zero, zero}) // names x among the operands
	for px := range g.s.Pixels {
		row := make([]*expr.Expr, g.s.Channels)
		for v := range row {
			idx := b.Unravel(b.Linear(g.at(px, v), anchor.Type.Shape), y.Type.Shape)
			e := g.l.Value(y, idx)
			if elsewhere {
				return fmt.Errorf("what follows the anchor reads it at another index than its own")
			}
			if row[v] = e; p.blocks == nil {
				row[v], g.dtype = lower.Storage(b, e, y.Type.DType)
			}
		}
		g.results = append(g.results, row)
		idx, shape := g.at(px, 0), anchor.Type.Shape
		if g.l.Member != nil {
			idx, shape = append([]*expr.Expr{g.member}, idx...), append([]int{p.g}, shape...)
		}
		g.store = append(g.store, b.Linear(idx, shape))
	}
	return nil
}

func keyOf(idx []*expr.Expr) (k [4]int) {
	for i, x := range idx {
		k[i] = x.ID()
	}
	return k
}

// at is the anchor's output index of a pixel and channel of the thread.
func (g *gen) at(px, v int) []*expr.Expr {
	b := g.b
	return []*expr.Expr{g.image, g.oh, b.Offset(g.ow, int64(px)), b.Offset(g.channel, int64(v))}
}

// anchorValue is the anchor's value from its accumulator.
func (g *gen) anchorValue(acc *expr.Expr, idx []*expr.Expr) *expr.Expr {
	b, a := g.b, g.p.anchor
	e := acc
	switch {
	case a.Op.Name == "AveragePool":
		e = b.Div(e, b.F32(float64(g.p.kh*g.p.kw)))
	case a.Op.Name == "Conv" && a.In(2) != nil:
		e = b.Add(e, g.l.Value(a.In(2), idx[3:]))
	}
	return lower.Round(b, e, a.Outputs[0].Type.DType)
}

// column is the inputs that row r of the window reads in column j of the span of all pixels, one for each channel.
func (g *gen) column(r *expr.Expr, j int) []*expr.Expr {
	b, p := g.b, g.p
	ih := b.Add(b.Scale(g.oh, int64(p.sh)), b.Offset(b.Scale(r, int64(p.dh)), int64(-p.ph)))
	iw := b.Offset(b.Scale(g.ow, int64(p.sw)), int64(j-p.pw))
	inside := b.And(b.Within(ih, 0, int64(p.h)), b.Within(iw, 0, int64(p.w)))
	out := make([]*expr.Expr, 0, g.s.Channels)
	for v := range g.s.Channels {
		c := b.FloorDiv(b.Offset(g.channel, int64(v)), int64(p.multiplier))
		out = append(out, g.l.Under(inside, p.neutral(b), func() *expr.Expr {
			return g.l.Value(p.anchor.Inputs[0], []*expr.Expr{g.image, ih, iw, c})
		}))
	}
	return out
}

// taps is the weights of one row of the window, [kw][channel].
func (g *gen) taps(r *expr.Expr) [][]*expr.Expr {
	b, p := g.b, g.p
	out := make([][]*expr.Expr, p.kw)
	for k := range out {
		for v := range g.s.Channels {
			at := b.Linear([]*expr.Expr{g.member, r, b.Int(k), b.Offset(g.channel, int64(v))}, []int{p.g, p.kh, p.kw, p.co})
			out[k] = append(out[k], g.l.Element(g.weight, ir.Float32, at, true))
		}
	}
	return out
}

// emit writes the kernel: index, rows of the window, epilogue, stores.
func (g *gen) emit(k *ptx.Kernel, params []ptx.Sym, ctx *kernel.Context) {
	p := g.p
	pointers := map[int]ptx.Reg{}
	env := expr.Env{
		Operand: func(i int) ptx.Reg {
			if r, ok := pointers[i]; ok {
				return r
			}
			panic(fmt.Sprintf("window: operand %d was not declared", i))
		},
		Align: func(i int) int {
			if v := g.l.Operands[i].Value; v != nil {
				return ctx.AlignOf(v)
			}
			return 256
		},
		Constant: g.l.Constant,
	}
	for i := range g.l.Operands {
		r := k.Reg(ptx.B64)
		k.I("ld.param.u64", r, ptx.At(params[i], 0))
		k.I("cvta.to.global.u64", r, r)
		pointers[i] = r
	}
	tid, block, at := k.Reg(ptx.B32), k.Reg(ptx.B32), k.Reg(ptx.B32)
	k.I("mov.u32", tid, ptx.Special("%tid.x"))
	k.I("mov.u32", block, ptx.Special("%ctaid.x"))
	k.I("mad.lo.s32", at, block, ptx.Imm(threads), tid)
	if ctx.Target.DependentLaunch {
		k.I("griddepcontrol.wait")
		k.I("griddepcontrol.launch_dependents")
	}
	if total := p.work(g.s); total%threads != 0 {
		idle := k.Reg(ptx.Pred)
		k.I("setp.ge.s32", idle, at, ptx.Imm(int64(total)))
		k.If(idle, "ret")
	}
	em := expr.NewEmitter(k, g.b, env)
	em.Bind(g.thread, at)
	acc := make([][]ptx.Reg, g.s.Pixels)
	start := ptx.FImm(0)
	if p.anchor.Op.Name == "MaxPool" {
		start = ptx.FImm(negativeInfinity)
	}
	for px := range acc {
		acc[px] = k.RegVec(ptx.F32, g.s.Channels)
		for v, r := range acc[px] {
			k.I("mov.f32", r, start)
			em.Bind(g.acc[px][v], r)
		}
	}
	if g.s.Unroll || p.kh == 1 {
		for r := range p.kh {
			g.emitRow(k, em, g.b.Int(r), acc)
		}
	} else {
		g.loopRows(k, em, acc)
	}
	for px := range g.s.Pixels {
		em.Push()
		if p.blocks != nil {
			em.StoreBlocks(g.out, g.scales, g.store[px], g.results[px], p.blocks.Attrs.Float("scale", 1), nil)
		} else {
			em.Store(g.out, g.store[px], g.dtype, g.results[px], nil)
		}
		em.Pop()
	}
	k.I("ret")
}

// loopRows loops over the rows of the window.
func (g *gen) loopRows(k *ptx.Kernel, em *expr.Emitter, acc [][]ptx.Reg) {
	row, more := k.Reg(ptx.B32), k.Reg(ptx.Pred)
	k.I("mov.u32", row, ptx.Imm(0))
	top := k.NewLabel("row")
	k.Place(top)
	em.Push()
	em.Bind(g.row, row)
	g.emitRow(k, em, g.row, acc)
	em.Pop()
	k.I("add.s32", row, row, ptx.Imm(1))
	k.I("setp.lt.s32", more, row, ptx.Imm(int64(g.p.kh)))
	k.If(more, "bra", top)
}

// emitRow accumulates one row of the window: each column of the pixels' common span is loaded once and used by every
// pixel that it belongs to.
func (g *gen) emitRow(k *ptx.Kernel, em *expr.Emitter, r *expr.Expr, acc [][]ptx.Reg) {
	p := g.p
	em.Push()
	defer em.Pop()
	var weights [][]ptx.Reg
	if p.weights != nil {
		for _, tap := range g.taps(r) {
			weights = append(weights, em.EmitAll(tap))
		}
	}
	span := (g.s.Pixels-1)*p.sw + (p.kw-1)*p.dw + 1
	for j := range span {
		var x []ptx.Reg
		for px := range g.s.Pixels {
			tap := j - px*p.sw
			if tap < 0 || tap%p.dw != 0 || tap/p.dw >= p.kw {
				continue
			}
			if x == nil {
				em.Push()
				x = em.EmitAll(g.column(r, j))
			}
			for v := range g.s.Channels {
				switch {
				case p.weights != nil:
					k.I("fma.rn.f32", acc[px][v], x[v], weights[tap/p.dw][v], acc[px][v])
				case p.anchor.Op.Name == "MaxPool":
					k.I("max.NaN.f32", acc[px][v], acc[px][v], x[v])
				default:
					k.I("add.rn.f32", acc[px][v], acc[px][v], x[v])
				}
			}
		}
		if x != nil {
			em.Pop()
		}
	}
}
