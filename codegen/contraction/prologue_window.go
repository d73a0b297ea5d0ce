package contraction

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/layout"
	"github.com/spark-compile/spark-compile/codegen/lower"
	windows "github.com/spark-compile/spark-compile/codegen/window"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/ir"
)

// slide is a prologue that is a depthwise convolution: rows of A are its pixels, columns its channels. A block's rows are a rectangle of
// pixels. A stage holds the part of the image that a chunk's windows cover, as it lies in memory, and their weights; before a chunk is
// multiplied, threads slide the windows over that and write its tile of A, the only one, behind the stages.
type slide struct {
	*windows.Depthwise
	p *problem

	vector int // channels that a thread computes together
	l      *lower.Lowering
	table  int // operand: the weights
	values []*expr.Expr
	acc    []*expr.Expr // variables: the sums
	stored ir.DType
	// variables: place of the vector
	member, image, oy, ox, channel *expr.Expr

	images ptx.Reg // their address
	steps  []haloStep
	taps   ptx.Reg // this thread's first 16 bytes of the next chunk's weights
}

// haloStep is what a thread knows about one of its copies of the image.
type haloStep struct {
	off    num // elements, channel included
	size   ptx.Reg
	dst    num
	inCopy *ptx.Reg // whether the tile has it; nil: always
	column num      // channel in the chunk
}

func newSlide(p *problem, region *ir.Node) (*slide, error) {
	d, err := windows.AsDepthwise(region)
	if err != nil {
		return nil, err
	}
	s := &slide{Depthwise: d, p: p, vector: 8}
	if p.num.a.Bits() > 16 {
		s.vector = 4
	}
	switch elem := d.Stored.Bits() / 8; {
	case d.Stored != ir.Float32 && !isHalf(d.Stored):
		return nil, fmt.Errorf("an image of %s", d.Stored)
	case d.C*elem%16 != 0 || d.C%s.vector != 0:
		return nil, fmt.Errorf("%d channels of %s are not whole vectors", d.C, d.Stored)
	}
	return s, nil
}

func (d *slide) stem() string { return fmt.Sprintf("dwconv%dx%d", d.KH, d.KW) }

func (d *slide) macs() int64 { return d.Region.MACs() }

func (d *slide) lower(p *problem, ctx *kernel.Context) *lower.Lowering {
	l := lower.New(d.Region, ctx)
	b, y := l.B, d.Region.Region.Body.Outputs[0]
	if d.Region.Region.Members > 0 {
		d.member = b.Index("z0", p.z[0])
		l.Member = d.member
	}
	d.image, d.oy, d.ox = b.Index("image.a", d.Images), b.Index("oy.a", d.OH), b.Index("ox.a", d.OW)
	d.channel = b.Int(0)
	if d.C > d.vector {
		d.channel = b.Var("channel.a", expr.S32, 0, int64(d.C-d.vector), int64(d.vector))
	}
	one := b.Index("one.a", d.C)
	own := []*expr.Expr{d.image, d.oy, d.ox, one}
	v := lower.Vector{Anchor: d.Anchor, Index: own, Channel: one, First: d.channel, Width: d.vector, Sum: func(acc *expr.Expr) *expr.Expr { return acc }}
	values, acc, err := l.Epilogue(v, lower.Element{Of: y, Index: b.Unravel(b.Linear(own, d.Anchor.Outputs[0].Type.Shape), y.Type.Shape)})
	if err != nil {
		lower.Fail(err)
	}
	d.values, d.acc, d.l = values[0], acc, l
	for i := range d.values {
		d.values[i], d.stored = lower.Storage(b, d.values[i], p.num.a)
	}
	d.values = expr.Stored(d.values, d.stored)
	l.Input(d.source())
	d.table = l.Table(nil)
	return l
}

