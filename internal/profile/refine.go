package profile

import (
	"math"
	"slices"
)

// coarseTick is the largest step of the shared clock, in ns, whose times are taken as they are.
const coarseTick = 100

// reading is one block's reading of the two clocks, in immediate succession.
type reading struct {
	ns     int    // the shared clock, since the first stamp
	cycles uint32 // of its multiprocessor
	sm     uint32
}

// refine returns the times of stamps, in ns. Where the shared clock is coarse they follow from the multiprocessors' counters: a stamp
// (ns, cycles) says that the true time lies in [ns, ns+tick), which bounds the offset between the two clocks, and all stamps of a
// multiprocessor bound it together. Where that gains less than a half, as when counters change their rate during the run, times stay as they are.
func (r *Timeline) refine(all []reading) []int {
	out := make([]int, len(all))
	for i, s := range all {
		out[i] = s.ns
	}
	r.TickNS = tick(out)
	if r.TickNS <= coarseTick {
		return out
	}
	f := newFit(all, float64(r.TickNS))
	if !f.solve() {
		return out
	}
	known := make([]float64, 0, len(all))
	for _, c := range f.counters {
		low, high := f.offset(&c, f.rate)
		for i, at := range c.stamps {
			t := float64((low+high)/2) + float64(f.rate*c.cycles[i])
			out[at] = int(math.Round(min(max(t, c.ns[i]), c.ns[i]+f.tick)))
			known = append(known, math.Abs(high-low)+float64(f.drift*math.Abs(c.cycles[i]-c.middle)))
		}
	}
	slices.Sort(known)
	r.RefinedNS = max(1, int(math.Ceil(known[len(known)/2])))
	if 2*r.RefinedNS > r.TickNS {
		r.RefinedNS = 0
		for i, s := range all {
			out[i] = s.ns
		}
	}
	return out
}

// tick is the least step between times: the greatest of those that differ from it by less than half, since a clock may take steps of
// 992 and 1024 ns in turn. 0 if all times are equal.
func tick(times []int) int {
	sorted := slices.Compact(slices.Sorted(slices.Values(times)))
	least := math.MaxInt
	for i := 1; i < len(sorted); i++ {
		least = min(least, sorted[i]-sorted[i-1])
	}
	out := 0
	for i := 1; i < len(sorted); i++ {
		if step := sorted[i] - sorted[i-1]; 2*step < 3*least {
			out = max(out, step)
		}
	}
	return out
}

// counter is the cycle counter of a multiprocessor, with its stamps in the order of the shared clock.
type counter struct {
	stamps []int     // by index
	ns     []float64 // of the shared clock
	cycles []float64 // since its first stamp; a counter of 32 bits starts again
	middle float64   // mean of cycles
}

// fit finds the rate of all counters, and the offset of each.
type fit struct {
	counters []counter
	tick     float64
	rate     float64 // ns a cycle
	drift    float64 // half of the range of rates that the stamps allow
}

func newFit(all []reading, tick float64) *fit {
	f := &fit{tick: tick}
	number := map[uint32]int{}
	for i, s := range all {
		n, ok := number[s.sm]
		if !ok {
			n, number[s.sm] = len(f.counters), len(f.counters)
			f.counters = append(f.counters, counter{})
		}
		f.counters[n].stamps = append(f.counters[n].stamps, i)
	}
	for n := range f.counters {
		c := &f.counters[n]
		slices.SortStableFunc(c.stamps, func(a, b int) int { return all[a].ns - all[b].ns })
		at, sum := 0, 0.0
		for i, k := range c.stamps {
			if i > 0 {
				at += int(int32(all[k].cycles - all[c.stamps[i-1]].cycles))
			}
			c.ns, c.cycles = append(c.ns, float64(all[k].ns)), append(c.cycles, float64(at))
			sum += float64(at)
		}
		c.middle = sum / float64(len(c.stamps))
	}
	return f
}

// offset are the bounds of when a counter's cycle 0 was, at a rate.
func (f *fit) offset(c *counter, rate float64) (low, high float64) {
	low, high = math.Inf(-1), math.Inf(1)
	for i, ns := range c.ns {
		at := ns - float64(rate*c.cycles[i])
		low, high = max(low, at), min(high, at+f.tick)
	}
	return low, high
}

// slack is the least distance between the bounds of an offset: below 0 they contradict each other. It is concave in the rate.
func (f *fit) slack(rate float64) float64 {
	least := math.Inf(1)
	for i := range f.counters {
		low, high := f.offset(&f.counters[i], rate)
		least = min(least, high-low)
	}
	return least
}

// steps is how often a search for a rate divides its range by 1.5 or more.
const steps = 60

// solve finds the middle of the rates that the stamps allow, from the regression line of all counters. It reports whether there is any.
func (f *fit) solve() bool {
	var both, square float64
	for _, c := range f.counters {
		for i, x := range c.cycles {
			both += float64((x - c.middle) * c.ns[i])
			square += float64((x - c.middle) * (x - c.middle))
		}
	}
	first := both / square
	if !(first > 0) || math.IsInf(first, 0) {
		return false
	}
	low, high := float64(first/2), float64(2*first)
	for range steps {
		third := float64((high - low) / 3)
		a, b := low+third, high-third
		if f.slack(a) < f.slack(b) {
			low = a
		} else {
			high = b
		}
	}
	f.rate = float64((low + high) / 2)
	if f.slack(f.rate) <= 0 { // bounds contradict each other: the two clocks are not read at once
		return true
	}
	edge := func(outside float64) float64 {
		inside := f.rate
		for range steps {
			if x := float64((inside + outside) / 2); f.slack(x) >= 0 {
				inside = x
			} else {
				outside = x
			}
		}
		return inside
	}
	from, to := edge(float64(first/2)), edge(float64(2*first))
	f.rate, f.drift = float64((from+to)/2), float64((to-from)/2)
	return true
}
