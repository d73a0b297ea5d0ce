package profile

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
)

// TestModel_NamesBound gives the model launches that do much of one thing.
func TestModel_NamesBound(t *testing.T) {
	gb10, err := target.OfDevice("gb10")
	require.NoError(t, err)
	site := func(op string, warps int64) emu.Site {
		return emu.Site{Instr: &ptx.Instr{Def: ptx.Lookup(op), Operands: []ptx.Operand{ptx.Imm(0)}}, Warps: warps, Lanes: 32 * warps}
	}
	for _, c := range []struct {
		by     string
		us     float64 // of that term, by hand
		change func(*emu.Counts)
	}{
		// 48e6 · 2048 MACs at 91 TFLOPS
		{"tensor", 48e6 * 2048 * 2 / 91e6, func(c *emu.Counts) {
			c.Sites = append(c.Sites, site("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 48e6))
		}},
		// 48e6 warps of 16 lanes a clock on 48 multiprocessors of 2.4 GHz
		{"issue", 48e6 * 2 / 48 / 2400, func(c *emu.Counts) { c.Sites = append(c.Sites, site("ex2.approx.f32", 48e6)) }},
		{"L1", 48e7 / 48 / 2400, func(c *emu.Counts) {
			s := site("ld.shared.b32", 48e6)
			s.Wavefronts = 48e7
			c.Sites = append(c.Sites, s)
		}},
		{"L2", 48e6 * 16 * 32 / 1500e3, func(c *emu.Counts) {
			s := site("ld.global.f32", 48e6)
			s.Sectors, s.L2Sectors = 48e6*16, 48e6*16
			c.Sites = append(c.Sites, s)
		}},
		// Stores have the rate of writes; with loads, the times add up.
		{"L2", 48e6 * 16 * 32 / 980e3, func(c *emu.Counts) {
			s := site("st.global.f32", 48e6)
			s.Sectors, s.L2Sectors = 48e6*16, 48e6*16
			c.Sites = append(c.Sites, s)
		}},
		{"L2", 48e6*16*32/1500e3 + 48e6*8*32/980e3, func(c *emu.Counts) {
			l, s := site("ld.global.f32", 48e6), site("st.global.f32", 48e6)
			l.L2Sectors, s.L2Sectors = 48e6*16, 48e6*8
			c.Sites = append(c.Sites, l, s)
		}},
		{"latency", 0.3 + 0.25*10, func(c *emu.Counts) { c.Sites = append(c.Sites, site("cp.async.wait_group", 48*8*10)) }},
		{"launch", gb10.LaunchUS, func(c *emu.Counts) {}},
	} {
		counts := &emu.Counts{Kernel: "k", Grid: [3]int{48, 1, 1}, Block: [3]int{256, 1, 1}}
		c.change(counts)
		l := Launch{Grid: counts.Grid, Block: counts.Block}
		l.count(counts)
		l.Occupancy = cost.OccupancyOf(gb10, 256, 0, 0)
		r := cost.Of(gb10).Estimate(l.work(gb10, counts))
		require.Equal(t, c.by, r.By, "%+v", r)
		terms := map[string]float64{"tensor": r.Tensor, "issue": r.Issue, "L1": r.L1, "L2": r.L2, "latency": r.Latency, "launch": r.Gap}
		require.InEpsilon(t, c.us, terms[c.by], 1e-6, "%s: %+v", c.by, r)
		require.GreaterOrEqual(t, r.US, terms[c.by])
	}
}

// byHand returns counts of one launch in which every number differs from every other, and what a profile makes of them.
func byHand() (*emu.Counts, Counts) {
	in := &emu.Counts{Kernel: "k", Grid: [3]int{1, 1, 1}, Block: [3]int{32, 1, 1}}
	site := func(op string, s emu.Site) {
		s.Instr = &ptx.Instr{Def: ptx.Lookup(op)}
		in.Sites = append(in.Sites, s)
	}
	site("add.u32", emu.Site{Warps: 1, Lanes: 32})
	site("fma.rn.f32", emu.Site{Warps: 2, Lanes: 50})
	site("fma.rn.f32x2", emu.Site{Warps: 3, Lanes: 70})
	site("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", emu.Site{Warps: 4, Lanes: 128})
	site("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", emu.Site{Warps: 5, Lanes: 160})
	site("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", emu.Site{Warps: 6, Lanes: 192})
	site("ld.global.f32", emu.Site{Warps: 7, Lanes: 200, Sectors: 100, SectorBytes: 800, L2Sectors: 60})
	site("st.global.f32", emu.Site{Warps: 8, Lanes: 240, Sectors: 20, SectorBytes: 640, L2Sectors: 20})
	site("atom.global.add.f32", emu.Site{Warps: 9, Lanes: 11, Sectors: 5, SectorBytes: 44, L2Sectors: 5})
	site("ld.shared.b32", emu.Site{Warps: 10, Lanes: 320, Wavefronts: 35, Conflicts: 25})
	site("bar.sync", emu.Site{Warps: 12, Lanes: 384})
	site("bra", emu.Site{Warps: 13, Lanes: 400, Divergent: 3})
	in.Memories = []emu.Touched{
		{ReadBytes: 700, WriteBytes: 640, ReadSectors: 30, WriteSectors: 20},
		{ReadBytes: 1000, ReadSectors: 40, PrefetchSectors: 9, Constant: true},
	}
	const macs = 16 * 8 * 16 // of an mma
	return in, Counts{
		Instructions: map[string]int64{"integer": 1, "float": 2 + 3, "mma": 4 + 5 + 6, "load": 7 + 10, "store": 8, "atomic": 9,
			"sync": 12, "control": 13},
		Warp: 80, Thread: 2187, ActiveLanes: 2187. / 80, Divergent: 3,
		MMA:  []MMA{{"m16n8k16.row.col.f32.bf16.bf16.f32", 5, 5 * macs}, {"m16n8k16.row.col.f32.f16.f16.f32", 10, 10 * macs}},
		MACs: 15 * macs, FMAs: 50 + 2*70, Barriers: 12, Atomics: 11,
		Sectors: 125, SectorBytes: 1484, Coalescing: 1484. / (32 * 125), L2Read: 60, L2Written: 25,
		Prefetched: 9 * 32, UniqueRead: 1700, UniqueWrite: 640, Constants: 1000, Wavefronts: 35, Conflicts: 25,
	}
}

func TestLaunch_CountsInstructionsByTheirKind(t *testing.T) {
	in, want := byHand()
	var l Launch
	l.count(in)
	require.Equal(t, want, l.Counts)
}

// TestLaunch_CountsEveryInstruction: of the whole table, that of other compilers' PTX included.
func TestLaunch_CountsEveryInstruction(t *testing.T) {
	for _, op := range ptx.Opcodes() {
		d := ptx.Lookup(op)
		c := &emu.Counts{Grid: [3]int{1, 1, 1}, Block: [3]int{32, 1, 1}}
		c.Sites = []emu.Site{{Instr: &ptx.Instr{Def: d, Operands: []ptx.Operand{ptx.Imm(0)}}, Warps: 2, Lanes: 64}}
		l := Launch{Grid: c.Grid, Block: c.Block}
		require.NotPanics(t, func() { l.count(c) }, op)
		require.Equal(t, map[string]int64{classes[d.Kind]: 2}, l.Instructions, op)
		require.NotEmpty(t, classes[d.Kind], op)
		require.Equal(t, d.Does == ptx.Multiply, l.MACs > 0, op)
		require.Equal(t, d.Name == "fma", l.FMAs > 0, op)
	}
}

// TestProfile_SumsLaunches: of three launches, the first and the last of one kernel. The last one is dependent, and its
// time is hidden: the total has it not, but the sum of the launches by themselves has.
func TestProfile_SumsLaunches(t *testing.T) {
	in, once := byHand()
	once.DRAM, once.ColdDRAM = 17, 19
	launch := func(kernel, by string, us, cold float64) Launch {
		l := Launch{Kernel: kernel, Grid: [3]int{2, 3, 5}, Block: [3]int{32, 2, 1}, Time: cost.Time{US: us, By: by},
			ColdUS: cold, cold: cost.Time{US: cold}}
		l.count(in)
		l.DRAM, l.ColdDRAM = 17, 19
		return l
	}
	p := &Profile{Launches: []Launch{launch("a", "latency", 2, 3), launch("b", "L2", 5, 7), launch("a", "latency", 4, 6)}}
	p.Launches[2].dependent = true
	p.sum()

	times := func(n int) Counts {
		c, x := once, int64(n)
		c.Instructions = map[string]int64{}
		for kind, warps := range once.Instructions {
			c.Instructions[kind] = x * warps
		}
		c.MMA = nil
		for _, m := range once.MMA {
			c.MMA = append(c.MMA, MMA{m.Op, x * m.Warps, x * m.MACs})
		}
		for _, f := range []*int64{&c.Warp, &c.Thread, &c.Divergent, &c.MACs, &c.FMAs, &c.Barriers, &c.Atomics, &c.Sectors,
			&c.SectorBytes, &c.L2Read, &c.L2Written, &c.DRAM, &c.ColdDRAM, &c.Prefetched, &c.UniqueRead, &c.UniqueWrite,
			&c.Constants, &c.Wavefronts, &c.Conflicts} {
			*f *= x
		}
		return c
	}
	require.Equal(t, Sum{Launches: 3, Counts: times(3), US: 7, ColdUS: 10, Share: 1, By: "latency"}, p.Total)
	require.Equal(t, []Sum{
		{Kernel: "a", Launches: 2, Counts: times(2), US: 6, ColdUS: 9, Share: 6. / 11, By: "latency", Blocks: 30, Threads: 64},
		{Kernel: "b", Launches: 1, Counts: times(1), US: 5, ColdUS: 7, Share: 5. / 11, By: "L2", Blocks: 30, Threads: 64},
	}, p.Kernels)
	require.Equal(t, []Bound{{"latency", 2, 6}, {"L2", 1, 5}}, p.Bounds)
	require.Equal(t, 11.0, p.AloneUS)
	for i, ends := range [][2]float64{{2, 3}, {7, 10}, {7, 10}} {
		require.Equal(t, ends, [2]float64{p.Launches[i].EndUS, p.Launches[i].ColdEndUS})
	}
}

// TestReadsAndWritesOfL2AreSeparate: loads and copies read, stores and atomics write, and what a first-level cache serves is neither.
func TestReadsAndWritesOfL2AreSeparate(t *testing.T) {
	c := &emu.Counts{Grid: [3]int{1, 1, 1}, Block: [3]int{32, 1, 1}}
	for i, op := range []string{"ld.global.f32", "cp.async.cg.shared.global", "st.global.f32", "atom.global.add.f32"} {
		d := ptx.Lookup(op)
		require.NotNil(t, d, op)
		c.Sites = append(c.Sites, emu.Site{Instr: &ptx.Instr{Def: d}, Warps: 1, Sectors: 1000, L2Sectors: []int64{1, 20, 300, 4000}[i]})
	}
	l := Launch{Grid: c.Grid, Block: c.Block}
	l.count(c)
	require.Equal(t, []int64{21, 4300}, []int64{l.L2Read, l.L2Written})
	w := l.work(target.Default(), c)
	require.Equal(t, []float64{32 * 21, 32 * 4300}, []float64{w.L2Read, w.L2Written})
}

// TestATailBlockCostsAWave: 49 blocks on 48 multiprocessors take as long as 96.
func TestATailBlockCostsAWave(t *testing.T) {
	gb10, err := target.OfDevice("gb10")
	require.NoError(t, err)
	time := func(blocks int) float64 {
		c := &emu.Counts{Grid: [3]int{blocks, 1, 1}, Block: [3]int{1024, 1, 1}}
		c.Sites = []emu.Site{{Instr: &ptx.Instr{Def: ptx.Lookup("ex2.approx.f32")}, Warps: int64(blocks) * 1e6}}
		l := Launch{Grid: c.Grid, Block: c.Block}
		l.count(c)
		l.Occupancy = cost.OccupancyOf(gb10, 1024, 0, 0)
		return cost.Of(gb10).Estimate(l.work(gb10, c)).Issue
	}
	require.InEpsilon(t, 2*time(48), time(49), 1e-9)
	require.InEpsilon(t, time(96), time(49), 1e-9)
}
