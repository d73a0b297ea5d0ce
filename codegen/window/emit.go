package window

import (
	"fmt"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/lower"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// gen writes a kernel, or what one computes of a window.
type gen struct {
	p       *problem
	s       schedule
	b       *expr.Builder
	l       *lower.Lowering
	threads int    // of a block
	prefix  string // of variables' names

	thread, block *expr.Expr // indices
	// the tile's first output
	member, image, oh, ow, channel *expr.Expr

	weight int // operand
	stage  []chunk
	finish finish

	k    *ptx.Kernel
	em   *expr.Emitter
	smem ptx.Reg
}

// newGen builds all expressions of a kernel, which fixes its operands.
func newGen(p *problem, s schedule, ctx *kernel.Context) (*gen, error) {
	g := tileOf(p, s, lower.New(p.region, ctx))
	if err := g.lowerFinish(true); err != nil {
		return nil, err
	}
	g.lowerWeights()
	g.lowerStage()
	return g, nil
}

// tileOf is what blocks compute that have a tile each.
func tileOf(p *problem, s schedule, l *lower.Lowering) *gen {
	b := l.B
	g := &gen{p: p, s: s, b: b, l: l, threads: s.threads()}
	g.thread, g.block = b.Index("thread", g.threads), b.Index("block", s.blocks(p))
	at := b.Unravel(g.block, []int{p.g, p.n, ceilDiv(p.oh, s.Rows), ceilDiv(p.ow, s.Columns), p.co / s.Channels})
	g.member, g.image = at[0], at[1]
	g.oh, g.ow, g.channel = b.Scale(at[2], int64(s.Rows)), b.Scale(at[3], int64(s.Columns)), b.Scale(at[4], int64(s.Channels))
	if p.region.Region.Members > 0 {
		g.l.Member = g.member
	}
	return g
}

func (g *gen) lowerWeights() {
	if g.p.taps != nil {
		g.weight = g.l.Table(g.p.pack(g.s))
	}
}

// emit writes the kernel.
func (g *gen) emit(k *ptx.Kernel, params []ptx.Sym) {
	pointers := g.begin(k, params)
	g.copyWeights(pointers)
	g.em.Wait()
	g.emitStage()
	if g.p.taps != nil {
		k.I("cp.async.wait_all")
	}
	k.I("bar.sync", ptx.Imm(0))
	g.accumulate(g.storeSums)
	k.I("bar.sync", ptx.Imm(0))
	g.emitFinish()
	k.I("ret")
}

// begin reads the parameters.
func (g *gen) begin(k *ptx.Kernel, params []ptx.Sym) []ptx.Reg {
	g.k = k
	pointers := make([]ptx.Reg, len(g.l.Operands))
	for i := range pointers {
		r := k.Reg(ptx.B64)
		k.I("ld.param.u64", r, ptx.At(params[i], 0))
		k.I("cvta.to.global.u64", r, r)
		pointers[i] = r
	}
	tid, block := k.Reg(ptx.B32), k.Reg(ptx.B32)
	g.smem = k.Reg(ptx.B32)
	k.I("mov.u32", tid, ptx.Special("%tid.x"))
	k.I("mov.u32", block, ptx.Special("%ctaid.x"))
	k.I("mov.u32", g.smem, ptx.Sym(ptx.SharedName))
	g.em = expr.NewEmitter(k, g.b, g.l.Env(k, pointers))
	g.em.Bind(g.thread, tid)
	g.em.Bind(g.block, block)
	return pointers
}

// shared is the address of a varying byte offset in shared memory; instructions add the constant part.
func (g *gen) shared(offset *expr.Expr) ptx.Reg {
	if offset.IsConstInt(0) {
		return g.smem
	}
	r := g.k.Reg(ptx.B32)
	g.k.I("add.s32", r, g.em.Emit(offset), g.smem)
	return r
}

// spread leaves 16 bytes free after each 128 of shared memory, so that lanes that write or read neighbouring vectors
// of 8 or 16 elements, 16 bytes at a time, use different banks.
func (g *gen) spread(offset *expr.Expr) *expr.Expr {
	return g.b.Add(offset, g.b.Scale(g.b.FloorDiv(offset, 128), 16))
}

// spreadInput is inputAt for a varying offset.
func (g *gen) spreadInput(offset *expr.Expr) *expr.Expr {
	if g.s.spread {
		return g.spread(offset)
	}
	return offset
}

// predicate is the register of a predicate; nil where it always holds.
func (g *gen) predicate(p *expr.Expr) *ptx.Reg {
	if p.IsConstInt(1) {
		return nil
	}
	r := g.em.Emit(p)
	return &r
}

// where emits f, which runs only where p holds.
func (g *gen) where(p *expr.Expr, f func()) {
	if r := g.predicate(p); r != nil {
		skip := g.k.NewLabel("skip")
		defer g.k.Place(skip)
		g.k.Unless(*r, "bra", skip)
	}
	f()
}

// vector names an access to n neighbouring 32-bit elements: op.v4.f32.
func vector(op string, rs []ptx.Reg) (string, ptx.Operand) {
	if len(rs) == 1 {
		return op + ".f32", rs[0]
	}
	return fmt.Sprintf("%s.v%d.f32", op, len(rs)), ptx.V(rs...)
}
