package contraction

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/codegen/expr"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/lower"
	windows "github.com/spark-compile/spark-compile/codegen/window"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

// windowProducer is a depthwise convolution as a producer: rows of A are its pixels, columns its channels. A block's
// rows are a rectangle of pixels. A stage holds the halo of the image that a chunk's windows cover, as in memory, and
// their weights. Before a chunk is multiplied, threads slide the windows over the halo and write the only tile of A,
// after the stages. If another contraction computes the image from pixels, a stage holds that one's weights instead
// of the halo.
type windowProducer struct {
	*windows.Depthwise
	p    *problem
	from *residualProducer // computes the image; nil: it lies in memory

	vector int // channels that a thread computes together
	l      *lower.Lowering
	// operands: the images or their pixels, and the weights
	param, table int
	values       []*expr.Expr
	size         expr.Size // of values
	held         channelConstants
	acc          []*expr.Expr // variables: the sums
	stored       ir.DType
	// variables: place of the vector
	member, image, oy, ox, channel *expr.Expr
	places                         bool // values depend on those of the pixel

	rectangles map[int][2]int // of a tile of so many rows
	patches    map[Schedule]patch

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

// newWindowProducer reads a window, perhaps with a contraction as its producer.
func newWindowProducer(p *problem, parts []*ir.Node, t *target.Target) (producer, error) {
	if len(parts) > 2 {
		return nil, fmt.Errorf("%d producers of %s", len(parts)-1, parts[len(parts)-1].Name)
	}
	d, err := windows.AsDepthwise(parts[len(parts)-1])
	if err != nil {
		return nil, err
	}
	s := &windowProducer{Depthwise: d, p: p, vector: 8, rectangles: map[int][2]int{}, patches: map[Schedule]patch{}}
	d.Region, s.held = hold(d.Region, d.C, nil)
	if p.num.a.Bits() > 16 {
		s.vector = 4
	}
	switch elem := d.Stored.Bits() / 8; {
	case d.Stored != ir.Float32 && !isHalf(d.Stored):
		return nil, fmt.Errorf("an image of %s", d.Stored)
	case d.C*elem%16 != 0 || d.C%s.vector != 0:
		return nil, fmt.Errorf("%d channels of %s are not whole vectors", d.C, d.Stored)
	}
	if len(parts) > 1 {
		s.vector = 4 // of f32
		s.from, err = newExpand(s, parts[0], t)
	}
	return s, err
}

func (d *windowProducer) traits() traits {
	t := traits{stem: fmt.Sprintf("dwconv%dx%d", d.KH, d.KW), macs: d.Region.MACs()}
	if d.from != nil {
		t.stem, t.macs = stem(d.from.p)+"_"+t.stem, t.macs+d.from.p.macs()
		if d.p.num.tensor() {
			t.schedules = d.from.candidates
		}
	}
	return t
}

func (d *windowProducer) lower(p *problem, ctx *kernel.Context) *lower.Lowering {
	l := lower.New(d.Region, ctx)
	if d.from != nil {
		l = d.from.lower(ctx).Further(d.Region)
	}
	d.held.lower(l)
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
	v := lower.Vector{Anchor: d.Anchor, Index: own, Channel: one, First: d.channel, Width: d.vector, Sum: func(acc *expr.Expr) *expr.Expr {
		if bias := d.Anchor.Bias(); bias != nil {
			return b.Add(acc, l.Value(bias, []*expr.Expr{one}))
		}
		return acc
	}}
	values, acc, err := l.Epilogue(v, lower.Element{Of: y, Index: b.Unravel(b.Linear(own, d.Anchor.Outputs[0].Type.Shape), y.Type.Shape)})
	if err != nil {
		lower.Fail(err)
	}
	d.held.take(l, values[0], d.channel)
	d.values, d.acc, d.l = values[0], acc, l
	for i := range d.values {
		d.values[i], d.stored = lower.Storage(b, d.values[i], p.num.a)
	}
	d.values = expr.Stored(d.values, d.stored)
	d.size = expr.SizeOf(d.values)
	d.places = slices.ContainsFunc(d.values, func(x *expr.Expr) bool { return x.DependsOnAny(d.image, d.oy, d.ox) })
	d.param = l.Input(d.source())
	d.table = l.Table(nil)
	l.Operands[d.table].PartsFromLast = 1
	return l
}

// source is the value of the graph that holds the images, or the pixels that they are made of.
func (d *windowProducer) source() *ir.Value {
	if d.from != nil {
		return d.from.p.a.value
	}
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

// batched reports whether each member has images of its own.
func (d *windowProducer) batched() bool {
	for i, v := range d.Region.Inputs {
		if v == d.source() {
			return d.Region.Region.Operands[i].Batched
		}
	}
	return false
}

// rectangle is what a block has of the result: so many pixels, at most as many as its tile has rows, that the images
// of all blocks together are smallest.
func (d *windowProducer) rectangle(s Schedule) (h, w int) {
	if r, ok := d.rectangles[s.BM]; ok {
		return r[0], r[1]
	}
	best := math.MaxInt
	for r := 1; r <= min(s.BM, d.OH); r++ {
		for c := 1; c <= min(s.BM/r, d.OW); c++ {
			each := d.haloOf(r, c)
			if d.from != nil {
				each = d.from.tiles(r, c)
			}
			if all := ceilDiv(d.OH, r) * ceilDiv(d.OW, c) * each; all < best {
				best, h, w = all, r, c
			}
		}
	}
	d.rectangles[s.BM] = [2]int{h, w}
	return h, w
}

// pixels is the number of rows of a block's tile that it computes.
func (d *windowProducer) pixels(s Schedule) int {
	h, w := d.rectangle(s)
	return h * w
}

// padded reports whether some windows of some tile reach beyond the image.
func (d *windowProducer) padded(s Schedule) bool {
	h, w := d.rectangle(s)
	beyond := func(size, outputs, n, halo, stride, pad int) bool {
		last := (ceilDiv(outputs, n)-1)*n*stride - pad
		return pad > 0 || last+halo > size
	}
	return beyond(d.H, d.OH, h, d.haloRows(h), d.SH, d.Top) || beyond(d.W, d.OW, w, d.haloColumns(w), d.SW, d.Left)
}

func (d *windowProducer) haloOf(h, w int) int { return d.haloRows(h) * d.haloColumns(w) }

func (d *windowProducer) haloRows(h int) int    { return (h-1)*d.SH + (d.KH-1)*d.DH + 1 }
func (d *windowProducer) haloColumns(w int) int { return (w-1)*d.SW + (d.KW-1)*d.DW + 1 }

// row is the pixel of a row of a tile.
func (d *windowProducer) row(g *gen, row num, beyond ptx.Ref) num {
	h, w := d.rectangle(g.s)
	if h*w < g.s.BM {
		g.If(g.compare("ge.u32", row, imm(h*w)), "bra", beyond)
	}
	image, oy, ox := d.pixel(g, row)
	if d.OH%h != 0 {
		g.If(g.compare("ge.u32", oy, imm(d.OH)), "bra", beyond)
	}
	if d.OW%w != 0 {
		g.If(g.compare("ge.u32", ox, imm(d.OW)), "bra", beyond)
	}
	return g.mad(g.mad(image, d.OH, oy), d.OW, ox)
}

func (d *windowProducer) pixel(g *gen, row num) (image, oy, ox num) {
	_, w := d.rectangle(g.s)
	image, top, left := d.corner(g)
	return image, g.add(top, g.div(row, w)), g.add(left, g.mod(row, w))
}

// corner is the block's first pixel.
func (d *windowProducer) corner(g *gen) (image, oy, ox num) {
	h, w := d.rectangle(g.s)
	at := g.asm.split([]int{d.Images, ceilDiv(d.OH, h), ceilDiv(d.OW, w)}, g.tileM)
	return at[0], g.mul(at[1], h), g.mul(at[2], w)
}

// elem is the size of a channel of the image in shared memory.
func (d *windowProducer) elem() int {
	if d.from != nil {
		return 4
	}
	return d.Stored.Bits() / 8
}

// pixelBytes is the stride of the image's pixels in shared memory.
func (d *windowProducer) pixelBytes(s Schedule) int {
	if d.from != nil {
		return d.from.imagePitch(s)
	}
	return s.BK * d.elem()
}

// haloBytes is the size of the image in a stage.
func (d *windowProducer) haloBytes(s Schedule) int {
	if d.from != nil {
		return 0
	}
	h, w := d.rectangle(s)
	return d.haloOf(h, w) * s.BK * d.elem()
}

// ownRows is the number of weights and constants of a channel.
func (d *windowProducer) ownRows() int { return d.KH*d.KW + len(d.held.rows) }

// tapBytes is the size of a stage's weights and constants for a chunk: the window's own, then the constants of its
// producer.
func (d *windowProducer) tapBytes(s Schedule) int {
	rows := d.ownRows()
	if d.from != nil {
		rows += len(d.from.held.rows)
	}
	return rows * s.BK * 4
}

func (d *windowProducer) shape(s Schedule) (tileShape, error) {
	h, w := d.rectangle(s)
	t := tileShape{tilesM: d.Images * ceilDiv(d.OH, h) * ceilDiv(d.OW, w), stage: d.haloBytes(s) + d.tapBytes(s), afterStages: d.p.num.tileA(s.BM, s.BK)}
	if d.from != nil {
		t.stage, t.afterStages = t.stage+d.from.weightBytes(d.from.own(s)), t.afterStages+d.from.afterStages(s)
	}
	return t, d.valid(s)
}

// patch is a rectangle of pixels whose sums a thread has in registers at a time.
type patch struct{ h, w int }

func (r patch) pixels() int { return r.h * r.w }

// mostSums bounds the sums of a patch.
const mostSums = 64

// patch is one of those that divide the block's rectangle: that with which a block takes the least time for a chunk.
func (d *windowProducer) patch(s Schedule) patch {
	if r, ok := d.patches[s]; ok {
		return r
	}
	h, w := d.rectangle(s)
	best, least := patch{1, 1}, math.Inf(1)
	for y := 1; y <= min(h, 8); y++ {
		for x := 1; x <= min(w, 4); x++ {
			r := patch{y, x}
			if h%y != 0 || w%x != 0 || r.pixels()*d.vector > mostSums || x > 1 && d.from == nil { // blocks that copy are small, and several have room
				continue
			}
			one, warps := d.patchWork(s, r), float64(d.turns(s, r))
			issue := min(4, 0.4*min(warps, float64(s.threads()/warpSize))) // instructions a clock
			each := max((one.Float+one.Integer+one.Memory)/issue, one.Integer/2, one.Wavefronts)
			if t := float64(warps * each); t < least {
				best, least = r, t
			}
		}
	}
	d.patches[s] = best
	return best
}

// turns is how often a warp of the block computes patches for a chunk.
func (d *windowProducer) turns(s Schedule, r patch) int {
	return ceilDiv(d.pixels(s)/r.pixels()*(s.BK/d.vector), warpSize)
}

// rounds is how many patches a thread computes of a chunk.
func (d *windowProducer) rounds(s Schedule, r patch) int {
	return ceilDiv(d.pixels(s)/r.pixels()*(s.BK/d.vector), s.threads())
}

// span is the part of the image that a patch's windows cover.
func (d *windowProducer) span(r patch) (h, w int) { return d.haloRows(r.h), d.haloColumns(r.w) }

// written reports whether all multiply-adds of a patch are written out; else columns of the window are a loop.
func (d *windowProducer) written(r patch) bool { return d.KH*d.KW*r.pixels()*d.vector <= mostWritten }

// inputs is how many vectors of the image a patch reads.
func (d *windowProducer) inputs(r patch) int {
	h, w := d.span(r)
	if d.written(r) {
		return h * w
	}
	return d.KW * r.w * h
}

// patchWork is what a warp does for patches: windows, and what follows them.
func (d *windowProducer) patchWork(s Schedule, r patch) (w cost.Work) {
	inputs, taps, n := float64(d.inputs(r)), float64(d.ownRows()), float64(r.pixels())
	size := d.size
	w.Float = float64(n * (float64(d.KH*d.KW*d.vector) + size.Float))
	w.Special = float64(n * size.Special)
	w.Integer = 30 + float64(n*(8+size.Integer+float64(d.vector/2)))
	if d.elem() < 4 {
		w.Integer += float64(float64(2.5*inputs) * float64(d.vector))
	}
	w.Memory = float64(inputs*float64(ceilDiv(d.vector*d.elem(), 16))) + float64(taps*float64(d.vector/4)) + n
	w.Wavefronts = float64(inputs*float64(d.fronts(s, r))) + float64(taps*float64(d.vector)) + float64(n*float64(d.vector)/2)
	return w
}

// fronts is the number of wavefronts, a clock each, of a warp's reads of a vector of the image in shared memory.
func (d *windowProducer) fronts(s Schedule, r patch) int {
	_, w := d.rectangle(s)
	vectors, pixel := s.BK/d.vector, d.pixelBytes(s)
	return sharedClocks(d.vector*d.elem(), func(lane int) int {
		v, x, y := lane%vectors, lane/vectors%(w/r.w)*r.w, lane/vectors/(w/r.w)*r.h
		return y*d.SH*d.haloColumns(w)*pixel + x*d.SW*pixel + v*d.vector*d.elem()
	})
}

// sharedClocks is how many clocks shared memory takes to serve a warp whose lanes read or write so many bytes each,
// from a multiple of 16 or of the bytes on: 16 bytes a lane at a time, 128 together, and a clock more for each
// further line of the same place.
func sharedClocks(bytes int, at func(lane int) int) (sum int) {
	each := min(16, bytes)
	lanes := 128 / each
	for first := 0; first < warpSize; first += lanes {
		var lines [8][]int
		most := 0
		for lane := first; lane < min(first+lanes, warpSize); lane++ {
			at := at(lane)
			if l := &lines[at%128/16]; !slices.Contains(*l, at/128) {
				*l = append(*l, at/128)
				most = max(most, len(*l))
			}
		}
		sum += most
	}
	return sum * ceilDiv(bytes, 16)
}

func (d *windowProducer) valid(s Schedule) error {
	if s.BK*d.elem() < 16 || s.BK%d.vector != 0 {
		return refuse("chunk of %d channels", s.BK)
	}
	if d.from != nil {
		return d.from.valid(s)
	}
	if c := d.copies(s); c > mostCopies {
		return refuse("%d copies of the image a thread", c)
	}
	return nil
}

// mostCopies bounds the copies whose addresses a thread keeps.
const mostCopies = 12

// copies is the number of copies of the image that a thread makes for a chunk.
func (d *windowProducer) copies(s Schedule) int { return ceilDiv(d.haloBytes(s)/16, s.threads()) }

// leastExpanding is what every kernel takes that expands pixels.
const leastExpanding = 108

func (d *windowProducer) registers(s Schedule, main int) int {
	r := d.patch(s)
	columns := 1 // of weights that are used again
	if d.written(r) {
		columns = min(d.KW, 1+(r.w-1)*d.SW/d.DW)
	}
	sums := main + r.pixels()*d.vector + (columns*d.KH+1)*d.vector + 3*d.copies(s) + 8
	if d.from == nil {
		return sums
	}
	if d.p.num.tensor() {
		main -= s.fragmentRegisters(&d.p.num)
	}
	return max(leastExpanding, sums, main+d.from.registers(s))
}

func (d *windowProducer) work(s Schedule, all, loop, tail *cost.Work) {
	r := d.patch(s)
	w, rounds := d.patchWork(s, r), float64(d.turns(s, r)*warpSize)/float64(s.threads()) // of a warp, on average
	copies, taps := float64(d.copies(s)), float64(ceilDiv(d.tapBytes(s)/16, s.threads()))
	loop.Float += float64(rounds * w.Float)
	loop.Special += float64(rounds * w.Special)
	loop.Integer += float64(rounds*w.Integer) + float64(4*copies) + float64(3*taps)
	loop.Memory += float64(rounds*w.Memory) + copies + taps
	loop.Wavefronts += float64(rounds * w.Wavefronts)
	loop.Barriers++
	if d.pixels(s) < s.BM {
		tail.Memory += float64(ceilDiv(d.p.num.tileA(s.BM-d.pixels(s), s.BK)/16, s.threads()))
	}
	table := float64(s.chunks(d.p) * d.tapBytes(s))
	blocks := float64(s.tilesN(d.p) * d.p.batches()) // of all chunks of a tile
	all.L2Read += float64(blocks * float64(float64(s.tilesM(d.p))*table))
	all.DRAMBytes += table
	if d.from != nil {
		d.from.work(s, all, loop, tail)
		return
	}
	h, c := d.rectangle(s)
	pixels := d.Images * covered(d.H, d.OH, h, d.haloRows(h), d.SH, d.Top) * covered(d.W, d.OW, c, d.haloColumns(c), d.SW, d.Left)
	all.L2Read += float64(blocks * float64(pixels*d.C*d.elem()))
}

// covered is how much of an image of size pixels lies under the halos of all tiles of n outputs, what lies under
// several counted for each.
func covered(size, outputs, n, halo, stride, pad int) (sum int) {
	for first := 0; first < outputs; first += n {
		from := first*stride - pad
		sum += max(0, min(size, from+halo)-max(0, from))
	}
	return sum
}

// pack lays the weights out as stages read them: [member][chunk][tap][channel], f32.
func (d *windowProducer) pack(s Schedule) []byte {
	var out []byte
	rows := d.tapBytes(s) / (s.BK * 4)
	for z := range d.p.z[0] {
		for first := 0; first < s.chunks(d.p)*s.BK; first += s.BK {
			for tap := range rows {
				for c := first; c < first+s.BK; c++ {
					x := 0.0
					switch {
					case c >= d.C:
					case tap < d.KH*d.KW:
						x = d.Tap(z, c, tap)
					case tap < d.ownRows():
						x = d.held.at(tap-d.KH*d.KW, z, c)
					default:
						x = d.from.held.at(tap-d.ownRows(), z, c)
					}
					out = binary.LittleEndian.AppendUint32(out, math.Float32bits(float32(x)))
				}
			}
		}
	}
	return out
}

func (d *windowProducer) tables(pl *plan, s Schedule) {
	pl.Operands[d.table].Const = d.pack(s)
	if d.from != nil {
		pl.Operands[d.from.pl.b].Const, pl.Operands[d.from.pl.b].PartsFromLast = d.from.pack(d.from.own(s), pl.ctx.Unpacked), 2
	}
}
