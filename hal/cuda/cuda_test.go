//go:build linux && (amd64 || arm64) && !nodriver

package cuda

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/placement"
	"github.com/spark-compile/spark-compile/internal/testing/fakecuda"
)

// buildFake builds the stand-in driver once a test run.
var buildFake = sync.OnceValues(func() (*fakecuda.Driver, error) { return fakecuda.New(fakeDir) })

var fakeDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "fakecuda")
	if err != nil {
		panic(err)
	}
	fakeDir = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

func open(t *testing.T, unified bool) (*fakecuda.Driver, *Device) {
	t.Helper()
	f, err := buildFake()
	if errors.Is(err, exec.ErrNotFound) {
		t.Skip("gcc is missing: the fake driver cannot be built")
	}
	require.NoError(t, err)
	f.Reset(unified)
	d, err := Open(Options{Library: f.Path})
	require.NoError(t, err)
	d.delays.since = never
	return f, d
}

// never is the clock of a host that is never late: one that is busy repeats what is timed.
func never(time.Time) time.Duration { return 0 }

func TestDescribesTheDevice(t *testing.T) {
	_, d := open(t, true)
	require.Equal(t, hal.Info{Name: "Fake GB10", Backend: "cuda", Target: "sm_121", Unified: true, SharedBlock: 101376, Memory: 1 << 37}, d.Info())
	require.NoError(t, d.Close())
}

func TestLaunchesAreCapturedInOrderAndReplayed(t *testing.T) {
	f, d := open(t, false)
	ctx := context.Background()
	mem, err := d.Alloc(4096, hal.DeviceMemory)
	require.NoError(t, err)
	address := mem.Addr()
	m, err := d.Load(ctx, hal.Image{Name: "test", PTX: ".version 8.8\n"})
	require.NoError(t, err)
	g, err := d.Capture(ctx, []hal.Op{
		{Module: m, Kernel: "first", Grid: [3]int{3, 2, 1}, Block: [3]int{128, 1, 1}, Shared: 60000, Params: []uint64{mem.Addr(), 0xabcdef}, Sizes: []int{8, 8}},
		{Module: m, Kernel: "second", Grid: [3]int{1, 1, 1}, Block: [3]int{32, 1, 1}, Params: []uint64{7}, Sizes: []int{8}, After: []int{0}, Dependent: true},
		{Src: mem, Dst: mem, DstOffset: 2048, Bytes: 16, After: []int{1}},
	})
	require.NoError(t, err)
	require.NoError(t, g.Run(ctx))
	require.NoError(t, g.Run(ctx))
	require.NoError(t, g.Close())
	require.NoError(t, m.Close())
	require.NoError(t, mem.Free())
	require.NoError(t, d.Close())
	require.Equal(t, []string{"retain", "alloc 4096", "memset 4096", "settle", "load ptx", "carveout 100 of first", "attribute 8 = 60000 of first",
		"carveout 100 of second", "begin",
		"launch first grid 3,2,1 block 128,1,1 shared 60000 dependent 0 params ADDR abcdef",
		"launch second grid 1,1,1 block 32,1,1 shared 0 dependent 1 params 7", "copy 16", "end", "instantiate", "upload",
		"graph", "synchronize", "graph", "synchronize", "unload", "free", "release"}, withoutAddress(f.Log(), address))
	require.Zero(t, f.Balance())
}

// withoutAddress blanks a device address in the log: it changes from run to run.
func withoutAddress(lines []string, address uint64) []string {
	for i := range lines {
		lines[i] = strings.ReplaceAll(lines[i], fmt.Sprintf("%x", address), "ADDR")
	}
	return lines
}

