package contraction

import (
	"fmt"
	"math"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/ir"
)

// work is what the launch of a schedule does, on average over its blocks. Activations are taken to be in L2, weights
// in DRAM.
func (s Schedule) work(p *problem, pl *plan, m *cost.Machine) *cost.Work {
	blocks, threads := s.blocks(p), s.threads()
	chunks := float64(s.chunks(p)) / float64(s.SplitK) // of a block
	w := &cost.Work{Blocks: blocks, Warps: threads / 32, Resident: m.Resident(threads, s.shared(p), s.registers(p)),
		Trips: 1, Streamed: chunks / float64(s.Stages-1), Barriers: chunks + float64(2*s.parts())}
	if p.shape(s).waits {
		w.Trips = 0
	}
	if p.producer != nil && s.Stages == 2 { // as counts have it: a wait for all copies is a round trip
		w.Trips, w.Streamed = w.Trips+chunks, 0
	}
	if p.num.tensor() {
		macs := float64(s.chunks(p)*s.tiles(p)) * float64(s.BM*s.BN*s.BK*p.num.terms*p.num.termsB)
		w.Products = []cost.Products{{Type: p.num.mul.String(), MACs: macs}}
	}
	loop, tail := s.mainLoop(p, pl), s.tail(p, pl)
	if p.added != nil {
		s.addedWork(p, pl, w, &tail)
	}
	if p.producer != nil {
		p.producer.work(s, w, &loop, &tail)
	}
	warps := float64(blocks * w.Warps)
	of := func(loop, tail float64) float64 { return float64(warps * (float64(chunks*loop) + tail)) }
	w.Float, w.Integer, w.Special = of(loop.Float, tail.Float), of(loop.Integer, tail.Integer), of(loop.Special, tail.Special)
	w.Barriers += float64(chunks*loop.Barriers) + tail.Barriers
	w.Trips, w.Streamed = w.Trips+tail.Trips, w.Streamed+tail.Streamed
	for _, x := range tail.Products {
		w.Products = append(w.Products, cost.Products{Type: x.Type, MACs: float64(warps * x.MACs)})
	}
	w.Memory, w.Wavefronts = of(loop.Memory, tail.Memory), of(loop.Wavefronts, tail.Wavefronts)
	w.Loads = float64(chunks*loop.Loads) + tail.Loads
	w.Issued = w.Float + w.Integer + w.Special + w.Memory + of(loop.Issued, tail.Issued)

	inside := float64(p.m*p.k) / float64(s.tilesM(p)*s.BM*s.chunks(p)*s.BK) // of the tiles of A
	stage := float64(s.bytesB(p, pl))
	if p.producer == nil {
		stage += float64(inside * float64(p.num.tileA(s.BM, s.BK)+p.num.scalesA(s.BM, s.BK)))
	}
	elements := p.batches() * p.m * p.n
	if p.sums != nil {
		w.L2Written += float64(4 * elements / p.sums.part)
		w.Barriers++
	}
	w.L2Read += float64(float64(blocks)*chunks*stage) + float64(elements*(pl.epilogue.reads[1]/p.group()))
	w.L2Written += float64(float64(elements) * s.stored(p, pl))
	if s.SplitK > 1 { // sums go to L2 and back; a ticket says who is last
		sums := float64(elements * s.SplitK * 4)
		written := float64(2 * sums) // two stores to each sector
		if p.wholeSectors() {
			written = sums
		}
		w.L2Read, w.L2Written = w.L2Read+sums, w.L2Written+written+float64(32*blocks)
		w.Atomics, w.Barriers = 1, w.Barriers+2
		w.SerialTail = float64((s.SplitK - 1) * min(s.BM, p.m) * min(s.BN, p.n) * 4)
	}
	if p.b.src.data != nil {
		w.DRAMBytes += float64(float64(s.tilesN(p)*s.chunks(p)*p.batches()) * s.bytesB(p, pl))
	}
	return w
}

