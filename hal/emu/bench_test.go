package emu

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// contractionLike is the main loop of a matrix product: a block of four warps, each 32×32 of a 64×64 tile, k in steps
// of 64 bytes copied by cp.async in two stages; all operands are the same, since only time matters.
func contractionLike(op string, steps int) string {
	return build("sm_121a", 128, 2, func(k *ptx.Kernel, p []ptx.Reg) {
		tid, smem := k.Reg(ptx.B32), k.Reg(ptx.B32)
		k.I("mov.u32", tid, ptx.Special("%tid.x"))
		k.I("mov.u32", smem, ptx.Sym(ptx.SharedName))
		src, dst, row := k.Reg(ptx.B64), k.Reg(ptx.B32), k.Reg(ptx.B32)
		k.I("mad.wide.u32", src, tid, ptx.Imm(64), p[0])
		k.I("mad.lo.s32", dst, tid, ptx.Imm(64), smem)
		k.I("and.b32", row, tid, ptx.Imm(31))
		k.I("mad.lo.s32", row, row, ptx.Imm(16), smem)
		acc := k.RegVec(ptx.F32, 32)
		for _, r := range acc {
			k.I("mov.f32", r, ptx.FImm(0))
		}
		n := k.Reg(ptx.B32)
		k.I("mov.u32", n, ptx.Imm(0))
		stage := func() {
			for i := range 4 {
				k.I("cp.async.cg.shared.global", ptx.At(dst, 16*i), ptx.At(src, 16*i), ptx.Imm(16), ptx.Imm(16))
			}
			k.I("cp.async.commit_group")
		}
		stage()
		top := k.NewLabel("k")
		k.Place(top)
		k.I("cp.async.wait_group", ptx.Imm(0))
		k.I("bar.sync", ptx.Imm(0))
		var scales []ptx.Operand
		if strings.Contains(op, "block_scale") {
			s, zero := ptx.V(row), ptx.Vec{ptx.Imm(0), ptx.Imm(0)}
			scales = []ptx.Operand{s, zero, s, zero}
		}
		for kk := range 2 { // two steps of 32 bytes
			a, b := [2][]ptx.Reg{}, [2][]ptx.Reg{}
			for i := range 2 {
				a[i], b[i] = k.RegVec(ptx.B32, 4), k.RegVec(ptx.B32, 4)
				k.I("ldmatrix.sync.aligned.m8n8.x4.shared.b16", ptx.V(a[i]...), ptx.At(row, 1024*i+512*kk))
				k.I("ldmatrix.sync.aligned.m8n8.x4.shared.b16", ptx.V(b[i]...), ptx.At(row, 4096+1024*i+512*kk))
			}
			for i := range 2 {
				for j := range 4 {
					c := ptx.V(acc[(4*i+j)*4 : (4*i+j)*4+4]...)
					k.I(op, append([]ptx.Operand{c, ptx.V(a[i]...), ptx.V(b[j/2][2*(j%2)], b[j/2][2*(j%2)+1]), c}, scales...)...)
				}
			}
		}
		k.I("bar.sync", ptx.Imm(0))
		stage()
		k.I("add.s32", n, n, ptx.Imm(1))
		more := k.Reg(ptx.Pred)
		k.I("setp.lt.s32", more, n, ptx.Imm(steps))
		k.If(more, "bra", top)
		k.I("cp.async.wait_all")
		out := element(k, p[1], tid)
		for _, r := range acc {
			k.I("st.global.f32", ptx.At(out, 0), r)
		}
	})
}

