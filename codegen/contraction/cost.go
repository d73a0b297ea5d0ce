package contraction

import (
	"fmt"
	"math"

	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/target"
)

// work describes a launch to the cost model. Activations are taken to be in L2, weights in DRAM.
func (s Schedule) work(p *problem, m *cost.Machine) *cost.Work {
	threads, chunks := s.threads(), s.chunksPerSplit(p)
	all := float64(s.blocks(p) * chunks) // chunks of all blocks
	w := &cost.Work{
		Blocks: s.blocks(p), Warps: threads / 32, Resident: m.Resident(threads, s.shared(p), s.registers(p)),
		Products:   []cost.Products{{Type: p.num.mul.String(), MACs: all * float64(s.BM*s.BN*s.BK)}},
		Issued:     all * s.conversions(p),
		Wavefronts: all * float64(s.sharedReads(p)) / m.Wavefront,
		L2Bytes:    all * float64(s.stageBytes(p)),
		Chunks:     chunks, Ahead: s.Stages - 1, Far: 1,
		TailUS: float64(float64(s.BM*s.BN)/float64(threads)*m.FinishUS) + m.CacheLatencyUS,
	}
	if p.b.src.data != nil {
		w.DRAMBytes = float64(s.tilesN(p) * s.chunks(p) * p.batches() * p.num.tileB(s.BN, s.BK))
	}
	if s.SplitK > 1 { // partial sums go to L2 and back, eight vectors of a thread under way; a ticket says who is last
		partial := float64(w.Blocks*s.BM*s.BN) * 8
		mine := float64(s.SplitK*s.BM*s.BN*4) / (float64(threads) * 16) * m.CacheLatencyUS / m.LoadsAtATime
		w.TailUS += m.TicketUS + partial/(m.L2GBps*1e3) + mine
	}
	return w
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
	a, b := 0.0, n.convertB().cost // instructions a lane and element
	switch {
	case n.round != 0:
		a = 2.5
	case n.a != n.mul:
		a = 1
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

// choose returns the candidate of least estimated time. Where the contraction is large enough to matter, it is one with
// a block for every multiprocessor, unless these take much longer: the reason says so, or why there are none.
func choose(p *problem, pl *plan, t *target.Target) (Schedule, string, error) {
	const matters = 1 << 20 // MACs
	type choice struct {
		s      Schedule
		us     float64
		blocks int
		found  bool
	}
	m := cost.Of(t)
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
		c := choice{s, m.Estimate(s.work(p, m)).US - m.LaunchUS, s.blocks(p), true}
		most = max(most, c.blocks)
		if !best.found || c.us < best.us {
			best = c
		}
		if c.blocks >= t.SMs && (!enough.found || c.us < enough.us) {
			enough = c
		}
	}
	switch {
	case !best.found:
		return Schedule{}, "", fmt.Errorf("no schedule fits: %w", refusal)
	case best.blocks >= t.SMs:
		return best.s, "", nil
	case p.region.MACs() < matters:
		return best.s, fmt.Sprintf("%d blocks: only %d MACs", best.blocks, p.region.MACs()), nil
	case !enough.found:
		return best.s, fmt.Sprintf("%d blocks: m=%d n=%d k=%d yields at most %d", best.blocks, p.m, p.n, p.k, most), nil
	case enough.us > m.Unfilled*best.us:
		return best.s, fmt.Sprintf("%d blocks: %d take %.2f times as long", best.blocks, enough.blocks, enough.us/best.us), nil
	}
	return enough.s, "", nil
}
