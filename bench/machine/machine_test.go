package machine

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/internal/testing/simulated"
	"github.com/spark-compile/spark-compile/internal/toolchain"
)

func simulate(t *testing.T, on *cost.Machine) *simulated.Device {
	d, err := simulated.Open(on)
	require.NoError(t, err)
	return d
}

var errFault = errors.New("a fault")

// changed is a machine that differs from a target's row: constants by value, and all others by factors that differ
// from one to the next.
func changed(t *testing.T, row *target.Target, values map[string]float64) *cost.Machine {
	figures := map[string]cost.Figure{}
	for i, c := range cost.Of(row).All() {
		x, ok := values[c.Name]
		if !ok {
			x = cost.Of(row).Value(c) * (1.2 + 0.05*float64(i%4))
		}
		figures[c.Name] = cost.Figure{Low: x, Middle: x, High: x}
	}
	on, err := cost.Measure(row, figures)
	require.NoError(t, err)
	return cost.Of(on)
}

// machines are those that tests of the measurement find again, with two values of each constant: rates that warps
// cannot issue faster than, the latency of multiply-adds by which the clock is found, and shares.
func machines(t *testing.T) []*cost.Machine {
	row := target.Default()
	f32 := 0.9 * row.TFLOPS["f32"]
	return []*cost.Machine{
		changed(t, row, map[string]float64{"tflops_f32": f32, "alone_issue": 1. / fmaClocks, "l2_together": 0.75,
			"evict_first": 0, "prefetch_rate": 0.7, "prefetch_kept": 0.6, "few_blocks_issue": 0.5, "launch_plain_us": 1.3}),
		changed(t, row, map[string]float64{"tflops_f32": f32, "alone_issue": 1. / fmaClocks, "l2_together": 0.95,
			"memory_gbps": 250,
			"kept_share":  0.75, "launch_us": 0.9, "atomic_us": 1.9, "start_us": 0.4,
			"evict_first": 1, "prefetch_rate": 1, "prefetch_kept": 1, "few_blocks_issue": 0.9, "launch_plain_us": 0.9}),
	}
}

// found are the constants that measurements find, and how far off they may be. A loop's own instructions count with
// barriers and gaps, and waiting for loads with what one multiprocessor reads.
var found = map[string]float64{"clock_ghz": 0.05, "launch_us": 0.08, "launch_plain_us": 0.06, "start_us": 0.05,
	"tflops_f32": 0.1, "tflops_f16": 0.03, "tflops_bf16": 0.03, "tflops_e4m3": 0.03, "tflops_e2m1": 0.03,
	"busy_warps":     0.05,
	"barrier_clocks": 0.08, "atomic_us": 0.05,
	"l2_read_gbps": 0.1, "l2_write_gbps": 0.1, "l2_together": 0.1, "kept_share": 0.05,
	"l2_bytes_clock": 0.16, "memory_gbps": 0.1,
	"prefetch_rate": 0.06, "prefetch_kept": 0.05, "evict_first": 0.05, "few_blocks_issue": 0.03}

// measureAll measures a simulated machine.
func measureAll(t *testing.T, on *cost.Machine, noise simulated.Noise, samples int) *cost.File {
	s := simulate(t, on)
	s.Noise = noise
	f, err := measure(t.Context(), s, Options{Samples: samples}, sizes{fill: on.SMs, rounds: 50, steps: 64, nodes: 20,
		blocks: 8, l2: on.L2Bytes, cached: on.L2Bytes / 4, memory: 2 * on.L2Bytes, passes: 2, repeats: 40, work: 1})
	require.NoError(t, err)
	require.Empty(t, f.DryRun)
	return f
}

// requireFound holds figures against a machine's, within their bounds times a factor. Shares may be 0, so they are
// held to their difference.
func requireFound(t *testing.T, on *cost.Machine, f *cost.File, factor float64) {
	t.Helper()
	for _, c := range on.All() {
		within, ok := found[c.Name]
		if !ok {
			continue
		}
		x, ok := f.Figures[c.Name]
		if !assert.True(t, ok, "%s: %s", c.Name, f.Left[c.Name]) {
			continue
		}
		want := on.Value(c)
		if c.Unit != "share" {
			within *= want
		}
		assert.InDelta(t, want, x.Middle, within*factor, c.Name)
	}
}

