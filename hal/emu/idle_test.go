package emu

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// dirty writes 7 to shared memory and to registers of every class that a kernel of two warps has.
func dirty() string {
	return build("sm_80", 64, 1, func(k *ptx.Kernel, p []ptx.Reg) {
		at, seven := sharedAt(k, tidX(k), 4), k.RegVec(ptx.B32, 40)
		for _, r := range seven {
			k.I("mov.u32", r, ptx.Imm(7))
		}
		for _, r := range k.RegVec(ptx.B64, 20) {
			k.I("cvt.u64.u32", r, seven[0])
		}
		for _, r := range k.RegVec(ptx.Pred, 20) {
			k.I("setp.eq.u32", r, seven[0], ptx.Imm(7))
		}
		k.I("st.shared.b32", ptx.At(at, 0), seven[0])
		k.I("st.global.b32", ptx.At(element(k, p[0], tidX(k)), 0), seven[0])
	})
}

// unwritten adds what it finds in shared memory and in registers of three classes before it writes them, and the sum of
// the numbers of its threads, lanes and warps, and of its block.
func unwritten() string {
	return build("sm_80", 64, 1, func(k *ptx.Kernel, p []ptx.Reg) {
		i := threadID(k)
		never, narrow, wide, cond := k.Reg(ptx.Pred), k.Reg(ptx.B32), k.Reg(ptx.B64), k.Reg(ptx.Pred)
		k.I("setp.lt.s32", never, i, ptx.Imm(0))
		k.If(never, "mov.u32", narrow, ptx.Imm(1))
		k.If(never, "cvt.u64.u32", wide, narrow)
		k.If(never, "setp.eq.u32", cond, narrow, narrow)
		v := k.RegVec(ptx.B32, 9)
		k.I("ld.shared.b32", v[0], ptx.At(sharedAt(k, tidX(k), 4), 0))
		k.I("cvt.u32.u64", v[1], wide)
		k.I("selp.b32", v[2], ptx.Imm(1), ptx.Imm(0), cond)
		k.I("mov.u32", v[3], ptx.Special("%laneid"))
		k.I("mov.u32", v[4], ptx.Special("%warpid"))
		k.I("mad.lo.s32", v[4], v[4], ptx.Imm(1000), v[3])
		k.I("mad.lo.s32", v[5], i, ptx.Imm(10000), v[4])
		sum := v[5]
		for _, r := range []ptx.Reg{narrow, v[0], v[1], v[2]} {
			k.I("add.s32", sum, sum, r)
		}
		k.I("st.global.b32", ptx.At(element(k, p[0], i), 0), sum)
	})
}

// TestBlocks_LeaveNothingToLaterLaunches runs a kernel in the memory that another one's blocks have left: what it reads
// before it writes it is zero, and constants and special registers are its own.
func TestBlocks_LeaveNothingToLaterLaunches(t *testing.T) {
	const blocks = 5
	var want []uint32
	for i := range uint32(blocks * 64) {
		want = append(want, i*10000+i/32%2*1000+i%32)
	}
	for _, engine := range []Engine{Auto, AVX2, Interpreter, Specification} {
		for _, workers := range []int{1, 2} {
			t.Run(fmt.Sprintf("%s/workers=%d", engine, workers), func(t *testing.T) {
				d, err := Open(Options{Engine: engine, Workers: workers})
				if err != nil {
					t.Skip(err)
				}
				out, err := d.Alloc(4*len(want), hal.DeviceMemory)
				require.NoError(t, err)
				op := func(text string, blocks int) hal.Op {
					m, err := d.Load(t.Context(), hal.Image{Name: "k", PTX: text})
					require.NoError(t, err)
					return hal.Op{Module: m, Kernel: "k", Grid: [3]int{blocks, 1, 1}, Block: [3]int{64, 1, 1}, Shared: 256,
						Params: []uint64{out.Addr()}, Sizes: []int{8}, Writes: []hal.Range{{Memory: out, Bytes: 4 * len(want)}}}
				}
				g, err := d.Capture(t.Context(), []hal.Op{op(dirty(), 3), op(unwritten(), blocks)})
				require.NoError(t, err)
				for range 3 {
					clear(out.Bytes())
					require.NoError(t, g.Run(t.Context()))
					got := make([]uint32, len(want))
					_, err := binary.Decode(out.Bytes(), binary.LittleEndian, got)
					require.NoError(t, err)
					require.Equal(t, want, got)
				}
				require.LessOrEqual(t, len(d.idle), workers)
			})
		}
	}
}

// TestLaunch_FollowsLentMemory runs a launch twice, the second time with other host memory bound to an address that
// native code has cached.
func TestLaunch_FollowsLentMemory(t *testing.T) {
	d, err := Open(Options{Workers: 1})
	require.NoError(t, err)
	m, err := d.Load(t.Context(), hal.Image{Name: "k", PTX: dirty()})
	require.NoError(t, err)
	out, err := d.Alloc(256, hal.DeviceMemory)
	require.NoError(t, err)
	g, err := d.Capture(t.Context(), []hal.Op{{Module: m, Kernel: "k", Grid: [3]int{1, 1, 1}, Block: [3]int{64, 1, 1},
		Shared: 256, Params: []uint64{out.Addr()}, Sizes: []int{8}, Writes: []hal.Range{{Memory: out, Bytes: 256}}}})
	require.NoError(t, err)
	first, second := make([]byte, 256), make([]byte, 256)
	for _, bytes := range [][]byte{first, second} {
		require.NoError(t, out.(*memory).BindHost(bytes))
		require.NoError(t, g.Run(t.Context()))
		require.Equal(t, slices.Repeat([]byte{7, 0, 0, 0}, 64), bytes)
		clear(first)
	}
	require.Equal(t, make([]byte, 256), first)
}
