package contraction

import (
	"fmt"
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/internal/target"
)

// The cost model estimates the time of one launch at batch 1 with cold weights:
//
//	time  = max(waves · wave, L2 bytes / L2 rate, DRAM bytes / DRAM rate) + a tenth of each + split + finish
//	waves = ⌈blocks / (SMs · resident blocks)⌉
//	wave  = start + fill + chunks of a block · (max(arithmetic, shared-memory reads, latency / (Stages−1)) + turn)
//
// Arithmetic and shared-memory reads of a chunk are those of all blocks resident on a multiprocessor, which share its
// pipes; a multiprocessor with fewer than eight warps keeps its pipes busy only in proportion. Activations are taken to
// be in L2, weights in DRAM; half of a chunk's latency is taken to hide behind other blocks. A split costs its partial
// sums' way to L2 and back and one round trip of the counter. The constants are round figures of published
// microbenchmarks; a measurement may overrule the ranking.
type estimate struct {
	us     float64
	blocks int
}

const (
	memoryLatencyUS = 0.7  // of a load that misses L2
	cacheLatencyUS  = 0.25 // of a load that hits it
	sharedBytesClk  = 128  // shared-memory bytes a multiprocessor reads in a clock
	ticketUS        = 1.2  // fence, atomic and barrier of a split, once
	turnUS          = 0.03 // barrier, addresses and branch of a chunk, some 70 clocks
	startUS         = 0.3  // of a block: coordinates, epilogue
	exposed         = 0.1  // share of a term that does not hide behind the longest
	busyWarps       = 8    // warps that keep a multiprocessor's arithmetic pipes full
)

// resident is the number of blocks that a multiprocessor holds at a time.
func (s Schedule) resident(p *problem, t *target.Target) int {
	threads := s.threads()
	n := t.SharedSM / (s.shared(p) + 1024) // 1 KB a block is the system's
	n = min(n, t.RegistersSM/(s.registers(p)*threads), t.WarpsSM/(threads/32), 16)
	return max(n, 1)
}

func (s Schedule) estimate(p *problem, t *target.Target) estimate {
	blocks := s.blocks(p)
	sms := float64(t.SMs)
	resident := s.resident(p, t)
	waves := ceilDiv(blocks, t.SMs*resident)
	perSM := min(resident, ceilDiv(blocks, t.SMs)) // blocks that share a multiprocessor in a full wave
	warps := float64(perSM * s.threads() / 32)
	busy := min(1, warps/busyWarps)

	flops := 2 * float64(s.BM*s.BN*s.BK) * float64(perSM)
	arithmetic := flops / (t.TFLOPS[p.num.mul.String()] * 1e6 / sms * busy)
	arithmetic = max(arithmetic, float64(perSM)*s.conversions(p)/(4*t.ClockGHz*1e3*busy))

	reads := float64(s.sharedReads(p)) * float64(perSM)
	shared := reads / (sharedBytesClk * t.ClockGHz * 1e3)

	latency := memoryLatencyUS
	chunk := max(arithmetic, shared, latency/float64(s.Stages-1)*0.5) + turnUS
	chunks := s.chunksPerSplit(p)
	wave := startUS + latency + float64(float64(chunks)*chunk)

	weights := float64(s.tilesN(p) * s.chunks(p) * p.batches() * p.num.tileB(s.BN, s.BK))
	if p.b.src.data == nil {
		weights = 0
	}
	l2 := float64(blocks) * float64(chunks*s.stageBytes(p))
	dram := weights
	terms := []float64{float64(float64(waves) * wave), l2 / (t.L2GBps * 1e3), dram / (t.MemoryGBps * 1e3)}
	time := slices.Max(terms)
	for _, x := range terms {
		time += float64(x * exposed)
	}

	if s.SplitK > 1 {
		partial := float64(blocks*s.BM*s.BN) * 8 // written and read, 4 bytes each
		mine := float64(s.SplitK*s.BM*s.BN*4) / (float64(s.threads()) * 16) * cacheLatencyUS / 8
		time += ticketUS + partial/(t.L2GBps*1e3) + mine
	}
	out := float64(s.BM*s.BN) / float64(s.threads()) // elements a thread finishes
	time += float64(out*0.004) + cacheLatencyUS
	return estimate{time, blocks}
}

