package contraction

import (
	"fmt"
	"math"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/layout"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/ir"
)

// attend is an attention in normal form: problem.a is q [S,D], problem.b is k with rows T and columns D, v has rows T and
// columns Dv; problem.m is S, problem.k is T, problem.n is Dv; z runs over members, batch and heads.
//
// Of its gradient, problem.m runs over the rows of the three results one after another and problem.n over the columns of each.
type attend struct {
	v       operand
	dy      *operand // of a gradient: that of the result, [S,Dv]
	s, t, d int
	scale   float64
	causal  bool
	mask    *operand // rows S, columns T; nil: none
}

// attention: softmax(q·kᵀ·scale)·v for q [B,H,S,D], k [B,Hk,T,D], v [B,Hk,T,Dv].
func (p *problem) attention() error {
	if p.anchor.Attrs.Float("softcap", 0) != 0 {
		return fmt.Errorf("Attention with softcap")
	}
	if err := p.attend(3); err != nil {
		return err
	}
	p.m, p.n, p.k = p.attn.s, p.anchor.Outputs[0].Type.Shape[3], p.attn.t
	if p.n > 256 || p.attn.d > 256 {
		return fmt.Errorf("Attention with heads of %d and %d elements", p.attn.d, p.n)
	}
	p.spread = func(v layout.View) (operand, error) {
		return operand{z: [][]layout.Mode{nil, v.Dims[0], v.Dims[1]}, row: layout.Coalesce(v.Dims[2]), col: layout.Coalesce(v.Dims[3]), offset: v.Offset}, nil
	}
	return nil
}

// attend reads the operands of an attention; input mask is its mask, if it has one.
func (p *problem) attend(mask int) error {
	n := p.anchor
	q, k := n.Inputs[0].Type.Shape, n.Inputs[1].Type.Shape
	p.z = append(p.z, q[0], q[1])
	a := &attend{s: q[2], t: k[2], d: q[3], scale: n.Attrs.Float("scale", 1), causal: n.Attrs.Bool("causal")}
	p.attn = a
	ops := make([]operand, len(n.Op.Matrix))
	for i := range ops {
		o, err := p.operandOf(i)
		if err != nil {
			return err
		}
		d := o.src.view.Dims
		heads := d[1]
		if layout.Size(heads) < q[1] { // several heads of q share one of k and v
			heads = append(append([]layout.Mode{}, heads...), layout.Mode{Size: q[1] / k[1]})
		}
		o.z = append(o.z, d[0], heads)
		o.row, o.col = layout.Coalesce(d[2]), layout.Coalesce(d[3])
		ops[i] = o
	}
	if p.a, p.b, a.v = ops[0], ops[1], ops[2]; len(ops) > 3 {
		a.dy = &ops[3]
	}
	if m := p.stored.Region.Anchor().In(mask); m != nil {
		s, err := matrix(p.stored, m)
		if err != nil {
			return err
		}
		view, ok := s.view.Broadcast([]int{q[0], q[1], q[2], k[2]})
		if !ok || s.round != 0 || !isHalf(s.dtype) && s.dtype != ir.Float32 {
			return fmt.Errorf("%s with a mask of type %s", n.Op.Name, m.Type)
		}
		o := p.from(s)
		o.z = append(o.z, view.Dims[0], view.Dims[1])
		o.row, o.col = layout.Coalesce(view.Dims[2]), layout.Coalesce(view.Dims[3])
		a.mask = &o
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
	mask     int // parameter
	stage    int // bytes of a stage: a tile of k and one of v
	probs    int // fma: offset of the probabilities
	shared   int
	kPitch   int
	rowsWarp int
}

const fmaRows = 4 // rows of q that a warp of the fma variant computes together

func lowerAttention(p *problem, ctx *kernel.Context) (*kernel.Spec, error) {
	if p.attn.dy != nil {
		return lowerAttentionGrad(p, ctx)
	}
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
		Operands: pl.Operands,
		Emit: func(k *ptx.Kernel, params []ptx.Sym) {
			g := &gen{asm: asm{k}, p: p, s: at.Schedule, t: ctx.Target, plan: pl, params: params}
			g.emitAttention(at)
		},
		MACs:     p.region.MACs(),
		Schedule: at.String(),
		Note:     fmt.Sprintf("Attention s=%d t=%d d=%d dv=%d heads=%d", p.m, p.k, p.attn.d, p.n, p.batches()),
	}
	if b := at.blocks(p); b < ctx.Target.SMs {
		spec.Reason = fmt.Sprintf("%d blocks: %d heads of %d rows", b, p.batches(), p.m)
	}
	return spec, nil
}