// TestMeasure_RecoversModelConstants measures machines that take what the model says, and finds the model's
// constants, though it knew others. What the model has no term for is not asked of it: loads that wait for each
// other, what a host waits, and what a term does not hide.
func TestMeasure_RecoversModelConstants(t *testing.T) {
	fulltest.Long(t)
	for _, on := range machines(t) {
		f := measureAll(t, on, simulated.Noise{}, 1)
		requireFound(t, on, f, 1)
		require.Contains(t, f.Left, "exposed")
		latencies := f.Figures["memory_latency_us"].Middle / f.Figures["cache_latency_us"].Middle
		require.InEpsilon(t, on.MemoryLatencyUS/on.CacheLatencyUS, latencies, 0.15, "DRAM serves what L2 was flushed of")
	}
}

// TestMeasure_FindsConstantsDespiteNoise: times that vary by percents, a few of them three times as long.
func TestMeasure_FindsConstantsDespiteNoise(t *testing.T) {
	fulltest.Long(t)
	for i, on := range machines(t) {
		requireFound(t, on, measureAll(t, on, simulated.Noise{Seed: uint64(i), Jitter: 0.02, Outliers: 0.04}, 15), 1.75)
	}
}

// TestMeasure_FindsL2Capacity, little or much of it.
func TestMeasure_FindsL2Capacity(t *testing.T) {
	row := target.Default()
	for _, share := range []float64{0.55, 1.1} {
		other, err := cost.Measure(row, map[string]cost.Figure{"kept_share": {Low: share, Middle: share, High: share}})
		require.NoError(t, err)
		f := measureOnly(t, kept, cost.Of(other), sizes{fill: row.SMs, l2: row.L2Bytes, memory: 3 * row.L2Bytes, passes: 1})
		found, ok := f.Figures["kept_share"]
		require.True(t, ok, f.Left["kept_share"])
		require.InEpsilon(t, share, found.Middle, 0.04)
		require.InEpsilon(t, share, found.Low, 0.12)
		require.InEpsilon(t, share, found.High, 0.12)
	}
	even, err := cost.Measure(row, map[string]cost.Figure{"memory_gbps": {Low: 1500, Middle: 1500, High: 1500}})
	require.NoError(t, err)
	f := measureOnly(t, kept, cost.Of(even), sizes{fill: row.SMs, l2: 1 << 20, memory: row.L2Bytes, passes: 1})
	require.Contains(t, f.Left["kept_share"], "memory seems as fast as L2")
	f = measureOnly(t, kept, cost.Of(row), sizes{fill: row.SMs, l2: row.L2Bytes / 3, memory: 3 * row.L2Bytes, passes: 1})
	require.Contains(t, f.Left["kept_share"], "twice what L2 is said to hold")
}

// measureOnly is the file of one measurement on a simulated device.
func measureOnly(t *testing.T, one func(r *rig) error, on *cost.Machine, amounts sizes) *cost.File {
	return measureOn(t, one, simulate(t, on), on, amounts)
}

// measureOn is the file of one measurement on a device that is a machine.
func measureOn(t *testing.T, one func(r *rig) error, s hal.Device, on *cost.Machine, amounts sizes) *cost.File {
	row, err := target.Lookup(on.Name)
	require.NoError(t, err)
	r := &rig{ctx: t.Context(), device: s, opt: Options{Samples: 1}, on: cost.Of(row), sizes: amounts,
		file: &cost.File{Figures: map[string]cost.Figure{}, Left: map[string]string{}}}
	r.code, err = s.Load(t.Context(), hal.Image{Name: "machine", Target: on.Name, PTX: kernels(on.Target).String()})
	require.NoError(t, err)
	r.out, err = r.alloc(4*amounts.fill*streamThreads, hal.DeviceMemory)
	require.NoError(t, err)
	require.NoError(t, one(r))
	require.NoError(t, r.close())
	return r.file
}

// TestADryRunGoesThroughEverything runs every kernel on the CPU device with its checks, and makes a file that describes no GPU.
func TestADryRunGoesThroughEverything(t *testing.T) {
	d, err := emu.Open(emu.Options{Check: true})
	require.NoError(t, err)
	defer d.Close()
	var notes []string
	f, err := Measure(t.Context(), d, Options{Samples: 1, Note: func(s string) { notes = append(notes, s) }})
	require.NoError(t, err)
	require.Len(t, notes, len(measurements))
	require.Contains(t, f.DryRun, "CPU device")
	on, err := target.Lookup(f.Target)
	require.NoError(t, err)
	_, err = f.On(on)
	require.ErrorContains(t, err, "describes no GPU")
	for _, c := range cost.Of(on).All() {
		_, measured := f.Figures[c.Name]
		require.True(t, measured != (f.Left[c.Name] != ""), c.Name)
	}
}

