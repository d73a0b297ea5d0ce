package contraction

import (
	"fmt"

	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

// residualProducer is the contraction whose result a depthwise window reads: the expansion of an inverted residual
// (Sandler et al., 2018). A block copies the pixels that its windows cover once. For every chunk of channels it
// multiplies them by the chunk's weights, applies the epilogue, rounds to the stored type, and writes the image that
// the windows slide over: in f32, so that no window converts it again, and 0 in the windows' padding. The image and
// the pixels follow the stages and the tile of A in shared memory.
type residualProducer struct {
	*blockProduct // rows are pixels, columns the window's channels
	slide         *windowProducer

	panel panelLoad // of weights
}

// newExpand reads a window's producer contraction.
func newExpand(d *windowProducer, region *ir.Node, t *target.Target) (*residualProducer, error) {
	in, err := newBlockProduct(nil, region, t, ir.Float32)
	if err != nil {
		return nil, err
	}
	p := in.p
	switch n := &p.num; {
	case p.a.dtype != n.a:
		return nil, fmt.Errorf("pixels of %s multiplied as %s", p.a.dtype, n)
	case !p.wholeA() || p.m != d.Images*d.H*d.W || p.n != d.C:
		return nil, fmt.Errorf("%s makes no pixels of pixels", p.region.Name)
	case p.k*n.a.Bits()%32 != 0:
		return nil, fmt.Errorf("pixels of %d elements of %s are not whole words", p.k, n.a)
	case p.k*n.a.Bits()/8 > mostOfPixel:
		return nil, fmt.Errorf("pixels of %d elements", p.k)
	}
	p.region, in.held = hold(p.region, p.n, p.b.value)
	return &residualProducer{blockProduct: in, slide: d}, nil
}

// mostOfPixel bounds the bytes of a pixel.
const mostOfPixel = 512

// width is how many neighbouring channels a thread computes: two of an mma's accumulators, or a run of fma.
func (e *residualProducer) width() int { return e.pl.epilogue.group }

// region is the part of the image that a tile's windows cover at most, its padding left out.
func (e *residualProducer) region(s Schedule) (h, w int) { return e.under(e.slide.rectangle(s)) }

// under is the part of the image under a tile.
func (e *residualProducer) under(h, w int) (rows, columns int) {
	d := e.slide
	return most(d.H, d.OH, h, d.haloRows(h), d.SH, d.Top), most(d.W, d.OW, w, d.haloColumns(w), d.SW, d.Left)
}

// tiles is the number of products of 16 pixels for a tile.
func (e *residualProducer) tiles(h, w int) int {
	rows, columns := e.under(h, w)
	return ceilDiv(rows*columns, 16)
}

// most is the largest part of an image of size pixels that lies under the halo of a tile of n outputs.
func most(size, outputs, n, halo, stride, pad int) (most int) {
	for first := 0; first < outputs; first += n {
		from := first*stride - pad
		most = max(most, min(size, from+halo)-max(0, from))
	}
	return most
}

// pixels is the number of pixels that a block has, and rows that of the tiles of products that it makes of them.
func (e *residualProducer) pixels(s Schedule) int {
	h, w := e.region(s)
	return h * w
}
func (e *residualProducer) rows(s Schedule) int { return 16 * e.tiles(e.slide.rectangle(s)) }

// depth is K, in whole steps.
func (e *residualProducer) depth() int {
	step := 4
	if e.p.num.tensor() {
		step = e.p.num.unit()
	}
	return ceilDiv(e.p.k, step) * step
}

// pitch is the number of bytes from a pixel to the next: an odd number of vectors, so that those of eight pixels lie
// in different banks.
func (e *residualProducer) pitch() int { return (ceilDiv(bytesFor(e.p.num.a, e.depth()), 16) | 1) * 16 }

// imagePitch is likewise that of the image.
func (e *residualProducer) imagePitch(s Schedule) int { return s.BK*4 + 16 }

func (e *residualProducer) imageBytes(s Schedule) int {
	h, w := e.slide.rectangle(s)
	return e.slide.haloOf(h, w) * e.imagePitch(s)
}

func (e *residualProducer) afterStages(s Schedule) int {
	return e.imageBytes(s) + e.rows(s)*e.pitch() + e.placeBytes(s)
}

func (e *residualProducer) placeBytes(s Schedule) int { return ceilDiv(e.rows(s)*4, 16) * 16 }

// Where they begin in shared memory.
func (e *residualProducer) imageAt(s Schedule) int {
	return s.Stages*s.stageBytes(e.slide.p) + e.slide.p.num.tileA(s.BM, s.BK)
}
func (e *residualProducer) pixelsAt(s Schedule) int { return e.imageAt(s) + e.imageBytes(s) }
func (e *residualProducer) placesAt(s Schedule) int { return e.pixelsAt(s) + e.rows(s)*e.pitch() }

// own is the schedule of the product: a tile has all K.
func (e *residualProducer) own(s Schedule) Schedule {
	own := s
	own.BM, own.BN, own.BK = e.rows(s), s.BK, e.depth()
	return own
}

// turn is the schedule of what a warp multiplies at a time.
func (e *residualProducer) turn(s Schedule) Schedule {
	return Schedule{BM: 16, BN: e.across(s), BK: e.depth(), WarpsM: 1, WarpsN: 1, WarpsK: 1}
}

// registers are those of a thread that expands pixels: sums, constants and weights of its columns, and fragments of a
// unit.
func (e *residualProducer) registers(s Schedule) int {
	n, tiles, r := &e.p.num, e.across(s)/8, 24
	if !n.tensor() {
		return r + (2+len(e.held.rows))*e.width()
	}
	sums, weights := 4*tiles, 2*tiles*n.termsB
	if n.partial > 0 {
		sums *= 2
	}
	if e.keeps(s) {
		weights *= e.depth() / n.stepMul()
	}
	if n.a != n.mul || n.b != n.mul || n.round != 0 { // what is read for a unit, before it is converted
		r += 16 + 2*tiles*n.unit()/n.stepB()
	}
	return r + sums + 2*tiles*len(e.held.rows) + weights + 4*n.unit()/n.stepA() + 4*(n.terms-1)
}

// across is how many columns a warp multiplies at a time.
func (e *residualProducer) across(s Schedule) int { return min(s.BK, 32) }

// turns is how often a warp, or with fma a thread, does so for a chunk, of all of the block together.
func (e *residualProducer) turns(s Schedule) int {
	if e.p.num.tensor() {
		return e.rows(s) / 16 * (s.BK / e.across(s))
	}
	return e.pixels(s) * (s.BK / e.width())
}

// workers are the block's warps, or its threads.
func (e *residualProducer) workers(s Schedule) int {
	if e.p.num.tensor() {
		return s.threads() / warpSize
	}
	return s.threads()
}

func (e *residualProducer) valid(s Schedule) error {
	if e.p.num.tensor() && e.workers(s)%e.parts(s) != 0 {
		return refuse("%d warps for %d parts of a chunk", e.workers(s), e.parts(s))
	}
	if s.BK < 16 || e.slide.Images*ceilDiv(e.p.k, 8) > 1<<20 {
		return refuse("chunk of %d channels", s.BK)
	}
	return nil
}

// work adds what a warp does for a chunk, and before the first one.
func (e *residualProducer) work(s Schedule, all, loop, tail *cost.Work) {
	size, width := e.pl.epilogue.size, float64(e.width())
	share := float64(e.turns(s)) / float64(e.workers(s)) // turns of a warp
	loop.Barriers++
	var one cost.Work // a turn
	if e.p.num.tensor() {
		n, tiles := &e.p.num, float64(e.across(s)/8)
		runs := float64(2 * tiles)
		turn := e.turn(s)
		one = turn.multiply(e.p, e.pl)
		turn.BN = 0
		pixels := turn.multiply(e.p, e.pl)
		if e.keeps(s) { // a warp reads and converts weights once for all turns
			loop.Memory += one.Memory - pixels.Memory
			loop.Wavefronts += one.Wavefronts - pixels.Wavefronts
			loop.Integer += one.Integer - pixels.Integer
			loop.Float += one.Float - pixels.Float
			pixels.Issued = one.Issued
			one = pixels
		}
		one.Integer += 13 - float64(e.depth()/n.stepA()) + float64(runs*size.Integer)
		one.Issued += 2
		one.Memory += 2 + runs
		one.Wavefronts += 2 + float64(2*runs)
		one.Float += float64(runs * size.Float)
		one.Special = float64(runs * size.Special)
		constants := float64(len(e.held.rows))
		loop.Integer += 25
		loop.Memory += float64(constants * tiles)
		loop.Wavefronts += float64(2 * constants * tiles)
		all.Products = append(all.Products, cost.Products{Type: n.mul.String(), MACs: float64(s.chunks(e.slide.p)*s.tiles(e.slide.p)) * float64(e.rows(s)*s.BK*e.depth()*n.terms*n.termsB)})
	} else {
		k := float64(e.depth())
		one.Float = float64(width*k) + size.Float + width
		one.Integer, one.Issued = 25+float64(k/4)+size.Integer, 4
		one.Special = size.Special
		one.Memory = float64(1.25*k) + 3
		one.Wavefronts = float64(3*k) + 12
	}
	loop.Float += float64(share * one.Float)
	loop.Integer += float64(share * one.Integer)
	loop.Special += float64(share * one.Special)
	loop.Memory += float64(share * one.Memory)
	loop.Issued += float64(share * one.Issued)
	loop.Wavefronts += float64(share * one.Wavefronts)

	d := e.slide
	weights := e.weightBytes(e.own(s))
	panel := float64(ceilDiv(weights/16, s.threads()))
	loop.Memory += panel
	loop.Integer += float64(2 * panel)
	blocks, panels := float64(s.tilesN(d.p)*d.p.batches()*s.tilesM(d.p)), float64(s.chunks(d.p)*weights)
	reads := float64(e.pixels(s)*s.SplitK*bytesFor(e.p.num.a, e.p.k)) + float64(e.pixels(s)*e.p.n*e.pl.epilogue.reads[1]/e.width())
	all.L2Read += float64(blocks * (reads + panels))
	all.DRAMBytes += float64(float64(d.p.z[0]) * panels)

	copies := float64(ceilDiv(e.rows(s)*e.vectors(), s.threads()))
	tail.Memory += copies
	tail.Integer += float64(22*copies) + 60
	tail.Issued += float64(2*copies) + 20
	tail.Wavefronts += float64(copies * float64(e.vector()) / 4)
}

// vector is the number of bytes of a copy, and vectors that of the copies of a pixel, what fills the last step
// included.
func (e *residualProducer) vector() int {
	bytes := bytesFor(e.p.num.a, e.p.k)
	return min(16, bytes&-bytes)
}
func (e *residualProducer) vectors() int { return bytesFor(e.p.num.a, e.depth()) / e.vector() }

// candidates are the schedules worth considering.
func (e *residualProducer) candidates() (out []Schedule) {
	p := e.slide.p
	columns := ceilDiv(p.n, 16) * 16
	for _, bm := range []int{32, 48, 64, 80, 96, 112, 128, 160, 208} {
		for _, bn := range []int{columns, 64, 128} {
			if bn > 128 || bn != columns && bn > columns {
				continue
			}
			for _, bk := range []int{16, 32, 64} {
				out = append(out, e.shared(Schedule{BM: bm, BN: bn, BK: bk})...)
			}
		}
	}
	return out
}

// shared are the ways to share a block's tile among four to sixteen warps, and K among blocks. With few chunks a
// block needs few stages.
func (e *residualProducer) shared(s Schedule) (out []Schedule) {
	for _, split := range []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 16} {
		for warps := 4; warps <= 16; warps++ {
			for wk := 1; wk <= 4; wk *= 2 {
				for wm := 1; wm <= 8; wm *= 2 {
					wn := warps / (wk * wm)
					if wn*wk*wm != warps || s.BM%(16*wm) != 0 || s.BN%(16*max(1, wn)) != 0 {
						continue
					}
					for _, stages := range []int{3, 2} {
						c := s
						c.SplitK, c.WarpsK, c.WarpsM, c.WarpsN, c.Stages = split, wk, wm, wn, stages
						out = append(out, c)
					}
				}
			}
		}
	}
	return out
}