// stored is how many bytes of sectors are written for an element of the product.
func (s Schedule) stored(p *problem, pl *plan) (bytes float64) {
	columns := min(s.BN, p.n) // of a tile, about
	for i, o := range p.outs {
		switch bits, group := o.dtype.Bits(), min(p.group(), p.n); {
		case p.quantise != nil: // codes, and a byte of scales for a block
			row := ceilDiv(columns*bits, 256)*32 + min(32, ceilDiv(p.n, ir.BlockSize))
			bytes += float64(row) / float64(columns)
		case !pl.epilogue.wide[i]: // one element of each group at a time
			bytes += float64(min(32, group*bits/8))
		case bits == 32: // two stores to each sector
			bytes += 8
		default:
			bytes += float64(float64(bits) / 8)
		}
	}
	return bytes
}

// bytesB is what is read of B for a stage, on average.
func (s Schedule) bytesB(p *problem, pl *plan) float64 {
	bytes := float64(p.num.tileB(s.BN, s.BK))
	if pl.tiles != nil {
		bytes = float64(bytes * pl.tiles.inside(p, s))
	}
	return bytes
}

// mainLoop is what a warp does on a chunk: copies to shared memory, reads of fragments, conversions and products.
// Issued holds only instructions of no other pipe.
func (s Schedule) mainLoop(p *problem, pl *plan) cost.Work {
	w, n := s.multiply(p, pl), &p.num
	copies := func(bytes, each int) float64 { return float64(ceilDiv(bytes, each*s.threads())) }
	copiesA, copiesB := 0.0, copies(n.tileB(s.BN, s.BK), 16)
	if p.producer == nil {
		copiesA = copies(n.tileA(s.BM, s.BK), pl.loadA.perCopy()*pl.loadA.elem)
	}
	address := 5.0 // instructions of a copy
	if p.conv != nil {
		address = 12
	}
	w.Memory += copiesA + copiesB
	w.Integer += 10 + float64(copiesA*address)
	w.Issued += 7
	if !pl.packed {
		w.Integer += float64(copiesB * address)
	} else if pl.tiles != nil {
		if n, k := pl.tiles.ragged(s); n || k {
			w.Integer += float64(copiesB * 4)
		} else if !pl.tiles.even(s) {
			w.Integer += copiesB
		}
	}
	if p.producer == nil && !pl.loadA.async { // elements are loaded one by one
		w.Loads = float64(copiesA * float64(pl.loadA.perCopy()))
		w.Memory += w.Loads
		w.Integer += float64(w.Loads * address)
	}
	w.Wavefronts += float64(s.stageBytes(p)) / float64(4*s.threads()) // of the copies
	return w
}

// multiply is what a warp does on a chunk that lies in shared memory.
func (s Schedule) multiply(p *problem, pl *plan) (w cost.Work) {
	n, k, terms := &p.num, s.warpK(&p.num), s.warpTerms(&p.num)
	if !n.tensor() {
		reads := float64(k/4*s.ThreadM + k*s.ThreadN/4)
		w.Float = float64(k * s.ThreadM * s.ThreadN)
		w.Memory = reads
		w.Integer = float64(k / 4)
		w.Wavefronts = float64(4 * reads)
		return w
	}
	rows, columns := s.warpM()/16, s.warpN()/16
	w.Issued = float64(2 * n.terms * terms * rows * columns * k / n.stepMul())
	if pl.tiles != nil && pl.tiles.byK && n.b != n.mul { // fragments are transposed
		w.Memory += float64(4 * columns * k / n.stepMul())
	}
	w.Memory += float64(rows*k/n.stepA() + columns*k/n.stepB()*max(terms, n.laneB()%16/4))
	if n.scaled() {
		w.Memory += float64(columns * k / n.unit())
	}
	if n.scalesA(1, blockSize) > 0 {
		w.Memory += float64(rows * k / n.unit())
	}
	a, b, convert := float64(k*s.warpM()/32), float64(k*s.warpN()/32), n.convertB() // elements of a lane
	w.Integer = float64(k/n.stepA()) + float64(b*convert.cost)
	w.Float = float64(b * convert.floats)
	switch {
	case n.round != 0:
		w.Integer += float64(2.5 * a)
		w.Float += a
	case n.a != n.mul:
		w.Integer += a
	}
	w.Wavefronts = float64(n.tileA(s.warpM(), k)+n.tileB(s.warpN(), k)*terms/n.termsB) / 128
	return w
}

