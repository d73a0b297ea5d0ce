package window

import (
	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// batch is how many vectors of inputs a thread reads before it writes them to shared memory.
const batch = 4

// chunk is a vector of neighbouring channels of one input pixel, which a thread brings into shared memory.
type chunk struct {
	values []*expr.Expr
	offset *expr.Expr // bytes into shared memory
	there  *expr.Expr // whether there is such a vector
}

// lowerStage lists what each thread reads of the tile's inputs: vectors thread, thread + threads, … of the tile.
func (g *gen) lowerStage() {
	b, p, s := g.b, g.p, g.s
	rows, columns := s.inputRows(p), s.inputColumns(p)
	channels, width := s.inputChannels(p), s.stageWidth(p)
	total, threads := rows*columns*channels/width, g.threads
	first := b.FloorDiv(g.channel, int64(p.multiplier))
	for from := 0; from < total; from += threads {
		n := b.Offset(g.thread, int64(from))
		at := b.Unravel(n, []int{rows, columns, channels / width})
		ih := b.Offset(b.Add(b.Scale(g.oh, int64(p.sh)), at[0]), int64(-p.ph))
		iw := b.Offset(b.Add(b.Scale(g.ow, int64(p.sw)), at[1]), int64(-p.pw))
		c := chunk{there: b.Lt(n, b.Int(total))}
		inside := b.And(c.there, b.And(b.Within(ih, 0, int64(p.h)), b.Within(iw, 0, int64(p.w))))
		for v := range width {
			ch := b.Offset(b.Add(first, b.Scale(at[2], int64(width))), int64(v))
			c.values = append(c.values, g.l.Under(inside, p.neutral(b), func() *expr.Expr {
				return g.l.Value(p.anchor.Inputs[0], []*expr.Expr{g.image, ih, iw, ch})
			}))
		}
		c.offset = b.Add(b.Scale(at[0], int64(s.pitch)), g.spreadInput(b.Scale(b.Add(b.Scale(at[1], int64(channels/width)), at[2]), int64(4*width))))
		g.stage = append(g.stage, c)
	}
}

// emitStage brings the tile's inputs into shared memory as f32.
func (g *gen) emitStage() {
	for from := 0; from < len(g.stage); from += batch {
		some := g.stage[from:min(from+batch, len(g.stage))]
		var all []*expr.Expr
		for _, c := range some {
			all = append(all, c.values...)
		}
		g.em.Push()
		rs := g.em.EmitAll(all)
		for _, c := range some {
			width := len(c.values)
			g.storeShared(c, rs[:width])
			rs = rs[width:]
		}
		g.em.Pop()
	}
}

func (g *gen) storeShared(c chunk, rs []ptx.Reg) {
	at := g.shared(c.offset)
	width := min(len(rs), 4)
	for i := 0; i < len(rs); i += width {
		op, v := vector("st.shared", rs[i:i+width])
		g.k.Where(g.predicate(c.there), op, ptx.At(at, 4*i), v)
	}
}

// copyWeights starts the copy of the tile's weights to shared memory: they are constants, and need not wait for the
// launch before.
func (g *gen) copyWeights(pointers []ptx.Reg) {
	b, k, p, s := g.b, g.k, g.p, g.s
	if p.taps == nil {
		return
	}
	tile := s.weights(p)
	op, bytes := "cp.async.cg.shared.global", 16
	if tile%4 != 0 {
		op, bytes = "cp.async.ca.shared.global", 4
	}
	total, threads := tile*4/bytes, g.threads
	number := b.Linear([]*expr.Expr{g.member, b.FloorDiv(g.channel, int64(s.Channels))}, []int{p.g, p.co / s.Channels})
	source := k.Reg(ptx.B64)
	start := b.Add(b.Scale(number, int64(tile*4)), b.Scale(g.thread, int64(bytes)))
	k.I("mad.wide.s32", source, g.em.Emit(start), ptx.Imm(1), pointers[g.weight])
	dst := g.shared(b.Scale(g.thread, int64(bytes)))
	for from := 0; from < total; from += threads {
		there := g.predicate(b.Lt(b.Offset(g.thread, int64(from)), b.Int(total)))
		k.Where(there, op, ptx.At(dst, s.weightsAt(p)+from*bytes), ptx.At(source, from*bytes), ptx.Imm(bytes), ptx.Imm(bytes))
	}
}