func TestUnifiedMemoryIsMappedAndDiscreteIsCopied(t *testing.T) {
	for _, unified := range []bool{true, false} {
		t.Run(fmt.Sprintf("unified=%v", unified), func(t *testing.T) {
			f, d := open(t, unified)
			m, err := d.Alloc(64, hal.HostVisible)
			require.NoError(t, err)
			require.Equal(t, unified, m.Bytes() != nil)
			require.NoError(t, m.Write([]byte{1, 2, 3}, 5))
			got := make([]byte, 5)
			require.NoError(t, m.Read(got, 4))
			require.Equal(t, []byte{0, 1, 2, 3, 0}, got)
			require.Error(t, m.Write(make([]byte, 65), 0))
			require.Error(t, m.Read(got, 60))
			require.NoError(t, m.Free())
			require.NoError(t, d.Close())
			require.Equal(t, unified, strings.Contains(strings.Join(f.Log(), ";"), "hostalloc 64 flags 3"))
			require.Zero(t, f.Balance())
		})
	}
}

func TestCubinIsPreferredAndPTXIsTheFallback(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		name  string
		image hal.Image
		want  string
		fails error
	}{
		{"cubin that fits", hal.Image{Cubin: []byte("CUBIN"), PTX: ".version 8.8"}, "load cubin", nil},
		{"cubin of another GPU", hal.Image{Cubin: []byte("OTHER"), PTX: ".version 8.8"}, "load ptx", nil},
		{"no cubin", hal.Image{PTX: ".version 8.8"}, "load ptx", nil},
		{"nothing that loads", hal.Image{Name: "m", Cubin: []byte("OTHER")}, "", hal.ErrBadModule},
		{"PTX that the driver refuses", hal.Image{PTX: "garbage"}, "", hal.ErrBadModule},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, d := open(t, false)
			m, err := d.Load(ctx, c.image)
			if c.fails != nil {
				require.ErrorIs(t, err, c.fails)
			} else {
				require.NoError(t, err)
				require.Contains(t, f.Log(), c.want)
				require.NoError(t, m.Close())
			}
			require.NoError(t, d.Close())
			require.Zero(t, f.Balance())
		})
	}
}

const outOfMemory = 2 // CUDA_ERROR_OUT_OF_MEMORY

func TestFailures_NameTheCallAndFreeAll(t *testing.T) {
	ctx := context.Background()
	for _, call := range []string{"cuStreamCreate", "cuModuleGetFunction", "cuFuncSetAttribute", "cuStreamBeginCapture", "cuLaunchKernelEx", "cuStreamEndCapture", "cuGraphInstantiate"} {
		t.Run(call, func(t *testing.T) {
			f, d := open(t, false)
			m, err := d.Load(ctx, hal.Image{PTX: ".version 8.8"})
			require.NoError(t, err)
			f.Fail(call, 0, outOfMemory)
			_, err = d.Capture(ctx, []hal.Op{{Module: m, Kernel: "k", Grid: [3]int{1, 1, 1}, Block: [3]int{32, 1, 1}, Shared: 50000}})
			require.ErrorIs(t, err, hal.ErrOutOfMemory)
			require.ErrorContains(t, err, call)
			require.NoError(t, m.Close())
			if call == "cuStreamEndCapture" {
				return // the fake, like a lost device, keeps the capture open
			}
			require.Zero(t, f.Balance())
		})
	}
}

func TestAllocationThatFailsHalfwayIsFreed(t *testing.T) {
	for _, c := range []struct {
		call    string
		unified bool
	}{{"cuMemAlloc", false}, {"cuMemsetD8", false}, {"cuStreamSynchronize", false}, {"cuMemHostAlloc", true}, {"cuMemHostGetDevicePointer", true}} {
		t.Run(c.call, func(t *testing.T) {
			f, d := open(t, c.unified)
			f.Fail(c.call, 0, outOfMemory)
			m, err := d.Alloc(64, hal.HostVisible)
			require.ErrorIs(t, err, hal.ErrOutOfMemory)
			require.ErrorContains(t, err, c.call)
			require.Nil(t, m)
			require.Zero(t, f.Balance())
		})
	}
}

