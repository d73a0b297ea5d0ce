//go:build linux && (amd64 || arm64) && !nodriver

package collectives

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal"
)

// host is a device whose memory is the process's.
type host struct{ hal.Device }

type hostMemory struct {
	hal.Memory
	data []byte
}

func (host) Do(f func() error) error { return f() }
func (host) Alloc(bytes int, _ hal.MemoryKind) (hal.Memory, error) {
	return &hostMemory{data: make([]byte, bytes)}, nil
}
func (m *hostMemory) Size() int                      { return len(m.data) }
func (m *hostMemory) Addr() uint64                   { return uint64(uintptr(unsafe.Pointer(&m.data[0]))) }
func (m *hostMemory) Read(dst []byte, at int) error  { copy(dst, m.data[at:]); return nil }
func (m *hostMemory) Write(src []byte, at int) error { copy(m.data[at:], src); return nil }
func (m *hostMemory) Free() error                    { return nil }

// fake builds the stand-in for NCCL.
func fake(t *testing.T) (path string, symbol func(name string) uintptr) {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("gcc is missing: the fake NCCL cannot be built")
	}
	path = filepath.Join(t.TempDir(), "libnccl-fake.so")
	out, err := exec.Command(gcc, "-shared", "-fPIC", "-O1", "-pthread", "-o", path, filepath.Join("testdata", "fakenccl.c")).CombinedOutput()
	require.NoError(t, err, string(out))
	lib, err := purego.Dlopen(path, purego.RTLD_NOW)
	require.NoError(t, err)
	return path, func(name string) uintptr {
		at, err := purego.Dlsym(lib, name)
		require.NoError(t, err)
		return at
	}
}

// count calls a function of the fake's.
func count(function uintptr) int {
	n, _, _ := purego.SyscallN(function)
	return int(n)
}

// TestMeansByNCCL are those of the ranks in their order, for vectors of several lengths.
func TestMeansByNCCL(t *testing.T) {
	ctx := context.Background()
	path, symbol := fake(t)
	const n = 3
	groups := groupOf(t, n)
	getenv := func(name string) string { return map[string]string{NCCLVariable: path}[name] }
	each(t, n, func(rank int) (err error) {
		groups[rank], err = OnDevice(ctx, groups[rank], host{}, getenv)
		return err
	})
	assert.Equal(t, "NCCL 2.32.3 over tcp", groups[1].Engine())
	for _, size := range []int{1000, 10, 5000} {
		var got [n][]float32
		each(t, n, func(rank int) error {
			got[rank] = vector(rank, size)
			return groups[rank].Mean(ctx, got[rank])
		})
		want := mean([][]float32{vector(0, size), vector(1, size), vector(2, size)})
		for rank := range n {
			assert.Equal(t, want, got[rank])
		}
	}
	each(t, n, func(rank int) error { return groups[rank].Broadcast(ctx, []byte("all else goes by TCP")) })
	each(t, n, func(rank int) error { return groups[rank].Close() })
	assert.Equal(t, n, count(symbol("fake_destroyed")))
}

// TestARankThatFailsUnderNCCLEndsTheOthers, which wait in a call of the library.
func TestARankThatFailsUnderNCCLEndsTheOthers(t *testing.T) {
	ctx := context.Background()
	path, symbol := fake(t)
	groups := groupOf(t, 2)
	getenv := func(string) string { return path }
	each(t, 2, func(rank int) (err error) {
		groups[rank], err = OnDevice(ctx, groups[rank], host{}, getenv)
		return err
	})
	errs := all(2, func(rank int) error {
		if rank == 1 {
			time.Sleep(50 * time.Millisecond)
			groups[1].Abort(errors.New("its disk is full"))
			return nil
		}
		return groups[0].Mean(ctx, make([]float32, 10))
	})
	assert.ErrorContains(t, errs[0], "rank 1 on ")
	assert.ErrorContains(t, errs[0], "its disk is full")
	assert.Equal(t, 2, count(symbol("fake_aborted")))
	assert.ErrorContains(t, groups[0].Mean(ctx, make([]float32, 10)), "was aborted")
	for _, g := range groups {
		_ = g.Close()
	}
}

// TestACallThatBeginsAfterAnAbortIsNotMade: the communicator is gone by then. Here the thread that was to make it is late.
func TestACallThatBeginsAfterAnAbortIsNotMade(t *testing.T) {
	path, symbol := fake(t)
	groups := groupOf(t, 2)
	slow := &slowHost{turn: make(chan struct{}), said: make(chan error, 1)}
	each(t, 2, func(rank int) (err error) {
		groups[rank], err = OnDevice(t.Context(), groups[rank], []hal.Device{slow, host{}}[rank], func(string) string { return path })
		return err
	})
	slow.late.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.ErrorIs(t, groups[0].Mean(ctx, make([]float32, 10)), context.Canceled)
	assert.Equal(t, 1, count(symbol("fake_aborted")))
	close(slow.turn)
	assert.ErrorIs(t, <-slow.said, errAborted)
	for _, g := range groups {
		_ = g.Close()
	}
}

// slowHost is a host whose first call, once it is late, waits for its turn.
type slowHost struct {
	host
	late atomic.Bool
	turn chan struct{}
	said chan error
}

func (h *slowHost) Do(f func() error) error {
	if !h.late.CompareAndSwap(true, false) {
		return f()
	}
	<-h.turn
	err := f()
	h.said <- err
	return err
}

// TestErrorsOfNCCL have its text; without the library on one rank none uses it.
func TestErrorsOfNCCL(t *testing.T) {
	ctx := context.Background()
	path, symbol := fake(t)
	groups := groupOf(t, 2)
	each(t, 2, func(rank int) error {
		g, err := OnDevice(ctx, groups[rank], host{}, func(string) string { return []string{path, "/nowhere/libnccl.so.2"}[rank] })
		assert.Equal(t, groups[rank], g, "one rank has no NCCL")
		return err
	})
	purego.SyscallN(symbol("fake_fail"), 5)
	errs := all(2, func(rank int) error {
		_, err := OnDevice(ctx, groups[rank], host{}, func(string) string { return path })
		return err
	})
	for rank, err := range errs {
		assert.ErrorContains(t, err, "ncclCommInitRankScalable: invalid usage (5)", "rank %d", rank)
	}
	each(t, 2, func(rank int) error { return groups[rank].Close() })
	g, err := OnDevice(ctx, alone{}, host{}, func(string) string { return path })
	require.NoError(t, err)
	assert.Equal(t, alone{}, g)
}

// TestTheRealLibrary as far as it goes without a GPU: version, unique id, the text of an error.
func TestTheRealLibrary(t *testing.T) {
	path := os.Getenv(NCCLVariable)
	if path == "" {
		t.Skip("SPARK_NCCL names no libnccl.so.2")
	}
	n, err := openNCCL(path)
	require.NoError(t, err)
	assert.Greater(t, n.number, 22300)
	a, err := n.unique()
	require.NoError(t, err)
	b, err := n.unique()
	require.NoError(t, err)
	assert.Len(t, a, ncclUniqueIDBytes)
	assert.NotEqual(t, a, b)
	var comm uintptr
	err = n.call("ncclCommInitRankScalable", uintptr(unsafe.Pointer(&comm)), 1, 0, 1, uintptr(unsafe.Pointer(&a[0])), 0)
	t.Log(n.version(), err)
	assert.ErrorContains(t, err, "ncclCommInitRankScalable: ")
}