// TestAFaultLeavesTheOtherMeasurements, and is reported as an error with them.
func TestAFaultLeavesTheOtherMeasurements(t *testing.T) {
	for _, at := range []int{1, 9} {
		s := simulate(t, cost.Of(target.Default()))
		left := at
		s.Fail = func() error {
			if left--; left == 0 {
				return errFault
			}
			return nil
		}
		f, err := measure(t.Context(), s, Options{Samples: 1}, dry)
		require.ErrorIs(t, err, errFault)
		require.ErrorContains(t, err, "measuring ")
		require.Equal(t, at != 1, f.Figures["clock_ghz"].Middle > 0)
		require.Contains(t, f.Figures, "memory_gbps")
		if at == 1 {
			require.Equal(t, "not all could be measured: the published figure stays", f.Left["clock_ghz"])
		}
	}
	s := simulate(t, cost.Of(target.Default()))
	s.Fail = func() error { return errFault }
	f, err := measure(t.Context(), s, Options{Samples: 1}, dry)
	require.ErrorIs(t, err, errFault)
	require.Nil(t, f, "nothing was found")
}

// TestAnEndInTheMiddle: what was found until then is kept.
func TestAnEndInTheMiddle(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	defer end()
	s, runs := simulate(t, cost.Of(target.Default())), 0
	s.Fail = func() error {
		if runs++; runs == 9 {
			end()
		}
		return nil
	}
	f, err := measure(ctx, s, Options{Samples: 1}, dry)
	require.ErrorIs(t, err, context.Canceled)
	require.Contains(t, f.Figures, "clock_ghz")
	require.NotContains(t, f.Figures, "memory_gbps")
	_, err = measure(ctx, simulate(t, cost.Of(target.Default())), Options{Samples: 1}, dry)
	require.ErrorIs(t, err, context.Canceled)
}

// TestTheClockIsRaisedBeforeItIsMeasured: of a device that was idle.
func TestTheClockIsRaisedBeforeItIsMeasured(t *testing.T) {
	require.GreaterOrEqual(t, full(target.Default()).warm, time.Second)
	s := simulate(t, cost.Of(target.Default()))
	var first time.Time
	s.Fail = func() error {
		if first.IsZero() {
			first = time.Now()
		}
		return nil
	}
	amounts := dry
	amounts.warm = 200 * time.Millisecond
	begin := time.Now()
	_, err := measure(t.Context(), s, Options{Samples: 1}, amounts)
	require.NoError(t, err)
	require.GreaterOrEqual(t, first.Sub(begin), amounts.warm)
}

// TestRingsGoThroughEveryLine once before they come back.
func TestRingsGoThroughEveryLine(t *testing.T) {
	d, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	defer d.Close()
	for _, lines := range []int{1, 2, 8, 40, 77, 512} {
		m, err := d.Alloc(lines*lineBytes, hal.DeviceMemory)
		require.NoError(t, err)
		require.NoError(t, ring(m))
		seen, at := map[uint32]bool{}, uint32(0)
		for !seen[at] {
			seen[at] = true
			at = words(t, m)[at/4]
		}
		require.Len(t, seen, lines)
		require.Zero(t, at)
		require.NoError(t, m.Free())
	}
}

func float(x uint32) float32 { return math.Float32frombits(x) }

func words(t *testing.T, m hal.Memory) []uint32 {
	raw := make([]byte, m.Size())
	require.NoError(t, m.Read(raw, 0))
	out := make([]uint32, len(raw)/4)
	for i := range out {
		out[i] = uint32(raw[4*i]) | uint32(raw[4*i+1])<<8 | uint32(raw[4*i+2])<<16 | uint32(raw[4*i+3])<<24
	}
	return out
}