// source is the value of the graph that holds the images.
func (d *slide) source() *ir.Value {
	v := d.Anchor.Inputs[0]
	for v.Def != nil {
		v = v.Def.Inputs[0]
	}
	for i, in := range d.Region.Region.Body.Inputs {
		if in == v {
			return d.Region.Inputs[i]
		}
	}
	return nil
}

// stacked reports whether each member has images of its own.
func (d *slide) stacked() bool {
	for i, v := range d.Region.Inputs {
		if v == d.source() {
			return d.Region.Region.Operands[i].Stacked
		}
	}
	return false
}

// tile is the rectangle of pixels of a block: the one whose windows cover the least image, of all blocks together.
func (d *slide) rectangle(rows int) (h, w int) {
	best := math.MaxInt
	for c := 1; c <= rows; c *= 2 {
		r := rows / c
		if all := ceilDiv(d.OH, r) * ceilDiv(d.OW, c) * d.haloOf(r, c); all < best {
			best, h, w = all, r, c
		}
	}
	return h, w
}

func (d *slide) haloOf(h, w int) int { return d.haloRows(h) * d.haloColumns(w) }

func (d *slide) haloRows(h int) int    { return (h-1)*d.SH + (d.KH-1)*d.DH + 1 }
func (d *slide) haloColumns(w int) int { return (w-1)*d.SW + (d.KW-1)*d.DW + 1 }

func (d *slide) tilesM(s Schedule) int {
	h, w := d.rectangle(s.BM)
	return d.Images * ceilDiv(d.OH, h) * ceilDiv(d.OW, w)
}

// row is the pixel of a row of a tile.
func (d *slide) row(g *gen, row num, beyond ptx.Ref) num {
	h, w := d.rectangle(g.s.BM)
	image, oy, ox := d.pixel(g, row)
	if d.OH%h != 0 {
		g.If(g.compare("ge.u32", oy, imm(d.OH)), "bra", beyond)
	}
	if d.OW%w != 0 {
		g.If(g.compare("ge.u32", ox, imm(d.OW)), "bra", beyond)
	}
	return g.mad(g.mad(image, d.OH, oy), d.OW, ox)
}

func (d *slide) pixel(g *gen, row num) (image, oy, ox num) {
	_, w := d.rectangle(g.s.BM)
	image, top, left := d.corner(g)
	return image, g.add(top, g.div(row, w)), g.add(left, g.mod(row, w))
}

// corner is the block's first pixel.
func (d *slide) corner(g *gen) (image, oy, ox num) {
	h, w := d.rectangle(g.s.BM)
	at := g.asm.split([]int{d.Images, ceilDiv(d.OH, h), ceilDiv(d.OW, w)}, g.tileM)
	return at[0], g.mul(at[1], h), g.mul(at[2], w)
}

// elem is the size of a channel of the image.
func (d *slide) elem() int { return d.Stored.Bits() / 8 }

func (d *slide) haloBytes(s Schedule) int {
	h, w := d.rectangle(s.BM)
	return d.haloOf(h, w) * s.BK * d.elem()
}

// tapRows is the number of weights of a channel, its bias included.
func (d *slide) tapRows() int {
	if d.HasBias() {
		return d.KH*d.KW + 1
	}
	return d.KH * d.KW
}

func (d *slide) tapBytes(s Schedule) int { return d.tapRows() * s.BK * 4 }

func (d *slide) inStage(s Schedule) int { return d.haloBytes(s) + d.tapBytes(s) }

func (d *slide) behind(s Schedule) int { return d.p.num.tileA(s.BM, s.BK) }

// run is how many pixels of a column of the rectangle a thread computes at a time, of those that divide it: so many that a block takes the
// least time for a chunk.
func (d *slide) run(s Schedule) int {
	h, _ := d.rectangle(s.BM)
	best, least := 1, math.Inf(1)
	for n := 1; n <= 8 && h%n == 0; n *= 2 {
		w, warps := d.runWork(s, n), float64(d.turns(s, n))
		issue := min(4, 0.4*min(warps, float64(s.threads()/warpSize))) // instructions a clock
		each := max((w.Float+w.Integer+w.Memory)/issue, w.Integer/2, w.Wavefronts)
		if t := float64(warps * each); t < least {
			best, least = n, t
		}
	}
	return best
}

