package cost

import "github.com/spark-compile/spark-compile/internal/target"

// Occupancy is the number of blocks and warps of a kernel that a multiprocessor can hold at a time.
type Occupancy struct {
	Blocks    int     `json:"blocks_per_sm"`
	Warps     int     `json:"warps_per_sm"`
	Share     float64 `json:"share"`
	LimitedBy string  `json:"limited_by"`
	Registers int     `json:"registers,omitempty"` // of a thread; 0: unknown and not counted as a limit
}

// OccupancyOf follows the CUDA occupancy calculator: a warp gets registers in units of 256, a block 1 KB of shared memory more
// than it asks for.
func OccupancyOf(t *target.Target, threads, shared, regs int) Occupancy {
	o := occupancy(t, threads, shared, (regs+7)&^7)
	o.Registers = regs
	return o
}

// Resident is the number of blocks of a planned kernel that a multiprocessor holds at a time. Registers are an estimate, so
// they are not rounded up.
func (m *Machine) Resident(threads, shared, regs int) int {
	return max(1, occupancy(m.Target, threads, shared, regs).Blocks)
}

func occupancy(t *target.Target, threads, shared, regs int) Occupancy {
	warps := max(1, (threads+31)/32)
	o := Occupancy{Blocks: t.BlocksSM, LimitedBy: "blocks"}
	limit := func(n int, by string) {
		if n < o.Blocks {
			o.Blocks, o.LimitedBy = n, by
		}
	}
	limit(t.WarpsSM/warps, "warps")
	limit(t.SharedSM/((shared+1024+127)&^127), "shared memory")
	if regs > 0 {
		limit(t.RegistersSM/(32*regs)/warps, "registers")
	}
	o.Warps = o.Blocks * warps
	o.Share = float64(o.Warps) / float64(t.WarpsSM)
	return o
}
