package runtime_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/runtime"
)

func TestHazards(t *testing.T) {
	v := &runtime.Variant{Buffers: []runtime.Buffer{
		{Kind: runtime.InputBuffer, Bytes: 64},
		{Kind: runtime.ArenaBuffer, Bytes: 64, Offset: 0},
		{Kind: runtime.ArenaBuffer, Bytes: 64, Offset: 256},
		{Kind: runtime.ArenaBuffer, Bytes: 64, Offset: 0}, // reuses the range of buffer 1
		{Kind: runtime.ConstantBuffer, Bytes: 64},
		{Kind: runtime.OutputBuffer, Bytes: 64},
	}}
	at := func(buffers ...int) []runtime.Access {
		var out []runtime.Access
		for _, b := range buffers {
			out = append(out, runtime.Access{Buffer: b, Bytes: 64})
		}
		return out
	}
	launches := []runtime.Launch{
		{Reads: at(0, 4), Writes: at(1)}, // 0
		{Reads: at(1, 4), Writes: at(2)}, // 1 reads what 0 wrote
		{Reads: at(0, 4), Writes: at(5)}, // 2 is independent: shared inputs and constants are no hazard
		{Reads: at(2), Writes: at(3)},    // 3 reads 1's, overwrites what 0 wrote and 1 read
		{Reads: at(3, 5), Writes: nil},   // 4 reads 3's and 2's
	}
	v.Order(launches)
	var got [][]int
	for _, l := range launches {
		got = append(got, l.After)
	}
	require.Equal(t, [][]int{{}, {0}, {}, {1}, {2, 3}}, got)
}

func TestHalvesOfABufferDoNotConflict(t *testing.T) {
	v := &runtime.Variant{Buffers: []runtime.Buffer{{Kind: runtime.OutputBuffer, Bytes: 64}}}
	launches := []runtime.Launch{
		{Writes: []runtime.Access{{Buffer: 0, Offset: 0, Bytes: 32}}},
		{Writes: []runtime.Access{{Buffer: 0, Offset: 32, Bytes: 32}}},
		{Writes: []runtime.Access{{Buffer: 0, Offset: 31, Bytes: 2}}},
	}
	v.Order(launches)
	require.Empty(t, launches[1].After)
	require.Equal(t, []int{0, 1}, launches[2].After)
}

func TestStatesAndVariablesAreHazards(t *testing.T) {
	for _, kind := range []runtime.BufferKind{runtime.StateBuffer, runtime.VariableBuffer} {
		v := &runtime.Variant{Buffers: []runtime.Buffer{{Kind: kind, Bytes: 64}}}
		whole := []runtime.Access{{Buffer: 0, Bytes: 64}}
		launches := []runtime.Launch{{Reads: whole}, {Reads: whole}, {Writes: whole}, {Reads: whole}}
		v.Order(launches)
		require.Equal(t, []int{0, 1}, launches[2].After, kind)
		require.Equal(t, []int{2}, launches[3].After, kind)
	}
}
