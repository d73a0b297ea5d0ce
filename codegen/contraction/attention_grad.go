package contraction

import (
	"fmt"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/layout"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/ir"
)

// attentionGrad: the gradients of q, k and v, each padded to [B,H,R,C], one after another.
func (p *problem) attentionGrad() error {
	if err := p.attend(4); err != nil {
		return err
	}
	y := p.anchor.Outputs[0].Type.Shape
	p.m, p.n, p.k = y[0]*y[3], y[4], p.attn.t
	p.spread = func(v layout.View) (operand, error) {
		return operand{z: [][]layout.Mode{nil, v.Dims[1], v.Dims[2]}, row: layout.Concat(v.Dims[0], v.Dims[3]), col: layout.Coalesce(v.Dims[4]), offset: v.Offset}, nil
	}
	return nil
}

// gradPlan is the shape of a kernel that computes the gradients of one head in a block (FlashAttention, Dao and
// others 2022, algorithm 4, with one tile): with P = softmax(q·kᵀ), computed again, and Q = P∘(dy·vᵀ -
// rowsum(P∘dy·vᵀ))·scale
//
//	dq = Q·k    dk = Qᵀ·q    dv = Pᵀ·dy
//
// A warp owns 16 rows of q while it computes P and Q, whose accumulators, rounded to 16 bits, are the A fragments of
// Q·k. Both go to shared memory as well, where ldmatrix transposes them for the other two products, of which a warp
// owns 16 rows of keys.
type gradPlan struct {
	Schedule
	rows        int // of every tile: S and T, whichever is more, padded to 16
	steps       int // of 16 columns of D and Dv
	pitch       int // elements of a row of P and Q
	q, k, v, dy tileLoad
	params      [4]int
	mask        int // parameter
	probs, ds   int // offsets of P and Q
	shared      int
}

// attendedGrad is the kernel of an attention's gradient, which has one schedule.
type attendedGrad struct {
	attended
	at *gradPlan
}

func newAttentionGrad(p *problem, ctx *kernel.Context) (*attendedGrad, error) {
	if !p.num.tensor() {
		return nil, fmt.Errorf("attention: the gradient of operands that are not alike in 16 bits")
	}
	a := p.attn
	at := &gradPlan{rows: 16 * ceilDiv(max(a.s, a.t), 16), steps: ceilDiv(p.n, 16)}
	at.Schedule = Schedule{BM: p.m, BN: powerOfTwo(p.n, 16), BK: at.rows, WarpsM: at.rows / 16, WarpsN: 1, WarpsK: 1, Stages: 1, SplitK: 1}
	at.pitch = powerOfTwo(at.rows, 16)
	pl := start(p, ctx)
	size := 0
	tile := func(i int, o *operand, rows, cols int) tileLoad {
		at.params[i] = pl.Input(o.value)
		l := tileLoad{op: o, fixed: o.row, extent: rows, advance: o.col, k: cols, chunk: at.BN, rows: at.rows, cols: at.BN, elem: 2, base: size, swizzle: true}
		l.gran, l.async = access(o, o.col, append(append([][]layout.Mode{}, o.z...), o.row), ctx.AlignOf(o.value), l.elem)
		size += at.tileBytes()
		return l
	}
	dv := layout.Size(a.v.col)
	at.k, at.v = tile(1, &p.b, a.t, a.d), tile(2, &a.v, a.t, dv)
	size = max(size, at.rows*at.stagingRow()*4) // results are staged where k and v were
	at.q, at.dy = tile(0, &p.a, a.s, a.d), tile(3, a.dy, a.s, dv)
	at.probs = size
	at.ds = at.probs + at.rows*at.pitch*2
	at.shared = at.ds + at.rows*at.pitch*2
	if at.shared > ctx.Target.SharedBlock {
		return nil, fmt.Errorf("attention: %d bytes of shared memory, a block has %d", at.shared, ctx.Target.SharedBlock)
	}
	if a.mask != nil {
		at.mask = pl.Input(a.mask.value)
	}
	return &attendedGrad{attended{p: p, plan: pl, ctx: ctx}, at}, pl.close(p)
}

// Signature implements kernel.Kernel.
func (a *attendedGrad) Signature() string { return "" }

// Choose implements kernel.Kernel.
func (a *attendedGrad) Choose() (kernel.Choice, error) {
	c := kernel.Choice{Schedule: a.at}
	if n := a.p.batches(); n < a.ctx.Target.SMs {
		c.Reason = fmt.Sprintf("a block for each of %d heads", n)
	}
	return c, nil
}

