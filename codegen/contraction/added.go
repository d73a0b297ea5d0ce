package contraction

import (
	"fmt"

	"github.com/spark-compile/spark-compile/codegen/layout"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/ir"
)

// added is a second product of the same rows and columns with a small k, whose operands are variables: C[m,n] += Σ_k
// A[m,k]·B[k,n]. It is one more chunk of K with operands of its own: a block copies it with its first chunks and
// multiplies it after the last. An adapter's contribution to a layer's product then never goes through memory.
type added struct {
	a, b    operand
	k       int
	factors *operand // of the columns of the first product's A, f32; nil: none
}

// add is the second product of a MatMulSum.
func (p *problem) add() error {
	n := p.anchor
	a, err := p.operandOf(2)
	if err != nil {
		return err
	}
	b, err := p.operandOf(3)
	if err != nil {
		return err
	}
	if b.src.data != nil || a.src.data != nil {
		return fmt.Errorf("a constant in the second product")
	}
	last := n.Inputs[2].Type.Rank() - 1
	a.row, a.col = layout.Concat(a.src.view.Dims[:last]...), layout.Coalesce(a.src.view.Dims[last])
	bk, bn := b.src.view.Dims[0], b.src.view.Dims[1]
	if n.Attrs.Bool("transD") {
		bk, bn = bn, bk
	}
	b.row, b.col = layout.Coalesce(bk), layout.Coalesce(bn)
	p.added = &added{a: a, b: b, k: layout.Size(bk)}
	if p.added.k > ir.MostAdded {
		return fmt.Errorf("a second product of k=%d", p.added.k)
	}
	if n.In(4) == nil {
		return nil
	}
	f, err := p.operandOf(4)
	if err != nil {
		return err
	}
	if f.dtype != ir.Float32 || p.k > ir.MostFactors {
		return fmt.Errorf("%d factors of %s", p.k, f.dtype)
	}
	f.col = layout.Coalesce(f.src.view.Dims[0])
	p.added.factors = &f
	return nil
}

// addedTypes returns an error unless both operands lie in memory as they are multiplied.
func (p *problem) addedTypes() error {
	if p.added.factors != nil && (p.num.a != p.num.mul || p.num.round != 0) {
		return fmt.Errorf("factors of %s", p.num.a)
	}
	if d := p.added; d.a.dtype != p.num.mul || d.b.dtype != p.num.mul {
		return fmt.Errorf("a second product of %s and %s, multiplied as %s", d.a.dtype, d.b.dtype, p.num.mul)
	}
	return nil
}

// chunk is k rounded up to the rows of a tile.
func (d *added) chunk() int {
	k := 16
	for k < d.k {
		k *= 2
	}
	return k
}

// addedBytes is the size of the second product's tiles in shared memory, after all stages.
func (s Schedule) addedBytes(p *problem) int {
	if p.added == nil {
		return 0
	}
	return bytesFor(p.num.mul, (s.BM+s.BN)*p.added.chunk()) + 4*s.factors(p)
}

// factors is the number of factors of A's columns that a block holds: those beyond K are 0. Threads copy four each.
func (s Schedule) factors(p *problem) int {
	if p.added.factors == nil {
		return 0
	}
	all := 4 * s.threads()
	return ceilDiv(s.chunks(p)*s.BK, all) * all
}

// factorsBase is where the factors are in shared memory, after the second product's tiles.
func (s Schedule) factorsBase(p *problem) int {
	return s.addedBase(p) + bytesFor(p.num.mul, (s.BM+s.BN)*p.added.chunk())
}

// addedBase is where the second product's tiles are in shared memory, after the stages and the staging for stores.
func (s Schedule) addedBase(p *problem) int { return max(s.Stages*s.stageBytes(p), s.stagingBytes()) }

// loadAdded says how the second product's operands are read.
func (pl *plan) loadAdded(p *problem) {
	d, elem := p.added, bytesFor(p.num.mul, 1)
	pl.addedA, pl.addedB = pl.Input(d.a.value), pl.Input(d.b.value)
	a := tileLoad{op: &d.a, fixed: d.a.row, extent: p.m, advance: d.a.col, k: d.k, elem: elem, swizzle: true}
	a.gran, a.async = access(&d.a, d.a.col, [][]layout.Mode{d.a.z[0], d.a.row}, pl.ctx.AlignOf(d.a.value), elem)
	pl.loadAddedA, pl.loadAddedB = a, pl.rowsOfB(p, &d.b, d.k)
	if f := d.factors; f != nil {
		pl.factors = pl.Input(f.value)
		pl.loadFactors = tileLoad{op: f, extent: 1, advance: f.col, k: p.k, elem: 4, rows: 1}
		pl.loadFactors.gran, pl.loadFactors.async = access(f, f.col, f.z, pl.ctx.AlignOf(f.value), 4)
	}
}

// addedAt gives the second product's tiles their size and place.
func (c *plan) addedAt(p *problem, s Schedule) {
	k := p.added.chunk()
	a, b := &c.loadAddedA, &c.loadAddedB
	a.rows, a.cols, a.chunk, a.base = s.BM, k, k, s.addedBase(p)
	b.rows, b.cols, b.chunk, b.base = s.BN, k, k, a.base+bytesFor(p.num.mul, s.BM*k)
	if b.kRows {
		b.rows, b.cols = k, s.BN
	}
	f := &c.loadFactors
	f.cols, f.chunk, f.base = s.factors(p), s.factors(p), s.factorsBase(p)
}

// copyFactors starts the copies of the factors of A's columns, if there are any.
func (g *gen) copyFactors() {
	if g.p.added == nil || g.p.added.factors == nil {
		return
	}
	t := g.plan.loadFactors
	t.ptr, t.origin = g.matrix(g.plan.factors, t.op), imm(0)
	t.begin(g)
	t.issue(g, imm(0), imm(0))
}

