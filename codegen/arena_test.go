package codegen

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPlannedRangesThatLiveTogetherDoNotOverlap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var ranges []*arenaRange
		for range 1 + rng.IntN(40) {
			first := rng.IntN(30)
			ranges = append(ranges, &arenaRange{bytes: 1 + rng.IntN(5000), first: first, last: first + rng.IntN(6)})
		}
		arena, live := packArena(ranges)
		require.GreaterOrEqual(t, arena, live)
		for i, a := range ranges {
			require.Zero(t, a.offset%alignment)
			require.LessOrEqual(t, a.offset+a.bytes, arena)
			for _, b := range ranges[:i] {
				together := a.first <= b.last && b.first <= a.last
				disjoint := a.offset+a.bytes <= b.offset || b.offset+b.bytes <= a.offset
				require.True(t, !together || disjoint, "%+v and %+v", a, b)
			}
		}
	}
}

// TestOtherOrdersMakeSmallerArenas: none is larger than by placing the larger ranges first, and some are smaller.
func TestOtherOrdersMakeSmallerArenas(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	smaller := 0
	for range 100 {
		var ranges, bySize []*arenaRange
		for range 20 {
			first := rng.IntN(15)
			r := arenaRange{bytes: 256 * (1 + rng.IntN(20)), first: first, last: first + rng.IntN(6)}
			ranges, bySize = append(ranges, &r), append(bySize, &arenaRange{bytes: r.bytes, first: r.first, last: r.last})
		}
		slices.SortStableFunc(bySize, func(a, b *arenaRange) int { return cmp.Or(b.bytes-a.bytes, a.first-b.first) })
		arena, _ := packArena(ranges)
		largerFirst := placeInOrder(bySize)
		require.LessOrEqual(t, arena, largerFirst)
		if arena < largerFirst {
			smaller++
		}
	}
	require.Greater(t, smaller, 20)
}

func TestPackArena_LayersReuseTwoRanges(t *testing.T) {
	var ranges []*arenaRange
	for i := range 10 {
		ranges = append(ranges, &arenaRange{bytes: 1000, first: i, last: i + 1})
	}
	arena, live := packArena(ranges)
	require.Equal(t, 2048, live)
	require.Equal(t, 2048, arena)
}

func TestEqualConstantsAreStoredOnce(t *testing.T) {
	w := NewWeights()
	a, b, c := w.Add([]byte{1, 2}), w.Add([]byte{3}), w.Add([]byte{1, 2})
	require.Equal(t, a, c)
	require.NotEqual(t, a, b)
	require.Zero(t, b%alignment)
	require.Equal(t, byte(3), w.Bytes()[b])
}
