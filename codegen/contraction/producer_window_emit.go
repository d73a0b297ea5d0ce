package contraction

import (
	"fmt"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/codegen/layout"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

func (d *windowProducer) emit(g *gen) emission {
	own := *d // of this kernel
	d = &own
	if d.from != nil {
		from := *d.from
		from.slide, d.from = d, &from
	}
	return emission{
		beforeWait: func() { d.beforeWait(g) },
		constants:  func(stage num) { d.constants(g, stage) },
		arrive:     func() { d.arrive(g) },
		issue:      func(k, stage num) { d.issue(g, k, stage) },
		tile:       func(chunk, stage num) num { return d.tile(g, chunk, stage) },
		row:        func(row num, beyond ptx.Ref) num { return d.row(g, row, beyond) },
	}
}

// constants starts the copies of the next chunk's weights.
func (d *windowProducer) constants(g *gen, stage num) {
	s := g.s
	dst := g.register(g.add(g.add(g.smem, stage), g.mad(g.tid, 16, imm(d.haloBytes(s)))))
	each := s.threads() * 16
	for off := 0; off < d.tapBytes(s); off += each {
		var mine *ptx.Reg
		if off+each > d.tapBytes(s) {
			q := g.compare("lt.u32", g.tid, imm((d.tapBytes(s)-off)/16))
			mine = &q
		}
		g.Where(mine, "cp.async.cg.shared.global", ptx.At(dst, off), ptx.At(d.taps, off), ptx.Imm(16), ptx.Imm(16))
	}
	g.I("add.s64", d.taps, d.taps, ptx.Imm(d.tapBytes(s)))
	if d.from != nil {
		d.from.panel.issue(g, stage)
	}
}

// beforeWait prepares the copies of weights. Rows of the tile that are no pixels are 0.
func (d *windowProducer) beforeWait(g *gen) {
	if n := d.pixels(g.s); n < g.s.BM {
		g.zero(g.s.Stages*g.s.stageBytes(g.p)+g.p.num.tileA(n, g.s.BK), g.p.num.tileA(g.s.BM-n, g.s.BK))
	}
	if d.from != nil {
		d.from.beforeWait(g)
	}
	chunk := g.add(g.mul(g.z[0], g.s.chunks(g.p)), g.first)
	d.taps = g.Reg(ptx.B64)
	g.I("mad.wide.u32", d.taps, g.register(chunk), ptx.Imm(d.tapBytes(g.s)), g.pointer(d.table))
	g.I("mad.wide.u32", d.taps, g.register(g.tid), ptx.Imm(16), d.taps)
}

// arrive prepares the copies of the image.
func (d *windowProducer) arrive(g *gen) {
	if d.from != nil {
		d.from.arrive(g)
		return
	}
	s := g.s
	h, w := d.rectangle(s)
	across := s.BK * d.elem() / 16 // copies of a pixel
	total, columns := d.haloOf(h, w)*across, d.haloColumns(w)
	image, oy, ox := d.corner(g)
	top, left := g.mad(oy, d.SH, imm(-d.Top)), g.mad(ox, d.SW, imm(-d.Left))
	base := imm(0)
	if d.batched() {
		base = g.mul(g.z[0], d.Images*d.H*d.W*d.C)
	}
	d.images, d.steps = g.pointer(d.param), nil
	for i := range d.copies(s) {
		at := g.add(g.tid, imm(i*s.threads()))
		var st haloStep
		if (i+1)*s.threads() > total {
			q := g.compare("lt.u32", at, imm(total))
			st.inCopy = &q
		}
		pixel := g.div(at, across)
		st.column = g.mul(g.mod(at, across), 16/d.elem())
		y, x := g.add(top, g.div(pixel, columns)), g.add(left, g.mod(pixel, columns))
		in := g.and(g.compare("lt.u32", y, imm(d.H)), g.compare("lt.u32", x, imm(d.W)))
		st.size = g.Reg(ptx.B32)
		g.I("selp.b32", st.size, ptx.Imm(16), ptx.Imm(0), in)
		off := g.mad(g.add(g.mul(g.add(g.mul(image, d.H), y), d.W), x), d.C, g.add(base, st.column))
		o := g.Reg(ptx.B32) // beyond the image nothing is read
		g.I("selp.b32", o, g.register(off), ptx.Imm(0), in)
		st.off, st.dst = inReg(o), g.mul(at, 16)
		d.steps = append(d.steps, st)
	}
}

// issue starts the copies of the chunk of channels that begins at k.
func (d *windowProducer) issue(g *gen, k, stage num) {
	for _, st := range d.steps {
		size, off := st.size, g.add(st.off, k)
		if g.p.k%g.s.BK != 0 {
			in := g.compare("lt.u32", g.add(k, st.column), imm(g.p.k))
			size = g.Reg(ptx.B32)
			g.I("selp.b32", size, st.size, ptx.Imm(0), in)
			o := g.Reg(ptx.B32)
			g.I("selp.b32", o, g.register(off), ptx.Imm(0), in)
			off = inReg(o)
		}
		dst := g.register(g.add(g.add(g.smem, stage), st.dst))
		g.Where(st.inCopy, "cp.async.cg.shared.global", ptx.At(dst, 0), ptx.At(g.address(d.images, off, d.elem()), 0), ptx.Imm(16), size)
	}
}

// tile computes the tile of A of a chunk, for which the stage is there.
func (d *windowProducer) tile(g *gen, chunk, stage num) num {
	s := g.s
	r := d.patch(s)
	image := stage
	if d.from != nil {
		d.from.chunk(g, chunk, stage)
		image = imm(d.from.imageAt(s))
	}
	total, threads := d.pixels(s)/r.pixels()*(s.BK/d.vector), s.threads()
	at := g.tid
	if d.rounds(s, r) > 1 {
		i := g.Reg(ptx.B32)
		g.I("mov.b32", i, g.tid.operand())
		at = inReg(i)
	}
	loop, done := g.NewLabel("slide"), g.NewLabel("slid")
	g.Place(loop)
	if d.rounds(s, r) > 1 {
		g.NoUnroll()
	}
	if total%threads != 0 {
		g.If(g.compare("ge.u32", at, imm(total)), "bra", done)
	}
	d.patchAt(g, at, chunk, image, stage, r)
	if d.rounds(s, r) > 1 {
		g.I("add.s32", at.reg, at.reg, ptx.Imm(threads))
		g.If(g.compare("lt.u32", at, imm(total)), "bra", loop)
	}
	g.Place(done)
	g.I("bar.sync", ptx.Imm(0))
	return imm(s.Stages * s.stageBytes(g.p))
}

// patchAt computes patch number at of the tile for a vector of channels. Neighbouring threads have neighbouring
// vectors.
func (d *windowProducer) patchAt(g *gen, at, chunk, image, stage num, r patch) {
	s := g.s
	h, w := d.rectangle(s)
	place := g.asm.split([]int{h / r.h, w / r.w, s.BK / d.vector}, at)
	y, x, v := g.mul(place[0], r.h), g.mul(place[1], r.w), place[2]
	pixel := d.pixelBytes(s)
	pitch := d.haloColumns(w) * pixel
	from := g.add(g.mad(y, d.SH*pitch, g.mul(x, d.SW*pixel)), g.mul(v, d.vector*d.elem()))
	in := g.register(g.add(g.add(g.smem, image), from))
	taps := g.register(g.add(g.add(g.smem, stage), g.mul(v, 4*d.vector)))
	acc := make([][]ptx.Reg, r.pixels())
	for p := range acc {
		acc[p] = g.filled(d.vector, 0)
	}
	if d.written(r) {
		d.columns(g, acc, r, in, taps, pixel, pitch)
	} else {
		a, b, kx := g.Reg(ptx.B32), g.Reg(ptx.B32), g.Reg(ptx.B32)
		g.I("mov.b32", a, in)
		g.I("mov.b32", b, taps)
		g.I("mov.b32", kx, ptx.Imm(0))
		next := g.NewLabel("column")
		g.Place(next)
		g.NoUnroll()
		weights := d.tapColumn(g, b, 0)
		for x := range r.w {
			d.column(g, acc, r, x, weights, d.reader(g, a, x*d.SW*pixel, pitch))
		}
		g.I("add.s32", a, a, ptx.Imm(d.DW*pixel))
		g.I("add.s32", b, b, ptx.Imm(s.BK*4))
		g.I("add.s32", kx, kx, ptx.Imm(1))
		g.If(g.compare("lt.u32", inReg(kx), imm(d.KW)), "bra.uni", next)
	}
	em := expr.NewEmitter(g.Kernel, d.l.B, g.envOf(d.l))
	d.held.read(g, em, taps, d.haloBytes(s)+d.KH*d.KW*s.BK*4)
	d.finish(g, em, acc, r, g.mad(y, w, x), w, v, chunk)
}

// mostWritten bounds the multiply-adds that are written out.
const mostWritten = 1024

// columns adds all columns of the windows of a patch: each vector of the image is read once, and so is each weight.
func (d *windowProducer) columns(g *gen, acc [][]ptx.Reg, r patch, in, taps ptx.Reg, pixel, pitch int) {
	weights := make([][][]ptx.Reg, d.KW)
	_, w := d.span(r)
	for j := range w {
		read := d.reader(g, in, j*pixel, pitch)
		for x := range r.w {
			tap := j - x*d.SW
			if tap < 0 || tap%d.DW != 0 || tap/d.DW >= d.KW {
				continue
			}
			kx := tap / d.DW
			if weights[kx] == nil {
				weights[kx] = d.tapColumn(g, taps, kx)
			}
			d.column(g, acc, r, x, weights[kx], read)
		}
	}
}

// tapColumn reads a column of the window's weights.
func (d *windowProducer) tapColumn(g *gen, taps ptx.Reg, kx int) (weights [][]ptx.Reg) {
	for ky := range d.KH {
		weights = append(weights, d.floats(g, taps, d.haloBytes(g.s)+(ky*d.KW+kx)*g.s.BK*4))
	}
	return weights
}

// reader reads vectors of a column of the image, which begins at a byte offset from an address, each once.
func (d *windowProducer) reader(g *gen, at ptx.Reg, off, pitch int) func(row int) []ptx.Reg {
	rows := map[int][]ptx.Reg{}
	return func(row int) []ptx.Reg {
		if rows[row] == nil {
			rows[row] = d.input(g, at, off+row*pitch)
		}
		return rows[row]
	}
}

// column adds to the sums of column x of a patch the products of a column of the window with one of the image.
func (d *windowProducer) column(g *gen, acc [][]ptx.Reg, r patch, x int, weights [][]ptx.Reg, read func(row int) []ptx.Reg) {
	h, _ := d.span(r)
	for j := range h {
		for y := range r.h {
			tap := j - y*d.SH
			if tap < 0 || tap%d.DH != 0 || tap/d.DH >= d.KH {
				continue
			}
			v := read(j)
			for i, sum := range acc[y*r.w+x] {
				g.I("fma.rn.f32", sum, v[i], weights[tap/d.DH][i], sum)
			}
		}
	}
}

// floats reads a vector of f32 from shared memory.
func (d *windowProducer) floats(g *gen, at ptx.Reg, off int) []ptx.Reg {
	var out []ptx.Reg
	for i := 0; i < d.vector; i += 4 {
		r := g.RegVec(ptx.F32, 4)
		g.I("ld.shared.v4.f32", ptx.V(r...), ptx.At(at, off+4*i))
		out = append(out, r...)
	}
	return out
}

// input reads a vector of channels of the image from shared memory.
func (d *windowProducer) input(g *gen, at ptx.Reg, off int) []ptx.Reg {
	if d.elem() == 4 {
		return d.floats(g, at, off)
	}
	words := g.RegVec(ptx.B32, d.vector/2)
	g.I(fmt.Sprintf("ld.shared.v%d.b32", len(words)), ptx.V(words...), ptx.At(at, off))
	var out []ptx.Reg
	for _, w := range words {
		pair := g.promotePair(w, d.Stored)
		out = append(out, pair[:]...)
	}
	return out
}

// finish applies the epilogue to the sums of a patch and writes the results to the tile, with a stride between rows.
func (d *windowProducer) finish(g *gen, em *expr.Emitter, acc [][]ptx.Reg, r patch, row num, stride int, v, chunk num) {
	s, p := g.s, g.p
	channel := g.add(g.mul(g.add(g.first, chunk), s.BK), g.mul(v, d.vector))
	inside := g.compare("lt.u32", channel, imm(p.k))
	if p.k%s.BK != 0 {
		channel = g.binary("min.u32", channel, imm(p.k-d.vector))
	}
	g.bind(em, d.channel, channel)
	if d.member != nil {
		g.bind(em, d.member, g.z[0])
	}
	em.Hoist(d.values)
	sw := layout.NewSwizzle(p.num.tileA(1, s.BK))
	in := g.mul(v, d.vector*bytesFor(p.num.a, 1))
	for i, rs := range acc {
		em.Push()
		row := g.add(row, imm(i/r.w*stride+i%r.w))
		if d.places {
			image, oy, ox := d.pixel(g, row)
			if h, w := d.rectangle(s); d.OH%h != 0 || d.OW%w != 0 {
				oy, ox = g.binary("min.u32", oy, imm(d.OH-1)), g.binary("min.u32", ox, imm(d.OW-1))
			}
			g.bind(em, d.image, image)
			g.bind(em, d.oy, oy)
			g.bind(em, d.ox, ox)
		}
		for k, a := range d.acc {
			em.Bind(a, rs[k])
		}
		words := em.Encode(em.EmitAll(d.values), d.stored)
		em.Pop()
		if p.k%s.BK != 0 {
			g.zeroUnless(inside, words)
		}
		to := g.add(g.swizzled(sw, row, g.div(in, 16)), g.mod(in, 16))
		op, from := storeWords(words)
		g.I(op, ptx.At(g.register(g.add(g.smem, to)), s.Stages*s.stageBytes(p)), from)
	}
}
