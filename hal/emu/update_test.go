package emu_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/emu"
)

const copyWord = `.version 8.0
.target sm_80
.address_size 64
.visible .entry copyword(.param .u64 to, .param .u64 from) {
	.reg .b64 %rd<2>;
	.reg .b32 %r<1>;
	ld.param.u64 %rd0, [to];
	ld.param.u64 %rd1, [from];
	ld.global.u32 %r0, [%rd1];
	st.global.u32 [%rd0], %r0;
	ret;
}
`

// TestAnOpIsUpdated: a launch that varies takes other parameters, the host's memory among them; others, and what else
// of it, stay.
func TestAnOpIsUpdated(t *testing.T) {
	d, err := emu.Open(emu.Options{Check: true})
	require.NoError(t, err)
	m, err := d.Load(t.Context(), hal.Image{Name: "words", PTX: copyWord})
	require.NoError(t, err)
	memory := func(x byte) hal.Memory {
		at, err := d.Alloc(4, hal.HostVisible)
		require.NoError(t, err)
		require.NoError(t, at.Write([]byte{x, 0, 0, 0}, 0))
		return at
	}
	a, b, y, z := memory(1), memory(2), memory(0), memory(0)
	op := func(to, from hal.Memory, after ...int) hal.Op {
		return hal.Op{Module: m, Kernel: "copyword", Grid: [3]int{1, 1, 1}, Block: [3]int{1, 1, 1}, Params: []uint64{to.Addr(), from.Addr()}, Sizes: []int{8, 8}, After: after,
			Reads: []hal.Range{{Memory: from, Bytes: 4}}, Writes: []hal.Range{{Memory: to, Bytes: 4}}, Varies: true}
	}
	still := op(z, b)
	still.Varies = false
	g, err := d.Capture(t.Context(), []hal.Op{op(y, a), still})
	require.NoError(t, err)
	u := g.(hal.Updater)
	gives := func(want byte) {
		t.Helper()
		require.NoError(t, g.Run(t.Context()))
		require.Equal(t, want, y.Bytes()[0])
	}
	gives(1)
	require.NoError(t, u.Update(0, op(y, b)))
	gives(2)
	host := []byte{3, 0, 0, 0}
	mapped, err := d.Map(host)
	require.NoError(t, err)
	require.NoError(t, u.Update(0, op(y, mapped)))
	gives(3)
	host[0] = 4
	gives(4)
	require.NoError(t, mapped.Free())

	wide, race, elsewhere := op(y, a), op(y, z), op(y, a)
	wide.Grid[0] = 2
	other, err := emu.Open(emu.Options{})
	require.NoError(t, err)
	elsewhere.Reads[0].Memory, err = other.Alloc(4, hal.HostVisible)
	require.NoError(t, err)
	for want, c := range map[string]struct {
		i  int
		op hal.Op
	}{
		"update of op 2 of 2":                       {2, op(y, a)},
		"op 1 (copyword) does not vary":             {1, still},
		"op 0 (copyword): an update changes":        {0, wide},
		"it reads or writes memory of another":      {0, elsewhere},
		"writes what op 0 (copyword) reads":         {0, race},
		"op 0 (copyword): an update changes parame": {0, op(y, a, 0)},
	} {
		require.ErrorContains(t, u.Update(c.i, c.op), want)
	}
	gives(4) // the op is what it was
	discrete, err := emu.Open(emu.Options{Discrete: true})
	require.NoError(t, err)
	_, err = discrete.Map(host)
	require.ErrorIs(t, err, hal.ErrNoSuchMemory)
}
