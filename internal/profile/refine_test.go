package profile

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// gpu makes readings of blocks at known times, in ns.
type gpu struct {
	sms    int
	tick   []int   // steps of the shared clock, in turn
	ghz    float64 // of the counters
	origin uint32  // of the first counter; the others begin elsewhere
	late   float64 // ns between reading the shared clock and the counter, at most
}

func (g *gpu) readings(random *rand.Rand, times []float64) []reading {
	out := make([]reading, len(times))
	for i, t := range times {
		at, step := 0, 0
		for at+g.tick[step%len(g.tick)] <= int(t) {
			at += g.tick[step%len(g.tick)]
			step++
		}
		sm := i / 3 * 7 % g.sms // a block's three are of one
		cycles := int64(g.ghz * (t + g.late*random.Float64()))
		out[i] = reading{ns: at, cycles: g.origin + uint32(sm)*0x9e3779b9 + uint32(cycles), sm: uint32(sm)}
	}
	return out
}

// blocksOf are times of so many blocks, three each, in a span of ns.
func blocksOf(random *rand.Rand, blocks int, span float64) (times []float64) {
	for range blocks {
		begun := 5000 + span*random.Float64()
		times = append(times, begun, begun+200*random.Float64(), begun+300+2000*random.Float64())
	}
	return times
}

func worst(times []float64, got []int) (most float64) {
	for i, t := range times {
		most = max(most, math.Abs(t-float64(got[i])))
	}
	return most
}

// TestRefine_FindsTrueTimes of a clock with steps of a microsecond.
func TestRefine_FindsTrueTimes(t *testing.T) {
	for _, c := range []struct {
		name   string
		gpu    gpu
		blocks int
		span   float64
		within float64 // ns of the truth, all
	}{
		{"GB10", gpu{sms: 48, tick: []int{1000}, ghz: 2.418}, 4000, 300e3, 11},
		{"one multiprocessor", gpu{sms: 1, tick: []int{1024}, ghz: 2.4}, 2000, 300e3, 1.2},
		{"throttled", gpu{sms: 8, tick: []int{1000}, ghz: .85}, 2000, 300e3, 5.3},
		{"counters start again", gpu{sms: 8, tick: []int{1000}, ghz: 2.4, origin: math.MaxUint32 - 100e3}, 2000, 300e3, 4.7},
		{"uneven steps", gpu{sms: 8, tick: []int{992, 1024, 1024}, ghz: 2.4}, 2000, 300e3, 5.2},
		{"late counters", gpu{sms: 8, tick: []int{1000}, ghz: 2.4, late: 30}, 2000, 300e3, 36},
		{"a long run", gpu{sms: 8, tick: []int{1000}, ghz: 2.4}, 2000, 20e6, 3.5},
	} {
		t.Run(c.name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(1, 2))
			times := blocksOf(random, c.blocks, c.span)
			r := &Timeline{}
			got := r.refine(c.gpu.readings(random, times))
			require.Equal(t, slices.Max(c.gpu.tick), r.TickNS)
			require.Positive(t, r.RefinedNS)
			t.Logf("worst %.1f ns, known to %d", worst(times, got), r.RefinedNS)
			require.Less(t, worst(times, got), c.within)
		})
	}
}

// TestRefine_OneStampOfAMultiprocessor lies in the middle of its step, and does not disturb the others.
func TestRefine_OneStampOfAMultiprocessor(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	times := blocksOf(random, 1000, 200e3)
	g := gpu{sms: 4, tick: []int{1000}, ghz: 2.4}
	all := g.readings(random, times)
	all = append(all, reading{ns: 77000, cycles: 123, sm: 99})
	r := &Timeline{}
	got := r.refine(all)
	require.Less(t, worst(times, got), 20.)
	require.Equal(t, 77500, got[len(got)-1])
}

// TestRefine_LeavesTimesAlone where the clock is fine, or the counters do not tell.
func TestRefine_LeavesTimesAlone(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	times := blocksOf(random, 500, 200e3)
	for name, change := range map[string]func(g *gpu) []reading{
		"a fine clock": func(g *gpu) []reading {
			g.tick = []int{32}
			return g.readings(random, times)
		},
		"rates that differ": func(g *gpu) []reading {
			all := g.readings(random, times)
			for i := range all {
				if all[i].sm == 1 {
					all[i].cycles += uint32(.1 * times[i])
				}
			}
			return all
		},
		"a rate that changes": func(g *gpu) []reading {
			all := g.readings(random, times)
			for i := range all {
				all[i].cycles += uint32(max(0, times[i]-100e3))
			}
			return all
		},
		"counters that stand still": func(g *gpu) []reading {
			g.ghz = 0
			return g.readings(random, times)
		},
		"counters that run backwards": func(g *gpu) []reading {
			all := g.readings(random, times)
			for i := range all {
				all[i].cycles = -all[i].cycles
			}
			return all
		},
		"a stamp of each multiprocessor": func(g *gpu) []reading {
			all := g.readings(random, times)
			for i := range all {
				all[i].sm = uint32(i)
			}
			return all
		},
		"two stamps": func(g *gpu) []reading { return g.readings(random, times)[:2] },
	} {
		t.Run(name, func(t *testing.T) {
			all := change(&gpu{sms: 4, tick: []int{1000}, ghz: 2.4})
			r := &Timeline{}
			got := r.refine(all)
			require.Zero(t, r.RefinedNS)
			for i := range all {
				require.Equal(t, all[i].ns, got[i])
			}
		})
	}
}
