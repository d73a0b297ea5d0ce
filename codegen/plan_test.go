package codegen

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/runtime"
)

func TestPlannedRangesThatLiveTogetherDoNotOverlap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var ranges []*planned
		for range 1 + rng.IntN(40) {
			first := rng.IntN(30)
			ranges = append(ranges, &planned{bytes: 1 + rng.IntN(5000), first: first, last: first + rng.IntN(6)})
		}
		arena, live := planArena(ranges)
		require.GreaterOrEqual(t, arena, live)
		for i, a := range ranges {
			require.Zero(t, a.offset%alignment)
			require.LessOrEqual(t, a.offset+a.bytes, arena)
			for _, b := range ranges[:i] {
				together := a.first <= b.last && b.first <= a.last
				apart := a.offset+a.bytes <= b.offset || b.offset+b.bytes <= a.offset
				require.True(t, !together || apart, "%+v and %+v", a, b)
			}
		}
	}
}

// TestOtherOrdersMakeSmallerArenas: none is larger than by placing the larger ranges first, and some are smaller.
func TestOtherOrdersMakeSmallerArenas(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	smaller := 0
	for range 100 {
		var ranges, bySize []*planned
		for range 20 {
			first := rng.IntN(15)
			r := planned{bytes: 256 * (1 + rng.IntN(20)), first: first, last: first + rng.IntN(6)}
			ranges, bySize = append(ranges, &r), append(bySize, &planned{bytes: r.bytes, first: r.first, last: r.last})
		}
		slices.SortStableFunc(bySize, func(a, b *planned) int { return cmp.Or(b.bytes-a.bytes, a.first-b.first) })
		arena, _ := planArena(ranges)
		largerFirst := placeInOrder(bySize)
		require.LessOrEqual(t, arena, largerFirst)
		if arena < largerFirst {
			smaller++
		}
	}
	require.Greater(t, smaller, 20)
}

func TestAChainOfLayersReusesTwoRanges(t *testing.T) {
	var ranges []*planned
	for i := range 10 {
		ranges = append(ranges, &planned{bytes: 1000, first: i, last: i + 1})
	}
	arena, live := planArena(ranges)
	require.Equal(t, 2048, live)
	require.Equal(t, 2048, arena)
}

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
	addHazards(v, launches)
	var got [][]int
	for _, l := range launches {
		got = append(got, l.After)
	}
	require.Equal(t, [][]int{{}, {0}, {}, {1}, {2, 3}}, got)
}

func TestHalvesOfABufferAreApart(t *testing.T) {
	v := &runtime.Variant{Buffers: []runtime.Buffer{{Kind: runtime.OutputBuffer, Bytes: 64}}}
	launches := []runtime.Launch{
		{Writes: []runtime.Access{{Buffer: 0, Offset: 0, Bytes: 32}}},
		{Writes: []runtime.Access{{Buffer: 0, Offset: 32, Bytes: 32}}},
		{Writes: []runtime.Access{{Buffer: 0, Offset: 31, Bytes: 2}}},
	}
	addHazards(v, launches)
	require.Empty(t, launches[1].After)
	require.Equal(t, []int{0, 1}, launches[2].After)
}

func TestEqualConstantsAreStoredOnce(t *testing.T) {
	w := NewWeights()
	a, b, c := w.Add([]byte{1, 2}), w.Add([]byte{3}), w.Add([]byte{1, 2})
	require.Equal(t, a, c)
	require.NotEqual(t, a, b)
	require.Zero(t, b%alignment)
	require.Equal(t, byte(3), w.Bytes()[b])
}