// sharedReads is what a block reads from shared memory for a chunk, in bytes.
func (s Schedule) sharedReads(p *problem) int {
	if p.num.tensor() {
		return s.WarpsM * s.WarpsN * (p.num.tileA(s.warpM(), s.BK) + p.num.tileB(s.warpN(), s.BK))
	}
	// a group of lanes that reads the same 16 bytes counts once a warp
	tx := s.BN / s.ThreadN
	rows := max(1, 32/tx)
	warps := s.threads() / 32 / s.WarpsK
	return warps * s.BK * 4 * (s.ThreadM*rows + s.ThreadN*min(32, tx))
}

// conversions is the number of warp instructions that turn a chunk of a block into fragments.
func (s Schedule) conversions(p *problem) float64 {
	n := &p.num
	if !n.tensor() {
		return 0
	}
	a, b := 0.0, 0.0 // instructions a lane and element
	switch {
	case n.round != 0:
		a = 2.5
	case n.a != n.mul:
		a = 1
	}
	switch {
	case n.scaled() && n.mul != n.b:
		b = 2.5
	case n.b != n.mul:
		b = 1
	}
	warps := float64(s.WarpsM * s.WarpsN)
	return float64(warps*float64(s.BK)/32) * (float64(a*float64(s.warpM())) + float64(b*float64(s.warpN())))
}

// candidates enumerates the schedules worth considering, in a fixed order.
func candidates(p *problem) []Schedule {
	var out []Schedule
	add := func(s Schedule) {
		for _, wk := range []int{1, 2, 4} {
			for _, split := range []int{1, 2, 3, 4, 6, 8, 12, 16} {
				for _, stages := range []int{4, 3} {
					c := s
					c.WarpsK, c.SplitK, c.Stages = wk, split, stages
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
	for _, bm := range []int{32, 64, 128} {
		for _, bn := range []int{32, 64, 128} {
			for _, w := range [][2]int{{32, 32}, {64, 32}, {32, 64}} {
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
	return out
}

// shortK is the length to which the K of 8-bit weights may be padded in any case: four warps then share a chunk, where a
// warp alone issues too little, and weights of so few rows are small.
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

// worth is how much longer a launch may take to fill every multiprocessor: unmodelled effects favour more blocks.
const worth = 1.3

// choose returns the candidate of least estimated time. Where the contraction is large enough to matter, it is one with
// a block for every multiprocessor, unless these take much longer: the reason says so, or why there are none.
func choose(p *problem, pl *plan, t *target.Target) (Schedule, string, error) {
	const matters = 1 << 20 // MACs
	type choice struct {
		s     Schedule
		e     estimate
		found bool
	}
	var best, enough choice
	most := 0
	var refusal error
	var fit []Schedule
	for _, s := range candidates(p) {
		if s.Stages > max(3, s.chunksPerSplit(p)+1) {
			continue // the last stage would never be filled
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
	for _, s := range fit {
		if s.chunks(p)*s.BK > longest {
			continue
		}
		e := s.estimate(p, t)
		most = max(most, e.blocks)
		if !best.found || e.us < best.e.us {
			best = choice{s, e, true}
		}
		if e.blocks >= t.SMs && (!enough.found || e.us < enough.e.us) {
			enough = choice{s, e, true}
		}
	}
	switch {
	case !best.found:
		return Schedule{}, "", fmt.Errorf("no schedule fits: %w", refusal)
	case best.e.blocks >= t.SMs:
		return best.s, "", nil
	case p.region.MACs() < matters:
		return best.s, fmt.Sprintf("%d blocks: only %d MACs", best.e.blocks, p.region.MACs()), nil
	case !enough.found:
		return best.s, fmt.Sprintf("%d blocks: m=%d n=%d k=%d yields at most %d", best.e.blocks, p.m, p.n, p.k, most), nil
	case enough.e.us > worth*best.e.us:
		return best.s, fmt.Sprintf("%d blocks: %d take %.2f times as long", best.e.blocks, enough.e.blocks, enough.e.us/best.e.us), nil
	}
	return enough.s, "", nil
}