// fmaLike is a loop of 32 fused multiply-adds on registers.
func fmaLike(steps int) string {
	return build("sm_80", 128, 2, func(k *ptx.Kernel, p []ptx.Reg) {
		acc := k.RegVec(ptx.F32, 34)
		for i, r := range acc {
			k.I("mov.f32", r, ptx.FImm(float32(i)*0.01))
		}
		n, more := k.Reg(ptx.B32), k.Reg(ptx.Pred)
		k.I("mov.u32", n, ptx.Imm(0))
		top := k.NewLabel("k")
		k.Place(top)
		for _, r := range acc[:32] {
			k.I("fma.rn.f32", r, acc[32], acc[33], r)
		}
		k.I("add.s32", n, n, ptx.Imm(1))
		k.I("setp.lt.s32", more, n, ptx.Imm(steps))
		k.If(more, "bra", top)
		out := element(k, p[1], threadID(k))
		k.I("add.rn.f32", acc[0], acc[0], acc[31])
		k.I("st.global.f32", ptx.At(out, 0), acc[0])
	})
}

// benchmark runs blocks of 128 threads on one worker and reports multiply-adds a second.
func benchmark(b *testing.B, opts Options, text string, blocks, shared int, macs float64) {
	ctx := context.Background()
	opts.Workers = 1
	d, err := Open(opts)
	require.NoError(b, err)
	m, err := d.Load(ctx, hal.Image{Name: b.Name(), PTX: text})
	require.NoError(b, err)
	in, err := d.Alloc(1<<16, hal.DeviceMemory)
	require.NoError(b, err)
	out, err := d.Alloc(blocks*512, hal.ScratchMemory)
	require.NoError(b, err)
	g, err := d.Capture(ctx, []hal.Op{{Module: m, Kernel: "k", Grid: [3]int{blocks, 1, 1}, Block: [3]int{128, 1, 1}, Shared: shared,
		Params: []uint64{in.Addr(), out.Addr()}, Sizes: []int{8, 8},
		Reads: []hal.Range{{Memory: in, Bytes: 1 << 16, Constant: true}}, Writes: []hal.Range{{Memory: out, Bytes: blocks * 512}}}})
	require.NoError(b, err)
	for b.Loop() {
		require.NoError(b, g.Run(ctx))
	}
	b.ReportMetric(macs*float64(b.N)/b.Elapsed().Seconds()/1e9, "GMAC/s")
}

// benchmarked are the ways to run a kernel.
var benchmarked = []struct {
	name string
	opts Options
}{{"jit", Options{Engine: Auto}}, {"avx2", Options{Engine: AVX2}}, {"interpreter", Options{Engine: Interpreter}}, {"specification", Options{Engine: Specification}}, {"checked", Options{Check: true}}}

func BenchmarkContraction(b *testing.B) {
	const steps = 100
	for _, m := range []struct {
		name, op string
		k        float64
	}{
		{"f16", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 16},
		{"fp8", "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", 32},
		{"nvfp4", "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3", 64},
	} {
		for _, o := range benchmarked {
			b.Run(m.name+"/"+o.name, func(b *testing.B) {
				benchmark(b, o.opts, contractionLike(m.op, steps), 1, 8192, steps*4*16*16*8*m.k)
			})
		}
	}
}

func BenchmarkFMA(b *testing.B) {
	const steps = 100
	for _, o := range benchmarked {
		b.Run(o.name, func(b *testing.B) {
			benchmark(b, o.opts, fmaLike(steps), 4, 0, 4*steps*128*32)
		})
	}
}

// loopLike is an elementwise kernel: two loads, arithmetic, a store, all 4 bytes a thread.
func loopLike() string {
	return build("sm_80", 128, 2, func(k *ptx.Kernel, p []ptx.Reg) {
		i := threadID(k)
		f := k.RegVec(ptx.F32, 3)
		src := element(k, p[0], i)
		k.I("ld.global.nc.f32", f[0], ptx.At(src, 0))
		k.I("ld.global.nc.f32", f[1], ptx.At(src, 4))
		k.I("mul.rn.f32", f[2], f[0], f[1])
		k.I("max.f32", f[2], f[2], ptx.FImm(0))
		k.I("ex2.approx.f32", f[2], f[2])
		k.I("st.global.f32", ptx.At(element(k, p[1], i), 0), f[2])
	})
}

func BenchmarkLoop(b *testing.B) {
	for _, o := range benchmarked {
		b.Run(o.name, func(b *testing.B) {
			benchmark(b, o.opts, loopLike(), 64, 0, 64*128)
		})
	}
}