// TestKernelsDoTheirWork: a kernel that the assembler could leave out, or that does another amount, would measure something else.
func TestKernelsDoTheirWork(t *testing.T) {
	d, err := emu.Open(emu.Options{Check: true})
	require.NoError(t, err)
	defer d.Close()
	on := target.Default()
	code, err := d.Load(t.Context(), hal.Image{Name: "machine", Target: on.Name, PTX: kernels(on).String()})
	require.NoError(t, err)
	r := &rig{ctx: t.Context(), device: d, on: cost.Of(on), sizes: dry, code: code}
	r.out, err = r.alloc(8*streamThreads, hal.DeviceMemory)
	require.NoError(t, err)
	run := func(op hal.Op) []uint32 {
		g, err := r.graph(op)
		require.NoError(t, err)
		require.NoError(t, g.Run(t.Context()))
		return words(t, r.out)
	}
	for _, p := range products {
		// K ones times ones a product, in accumulators of them, three rounds.
		k := p.macs / 16 / 8
		require.Equal(t, float32(3*accumulators*k), float(run(r.op("mma_"+p.dtype, 1, 32, 3))[0]), p.dtype)
	}
	m, err := r.alloc(40*lineBytes, hal.DeviceMemory)
	require.NoError(t, err)
	require.NoError(t, ring(m))
	at := uint32(0)
	for range 7 {
		at = words(t, m)[at/4]
	}
	require.Equal(t, at, run(r.op("chase", 1, 1, 7, m))[0])

	counters, err := r.alloc(8, hal.DeviceMemory)
	require.NoError(t, err)
	run(r.op("atomic", 2, 256, 5, counters))
	require.Equal(t, []uint32{5, 5}, words(t, counters))

	big, err := r.alloc(2*streamUnit, hal.DeviceMemory)
	require.NoError(t, err)
	fill := make([]byte, big.Size())
	fill[4*3], fill[streamUnit+4*3] = 5, 9 // the fourth word of each part, of thread 0
	require.NoError(t, big.Write(fill, 0))
	got := run(r.op("read", 2, streamThreads, 1, big, streamUnit))
	require.Equal(t, []uint32{5, 9}, []uint32{got[0], got[streamThreads]})
	got = run(r.op("read", 2, streamThreads, 2, big, streamUnit))
	require.Equal(t, []uint32{5 ^ 9, 5 ^ 9}, []uint32{got[0], got[streamThreads]}, "the second round takes the next part")
	run(r.op("write", 2, streamThreads, 1, big, streamUnit))
	after := words(t, big)
	require.Equal(t, uint32(4*(streamVectors-1)+3+streamThreads-1), after[len(after)-1])
	both, err := r.alloc(4*streamUnit, hal.DeviceMemory)
	require.NoError(t, err)
	require.NoError(t, both.Write(fill, 0))
	run(r.op("copy", 2, streamThreads, 1, both, streamUnit))
	after = words(t, both)
	require.Equal(t, after[:len(after)/2], after[len(after)/2:])
	run(r.op("copy", 2, streamThreads, 2, both, streamUnit))
	after = words(t, both)
	const unit = streamUnit / 4
	require.Equal(t, []uint32{5, 9, 9, 5}, []uint32{after[3], after[unit+3], after[2*unit+3], after[3*unit+3]}, "the second round takes the next part, and writes to the same place")

	sum := uint32(0)
	lines, err := r.alloc(together*lineBytes*2, hal.DeviceMemory)
	require.NoError(t, err)
	require.NoError(t, ring(lines))
	for i, x := range words(t, lines) {
		if i%(lineBytes/4) == 0 {
			sum += x
		}
	}
	require.Equal(t, sum, run(r.op("loads", 1, 32, 2, lines))[0])
}

