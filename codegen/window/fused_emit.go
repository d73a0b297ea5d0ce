package window

import (
	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/lower"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/ir"
)

// spec is the kernel of a schedule.
func (c *fusedWindows) spec(s fusedSchedule, ctx *kernel.Context, n *ir.Node) (*kernel.Spec, error) {
	g, err := c.newGen(s, ctx)
	if err != nil {
		return nil, err
	}
	return &kernel.Spec{Stem: c.first.stem() + "_" + c.second.stem(), Family: ir.FamilyFused, Grid: [3]int{s.second.blocks(c.second), 1, 1},
		Block: [3]int{g.second.threads, 1, 1}, Shared: c.shared(s), Operands: g.second.l.Operands, MACs: n.MACs(), Note: n.Name,
		Schedule: s.String(), Emit: g.emit}, nil
}

// fusedGen writes the kernel of fused windows.
type fusedGen struct {
	*fusedWindows
	fusedSchedule
	first, second *gen
}

func (c *fusedWindows) newGen(s fusedSchedule, ctx *kernel.Context) (*fusedGen, error) {
	p, q := c.first, c.second
	a := tileOf(q, s.second, lower.New(p.region, ctx)) // as blocks see the second's tile
	b := a.b
	a.p, a.s, a.prefix = p, s.first, "first "
	from := func(tile *expr.Expr, stride, pad, padding int) *expr.Expr { // where the first's outputs under a tile begin
		return b.Offset(b.Scale(tile, int64(stride)), int64(padding-pad))
	}
	a.oh, a.ow = from(a.oh, q.sh, q.ph, s.above), from(a.ow, q.sw, q.pw, s.left)
	a.channel = b.Scale(b.FloorDiv(a.channel, int64(s.second.Channels)), int64(s.first.Channels))
	if err := a.lowerFinish(c.kept); err != nil {
		return nil, err
	}
	a.lowerWeights()
	a.lowerStage()
	z := tileOf(q, s.second, a.l.Further(q.region))
	if err := z.lowerFinish(true); err != nil {
		return nil, err
	}
	z.lowerWeights()
	return &fusedGen{fusedWindows: c, fusedSchedule: s, first: a, second: z}, nil
}

// emit writes the kernel.
func (g *fusedGen) emit(k *ptx.Kernel, params []ptx.Sym) {
	a, z := g.first, g.second
	pointers := z.begin(k, params)
	a.k, a.em, a.smem = k, z.em, k.Reg(ptx.B32)
	k.I("add.s32", a.smem, z.smem, ptx.Imm(int64(g.firstAt(g.fusedSchedule))))
	a.copyWeights(pointers)
	z.copyWeights(pointers)
	g.pad()
	z.em.Wait()
	a.emitStage()
	if a.p.taps != nil || z.p.taps != nil {
		k.I("cp.async.wait_all")
	}
	k.I("bar.sync", ptx.Imm(0))
	a.accumulate(g.handOver)
	k.I("bar.sync", ptx.Imm(0))
	z.accumulate(z.storeSums)
	k.I("bar.sync", ptx.Imm(0))
	z.emitFinish()
	k.I("ret")
}

// pad fills the second's inputs with what padding contributes: the first computes what is inside of its image.
func (g *fusedGen) pad() {
	z := g.second
	b, k, total := z.b, z.k, z.s.weightsAt(z.p)/16
	r := k.Reg(ptx.F32)
	k.I("mov.f32", r, ptx.FImm(z.p.neutral(b).F))
	to := z.shared(b.Scale(z.thread, 16))
	for from := 0; from < total; from += z.threads {
		k.Where(z.predicate(b.Lt(b.Offset(z.thread, int64(from)), b.Int(total))), "st.shared.v4.f32", ptx.At(to, 16*from), ptx.V(r, r, r, r))
	}
}

// handOver runs the first's epilogue on a run's sums, leaves what it yields to the second, rounded as it is stored,
// and stores what the tile owns.
func (g *fusedGen) handOver(at run, acc [][]ptx.Reg) {
	a, z := g.first, g.second
	b, f, q := a.b, &a.finish, z.p
	if a.s.Columns == a.s.Pixels { // threads that have no run are elsewhere
		at.column = b.Int(0)
	}
	to := z.shared(b.Add(b.Add(b.Scale(b.Offset(at.row, int64(g.above)), int64(z.s.pitch)), b.Scale(b.Offset(at.column, int64(g.left)), int64(z.s.pixel(q)))), b.Scale(at.channel, 4)))
	oh := b.Add(a.oh, at.row)
	owned := func(i *expr.Expr, pad, padding, size int) *expr.Expr {
		return b.Within(b.Offset(i, int64(padding-pad)), 0, int64(size))
	}
	for px, sums := range acc {
		column := b.Offset(at.column, int64(px))
		ow := b.Add(a.ow, column)
		a.em.Push()
		a.where(b.And(b.Within(oh, 0, int64(a.p.oh)), b.Within(ow, 0, int64(a.p.ow))), func() {
			a.em.Push()
			for v, r := range sums {
				a.em.Bind(f.acc[v], r)
			}
			a.em.Bind(f.oh, a.em.Emit(oh))
			a.em.Bind(f.ow, a.em.Emit(ow))
			a.em.Bind(f.channel, a.em.Emit(b.Add(a.channel, at.channel)))
			op, v := vector("st.shared", a.em.EmitAll(f.rounded))
			a.k.I(op, ptx.At(to, px*z.s.pixel(q)), v)
			if g.kept {
				a.em.Store(f.out, f.index, f.dtype, f.values, b.And(owned(at.row, q.ph, g.above, z.s.Rows*q.sh), owned(column, q.pw, g.left, z.s.Columns*q.sw)))
			}
			a.em.Pop()
		})
		a.em.Pop()
	}
}
