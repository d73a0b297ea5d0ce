package contraction

import (
	"fmt"
	"math"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/layout"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/ir"
)

// attend is an attention in normal form: problem.a is q [S,D], problem.b is k with rows T and columns D, v has rows T
// and columns Dv; problem.m is S, problem.k is T, problem.n is Dv; z runs over members, batch and heads.
//
// Of its gradient, problem.m runs over the rows of the three results one after another and problem.n over the columns
// of each.
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

// attnCore is the arithmetic of an attention on a tile of k and v.
type attnCore interface {
	place(g *gen, at *attnPlan) // where lanes find their operands
	// begin takes q, which lies at a byte offset of shared memory, and forgets what it summed.
	begin(g *gen, at *attnPlan, q num)
	// compute consumes a tile of keys, whose k and v are so many bytes after those of a stage at offset 0. A tile that
	// is the only one is first.
	compute(g *gen, at *attnPlan, k, v, first num)
	// results calls to with the lane's first row of the block and column of the head, and what it returns with
	// neighbouring columns, at row and column offsets from those.
	results(g *gen, at *attnPlan, to func(row, col num) func(rows, cols int, v []ptx.Reg))
}

func (p *problem) attnCore() attnCore {
	if p.num.tensor() {
		return &attnMMA{}
	}
	return &attnFMA{}
}

// attnCopies are what threads copy to compute an attention.
type attnCopies struct {
	q, k, v  tileLoad
	from     [3]ptx.Reg // parameters
	fromMask ptx.Reg
}

func (g *gen) attnCopies(at *attnPlan) *attnCopies {
	c := &attnCopies{q: at.q, k: at.k, v: at.v, from: [3]ptx.Reg{g.pointer(at.qParam), g.pointer(at.kParam), g.pointer(at.vParam)}}
	if g.p.attn.mask != nil {
		c.fromMask = g.pointer(at.mask)
	}
	c.q.origin = g.mul(g.tileM, at.BM)
	for _, l := range []*tileLoad{&c.q, &c.k, &c.v} {
		l.begin(g)
	}
	return c
}

// of makes this block's z that whose matrices are copied, and masked those of whose mask is read.
func (c *attnCopies) of(g *gen) {
	for i, l := range []*tileLoad{&c.q, &c.k, &c.v} {
		l.ptr = g.matrixAt(c.from[i], l.op)
	}
}

func (c *attnCopies) masked(g *gen) {
	if m := g.p.attn.mask; m != nil {
		g.mask = g.matrixAt(c.fromMask, m)
	}
}

func (g *gen) emitAttention(at *attnPlan) {
	p := g.p
	g.coordinates()
	kernel.Wait(g.Kernel, g.t)
	copies := g.attnCopies(at)
	copies.of(g)
	copies.masked(g)
	copies.q.issue(g, imm(0), imm(0))
	next := g.Reg(ptx.B32)
	g.I("mov.b32", next, ptx.Imm(0))
	fetch := func(stage num) {
		copies.k.issue(g, inReg(next), stage)
		copies.v.issue(g, inReg(next), stage)
		g.I("add.s32", next, next, ptx.Imm(at.BK))
	}
	fetch(imm(0))
	g.I("cp.async.commit_group")
	c := p.attnCore()
	c.place(g, at)
	tiles := at.chunks(p)
	it, read, write := g.Reg(ptx.B32), g.Reg(ptx.B32), g.Reg(ptx.B32)
	g.I("mov.b32", it, ptx.Imm(0))
	g.I("mov.b32", read, ptx.Imm(0))
	g.I("mov.b32", write, ptx.Imm(at.stage))
	g.I("cp.async.wait_group", ptx.Imm(0))
	g.I("bar.sync", ptx.Imm(0))
	c.begin(g, at, imm(0))
	loop, skip := g.NewLabel(mainLoopLabel), g.NewLabel("skip")
	g.Place(loop)
	if tiles == 1 {
		c.compute(g, at, imm(0), imm(0), imm(0))
	} else {
		last := g.compare("ge.u32", inReg(next), imm(tiles*at.BK))
		g.If(last, "bra.uni", skip)
		fetch(inReg(write))
		g.Place(skip)
		g.I("cp.async.commit_group")
		c.compute(g, at, inReg(read), inReg(read), inReg(it))
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
	c.results(g, at, g.toStaging)
	g.I("bar.sync", ptx.Imm(0))
	g.finish(nil, 0)
	g.I("ret")
}

// toStaging stores results in the staging tile.
func (g *gen) toStaging(row, col num) func(rows, cols int, v []ptx.Reg) {
	to := g.staged(row, col)
	return func(rows, cols int, v []ptx.Reg) {
		op, from := storeWords(v)
		g.I(op, ptx.At(to, (rows*g.s.stagingRow()+cols)*4), from)
	}
}

// score turns a sum q·k into an exponent of 2: the sum times scale·log2(e), plus the mask; −∞ where key t is beyond
// T, unless it is known to be inside, or, in a causal attention, after query row. Both are a number and a constant.
func (g *gen) score(x ptx.Reg, t, row place, inside bool) {
	a := g.p.attn
	minus := ptx.FImm(float32(math.Inf(-1)))
	var key, query num
	if a.mask != nil || a.causal || !inside {
		key = g.add(t.at, imm(t.add))
	}
	if a.mask != nil || a.causal {
		query = g.add(row.at, imm(row.add))
	}
	g.I("mul.rn.f32", x, x, ptx.FImm(float32(a.scale*math.Log2E)))
	if a.mask != nil {
		g.I("fma.rn.f32", x, g.maskAt(key, query), ptx.FImm(float32(math.Log2E)), x)
	}
	if !inside {
		out := g.compare("ge.u32", key, imm(a.t))
		g.I("selp.f32", x, minus, x, out)
	}
	if a.causal {
		out := g.compare("gt.u32", key, query)
		g.I("selp.f32", x, minus, x, out)
	}
}

// inside reports whether the first n keys of the tile that begins at first are known to be some of T.
func (g *gen) inside(first num, n int) bool {
	t := g.p.attn.t
	return t%g.s.BK == 0 || !first.isReg && first.c+n <= t
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
	g.promote(f, h, m.dtype)
	return f
}

// lowest is where a running maximum starts: finite, so that a tile whose keys are all masked adds 0 and not NaN.
const lowest = -math.MaxFloat32

// total is what a row is divided by: at least the least normal number, so that a query whose keys are all masked
// gives 0 (ONNX Attention 24). Any other row's sum is 1 or more, and a NaN is in the numerator as well.
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
