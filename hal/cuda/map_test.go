//go:build linux && (amd64 || arm64) && !nodriver

package cuda

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal"
)

// TestTheHostsMemoryIsMapped: where GPU and host share page tables and a kernel reads what the host has written last;
// nothing is registered, and where it is not so the error says why.
func TestTheHostsMemoryIsMapped(t *testing.T) {
	f, d := open(t, true)
	defer d.Close()
	_, err := d.Map(make([]byte, 16))
	require.ErrorIs(t, err, hal.ErrNoSuchMemory)
	require.ErrorContains(t, err, "Fake GB10 does not read the host's own memory")
	require.NoError(t, d.Close())

	again := func(stale int) *Device {
		f.Reset(true)
		f.Set("page tables", 1)
		d, err := Open(Options{Library: f.Path})
		require.NoError(t, err)
		t.Cleanup(func() { d.Close() })
		f.Set("stale reads", stale)
		return d
	}
	d = again(4)
	_, err = d.Map(make([]byte, 16))
	require.ErrorIs(t, err, hal.ErrNoSuchMemory)
	require.ErrorIs(t, err, errStale)
	require.NoError(t, d.Close())

	d = again(0)
	b := []byte("bytes of a camera")
	m, err := d.Map(b)
	require.NoError(t, err)
	require.Equal(t, uint64(addr(&b[0])), m.Addr())
	require.Equal(t, len(b), m.Size())
	b[0] = 'B'
	require.EqualValues(t, "Bytes of a camera", m.Bytes())
	tried := len(f.Log())
	_, err = d.Map(b[1:])
	require.NoError(t, err)
	require.Len(t, f.Log(), tried, "it is tried once")
	require.NoError(t, m.Free())
	require.Len(t, f.Log(), tried, "and the driver hears of nothing")
	_, err = d.Map(nil)
	require.EqualError(t, err, "there are no bytes to map")
	require.NoError(t, d.Close())
	require.Zero(t, f.Balance())
}

// TestANodeIsUpdated: its parameters alone, between runs, as long as the graph is open.
func TestANodeIsUpdated(t *testing.T) {
	f, d := open(t, true)
	defer d.Close()
	m, err := d.Load(t.Context(), hal.Image{Name: "test", PTX: ".version 8.8\n"})
	require.NoError(t, err)
	defer m.Close()
	op := func(kernel string, x uint64) hal.Op {
		return hal.Op{Module: m, Kernel: kernel, Grid: [3]int{3, 2, 1}, Block: [3]int{128, 1, 1}, Shared: 512, Params: []uint64{x, 5}, Sizes: []int{8, 8}, Varies: true}
	}
	first, second, third := op("first", 1), op("second", 2), op("third", 3)
	second.After, third.After, third.Varies = []int{0}, []int{1}, false
	g, err := d.Capture(t.Context(), []hal.Op{first, second, third})
	require.NoError(t, err)
	u := g.(hal.Updater)
	second.Params = []uint64{0x77, 0x88}
	require.NoError(t, u.Update(1, second))
	log := f.Log()
	require.Equal(t, "node 1 is second grid 3,2,1 block 128,1,1 shared 512 params 77 88", log[len(log)-1])
	require.NoError(t, g.Run(t.Context()))

	wider := second
	wider.Grid[0]++
	require.EqualError(t, u.Update(1, wider), "op 1 (second): an update changes parameters and ranges alone")
	require.ErrorContains(t, u.Update(0, second), "op 0 (first): an update changes")
	for _, i := range []int{-1, 2, 3} {
		require.EqualError(t, u.Update(i, third), fmt.Sprintf("op %d does not vary", i))
	}
	f.Fail("cuGraphExecKernelNodeSetParams", 0, 700)
	require.ErrorIs(t, u.Update(0, first), hal.ErrDeviceLost)
	f.Fail("", 0, 0)
	require.NoError(t, g.Close())
	require.NoError(t, m.Close())
	require.Zero(t, f.Balance())
	require.False(t, strings.Contains(strings.Join(f.Log(), "\n"), "running"))
}
