package emu

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
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

// words are 64-bit words that kernels and the test see.
func words(t *testing.T, d *Device, n int) (m hal.Memory, at func(i int) uint64) {
	m, err := d.Alloc(8*n, hal.HostVisible)
	require.NoError(t, err)
	return m, func(i int) uint64 { return uint64(atomic.LoadUint32(word32(m.Bytes(), uint64(8*i)))) }
}

// once ends a context when a condition holds.
func once(t *testing.T, holds func() bool) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for !holds() {
			runtime.Gosched()
		}
		cancel()
	}()
	return ctx
}

func TestRunEndsWhenItsContextDoes(t *testing.T) {
	d, err := Open(Options{Workers: 2})
	require.NoError(t, err)
	m, err := d.Load(t.Context(), hal.Image{Name: "m", PTX: build("sm_80", 32, 1, func(k *ptx.Kernel, p []ptx.Reg) {
		l, i := k.NewLabel("l"), k.Reg(ptx.B32)
		k.I("mov.u32", i, ptx.Imm(1))
		k.I("atom.acq_rel.gpu.global.add.u32", i, ptx.At(p[0], 0), i)
		k.Place(l)
		k.I("add.s32", i, i, ptx.Imm(1))
		k.I("bra", l)
	})})
	require.NoError(t, err)
	word, at := words(t, d, 1)
	g, err := d.Capture(t.Context(), []hal.Op{{Module: m, Kernel: "k", Grid: [3]int{3, 1, 1}, Block: [3]int{32, 1, 1},
		Params: []uint64{word.Addr()}, Sizes: []int{8}, Writes: []hal.Range{{Memory: word, Bytes: 8}}}})
	require.NoError(t, err)
	ctx := once(t, func() bool { return at(0) > 0 })
	err = g.Run(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, hal.ErrBusy)
	require.ErrorIs(t, g.Wait(ctx), hal.ErrBusy)
	require.ErrorIs(t, g.Close(), hal.ErrBusy)
	require.ErrorIs(t, g.(hal.Updater).Update(0, hal.Op{}), hal.ErrBusy)
	g.(hal.Stopper).Stop()
	require.NoError(t, g.Wait(ctx), "nothing runs")
	require.NoError(t, g.Close())
}

// TestAPanicIsTheCallers: who runs kernels may have it as an error, or report it as a bug.
func TestAPanicIsTheCallers(t *testing.T) {
	d, err := Open(Options{Profile: func(*Counts) { panic("a profile's bug") }})
	require.NoError(t, err)
	m, err := d.Load(t.Context(), hal.Image{Name: "m", PTX: build("sm_80", 32, 0, func(k *ptx.Kernel, p []ptx.Reg) { k.I("ret") })})
	require.NoError(t, err)
	g, err := d.Capture(t.Context(), []hal.Op{{Module: m, Kernel: "k", Grid: [3]int{1, 1, 1}, Block: [3]int{32, 1, 1}}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	func() {
		defer func() { require.Contains(t, fmt.Sprint(recover()), "a profile's bug") }()
		_ = g.Run(ctx)
	}()
	require.NoError(t, g.Wait(ctx), "it is over")
}

// TestAStoppedRunIsWhole: blocks take tickets, and the last one resets the counter and counts the run. A run whose
// context ends meanwhile must not leave tickets taken: the next run would never have a last block.
func TestAStoppedRunIsWhole(t *testing.T) {
	const blocks = 64
	d, err := Open(Options{Workers: 2})
	require.NoError(t, err)
	m, err := d.Load(t.Context(), hal.Image{Name: "m", PTX: build("sm_80", 32, 1, func(k *ptx.Kernel, p []ptx.Reg) {
		i, old, busy, last, first := k.Reg(ptx.B32), k.Reg(ptx.B32), k.Reg(ptx.Pred), k.Reg(ptx.Pred), k.Reg(ptx.Pred)
		k.I("mov.u32", old, ptx.Special("%tid.x"))
		k.I("setp.eq.u32", first, old, ptx.Imm(0))
		k.If(first, "atom.acq_rel.gpu.global.add.u32", old, ptx.At(p[0], 0), ptx.Imm(1))
		k.I("mov.u32", i, ptx.Imm(0))
		l := k.NewLabel("l")
		k.Place(l)
		k.I("add.s32", i, i, ptx.Imm(1))
		k.I("setp.lt.s32", busy, i, ptx.Imm(1<<14))
		k.If(busy, "bra", l)
		k.Unless(first, "ret")
		k.I("setp.eq.u32", last, old, ptx.Imm(blocks-1))
		k.Unless(last, "ret")
		k.I("atom.acq_rel.gpu.global.add.u32", old, ptx.At(p[0], 0), ptx.Imm(-blocks)) // to 0, while the test looks
		k.I("atom.acq_rel.gpu.global.add.u32", old, ptx.At(p[0], 8), ptx.Imm(1))
	})})
	require.NoError(t, err)
	word, at := words(t, d, 2)
	g, err := d.Capture(t.Context(), []hal.Op{{Module: m, Kernel: "k", Grid: [3]int{blocks, 1, 1}, Block: [3]int{32, 1, 1},
		Params: []uint64{word.Addr()}, Sizes: []int{8}, Writes: []hal.Range{{Memory: word, Bytes: 16}}}})
	require.NoError(t, err)
	for run := range uint64(20) {
		if err := g.Run(once(t, func() bool { return at(0) > 0 || at(1) > 2*run })); err != nil { // it may have been quicker
			require.ErrorIs(t, err, context.Canceled)
		}
		require.NoError(t, g.Run(t.Context()))
		require.Equal(t, []uint64{0, 2*run + 2}, []uint64{at(0), at(1)}, "the counter, and runs that have ended")
	}
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