// Spec implements kernel.Kernel.
func (a *attendedGrad) Spec(kernel.Choice) (*kernel.Spec, error) {
	p, at := a.p, a.at
	return &kernel.Spec{
		Stem:     stem(p),
		Family:   ir.FamilyContraction,
		Grid:     [3]int{p.batches(), 1, 1},
		Block:    [3]int{at.threads(), 1, 1},
		Shared:   at.shared,
		Operands: a.plan.Operands,
		Emit: func(k *ptx.Kernel, params []ptx.Sym) {
			g := &gen{asm: asm{k}, p: p, s: at.Schedule, t: a.ctx.Target, plan: a.plan, params: params}
			g.emitAttentionGrad(at)
		},
		MACs:     p.region.MACs(),
		Schedule: at.String(),
		Note:     fmt.Sprintf("AttentionGrad s=%d t=%d d=%d dv=%d heads=%d", p.attn.s, p.attn.t, p.attn.d, layout.Size(p.attn.v.col), p.batches()),
	}, nil
}

func (at *gradPlan) tileBytes() int { return at.rows * at.BN * 2 }

// gradCore writes the arithmetic of a head.
type gradCore struct {
	*gen
	at     *gradPlan
	across []num // byte offsets of the lane's rows in a tile for every 16 columns: as an A fragment of the warp's rows
	keys   []num // as B fragments of 16 keys
	down   []num // as B fragments of 16 rows of k, transposed
	turned num   // in P and Q, as an A fragment of the warp's keys, transposed
}

func (g *gen) emitAttentionGrad(at *gradPlan) {
	g.coordinates()
	kernel.Wait(g.Kernel, g.t)
	for i, l := range []*tileLoad{&at.q, &at.k, &at.v, &at.dy} {
		load := *l
		load.ptr, load.origin = g.matrix(at.params[i], l.op), imm(0)
		load.begin(g)
		load.issue(g, imm(0), imm(0))
	}
	g.I("cp.async.commit_group")
	if g.p.attn.mask != nil {
		g.mask = g.matrix(at.mask, g.p.attn.mask)
	}
	c := &gradCore{gen: g, at: at}
	c.begin()
	g.s.BM = g.p.m / 3
	t := g.prepare()
	g.I("cp.async.wait_group", ptx.Imm(0))
	g.I("bar.sync", ptx.Imm(0))
	dq := c.queries()
	g.I("bar.sync", ptx.Imm(0)) // k and v have been read, P and Q are there
	c.store(t, 0, dq)
	for i, part := range []struct{ left, right int }{{at.ds, at.q.base}, {at.probs, at.dy.base}} {
		d := c.turn(part.left, part.right)
		g.I("bar.sync", ptx.Imm(0)) // the part before has been stored
		c.store(t, 1+i, d)
	}
	g.I("ret")
}

func (c *gradCore) begin() {
	sw := layout.NewSwizzle(c.at.BN * 2)
	low, high := c.mod(c.lane, 8), c.div(c.lane, 16)
	middle := c.mod(c.div(c.lane, 8), 2)
	for k := range c.at.steps {
		row := c.mod(c.lane, 16)
		c.down = append(c.down, c.swizzled(sw, row, c.add(high, imm(2*k))))
		c.across = append(c.across, c.swizzled(sw, c.add(c.mul(c.warp, 16), row), c.add(high, imm(2*k))))
		c.keys = append(c.keys, c.swizzled(sw, c.add(low, c.mul(high, 8)), c.add(middle, imm(2*k))))
	}
	// Matrices of P in memory: (s 0–7, t 0–7), (s 0–7, t 8–15), (s 8–15, t 0–7), (s 8–15, t 8–15).
	c.turned = c.swizzled(layout.NewSwizzle(c.at.pitch*2), c.add(low, c.mul(high, 8)), c.add(middle, c.mul(c.warp, 2)))
}

func (c *gradCore) ldmatrix(trans string, at num, offset int) []ptx.Reg {
	r := c.RegVec(ptx.B32, 4)
	c.I("ldmatrix.sync.aligned.m8n8.x4"+trans+".shared.b16", ptx.V(r...), ptx.At(c.register(c.add(c.smem, at)), offset))
	return r
}

func (c *gradCore) multiply(sum, a, b []ptx.Reg) {
	c.I(c.p.num.mmaOpcode(), ptx.V(sum...), ptx.V(a...), ptx.V(b...), ptx.V(sum...))
}

// scores is the product of the warp's rows of a tile and all rows of another one, an accumulator for every n8 tile.
func (c *gradCore) scores(left, right int) [][]ptx.Reg {
	var sums [][]ptx.Reg
	for range c.at.rows / 8 {
		sums = append(sums, c.filled(4, 0))
	}
	for k := range c.at.steps {
		a := c.ldmatrix("", c.across[k], left)
		for j := range len(sums) / 2 {
			b := c.ldmatrix("", c.keys[k], right+j*16*c.at.BN*2)
			c.multiply(sums[2*j], a, b[:2])
			c.multiply(sums[2*j+1], a, b[2:])
		}
	}
	return sums
}