func planAttention(p *problem, ctx *kernel.Context) (*attnPlan, *plan, error) {
	d, elem := p.attn.d, bytesFor(p.num.a, 1)
	at := &attnPlan{Schedule: Schedule{WarpsN: 1, WarpsK: 1, Stages: 2, SplitK: 1}}
	at.rowsWarp = fmaRows
	if p.num.tensor() {
		at.rowsWarp = 16
		at.dp, at.BN = powerOfTwo(d, 16), powerOfTwo(p.n, 16)
	} else {
		at.dp, at.BN = powerOfTwo(d, 4), powerOfTwo(p.n, 32)
	}
	at.BK = 32
	for at.WarpsM = 4; ; at.WarpsM /= 2 {
		at.BM = at.WarpsM * at.rowsWarp
		if at.WarpsM == 1 || at.blocks(p) >= ctx.Target.SMs && at.BM < p.m+at.rowsWarp {
			break
		}
	}
	at.kPitch = at.dp * elem
	if !p.num.tensor() {
		at.kPitch += 16 // lanes read neighbouring rows: 16 bytes more put them into different banks
	}
	qBytes := at.BM * at.dp * elem
	at.stage = at.BK*at.kPitch + at.BK*at.BN*elem
	at.probs = qBytes + at.Stages*at.stage
	at.shared = at.probs
	if !p.num.tensor() {
		at.shared += at.BM * at.BK * 4
	}
	at.shared = max(at.shared, at.stagingBytes()) + 16
	if at.shared > ctx.Target.SharedBlock {
		return nil, nil, fmt.Errorf("%d bytes of shared memory, a block has %d", at.shared, ctx.Target.SharedBlock)
	}
	pl := start(p, ctx)
	at.qParam, at.kParam, at.vParam = pl.Input(p.a.value), pl.Input(p.b.value), pl.Input(p.attn.v.value)
	if p.attn.mask != nil {
		at.mask = pl.Input(p.attn.mask.value)
	}
	load := func(o *operand) (int, bool) {
		return access(o, o.col, append(append([][]layout.Mode{}, o.z...), o.row), ctx.AlignOf(o.value), elem)
	}
	at.q = tileLoad{op: &p.a, fixed: p.a.row, extent: p.m, advance: p.a.col, k: d, chunk: at.dp, rows: at.BM, cols: at.dp, elem: elem, swizzle: p.num.tensor()}
	at.q.gran, at.q.async = load(&p.a)
	at.k = tileLoad{op: &p.b, fixed: p.b.col, extent: d, advance: p.b.row, k: p.k, chunk: at.BK, kRows: true, rows: at.BK, cols: at.dp, elem: elem, base: qBytes, swizzle: p.num.tensor(), pitch: at.kPitch}
	at.k.gran, at.k.async = load(&p.b)
	v := &p.attn.v
	at.v = tileLoad{op: v, fixed: v.col, extent: p.n, advance: v.row, k: p.k, chunk: at.BK, kRows: true, rows: at.BK, cols: at.BN, elem: elem, base: qBytes + at.BK*at.kPitch, swizzle: p.num.tensor()}
	at.v.gran, at.v.async = load(v)
	return at, pl, pl.close(p)
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
	kernel.Wait(g.Kernel, g.t)
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
	if p.attn.mask != nil {
		g.mask = g.matrix(at.mask, p.attn.mask)
	}
	var c attnCore = &attnFMA{}
	if p.num.tensor() {
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
	g.finish(nil)
	g.I("ret")
}

// score turns a sum q·k into an exponent of 2: the sum times scale·log2(e), plus the mask; −∞ where key t is beyond T or,
// in a causal attention, after query row.
func (g *gen) score(x ptx.Reg, t, row num) {
	a := g.p.attn
	minus := ptx.FImm(float32(math.Inf(-1)))
	g.I("mul.rn.f32", x, x, ptx.FImm(float32(a.scale*math.Log2E)))
	if a.mask != nil {
		g.I("fma.rn.f32", x, g.maskAt(t, row), ptx.FImm(float32(math.Log2E)), x)
	}
	if a.t%g.s.BK != 0 {
		out := g.compare("ge.u32", t, imm(a.t))
		g.I("selp.f32", x, minus, x, out)
	}
	if a.causal {
		out := g.compare("gt.u32", t, row)
		g.I("selp.f32", x, minus, x, out)
	}
}

// maskAt reads the mask of a query and a key; 0 beyond either.
func (g *gen) maskAt(t, row num) ptx.Reg {
	a := g.p.attn
	m := a.mask
	at := g.address(g.mask, g.add(g.offset(m.row, row), g.offset(m.col, t)), m.dtype.Bits()/8)
	inside := g.and(g.compare("lt.u32", t, imm(a.t)), g.compare("lt.u32", row, imm(a.s)))
	f := g.Reg(ptx.F32)
	if m.dtype == ir.Float32 {
		g.I("mov.f32", f, ptx.FImm(0))
		g.If(inside, "ld.global.f32", f, ptx.At(at, 0))
		return f
	}
	h := g.Reg(ptx.B16)
	g.I("mov.b16", h, ptx.Imm(0))
	g.If(inside, "ld.global.b16", h, ptx.At(at, 0))
	g.widen(f, h, m.dtype)
	return f
}

// lowest is where a running maximum starts: finite, so that a tile whose keys are all masked adds 0 and not NaN.
const lowest = -math.MaxFloat32

// total is what a row is divided by: at least the least normal number, so that a query whose keys are all masked gives 0
// (ONNX Attention 24). Any other row's sum is 1 or more, and a NaN is in the numerator as well.
func (g *gen) total(sum ptx.Reg) ptx.Reg {
	const leastNormal = 0x1p-126
	r := g.Reg(ptx.F32)
	g.I("max.f32", r, sum, ptx.FImm(leastNormal))
	return r
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

// running updates the maximum of a row and returns the factor by which earlier sums must be scaled.
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
