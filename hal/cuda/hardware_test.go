//go:build linux && (amd64 || arm64) && !nodriver

package cuda

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/testing/fakecuda"
)

// sequence captures n kernels, each of which may begin before its predecessor has ended.
func sequence(t *testing.T, d *Device, n int) (*graph, error) {
	t.Helper()
	m, err := d.Load(context.Background(), hal.Image{PTX: ".version 8.8"})
	require.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	ops := make([]hal.Op, n)
	for i := range ops {
		ops[i] = hal.Op{Module: m, Kernel: "k", Grid: [3]int{1, 1, 1}, Block: [3]int{32, 1, 1}}
		if i > 0 {
			ops[i].After, ops[i].Dependent = []int{i - 1}, true
		}
	}
	g, err := d.Capture(context.Background(), ops)
	if err != nil {
		return nil, err
	}
	return g.(*graph), nil
}

func TestARunEndsWithItsContext(t *testing.T) {
	f, d := open(t, false)
	mem, err := d.Alloc(64, hal.DeviceMemory)
	require.NoError(t, err)
	g, err := sequence(t, d, 1)
	require.NoError(t, err)
	soon := func(f func(context.Context) error) error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		return f(ctx)
	}
	f.Set("busy", -1)
	for _, run := range []func(context.Context) error{g.Run, g.Run, func(ctx context.Context) error { _, err := g.RunTimed(ctx, hal.Timing{}); return err }} {
		require.ErrorIs(t, soon(run), context.DeadlineExceeded, "a kernel that never ends")
	}
	require.NotContains(t, f.Log(), "launch over a running graph", "the second run waits for the first")
	require.ErrorIs(t, soon(g.Wait), hal.ErrBusy)
	require.ErrorIs(t, g.Close(), hal.ErrBusy, "what runs cannot be freed")
	f.Set("busy", 3) // it ends after all
	require.NoError(t, g.Wait(t.Context()))
	require.NoError(t, g.Run(t.Context()))
	_, err = g.RunTimed(t.Context(), hal.Timing{})
	require.NoError(t, err)
	for _, line := range f.Log() {
		require.NotContains(t, line, "waits for the graph")
	}
	require.NoError(t, g.Close())
	require.NoError(t, mem.Free())
}

func TestEdgesAreThoseOfTheLaunchList(t *testing.T) {
	for _, c := range []struct {
		name         string
		wrong        int
		programmatic int
		fails        string
	}{
		{"as they are", 0, 2, ""},
		{"plain ones", 1, 0, ""},
		{"one is missing", 2, 0, "1 edges of the launch list are missing"},
		{"one is there twice", 3, 0, "an edge that the launch list does not have"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, d := open(t, false)
			f.Set("edges wrong", c.wrong)
			g, err := sequence(t, d, 3)
			if c.fails != "" {
				require.ErrorContains(t, err, c.fails)
				require.NotContains(t, f.Log(), "instantiate")
				return
			}
			require.NoError(t, err)
			wanted, programmatic := g.Programmatic()
			require.Equal(t, []int{2, c.programmatic}, []int{wanted, programmatic})
			require.NoError(t, g.Close())
		})
	}
	f, d := open(t, false)
	f.Set("edges wrong", 4)
	m, err := d.Load(t.Context(), hal.Image{PTX: ".version 8.8"})
	require.NoError(t, err)
	k := hal.Op{Module: m, Kernel: "k", Grid: [3]int{1, 1, 1}, Block: [3]int{32, 1, 1}}
	after := k
	after.After = []int{0}
	_, err = d.Capture(t.Context(), []hal.Op{k, after})
	require.ErrorContains(t, err, "must not begin early")
}

func TestADriverWithoutProgrammaticLaunchesGetsPlainOnes(t *testing.T) {
	f, d := open(t, false)
	f.Set("no programmatic launches", 1)
	g, err := sequence(t, d, 3)
	require.NoError(t, err)
	wanted, programmatic := g.Programmatic()
	require.Equal(t, []int{2, 0}, []int{wanted, programmatic})
	require.NoError(t, g.Run(t.Context()))
	require.NoError(t, g.Close())
	require.Equal(t, 3, strings.Count(strings.Join(f.Log(), "\n"), "dependent 0")-1, "one before the first was refused, three then")
}