// TestKernels_OfMechanismsDoTheirWork: all bytes are prefetched, in slices; blocks count each other; copies with a
// policy copy.
func TestKernels_OfMechanismsDoTheirWork(t *testing.T) {
	var counts []*emu.Counts
	d, err := emu.Open(emu.Options{Check: true, Profile: func(c *emu.Counts) { counts = append(counts, c) }})
	require.NoError(t, err)
	defer d.Close()
	on := target.Default()
	code, err := d.Load(t.Context(), hal.Image{Name: "machine", Target: on.Name, PTX: kernels(on).String()})
	require.NoError(t, err)
	r := &rig{ctx: t.Context(), device: d, on: cost.Of(on), sizes: dry, code: code}
	r.out, err = r.alloc(8*streamThreads, hal.DeviceMemory)
	require.NoError(t, err)
	run := func(op hal.Op) []uint32 {
		counts = nil
		g, err := r.graph(op)
		require.NoError(t, err)
		require.NoError(t, g.Run(t.Context()))
		return words(t, r.out)
	}
	prefetched := func() (sectors int64) {
		for _, m := range counts[0].Memories {
			sectors += m.PrefetchSectors
		}
		return sectors
	}
	memory, err := r.alloc(2*streamUnit, hal.DeviceMemory)
	require.NoError(t, err)
	loaded, err := r.alloc(2*streamUnit, hal.DeviceMemory)
	require.NoError(t, err)
	numbers := make([]byte, loaded.Size())
	for i := range loaded.Size() / 4 {
		binary.LittleEndian.PutUint32(numbers[4*i:], uint32(i*i))
	}
	require.NoError(t, loaded.Write(numbers, 0))
	at := func(byte_ int) uint32 { return binary.LittleEndian.Uint32(numbers[byte_:]) }

	run(r.op("prefetch", 2, 32, 1, prefetchOnly{memory}, streamUnit))
	require.EqualValues(t, 2*streamUnit/32, prefetched())
	got := run(r.op("load_and_prefetch", 2, streamThreads, 1, constants{loaded}, prefetchOnly{memory}, streamUnit/2))
	require.EqualValues(t, streamUnit/32, prefetched())
	for block := range 2 {
		var sum uint32
		for i := range streamVectors {
			for word := range 4 {
				sum ^= at(block*streamUnit + 16*streamThreads*i + 16*7 + 4*word)
			}
		}
		require.Equal(t, sum, got[block*streamThreads+7])
	}

	for _, kernel := range []string{"copy_in", "copy_in_evict_first"} {
		op := r.op(kernel, 2, streamThreads, 1, constants{loaded}, streamUnit)
		op.Shared = policyUnit
		got := run(op)
		for block := range 2 {
			require.Equal(t, at((block+1)*streamUnit-policyUnit+16*9), got[block*streamThreads+9], kernel)
		}
		read := int64(0)
		for _, m := range counts[0].Memories {
			read += m.ReadBytes
		}
		require.EqualValues(t, loaded.Size(), read, kernel)
	}

	counters, err := r.alloc(8, hal.DeviceMemory)
	require.NoError(t, err)
	partials, err := r.alloc(4*16*handshakeThreads, hal.DeviceMemory)
	require.NoError(t, err)
	op := r.op("handshake", 4, handshakeThreads, 3, counters, partials, 1)
	op.Shared = 4
	got = run(op)
	require.Equal(t, []uint32{6, 6}, words(t, counters))
	for group := range 2 { // 0 to 5, in some order, once for all threads of a block
		require.EqualValues(t, 15, got[2*group*handshakeThreads]+got[(2*group+1)*handshakeThreads+200])
	}
	require.Equal(t, []uint32{2, 5, 3, 2}, words(t, partials)[4*(3*handshakeThreads+5):][:4])

	run(r.op("work", 2, workThreads, 3))
	adds := int64(0)
	for _, s := range counts[0].Sites {
		if s.Instr.Def.Op == "fma.rn.f32" {
			adds += s.Lanes
		}
	}
	require.EqualValues(t, 3*unrolled*accumulators*2*workThreads, adds)
	require.Empty(t, counts[0].Memories, "nothing is written")
}

// TestKernels_LeaveOutWhatATargetLacks: nothing is measured of a mechanism that the target has not, and the file says
// so.
func TestKernels_LeaveOutWhatATargetLacks(t *testing.T) {
	oldest := target.Oldest()
	f := measureOnly(t, prefetches, cost.Of(oldest), sizes{fill: 2, l2: 1 << 20})
	for _, name := range []string{"prefetch_rate", "prefetch_kept"} {
		require.Equal(t, "sm_80 has no bulk prefetches", f.Left[name])
	}
	require.NotContains(t, kernels(oldest).String(), bulkPrefetch)
	require.Contains(t, kernels(target.Default()).String(), bulkPrefetch)
}

// TestPrefetches_ThatNeverComeAreNoRate: a device that drops all of them, loads or not, has no rate.
func TestPrefetches_ThatNeverComeAreNoRate(t *testing.T) {
	row := target.Default()
	s := simulate(t, cost.Of(row))
	f := measureOn(t, prefetches, deaf{s}, cost.Of(row), sizes{fill: row.SMs, rounds: 50, steps: 64, l2: row.L2Bytes})
	require.Contains(t, f.Left["prefetch_rate"], "prefetched bytes do not come")
	require.InDelta(t, 0, f.Figures["prefetch_kept"].Middle, 0.01)
	on, err := cost.Measure(row, f.Figures)
	require.NoError(t, err)
	require.InDelta(t, 0, cost.Of(on).PrefetchKept, 0.01)
}

