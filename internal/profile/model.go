package profile

import (
	"strings"

	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
)

// pipes counts warp instructions by where they execute.
type pipes struct {
	float, integer, special, memory, f64 int64
	tensor, tensor8, tensor4             int64 // MACs, of 16-bit types or as if, of 8-bit and of 4-bit types
	loads, atomics, barriers             int64
	cached                               int64   // sectors that plain loads ask the first level for
	rounds                               float64 // trips of asynchronous copies
}

func (p *pipes) add(s *emu.Site) {
	d := s.Instr.Def
	wide := false
	for _, t := range d.Types {
		wide = wide || t == "f64"
	}
	switch d.Kind {
	case ptx.KindFloat:
		if wide {
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
	case ptx.KindMMA:
		n := s.Warps * macsOf(d)
		switch {
		case strings.Contains(d.Op, "e2m1"):
			p.tensor4 += n
		case strings.Contains(d.Op, "e4m3"), strings.Contains(d.Op, "e5m2"), strings.Contains(d.Op, ".s8"), strings.Contains(d.Op, ".u8"):
			p.tensor8 += n
		case strings.Contains(d.Op, "tf32"):
			p.tensor += 2 * n
		default:
			p.tensor += n
		}
	case ptx.KindSync:
		if d.Name == "bar" {
			p.barriers += s.Warps
		}
	}
	switch {
	case strings.HasPrefix(d.Op, "ld.global"):
		p.loads += s.Warps
		p.cached += s.Sectors
	case d.Kind == ptx.KindAtomic:
		p.atomics += s.Warps
	case d.Op == "cp.async.wait_group":
		ahead, _ := s.Instr.Operands[0].(ptx.Imm)
		p.rounds += float64(s.Warps) / float64(ahead+1)
	case d.Op == "cp.async.wait_all":
		p.rounds += float64(s.Warps)
	case strings.HasPrefix(d.Op, "cp.async.c") && d.Op != "cp.async.commit_group":
		p.memory += s.Warps
	}
}

// predict estimates what was counted; constants is the size of all constants of the program.
func predict(t *target.Target, l *Launch, c *emu.Counts, constants int) cost.Time {
	p := &l.pipes
	w := &cost.Work{
		Blocks: l.Grid[0] * l.Grid[1] * l.Grid[2], Warps: max(1, (l.Block[0]*l.Block[1]*l.Block[2]+31)/32), Resident: l.Occupancy.Blocks,
		Products: []cost.Products{{Type: "f16", MACs: float64(p.tensor)}, {Type: "e4m3", MACs: float64(p.tensor8)}, {Type: "e2m1", MACs: float64(p.tensor4)}},
		Issued:   float64(l.Warp), Float: float64(p.float), Integer: float64(p.integer), Special: float64(p.special), Memory: float64(p.memory), F64: float64(p.f64),
		Wavefronts: float64(l.Wavefronts) + float64(p.cached)/4,
		L2Bytes:    float64(32 * l.L2Sectors),
		Counted:    true,
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
