package cost

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
)

// TestOccupancy: figures of the CUDA occupancy calculator for compute capability 9.0 (64 warps, 64 K registers, 228 KB).
func TestOccupancy(t *testing.T) {
	h200, err := target.OfDevice("h200")
	require.NoError(t, err)
	for _, c := range []struct {
		threads, shared, regs int
		blocks, warps         int
		by                    string
	}{
		{256, 0, 32, 8, 64, "warps"},
		{256, 0, 64, 4, 32, "registers"},
		{128, 0, 255, 2, 8, "registers"},
		{32, 0, 16, 32, 32, "blocks"},
		{128, 48 << 10, 32, 4, 16, "shared memory"},
		{128, 0, 0, 16, 64, "warps"},
		{1024, 227 << 10, 32, 1, 32, "shared memory"},
	} {
		o := OccupancyOf(h200, c.threads, c.shared, c.regs)
		require.Equal(t, []any{c.blocks, c.warps, c.by}, []any{o.Blocks, o.Warps, o.LimitedBy}, "%+v", c)
	}
}

// TestABlockAloneWaitsAndComputes gives a multiprocessor one block: what it waits for and what it computes add up, but for the copies
// that arrive meanwhile.
func TestABlockAloneWaitsAndComputes(t *testing.T) {
	m := Of(target.Default())
	w := Work{Blocks: m.SMs, Warps: 8, Resident: 1, Products: []Products{{"f16", 1e9}}, Trips: 1, Streamed: 5, Barriers: 80}
	got := m.Estimate(&w)
	require.InEpsilon(t, 2e9/91e6, got.Tensor, 1e-9)
	require.InEpsilon(t, 0.3+0.25+1, got.Latency, 1e-9)
	require.InEpsilon(t, got.Tensor+got.Latency+m.LaunchUS, got.US, 1e-9)

	w.Streamed = 100 // copies come later than a block computes
	require.InEpsilon(t, 0.3+0.25+1+25, m.Estimate(&w).US-m.LaunchUS, 1e-9)
	w.DRAMBytes = 218e3
	got = m.Estimate(&w)
	require.InEpsilon(t, 0.3+0.7+1+70+float64(1*m.Exposed), got.US-m.LaunchUS, 1e-9)
}

// TestBlocksOfOtherWavesHideWaiting: four blocks after one another wait each for itself; where two share the multiprocessor the second
// pair waits while the first computes.
func TestBlocksOfOtherWavesHideWaiting(t *testing.T) {
	m := Of(target.Default())
	at := func(resident int) Time {
		return m.Estimate(&Work{Blocks: 4 * m.SMs, Warps: 8, Resident: resident, Products: []Products{{"f16", 1e9}}, Trips: 1})
	}
	one, two := at(1), at(2)
	require.InEpsilon(t, 4*0.55, one.Latency, 1e-9)
	require.InEpsilon(t, 0.55, two.Latency, 1e-9)
	require.Equal(t, []int{4, 2}, []int{one.Waves, two.Waves})
}

// TestOnlyTheBusiestMultiprocessorCounts: a block too many costs as much as one more for each.
func TestOnlyTheBusiestMultiprocessorCounts(t *testing.T) {
	m := Of(target.Default())
	at := func(blocks int) Time {
		return m.Estimate(&Work{Blocks: blocks, Warps: 8, Resident: 2, Products: []Products{{"f16", 1e6 * float64(blocks)}}})
	}
	require.InEpsilon(t, at(3*m.SMs).US, at(2*m.SMs+1).US, 1e-9)
	require.Equal(t, 2, at(2*m.SMs+1).Waves)
}

// TestReadsAndWritesOfL2: each by its own rate; both add up, or take as long as the slower of the two where those overlap. A multiprocessor
// has a rate of its own either way.
func TestReadsAndWritesOfL2(t *testing.T) {
	m := Of(target.Default())
	at := func(m *Machine, blocks int, read, written float64) float64 {
		return m.Estimate(&Work{Blocks: blocks, Warps: 8, Resident: 1, L2Read: read, L2Written: written}).L2
	}
	sms := m.SMs
	require.InEpsilon(t, 10, at(m, sms, 15e6, 0), 1e-9)
	require.InEpsilon(t, 10, at(m, sms, 0, 9.8e6), 1e-9)
	require.InEpsilon(t, 30, at(m, sms, 30e6, 9.8e6), 1e-9)
	require.InEpsilon(t, 9e6/1500e3+9e6/980e3, m.Copy(9e6).L2, 1e-9, "a copy does both")
	m.L2Together = 0.8
	require.InEpsilon(t, 24, at(m, sms, 30e6, 9.8e6), 1e-9)
	m.L2Together = 0.5
	require.InEpsilon(t, 20, at(m, sms, 30e6, 9.8e6), 1e-9, "no less than the reads")
	require.InEpsilon(t, 30, at(m, sms, 30e6, 29.4e6), 1e-9, "or the writes")
	m.L2Together = 1
	one := 64 * 2400. // bytes a µs
	require.InEpsilon(t, 2+3, at(m, 1, 2*one, 3*one), 1e-9)
	require.InEpsilon(t, 9.8e6/2/one, at(m, 2, 0, 9.8e6), 1e-9, "each of two multiprocessors writes half")
}