// TestPrefetches_ShorterThanALaunchHaveNoRate: of memory so fast that all bytes have arrived when the next launch
// begins.
func TestPrefetches_ShorterThanALaunchHaveNoRate(t *testing.T) {
	h200, err := target.OfDevice("h200")
	require.NoError(t, err)
	f := measureOnly(t, prefetches, cost.Of(h200), sizes{fill: h200.SMs, rounds: 50, steps: 64, l2: h200.L2Bytes})
	require.Contains(t, f.Left["prefetch_rate"], "before a launch behind them begins")
	require.InDelta(t, 1, f.Figures["prefetch_kept"].Middle, 0.02)
}

// deaf is a simulated device that does not prefetch.
type deaf struct{ *simulated.Device }

func (d deaf) Capture(ctx context.Context, ops []hal.Op) (hal.Graph, error) {
	ops = slices.Clone(ops)
	for i := range ops {
		if ops[i].Prefetch != nil {
			ops[i].Reads, ops[i].Prefetch = append(slices.Clone(ops[i].Reads), ops[i].Prefetch...), nil
		}
	}
	return d.Device.Capture(ctx, ops)
}

// TestZeroOf_TakesPrefetchesEitherWay: readers that wait for prefetches, and readers that load what is missing.
func TestZeroOf_TakesPrefetchesEitherWay(t *testing.T) {
	of := func(f cost.Figure) float64 { return f.Middle }
	for name, slope := range map[string]float64{"waits": -1, "loads": -0.6} {
		var x, y []cost.Figure
		for i := range 4 {
			at := float64(10 * i)
			x, y = append(x, cost.Figure{Middle: at}), append(y, cost.Figure{Middle: slope * (at - 50)})
		}
		require.InDelta(t, 50, zeroOf(x, y, of), 1e-9, name)
	}
	require.InDelta(t, 50, zeroOf([]cost.Figure{{Middle: 20}}, []cost.Figure{{Middle: 30}}, of), 1e-9, "one that waits")
}

// TestFigure_LeavesOutOutliers: samples that something else disturbed are no part of the range.
func TestFigure_LeavesOutOutliers(t *testing.T) {
	samples := []float64{10, 10.1, 9.9, 10.2, 9.8, 10, 30, -20, 10, 31}
	f := figure(samples)
	require.Equal(t, cost.Figure{Low: 9.9, Middle: 10, High: 10.1}, f)
	require.Equal(t, 30.0, samples[6], "samples stay in their order")
	require.Equal(t, cost.Figure{Low: 1, Middle: 1, High: 1}, figure([]float64{1, 1, 1, 1}))
}

// TestPtxasAcceptsTheKernels for every target, and leaves the work in them.
func TestPtxasAcceptsTheKernels(t *testing.T) {
	tool, err := toolchain.FindPtxas(t.Context())
	if errors.Is(err, toolchain.ErrNoPtxas) {
		t.Skip("no ptxas")
	}
	require.NoError(t, err)
	for _, on := range target.All() {
		for _, m := range []*ptx.Module{kernels(on), sumKernels(on)} {
			got, err := tool.Assemble(t.Context(), m.String(), on.Name)
			require.NoError(t, err)
			for _, u := range got.Usage {
				require.Zero(t, u.Spills, u.Kernel)
			}
		}
	}
}

// TestAReaderReadsAsMuch as it was asked for, once, in parts of all its blocks.
func TestAReaderReadsAsMuch(t *testing.T) {
	for _, bytes := range []int{1, streamUnit + 1, 3 * streamUnit, 200 * streamUnit} {
		var counts []*emu.Counts
		d, err := emu.Open(emu.Options{CountOnly: true, Profile: func(c *emu.Counts) { counts = append(counts, c) }})
		require.NoError(t, err)
		g, free, err := Reader(t.Context(), d, bytes)
		require.NoError(t, err)
		require.NoError(t, g.Run(t.Context()))
		read := int64(0)
		for _, m := range counts[0].Memories {
			read += m.ReadBytes
			require.LessOrEqual(t, m.WriteBytes, int64(4*streamThreads*target.Default().SMs))
		}
		require.GreaterOrEqual(t, read, int64(bytes))
		require.Less(t, read, int64(bytes+target.Default().SMs*streamUnit))
		require.NoError(t, free())
		require.NoError(t, d.Close())
	}
}

