package contraction

import (
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// corner is where the block's part of the image begins: all of it lies in the image.
func (e *expand) corner(g *gen) (image, top, left num) {
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

// copyWeights prepares the copies of weights, which lie behind those of the windows in a stage.
func (e *expand) copyWeights(g *gen) {
	sub, pl := *g, *g.plan
	pl.b = e.pl.b
	sub.p, sub.s, sub.plan, sub.tileN, sub.first = e.p, e.own(g.s), &pl, g.first, imm(0)
	e.panel = panelLoad{base: e.slide.tapBytes(g.s), bytes: e.weightBytes(e.own(g.s))}
	e.panel.begin(&sub)
}

// ahead makes the image's padding 0, and says where in the image each pixel lies.
func (e *expand) ahead(g *gen) {
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
func (e *expand) arrive(g *gen) {
	s, p, d := g.s, e.p, e.slide
	image, top, left := e.corner(g)
	base := imm(0)
	if d.Region.Region.Members > 0 {
		base = g.offset(p.a.z[0], g.z[0])
	}
	x := g.pointer(d.param)
	vectors, per := e.vectors(), 16*8/p.num.a.Bits()
	_, columns := e.region(s)
	g.each(e.rows(s)*vectors, func(i num) {
		pixel, v := g.div(i, vectors), g.mod(i, vectors)
		size := imm(16)
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
			g.I("selp.b32", z, ptx.Imm(16), ptx.Imm(0), *inside)
			off, size = inReg(o), inReg(z)
		}
		dst := g.register(g.add(g.smem, g.mad(pixel, e.pitch(), g.mul(v, 16))))
		g.I("cp.async.cg.shared.global", ptx.At(dst, e.pixelsAt(s)), ptx.At(g.address(x, off, p.num.a.Bits()/8), 0), ptx.Imm(16), size.operand())
	})
}

// chunk computes the image of a chunk of channels, whose weights are in the stage.
func (e *expand) chunk(g *gen, chunk, stage num) {
	s := g.s
	turns, workers := e.turns(s), e.workers(s)
	g.Comment("the image: %d pixels of %d channels", e.pixels(s), s.BK)
	taps := g.register(g.add(g.smem, stage))
	at, branch, multiply := g.tid, "bra", e.fma
	if e.p.num.tensor() {
		at, branch, multiply = g.warp, "bra.uni", e.lanes(g, taps).mma
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
	multiply(g, at, chunk, taps)
	if turns > workers {
		g.I("add.s32", at.reg, at.reg, ptx.Imm(workers))
		g.If(g.compare("lt.u32", at, imm(turns)), branch, loop)
	}
	g.Place(done)
	g.I("bar.sync", ptx.Imm(0))
}

// lanes are what a lane knows of its part of every product.
type lanes struct {
	*expand
	a       num           // address in a tile of pixels
	place   num           // of the place of its first pixel of a tile
	b       ptx.Reg       // address of its weights
	column  num           // of the first tile of columns, in the chunk
	image   num           // address of that column in the image's first pixel
	zero    []ptx.Reg     // sums begin with
	bias    [][]ptx.Reg   // of a pair of columns of each tile; nil: none that is constant
	weights [][][]ptx.Reg // fragments of each step, of two tiles of columns each; nil: they are read for each product
	pixel   num           // first one, in a tile
}

// lanes says where a lane finds its fragments, and reads what all products of a chunk share. Row r of eight of a fragment is pixel
// 2·(r mod 4) + r/4, so that what a half-warp stores for four of them goes to different banks.
func (e *expand) lanes(g *gen, taps ptx.Reg) *lanes {
	s := g.s
	spread := func(r num) num { return g.add(g.mul(g.mod(r, 4), 2), g.mod(g.div(r, 4), 2)) }
	own := g.add(g.mul(g.mod(g.div(g.lane, 8), 2), 8), spread(g.mod(g.lane, 8)))
	part := g.mod(g.warp, e.parts(s))
	l := &lanes{expand: e, column: g.mad(part, e.across(s), g.mul(g.mod(g.lane, 4), 2)), pixel: spread(g.div(g.lane, 4))}
	l.a = g.add(g.smem, g.mad(own, e.pitch(), g.mul(g.div(g.lane, 16), 16)))
	l.b = g.register(g.mad(part, e.across(s)/16*512, g.mad(g.lane, 16, g.add(inReg(taps), imm(e.panel.base)))))
	l.place, l.image = g.mad(l.pixel, 4, g.smem), g.mad(l.column, 4, g.smem)
	l.zero = g.RegVec(ptx.F32, 4)
	for _, r := range l.zero {
		g.I("mov.f32", r, ptx.FImm(0))
	}
	if e.bias != nil {
		at := g.register(g.mad(l.column, 4, inReg(taps)))
		for j := range e.across(s) / 8 {
			r := g.RegVec(ptx.F32, 2)
			g.I("ld.shared.v2.f32", ptx.V(r...), ptx.At(at, e.biasAt(s)+32*j))
			l.bias = append(l.bias, r)
		}
	}
	if e.keeps(s) {
		for k := range e.steps() {
			l.weights = append(l.weights, l.step(g, k))
		}
	}
	return l
}

// biasAt is where the biases of a chunk lie in a stage: behind what the windows have.
func (e *expand) biasAt(s Schedule) int { return e.slide.tapRows() * s.BK * 4 }

// steps is the number of mma along K.
func (e *expand) steps() int { return e.depth() / e.p.num.stepMul() }

// parts is the number of warps that multiply the same pixels.
func (e *expand) parts(s Schedule) int { return s.BK / e.across(s) }

// keeps reports whether a warp multiplies several tiles of pixels by weights that fit into its registers.
func (e *expand) keeps(s Schedule) bool {
	return e.turns(s) > e.workers(s) && e.steps()*e.across(s)/4 <= mostKept
}

// mostKept bounds the registers of weights that a thread keeps.
const mostKept = 40

// step reads the fragments of a step along K.
func (e *lanes) step(g *gen, k int) (w [][]ptx.Reg) {
	for j := range e.across(g.s) / 16 {
		r := g.RegVec(ptx.B32, 4)
		g.I("ld.shared.v4.b32", ptx.V(r...), ptx.At(e.b, (k*g.s.BK/16+j)*512))
		w = append(w, r)
	}
	return w
}

// mma multiplies 16 pixels by the warp's columns.
func (e *lanes) mma(g *gen, at, chunk num, _ ptx.Reg) {
	s := g.s
	rows := g.mul(g.div(at, e.parts(s)), 16)
	a := g.register(g.mad(rows, e.pitch(), e.a))
	acc := make([][]ptx.Reg, e.across(s)/8)
	for j := range acc {
		acc[j] = g.RegVec(ptx.F32, 4)
	}
	for k := range e.steps() {
		x := g.RegVec(ptx.B32, 4)
		g.I("ldmatrix.sync.aligned.m8n8.x4.shared.b16", ptx.V(x...), ptx.At(a, e.pixelsAt(s)+32*k))
		var w [][]ptx.Reg
		if e.weights != nil {
			w = e.weights[k]
		} else {
			w = e.step(g, k)
		}
		for j, acc := range acc {
			from := acc
			if k == 0 {
				from = e.zero
			}
			g.I(e.p.num.mmaOpcode(), ptx.V(acc...), ptx.V(x...), ptx.V(w[j/2][j%2*2:j%2*2+2]...), ptx.V(from...))
		}
	}
	places := g.register(g.mad(rows, 4, e.place))
	for half := range 2 {
		var sums [][]ptx.Reg
		for _, c := range acc {
			sums = append(sums, c[2*half:2*half+2])
		}
		e.finish(g, run{pixel: g.add(rows, g.add(e.pixel, imm(8*half))), place: ptx.At(places, e.placesAt(s)+32*half), column: e.column, image: e.image, apart: 8, sums: sums, bias: e.bias}, chunk)
	}
}

// fma multiplies one pixel by a run of columns in a thread.
func (e *expand) fma(g *gen, at, chunk num, taps ptx.Reg) {
	s, width := g.s, e.width()
	runs := s.BK / width
	pixel, column := g.div(at, runs), g.mul(g.mod(at, runs), width)
	x, w := g.Reg(ptx.B32), g.Reg(ptx.B32)
	g.I("mov.b32", x, g.register(g.add(g.smem, g.mul(pixel, e.pitch()))))
	g.I("mov.b32", w, g.register(g.mad(column, 4, inReg(taps))))
	acc := g.RegVec(ptx.F32, width)
	for _, r := range acc {
		g.I("mov.f32", r, ptx.FImm(0))
	}
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
	r := run{pixel: pixel, place: ptx.At(g.register(g.mad(pixel, 4, g.smem)), e.placesAt(s)), column: column, image: g.mad(column, 4, g.smem), sums: [][]ptx.Reg{acc}}
	if e.bias != nil {
		b := g.RegVec(ptx.F32, width)
		g.I("ld.shared.v4.f32", ptx.V(b...), ptx.At(g.register(g.mad(column, 4, inReg(taps))), e.biasAt(s)))
		r.bias = [][]ptx.Reg{b}
	}
	e.finish(g, r, chunk)
}

// run are sums of a pixel: of some neighbouring channels each, which are so far apart.
type run struct {
	pixel, column num      // in the block's, and the first one in the chunk
	place         ptx.Addr // where it is said where in the image the pixel lies
	image         num      // address of the column in the image's first pixel
	apart         int
	sums, bias    [][]ptx.Reg
}

// finish makes of a pixel's sums what the window reads.
func (e *expand) finish(g *gen, r run, chunk num) {
	s, p, d := g.s, e.p, e.slide
	place := g.Reg(ptx.B32)
	g.I("ld.shared.b32", place, r.place)
	there := g.compare("ge.s32", inReg(place), imm(0))
	to := g.register(g.add(r.image, inReg(place)))
	ep := e.pl.epilogue
	em := expr.NewEmitter(g.Kernel, e.pl.B, g.envOf(e.pl.Lowering))
	g.bind(em, ep.z[0], g.z[0])
	if ep.m.Op == expr.OpVar && dependsOn(ep.result, ep.m) {
		image, top, left := e.corner(g)
		_, columns := e.region(s)
		in := r.pixel
		if e.pixels(s) < e.rows(s) {
			in = g.binary("min.u32", in, imm(e.pixels(s)-1))
		}
		y, x := g.add(top, g.div(in, columns)), g.add(left, g.mod(in, columns))
		g.bind(em, ep.m, g.mad(g.mad(image, d.H, y), d.W, x))
	}
	for j, acc := range r.sums {
		if r.bias != nil {
			for i := range acc {
				g.I("add.rn.f32", acc[i], acc[i], r.bias[j][i])
			}
		}
		em.Push()
		if ep.n.Op == expr.OpVar && dependsOn(ep.result, ep.n) {
			c := g.add(g.mad(g.add(g.first, chunk), s.BK, r.column), imm(j*r.apart))
			if p.n%s.BK != 0 { // channels beyond the last one are the last ones again, and have no weights
				c = g.binary("min.u32", c, imm(p.n-e.width()))
			}
			g.bind(em, ep.n, c)
		}
		for i, a := range ep.acc {
			em.Bind(a, acc[i])
		}
		out := em.EmitAll(ep.result)
		em.Pop()
		g.If(there, fmt.Sprintf("st.shared.v%d.f32", len(out)), ptx.At(to, e.imageAt(s)+4*j*r.apart), ptx.V(out...))
	}
}

// dependsOn reports whether some of several values depend on a variable.
func dependsOn(values []*expr.Expr, v *expr.Expr) bool {
	return slices.ContainsFunc(values, func(x *expr.Expr) bool { return x.DependsOnAny(v) })
}