// TestL2_ModelKeepsRecentSectors leaves it evenly with what was touched meanwhile.
func TestL2_ModelKeepsRecentSectors(t *testing.T) {
	m := Of(target.Default())
	require.Equal(t, 18<<20, m.KeptBytes())
	for times, left := range map[float64]float64{0: 0, 1: 0, 1.2: 0.3, 4. / 3: 0.5, 5. / 3: 1, 9: 1} {
		require.InDelta(t, left, m.Left(times*18*(1<<20)), 1e-9, times)
	}
	m.KeptShare = 0.5
	require.Equal(t, 0.75, m.Left(18<<20))
}

// TestSequence_DependentLaunchesFetchEarly: a launch's bytes overlap the preceding launch as far as that one
// leaves DRAM time.
func TestSequence_DependentLaunchesFetchEarly(t *testing.T) {
	m := Of(target.Default())
	computes := m.Estimate(&Work{Blocks: m.SMs, Warps: 8, Resident: 1, Products: []Products{{"f16", 1e9}}})
	fetches := m.Estimate(&Work{Blocks: m.SMs, Warps: 8, Resident: 1, DRAMBytes: 218e3 * 30, EarlyBytes: 218e3 * 30}) // 30 µs
	plain := []bool{false, false, false, false}
	dependent := []bool{false, true, true, true}
	require.InEpsilon(t, computes.US+fetches.US, Sequence([]Time{computes, fetches}, plain), 1e-9)
	require.InEpsilon(t, 30, Sequence([]Time{computes, fetches}, dependent), 1e-9, "fetched from the first launch's begin on")
	all := []Time{computes, fetches, fetches, computes}
	require.InEpsilon(t, 60+computes.US, Sequence(all, dependent), 1e-9, "all bytes, and what comes behind the last")
	require.InEpsilon(t, 4*computes.US, Sequence([]Time{computes, computes, computes, computes}, dependent), 1e-9)

	// Bytes that are not constants wait for the preceding launch. A third that are constants overlap it.
	waits := m.Estimate(&Work{Blocks: m.SMs, Warps: 8, Resident: 1, DRAMBytes: 218e3 * 30})
	require.InEpsilon(t, computes.US+waits.US, Sequence([]Time{computes, waits}, dependent), 1e-9)
	third := m.Estimate(&Work{Blocks: m.SMs, Warps: 8, Resident: 1, DRAMBytes: 218e3 * 30, EarlyBytes: 218e3 * 10})
	require.InEpsilon(t, computes.US+third.US-10, Sequence([]Time{computes, third}, dependent), 1e-9)
}

// TestPrefetchesBeginWithTheLaunchThatAsks: prefetched bytes arrive while launches compute, after what those load
// themselves. The consumer waits for its share.
func TestPrefetchesBeginWithTheLaunchThatAsks(t *testing.T) {
	m := Of(target.Default())
	const us = 218e3 // bytes that DRAM delivers
	dependent := []bool{false, true, true}
	work := func(w Work) Time {
		w.Blocks, w.Warps, w.Resident, w.Products = m.SMs, 8, 1, []Products{{"f16", 1e9}}
		return m.Estimate(&w)
	}
	plain, asks := work(Work{}), work(Work{Fetches: 100 * us})
	require.Equal(t, plain.US, asks.US, "asking takes no time")
	require.InEpsilon(t, 3*plain.US, Sequence([]Time{asks, plain, plain}, dependent), 1e-9, "nobody waits")
	require.InEpsilon(t, 100, Sequence([]Time{asks, plain, work(Work{After: 0, Awaits: 100 * us})}, dependent), 1e-9)
	require.InEpsilon(t, 2*plain.US, Sequence([]Time{asks, work(Work{After: 0, Awaits: plain.US * us})}, dependent), 1e-9, "the part that it reads has come")
	require.InEpsilon(t, plain.US+100, Sequence([]Time{plain, asks, work(Work{After: 1, Awaits: 100 * us})}, dependent), 1e-9)
	// A launch's own loads wait for what was asked for before, and what it asks for waits for them.
	loads := work(Work{DRAMBytes: 10 * us})
	require.InEpsilon(t, 110, Sequence([]Time{asks, loads, plain}, dependent)-plain.US, 1e-9)
	both := work(Work{DRAMBytes: 10 * us, Fetches: 100 * us})
	require.InEpsilon(t, 110, Sequence([]Time{both, work(Work{After: 0, Awaits: 100 * us})}, dependent), 1e-9)
}

