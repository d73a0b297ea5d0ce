//go:build linux && (amd64 || arm64) && !nodriver

package cuda

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// The tests of this file need a GPU and are skipped without one, unless SPARK_DEVICE asks for it as the bundle's
// script does. What instructions compute is internal/testing/gputest's matter; here it is memory, modules, launches
// and graphs, as the real driver has them.

func openGPU(t *testing.T) *Device {
	t.Helper()
	d, err := Open(Options{})
	wanted := strings.HasPrefix(os.Getenv("SPARK_DEVICE"), "cuda")
	if !wanted && (errors.Is(err, hal.ErrNoDriver) || errors.Is(err, hal.ErrNoDevice)) {
		t.Skipf("no GPU (%v)", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	t.Logf("%+v", d.Info())
	return d
}

// gpuTarget is a target that every supported device takes; dependent launch needs sm_90.
func gpuTarget(d hal.Device) string {
	sm := 90 // of the CPU device, which takes any
	fmt.Sscanf(d.Info().Target, "sm_%d", &sm)
	if sm >= 90 {
		return "sm_90"
	}
	return "sm_80"
}

// increment is a kernel that adds n to each of count words, by way of shared memory at an offset of so many bytes.
func increment(m *ptx.Module, name string, n, offset int) {
	k := m.NewKernel(name, 128)
	at, i, shared, x := k.Reg(ptx.B64), k.RegVec(ptx.B32, 4), k.RegVec(ptx.B32, 2), k.Reg(ptx.B32)
	k.I("ld.param.u64", at, ptx.At(k.AddParam("data", "u64"), 0))
	wait := ptx.Lookup("griddepcontrol.wait").Available(m.Target, ptx.Version{Major: 99}) == nil
	if wait {
		k.I("griddepcontrol.launch_dependents")
	}
	k.I("mov.u32", i[0], ptx.Special("%ctaid.x"))
	k.I("mov.u32", i[1], ptx.Special("%ntid.x"))
	k.I("mov.u32", i[2], ptx.Special("%tid.x"))
	k.I("mad.lo.s32", i[3], i[0], i[1], i[2])
	k.I("mad.wide.u32", at, i[3], ptx.Imm(4), at)
	k.I("mov.u32", shared[0], ptx.Sym(ptx.SharedName))
	k.I("mad.lo.u32", shared[1], i[2], ptx.Imm(4), shared[0])
	if wait {
		k.I("griddepcontrol.wait")
	}
	k.I("ld.global.u32", x, ptx.At(at, 0))
	k.I("st.shared.u32", ptx.At(shared[1], offset), x)
	k.I("bar.sync", ptx.Imm(0))
	k.I("ld.shared.u32", x, ptx.At(shared[1], offset))
	k.I("add.u32", x, x, ptx.Imm(n))
	k.I("st.global.u32", ptx.At(at, 0), x)
	k.I("ret")
}

func TestGPUMemoryIsZeroedAndKeepsWhatIsWritten(t *testing.T) {
	d := openGPU(t)
	for _, kind := range []hal.MemoryKind{hal.DeviceMemory, hal.HostVisible, hal.ScratchMemory, hal.PinnedMemory, hal.ManagedMemory} {
		for _, n := range []int{1, 1000, 3 << 20} {
			m, err := d.Alloc(n, kind)
			if errors.Is(err, hal.ErrNoSuchMemory) {
				t.Log(err)
				continue
			}
			require.NoError(t, err)
			require.Zero(t, m.Addr()%256)
			require.Equal(t, d.Info().Unified && kind == hal.HostVisible || kind >= hal.PinnedMemory, m.Bytes() != nil)
			got := make([]byte, n)
			require.NoError(t, m.Read(got, 0))
			require.Equal(t, make([]byte, n), got)
			want := make([]byte, n)
			for i := range want {
				want[i] = byte(i*7 + 1)
			}
			require.NoError(t, m.Write(want, 0))
			require.NoError(t, m.Read(got, 0))
			require.Equal(t, want, got)
			require.NoError(t, m.Free())
		}
	}
}

func TestGPUOutOfMemory(t *testing.T) {
	d := openGPU(t)
	_, err := d.Alloc(1<<46, hal.DeviceMemory)
	require.ErrorIs(t, err, hal.ErrOutOfMemory)
	m, err := d.Alloc(64, hal.DeviceMemory)
	require.NoError(t, err, "the device goes on")
	require.NoError(t, m.Free())
}

func TestGPURefusesWhatIsNoModule(t *testing.T) {
	ctx := context.Background()
	d := openGPU(t)
	_, err := d.Load(ctx, hal.Image{Name: "text", PTX: ".version 8.0\n.target sm_80\n.address_size 64\n.entry k() { bogus; }\n"})
	require.ErrorIs(t, err, hal.ErrBadModule)
	require.ErrorContains(t, err, "line 4", "the compiler's log is in the error")
	_, err = d.Load(ctx, hal.Image{Name: "cubin", Cubin: make([]byte, 64)})
	require.ErrorIs(t, err, hal.ErrBadModule)

	m := ptx.NewModule(gpuTarget(d))
	increment(m, "one", 1, 0)
	loaded, err := d.Load(ctx, hal.Image{Cubin: []byte("no cubin, though PTX follows it, as long as that lets the driver look\x00"), PTX: m.String()})
	require.NoError(t, err)
	require.NoError(t, loaded.Close())
}

// TestGPUGraph: dependent launches, a copy, shared memory beyond 48 KB, and a run that continues where the last one
// ended. Each kernel reads what the one before wrote, so that a missing edge shows.
func TestGPUGraph(t *testing.T) { runGraph(t, openGPU(t)) }

func runGraph(t *testing.T, d hal.Device) {
	ctx := context.Background()
	const words, kernels, runs = 1 << 13, 20, 25
	m := ptx.NewModule(gpuTarget(d))
	opted := d.Info().SharedBlock - 512
	require.Greater(t, opted, 48<<10)
	increment(m, "small", 1, 0)
	increment(m, "large", 3, opted)
	module, err := d.Load(ctx, hal.Image{Name: "increments", PTX: m.String()})
	require.NoError(t, err)
	data, err := d.Alloc(4*words, hal.DeviceMemory)
	require.NoError(t, err)
	copied, err := d.Alloc(4*words, hal.HostVisible)
	require.NoError(t, err)
	var ops []hal.Op
	want := uint32(0)
	for i := range kernels {
		op := hal.Op{Module: module, Kernel: "small", Grid: [3]int{words / 128, 1, 1}, Block: [3]int{128, 1, 1}, Shared: 512,
			Params: []uint64{data.Addr()}, Sizes: []int{8}, Dependent: gpuTarget(d) == "sm_90",
			Reads: []hal.Range{{Memory: data, Bytes: 4 * words}}, Writes: []hal.Range{{Memory: data, Bytes: 4 * words}}}
		if i > 0 {
			op.After = []int{i - 1}
		}
		want++
		if i%5 == 4 {
			op.Kernel, op.Shared = "large", opted+512
			want += 2
		}
		ops = append(ops, op)
	}
	ops = append(ops, hal.Op{Src: data, Dst: copied, Bytes: 4 * words, After: []int{kernels - 1}})
	g, err := d.Capture(ctx, ops)
	require.NoError(t, err)
	got := make([]byte, 4*words)
	for run := range uint32(runs) {
		if timer, ok := g.(hal.Timer); !ok || run%2 == 0 {
			require.NoError(t, g.Run(ctx))
		} else {
			took, err := timer.RunTimed(ctx, hal.Timing{})
			require.NoError(t, err)
			require.Positive(t, took)
		}
		require.NoError(t, copied.Read(got, 0))
		for i := range words {
			require.Equal(t, want*(run+1), binary.LittleEndian.Uint32(got[4*i:]), "word %d, run %d", i, run)
		}
	}
	require.NoError(t, g.Close())
	require.NoError(t, module.Close())
	require.NoError(t, data.Free())
	require.NoError(t, copied.Free())
}

// TestGPUBranches: two branches, whose ops alternate in the list, joined by a copy of one over half of the other.
func TestGPUBranches(t *testing.T) { runBranches(t, openGPU(t)) }

func runBranches(t *testing.T, d hal.Device) {
	ctx := context.Background()
	const words, each, runs = 1 << 10, 6, 10
	m := ptx.NewModule(gpuTarget(d))
	increment(m, "one", 1, 0)
	increment(m, "three", 3, 0)
	module, err := d.Load(ctx, hal.Image{Name: "increments", PTX: m.String()})
	require.NoError(t, err)
	var ops []hal.Op
	var data [2]hal.Memory
	for i := range data {
		data[i], err = d.Alloc(4*words, hal.DeviceMemory)
		require.NoError(t, err)
	}
	for i := range 2 * each {
		all := []hal.Range{{Memory: data[i%2], Bytes: 4 * words}}
		op := hal.Op{Module: module, Kernel: []string{"one", "three"}[i%2], Grid: [3]int{words / 128, 1, 1}, Block: [3]int{128, 1, 1}, Shared: 512,
			Params: []uint64{data[i%2].Addr()}, Sizes: []int{8}, Dependent: gpuTarget(d) == "sm_90", Reads: all, Writes: all}
		if i > 1 {
			op.After = []int{i - 2}
		}
		ops = append(ops, op)
	}
	ops = append(ops, hal.Op{Src: data[1], Dst: data[0], Bytes: 2 * words, After: []int{2*each - 2, 2*each - 1}})
	g, err := d.Capture(ctx, ops)
	require.NoError(t, err)
	got := make([]byte, 4*words)
	for run := range uint32(runs) {
		require.NoError(t, g.Run(ctx))
		require.NoError(t, data[0].Read(got, 0))
		for i := range words {
			want := each * (run + 1)
			if i < words/2 {
				want *= 3
			}
			require.Equal(t, want, binary.LittleEndian.Uint32(got[4*i:]), "word %d, run %d", i, run)
		}
	}
	require.NoError(t, errors.Join(g.Close(), module.Close(), data[0].Free(), data[1].Free()))
}

// TestGPUSessionsDoNotDisturbEachOther: one goroutine captures while others allocate, send and run.
func TestGPUSessionsDoNotDisturbEachOther(t *testing.T) { runSessions(t, openGPU(t)) }

func runSessions(t *testing.T, d hal.Device) {
	ctx := context.Background()
	m := ptx.NewModule(gpuTarget(d))
	increment(m, "one", 1, 0)
	module, err := d.Load(ctx, hal.Image{Name: "increment", PTX: m.String()})
	require.NoError(t, err)
	session := func(start uint32) error {
		for range 20 {
			data, err := d.Alloc(512, hal.DeviceMemory)
			if err != nil {
				return err
			}
			if err := data.Write(binary.LittleEndian.AppendUint32(nil, start), 0); err != nil {
				return err
			}
			op := hal.Op{Module: module, Kernel: "one", Grid: [3]int{1, 1, 1}, Block: [3]int{128, 1, 1}, Shared: 512, Params: []uint64{data.Addr()}, Sizes: []int{8},
				Reads: []hal.Range{{Memory: data, Bytes: 512}}, Writes: []hal.Range{{Memory: data, Bytes: 512}}}
			ops := []hal.Op{op, op, op}
			ops[1].After, ops[2].After = []int{0}, []int{1}
			g, err := d.Capture(ctx, ops)
			if err != nil {
				return err
			}
			got := make([]byte, 4)
			if err := errors.Join(g.Run(ctx), data.Read(got, 0), g.Close(), data.Free()); err != nil {
				return err
			}
			if v := binary.LittleEndian.Uint32(got); v != start+3 {
				return fmt.Errorf("%d, want %d", v, start+3)
			}
		}
		return nil
	}
	failures := make([]error, 8)
	var all sync.WaitGroup
	for i := range failures {
		all.Go(func() { failures[i] = session(uint32(1000 * i)) })
	}
	all.Wait()
	require.NoError(t, errors.Join(failures...))
	require.NoError(t, module.Close())
}

// TestTheKernelsOfTheseTests runs them on the CPU device, with all checks on.
func TestTheKernelsOfTheseTests(t *testing.T) {
	d, err := emu.Open(emu.Options{Check: true})
	require.NoError(t, err)
	runGraph(t, d)
	runBranches(t, d)
	runSessions(t, d)
	runMoves(t, d)
}

func TestGPURereadsWhatTheHostRewrites(t *testing.T) {
	d := openGPU(t)
	if why := d.Copies(); why != "" {
		t.Skip(why)
	}
	require.NoError(t, d.Rereads(t.Context(), 10_000))
}

// TestTheCoherenceKernel runs it on the CPU device, with all checks on, for sizes that fill no block.
func TestTheCoherenceKernel(t *testing.T) {
	d, err := emu.Open(emu.Options{Check: true})
	require.NoError(t, err)
	m, err := d.Load(t.Context(), hal.Image{Name: "coherence", PTX: rereadKernel().String()})
	require.NoError(t, err)
	for _, words := range []int{1, 32, 300} {
		from, err := d.Alloc(4*words, hal.HostVisible)
		require.NoError(t, err)
		to, err := d.Alloc(4*words, hal.HostVisible)
		require.NoError(t, err)
		g, err := d.Capture(t.Context(), []hal.Op{{Module: m, Kernel: "coherence", Grid: [3]int{(words + rereadThreads - 1) / rereadThreads, 1, 1}, Block: [3]int{rereadThreads, 1, 1},
			Params: []uint64{from.Addr(), to.Addr(), uint64(words)}, Sizes: []int{8, 8, 4},
			Reads: []hal.Range{{Memory: from, Bytes: 4 * words}}, Writes: []hal.Range{{Memory: to, Bytes: 4 * words}}}})
		require.NoError(t, err)
		for round := range uint32(3) {
			for i := range words {
				binary.LittleEndian.PutUint32(from.Bytes()[4*i:], round<<20^uint32(i))
			}
			require.NoError(t, g.Run(t.Context()))
			for i := range words {
				require.Equal(t, round<<20^uint32(i)+1, binary.LittleEndian.Uint32(to.Bytes()[4*i:]))
			}
		}
	}
}

// TestGPUGraphsFollowMemory: a graph's kernel is pointed at other memory between runs, and at the host's own where
// the GPU sees it.
func TestGPUGraphsFollowMemory(t *testing.T) { runMoves(t, openGPU(t)) }

func runMoves(t *testing.T, d hal.Device) {
	ctx := context.Background()
	const words, places = 1 << 12, 3
	m := ptx.NewModule(gpuTarget(d))
	increment(m, "small", 1, 0)
	module, err := d.Load(ctx, hal.Image{Name: "moves", PTX: m.String()})
	require.NoError(t, err)
	op := func(at hal.Memory) hal.Op {
		r := []hal.Range{{Memory: at, Bytes: 4 * words}}
		return hal.Op{Module: module, Kernel: "small", Grid: [3]int{words / 128, 1, 1}, Block: [3]int{128, 1, 1}, Shared: 512, Params: []uint64{at.Addr()}, Sizes: []int{8},
			Reads: r, Writes: r, Varies: true}
	}
	var memories []hal.Memory
	for range places {
		at, err := d.Alloc(4*words, hal.DeviceMemory)
		require.NoError(t, err)
		memories = append(memories, at)
	}
	host := make([]byte, 4*words)
	switch at, err := d.(hal.Mapper).Map(host); {
	case errors.Is(err, hal.ErrNoSuchMemory):
		t.Log(err)
	default:
		require.NoError(t, err)
		memories = append(memories, at)
	}
	g, err := d.Capture(ctx, []hal.Op{op(memories[0])})
	require.NoError(t, err)
	for run := range 5 * len(memories) {
		require.NoError(t, g.(hal.Updater).Update(0, op(memories[run%len(memories)])))
		require.NoError(t, g.Run(ctx))
		for i, at := range memories {
			got := make([]byte, 4*words)
			require.NoError(t, at.Read(got, 0))
			want := (run + len(memories) - i) / len(memories)
			for _, at := range []int{0, 77, words - 1} {
				require.EqualValues(t, want, binary.LittleEndian.Uint32(got[4*at:]), "run %d, memory %d", run, i)
			}
			if i == places {
				require.Equal(t, got, host)
			}
		}
	}
	require.NoError(t, g.Close())
	for _, at := range memories {
		require.NoError(t, at.Free())
	}
	require.NoError(t, module.Close())
}

// TestGPUTimedRuns: runs of a kernel that spins for a known time take that time each, the host's launches not
// included, and a graph before them is not part of it.
func TestGPUTimedRuns(t *testing.T) {
	d := openGPU(t)
	ctx := context.Background()
	m, err := d.Load(ctx, hal.Image{Name: "delay", PTX: delayKernel().String()})
	require.NoError(t, err)
	spins := func(us uint64) *graph {
		g, err := d.Capture(ctx, []hal.Op{{Module: m, Kernel: "delay", Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1}, Params: []uint64{1000 * us}, Sizes: []int{4}}})
		require.NoError(t, err)
		return g.(*graph)
	}
	short, long := spins(20), spins(2000)
	for _, runs := range []int{1, 10, 100} {
		var least time.Duration
		for range 5 {
			took, err := short.RunTimed(ctx, hal.Timing{Runs: runs})
			require.NoError(t, err)
			if each := took / time.Duration(runs); least == 0 || each < least {
				least = each
			}
		}
		t.Logf("%d runs of 20 µs: %v each at best; the host takes %v to launch one", runs, least, short.enqueue)
		require.Greater(t, least, 18*time.Microsecond)
		require.Less(t, least, 30*time.Microsecond, "a launch by the host counts")
	}
	took, err := short.RunTimed(ctx, hal.Timing{Before: long})
	require.NoError(t, err)
	require.Less(t, took, time.Millisecond, "the graph before counts")
	require.NoError(t, short.Close())
	require.NoError(t, long.Close())
	require.NoError(t, m.Close())
}

// TestGPUSwitches: with each mechanism off the same launches compute the same, and no edge is programmatic without
// dependent launches.
func TestGPUSwitches(t *testing.T) {
	openGPU(t)
	for _, off := range append(hal.SwitchNames(), "") {
		var s hal.Switches
		if off != "" {
			require.NoError(t, s.Set(off, false))
		}
		d, err := Open(Options{Switches: s})
		require.NoError(t, err)
		runGraph(t, d)
		m := ptx.NewModule(gpuTarget(d))
		increment(m, "one", 1, 0)
		module, err := d.Load(t.Context(), hal.Image{Name: "increments", PTX: m.String()})
		require.NoError(t, err)
		data, err := d.Alloc(512, hal.DeviceMemory)
		require.NoError(t, err)
		op := hal.Op{Module: module, Kernel: "one", Grid: [3]int{1, 1, 1}, Block: [3]int{128, 1, 1}, Shared: 512, Params: []uint64{data.Addr()}, Sizes: []int{8}}
		next := op
		next.After, next.Dependent = []int{0}, gpuTarget(d) == "sm_90"
		g, err := d.Capture(t.Context(), []hal.Op{op, next})
		require.NoError(t, err)
		wanted, captured := g.(*graph).Programmatic()
		t.Logf("%v off: %d programmatic edges wanted, %d captured", s.Off(), wanted, captured)
		if s.NoPDL {
			require.LessOrEqual(t, captured, 0)
		}
		require.NoError(t, g.Close())
		require.NoError(t, module.Close())
		require.NoError(t, data.Free())
		require.NoError(t, d.Close())
	}
}