// tail is what a warp does before and after its main loop: mostly, its sums go through shared memory, and with
// split-K through L2, to the epilogue.
func (s Schedule) tail(p *problem, pl *plan) (w cost.Work) {
	e, group := pl.epilogue, p.group()
	tile := float64(s.BM * s.BN)
	rows := float64(p.m) / float64(s.tilesM(p)*s.BM)              // of a tile, that are inside
	groups := tile * rows / float64(group) / float64(s.threads()) // that a thread finishes, or hands on
	vectors := float64(group / 4)
	sums := float64(s.WarpsK) * tile / float64(s.threads()) // that a thread leaves in shared memory
	w.Issued = 50 + tile/float64(32*s.WarpsM*s.WarpsN)      // accumulators begin at 0
	w.Float = float64(groups * float64((s.WarpsK-1)*group))
	if p.num.convertB().factor != 1 {
		w.Float += tile / float64(32*s.WarpsM*s.WarpsN)
	}
	w.Integer = 80 + float64(groups*10)
	w.Memory = float64(sums/2) + float64(groups*vectors*float64(s.WarpsK))
	w.Wavefronts = sums + float64(2*rows*sums) // two lanes of a read meet in a bank
	if s.SplitK > 1 {
		w.Memory += float64(2 * groups * vectors)
		w.Loads = float64(groups * vectors)
		w.Float += float64(groups * float64(group))
		groups /= float64(s.SplitK)
	}
	w.Loads += float64(groups*float64(ceilDiv(e.reads[1], 16))) + float64(ceilDiv(e.reads[0], 16))/float64(s.SplitK)
	w.Float += float64(groups * e.size.Float)
	w.Special = float64(groups * e.size.Special)
	w.Memory += float64(groups * (float64(2*len(p.outs)) + float64(float64(e.reads[1])/16)))
	if p.sums != nil { // what is summed goes through shared memory once more
		w.Memory += float64(groups*vectors) + sums
		w.Float += sums
		w.Wavefronts += float64(2 * sums)
	}
	w.Integer += float64(groups * (10 + e.size.Integer))
	w.Wavefronts += float64(groups * float64(e.reads[1]) / 4)
	return w
}

// veryLongK is a K whose sixteenth part is long too: that of weights' gradients, which sum over all positions of a
// batch.
const veryLongK = 1 << 14

// mostCandidates is about how many there are.
const mostCandidates = 5 << 10

// candidates enumerates the schedules worth considering, in a fixed order.
func candidates(p *problem) []Schedule {
	if list := p.traits.schedules; list != nil {
		return list()
	}
	out := make([]Schedule, 0, mostCandidates)
	splits := []int{1, 2, 3, 4, 6, 8, 12, 16}
	if p.k >= veryLongK {
		splits = append(splits, 24, 32, 48)
	}
	add := func(s Schedule) {
		for _, wk := range []int{1, 2, 4} {
			for _, split := range splits {
				for _, stages := range []int{4, 3} {
					c := s
					c.WarpsK, c.SplitK, c.Stages, c.Parts = wk, split, stages, 1
					out = append(out, c)
				}
			}
		}
	}
	if !p.num.tensor() {
		for _, t := range [][4]int{{32, 32, 4, 4}, {64, 32, 4, 4}, {32, 64, 4, 4}, {64, 64, 4, 4}, {64, 64, 8, 8}, {64, 128, 8, 8}, {128, 64, 8, 8}, {128, 128, 8, 8}} {
			warps := t[0] / t[2] * (t[1] / t[3]) / 32
			for _, bk := range []int{16, 32} {
				add(Schedule{BM: t[0], BN: t[1], BK: bk, WarpsM: warps, WarpsN: 1, ThreadM: t[2], ThreadN: t[3]})
			}
		}
		return out
	}
	tiles, warps := []int{32, 64, 128}, [][2]int{{32, 32}, {64, 32}, {32, 64}}
	for _, bm := range tiles {
		for _, bn := range tiles {
			for _, w := range warps {
				if bm%w[0] != 0 || bn%w[1] != 0 {
					continue
				}
				rows := []int{32, 64, 128, 256} // bytes of A
				if p.num.stepA() < p.num.stepB() {
					rows = append(rows, 512) // a unit is several steps of A
				}
				for _, row := range rows {
					add(Schedule{BM: bm, BN: bn, BK: row * 8 / p.num.a.Bits(), WarpsM: bm / w[0], WarpsN: bn / w[1]})
				}
			}
		}
	}
	return append(out, large(p)...)
}

