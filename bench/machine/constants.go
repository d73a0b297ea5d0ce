package machine

import (
	"fmt"
	"math"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/cost"
)

// measurements are in an order in which each finds what later ones take for known.
var measurements = []struct {
	name string
	run  func(r *rig) error
}{
	{"the clock", clock},
	{"starts of blocks", starts},
	{"launches", launches},
	{"multiply-adds of f32", floats},
	{"products on tensor cores", tensors},
	{"barriers and atomics", barriers},
	{"latencies", latencies},
	{"L2", l2},
	{"what L2 keeps", kept},
	{"memory of each kind", memory},
	{"prefetches into L2", prefetches},
	{"eviction priorities", evictions},
	{"launches of few blocks", fewBlocks},
	{"sums of tensor cores", rounding},
}

// fmaClocks is the latency of a dependent multiply-add: 4 clocks on every architecture since compute capability
// 7.0, by published microbenchmarks.
const fmaClocks = 4

func clock(r *rig) error {
	f, err := r.twice(r.sizes.rounds, func(n int) hal.Op { return r.op("fma1", 1, 32, n) })
	if err != nil {
		return err
	}
	r.found("clock_ghz", per(fmaClocks*unrolled/1e3, f))
	return nil
}

// clocks is a µs.
func (r *rig) clocks() float64 { return r.on.ClockGHz * 1e3 }

// starts takes blocks that fill a multiprocessor each, so that one waits for the other.
func starts(r *rig) error {
	f, err := r.twice(r.sizes.blocks, func(n int) hal.Op {
		o := r.op("start", n*r.sizes.fill, 32, 1)
		o.Shared = r.on.SharedBlock
		return o
	})
	if err != nil {
		return err
	}
	r.found("start_us", f)
	return nil
}

// launches that compute for some microseconds each: N of them take N gaps less than 2N that compute half as long, by
// full edges and by programmatic dependent launch. The gap is without a block's start, which the model adds; where
// dependent launch hides that too, nothing is left. Launches that do nothing, which publications measure, are
// shorter.
func launches(r *rig) error {
	for _, way := range []struct {
		name, empty string
		dependent   bool
	}{{"launch_plain_us", "launch_empty_plain_us", false}, {"launch_us", "launch_empty_us", r.on.DependentLaunch}} {
		work := func(launches, rounds int) []hal.Op {
			return row(r.op("work", r.sizes.fill, workThreads, rounds), launches, way.dependent)
		}
		n := r.sizes.nodes
		f, err := r.difference(gapSamples*r.opt.Samples, nil, work(n, 2*r.sizes.work), work(2*n, r.sizes.work))
		if err != nil {
			return err
		}
		f = less(scaled(f, 1/float64(n)), r.on.StartUS)
		r.found(way.name, within(f, leastGap, math.Inf(1)))
		f, err = r.slope(n, 2*n, func(n int) []hal.Op {
			return row(r.op("empty", r.sizes.fill, 32, 1), n, way.dependent)
		})
		if err != nil {
			return err
		}
		r.found(way.empty, less(f, r.on.StartUS))
	}
	return r.scoped(func() error {
		g, err := r.graph(r.op("empty", r.sizes.fill, 32, 1))
		if err != nil {
			return err
		}
		f, err := r.samples(func() (float64, error) { return r.waited(g) })
		if err != nil {
			return err
		}
		r.found("graph_us", less(f, r.on.Launch(true)+r.on.StartUS))
		return nil
	})
}

const (
	gapSamples = 3    // times the samples of other figures: a gap is a small part of what is timed
	leastGap   = 0.01 // µs
)

// fewBlocks compares a block among so few that multiprocessors stay idle with one that has a multiprocessor to
// itself, for which each asks for all shared memory. Both have warps enough to issue as fast as a multiprocessor can.
func fewBlocks(r *rig) error {
	const threads = 512
	round := func(blocks, shared int) (cost.Figure, error) {
		return r.twice(r.sizes.rounds, func(n int) hal.Op {
			o := r.op("fma8", blocks, threads, n)
			o.Shared = shared
			return o
		})
	}
	own, err := round(r.sizes.fill, r.on.SharedBlock)
	if err != nil {
		return err
	}
	var f cost.Figure
	for i, quarters := range []int{2, 1, 3} {
		few, err := round(max(1, r.sizes.fill*quarters/4), 0)
		if err != nil {
			return err
		}
		if !(own.Middle > 0 && few.Middle > 0) {
			r.file.Left["few_blocks_issue"] = fmt.Sprintf("the difference of two amounts of work does not show: %.3g and %.3g",
				own.Middle, few.Middle)
			return nil
		}
		x := per(own.Middle, few)
		if i == 0 {
			f = x
		}
		f.Low, f.High = min(f.Low, x.Low), max(f.High, x.High)
	}
	r.foundShare("few_blocks_issue", f)
	return nil
}