// turns is how often a warp of the block computes runs of so many pixels for a chunk.
func (d *slide) turns(s Schedule, n int) int { return ceilDiv(s.BM/n*(s.BK/d.vector), warpSize) }

// rounds is how many runs of so many pixels a thread computes of a chunk.
func (d *slide) rounds(s Schedule, n int) int {
	return ceilDiv(s.BM/n*(s.BK/d.vector), s.threads())
}

// span is how many rows of the image a run covers.
func (d *slide) span(n int) int { return (n-1)*d.SH + (d.KH-1)*d.DH + 1 }

// runWork is what a warp does for runs of n pixels: windows, and what follows them.
func (d *slide) runWork(s Schedule, n int) (w cost.Work) {
	inputs, taps := float64(d.KW*d.span(n)), float64(d.tapRows())
	size := expr.SizeOf(d.values)
	w.Float = float64(n) * (float64(d.KH*d.KW*d.vector) + float64(d.vector) + size.Float)
	w.Special = float64(n) * size.Special
	w.Integer = 30 + float64(float64(n)*(10+size.Integer+float64(d.vector/2)))
	if d.elem() < 4 {
		w.Integer += float64(float64(2.5*inputs) * float64(d.vector))
	}
	w.Memory = float64(inputs*float64(ceilDiv(d.vector*d.elem(), 16))) + float64(taps*float64(d.vector/4)) + float64(n)
	w.Wavefronts = float64(inputs*float64(d.fronts(s, n))) + float64(taps*float64(d.vector)) + float64(4*n)
	return w
}

// fronts is how many clocks shared memory takes to serve a warp's reads of a vector of the image: 16 bytes a lane at a time, eight lanes,
// and a clock more for each further line of the same place.
func (d *slide) fronts(s Schedule, n int) (sum int) {
	_, w := d.rectangle(s.BM)
	vectors, pixel := s.BK/d.vector, s.BK*d.elem()
	each := min(16, d.vector*d.elem())
	lanes := 128 / each
	for first := 0; first < warpSize; first += lanes {
		lines := map[[2]int]bool{}
		var count [8]int
		most := 0
		for lane := first; lane < first+lanes; lane++ {
			v, x, y := lane%vectors, lane/vectors%w, lane/vectors/w*n
			at := y*d.SH*d.haloColumns(w)*pixel + x*d.SW*pixel + v*d.vector*d.elem()
			if k := [2]int{at / 128, at % 128 / 16}; !lines[k] {
				lines[k] = true
				count[k[1]]++
				most = max(most, count[k[1]])
			}
		}
		sum += most
	}
	return sum * ceilDiv(d.vector*d.elem(), 16)
}

func (d *slide) valid(s Schedule) error {
	if s.BK*d.elem() < 16 || s.BK%d.vector != 0 {
		return fmt.Errorf("chunk of %d channels", s.BK)
	}
	if c := d.copies(s); c > mostCopies {
		return fmt.Errorf("%d copies of the image a thread", c)
	}
	return nil
}

// mostCopies bounds the copies whose addresses a thread keeps.
const mostCopies = 12

// copies is the number of copies of the image that a thread makes for a chunk.
func (d *slide) copies(s Schedule) int { return ceilDiv(d.haloBytes(s)/16, s.threads()) }

func (d *slide) registers(s Schedule, main int) int {
	n := d.run(s)
	return main + n*d.vector + (d.KH+1)*d.vector + 3*d.copies(s) + 8
}

