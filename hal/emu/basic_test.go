package emu

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// build prints a module with one kernel, "k".
func build(target string, threads int, params int, body func(k *ptx.Kernel, p []ptx.Reg)) string {
	m := ptx.NewModule(target)
	k := m.NewKernel("k", threads)
	var regs []ptx.Reg
	for i := range params {
		s := k.AddParam(string(rune('a'+i)), "u64")
		r := k.Reg(ptx.B64)
		k.I("ld.param.u64", r, ptx.At(s, 0))
		k.I("cvta.to.global.u64", r, r)
		regs = append(regs, r)
	}
	body(k, regs)
	k.I("ret")
	return m.String()
}

// threadID is blockIdx.x*blockDim.x + threadIdx.x.
func threadID(k *ptx.Kernel) ptx.Reg {
	r := k.RegVec(ptx.B32, 4)
	k.I("mov.u32", r[0], ptx.Special("%ctaid.x"))
	k.I("mov.u32", r[1], ptx.Special("%ntid.x"))
	k.I("mov.u32", r[2], ptx.Special("%tid.x"))
	k.I("mad.lo.s32", r[3], r[0], r[1], r[2])
	return r[3]
}

// element is base + 4·i.
func element(k *ptx.Kernel, base, i ptx.Reg) ptx.Reg {
	r := k.Reg(ptx.B64)
	k.I("mad.wide.s32", r, i, ptx.Imm(4), base)
	return r
}

func TestVectorAddWithAGuardedTail(t *testing.T) {
	text := build("sm_80", 64, 3, func(k *ptx.Kernel, p []ptx.Reg) {
		i := threadID(k)
		in := k.Reg(ptx.Pred)
		k.I("setp.ge.s32", in, i, ptx.Imm(150))
		end := k.NewLabel("end")
		k.If(in, "bra", end)
		f := k.RegVec(ptx.F32, 3)
		k.I("ld.global.f32", f[0], ptx.At(element(k, p[0], i), 0))
		k.I("ld.global.nc.f32", f[1], ptx.At(element(k, p[1], i), 0))
		k.I("add.rn.f32", f[2], f[0], f[1])
		k.I("st.global.f32", ptx.At(element(k, p[2], i), 0), f[2])
		k.Place(end)
	})
	x, y, z := make([]float32, 150), make([]float32, 150), make([]float32, 150)
	for i := range x {
		x[i], y[i] = float32(i), 0.5
	}
	require.NoError(t, RunKernel(text, "k", [3]int{3, 1, 1}, [3]int{64, 1, 1}, 0, Const{x}, Const{y}, Out{z}))
	for i := range z {
		require.Equal(t, float32(i)+0.5, z[i])
	}
}
