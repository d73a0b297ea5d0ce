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
		l, i := k.NewLabel("l"), k.Reg(ptx.B32)
		k.I("mov.u32", i, ptx.Imm(0))
		k.Place(l)
		k.I("add.s32", i, i, ptx.Imm(1))
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

// circle has each block raise its own flag once the next block's is up.
func circle(sum bool) string {
	return build("sm_90", 64, 1, func(k *ptx.Kernel, p []ptx.Reg) {
		b, next, grid, v, n := ctaX(k), k.Reg(ptx.B32), k.Reg(ptx.B32), k.Reg(ptx.B32), k.Reg(ptx.B32)
		wait, spin := k.NewLabel("wait"), k.NewLabel("spin")
		k.I("mov.u32", grid, ptx.Special("%nctaid.x"))
		k.I("mov.u32", n, ptx.Imm(0))
		k.I("add.s32", next, b, ptx.Imm(1))
		k.I("rem.u32", next, next, grid)
		k.If(pred(k, "gt", tidX(k), 0), "bra", wait)
		k.Place(spin)
		if sum {
			k.I("add.s32", n, n, ptx.Imm(1)) // counts, and so is not proved to wait
		}
		k.I("ld.acquire.gpu.global.u32", v, ptx.At(element(k, p[0], next), 0))
		k.If(pred(k, "eq", v, 0), "bra", spin)
		k.I("st.release.gpu.global.u32", ptx.At(element(k, p[0], b), 0), ptx.Imm(1))
		k.Place(wait)
		k.I("bar.sync", ptx.Imm(0))
	})
}

func TestBlocksThatWaitForEachOtherAreReported(t *testing.T) {
	for _, check := range []bool{false, true} {
		for _, workers := range []int{1, 2, 3} {
			opts := Options{Check: check, Workers: workers}
			run := func(flags []uint32) error {
				return RunKernelWith(opts, circle(false), "k", [3]int{5, 1, 1}, [3]int{64, 1, 1}, 0, flags)
			}
			require.NoError(t, run([]uint32{0, 0, 0, 1, 0}), "a chain that one flag starts")
			var v *Violation
			require.ErrorAs(t, run(make([]uint32, 5)), &v)
			require.Equal(t, Deadlock, v.Rule)
			require.Contains(t, v.Text, "ld.acquire")
			require.Equal(t, [3]int{0, 0, 0}, v.Block)
			require.Equal(t, [3]int{1, 0, 0}, v.Conflict.Block)
			require.Contains(t, v.Where, "offset 4 of the 20-byte allocation")
			require.Contains(t, v.Detail, "5 of 5 blocks are running")
		}
	}
}

func TestAWaitThatCountsHitsTheStepLimit(t *testing.T) {
	err := RunKernelWith(Options{StepLimit: 1 << 21}, circle(true), "k", [3]int{2, 1, 1}, [3]int{64, 1, 1}, 0, make([]uint32, 2))
	var v *Violation
	require.ErrorAs(t, err, &v)
	require.Equal(t, StepLimit, v.Rule)
}