func (d *slide) work(s Schedule, loop, _ *cost.Work) (bytes, constants float64) {
	n := d.run(s)
	w, rounds := d.runWork(s, n), float64(d.turns(s, n)*warpSize)/float64(s.threads()) // of a warp, on average
	copies, taps := float64(d.copies(s)), float64(ceilDiv(d.tapBytes(s)/16, s.threads()))
	loop.Float += float64(rounds * w.Float)
	loop.Special += float64(rounds * w.Special)
	loop.Integer += float64(rounds*w.Integer) + float64(4*copies) + float64(3*taps)
	loop.Memory += float64(rounds*w.Memory) + copies + taps
	loop.Wavefronts += float64(rounds * w.Wavefronts)
	loop.Barriers++
	h, c := d.rectangle(s.BM)
	pixels := d.Images * covered(d.H, d.OH, h, d.haloRows(h), d.SH, d.Top) * covered(d.W, d.OW, c, d.haloColumns(c), d.SW, d.Left)
	table := s.chunks(d.p) * d.tapBytes(s)
	return float64(s.tilesN(d.p) * d.p.batches() * (pixels*d.C*d.elem() + d.tilesM(s)*table)), float64(table)
}

// covered is how much of an image of size pixels lies under the halos of all tiles of n outputs, what lies under several counted for each.
func covered(size, outputs, n, halo, stride, pad int) (sum int) {
	for first := 0; first < outputs; first += n {
		from := first*stride - pad
		sum += max(0, min(size, from+halo)-max(0, from))
	}
	return sum
}

// pack lays the weights out as stages read them: [member][chunk][tap][channel], f32.
func (d *slide) pack(s Schedule) []byte {
	var out []byte
	for z := range d.p.z[0] {
		for first := 0; first < s.chunks(d.p)*s.BK; first += s.BK {
			for tap := range d.tapRows() {
				for c := first; c < first+s.BK; c++ {
					x := 0.0
					if c < d.C {
						x = d.Tap(z, c, tap)
					}
					out = binary.LittleEndian.AppendUint32(out, math.Float32bits(float32(x)))
				}
			}
		}
	}
	return out
}

func (d *slide) tables(pl *plan, s Schedule) { pl.Operands[d.table].Const = d.pack(s) }

// constants starts the copies of the next chunk's weights.
func (d *slide) constants(g *gen, stage num) {
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
}

// ahead prepares the copies of weights.
func (d *slide) ahead(g *gen) {
	chunk := g.add(g.mul(g.z[0], g.s.chunks(g.p)), g.first)
	d.taps = g.Reg(ptx.B64)
	g.I("mad.wide.u32", d.taps, g.register(chunk), ptx.Imm(d.tapBytes(g.s)), g.pointer(d.table))
	g.I("mad.wide.u32", d.taps, g.register(g.tid), ptx.Imm(16), d.taps)
}

