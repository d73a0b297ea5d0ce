package profile

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
)

// TestWhatBoundsALaunch gives the model launches that do much of one thing.
func TestWhatBoundsALaunch(t *testing.T) {
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

// TestReadsAndWritesOfL2AreApart: loads and copies read, stores and atomics write, and what a first-level cache serves is neither.
func TestReadsAndWritesOfL2AreApart(t *testing.T) {
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