// factorsFrom is the address of the factor of the block's first column plus some; nil if there are no factors.
func (g *gen) factorsFrom(plus func() num) *ptx.Reg {
	if g.p.added == nil || g.p.added.factors == nil {
		return nil
	}
	column := plus()
	at := g.add(g.mul(g.first, g.s.BK), column)
	r := g.Reg(ptx.B32)
	g.I("add.s32", r, g.smem.reg, g.add(g.mul(at, 4), imm(g.s.factorsBase(g.p))).operand())
	return &r
}

// scaled is an A fragment times the factors of the lane's columns: of the left half, then of the right one.
func (g *gen) scaled(x, factors []ptx.Reg) []ptx.Reg {
	d := g.p.num.mul.String()
	out := make([]ptx.Reg, len(x))
	for i, r := range x {
		v := g.promotePair(r, g.p.num.mul)
		for j := range v {
			g.I("mul.rn.f32", v[j], v[j], factors[i/2*2+j])
		}
		out[i] = g.Reg(ptx.B32)
		g.I("cvt.rn."+d+"x2.f32", out[i], v[1], v[0])
	}
	return out
}

// addedWork adds the second product to the work of a launch, and of a warp after its main loop.
func (s Schedule) addedWork(p *problem, pl *plan, w, warp *cost.Work) {
	k, n := p.added.chunk(), &p.num
	share := 1 / float64(s.WarpsK*s.SplitK) // of the warps
	w.L2Read += float64(s.tiles(p) * bytesFor(n.mul, (s.BM+s.BN)*p.added.k))
	for _, l := range []*tileLoad{&pl.loadAddedA, &pl.loadAddedB} {
		rows := s.BM
		if l == &pl.loadAddedB {
			rows = s.BN
		}
		copies := float64(ceilDiv(rows*k/l.perCopy(), s.threads())) / float64(s.SplitK)
		warp.Memory += copies
		warp.Integer += float64(5 * copies)
		if !l.async { // those that lie inside
			loads := float64(copies * float64(min(l.perCopy(), p.added.k)))
			warp.Loads += loads
			warp.Memory += loads
			warp.Integer += float64(5 * loads)
		}
	}
	if p.added.factors != nil {
		s.factorsWork(p, w, warp)
	}
	if !n.tensor() {
		warp.Float += float64(float64(k*s.ThreadM*s.ThreadN) * share)
		warp.Memory += float64(float64(k/4*s.ThreadM+k*s.ThreadN/4) * share)
		return
	}
	w.Products[0].MACs += float64(s.tiles(p) * s.BM * s.BN * k)
	rows, columns := s.warpM()/16, s.warpN()/16
	warp.Issued += float64(float64(2*rows*columns*k/n.stepMul()) * share)
	warp.Memory += float64(float64((rows+columns)*k/n.stepMul()) * share)
	warp.Wavefronts += float64(float64(n.tileA(s.warpM(), k)+n.tileA(s.warpN(), k)) / 128 * share)
}

// factorsWork adds copies of the factors, and products of the warps' fragments with them.
func (s Schedule) factorsWork(p *problem, w, warp *cost.Work) {
	held := s.factors(p)
	w.L2Read += float64(4 * p.k * s.blocks(p))
	copies := float64(held / 4 / s.threads())
	k := s.chunks(p) * s.BK / s.WarpsK / s.SplitK
	warp.Memory += copies
	warp.Integer += float64(5 * copies)
	if !p.num.tensor() {
		warp.Memory += float64(k / 4)
		warp.Float += float64(k * s.ThreadM)
		return
	}
	elements := float64(k * s.warpM() / 32) // of a lane
	warp.Memory += float64(k / 8)
	warp.Float += elements
	warp.Integer += float64(1.5 * elements)
}

// copyAdded starts the copies of the second product's tiles, in the first block of a split.
func (g *gen) copyAdded() {
	for _, l := range []struct {
		load  *tileLoad
		param int
		tile  num
		size  int
	}{{&g.plan.loadAddedA, g.plan.addedA, g.tileM, g.s.BM}, {&g.plan.loadAddedB, g.plan.addedB, g.tileN, g.s.BN}} {
		t := *l.load
		t.ptr, t.origin = g.matrix(l.param, t.op), g.mul(l.tile, l.size)
		t.begin(g)
		g.inFirst(g.share, g.s.SplitK > 1, func() { t.issue(g, imm(0), imm(0)) })
	}
}

// inFirst emits f for those of several blocks or warps whose number is 0.
func (g *gen) inFirst(number num, several bool, f func()) {
	if !several {
		f()
		return
	}
	skip := g.NewLabel("others")
	q := g.compare("ne.u32", number, imm(0))
	g.If(q, "bra.uni", skip)
	f()
	g.Place(skip)
}

// multiplyAdded adds the second product to the accumulators of the first warps along K.
func (g *gen) multiplyAdded(c core) {
	p, second := *g.p, *g
	p.num = numerics{a: p.num.mul, b: p.num.mul, mul: p.num.mul, terms: 1, termsB: 1}
	p.added = nil
	pl := *g.plan
	pl.packed, pl.tiles, pl.loadA, pl.loadB = false, nil, g.plan.loadAddedA, g.plan.loadAddedB
	second.p, second.plan = &p, &pl
	second.s.BK, second.s.WarpsK = g.p.added.chunk(), 1
	g.Comment("second product: k=%d", g.p.added.k)
	g.inFirst(g.share, g.s.SplitK > 1, func() { c.more(g, &second, imm(g.s.addedBase(g.p))) })
}
