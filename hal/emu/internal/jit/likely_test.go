package jit

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/ptx"
)

// TestLikelyAddresses_AreThoseOfTheFirstWarp finds the way of a product's operands: of an address that eight lanes
// share, of one that each eight lanes repeat, and of one that depends on what is not known.
func TestLikelyAddresses_AreThoseOfTheFirstWarp(t *testing.T) {
	const lane, three, seven, sixteen, unknown, row, column = 0, 1, 2, 3, 4, 5, 6
	compute := func(op string, d, a, b int32) Inst { return Inst{Def: ptx.Lookup(op), Guard: -1, D: d, A: a, B: b} }
	load := func(address int32) Inst {
		return Inst{Def: ptx.Lookup("ld.shared.v4.f32"), Guard: -1, A: address, Size: 4, Vec: []int32{10, 11, 12, 13}}
	}
	insts := []Inst{
		compute("shr.u32", row, lane, three), compute("mul.lo.s32", row, row, sixteen), load(row),
		compute("and.b32", column, lane, seven), compute("mul.lo.s32", column, column, sixteen),
		compute("add.s32", column, column, unknown), load(column),
		compute("xor.b32", row, lane, three), compute("mul.lo.s32", row, row, sixteen), load(row),
	}
	rows := Rows{Constants: map[int32]uint32{three: 3, seven: 7, sixteen: 16}, Lanes: []int32{lane}}
	at := likelyAddresses(insts, rows)
	way := func(pc int) way {
		b := base{size: 16, likely: *at[pc]}
		return ways[b.order()[0]]
	}
	require.Equal(t, []int{8, 8, 0}, []int{way(2).group, way(6).group, way(9).group})
	require.Equal(t, []bool{false, true}, []bool{way(2).same, way(6).same})
	require.Len(t, at, 3)
}
