//go:build linux && (amd64 || arm64) && !nodriver

package cuda

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/testing/fakecuda"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
)

// entryPoints are the names of the driver's calls in messages: the exported symbols without their versions.
func entryPoints() []string {
	var names []string
	for _, s := range slices.Concat(symbols, newer) {
		names = append(names, plain(s))
	}
	return names
}

// faults are the codes that every call is made to fail with.
var faults = []struct {
	code int
	is   error // what errors.Is finds, or nil
}{
	{1, nil},                  // CUDA_ERROR_INVALID_VALUE
	{2, hal.ErrOutOfMemory},   // CUDA_ERROR_OUT_OF_MEMORY
	{3, nil},                  // CUDA_ERROR_NOT_INITIALIZED
	{4, nil},                  // CUDA_ERROR_DEINITIALIZED
	{34, hal.ErrNoDriver},     // CUDA_ERROR_STUB_LIBRARY
	{35, hal.ErrDriverTooOld}, // CUDA_ERROR_INSUFFICIENT_DRIVER
	{46, hal.ErrDeviceLost},   // CUDA_ERROR_DEVICE_UNAVAILABLE
	{100, hal.ErrNoDevice},    // CUDA_ERROR_NO_DEVICE
	{101, hal.ErrNoDevice},    // CUDA_ERROR_INVALID_DEVICE
	{200, hal.ErrBadModule},   // CUDA_ERROR_INVALID_IMAGE
	{201, nil},                // CUDA_ERROR_INVALID_CONTEXT
	{209, hal.ErrBadModule},   // CUDA_ERROR_NO_BINARY_FOR_GPU
	{214, hal.ErrDeviceLost},  // CUDA_ERROR_ECC_UNCORRECTABLE
	{218, hal.ErrBadModule},   // CUDA_ERROR_INVALID_PTX
	{220, hal.ErrDeviceLost},  // CUDA_ERROR_NVLINK_UNCORRECTABLE
	{221, hal.ErrBadModule},   // CUDA_ERROR_JIT_COMPILER_NOT_FOUND
	{222, hal.ErrBadModule},   // CUDA_ERROR_UNSUPPORTED_PTX_VERSION
	{400, nil},                // CUDA_ERROR_INVALID_HANDLE
	{500, nil},                // CUDA_ERROR_NOT_FOUND
	{700, hal.ErrDeviceLost},
	{702, hal.ErrDeviceLost},
	{709, hal.ErrDeviceLost},
	{710, hal.ErrDeviceLost},
	{714, hal.ErrDeviceLost},
	{715, hal.ErrDeviceLost},
	{716, hal.ErrDeviceLost},
	{717, hal.ErrDeviceLost},
	{718, hal.ErrDeviceLost},
	{719, hal.ErrDeviceLost},
	{801, nil},                 // CUDA_ERROR_NOT_SUPPORTED
	{802, hal.ErrNoDriver},     // CUDA_ERROR_SYSTEM_NOT_READY
	{803, hal.ErrDriverTooOld}, // CUDA_ERROR_SYSTEM_DRIVER_MISMATCH
	{804, hal.ErrDriverTooOld}, // CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE
	{900, nil},                 // CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
	{901, nil},                 // CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
	{999, nil},                 // CUDA_ERROR_UNKNOWN
}

// life does everything that a program does with a device, closes what it got, and returns all errors and how long the
// driver's log was when the device was open.
func life(f *fakecuda.Driver, cache string) (opened int, err error) {
	var errs []error
	opened = live(f, cache, func(err error) bool {
		errs = append(errs, err)
		return err == nil
	})
	return opened, errors.Join(errs...)
}

func live(f *fakecuda.Driver, cache string, ok func(error) bool) (opened int) {
	ctx := context.Background()
	_, err := List(Options{Library: f.Path})
	ok(err)
	d, err := Open(Options{Library: f.Path, Cache: cache})
	opened = len(f.Log())
	if !ok(err) {
		return opened
	}
	defer release(ok, d.Close)
	var mems []hal.Memory
	for _, kind := range []hal.MemoryKind{hal.DeviceMemory, hal.HostVisible, hal.PinnedMemory, hal.ManagedMemory} {
		m, err := d.Alloc(256, kind)
		if errors.Is(err, hal.ErrNoSuchMemory) { // as a device is without the attribute
			continue
		}
		if !ok(err) {
			continue
		}
		defer release(ok, m.Free)
		mems = append(mems, m)
		ok(m.Write([]byte{1}, 0))
		ok(m.Read(make([]byte, 1), 0))
	}
	for _, image := range []hal.Image{{Cubin: []byte("CUBIN")}, {PTX: ".version 8.8"}} {
		m, err := d.Load(ctx, image)
		if !ok(err) {
			continue
		}
		defer release(ok, m.Close)
		k := hal.Op{Module: m, Kernel: "k", Grid: [3]int{1, 1, 1}, Block: [3]int{32, 1, 1}, Shared: 50000}
		next := k
		next.After, next.Dependent = []int{0}, true
		ops := []hal.Op{k, next}
		if len(mems) > 0 {
			move := hal.Op{Src: mems[0], Dst: mems[0], DstOffset: 128, Bytes: 16}
			ops = append(ops, move, move)
			ops[3].After = []int{1, 2}
		}
		g, err := d.Capture(ctx, ops)
		if !ok(err) {
			continue
		}
		defer release(ok, g.Close)
		ok(g.Run(ctx))
		until, cancel := context.WithCancel(ctx)
		ok(g.Run(until))
		cancel()
		_, err = g.(hal.Timer).RunTimed(ctx, hal.Timing{Runs: 2})
		ok(err)
	}
	return opened
}