// queries computes P and Q of the warp's rows and returns Q·k, an accumulator for every n8 tile.
func (c *gradCore) queries() [][]ptx.Reg {
	f := layout.C16x8
	row := c.add(c.mul(c.warp, 16), c.offset(f.LaneRow, c.lane))
	col := c.offset(f.LaneCol, c.lane)
	p := c.scores(c.at.q.base, c.at.k.base)
	top, sum := c.filled(2, lowest), c.filled(2, 0)
	for j, x := range p {
		for v, x := range x {
			c.score(x, place{col, j*8 + v%2}, place{row, 8 * (v / 2)}, c.inside(imm(0), j*8+8))
			c.I("max.f32", top[v/2], top[v/2], x)
		}
	}
	for r := range top {
		top[r] = c.gen.across("max.f32", top[r], 1, 2)
	}
	for _, x := range p {
		for v, x := range x {
			c.I("sub.rn.f32", x, x, top[v/2])
			c.I("ex2.approx.f32", x, x)
			c.I("add.rn.f32", sum[v/2], sum[v/2], x)
		}
	}
	inv, mean := c.RegVec(ptx.F32, 2), c.filled(2, 0)
	for r := range inv {
		c.I("rcp.rn.f32", inv[r], c.total(c.gen.across("add.rn.f32", sum[r], 1, 2)))
	}
	q := c.scores(c.at.dy.base, c.at.v.base)
	for j, x := range p {
		for v, x := range x {
			c.I("mul.rn.f32", x, x, inv[v/2])
			c.I("fma.rn.f32", mean[v/2], x, q[j][v], mean[v/2])
		}
	}
	for r := range mean {
		mean[r] = c.gen.across("add.rn.f32", mean[r], 1, 2)
	}
	for j, x := range q {
		for v, x := range x {
			c.I("sub.rn.f32", x, x, mean[v/2])
			c.I("mul.rn.f32", x, x, p[j][v])
			c.I("mul.rn.f32", x, x, ptx.FImm(float32(c.p.attn.scale)))
		}
	}
	c.keep(c.at.probs, p, row)
	a := c.keep(c.at.ds, q, row)
	return c.product(func(k int) []ptx.Reg { return a[k] }, c.at.k.base)
}

// keep writes the accumulators of the warp's rows, rounded to 16 bits, to shared memory, and returns them as A
// fragments.
func (c *gradCore) keep(base int, x [][]ptx.Reg, row num) [][]ptx.Reg {
	sw := layout.NewSwizzle(c.at.pitch * 2)
	within := c.mul(c.mod(c.lane, 4), 4)
	var fragments [][]ptx.Reg
	for j, v := range x {
		if j%2 == 0 {
			fragments = append(fragments, nil)
		}
		for r := range 2 {
			h := c.Reg(ptx.B32)
			c.I("cvt.rn."+c.p.num.mul.String()+"x2.f32", h, v[2*r+1], v[2*r])
			at := c.add(c.swizzled(sw, c.add(row, imm(8*r)), imm(j)), within)
			c.I("st.shared.b32", ptx.At(c.register(c.add(c.smem, at)), base), h)
			fragments[j/2] = append(fragments[j/2], h)
		}
	}
	return fragments
}

// turn is the transpose of P or Q times a tile, for the warp's keys.
func (c *gradCore) turn(left, right int) [][]ptx.Reg {
	return c.product(func(k int) []ptx.Reg { return c.ldmatrix(".trans", c.turned, left+k*16*c.at.pitch*2) }, right)
}

// product multiplies 16 rows, whose A fragments a gives for every 16 of K, by a tile with rows of K.
func (c *gradCore) product(a func(k int) []ptx.Reg, right int) [][]ptx.Reg {
	var sums [][]ptx.Reg
	for range 2 * c.at.steps {
		sums = append(sums, c.filled(4, 0))
	}
	for k := range c.at.rows / 16 {
		left := a(k)
		for j := range c.at.steps {
			b := c.ldmatrix(".trans", c.down[j], right+k*16*c.at.BN*2)
			c.multiply(sums[2*j], left, b[:2])
			c.multiply(sums[2*j+1], left, b[2:])
		}
	}
	return sums
}

// store puts one of the three results where k and v were, and from there through the epilogue to memory.
func (c *gradCore) store(t *tail, part int, sums [][]ptx.Reg) {
	f := layout.C16x8
	row := c.add(c.mul(c.warp, 16), c.offset(f.LaneRow, c.lane))
	to := c.register(c.add(c.smem, c.mad(row, c.at.stagingRow()*4, c.mul(c.offset(f.LaneCol, c.lane), 4))))
	for j, x := range sums {
		for r := range 2 {
			c.I("st.shared.v2.f32", ptx.At(to, (8*r*c.at.stagingRow()+8*j)*4), ptx.V(x[2*r], x[2*r+1]))
		}
	}
	c.I("bar.sync", ptx.Imm(0))
	c.tileM = imm(part)
	c.groups(t.columns, 0, func(_, row, col, m, n num) { t.store(m, n, c.apply(t, c.sumWarps(row, col), m, n)) })
}
