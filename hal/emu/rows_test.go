package emu

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// decoded is the only kernel of a text.
func decoded(t *testing.T, text string) *program {
	m, err := ptx.Parse(text)
	require.NoError(t, err)
	p, err := decode(m.Kernels[0])
	require.NoError(t, err)
	return p
}

// TestRows_AreSharedByRegistersThatAreNotLiveTogether decodes a chain of values, each of which is used once.
func TestRows_AreSharedByRegistersThatAreNotLiveTogether(t *testing.T) {
	p := decoded(t, build("sm_80", 32, 2, func(k *ptx.Kernel, p []ptx.Reg) {
		v := tidX(k)
		for range 100 {
			next := k.Reg(ptx.B32)
			k.I("add.u32", next, v, ptx.Imm(1))
			v = next
		}
		k.I("st.global.b32", ptx.At(p[1], 0), v)
	}))
	require.Equal(t, 2, p.regR)
	require.Equal(t, 1, p.regQ)
}

// TestRows_LastAsLongAsAnyPathNeedsThem runs a loop with a branch in it. A value is read in one of its branches
// alone, and another one is written in the first round alone, under a guard; the values at the loop's end would take
// their rows.
func TestRows_LastAsLongAsAnyPathNeedsThem(t *testing.T) {
	text := build("sm_80", 64, 1, func(k *ptx.Kernel, p []ptx.Reg) {
		i := tidX(k)
		sum, n, kept, once, bit := k.Reg(ptx.B32), k.Reg(ptx.B32), k.Reg(ptx.B32), k.Reg(ptx.B32), k.Reg(ptx.B32)
		odd, first, more := k.Reg(ptx.Pred), k.Reg(ptx.Pred), k.Reg(ptx.Pred)
		k.I("mov.u32", sum, ptx.Imm(0))
		k.I("mov.u32", n, ptx.Imm(0))
		k.I("mad.lo.s32", kept, i, ptx.Imm(3), ptx.Imm(100))
		k.I("and.b32", bit, i, ptx.Imm(1))
		k.I("setp.eq.s32", odd, bit, ptx.Imm(1))
		top, skip := k.NewLabel("top"), k.NewLabel("skip")
		k.Place(top)
		k.I("setp.eq.s32", first, n, ptx.Imm(0))
		k.If(first, "mad.lo.s32", once, i, ptx.Imm(7), ptx.Imm(5000))
		k.I("add.s32", sum, sum, once)
		k.If(odd, "bra", skip)
		k.I("add.s32", sum, sum, kept)
		k.Place(skip)
		late := k.RegVec(ptx.B32, 8)
		for j, r := range late {
			k.I("add.s32", r, n, ptx.Imm(int64(j)))
		}
		for _, r := range late {
			k.I("add.s32", sum, sum, r)
		}
		k.I("add.s32", n, n, ptx.Imm(1))
		k.I("setp.lt.s32", more, n, ptx.Imm(5))
		k.If(more, "bra", top)
		k.I("st.global.b32", ptx.At(element(k, p[0], i), 0), sum)
	})
	var want []uint32
	for i := range 64 {
		sum := 5*(7*i+5000) + 5*28 + 8*10
		if i%2 == 0 {
			sum += 5 * (3*i + 100)
		}
		want = append(want, uint32(sum))
	}
	for _, e := range []Engine{Auto, AVX2, Interpreter, Specification} {
		out := make([]uint32, 64)
		err := RunKernelWith(Options{Engine: e}, text, "k", [3]int{1, 1, 1}, [3]int{64, 1, 1}, 0, out)
		if e == AVX2 && err != nil {
			continue
		}
		require.NoError(t, err)
		require.Equal(t, want, out, e)
	}
}

// TestRows_AreSeparateInKernelsTooLargeToAnalyse decodes a kernel with more branches and registers than are analysed.
func TestRows_AreSeparateInKernelsTooLargeToAnalyse(t *testing.T) {
	p := decoded(t, build("sm_80", 32, 1, func(k *ptx.Kernel, p []ptx.Reg) {
		regs, cond := k.RegVec(ptx.B32, 40_000), k.Reg(ptx.Pred)
		k.I("mov.u32", regs[0], ptx.Imm(0))
		k.I("setp.eq.u32", cond, regs[0], ptx.Imm(1))
		for range 4000 {
			next := k.NewLabel("next")
			k.If(cond, "bra", next)
			k.Place(next)
		}
		k.I("st.global.b32", ptx.At(p[0], 0), regs[0])
	}))
	require.Equal(t, 40_000, p.regR)
	require.NotNil(t, track(p), "nothing is proved of its registers")
}