// release closes something; where the context could not be made current nothing was freed, and closing again must do
// it.
func release(ok func(error) bool, closeIt func() error) {
	err := closeIt()
	if !ok(err) && strings.Contains(err.Error(), "cuCtxSetCurrent") {
		ok(closeIt())
	}
}

// freeing calls lose one thing if they fail themselves.
var freeing = map[string]bool{"cuMemFree": true, "cuMemFreeHost": true, "cuModuleUnload": true, "cuStreamDestroy": true, "cuGraphExecDestroy": true,
	"cuGraphDestroy": true, "cuEventDestroy": true, "cuLinkDestroy": true}

// absorbed calls may fail without an error: a name of an error, the probe of unified memory when the device is opened
// unless the device is lost, attributes that a driver need not know, hints, and what makes cubins of PTX that can be
// loaded as it is. Before is the driver's log up to the failure.
func absorbed(call string, nth, code int, probing bool, before []string) bool {
	if probing && !strings.HasPrefix(call, "cuDevice") && call != "cuInit" && call != "cuDriverGetVersion" {
		return meanings[code] != hal.ErrDeviceLost
	}
	gone := meanings[code] == hal.ErrDeviceLost || meanings[code] == hal.ErrOutOfMemory
	switch call {
	case "cuGetErrorName", "cuModuleLoadDataEx":
		return true
	case "cuDeviceGetAttribute":
		return meanings[code] == nil && nth%14 >= required
	case "cuFuncSetAttribute": // a kernel's carve-out, and right after it its size
		return !gone && !strings.HasPrefix(before[len(before)-1], "carveout ")
	case "cuLinkCreate", "cuLinkAddData", "cuLinkComplete", "cuLinkDestroy":
		return !gone
	case "cuLaunchKernelEx":
		return code == 1 || code == 801
	}
	return false
}

// TestEveryCallThatFails fails each entry point of the driver, at each of its calls in a device's life and with every
// code: the error says which call it was and what it means, everything else is freed, and nothing crashes.
func TestEveryCallThatFails(t *testing.T) {
	fulltest.Long(t)
	f, d := open(t, false)
	require.NoError(t, d.Close())
	for _, memory := range []struct {
		name                   string
		integrated, hostShared uintptr
	}{{"discrete", 0, 1}, {"host-allocated", 1, 1}, {"managed", 1, 0}} {
		t.Run(memory.name, func(t *testing.T) {
			cache := filepath.Join(t.TempDir(), "cache")
			fails := func(call string, nth, code int, is error) (reached bool) {
				f.Reset(memory.integrated == 1)
				f.Set("host coherent", int(memory.hostShared))
				f.Fail(call, nth, code)
				require.NoError(t, os.RemoveAll(cache))
				opened, err := life(f, cache)
				lines := f.Log()
				log := strings.Join(lines, "\n")
				what := fmt.Sprintf("call %d of %s with code %d: %v\n%s", nth, call, code, err, log)
				reached = call == "cuGetErrorName" || strings.Contains(log, fmt.Sprintf("%s fails %d", call, code))
				at := max(0, slices.Index(lines, fmt.Sprintf("%s fails %d", call, code)))
				// The module of the delay kernel, which the device keeps, goes with the context of a device that is
				// lost while it is closed.
				closing := err == nil && reached && call == "cuCtxSetCurrent" && meanings[code] == hal.ErrDeviceLost && slices.Equal(lines[at+1:], []string{"release"})
				leak := 0
				if reached && freeing[call] || closing {
					leak = 1
				}
				require.Equal(t, leak, f.Balance(), what)
				leak = 0
				if reached && call == "cuDevicePrimaryCtxRelease" {
					leak = 1
				}
				require.Equal(t, leak, f.Contexts(), what)
				if err == nil {
					if reached {
						require.True(t, closing || absorbed(call, nth, code, memory.integrated == 1 && at < opened, lines[:at]), what)
					}
					return reached
				}
				require.True(t, reached, what)
				if !errors.Is(err, hal.ErrBadModule) {
					require.ErrorContains(t, err, call, what)
				}
				if is != nil {
					require.ErrorIs(t, err, is, what)
				}
				return reached
			}
			// A lost device is handled where a call is made, not by how often it was made before.
			full := fulltest.Runs(t.Name())
			seen := 0
			for _, call := range entryPoints() {
				if call == "cuGetErrorName" {
					continue
				}
				for nth := 0; fails(call, nth, 1, nil); nth++ {
					if nth < 3 || full {
						fails(call, nth, 719, hal.ErrDeviceLost)
					}
					if nth == 0 {
						seen++
						for _, fault := range faults {
							fails(call, nth, fault.code, fault.is)
						}
					}
				}
			}
			require.GreaterOrEqual(t, seen, 40, "entry points that a device's life reaches")
		})
	}
}

