package codegen

import (
	"cmp"
	"slices"
	"sort"
)

// arenaRange is an arena range while it is planned: size and live range in, offset out.
type arenaRange struct {
	bytes       int
	first, last int // launch indices, inclusive
	offset      int
}

// packArena gives every range an offset such that ranges alive at the same launch do not overlap. It returns the
// arena's size and the largest sum of live bytes, which no plan can go below. Ranges are placed one after the other,
// each at the lowest offset that is free for its whole life: the larger first, which on chains of layers reaches the
// bound or nearly so, or in another order where that makes the arena smaller.
func packArena(ranges []*arenaRange) (arena, live int) {
	live = liveBytes(ranges)
	life := func(r *arenaRange) int { return r.last - r.first + 1 }
	var best []int
	for i, before := range []func(a, b *arenaRange) int{
		func(a, b *arenaRange) int { return cmp.Or(b.bytes-a.bytes, a.first-b.first) },
		func(a, b *arenaRange) int { return cmp.Or(b.bytes*life(b)-a.bytes*life(a), a.first-b.first) },
		func(a, b *arenaRange) int { return cmp.Or(life(b)-life(a), b.bytes-a.bytes, a.first-b.first) },
		func(a, b *arenaRange) int { return cmp.Or(a.first-b.first, b.bytes-a.bytes) },
	} {
		order := slices.Clone(ranges)
		slices.SortStableFunc(order, before)
		if size := placeInOrder(order); i == 0 || size < arena {
			arena, best = size, best[:0]
			for _, r := range ranges {
				best = append(best, r.offset)
			}
		}
		if arena == live {
			break
		}
	}
	for i, r := range ranges {
		r.offset = best[i]
	}
	return arena, live
}

// placeInOrder gives each range the lowest offset that the ones before it leave, and returns the arena's size.
func placeInOrder(order []*arenaRange) (arena int) {
	var done []*arenaRange
	for _, r := range order {
		r.offset = lowestFree(r, done)
		done = append(done, r)
		sort.SliceStable(done, func(i, j int) bool { return done[i].offset < done[j].offset })
		arena = max(arena, r.offset+alignUp(r.bytes))
	}
	return arena
}

// lowestFree finds the first gap among the ranges that are alive at the same time; done is sorted by offset.
func lowestFree(r *arenaRange, done []*arenaRange) int {
	at, need := 0, alignUp(r.bytes)
	for _, d := range done {
		if d.last < r.first || r.last < d.first {
			continue
		}
		if d.offset-at >= need {
			break
		}
		at = max(at, d.offset+alignUp(d.bytes))
	}
	return at
}

// liveBytes is the largest sum of ranges alive at one launch: one at which a range begins.
func liveBytes(ranges []*arenaRange) int {
	most := 0
	for _, at := range ranges {
		sum := 0
		for _, r := range ranges {
			if r.first <= at.first && at.first <= r.last {
				sum += alignUp(r.bytes)
			}
		}
		most = max(most, sum)
	}
	return most
}
