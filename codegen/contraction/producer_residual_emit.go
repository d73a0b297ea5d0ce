package contraction

import (
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// corner is where the block's part of the image begins: all of it lies in the image.
func (e *residualProducer) corner(g *gen) (image, top, left num) {
	d := e.slide
	image, oy, ox := d.corner(g)
	h, w := e.region(g.s)
	return image, g.clamped(oy, d.SH, d.Top, d.H-h), g.clamped(ox, d.SW, d.Left, d.W-w)
}

// clamped is x·step − pad, from 0 to most.
func (g *gen) clamped(x num, step, pad, most int) num {
	at := g.mad(x, step, imm(-pad))
	if !at.isReg {
		return imm(min(max(at.c, 0), most))
	}
	return g.binary("min.s32", g.binary("max.s32", at, imm(0)), imm(most))
}

// copyWeights prepares the copies of weights, which follow the windows' in a stage.
func (e *residualProducer) copyWeights(g *gen) {
	sub, pl := *g, *g.plan
	pl.b = e.pl.b
	sub.p, sub.s, sub.plan, sub.tileN, sub.first = e.p, e.own(g.s), &pl, g.first, imm(0)
	e.panel = panelLoad{base: e.slide.tapBytes(g.s), bytes: e.weightBytes(e.own(g.s))}
	e.panel.begin(&sub)
}

// beforeWait makes the image's padding 0, and says where in the image each pixel lies.
func (e *residualProducer) beforeWait(g *gen) {
	s, d := g.s, e.slide
	e.copyWeights(g)
	h, w := d.rectangle(s)
	_, oy, ox := d.corner(g)
	_, top, left := e.corner(g)
	if d.padded(s) {
		y0, x0 := g.mad(oy, d.SH, imm(-d.Top)), g.mad(ox, d.SW, imm(-d.Left))
		g.each(d.haloOf(h, w), func(i num) {
			y, x := g.add(y0, g.div(i, d.haloColumns(w))), g.add(x0, g.mod(i, d.haloColumns(w)))
			inside, next := g.and(g.compare("lt.u32", y, imm(d.H)), g.compare("lt.u32", x, imm(d.W))), g.NewLabel("inside")
			g.If(inside, "bra", next)
			at, z := g.register(g.mad(i, e.imagePitch(s), g.smem)), g.Reg(ptx.B32)
			g.I("mov.b32", z, ptx.Imm(0))
			for c := 0; c < s.BK*4; c += 16 {
				g.I("st.shared.v4.b32", ptx.At(at, e.imageAt(s)+c), ptx.V(z, z, z, z))
			}
			g.Place(next)
		})
	}
	// From the corner of the halo to that of the pixels.
	down := g.add(top, g.mad(g.mul(oy, -1), d.SH, imm(d.Top)))
	right := g.add(left, g.mad(g.mul(ox, -1), d.SW, imm(d.Left)))
	_, columns := e.region(s)
	g.each(e.rows(s), func(i num) {
		y, x := g.add(down, g.div(i, columns)), g.add(right, g.mod(i, columns))
		in := g.and(g.compare("lt.u32", y, imm(d.haloRows(h))), g.compare("lt.u32", x, imm(d.haloColumns(w))))
		if e.pixels(s) < e.rows(s) {
			in = g.and(in, g.compare("lt.u32", i, imm(e.pixels(s))))
		}
		at := g.Reg(ptx.B32)
		g.I("selp.b32", at, g.mul(g.mad(y, d.haloColumns(w), x), e.imagePitch(s)).operand(), ptx.Imm(-1), in)
		g.I("st.shared.b32", ptx.At(g.register(g.mad(i, 4, g.smem)), e.placesAt(s)), at)
	})
}

// each emits f for the numbers below n, which the block's threads share.
func (g *gen) each(n int, f func(i num)) {
	threads := g.s.threads()
	i, loop, done := g.Reg(ptx.B32), g.NewLabel("each"), g.NewLabel("all")
	g.I("mov.b32", i, g.tid.operand())
	g.Place(loop)
	if n > threads {
		g.NoUnroll()
	}
	if n%threads != 0 {
		g.If(g.compare("ge.u32", inReg(i), imm(n)), "bra", done)
	}
	f(inReg(i))
	if n > threads {
		g.I("add.s32", i, i, ptx.Imm(threads))
		g.If(g.compare("lt.u32", inReg(i), imm(n)), "bra", loop)
	}
	g.Place(done)
}

// zero fills bytes of shared memory.
func (g *gen) zero(at, bytes int) {
	z := g.Reg(ptx.B32)
	g.I("mov.b32", z, ptx.Imm(0))
	g.each(bytes/16, func(i num) {
		g.I("st.shared.v4.b32", ptx.At(g.register(g.mad(i, 16, g.smem)), at), ptx.V(z, z, z, z))
	})
}

// arrive starts the copies of the pixels.
func (e *residualProducer) arrive(g *gen) {
	s, p, d := g.s, e.p, e.slide
	image, top, left := e.corner(g)
	base := imm(0)
	if d.Region.Region.Members > 0 {
		base = g.offset(p.a.z[0], g.z[0])
	}
	x := g.pointer(d.param)
	vectors, bytes := e.vectors(), e.vector()
	per, op := bytes*8/p.num.a.Bits(), "cp.async.ca.shared.global"
	if bytes == 16 {
		op = "cp.async.cg.shared.global"
	}
	_, columns := e.region(s)
	g.each(e.rows(s)*vectors, func(i num) {
		pixel, v := g.div(i, vectors), g.mod(i, vectors)
		size := imm(bytes)
		off := g.mul(v, per)
		row, inside := pixel, (*ptx.Reg)(nil)
		if e.pixels(s) < e.rows(s) {
			q := g.compare("lt.u32", pixel, imm(e.pixels(s)))
			inside = &q
		}
		if p.k < e.depth() {
			q := g.compare("lt.u32", v, imm(p.k/per))
			inside = g.both(inside, &q)
		}
		y, c := g.add(top, g.div(row, columns)), g.add(left, g.mod(row, columns))
		off = g.add(g.mad(g.mad(g.mad(image, d.H, y), d.W, c), p.k, off), base)
		if inside != nil { // beyond the pixels nothing is read
			o, z := g.Reg(ptx.B32), g.Reg(ptx.B32)
			g.I("selp.b32", o, g.register(off), ptx.Imm(0), *inside)
			g.I("selp.b32", z, ptx.Imm(bytes), ptx.Imm(0), *inside)
			off, size = inReg(o), inReg(z)
		}
		dst := g.register(g.add(g.smem, g.mad(pixel, e.pitch(), g.mul(v, bytes))))
		g.I(op, ptx.At(dst, e.pixelsAt(s)), ptx.At(g.address(x, off, p.num.a.Bits()/8), 0), ptx.Imm(bytes), size.operand())
	})
}

// chunk computes the image of a chunk of channels, whose weights are in the stage.
func (e *residualProducer) chunk(g *gen, chunk, stage num) {
	s := g.s
	turns, workers := e.turns(s), e.workers(s)
	g.Comment("the image: %d pixels of %d channels", e.pixels(s), s.BK)
	c := &expansion{residualProducer: e, env: g.envOf(e.pl.Lowering), chunk: chunk, taps: g.register(g.add(g.smem, stage))}
	at, branch, multiply := g.tid, "bra", c.fma
	if e.p.num.tensor() {
		at, branch, multiply = g.warp, "bra.uni", c.lanes(g).mma
	}
	loop, done := g.NewLabel("expand"), g.NewLabel("expanded")
	if turns > workers {
		i := g.Reg(ptx.B32)
		g.I("mov.b32", i, at.operand())
		at = inReg(i)
	}
	g.Place(loop)
	if turns > workers {
		g.NoUnroll()
	}
	if turns%workers != 0 {
		g.If(g.compare("ge.u32", at, imm(turns)), branch, done)
	}
	multiply(g, at)
	if turns > workers {
		g.I("add.s32", at.reg, at.reg, ptx.Imm(workers))
		g.If(g.compare("lt.u32", at, imm(turns)), branch, loop)
	}
	g.Place(done)
	g.I("bar.sync", ptx.Imm(0))
}

// expansion is the columns of a chunk, and what follows the product of pixels with them.
type expansion struct {
	*residualProducer
	env   expr.Env
	chunk num
	taps  ptx.Reg // address of the stage
}

// from computes what follows the product of columns that begin at one of the chunk's and so many more, as far as it
// depends on no pixel. The first row of the stage has that one at an address.
func (c *expansion) from(g *gen, at ptx.Reg, column num, more int) *expr.Emitter {
	ep, p := c.pl.epilogue, c.p
	em := expr.NewEmitter(g.Kernel, c.pl.B, c.env)
	g.bind(em, ep.z[0], g.z[0])
	c.held.read(g, em, at, c.slide.ownRows()*g.s.BK*4+4*more)
	if ep.n.Op == expr.OpVar && dependsOn(ep.result, ep.n) {
		n := g.add(g.mad(g.add(g.first, c.chunk), g.s.BK, column), imm(more))
		if p.n%g.s.BK != 0 { // channels beyond the last one are the last ones again, and have no weights
			n = g.binary("min.u32", n, imm(p.n-c.width()))
		}
		g.bind(em, ep.n, n)
	}
	em.Hoist(ep.result)
	return em
}

// lanes are what a lane knows of its part of every product.
type lanes struct {
	*expansion
	mul     *gen              // of the warp's product
	b       mmaCore           // where its weights lie
	weights [][][][][]ptx.Reg // fragments of every unit, as operands have them; nil: they are read for each product
	a       num               // address in a tile of pixels
	place   num               // of the place of its first pixel of a tile
	column  num               // of the first tile of columns, in the chunk
	image   num               // address of that column in the image's first pixel
	zero    []ptx.Reg         // sums begin with
	ends    []*expr.Emitter   // of a pair of columns of each tile
	pixel   num               // first one, in a tile
}

// lanes says where a lane finds its fragments, and reads what all products of a chunk share. Row r of eight of a
// fragment is pixel 2·(r mod 4) + r/4, so that what a half-warp stores for four of them goes to different banks.
func (c *expansion) lanes(g *gen) *lanes {
	s := g.s
	spread := func(r num) num { return g.add(g.mul(g.mod(r, 4), 2), g.mod(g.div(r, 4), 2)) }
	own := g.add(g.mul(g.mod(g.div(g.lane, 8), 2), 8), spread(g.mod(g.lane, 8)))
	first := g.mul(g.mod(g.warp, c.parts(s)), c.across(s))
	l := &lanes{expansion: c, column: g.mad(g.mod(g.lane, 4), 2, first), pixel: spread(g.div(g.lane, 4))}
	l.a = g.add(g.smem, g.mad(own, c.pitch(), g.mul(g.div(g.lane, 16), 16)))
	l.place, l.image = g.mad(l.pixel, 4, g.smem), g.mad(l.column, 4, g.smem)
	l.zero = g.filled(4, 0)

	mul, pl := *g, *c.pl
	mul.p, mul.plan, mul.s = c.p, &pl, c.turn(s)
	l.mul = &mul
	mul.s.BN, mul.s.WarpsN = s.BK, c.parts(s)
	l.b = mmaCore{acc: [][][]ptx.Reg{make([][]ptx.Reg, c.across(s)/8)}, wn: first}
	l.b.placePacked(l.mul, c.panel.base)
	l.b.bBase, l.b.scales = inReg(g.register(g.add(inReg(c.taps), l.b.bBase))), g.add(inReg(c.taps), l.b.scales)
	at := g.register(g.mad(l.column, 4, inReg(c.taps)))
	for j := range c.across(s) / 8 {
		l.ends = append(l.ends, c.from(g, at, l.column, 8*j))
	}
	if n := &c.p.num; c.keeps(s) {
		for u := range c.depth() / n.unit() {
			var t operands
			l.b.loadB(l.mul, imm(0), u, &t)
			var ready [][][][]ptx.Reg
			for m := range n.unit() / n.stepMul() {
				ready = append(ready, t.fragsB(l.mul, m))
			}
			l.weights = append(l.weights, ready)
		}
	}
	return l
}

// parts is the number of warps that multiply the same pixels.
func (e *residualProducer) parts(s Schedule) int { return s.BK / e.across(s) }

// keeps reports whether a warp multiplies several tiles of pixels by weights that fit into its registers.
func (e *residualProducer) keeps(s Schedule) bool {
	n := &e.p.num
	return e.turns(s) > e.workers(s) && n.termsB*e.depth()/n.stepMul()*e.across(s)/4 <= mostKept
}

// mostKept bounds the registers of weights that a thread keeps.
const mostKept = 40

// mma multiplies 16 pixels by the warp's columns.
func (l *lanes) mma(g *gen, at num) {
	s, n := g.s, &l.p.num
	rows := g.mul(g.div(at, l.parts(s)), 16)
	a := g.register(g.mad(rows, l.pitch(), l.a))
	c, fragments := mmaCore{zero: l.zero}, func() (out [][]ptx.Reg) {
		for range l.across(s) / 8 {
			out = append(out, g.RegVec(ptx.F32, 4))
		}
		return out
	}
	c.acc = [][][]ptx.Reg{fragments()}
	if n.partial > 0 {
		c.part = [][][]ptx.Reg{fragments()}
		for _, acc := range c.acc[0] {
			zero(g, acc)
		}
	}
	c.sum(l.mul, func(u int) *operands {
		t := &operands{a: make([][][]ptx.Reg, 1)}
		for k := range n.unit() / n.stepA() {
			x := g.RegVec(ptx.B32, 4)
			g.I("ldmatrix.sync.aligned.m8n8.x4.shared.b16", ptx.V(x...), ptx.At(a, l.pixelsAt(s)+32*(u*n.unit()/n.stepA()+k)))
			t.a[0] = append(t.a[0], x)
		}
		if l.weights != nil {
			t.ready = l.weights[u]
		} else {
			l.b.loadB(l.mul, imm(0), u, t)
		}
		return t
	})
	places := g.register(g.mad(rows, 4, l.place))
	for half := range 2 {
		var sums [][]ptx.Reg
		for _, acc := range c.acc[0] {
			sums = append(sums, acc[2*half:2*half+2])
		}
		l.finish(g, run{pixel: g.add(rows, g.add(l.pixel, imm(8*half))), place: ptx.At(places, l.placesAt(s)+32*half), image: l.image, stride: 8, sums: sums, ends: l.ends})
	}
}

// fma multiplies one pixel by a run of columns in a thread.
func (e *expansion) fma(g *gen, at num) {
	s, width := g.s, e.width()
	runs := s.BK / width
	pixel, column := g.div(at, runs), g.mul(g.mod(at, runs), width)
	x, w := g.Reg(ptx.B32), g.Reg(ptx.B32)
	g.I("mov.b32", x, g.register(g.add(g.smem, g.mul(pixel, e.pitch()))))
	g.I("mov.b32", w, g.register(g.mad(column, 4, inReg(e.taps))))
	acc := g.filled(width, 0)
	k, loop := g.Reg(ptx.B32), g.NewLabel("product")
	g.I("mov.b32", k, ptx.Imm(0))
	g.Place(loop)
	g.NoUnroll()
	v := g.RegVec(ptx.F32, 4)
	g.I("ld.shared.v4.f32", ptx.V(v...), ptx.At(x, e.pixelsAt(s)))
	for i, a := range v {
		row := g.RegVec(ptx.F32, width)
		g.I("ld.shared.v4.f32", ptx.V(row...), ptx.At(w, e.panel.base+i*s.BK*4))
		for j, r := range acc {
			g.I("fma.rn.f32", r, a, row[j], r)
		}
	}
	g.I("add.s32", x, x, ptx.Imm(16))
	g.I("add.s32", w, w, ptx.Imm(16*s.BK))
	g.I("add.s32", k, k, ptx.Imm(4))
	g.If(g.compare("lt.u32", inReg(k), imm(e.depth())), "bra", loop)
	place, taps := ptx.At(g.register(g.mad(pixel, 4, g.smem)), e.placesAt(s)), g.register(g.mad(column, 4, inReg(e.taps)))
	e.finish(g, run{pixel: pixel, place: place, image: g.mad(column, 4, g.smem), sums: [][]ptx.Reg{acc}, ends: []*expr.Emitter{e.from(g, taps, column, 0)}})
}

// run are sums of pixels: some neighbouring channels each, with a stride between them.
type run struct {
	pixel  num      // in the block's
	place  ptx.Addr // where it is said where in the image the pixel lies
	image  num      // address of the column in the image's first pixel
	stride int
	sums   [][]ptx.Reg
	ends   []*expr.Emitter // of what follows them
}

// finish makes of a pixel's sums what the window reads.
func (e *residualProducer) finish(g *gen, r run) {
	s, p, d := g.s, e.p, e.slide
	place := g.Reg(ptx.B32)
	g.I("ld.shared.b32", place, r.place)
	there := g.compare("ge.s32", inReg(place), imm(0))
	to := g.register(g.add(r.image, inReg(place)))
	ep := e.pl.epilogue
	pixels := ep.m.Op == expr.OpVar && dependsOn(ep.result, ep.m)
	var m num
	if pixels {
		image, top, left := e.corner(g)
		_, columns := e.region(s)
		in := r.pixel
		if e.pixels(s) < e.rows(s) {
			in = g.binary("min.u32", in, imm(e.pixels(s)-1))
		}
		y, x := g.add(top, g.div(in, columns)), g.add(left, g.mod(in, columns))
		m = g.mad(g.mad(image, d.H, y), d.W, x)
	}
	for j, acc := range r.sums {
		em := r.ends[j]
		em.Push()
		if pixels {
			g.bind(em, ep.m, m)
		}
		for i, a := range ep.acc {
			if f := p.num.convertB().factor; f != 1 {
				g.I("mul.rn.f32", acc[i], acc[i], ptx.FImm(f))
			}
			em.Bind(a, acc[i])
		}
		out := em.EmitAll(ep.result)
		em.Pop()
		g.If(there, fmt.Sprintf("st.shared.v%d.f32", len(out)), ptx.At(to, e.imageAt(s)+4*j*r.stride), ptx.V(out...))
	}
}

// dependsOn reports whether some of several values depend on a variable.
func dependsOn(values []*expr.Expr, v *expr.Expr) bool {
	return slices.ContainsFunc(values, func(x *expr.Expr) bool { return x.DependsOnAny(v) })
}