func TestAnAttributeThatTheDriverDoesNotKnow(t *testing.T) {
	for attribute := range 128 {
		f, d := open(t, true)
		require.NoError(t, d.Close())
		f.Set("unknown attribute", attribute)
		d, err := Open(Options{Library: f.Path})
		if attribute == attributeComputeMajor || attribute == attributeComputeMinor {
			require.ErrorContains(t, err, "cuDeviceGetAttribute")
			continue
		}
		require.NoError(t, err, "attribute %d", attribute)
		require.Positive(t, d.Info().SharedBlock)
		require.NoError(t, d.Close())
	}
}

func TestMemoryIsFreedOnce(t *testing.T) {
	for _, memory := range []struct {
		unified       bool
		host, managed int
	}{{false, 1, 1}, {true, 1, 1}, {true, 0, 1}} {
		f, d := open(t, memory.unified)
		require.NoError(t, d.Close())
		f.Reset(memory.unified)
		f.Set("host coherent", memory.host)
		d, err := Open(Options{Library: f.Path})
		require.NoError(t, err)
		m, err := d.Alloc(64, hal.HostVisible)
		require.NoError(t, err)
		require.NoError(t, m.Free())
		require.NoError(t, m.Free())
		require.Zero(t, f.Balance())
		require.NoError(t, d.Close())
	}
}

func TestCodeIsLoadedInAnotherFormWhateverFails(t *testing.T) {
	const unknown, lost = 999, 719
	dir := filepath.Join(t.TempDir(), "jit")
	for _, c := range []struct {
		call        string
		image       hal.Image
		cache, from string
	}{
		{"cuModuleLoadDataEx", hal.Image{Cubin: []byte("CUBIN"), PTX: ".version 8.8"}, "", "load ptx"},
		{"cuModuleLoadDataEx", hal.Image{Cubin: []byte("CUBIN"), PTX: ".version 8.8"}, dir, "load cubin"},
		{"cuModuleLoadDataEx", hal.Image{PTX: ".version 8.8"}, dir, "load ptx"},
		{"cuLinkCreate", hal.Image{PTX: ".version 8.8"}, dir, "load ptx"},
		{"cuLinkAddData", hal.Image{PTX: ".version 8.8"}, dir, "load ptx"},
		{"cuLinkComplete", hal.Image{PTX: ".version 8.8"}, dir, "load ptx"},
	} {
		for _, code := range []int{unknown, 2, lost} {
			f, d := open(t, false)
			require.NoError(t, os.RemoveAll(dir))
			require.NoError(t, d.Close())
			d, err := Open(Options{Library: f.Path, Cache: c.cache})
			require.NoError(t, err)
			f.Fail(c.call, 0, code)
			m, err := d.Load(t.Context(), c.image)
			if code != unknown {
				require.ErrorIs(t, err, meanings[code], "%s: nothing else would do", c.call)
				continue
			}
			require.NoError(t, err, c.call)
			require.Contains(t, f.Log(), c.from)
			require.NoError(t, m.Close())
			require.NoError(t, d.Close())
			require.Zero(t, f.Balance())
		}
	}
}

func TestTheCarveOutIsAHint(t *testing.T) {
	f, d := open(t, false)
	f.Fail("cuFuncSetAttribute", 0, 1)
	g, err := sequence(t, d, 1)
	require.NoError(t, err)
	require.NoError(t, g.Close())
	f.Fail("cuFuncSetAttribute", 0, 719)
	_, err = sequence(t, d, 1)
	require.ErrorIs(t, err, hal.ErrDeviceLost)
	f.Reset(false)
	d, err = Open(Options{Library: f.Path, Switches: hal.Switches{NoCarveout: true}})
	require.NoError(t, err)
	g, err = sequence(t, d, 1)
	require.NoError(t, err)
	require.NotContains(t, f.Log(), "carveout 100 of k")
	require.NoError(t, g.Close())
}

func TestTheCacheIsOfOneBuildOfTheDriver(t *testing.T) {
	f := fakecuda.Build(t)
	build := func() string {
		d, err := Open(Options{Library: f.Path, Cache: t.TempDir()})
		require.NoError(t, err)
		defer d.Close()
		return d.cache.driver
	}
	before := build()
	require.Contains(t, before, filepath.Base(f.Path))
	require.Equal(t, before, build())
	require.NoError(t, os.Chtimes(f.Path, time.Time{}, time.Unix(1e9, 0)))
	require.NotEqual(t, before, build(), "another file of the same CUDA version")
}