// skewed is a simulated device on which kernels that read or write memory of a kind take longer, or shorter, by a factor; it has no memory of a kind
// whose factor is 0.
type skewed struct {
	*simulated.Device
	factors map[hal.MemoryKind]float64
	kinds   map[hal.Memory]hal.MemoryKind
}

func skew(t *testing.T, row *target.Target, factors map[hal.MemoryKind]float64) *skewed {
	return &skewed{simulate(t, cost.Of(row)), factors, map[hal.Memory]hal.MemoryKind{}}
}

func (s *skewed) Alloc(n int, kind hal.MemoryKind) (hal.Memory, error) {
	if f, ok := s.factors[kind]; ok && f == 0 {
		return nil, hal.ErrNoSuchMemory
	}
	m, err := s.Device.Alloc(n, kind)
	s.kinds[m] = kind
	return m, err
}

func (s *skewed) Capture(ctx context.Context, ops []hal.Op) (hal.Graph, error) {
	g, err := s.Device.Capture(ctx, ops)
	factor := 1.
	for _, r := range ops[0].Reads {
		if f, ok := s.factors[s.kinds[r.Memory]]; ok {
			factor = f
		}
	}
	return &slower{g, factor}, err
}

type slower struct {
	hal.Graph
	factor float64
}

func (g *slower) RunTimed(ctx context.Context, timing hal.Timing) (time.Duration, error) {
	if before, ok := timing.Before.(*slower); ok {
		timing.Before = before.Graph
	}
	t, err := g.Graph.(hal.Timer).RunTimed(ctx, timing)
	return time.Duration(g.factor * float64(t)), err
}

// TestMemoryIsMeasuredByKind: memory of each kind is found to be as fast as it is, the device's own, pinned and managed, and where there is none
// of a kind, the file says so.
func TestMemoryIsMeasuredByKind(t *testing.T) {
	fulltest.Long(t)
	small := *target.Default()
	small.L2Bytes = 2 << 20
	row := &small
	amounts := sizes{fill: row.SMs, rounds: 2, steps: 8, nodes: 4, blocks: 2, l2: row.L2Bytes, cached: 64 << 10,
		memory: 4 * row.L2Bytes, passes: 2, repeats: 3, work: 1}
	for _, factors := range []map[hal.MemoryKind]float64{{hal.PinnedMemory: 2, hal.ManagedMemory: .5}, {hal.PinnedMemory: 1.25, hal.ManagedMemory: 0}, {hal.PinnedMemory: 0, hal.ManagedMemory: 3}} {
		d := skew(t, row, factors)
		f, err := measure(t.Context(), d, Options{Samples: 1}, amounts)
		require.NoError(t, err)
		own := map[string]cost.Figure{"read": f.Figures["memory_gbps"], "write": f.Also["memory_write_gbps"]}
		for name, kind := range map[string]hal.MemoryKind{"pinned": hal.PinnedMemory, "managed": hal.ManagedMemory} {
			for way, figure := range map[string]string{"read": name + "_gbps", "write": name + "_write_gbps"} {
				found, ok := f.Also[figure]
				if factors[kind] == 0 {
					require.False(t, ok, figure)
					require.Equal(t, hal.ErrNoSuchMemory.Error(), f.Left[figure])
					continue
				}
				require.True(t, ok, "%s: %s", figure, f.Left[figure])
				require.InEpsilon(t, own[way].Middle/factors[kind], found.Middle, .01, figure)
			}
		}
	}
}

// TestWeightsHomeIsFound: a device that reads the host's memory faster, as fast, or slower is found to do so.
func TestWeightsHomeIsFound(t *testing.T) {
	row := *target.Default()
	row.L2Bytes = 256 << 10
	for factor, want := range map[float64]bool{.5: true, 1: false, 2: false} {
		d := skew(t, &row, map[hal.MemoryKind]float64{hal.HostVisible: factor})
		h, err := WeightsHome(t.Context(), d, &row)
		require.NoError(t, err)
		require.InEpsilon(t, factor, h.Memory.HostUS/h.Memory.DeviceUS, .01)
		require.InEpsilon(t, factor, h.Cached.HostUS/h.Cached.DeviceUS, .01)
		require.Equal(t, want, h.Host)
		require.NoError(t, d.Close())
	}
}