func TestTransfersHaveEndedWhenTheyReturn(t *testing.T) {
	f, d := open(t, false)
	m, err := d.Alloc(64, hal.DeviceMemory)
	require.NoError(t, err)
	require.NoError(t, m.Write([]byte{1}, 0))
	require.Equal(t, []string{"retain", "alloc 64", "memset 64", "settle", "htod 1", "settle"}, f.Log())
}

func TestCapture_DependentAfterACopyIsAPlainEdge(t *testing.T) {
	f, d := open(t, false)
	mem, err := d.Alloc(64, hal.DeviceMemory)
	require.NoError(t, err)
	m, err := d.Load(context.Background(), hal.Image{PTX: ".version 8.8"})
	require.NoError(t, err)
	kernel := hal.Op{Module: m, Kernel: "k", Grid: [3]int{1, 1, 1}, Block: [3]int{32, 1, 1}, Dependent: true}
	ops := []hal.Op{kernel, kernel, {Src: mem, Dst: mem, Bytes: 16}, kernel, {Src: mem, Dst: mem}, kernel}
	for i := 1; i < len(ops); i++ {
		ops[i].After = []int{i - 1}
	}
	_, err = d.Capture(context.Background(), ops)
	require.NoError(t, err)
	var got []string
	for _, l := range f.Log() {
		if _, rest, ok := strings.Cut(l, " dependent "); ok {
			got = append(got, rest[:1])
		} else if strings.HasPrefix(l, "copy") {
			got = append(got, l)
		}
	}
	require.Equal(t, []string{"0", "1", "copy 16", "0", "1"}, got, "a copy of no bytes is no node")
}

// TestTheGraphHasTheEdgesOfAfter: a line "after" before an op names the nodes, by number, where they are not the one
// before.
func TestTheGraphHasTheEdgesOfAfter(t *testing.T) {
	f, d := open(t, false)
	mem, err := d.Alloc(64, hal.DeviceMemory)
	require.NoError(t, err)
	m, err := d.Load(context.Background(), hal.Image{PTX: ".version 8.8"})
	require.NoError(t, err)
	kernel := func(after ...int) hal.Op {
		return hal.Op{Module: m, Kernel: "k", Grid: [3]int{1, 1, 1}, Block: [3]int{32, 1, 1}, Dependent: true, After: after}
	}
	copyOf := func(bytes int, after ...int) hal.Op { return hal.Op{Src: mem, Dst: mem, Bytes: bytes, After: after} }
	edges := func(ops ...hal.Op) []string {
		begin := len(f.Log())
		g, err := d.Capture(context.Background(), ops)
		require.NoError(t, err)
		require.NoError(t, g.Close())
		var got []string
		for _, l := range f.Log()[begin:] {
			switch word, rest, _ := strings.Cut(l, " "); {
			case word == "after":
				got = append(got, l)
			case strings.HasPrefix(rest, "k grid") && strings.Contains(rest, "dependent 1"):
				got = append(got, "dependent")
			case word == "launch" || word == "copy":
				got = append(got, word)
			}
		}
		return got
	}
	require.Equal(t, []string{"launch", "dependent", "dependent"}, edges(kernel(), kernel(0), kernel(1)), "a chain needs no words")
	require.Equal(t, []string{"launch", "dependent", "after 0", "launch", "after 1 2", "launch", "dependent"},
		edges(kernel(), kernel(0), kernel(0), kernel(1, 2), kernel(3)), "two branches that meet")
	require.Equal(t, []string{"launch", "after nothing", "copy", "after 0", "launch", "after 1 2", "copy"},
		edges(kernel(), copyOf(16), kernel(0), copyOf(8, 1, 2)), "a branch that begins by itself")
	require.Equal(t, []string{"launch", "dependent", "after 0 1", "launch"},
		edges(kernel(), kernel(0), copyOf(0, 0, 1), kernel(2)), "a copy of no bytes hands on what it comes after")
	_, err = d.Capture(context.Background(), []hal.Op{kernel(0)})
	require.ErrorContains(t, err, "op 0 (k): its After names op 0, which is not an earlier one")
}