// TestPrefetches_SlowOrDropped: prefetches at half of DRAM's rate arrive in twice the time; what is dropped takes its
// reader's time instead.
func TestPrefetches_SlowOrDropped(t *testing.T) {
	const us = 218e3 // bytes that DRAM delivers
	sequence := func(m *Machine) float64 {
		work := Work{Blocks: m.SMs, Warps: 8, Resident: 1}
		asks, reads := work, work
		asks.Fetches = 100 * us
		reads.Prefetched, reads.Awaits = 100*us, 100*us
		return Sequence([]Time{m.Estimate(&asks), m.Estimate(&reads)}, []bool{false, true})
	}
	m := Of(target.Default())
	require.InEpsilon(t, 100, sequence(m), 1e-9)
	m.PrefetchRate = 0.5
	require.InEpsilon(t, 200, sequence(m), 1e-9)
	m.PrefetchRate, m.PrefetchKept = 1, 0
	asks := m.Estimate(&Work{Blocks: m.SMs, Warps: 8, Resident: 1})
	reads := m.Estimate(&Work{Blocks: m.SMs, Warps: 8, Resident: 1, DRAMBytes: 100 * us})
	require.InEpsilon(t, asks.US+reads.US, sequence(m), 1e-9, "the reader loads it all")
	m.PrefetchKept = 0.75
	require.InEpsilon(t, 100, sequence(m), 1e-9, "DRAM serves each byte once")
}

// TestFewBlocks_IssueMoreSlowly where a device places two on one multiprocessor, but neither one block nor a full
// launch.
func TestFewBlocks_IssueMoreSlowly(t *testing.T) {
	m := Of(target.Default())
	at := func(blocks int) float64 {
		return m.Estimate(&Work{Blocks: blocks, Warps: 16, Resident: 2, Issued: 1e6 * float64(blocks)}).Issue
	}
	full := at(m.SMs)
	require.Equal(t, full, at(m.SMs/2))
	m.FewBlocksIssue = 0.5
	require.InEpsilon(t, 2*full, at(m.SMs/2), 1e-9)
	require.InEpsilon(t, 2*full, at(2), 1e-9)
	require.Equal(t, full, at(1))
	require.Equal(t, full, at(m.SMs))
}

// TestNothingWaitsForWhatIsWrittenBack: write-back takes DRAM time after the launch's reads, but no round trip.
// Neither the launch nor a later one that reads nothing waits for it.
func TestNothingWaitsForWhatIsWrittenBack(t *testing.T) {
	m := Of(target.Default())
	const us = 218e3 // bytes that DRAM delivers
	dependent := []bool{false, true, true}
	work := func(w Work) Time {
		w.Blocks, w.Warps, w.Resident, w.Loads = m.SMs, 8, 1, 1
		return m.Estimate(&w)
	}
	plain, asks, back := work(Work{}), work(Work{Fetches: 100 * us}), work(Work{DRAMBytes: us / 100, Back: us / 100})
	require.Equal(t, plain.Latency, back.Latency)
	require.InEpsilon(t, plain.Latency+m.MemoryLatencyUS-m.CacheLatencyUS, work(Work{DRAMBytes: us / 100}).Latency, 1e-9)
	require.InDelta(t, 3*plain.US, Sequence([]Time{asks, back, plain}, dependent), 0.01)
	require.InDelta(t, 100, Sequence([]Time{asks, work(Work{DRAMBytes: us / 100}), plain}, dependent)-plain.US, 0.02)
	most := work(Work{DRAMBytes: 20 * us, Back: 20 * us})
	require.Less(t, 20.0, most.US, "a launch that writes more than DRAM takes meanwhile")
	require.InDelta(t, most.US+10, Sequence([]Time{most, work(Work{DRAMBytes: 10 * us})}, dependent), 2)
}

// TestCodeCountsLoops counts a kernel with a loop of 10 rounds, in 3 blocks of 2 warps.
func TestCodeCountsLoops(t *testing.T) {
	k := ptx.NewModule("sm_121").NewKernel("k", 64)
	i, f, more := k.Reg(ptx.B32), k.Reg(ptx.F32), k.Reg(ptx.Pred)
	address := k.Reg(ptx.B64)
	skip, loop := k.NewLabel("skip"), k.NewLabel("loop")
	k.I("mov.b32", i, ptx.Imm(0))
	k.If(more, "bra", skip)
	k.Place(loop)
	k.I("ld.global.f32", f, ptx.At(address, 0))
	k.I("fma.rn.f32", f, f, f, f)
	k.I("add.s32", i, i, ptx.Imm(1))
	k.I("setp.lt.s32", more, i, ptx.Imm(10))
	k.If(more, "bra", loop)
	k.Place(skip)
	k.I("st.shared.f32", ptx.At(i, 0), f)
	k.I("st.global.f32", ptx.At(address, 0), f)
	w := Work{Blocks: 3, Warps: 2}
	asked, written := w.Code(k, map[int]float64{3: 4, 9: 2})
	require.Equal(t, 6*10*4.0, asked)
	require.Equal(t, 6*2.0, written)
	require.Equal(t, Work{Blocks: 3, Warps: 2, Issued: 6 * (2 + 10*5 + 2), Float: 60, Integer: 120, Memory: 72, Wavefronts: 66, Loads: 10}, w)
}