func TestErrorsHaveTheirCodeWhereTheDriverHasNoNameForThem(t *testing.T) {
	f, d := open(t, false)
	defer d.Close()
	f.Fail("cuGetErrorName", 0, 1)
	err := d.driver.failure("cuLaunchKernelEx", 4711)
	require.EqualError(t, err, "cuLaunchKernelEx: CUDA error (4711)")
}

func TestMemoryIsSharedInTheWayThatTheProbeFindsCoherent(t *testing.T) {
	for _, c := range []struct {
		name                                  string
		integrated                            uintptr
		host, managed, offered, stale, mapped int
		alloc, copies                         string
	}{
		{"own memory", 0, 1, 1, 1, 0, 0, "alloc 64", "Fake GB10 has its own memory"},
		{"host-allocated", 1, 1, 1, 1, 0, 1, "hostalloc 64 flags 3", ""},
		{"managed", 1, 0, 1, 1, 0, 1, "managed 64 flags 1", ""},
		{"neither", 1, 0, 0, 1, 0, 0, "alloc 64", "managed memory: host and device do not see"},
		{"no managed memory", 1, 0, 1, 0, 0, 0, "alloc 64", "managed memory: not supported by the device"},
		{"host-allocated, read once", 1, 1, 1, 1, 1, 1, "managed 64 flags 1", ""},
		{"both, read once", 1, 1, 1, 1, 3, 0, "alloc 64", "managed memory: 4 bytes: a kernel read what the host had written before"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, d := open(t, false)
			require.NoError(t, d.Close())
			f.Reset(c.integrated == 1)
			f.Set("host coherent", c.host)
			f.Set("managed coherent", c.managed)
			f.Set("managed offered", c.offered)
			f.Set("stale reads", c.stale)
			d, err := Open(Options{Library: f.Path})
			require.NoError(t, err)
			require.Equal(t, c.mapped == 1, d.Info().Unified)
			require.Contains(t, d.Copies(), c.copies)
			require.Equal(t, c.copies == "", d.Copies() == "")
			m, err := d.Alloc(64, hal.HostVisible)
			require.NoError(t, err)
			require.Equal(t, c.mapped == 1, m.Bytes() != nil)
			require.Contains(t, f.Log(), c.alloc)
			require.NoError(t, m.Free())
			require.NoError(t, d.Close())
			require.Zero(t, f.Balance())
		})
	}
}

// TestMemoryOfTheKindAskedFor, whatever the probe chose for inputs and outputs; a device that has none says so.
func TestMemoryOfTheKindAskedFor(t *testing.T) {
	for _, unified := range []bool{true, false} {
		for kind, log := range map[hal.MemoryKind]string{hal.DeviceMemory: "alloc 320", hal.PinnedMemory: "hostalloc 320 flags 3", hal.ManagedMemory: "managed 320 flags 1"} {
			f, d := open(t, unified)
			m, err := d.Alloc(320, kind)
			require.NoError(t, err)
			require.Equal(t, kind != hal.DeviceMemory, m.Bytes() != nil)
			require.Contains(t, f.Log(), log)
			require.NoError(t, m.Write([]byte{7}, 319))
			got := make([]byte, 2)
			require.NoError(t, m.Read(got, 318))
			require.Equal(t, []byte{0, 7}, got)
			require.NoError(t, m.Free())
			require.NoError(t, d.Close())
			require.Zero(t, f.Balance())
		}
	}
	f, d := open(t, false)
	require.NoError(t, d.Close())
	f.Set("managed offered", 0)
	d, err := Open(Options{Library: f.Path})
	require.NoError(t, err)
	_, err = d.Alloc(320, hal.ManagedMemory)
	require.ErrorIs(t, err, hal.ErrNoSuchMemory)
	require.EqualError(t, err, "managed memory: not supported by the device")
	require.NoError(t, d.Close())
	require.Zero(t, f.Balance())
}