func TestPriorityIsALaunchAttribute(t *testing.T) {
	f, d := open(t, false)
	m, err := d.Load(context.Background(), hal.Image{PTX: ".version 8.8"})
	require.NoError(t, err)
	op := hal.Op{Module: m, Kernel: "k", Grid: [3]int{1, 1, 1}, Block: [3]int{32, 1, 1}, Dependent: true}
	ops := []hal.Op{op, op, op}
	ops[1].After, ops[1].Priority = []int{0}, -3
	ops[2].After = []int{1}
	_, err = d.Capture(context.Background(), ops)
	require.NoError(t, err)
	launch := func(dependent int) string {
		return fmt.Sprintf("launch k grid 1,1,1 block 32,1,1 shared 0 dependent %d params", dependent)
	}
	require.Equal(t, []string{"begin", launch(0), "priority -3", launch(1), launch(1), "end", "instantiate", "upload"}, f.Log()[3:])
}

func TestTimedRunsAreBetweenEvents(t *testing.T) {
	f, d := open(t, false)
	g, err := d.Capture(context.Background(), nil)
	require.NoError(t, err)
	for range 2 {
		took, err := g.(hal.Timer).RunTimed(context.Background(), hal.Timing{Runs: 3})
		require.NoError(t, err)
		require.Equal(t, 1500*time.Microsecond, took)
	}
	require.NoError(t, g.Close())
	run := []string{"delay", "event 0", "graph", "graph", "graph", "event 1", "synchronize"}
	want := []string{"retain", "begin", "end", "instantiate", "upload", "load ptx", "carveout 100 of delay"}
	require.Equal(t, append(append(want, run...), run...), f.Log())
	require.NoError(t, d.Close())
	require.Zero(t, f.Balance())
}

func TestMissingDriverIsSaidPlainly(t *testing.T) {
	_, err := Open(Options{Library: "libcuda-that-is-not-there.so"})
	require.ErrorIs(t, err, hal.ErrNoDriver)
}

func TestKernelThatIsNotInTheModule(t *testing.T) {
	_, d := open(t, false)
	m, err := d.Load(context.Background(), hal.Image{PTX: ".version 8.8"})
	require.NoError(t, err)
	_, err = d.Capture(context.Background(), []hal.Op{{Module: m, Kernel: "missing", Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1}}})
	require.ErrorContains(t, err, "kernel missing")
}

// TestADeviceRemembersWhereWeightsLieBest: of this device and build of its driver, where memory is unified.
func TestADeviceRemembersWhereWeightsLieBest(t *testing.T) {
	f, d := open(t, true)
	require.NoError(t, d.Close())
	opt := Options{Library: f.Path, Homes: filepath.Join(t.TempDir(), "home")}
	again := func(unified bool) (d *Device, host bool) {
		f.Reset(unified)
		d, err := Open(opt)
		require.NoError(t, err)
		return d, d.Info().HostWeights
	}
	d, host := again(true)
	_, known := d.Home()
	require.False(t, known || host)
	h := placement.Placement{Cached: placement.Times{Bytes: 1, DeviceUS: 2, HostUS: 1}, Memory: placement.Times{Bytes: 1, DeviceUS: 2, HostUS: 2}}
	h.Decide()
	require.True(t, h.Host)
	require.NoError(t, d.KeepHome(h))
	require.NoError(t, d.Close())
	d, host = again(true)
	require.True(t, host)
	require.NoError(t, d.Close())
	d, host = again(false)
	require.False(t, host, "memory is not shared")
	require.NoError(t, d.Close())
	opt.Homes = ""
	d, host = again(true)
	require.False(t, host)
	require.NoError(t, d.KeepHome(h), "there is no cache")
	require.NoError(t, d.Close())
}
