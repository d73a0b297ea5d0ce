package profile

import (
	"fmt"
	"maps"
	"slices"

	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
)

// pipes counts warp instructions by the pipe that executes them.
type pipes struct {
	float, integer, special, memory, f64 int64
	macs                                 map[string]int64 // of mma, by the type of its operands
	loads, atomics, barriers             int64
	cached                               int64   // sectors that plain loads ask the first level for
	rounds                               float64 // trips of asynchronous copies
}

func (p *pipes) add(s *emu.Site) {
	d := s.Instr.Def
	switch d.Kind {
	case ptx.KindFloat:
		if slices.Contains(d.Types, "f64") {
			p.f64 += s.Warps
		} else {
			p.float += s.Warps
		}
	case ptx.KindInt, ptx.KindConvert:
		p.integer += s.Warps
	case ptx.KindSpecial:
		p.special += s.Warps
	case ptx.KindLoad, ptx.KindStore, ptx.KindMatrix, ptx.KindWarp, ptx.KindAtomic:
		p.memory += s.Warps
	}
	switch d.Does {
	case ptx.Multiply:
		macs, operands := product(d)
		p.macs[operands] += s.Warps * macs
	case ptx.Load:
		if d.Args[1].Space == "global" && d.Order == ptx.Plain { // one that acquires is an atomic's last step
			p.loads += s.Warps
			p.cached += s.Sectors
		}
	case ptx.AtomicAdd:
		p.atomics += s.Warps
	case ptx.CopyAsync:
		p.memory += s.Warps
	case ptx.WaitCopies:
		ahead := ptx.Imm(0)
		if len(d.Args) > 0 {
			ahead, _ = s.Instr.Operands[0].(ptx.Imm)
		}
		p.rounds += float64(s.Warps) / float64(ahead+1)
	case ptx.Barrier, ptx.WarpBarrier:
		p.barriers += s.Warps
	}
}

// product is the size of a mma's shape, and the type of what it multiplies, which follows that of the result.
func product(d *ptx.Def) (macs int64, operands string) {
	var m, n, k int64
	for i, mod := range d.Mods {
		if got, _ := fmt.Sscanf(mod, "m%dn%dk%d", &m, &n, &k); got == 3 {
			macs = m * n * k
		}
		if mod == "f32" && operands == "" {
			operands = d.Mods[i+1]
		}
	}
	return macs, operands
}

// predict estimates the time of what was counted; constants is the size of all constants of the program in bytes.
func predict(t *target.Target, l *Launch, c *emu.Counts, constants int) cost.Time {
	p := &l.pipes
	w := &cost.Work{
		Blocks: l.Grid[0] * l.Grid[1] * l.Grid[2], Warps: max(1, (l.Block[0]*l.Block[1]*l.Block[2]+31)/32), Resident: l.Occupancy.Blocks,
		Issued: float64(l.Warp), Float: float64(p.float), Integer: float64(p.integer), Special: float64(p.special), Memory: float64(p.memory), F64: float64(p.f64),
		Wavefronts: float64(l.Wavefronts) + float64(p.cached)/4,
		L2Bytes:    float64(32 * l.L2Sectors),
		Counted:    true,
	}
	for _, t := range slices.Sorted(maps.Keys(p.macs)) {
		w.Products = append(w.Products, cost.Products{Type: t, MACs: float64(p.macs[t])})
	}
	var dram, far, read int64
	for _, m := range c.Memories {
		size := m.Memory.Size()
		if m.Constant {
			size = constants
		}
		if size > t.L2Bytes/4*3 {
			dram += m.ReadSectors + m.WriteSectors
			far += m.ReadSectors
		}
		read += m.ReadSectors
	}
	w.DRAMBytes = float64(32 * dram)
	if far > 0 {
		w.Far = float64(far) / float64(read)
	}
	m := cost.Of(t)
	n := float64(w.Blocks * w.Warps)
	w.Trips = float64(p.loads)/n/m.LoadsAtATime + p.rounds/n
	if p.loads > 0 {
		w.Trips = max(w.Trips, 1)
	}
	w.Atomics, w.Barriers = float64(p.atomics)/n, float64(p.barriers)/n
	return m.Estimate(w)
}
