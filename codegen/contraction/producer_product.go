package contraction

import (
	"fmt"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/layout"
	"github.com/spark-compile/spark-compile/codegen/lower"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

// productProducer is a product as a producer: a perceptron's hidden units are its columns, and K of the second
// product. Shared memory holds the stages, then all of the block's rows of the first product's A, then the only tile
// of the second's A. A stage holds the weights that compute a chunk of hidden units, then those that multiply them.
type productProducer struct {
	*blockProduct
	outer *problem

	weights panelLoad
	running *running
	column  ptx.Reg            // the first hidden unit of the next chunk
	spots   map[[2]num]ptx.Reg // where groups of columns of a row are stored
}

// newProductProducer makes a producer of the last of several regions, with the others as its own producers.
func newProductProducer(p *problem, parts []*ir.Node, t *target.Target) (producer, error) {
	if p.b.src.data == nil {
		return nil, fmt.Errorf("%s multiplies a product by variables", p.anchor.Op.Name)
	}
	last := len(parts) - 1
	in, err := newBlockProduct(parts[:last], parts[last], t, p.num.a)
	if err != nil {
		return nil, err
	}
	if in.p.m != p.m || in.p.n != p.k || in.p.z[0] != p.z[0] {
		return nil, fmt.Errorf("%d products [%d,%d] for %d that multiply [%d,%d]", in.p.z[0], in.p.m, in.p.n, p.z[0], p.m, p.k)
	}
	return &productProducer{blockProduct: in, outer: p}, nil
}

func (d *productProducer) traits() traits {
	t := traits{stem: stem(d.p), macs: d.p.macs(), cold: true}
	if d.outer.num.tensor() {
		t.schedules = func() []Schedule { return perceptrons(d.outer) }
	}
	return t
}

func (d *productProducer) lower(_ *problem, ctx *kernel.Context) *lower.Lowering {
	return d.blockProduct.lower(ctx)
}

// own is the schedule of the producer's product.
func (d *productProducer) own(s Schedule) Schedule {
	own, _ := d.schedule(s.BM, s.BK, s.threads()/warpSize)
	return own
}

func (d *productProducer) shape(s Schedule) (tileShape, error) {
	own, err := d.schedule(s.BM, s.BK, s.threads()/warpSize)
	if err == nil && d.p.producer != nil {
		_, err = d.p.producer.shape(own)
	}
	return tileShape{
		tilesM: ceilDiv(d.outer.m, s.BM), stage: d.weightBytes(own),
		afterStages: d.rowBytes(own) + d.outer.num.madeA(s.BM, s.BK) + d.exchangeBytes(own),
	}, err
}

// registers are few where nothing is converted: fragments and addresses of one product are not needed while the other
// is computed. The constants are what ptxas took for perceptrons with Gelu.
func (d *productProducer) registers(s Schedule, main int) (n int) {
	own := d.own(s)
	if d.p.num.direct() && d.outer.num.direct() {
		a, b := s.warpM()/16, s.warpN()/16
		n = 8*a*b + 4*(a+b) + 18*(own.warpM()/16)*(own.warpN()/16) + 50
	} else {
		n = main + d.blockProduct.registers(own)
	}
	if d.p.producer != nil {
		n = max(n+12, d.p.producer.registers(own, 0))
	}
	return n
}

// rows, made and exchanged are where these lie in shared memory.
func (d *productProducer) rowsAt(s Schedule) int { return s.Stages * s.stageBytes(d.outer) }
func (d *productProducer) madeAt(s Schedule) int { return d.rowsAt(s) + d.rowBytes(d.own(s)) }
func (d *productProducer) exchangeAt(s Schedule) int {
	return d.madeAt(s) + d.outer.num.madeA(s.BM, s.BK)
}

func (d *productProducer) work(s Schedule, all, loop, tail *cost.Work) {
	own := d.own(s)
	macs := d.blockProduct.work(own, loop, tail)
	if d.p.num.tensor() {
		all.Products = append(all.Products, cost.Products{Type: d.p.num.mul.String(), MACs: macs * float64(s.chunks(d.outer)*s.tiles(d.outer))})
	}
	loop.Barriers++
	tiles, weights := s.tilesN(d.outer)*d.outer.batches(), float64(s.chunks(d.outer)*d.weightBytes(own))
	all.L2Read += float64(float64(tiles*s.tilesM(d.outer)) * weights)
	all.DRAMBytes += float64(float64(d.p.z[0]) * weights)
	if d.p.producer != nil {
		var rows, none cost.Work
		own.BN = d.p.n
		d.p.producer.work(own, &rows, &none, tail)
		all.L2Read += float64(float64(s.tilesN(d.outer)*s.SplitK) * rows.L2Read)
	} else {
		all.L2Read += float64(tiles * s.SplitK * d.p.m * bytesFor(d.p.num.a, d.p.k))
	}
	e := d.pl.epilogue
	all.L2Read += float64(float64(tiles*d.p.m) * float64(d.p.n*e.reads[1]/e.group))
}

func (d *productProducer) tables(pl *plan, s Schedule) {
	pl.Operands[d.pl.b].Const, pl.Operands[d.pl.b].PartsFromLast = d.pack(d.own(s), pl.ctx.Unpacked), 1
}

func (d *productProducer) emit(g *gen) emission {
	own := *d // of this kernel
	d = &own
	return emission{
		beforeWait: func() { d.beforeWait(g) },
		constants:  func(stage num) { d.weights.issue(g, stage) },
		arrive:     func() { d.arrive(g) },
		begin:      func() { d.begin(g) },
		tile:       func(_, stage num) num { return d.tile(g, stage) },
	}
}

// beforeWait prepares the copies of weights: a tile has all K.
func (d *productProducer) beforeWait(g *gen) {
	sub, pl, own := *g, *g.plan, d.own(g.s)
	own.BK *= own.chunks(d.p)
	pl.b = d.pl.b
	sub.p, sub.s, sub.plan, sub.z, sub.tileN, sub.first = d.p, own, &pl, d.digits(g), g.first, imm(0)
	d.weights = panelLoad{bytes: d.weightBytes(d.own(g.s))}
	d.weights.begin(&sub)
}

// arrive brings the block's rows.
func (d *productProducer) arrive(g *gen) {
	s := g.s
	d.running = d.run(g, d.own(s), imm(d.rowsAt(s)), imm(d.exchangeAt(s)), func(row num) num {
		m := g.add(g.mul(g.tileM, s.BM), row)
		if d.p.m%s.BM != 0 {
			m = g.binary("min.u32", m, imm(d.p.m-1))
		}
		return m
	})
	d.running.load()
}

func (d *productProducer) begin(g *gen) {
	d.running.begin()
	d.column = g.Reg(ptx.B32)
	g.I("mov.b32", d.column, g.mul(g.first, g.s.BK).operand())
}

// tile computes the tile of A of a chunk, for which the stage is there.
func (d *productProducer) tile(g *gen, stage num) num {
	s, n, made := g.s, &d.outer.num, d.madeAt(g.s)
	pitch := n.tileA(1, s.BK)
	sw := layout.NewSwizzle(pitch)
	d.spots = map[[2]num]ptx.Reg{}
	scales := map[ptx.Reg]ptx.Reg{} // by where the block's codes are stored
	d.running.multiply(stage, inReg(d.column), func(row num, more int, column num, words []ptx.Reg) {
		at, ok := d.spots[[2]num{row, column}]
		if !ok {
			in := g.inRow(n, column)
			at = g.register(g.add(g.smem, g.add(g.swizzled(sw, row, g.div(in, 16)), g.mod(in, 16))))
			d.spots[[2]num{row, column}] = at
		}
		if d.p.quantise != nil {
			if !ok {
				scales[at] = g.register(g.add(g.smem, g.mad(row, n.scalesA(1, s.BK), g.div(column, blockSize))))
			}
			g.storeQuarter(words, ptx.At(at, made+more*pitch), ptx.At(scales[at], made+n.tileA(s.BM, s.BK)+n.scalesA(more, s.BK)), nil)
			return
		}
		op, from := storeWords(words)
		g.I(op, ptx.At(at, made+more*pitch), from)
	})
	g.I("add.s32", d.column, d.column, ptx.Imm(s.BK))
	g.I("bar.sync", ptx.Imm(0))
	return imm(d.madeAt(s))
}

// perceptrons enumerates the schedules of a product fused with a product. Blocks have all columns or few parts of
// them, since each computes the hidden units that it multiplies. If there are few rows, many blocks split the hidden
// units.
func perceptrons(p *problem) (out []Schedule) {
	for _, bm := range []int{32, 48, 64, 96, 128} {
		for parts := 1; parts <= 4; parts++ {
			for _, warp := range [][2]int{{1, 4}, {1, 8}, {1, 16}, {2, 2}, {2, 4}, {2, 8}, {3, 2}, {3, 4}, {4, 1}, {4, 2}, {4, 4}, {6, 1}, {6, 2}, {8, 1}, {8, 2}} {
				bn := ceilDiv(ceilDiv(p.n, parts), 16*warp[1]) * 16 * warp[1]
				if bm%(16*warp[0]) != 0 || parts > 1 && bn*(parts-1) >= p.n {
					continue
				}
				for row := leastRow; row <= 256; row *= 2 {
					for _, split := range []int{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48} {
						for _, stages := range []int{4, 3, 2} {
							out = append(out, Schedule{BM: bm, BN: bn, BK: row * 8 / p.num.a.Bits(), WarpsM: warp[0], WarpsN: warp[1], WarpsK: 1, SplitK: split, Stages: stages})
						}
					}
				}
			}
		}
	}
	return out
}
