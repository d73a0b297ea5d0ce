package codegen

import "sort"

// planned is an arena range while it is planned: size and live range in, offset out.
type planned struct {
	bytes       int
	first, last int // launch indices, inclusive
	offset      int
}

// planArena gives every range an offset such that ranges alive at the same launch do not overlap. It returns the arena's
// size and the largest sum of live bytes, which no plan can go below. Larger ranges are placed first, each at the lowest
// offset that is free for its whole life: on chains of layers this reaches the bound or nearly so.
func planArena(ranges []*planned) (arena, live int) {
	order := make([]*planned, len(ranges))
	copy(order, ranges)
	sort.SliceStable(order, func(i, j int) bool {
		a, b := order[i], order[j]
		if a.bytes != b.bytes {
			return a.bytes > b.bytes
		}
		return a.first < b.first
	})
	var done []*planned
	for _, r := range order {
		r.offset = lowestFree(r, done)
		done = append(done, r)
		sort.SliceStable(done, func(i, j int) bool { return done[i].offset < done[j].offset })
		arena = max(arena, r.offset+alignUp(r.bytes))
	}
	return arena, liveBytes(ranges)
}

// lowestFree finds the first gap among the ranges that are alive at the same time; done is sorted by offset.
func lowestFree(r *planned, done []*planned) int {
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

func liveBytes(ranges []*planned) int {
	change := map[int]int{}
	var times []int
	add := func(t, n int) {
		if _, ok := change[t]; !ok {
			times = append(times, t)
		}
		change[t] += n
	}
	for _, r := range ranges {
		add(r.first, alignUp(r.bytes))
		add(r.last+1, -alignUp(r.bytes))
	}
	sort.Ints(times)
	sum, most := 0, 0
	for _, t := range times {
		sum += change[t]
		most = max(most, sum)
	}
	return most
}
