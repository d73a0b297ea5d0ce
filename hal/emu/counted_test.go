package emu

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/ptx"
)

// TestCounts_DependOnData: addresses and branches are followed through registers, to constants but to no other data;
// blocks that agree by atomics are executed as a whole.
func TestCounts_DependOnData(t *testing.T) {
	by := func(body func(k *ptx.Kernel, p []ptx.Reg)) (*counted, []string) {
		d, err := Open(Options{})
		require.NoError(t, err)
		m, err := d.Load(context.Background(), hal.Image{Name: "k", PTX: build("sm_80", 32, 2, body)})
		require.NoError(t, err)
		p := m.(*module).programs["k"]
		var runs []string
		for pc, yes := range p.countedBy().executes {
			if in := p.code[pc].stmt.Instr; yes && in != nil {
				runs = append(runs, in.Def.Op)
			}
		}
		return p.countedBy(), runs
	}
	gather := func(load string) func(k *ptx.Kernel, p []ptx.Reg) {
		return func(k *ptx.Kernel, p []ptx.Reg) {
			i, a, x := k.Reg(ptx.B32), k.Reg(ptx.B64), k.Reg(ptx.F32)
			k.I(load, i, ptx.At(p[0], 0))
			k.I("mad.wide.u32", a, i, ptx.Imm(4), p[1])
			k.I("ld.global.f32", x, ptx.At(a, 0))
			k.I("add.rn.f32", x, x, x)
			k.I("st.global.f32", ptx.At(a, 4), x)
		}
	}
	c, runs := by(gather("ld.global.nc.b32"))
	require.False(t, c.data)
	require.Contains(t, runs, "ld.global.nc.b32")
	require.Contains(t, runs, "mad.wide.u32")
	for _, op := range []string{"ld.global.f32", "add.rn.f32", "st.global.f32"} {
		require.NotContains(t, runs, op)
	}
	c, _ = by(gather("ld.global.b32"))
	require.True(t, c.data, "an index that another launch may have written")
	c, runs = by(func(k *ptx.Kernel, p []ptx.Reg) {
		x, end := k.Reg(ptx.B32), k.NewLabel("end")
		k.I("atom.global.add.u32", x, ptx.At(p[1], 0), ptx.Imm(1))
		k.If(pred(k, "ge", x, 5), "bra", end)
		k.I("add.s32", k.Reg(ptx.B32), x, x)
		k.Place(end)
	})
	require.False(t, c.data)
	require.Nil(t, c.executes)
	require.Empty(t, runs)
}
