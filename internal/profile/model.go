package profile

import (
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
)

// WorkOf is what a launch among others of its kind did, as the cost model takes it, by its counts: constants are in L2, and what L2 keeps of
// other memories that are gone through again and again.
func WorkOf(on *cost.Machine, c *emu.Counts) *cost.Work {
	l := Launch{Grid: c.Grid, Block: c.Block, Shared: c.Shared}
	l.count(c)
	w := l.work(on.Target, c)
	for _, m := range c.Memories {
		if !m.Constant {
			w.DRAMBytes += float64(on.Left(float64(m.Memory.Size())) * float64(32*(m.ReadSectors+m.WriteSectors)))
		}
	}
	return w
}

// earlyBytes is how much the blocks of a launch that fit next to those of the preceding launch can hold: their
// shared memory or the registers in which a thread holds constants, whichever is more.
func (l *Launch) earlyBytes(preceding *Launch, t *target.Target) float64 {
	count := func(l *Launch) (blocks, warps, shared int) {
		return l.Grid[0] * l.Grid[1] * l.Grid[2], max(1, (l.Block[0]*l.Block[1]*l.Block[2]+31)/32), l.Shared + 1024
	}
	blocks, warps, shared := count(preceding)
	there := min((blocks+t.SMs-1)/t.SMs, cost.OccupancyOf(t, 32*warps, preceding.Shared, 0).Blocks)
	mine, wide, holds := count(l)
	fitting := max(0, min((t.SharedSM-there*shared)/holds, (t.WarpsSM-there*warps)/wide, t.BlocksSM-there))
	early := min(mine, fitting*t.SMs)
	return float64(early * max(l.Shared, registerBytes*32*wide))
}

// registerBytes are what a thread holds of constants before it waits, at most.
const registerBytes = 64

// work is what a launch did, as the cost model takes it, all of what it touches in L2.
func (l *Launch) work(t *target.Target, c *emu.Counts) *cost.Work {
	threads := l.Block[0] * l.Block[1] * l.Block[2]
	w := &cost.Work{
		Blocks: l.Grid[0] * l.Grid[1] * l.Grid[2], Warps: max(1, (threads+31)/32),
		Resident: cost.OccupancyOf(t, threads, l.Shared, 0).Blocks, // the same with and without ptxas, which alone knows registers
		L2Read:   float64(32 * l.L2Read), L2Written: float64(32 * l.L2Written),
	}
	cached := int64(0) // sectors that plain loads ask the first level for
	for i := range c.Sites {
		s := &c.Sites[i]
		w.Count(s.Instr, float64(s.Warps))
		if d := s.Instr.Def; d.Does == ptx.Load && d.Args[1].Space == "global" {
			cached += s.Sectors
		}
	}
	w.Wavefronts = float64(l.Wavefronts) + float64(float64(cached)/4)
	return w
}

// traffic is how many bytes of each kind a launch touches, each sector once.
type traffic struct{ constants, reads, writes float64 }

func trafficOf(c *emu.Counts) (t traffic) {
	for _, m := range c.Memories {
		reads := &t.reads
		if m.Constant {
			reads = &t.constants
		}
		*reads += float64(32 * m.ReadSectors)
		t.writes += float64(32 * m.WriteSectors)
	}
	return t
}

// served is the launch's work with a part of its accesses, and its prefetches, in DRAM. Constants can be fetched
// early as far as they fit.
func (l *Launch) served(dram missing) *cost.Work {
	w, constants := *l.Work, float64(dram.constants*l.touched.constants)
	w.Back = float64(dram.writes * l.touched.writes)
	w.DRAMBytes = constants + float64(dram.reads*l.touched.reads) + w.Back
	w.EarlyBytes = min(constants, l.early)
	w.Fetches, w.After, w.Awaits, w.Prefetched = dram.fetches, dram.awaits.launch-1, dram.awaits.bytes, dram.prefetched
	w.Plain = !l.dependent
	return &w
}
