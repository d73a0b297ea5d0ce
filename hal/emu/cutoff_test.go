package emu

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSumsThatCannotBeCutOff(t *testing.T) {
	const mma = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"
	for op, bits := range map[string]int{"add.f32": 13, "no.such": 13, "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32": 13, mma: 31} {
		_, err := Open(Options{CutOff: map[string]int{op: bits}})
		require.ErrorContains(t, err, "sums of "+op+" cannot be cut off")
	}
	_, err := Open(Options{CutOff: map[string]int{mma: 13}, Engine: Interpreter})
	require.ErrorContains(t, err, "engine interpreter")
	_, err = Open(Options{CutOff: map[string]int{mma: 13}})
	require.NoError(t, err)
}
