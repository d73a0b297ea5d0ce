package profile

import (
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
)

// WorkOf is what a launch by itself did, as the cost model takes it, by its counts: constants are in L2, and what else L2 could hold.
func WorkOf(t *target.Target, c *emu.Counts) *cost.Work {
	l := Launch{Grid: c.Grid, Block: c.Block, Shared: c.Shared}
	l.count(c)
	w := l.work(t, c, missing{})
	for _, m := range c.Memories {
		if !m.Constant && m.Memory.Size() > t.KeptBytes() {
			w.DRAMBytes += float64(32 * (m.ReadSectors + m.WriteSectors))
		}
	}
	return w
}

// beside is how many bytes blocks of a launch can hold that find room beside the blocks of the launch in front: their shared memory, in which first
// weights wait, and a share of all where they hold them in registers.
func (l *Launch) beside(front *Launch, t *target.Target) float64 {
	count := func(l *Launch) (blocks, warps, shared int) {
		return l.Grid[0] * l.Grid[1] * l.Grid[2], max(1, (l.Block[0]*l.Block[1]*l.Block[2]+31)/32), l.Shared + 1024
	}
	blocks, warps, shared := count(front)
	there := min((blocks+t.SMs-1)/t.SMs, cost.OccupancyOf(t, 32*warps, front.Shared, 0).Blocks)
	mine, wide, holds := count(l)
	room := max(0, min((t.SharedSM-there*shared)/holds, (t.WarpsSM-there*warps)/wide, t.BlocksSM-there))
	early := min(mine, room*t.SMs)
	return float64(early * max(l.Shared, registerBytes*32*wide))
}

// registerBytes are what a thread holds of constants before it waits, at most.
const registerBytes = 64

// work is what a launch did, as the cost model takes it, with a part of what it touches in DRAM.
func (l *Launch) work(t *target.Target, c *emu.Counts, dram missing) *cost.Work {
	threads := l.Block[0] * l.Block[1] * l.Block[2]
	w := &cost.Work{
		Blocks: l.Grid[0] * l.Grid[1] * l.Grid[2], Warps: max(1, (threads+31)/32),
		Resident: cost.OccupancyOf(t, threads, l.Shared, 0).Blocks, // the same with and without ptxas, which alone knows registers
		L2Bytes:  float64(32 * l.L2Sectors),
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
	for _, m := range c.Memories {
		reads := dram.reads
		if m.Constant {
			reads = dram.constants
			w.Ahead += float64(reads * float64(32*m.ReadSectors))
		}
		w.DRAMBytes += float64(reads*float64(32*m.ReadSectors)) + float64(dram.writes*float64(32*m.WriteSectors))
	}
	return w
}
