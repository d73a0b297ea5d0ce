package window

import (
	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// run is Pixels neighbouring pixels of a row of the tile, of which a thread computes Vector channels.
type run struct{ row, column, channel *expr.Expr } // of the first

// accumulate computes runs thread, thread + threads, … of the tile, and hands on the sums of each, [pixel][channel].
func (g *gen) accumulate(then func(at run, acc [][]ptx.Reg)) {
	b, p, s := g.b, g.p, g.s
	for from := 0; from < s.workers(); from += g.threads {
		g.em.Push()
		n := b.Offset(g.thread, int64(from))
		g.where(b.Lt(n, b.Int(s.workers())), func() {
			at := b.Unravel(n, []int{s.Columns / s.Pixels, s.Rows, s.Channels / s.Vector})
			column, row, vector0 := at[0], at[1], b.Scale(at[2], int64(s.Vector))
			x := g.shared(b.Add(b.Scale(row, int64(p.sh*s.pitch)), g.spreadInput(b.Add(b.Scale(column, int64(s.Pixels*p.sw*s.pixel(p))),
				b.Scale(b.FloorDiv(vector0, int64(p.multiplier)), 4)))))
			var w ptx.Reg
			if p.taps != nil {
				w = g.shared(b.Scale(vector0, 4))
			}
			acc := g.accumulators()
			if s.unrolled(p) {
				for r := range p.kh {
					g.row(acc, x, w, r*p.dh*s.pitch, r*p.kw*s.Channels*4)
				}
			} else {
				g.loopRows(acc, x, w)
			}
			g.addBias(acc, w)
			then(run{row, b.Scale(column, int64(s.Pixels)), vector0}, acc)
		})
		g.em.Pop()
	}
}

// storeSums leaves sums in shared memory in the order in which finish reads them.
func (g *gen) storeSums(at run, acc [][]ptx.Reg) {
	b, s := g.b, g.s
	first := b.Add(b.Scale(at.column, int64(s.Rows)), at.row)
	for px, rs := range acc {
		op, v := vector("st.shared", rs)
		at := b.Add(b.Scale(b.Offset(first, int64(px*s.Rows)), int64(s.Channels)), at.channel)
		g.k.I(op, ptx.At(g.shared(g.spread(b.Scale(at, 4))), s.sumsAt(g.p)), v)
	}
}

// accumulators are registers at the start of the sums or maxima, [pixel][channel].
func (g *gen) accumulators() [][]ptx.Reg {
	start := ptx.FImm(g.p.neutral(g.b).F)
	acc := make([][]ptx.Reg, g.s.Pixels)
	for px := range acc {
		acc[px] = g.k.RegVec(ptx.F32, g.s.Vector)
		for _, r := range acc[px] {
			g.k.I("mov.f32", r, start)
		}
	}
	return acc
}

// addBias adds what the epilogue would add first; here it comes from shared memory.
func (g *gen) addBias(acc [][]ptx.Reg, w ptx.Reg) {
	if g.p.bias == nil {
		return
	}
	bias := g.loadShared(w, g.s.weightsAt(g.p)+g.p.kh*g.p.kw*g.s.Channels*4, g.s.Vector)
	for _, rs := range acc {
		for v, a := range rs {
			g.k.I("add.rn.f32", a, a, bias[v])
		}
	}
}

// loopRows loops over the rows of the window; x and w move along. ptxas must not unroll it: it would hoist so many
// loads that registers limit the kernel.
func (g *gen) loopRows(acc [][]ptx.Reg, x, w ptx.Reg) {
	k, p := g.k, g.p
	xr, wr, row, more := k.Reg(ptx.B32), k.Reg(ptx.B32), k.Reg(ptx.B32), k.Reg(ptx.Pred)
	k.I("mov.u32", xr, x)
	k.I("mov.u32", row, ptx.Imm(0))
	if p.taps != nil {
		k.I("mov.u32", wr, w)
	}
	top := k.NewLabel("row")
	k.Place(top)
	k.NoUnroll()
	g.row(acc, xr, wr, 0, 0)
	k.I("add.s32", xr, xr, ptx.Imm(int64(p.dh*g.s.pitch)))
	if p.taps != nil {
		k.I("add.s32", wr, wr, ptx.Imm(int64(p.kw*g.s.Channels*4)))
	}
	k.I("add.s32", row, row, ptx.Imm(1))
	k.I("setp.lt.s32", more, row, ptx.Imm(int64(p.kh)))
	k.If(more, "bra", top)
}

// row accumulates one row of the window, whose inputs and weights begin at byte offsets from x and w: each column of
// the pixels' common span is read once and used by every pixel that it belongs to.
func (g *gen) row(acc [][]ptx.Reg, x, w ptx.Reg, xAt, wAt int) {
	k, p, s := g.k, g.p, g.s
	var weights [][]ptx.Reg
	if p.taps != nil {
		for tap := range p.kw {
			weights = append(weights, g.loadShared(w, s.weightsAt(p)+wAt+tap*s.Channels*4, s.Vector))
		}
	}
	for j := range s.span(p) {
		var in []ptx.Reg
		for px := range s.Pixels {
			tap := j - px*p.sw
			if tap < 0 || tap%p.dw != 0 || tap/p.dw >= p.kw {
				continue
			}
			if in == nil {
				in = g.loadShared(x, xAt+s.inputAt(j*s.pixel(p)), s.inputVector(p))
			}
			for v, a := range acc[px] {
				e := in[v%len(in)]
				switch {
				case p.taps != nil:
					k.I("fma.rn.f32", a, e, weights[tap/p.dw][v], a)
				case p.anchor.Op.Name == "MaxPool":
					k.I("max.NaN.f32", a, a, e)
				default:
					k.I("add.rn.f32", a, a, e)
				}
			}
		}
	}
}

func (g *gen) loadShared(base ptx.Reg, offset, n int) []ptx.Reg {
	rs := g.k.RegVec(ptx.F32, n)
	op, v := vector("ld.shared", rs)
	g.k.I(op, v, ptx.At(base, offset))
	return rs
}