func TestListDescribesEveryGPU(t *testing.T) {
	f, d := open(t, true)
	require.NoError(t, d.Close())
	f.Set("devices", 2)
	f.Set("version", 12090)
	s, err := List(Options{Library: f.Path})
	require.NoError(t, err)
	require.Equal(t, "12.9", s.CUDA)
	require.Len(t, s.GPUs, 2)
	want := GPU{Ordinal: 1, Name: "Fake GB10", Bus: "0000000f:01:00.0", Major: 12, Minor: 1, SMs: 48, Memory: 1 << 37, SharedBlock: 101376, L2Bytes: 24 << 20,
		ClockMHz: 2418, Integrated: true, CanMapHost: true, Managed: true, ConcurrentManaged: true}
	require.Equal(t, want, s.GPUs[1])
	require.Equal(t, "sm_121", want.Target())
	f.Set("devices", 0)
	_, err = Open(Options{Library: f.Path})
	require.ErrorIs(t, err, hal.ErrNoDevice)
}

func TestCompiledPTXIsKeptByContent(t *testing.T) {
	f, d := open(t, false)
	require.NoError(t, d.Close())
	dir := filepath.Join(t.TempDir(), "made when needed")
	// load loads PTX in a device of its own, as another process would, and says whether it was compiled.
	load := func(ptx string) bool {
		t.Helper()
		d, err := Open(Options{Library: f.Path, Cache: dir})
		require.NoError(t, err)
		before := strings.Count(strings.Join(f.Log(), "\n"), "link ")
		m, err := d.Load(context.Background(), hal.Image{PTX: ptx})
		require.NoError(t, err)
		require.NoError(t, m.Close())
		require.NoError(t, d.Close())
		return strings.Count(strings.Join(f.Log(), "\n"), "link ") > before
	}
	require.True(t, load(".version 8.8"))
	require.False(t, load(".version 8.8"))
	require.True(t, load(".version 8.8 other"))
	f.Set("version", 13010)
	require.True(t, load(".version 8.8"), "another driver compiles anew")
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 3, "and leaves no temporary file")
	for _, damage := range []func(string) error{
		func(p string) error { return os.Truncate(p, 40) },
		func(p string) error { return os.Truncate(p, 3) },
		func(p string) error { return os.WriteFile(p, make([]byte, 60), 0o644) },
	} {
		for _, file := range files {
			require.NoError(t, damage(filepath.Join(dir, file.Name())))
		}
		require.True(t, load(".version 8.8"), "damaged files are compiled again")
		require.False(t, load(".version 8.8"))
	}
	_, err = os.Stat(dir)
	require.NoError(t, err)
	require.Zero(t, f.Balance())
}

func TestCacheThatCannotBeWrittenIsNone(t *testing.T) {
	f, d := open(t, false)
	require.NoError(t, d.Close())
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	d, err := Open(Options{Library: f.Path, Cache: filepath.Join(file, "jit")})
	require.NoError(t, err)
	m, err := d.Load(context.Background(), hal.Image{PTX: ".version 8.8"})
	require.NoError(t, err)
	require.NoError(t, m.Close())
	_, err = d.Load(context.Background(), hal.Image{PTX: "garbage"})
	require.ErrorIs(t, err, hal.ErrBadModule)
	require.NoError(t, d.Close())
	require.Zero(t, f.Balance())
}

func TestLibraryThatLacksAnEntryPointIsTooOld(t *testing.T) {
	_, err := Open(Options{Library: "libc.so.6"})
	require.ErrorIs(t, err, hal.ErrDriverTooOld)
	require.ErrorContains(t, err, "CUDA 12")
}

// TestARunWhoseClockFailsIsWaitedFor: when the second event cannot be recorded, the graph runs already.
func TestARunWhoseClockFailsIsWaitedFor(t *testing.T) {
	ctx := context.Background()
	f, d := open(t, false)
	m, err := d.Load(ctx, hal.Image{PTX: ".version 8.8"})
	require.NoError(t, err)
	g, err := d.Capture(ctx, []hal.Op{{Module: m, Kernel: "k", Grid: [3]int{1, 1, 1}, Block: [3]int{32, 1, 1}}})
	require.NoError(t, err)
	f.Set("busy", 3)
	f.Fail("cuEventRecord", 1, 801)
	_, err = g.(hal.Timer).RunTimed(ctx, hal.Timing{Runs: 2})
	require.ErrorContains(t, err, "cuEventRecord")
	require.NoError(t, g.Close())
	require.NoError(t, m.Close())
	require.NoError(t, d.Close())
	require.Zero(t, f.Held())
}
