package profile

import (
	"cmp"
	"strings"

	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
)

// Constants of the model, beside the target's.
const (
	schedulers   = 4    // of a multiprocessor: warp instructions a clock
	aloneIssue   = 0.4  // warp instructions a clock of a warp by itself
	busyWarps    = 8    // warps that fill the tensor pipes
	l2LatencyUS  = 0.25 // of a load that L2 serves
	memLatencyUS = 0.7  // of one that DRAM serves
	atomicUS     = 0.7  // of an atomic and the barrier behind it
	barrierClk   = 30   // clocks
	startUS      = 0.3  // of a block: parameters, coordinates
	loadsAtATime = 8    // plain loads of a thread under way together
	l2BytesClk   = 64   // a multiprocessor reads from L2
)

// Time is a predicted time and what it is made of, in microseconds.
type Time struct {
	US      float64 `json:"us"`
	By      string  `json:"bound"`
	Tensor  float64 `json:"tensor"`
	Issue   float64 `json:"issue"`
	L1      float64 `json:"l1"`
	L2      float64 `json:"l2"`
	DRAM    float64 `json:"dram"`
	Latency float64 `json:"latency"`
	Gap     float64 `json:"gap"`
	Waves   int     `json:"waves"`
}

// Occupancy is how many of a multiprocessor's warps a kernel can keep resident.
type Occupancy struct {
	Blocks    int     `json:"blocks_per_sm"`
	Warps     int     `json:"warps_per_sm"`
	Share     float64 `json:"share"`
	LimitedBy string  `json:"limited_by"`
	Registers int     `json:"registers,omitempty"` // a thread; 0: not known, and not counted as a limit
}

// occupancy follows the CUDA occupancy calculator: registers are given to warps in units of 256, shared memory to blocks
// with 1 KB for the system.
func occupancy(t *target.Target, threads, shared, regs int) Occupancy {
	warps := max(1, (threads+31)/32)
	o := Occupancy{Blocks: t.BlocksSM, LimitedBy: "blocks", Registers: regs}
	limit := func(n int, by string) {
		if n < o.Blocks {
			o.Blocks, o.LimitedBy = n, by
		}
	}
	limit(t.WarpsSM/warps, "warps")
	limit(t.SharedSM/((shared+1024+127)&^127), "shared memory")
	if regs > 0 {
		limit(t.RegistersSM/((regs*32+255)&^255)/warps, "registers")
	}
	o.Warps = o.Blocks * warps
	o.Share = float64(o.Warps) / float64(t.WarpsSM)
	return o
}

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

// predict is the model that the package's comment describes; constants is the size of all constants of the program.
func predict(t *target.Target, l *Launch, c *emu.Counts, constants int) Time {
	clk := t.ClockGHz * 1e3 // clocks a µs
	sms := float64(t.SMs)
	blocks := l.Grid[0] * l.Grid[1] * l.Grid[2]
	warps := max(1, (l.Block[0]*l.Block[1]*l.Block[2]+31)/32)
	mine := (blocks + t.SMs - 1) / t.SMs // of the busiest multiprocessor
	share := float64(mine) / float64(blocks)
	resident := max(1, min(mine, l.Occupancy.Blocks))
	there := float64(resident * warps)
	p := &l.pipes
	r := Time{Gap: t.LaunchUS, Waves: (mine + resident - 1) / resident}

	mma := func(n int64, tflops float64) float64 { // µs
		if n == 0 {
			return 0
		}
		return float64(2*n) / (tflops * 1e6 / sms)
	}
	rate8 := cmp.Or(t.TFLOPS["e4m3"], t.TFLOPS["f16"])
	r.Tensor = share / min(1, there/busyWarps) * (mma(p.tensor, t.TFLOPS["f16"]) + mma(p.tensor8, rate8) + mma(p.tensor4, cmp.Or(t.TFLOPS["e2m1"], rate8)))

	floatLanes := t.TFLOPS["f32"] * 1e12 / 2 / sms / (t.ClockGHz * 1e9)
	lanes := func(n int64, perClock float64) float64 { return float64(32*n) / perClock }
	r.Issue = share / clk * max(float64(l.Warp)/min(schedulers, there*aloneIssue), lanes(p.float, floatLanes),
		lanes(p.integer, 64), lanes(p.special, 16), lanes(p.memory, 32), lanes(p.f64, float64(t.F64PerClock)))

	r.L1 = (float64(l.Wavefronts) + float64(p.cached)/4) * share / clk

	asked := float64(32 * l.L2Sectors)
	r.L2 = max(asked/(t.L2GBps*1e3), asked*share/l2BytesClk/clk)

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
	r.DRAM = float64(32*dram) / (t.MemoryGBps * 1e3)

	trip := l2LatencyUS
	if far > 0 {
		trip += (memLatencyUS - l2LatencyUS) * float64(far) / float64(read)
	}
	n := float64(blocks * warps)
	wave := startUS + trip*(float64(p.loads)/n/loadsAtATime+p.rounds/n) + atomicUS*float64(p.atomics)/n + float64(p.barriers)/n*barrierClk/clk
	if p.loads > 0 {
		wave = max(wave, startUS+trip)
	}
	r.Latency = float64(r.Waves) * wave

	most := 0.0
	for _, x := range []struct {
		by string
		us float64
	}{{"tensor", r.Tensor}, {"issue", r.Issue}, {"L1", r.L1}, {"L2", r.L2}, {"DRAM", r.DRAM}, {"latency", r.Latency}} {
		if x.us > most {
			most, r.By = x.us, x.by
		}
	}
	if r.Gap > most {
		r.By = "launch"
	}
	r.US = r.Gap + most
	return r
}
