package machine

import (
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
	{"sums of tensor cores", rounding},
}

// fmaClocks is how long a multiply-add waits for the one in front: 4 clocks on every architecture since compute capability 7.0, by published
// microbenchmarks.
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

// launches of blocks that do nothing; what the block's start takes is not the launch's.
func launches(r *rig) error {
	for _, way := range []struct {
		name      string
		dependent bool
	}{{"launch_plain_us", false}, {"launch_us", r.on.DependentLaunch}} {
		f, err := r.slope(r.sizes.nodes, 2*r.sizes.nodes, func(n int) []hal.Op { return row(r.op("empty", r.sizes.fill, 32, 1), n, way.dependent) })
		if err != nil {
			return err
		}
		r.found(way.name, less(f, r.on.StartUS))
	}
	return r.apart(func() error {
		g, err := r.graph(r.op("empty", r.sizes.fill, 32, 1))
		if err != nil {
			return err
		}
		f, err := r.samples(func() (float64, error) { return r.waited(g) })
		if err != nil {
			return err
		}
		r.found("graph_us", less(f, r.on.LaunchUS+r.on.StartUS))
		return nil
	})
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
	return r.apart(func() error {
		counters, err := r.alloc(4*r.sizes.fill, hal.DeviceMemory)
		if err != nil {
			return err
		}
		f, err := r.twice(r.sizes.repeats, func(n int) hal.Op { return r.op("atomic", r.sizes.fill, 256, n, counters) })
		if err != nil {
			return err
		}
		r.found("atomic_us", f)
		return nil
	})
}

// latencies chases through memory that L2 holds and through memory that it does not; then many loads at a time show how many there are.
func latencies(r *rig) error {
	for _, c := range []struct {
		name  string
		bytes int
	}{{"cache_latency_us", r.sizes.cached}, {"memory_latency_us", r.sizes.memory}} {
		err := r.apart(func() error {
			m, err := r.alloc(c.bytes, hal.DeviceMemory)
			if err != nil {
				return err
			}
			if err := ring(m); err != nil {
				return err
			}
			f, err := r.twice(r.sizes.steps, func(n int) hal.Op { return r.op("chase", 1, 1, n, m) })
			if err != nil {
				return err
			}
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
