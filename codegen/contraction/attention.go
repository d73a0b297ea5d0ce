package contraction

import (
	"fmt"
	"math"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/layout"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// attend is an attention in normal form: problem.a is q [S,D], problem.b is k with rows T and columns D, v has rows T and
// columns Dv; problem.m is S, problem.k is T, problem.n is Dv; z runs over members, batch and heads.
type attend struct {
	v      operand
	d      int
	scale  float64
	causal bool
}

// attention: softmax(q·kᵀ·scale)·v for q [B,H,S,D], k [B,Hk,T,D], v [B,Hk,T,Dv].
func (p *problem) attention() error {
	n := p.anchor
	if n.In(3) != nil {
		return fmt.Errorf("Attention with a mask")
	}
	if n.Attrs.Float("softcap", 0) != 0 {
		return fmt.Errorf("Attention with softcap")
	}
	q, k, v := n.Inputs[0].Type.Shape, n.Inputs[1].Type.Shape, n.Inputs[2].Type.Shape
	a := &attend{d: q[3], scale: n.Attrs.Float("scale", 1), causal: n.Attrs.Bool("causal")}
	p.attn = a
	var ops [3]operand
	for i := range ops {
		o, err := p.operandOf(i)
		if err != nil {
			return err
		}
		d := o.src.view.Dims
		heads := d[1]
		if i > 0 && k[1] < q[1] { // several heads of q share one of k and v
			heads = append(append([]layout.Mode{}, heads...), layout.Mode{Size: q[1] / k[1]})
		}
		o.z = append(o.z, d[0], heads)
		o.row, o.col = layout.Coalesce(d[2]), layout.Coalesce(d[3])
		ops[i] = o
	}
	p.a, p.b, a.v = ops[0], ops[1], ops[2]
	p.z = append(p.z, q[0], q[1])
	p.m, p.n, p.k = q[2], v[3], k[2]
	if p.n > 256 || a.d > 256 {
		return fmt.Errorf("Attention with heads of %d and %d elements", a.d, p.n)
	}
	p.spread = func(v layout.View) (operand, error) {
		return operand{z: [][]layout.Mode{nil, v.Dims[0], v.Dims[1]}, row: layout.Coalesce(v.Dims[2]), col: layout.Coalesce(v.Dims[3]), offset: v.Offset}, nil
	}
	return nil
}

// attnPlan is the shape of an attention kernel: a block computes BM rows of q of one head, walking over T in tiles of BK
// with two stages and the running maximum and sum of the softmax.
type attnPlan struct {
	Schedule
	dp       int // D padded to a power of two
	q, k, v  tileLoad
	kParam   int
	qParam   int
	vParam   int
	stage    int // bytes of a stage: a tile of k and one of v
	probs    int // fma: offset of the probabilities
	shared   int
	kPitch   int
	rowsWarp int
}

const fmaRows = 4 // rows of q that a warp of the fma variant computes together

func lowerAttention(p *problem, ctx *kernel.Context) (*kernel.Spec, error) {
	at, pl, err := planAttention(p, ctx)
	if err != nil {
		return nil, err
	}
	spec := &kernel.Spec{
		Stem:     stem(p),
		Family:   "contraction",
		Grid:     [3]int{at.blocks(p), 1, 1},
		Block:    [3]int{at.threads(), 1, 1},
		Shared:   at.shared,
		Operands: pl.operands,
		Emit: func(k *ptx.Kernel, params []ptx.Sym) {
			g := &gen{asm: asm{k}, p: p, s: at.Schedule, t: ctx.Target, plan: pl, params: params}
			g.emitAttention(at)
		},
		MACs:     p.macs(),
		Schedule: at.String(),
		Note:     fmt.Sprintf("Attention s=%d t=%d d=%d dv=%d heads=%d", p.m, p.k, p.attn.d, p.n, p.batches()),
	}
	if b := at.blocks(p); b < enoughBlocks {
		spec.Reason = fmt.Sprintf("%d blocks: %d heads of %d rows", b, p.batches(), p.m)
	}
	return spec, nil
}

func planAttention(p *problem, ctx *kernel.Context) (*attnPlan, *plan, error) {
	d, elem := p.attn.d, p.elem()
	at := &attnPlan{Schedule: Schedule{WarpsN: 1, WarpsK: 1, Stages: 2, SplitK: 1}}
	at.rowsWarp = fmaRows
	if p.half {
		at.rowsWarp = 16
		at.dp, at.BN = powerOfTwo(d, 16), powerOfTwo(p.n, 16)
	} else {
		at.dp, at.BN = powerOfTwo(d, 4), powerOfTwo(p.n, 32)
	}
	at.BK = 32
	for at.WarpsM = 4; ; at.WarpsM /= 2 {
		at.BM = at.WarpsM * at.rowsWarp
		if at.WarpsM == 1 || at.blocks(p) >= enoughBlocks && at.BM < p.m+at.rowsWarp {
			break
		}
	}
	at.kPitch = at.dp * elem
	if !p.half {
		at.kPitch += 16 // lanes read neighbouring rows: 16 bytes more put them into different banks
	}
	qBytes := at.BM * at.dp * elem
	at.stage = at.BK*at.kPitch + at.BK*at.BN*elem
	at.probs = qBytes + at.Stages*at.stage
	at.shared = at.probs
	if !p.half {
		at.shared += at.BM * at.BK * 4
	}
	at.shared = max(at.shared, at.stagingBytes()) + 16
	if at.shared > ctx.Target.SharedBlock {
		return nil, nil, fmt.Errorf("%d bytes of shared memory, a block has %d", at.shared, ctx.Target.SharedBlock)
	}
	pl := &plan{leaf: map[int]bool{}}
	at.qParam, at.kParam, at.vParam = pl.param(p.a.value), pl.param(p.b.value), pl.param(p.attn.v.value)
	load := func(o *operand) (int, bool) {
		return access(o, o.col, append(append([][]layout.Mode{}, o.z...), o.row), ctx.AlignOf(o.value), elem)
	}
	at.q = tileLoad{op: &p.a, fixed: p.a.row, extent: p.m, advance: p.a.col, k: d, chunk: at.dp, rows: at.BM, cols: at.dp, elem: elem, swizzle: p.half}
	at.q.gran, at.q.async = load(&p.a)
	at.k = tileLoad{op: &p.b, fixed: p.b.col, extent: d, advance: p.b.row, k: p.k, chunk: at.BK, kRows: true, rows: at.BK, cols: at.dp, elem: elem, base: qBytes, swizzle: p.half, pitch: at.kPitch}
	at.k.gran, at.k.async = load(&p.b)
	v := &p.attn.v
	at.v = tileLoad{op: v, fixed: v.col, extent: p.n, advance: v.row, k: p.k, chunk: at.BK, kRows: true, rows: at.BK, cols: at.BN, elem: elem, base: qBytes + at.BK*at.kPitch, swizzle: p.half}
	at.v.gran, at.v.async = load(v)
	return at, pl, pl.close(p, ctx)
}

func powerOfTwo(x, least int) int {
	n := least
	for n < x {
		n *= 2
	}
	return n
}

// attnCore is the arithmetic of an attention on a tile of k and v.
type attnCore interface {
	begin(g *gen, at *attnPlan)
	compute(g *gen, at *attnPlan, stage, first num)
	store(g *gen, at *attnPlan)
}

func (g *gen) emitAttention(at *attnPlan) {
	p := g.p
	g.coordinates()
	if g.t.DependentLaunch {
		g.I("griddepcontrol.wait")
		g.I("griddepcontrol.launch_dependents")
	}
	q, k, v := at.q, at.k, at.v
	q.ptr, q.origin = g.matrix(at.qParam, &p.a), g.mul(g.tileM, at.BM)
	k.ptr, v.ptr = g.matrix(at.kParam, &p.b), g.matrix(at.vParam, &p.attn.v)
	for _, l := range []*tileLoad{&q, &k, &v} {
		l.begin(g)
	}
	q.issue(g, imm(0), imm(0))
	next := g.Reg(ptx.B32)
	g.I("mov.b32", next, ptx.Imm(0))
	fetch := func(stage num) {
		k.issue(g, inReg(next), stage)
		v.issue(g, inReg(next), stage)
		g.I("add.s32", next, next, ptx.Imm(at.BK))
	}
	fetch(imm(0))
	g.I("cp.async.commit_group")
	var c attnCore = &attnFMA{}
	if p.half {
		c = &attnMMA{}
	}
	tiles := at.chunks(p)
	it, read, write := g.Reg(ptx.B32), g.Reg(ptx.B32), g.Reg(ptx.B32)
	g.I("mov.b32", it, ptx.Imm(0))
	g.I("mov.b32", read, ptx.Imm(0))
	g.I("mov.b32", write, ptx.Imm(at.stage))
	g.I("cp.async.wait_group", ptx.Imm(0))
	g.I("bar.sync", ptx.Imm(0))
	c.begin(g, at)
	loop, skip := g.NewLabel(mainLoopLabel), g.NewLabel("skip")
	g.Place(loop)
	if tiles > 1 {
		last := g.compare("ge.u32", inReg(next), imm(tiles*at.BK))
		g.If(last, "bra.uni", skip)
		fetch(inReg(write))
		g.Place(skip)
		g.I("cp.async.commit_group")
	}
	c.compute(g, at, inReg(read), inReg(it))
	if tiles > 1 {
		g.I("cp.async.wait_group", ptx.Imm(0))
		g.I("bar.sync", ptx.Imm(0))
		t := g.Reg(ptx.B32)
		g.I("mov.b32", t, read)
		g.I("mov.b32", read, write)
		g.I("mov.b32", write, t)
		g.I("add.s32", it, it, ptx.Imm(at.BK))
		more := g.compare("lt.u32", inReg(it), imm(p.k))
		g.If(more, "bra.uni", loop)
	}
	g.I("bar.sync", ptx.Imm(0))
	c.store(g, at)
	g.I("bar.sync", ptx.Imm(0))
	g.finish()
	g.I("ret")
}

// exponent is what scores are multiplied with, so that 2^x is the exponential.
func (a *attend) exponent() ptx.FImm { return ptx.FImm(float32(a.scale * math.Log2E)) }

// masked sets x to −∞ where key t is beyond T or, in a causal attention, behind query row.
func (g *gen) masked(x ptx.Reg, t, row num) {
	minus := ptx.FImm(float32(math.Inf(-1)))
	if g.p.k%g.s.BK != 0 {
		out := g.compare("ge.u32", t, imm(g.p.k))
		g.I("selp.f32", x, minus, x, out)
	}
	if g.p.attn.causal {
		out := g.compare("gt.u32", t, row)
		g.I("selp.f32", x, minus, x, out)
	}
}

// across combines x over the lanes that differ in the given bits.
func (g *gen) across(op string, x ptx.Reg, bits ...int) ptx.Reg {
	for _, b := range bits {
		y, p := g.Reg(ptx.B32), g.Reg(ptx.Pred)
		g.I("shfl.sync.bfly.b32", ptx.Pair{D: y, P: p}, x, ptx.Imm(b), ptx.Imm(31), ptx.Imm(-1))
		z := g.Reg(ptx.F32)
		g.I(op, z, x, y)
		x = z
	}
	return x
}

// running updates the maximum of a row and returns the factor for what was summed before.
func (g *gen) running(m, tileMax ptx.Reg) ptx.Reg {
	old, factor := g.Reg(ptx.F32), g.Reg(ptx.F32)
	g.I("mov.f32", old, m)
	g.I("max.f32", m, m, tileMax)
	g.I("sub.rn.f32", factor, old, m)
	g.I("ex2.approx.f32", factor, factor)
	return factor
}

func (g *gen) filled(n int, x float64) []ptx.Reg {
	r := g.RegVec(ptx.F32, n)
	for _, v := range r {
		g.I("mov.f32", v, ptx.FImm(float32(x)))
	}
	return r
}

// attnMMA: a warp owns 16 rows of q. The scores' accumulators are, rounded to f16, the A fragments of p·v: the C fragments
// of two neighbouring n8 tiles hold what an A fragment of k16 wants.
type attnMMA struct {
	q        [][]ptx.Reg // A fragments of q, for every k16 step of D
	out      [][]ptx.Reg // accumulators, for every n8 tile of Dv
	max, sum []ptx.Reg   // of the lane's two rows
	row      num         // of q: the lane's first
	k, v     []num       // byte offsets of the lane's rows in a stage: of k for every k16 step, of v for every pair of n8 tiles
}

func (c *attnMMA) begin(g *gen, at *attnPlan) {
	row := g.add(g.mul(g.warp, 16), g.mod(g.lane, 16))
	sw := layout.NewSwizzle(at.dp * 2)
	for k := 0; k < at.dp/16; k++ {
		r := g.RegVec(ptx.B32, 4)
		ch := g.add(g.div(g.lane, 16), imm(2*k))
		g.I("ldmatrix.sync.aligned.m8n8.x4.shared.b16", ptx.V(r...), ptx.At(g.register(g.add(g.smem, g.swizzled(sw, row, ch))), 0))
		c.q = append(c.q, r)
		// Rows are keys: matrices (t 0–7, d 0–7), (t 0–7, d 8–15), (t 8–15, d 0–7), (t 8–15, d 8–15).
		t := g.add(g.mod(g.lane, 8), g.mul(g.div(g.lane, 16), 8))
		half := g.mod(g.div(g.lane, 8), 2)
		c.k = append(c.k, g.add(g.swizzled(sw, t, g.add(half, imm(2*k))), imm(at.k.base)))
	}
	vs := layout.NewSwizzle(at.BN * 2)
	for j := 0; j < at.BN/16; j++ {
		t := g.mod(g.lane, 16)
		c.v = append(c.v, g.add(g.swizzled(vs, t, g.add(g.div(g.lane, 16), imm(2*j))), imm(at.v.base)))
		c.out = append(c.out, g.filled(4, 0), g.filled(4, 0))
	}
	c.max, c.sum = g.filled(2, math.Inf(-1)), g.filled(2, 0)
	c.row = g.add(g.add(g.mul(g.tileM, at.BM), g.mul(g.warp, 16)), g.offset(layout.C16x8.LaneRow, g.lane))
}

func (c *attnMMA) compute(g *gen, at *attnPlan, stage, first num) {
	base := g.add(g.smem, stage)
	var scores [][]ptx.Reg
	for j := 0; j < at.BK/16; j++ {
		s := [][]ptx.Reg{g.filled(4, 0), g.filled(4, 0)}
		for k := range c.q {
			r := g.RegVec(ptx.B32, 4)
			g.I("ldmatrix.sync.aligned.m8n8.x4.shared.b16", ptx.V(r...), ptx.At(g.register(g.add(base, c.k[k])), j*16*at.dp*2))
			for h := range s {
				g.I("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", ptx.V(s[h]...), ptx.V(c.q[k]...), ptx.V(r[2*h:2*h+2]...), ptx.V(s[h]...))
			}
		}
		scores = append(scores, s...)
	}
	col := g.add(first, g.offset(layout.C16x8.LaneCol, g.lane))
	var top [2]ptx.Reg
	for j, s := range scores {
		for v, x := range s {
			g.I("mul.rn.f32", x, x, g.p.attn.exponent())
			r := v / 2
			g.masked(x, g.add(col, imm(j*8+v%2)), g.add(c.row, imm(8*r)))
			if j == 0 && v%2 == 0 {
				top[r] = g.Reg(ptx.F32)
				g.I("mov.f32", top[r], x)
			} else {
				g.I("max.f32", top[r], top[r], x)
			}
		}
	}
	for r := range top {
		factor := g.running(c.max[r], g.across("max.f32", top[r], 1, 2))
		g.I("mul.rn.f32", c.sum[r], c.sum[r], factor)
		for _, o := range c.out {
			for v := 2 * r; v < 2*r+2; v++ {
				g.I("mul.rn.f32", o[v], o[v], factor)
			}
		}
	}
	for _, s := range scores {
		for v, x := range s {
			g.I("sub.rn.f32", x, x, c.max[v/2])
			g.I("ex2.approx.f32", x, x)
			g.I("add.rn.f32", c.sum[v/2], c.sum[v/2], x)
		}
	}
	for k := 0; k < at.BK/16; k++ {
		a := g.RegVec(ptx.B32, 4)
		for i, s := range scores[2*k : 2*k+2] {
			g.I("cvt.rn.f16x2.f32", a[2*i], s[1], s[0])
			g.I("cvt.rn.f16x2.f32", a[2*i+1], s[3], s[2])
		}
		for j := range c.v {
			r := g.RegVec(ptx.B32, 4)
			g.I("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", ptx.V(r...), ptx.At(g.register(g.add(base, c.v[j])), k*16*at.BN*2))
			for h := 0; h < 2; h++ {
				o := c.out[2*j+h]
				g.I("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", ptx.V(o...), ptx.V(a...), ptx.V(r[2*h:2*h+2]...), ptx.V(o...))
			}
		}
	}
}

func (c *attnMMA) store(g *gen, at *attnPlan) {
	f := layout.C16x8
	row := g.add(g.mul(g.warp, 16), g.offset(f.LaneRow, g.lane))
	to := g.register(g.add(g.smem, g.mad(row, at.stagingRow()*4, g.mul(g.offset(f.LaneCol, g.lane), 4))))
	for r := 0; r < 2; r++ {
		inv := g.Reg(ptx.F32)
		g.I("rcp.rn.f32", inv, g.across("add.rn.f32", c.sum[r], 1, 2))
		for j, o := range c.out {
			for v := 2 * r; v < 2*r+2; v++ {
				g.I("mul.rn.f32", o[v], o[v], inv)
			}
			g.I("st.shared.v2.f32", ptx.At(to, (8*r*at.stagingRow()+8*j)*4), ptx.V(o[2*r], o[2*r+1]))
		}
	}
}

// attnFMA: a warp owns four rows of q. A lane computes the scores of one key of the tile, and then some columns of p·v,
// reading the probabilities from shared memory.
type attnFMA struct {
	out      [][]ptx.Reg // for every row, for every 32 columns of Dv
	max, sum []ptx.Reg
	row      num
	q, p     ptx.Reg // addresses of the warp's rows of q and of the probabilities
}

func (c *attnFMA) begin(g *gen, at *attnPlan) {
	c.max, c.sum = g.filled(fmaRows, math.Inf(-1)), g.filled(fmaRows, 0)
	for r := 0; r < fmaRows; r++ {
		c.out = append(c.out, g.filled(at.BN/32, 0))
	}
	c.row = g.add(g.mul(g.tileM, at.BM), g.mul(g.warp, fmaRows))
	c.q = g.register(g.add(g.smem, g.mul(g.warp, fmaRows*at.dp*4)))
	c.p = g.register(g.add(g.smem, g.mad(g.warp, fmaRows*at.BK*4, imm(at.probs))))
}

func (c *attnFMA) compute(g *gen, at *attnPlan, stage, first num) {
	base := g.add(g.smem, stage)
	key := g.register(g.add(base, g.mad(g.lane, at.kPitch, imm(at.k.base))))
	s := g.filled(fmaRows, 0)
	for d := 0; d < at.dp; d += 4 {
		k := g.RegVec(ptx.F32, 4)
		g.I("ld.shared.v4.f32", ptx.V(k...), ptx.At(key, d*4))
		for r := range s {
			q := g.RegVec(ptx.F32, 4)
			g.I("ld.shared.v4.f32", ptx.V(q...), ptx.At(c.q, (r*at.dp+d)*4))
			for i := range q {
				g.I("fma.rn.f32", s[r], q[i], k[i], s[r])
			}
		}
	}
	mine := g.register(g.mad(g.lane, 4, inReg(c.p)))
	for r, x := range s {
		g.I("mul.rn.f32", x, x, g.p.attn.exponent())
		g.masked(x, g.add(first, g.lane), g.add(c.row, imm(r)))
		factor := g.running(c.max[r], g.across("max.f32", x, 1, 2, 4, 8, 16))
		g.I("sub.rn.f32", x, x, c.max[r])
		g.I("ex2.approx.f32", x, x)
		g.I("fma.rn.f32", c.sum[r], c.sum[r], factor, x)
		for _, o := range c.out[r] {
			g.I("mul.rn.f32", o, o, factor)
		}
		g.I("st.shared.f32", ptx.At(mine, r*at.BK*4), x)
	}
	g.I("bar.warp.sync", ptx.Imm(-1))
	v := g.register(g.add(base, g.mad(g.lane, 4, imm(at.v.base))))
	for t := 0; t < at.BK; t += 4 {
		var prob [][]ptx.Reg
		for r := range s {
			x := g.RegVec(ptx.F32, 4)
			g.I("ld.shared.v4.f32", ptx.V(x...), ptx.At(c.p, (r*at.BK+t)*4))
			prob = append(prob, x)
		}
		for i := 0; i < 4; i++ {
			for j := range c.out[0] {
				x := g.Reg(ptx.F32)
				g.I("ld.shared.f32", x, ptx.At(v, ((t+i)*at.BN+j*32)*4))
				for r := range s {
					g.I("fma.rn.f32", c.out[r][j], prob[r][i], x, c.out[r][j])
				}
			}
		}
	}
	g.I("bar.warp.sync", ptx.Imm(-1)) // before the next tile's probabilities
}

func (c *attnFMA) store(g *gen, at *attnPlan) {
	to := g.register(g.add(g.smem, g.mad(g.warp, fmaRows*at.stagingRow()*4, g.mul(g.lane, 4))))
	for r := range c.out {
		total := g.across("add.rn.f32", c.sum[r], 1, 2, 4, 8, 16)
		for j, o := range c.out[r] {
			q := g.Reg(ptx.F32)
			g.I("div.rn.f32", q, o, total)
			g.I("st.shared.f32", ptx.At(to, (r*at.stagingRow()+j*32)*4), q)
		}
	}
}