func floats(r *rig) error {
	const threads = 512
	blocks := 2 * r.sizes.fill
	f, err := r.twice(r.sizes.rounds, func(n int) hal.Op { return r.op("fma8", blocks, threads, n) })
	if err != nil {
		return err
	}
	r.found("tflops_f32", per(2*unrolled*accumulators*float64(blocks*threads)/1e6, f))
	// A warp by itself: instructions that wait for each other, and that do not, are the ends of its range.
	wait, err := r.twice(r.sizes.rounds, func(n int) hal.Op { return r.op("fma1", 1, 32, n) })
	if err != nil {
		return err
	}
	free, err := r.twice(r.sizes.rounds, func(n int) hal.Op { return r.op("fma8", 1, 32, n) })
	if err != nil {
		return err
	}
	least, most := unrolled/wait.Middle/r.clocks(), unrolled*accumulators/free.Middle/r.clocks()
	r.found("alone_issue", cost.Figure{Low: min(least, most), Middle: math.Sqrt(least * most), High: max(least, most)})
	return nil
}

// tensors finds the rate of each type with as many warps as are best, and how many warps of f16 fill the pipes.
func tensors(r *rig) error {
	for _, p := range products {
		if !r.on.Multiplies(p.dtype) {
			continue
		}
		rate := func(warps int) (cost.Figure, error) {
			f, err := r.twice(r.sizes.rounds, func(n int) hal.Op { return r.op("mma_"+p.dtype, r.sizes.fill, 32*warps, n) })
			return per(2*accumulators*float64(p.macs*warps*r.sizes.fill)/1e6, f), err
		}
		var best cost.Figure
		for _, warps := range []int{8, 12, 16} {
			f, err := rate(warps)
			if err != nil {
				return err
			}
			if f.Middle > best.Middle {
				best = f
			}
		}
		r.found("tflops_"+p.dtype, best)
		if p.dtype != "f16" {
			continue
		}
		one, err := rate(1)
		if err != nil {
			return err
		}
		two, err := rate(2)
		if err != nil {
			return err
		}
		a, b := best.Middle/one.Middle, best.Middle/float64(two.Middle/2)
		r.found("busy_warps", cost.Figure{Low: min(a, b), Middle: (a + b) / 2, High: max(a, b)})
	}
	return nil
}

func barriers(r *rig) error {
	f, err := r.twice(r.sizes.repeats, func(n int) hal.Op { return r.op("barrier", 1, 256, n) })
	if err != nil {
		return err
	}
	r.found("barrier_clocks", scaled(f, r.clocks()/unrolled))
	return r.scoped(func() error {
		counters, err := r.alloc(4*r.sizes.fill, hal.DeviceMemory)
		if err != nil {
			return err
		}
		f, err := r.twice(r.sizes.repeats, func(n int) hal.Op { return r.op("atomic", r.sizes.fill, 256, n, counters) })
		if err != nil {
			return err
		}
		r.found("atomic_uncontended_us", f)
		return handshakes(r, counters)
	})
}

// handshakes are what blocks that split K do to find the last of them, several for each counter; of a handshake's
// barriers the model knows.
func handshakes(r *rig, counters hal.Memory) error {
	shift := 0
	for 2<<shift <= min(r.sizes.fill, splitBlocks) {
		shift++
	}
	blocks := r.sizes.fill >> shift << shift
	partials, err := r.alloc(16*handshakeThreads*blocks, hal.DeviceMemory)
	if err != nil {
		return err
	}
	f, err := r.twice(r.sizes.repeats, func(n int) hal.Op {
		o := r.op("handshake", blocks, handshakeThreads, n, counters, partials, shift)
		o.Shared = 4
		return o
	})
	if err != nil {
		return err
	}
	r.found("atomic_us", less(f, 2*r.on.BarrierClocks/r.clocks()))
	return nil
}

// latencies chases through memory that L2 holds and through memory that it does not; then many loads at a time show how many there are.
func latencies(r *rig) error {
	for _, c := range []struct {
		name  string
		bytes int
	}{{"cache_latency_us", r.sizes.cached}, {"memory_latency_us", r.sizes.memory}} {
		err := r.scoped(func() error {
			m, err := r.alloc(c.bytes, hal.DeviceMemory)
			if err != nil {
				return err
			}
			if err := ring(m); err != nil {
				return err
			}
			var flush []hal.Op // or L2 would hold the lines, which are the same each time
			if c.name == "memory_latency_us" {
				if flush, err = r.flush(); err != nil {
					return err
				}
			}
			chase := func(steps int) []hal.Op { return []hal.Op{r.op("chase", 1, 1, steps, m)} }
			f, err := r.difference(r.opt.Samples, flush, chase(r.sizes.steps), chase(2*r.sizes.steps))
			if err != nil {
				return err
			}
			f = scaled(f, 1/float64(r.sizes.steps))
			r.found(c.name, f)
			if c.name == "memory_latency_us" {
				return nil
			}
			rounds := min(r.sizes.steps, c.bytes/(2*together*lineBytes)) / 2
			f, err = r.twice(max(1, rounds), func(n int) hal.Op { return r.op("loads", 1, 32, n, m) })
			if err != nil {
				return err
			}
			r.found("loads_at_a_time", per(together*r.on.CacheLatencyUS, f))
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