// large are the schedules for products of many tiles, where what is read of L2 for a product counts: of large tiles,
// whose sums take less shared memory than the stages, so that a multiprocessor holds more of them.
func large(p *problem) (out []Schedule) {
	for _, tile := range [][2]int{{64, 64}, {64, 128}, {128, 64}, {128, 128}, {256, 64}, {64, 256}, {256, 128}, {128, 256}} {
		for _, w := range [][2]int{{32, 32}, {64, 32}, {32, 64}, {64, 64}} {
			for _, row := range []int{32, 64, 128} { // bytes of A
				for _, stages := range []int{4, 3} {
					for parts := 1; parts <= w[0]/16; parts *= 2 {
						out = append(out, Schedule{BM: tile[0], BN: tile[1], BK: row * 8 / p.num.a.Bits(), WarpsM: tile[0] / w[0], WarpsN: tile[1] / w[1], WarpsK: 1, Stages: stages,
							SplitK: 1, Parts: parts})
					}
				}
			}
		}
	}
	return out
}

// shortK is the length to which the K of 8-bit weights may be padded in any case: four warps then share a chunk,
// where a warp alone issues too little, and weights of so few rows are small.
const shortK = 128

// longestK is how far one of these schedules may pad K. Narrow weights are there to be small, on disk as in memory: an
// eighth more than the shortest chunks give, where the estimate would take longer ones.
func longestK(p *problem, fit []Schedule) int {
	if p.b.src.data == nil || p.num.b.Bits() >= 16 {
		return math.MaxInt
	}
	least := math.MaxInt / 2
	for _, s := range fit {
		least = min(least, s.chunks(p)*s.BK)
	}
	if p.num.b.Bits() == 8 {
		return max(least+least/8, shortK)
	}
	return least + least/8
}

// Choose implements kernel.Kernel: the candidate of least estimated time, with a reason if it leaves multiprocessors
// without a block.
func (k *tiled) Choose() (kernel.Choice, error) {
	p, pl, t := k.p, k.plan, k.ctx.Target
	var best Schedule
	var work *cost.Work
	reason := ""
	const matters = 1 << 20 // MACs
	m := cost.Of(t)
	var refusal error
	var fit []Schedule
	for _, s := range candidates(p) {
		if s.idles(p) {
			continue
		}
		if err := s.valid(p, t); err != nil {
			refusal = err
			continue
		}
		if err := pl.fits(s); err != nil {
			refusal = err
			continue
		}
		fit = append(fit, s)
	}
	longest := longestK(p, fit)
	least, full := math.Inf(1), math.Inf(1) // of all, and of those with a block for every multiprocessor
	most := 0
	for _, s := range fit {
		if s.chunks(p)*s.BK > longest {
			continue
		}
		w := s.work(p, pl, m)
		us := p.microseconds(w, m)
		most = max(most, w.Blocks)
		if us < least {
			best, work, least = s, w, us
		}
		if w.Blocks >= t.SMs {
			full = min(full, us)
		}
	}
	switch {
	case work == nil:
		return kernel.Choice{}, fmt.Errorf("no schedule fits: %w", refusal)
	case work.Blocks >= t.SMs:
	case p.region.MACs() < matters:
		reason = fmt.Sprintf("%d blocks: only %d MACs", work.Blocks, p.region.MACs())
	case most < t.SMs:
		reason = fmt.Sprintf("%d blocks: m=%d n=%d k=%d yields at most %d", work.Blocks, p.m, p.n, p.k, most)
	default:
		reason = fmt.Sprintf("%d blocks: %d or more take %.2f times as long", work.Blocks, t.SMs, full/least)
	}
	return kernel.Choice{Schedule: best, Work: work, Reason: reason}, nil
}
