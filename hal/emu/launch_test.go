package emu

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// TestWorkersDoNotChangeTheResult: the same bits and the same error, however many blocks run at a time.
func TestWorkersDoNotChangeTheResult(t *testing.T) {
	grid, block := [3]int{40, 1, 1}, [3]int{32, 1, 1}
	sum := splitK("atom.acq_rel.gpu.global.add.u32", "", "")
	bad := build("sm_80", 32, 1, func(k *ptx.Kernel, p []ptx.Reg) {
		b := ctaX(k)
		at := k.Reg(ptx.B64)
		k.I("mad.wide.u32", at, b, ptx.Imm(240), p[0]) // out of bounds from block 18 on
		k.I("st.global.u32", ptx.At(at, 0), b)
	})
	var want []uint32
	var first string
	for _, workers := range []int{1, 2, 7, 40} {
		for _, check := range []bool{false, true} {
			parts, count := make([]uint32, 41*32), make([]uint32, 1)
			opts := Options{Workers: workers, Check: check}
			require.NoError(t, RunKernelWith(opts, sum, "k", [3]int{8, 1, 1}, block, 4, parts, count))
			err := RunKernelWith(opts, bad, "k", grid, [3]int{1, 1, 1}, 0, make([]byte, 4096))
			require.Error(t, err)
			if want == nil {
				want, first = parts, err.Error()
			}
			require.Equal(t, want, parts)
			require.Equal(t, first, err.Error())
		}
	}
	require.Contains(t, first, "block [18 0 0]")
}

func TestRunEndsWhenItsContextDoes(t *testing.T) {
	d, err := Open(Options{Workers: 2})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	m, err := d.Load(ctx, hal.Image{Name: "m", PTX: build("sm_80", 32, 0, func(k *ptx.Kernel, p []ptx.Reg) {
		l := k.NewLabel("l")
		k.Place(l)
		k.I("bra", l)
	})})
	require.NoError(t, err)
	g, err := d.Capture(ctx, []hal.Op{{Module: m, Kernel: "k", Grid: [3]int{3, 1, 1}, Block: [3]int{32, 1, 1}}})
	require.NoError(t, err)
	done := make(chan error)
	go func() { done <- g.Run(ctx) }()
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}

func TestMemoryIsBounded(t *testing.T) {
	d, err := Open(Options{})
	require.NoError(t, err)
	m, err := d.Alloc(16, hal.DeviceMemory)
	require.NoError(t, err)
	require.Equal(t, make([]byte, 16), m.Bytes())
	require.Zero(t, m.Addr()%256)
	require.NoError(t, m.Write([]byte{1, 2}, 14))
	b := make([]byte, 2)
	require.NoError(t, m.Read(b, 14))
	require.Equal(t, []byte{1, 2}, b)
	require.Error(t, m.Write(b, 15))
	require.Error(t, m.Read(b, -1))
	require.NoError(t, m.Free())
	require.Error(t, m.Free())
	_, err = d.Alloc(-1, hal.DeviceMemory)
	require.ErrorIs(t, err, hal.ErrOutOfMemory)
	_, err = d.Load(context.Background(), hal.Image{Name: "x", PTX: "nonsense"})
	require.ErrorIs(t, err, hal.ErrBadModule)
	require.ErrorContains(t, err, "line 1")
}
