package profile

import (
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
)

// WorkOf is what a launch did, as the cost model takes it, by its counts; constants is as many bytes as the program has of them.
func WorkOf(t *target.Target, c *emu.Counts, constants int) *cost.Work {
	l := Launch{Grid: c.Grid, Block: c.Block, Shared: c.Shared}
	l.count(c)
	return l.work(t, c, constants)
}

// work is what a launch did, as the cost model takes it; constants is the size of all constants of the program in bytes.
func (l *Launch) work(t *target.Target, c *emu.Counts, constants int) *cost.Work {
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
	var dram int64
	for _, m := range c.Memories {
		size := m.Memory.Size()
		if m.Constant {
			size = constants
		}
		if size > t.L2Bytes/4*3 {
			dram += m.ReadSectors + m.WriteSectors
		}
	}
	w.DRAMBytes = float64(32 * dram)
	return w
}