// arrive prepares the copies of the image.
func (d *slide) arrive(g *gen) {
	s := g.s
	h, w := d.rectangle(s.BM)
	across := s.BK * d.elem() / 16 // copies of a pixel
	total, columns := d.haloOf(h, w)*across, d.haloColumns(w)
	image, oy, ox := d.corner(g)
	top, left := g.mad(oy, d.SH, imm(-d.Top)), g.mad(ox, d.SW, imm(-d.Left))
	base := imm(0)
	if d.stacked() {
		base = g.mul(g.z[0], d.Images*d.H*d.W*d.C)
	}
	d.images, d.steps = g.pointer(g.plan.a), nil
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
func (d *slide) issue(g *gen, k, stage num) {
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

func (d *slide) begin(*gen) {}

// tile computes the tile of A of a chunk, for which the stage is there.
func (d *slide) tile(g *gen, chunk, stage num) num {
	s := g.s
	n := d.run(s)
	total, threads := s.BM/n*(s.BK/d.vector), s.threads()
	at := g.tid
	if d.rounds(s, n) > 1 {
		i := g.Reg(ptx.B32)
		g.I("mov.b32", i, g.tid.operand())
		at = inReg(i)
	}
	loop, done := g.NewLabel("slide"), g.NewLabel("slid")
	g.Place(loop)
	if d.rounds(s, n) > 1 {
		g.NoUnroll()
	}
	if total%threads != 0 {
		g.If(g.compare("ge.u32", at, imm(total)), "bra", done)
	}
	d.runAt(g, at, chunk, stage, n)
	if d.rounds(s, n) > 1 {
		g.I("add.s32", at.reg, at.reg, ptx.Imm(threads))
		g.If(g.compare("lt.u32", at, imm(total)), "bra", loop)
	}
	g.Place(done)
	g.I("bar.sync", ptx.Imm(0))
	return imm(s.Stages * s.stageBytes(g.p))
}

// runAt computes run number at of the tile: a vector of channels of n pixels of a column. Neighbouring threads have neighbouring vectors.
func (d *slide) runAt(g *gen, at, chunk, stage num, n int) {
	s := g.s
	_, w := d.rectangle(s.BM)
	place := g.asm.split([]int{s.BM / w / n, w, s.BK / d.vector}, at)
	y, x, v := g.mul(place[0], n), place[1], place[2]
	pixel := s.BK * d.elem()
	pitch := d.haloColumns(w) * pixel
	from := g.add(g.mad(y, d.SH*pitch, g.mul(x, d.SW*pixel)), g.mul(v, d.vector*d.elem()))
	in := g.register(g.add(g.add(g.smem, stage), from))
	taps := g.register(g.add(g.add(g.smem, stage), g.mul(v, 4*d.vector)))
	acc := make([][]ptx.Reg, n)
	for p := range acc {
		acc[p] = g.RegVec(ptx.F32, d.vector)
		for _, r := range acc[p] {
			g.I("mov.f32", r, ptx.FImm(0))
		}
	}
	tap, weights := s.BK*4, d.haloBytes(s)
	if d.KH*d.KW*n*d.vector <= mostWritten {
		for kx := range d.KW {
			d.column(g, acc, in, taps, kx*d.DW*pixel, pitch, weights+kx*tap)
		}
	} else {
		a, b, kx := g.Reg(ptx.B32), g.Reg(ptx.B32), g.Reg(ptx.B32)
		g.I("mov.b32", a, in)
		g.I("mov.b32", b, taps)
		g.I("mov.b32", kx, ptx.Imm(0))
		next := g.NewLabel("column")
		g.Place(next)
		g.NoUnroll()
		d.column(g, acc, a, b, 0, pitch, weights)
		g.I("add.s32", a, a, ptx.Imm(d.DW*pixel))
		g.I("add.s32", b, b, ptx.Imm(tap))
		g.I("add.s32", kx, kx, ptx.Imm(1))
		g.If(g.compare("lt.u32", inReg(kx), imm(d.KW)), "bra.uni", next)
	}
	if d.HasBias() {
		bias := d.floats(g, taps, weights+d.KH*d.KW*tap)
		for _, rs := range acc {
			for i, r := range rs {
				g.I("add.rn.f32", r, r, bias[i])
			}
		}
	}
	d.finish(g, acc, g.mad(y, w, x), w, v, chunk)
}

// mostWritten bounds the multiply-adds that are written out; beyond it columns of the window are a loop.
const mostWritten = 600

// column adds a column of the window, whose inputs, pitch apart, and weights begin at byte offsets from two addresses: each row of the
// pixels' common span is read once.
func (d *slide) column(g *gen, acc [][]ptx.Reg, in, taps ptx.Reg, inAt, pitch, tapsAt int) {
	var weights [][]ptx.Reg
	for ky := range d.KH {
		weights = append(weights, d.floats(g, taps, tapsAt+ky*d.KW*g.s.BK*4))
	}
	for j := range d.span(len(acc)) {
		var x []ptx.Reg
		for p, rs := range acc {
			tap := j - p*d.SH
			if tap < 0 || tap%d.DH != 0 || tap/d.DH >= d.KH {
				continue
			}
			if x == nil {
				x = d.inputs(g, in, inAt+j*pitch)
			}
			for i, r := range rs {
				g.I("fma.rn.f32", r, x[i], weights[tap/d.DH][i], r)
			}
		}
	}
}

// floats reads a vector of f32 from shared memory.
func (d *slide) floats(g *gen, at ptx.Reg, off int) []ptx.Reg {
	var out []ptx.Reg
	for i := 0; i < d.vector; i += 4 {
		r := g.RegVec(ptx.F32, 4)
		g.I("ld.shared.v4.f32", ptx.V(r...), ptx.At(at, off+4*i))
		out = append(out, r...)
	}
	return out
}

// inputs reads a vector of channels of the image from shared memory.
func (d *slide) inputs(g *gen, at ptx.Reg, off int) []ptx.Reg {
	if d.Stored == ir.Float32 {
		return d.floats(g, at, off)
	}
	words := g.RegVec(ptx.B32, d.vector/2)
	g.I(fmt.Sprintf("ld.shared.v%d.b32", len(words)), ptx.V(words...), ptx.At(at, off))
	var out []ptx.Reg
	for _, w := range words {
		pair := g.widenPair(w, d.Stored)
		out = append(out, pair[:]...)
	}
	return out
}

// finish makes of the sums of a run what is stored, and writes it to the tile, to rows that are so far apart.
func (d *slide) finish(g *gen, acc [][]ptx.Reg, row num, apart int, v, chunk num) {
	s, p := g.s, g.p
	em := expr.NewEmitter(g.Kernel, d.l.B, d.env(g))
	channel := g.add(g.mul(g.add(g.first, chunk), s.BK), g.mul(v, d.vector))
	inside := g.compare("lt.u32", channel, imm(p.k))
	if p.k%s.BK != 0 {
		channel = g.binary("min.u32", channel, imm(p.k-d.vector))
	}
	g.bind(em, d.channel, channel)
	if d.member != nil {
		g.bind(em, d.member, g.z[0])
	}
	sw := layout.NewSwizzle(p.num.tileA(1, s.BK))
	in := g.mul(v, d.vector*bytesFor(p.num.a, 1))
	for i, rs := range acc {
		em.Push()
		r := g.add(row, imm(i*apart))
		image, oy, ox := d.pixel(g, r)
		if h, w := d.rectangle(s.BM); d.OH%h != 0 || d.OW%w != 0 {
			oy, ox = g.binary("min.u32", oy, imm(d.OH-1)), g.binary("min.u32", ox, imm(d.OW-1))
		}
		g.bind(em, d.image, image)
		g.bind(em, d.oy, oy)
		g.bind(em, d.ox, ox)
		for k, a := range d.acc {
			em.Bind(a, rs[k])
		}
		words := em.Encode(em.EmitAll(d.values), d.stored)
		em.Pop()
		if p.k%s.BK != 0 {
			for k, x := range words {
				words[k] = g.Reg(x.Class)
				var zero ptx.Operand = ptx.Imm(0)
				if x.Class == ptx.F32 {
					zero = ptx.FImm(0)
				}
				g.I("selp."+suffixOf(words), words[k], x, zero, inside)
			}
		}
		to := g.add(g.swizzled(sw, r, g.div(in, 16)), g.mod(in, 16))
		op, from := storeWords(words)
		g.I(op, ptx.At(g.register(g.add(g.smem, to)), s.Stages*s.stageBytes(p)), from)
	}
}

func (d *slide) env(g *gen) expr.Env {
	pointers := make([]ptx.Reg, len(g.plan.Operands))
	for i := range pointers {
		if d.l.Loaded[i] {
			pointers[i] = g.pointer(i)
		}
	}
	env := d.l.Env(g.Kernel, pointers)
	env.Wait = nil // it has
	return env
}
