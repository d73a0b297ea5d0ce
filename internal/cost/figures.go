package cost

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/internal/target"
)

// Figure is what is known of one constant of a machine: its least, its middle and its greatest value, of published figures or of
// samples. The model chooses and predicts by the middle; ranges of predictions come from the others.
type Figure = target.Figure

// Constant is a row of the table of constants: all that describes a machine to the model.
type Constant struct {
	Name   string // in machine files
	Unit   string
	What   string
	Source string

	least, most float64 // of published figures, relative to the middle
	at          func(m *Machine) *float64
	unset       func(m *Machine) float64 // what 0 stands for; nil: 0 stands for itself
	zero        bool                     // 0 can be measured
	product     string                   // TFLOPS of an element type, in place of at
}

// constants is the table. Ranges are those of the sources; where a source gives one figure, they are a guess, which says so.
var constants = slices.Concat([]Constant{
	{Name: "clock_ghz", Unit: "GHz", What: "clock of multiprocessors", Source: "GB10: 2.4 typical, 2.55 at most, less where power is short; others: data sheets", least: 0.9, most: 1.06,
		at: func(m *Machine) *float64 { return &m.ClockGHz }},
	{Name: "memory_gbps", Unit: "GB/s", What: "bytes read from device memory", Source: "GB10: 218 and 231–234 measured, 273 on paper; others: data sheets", least: 0.95, most: 1.07,
		at: func(m *Machine) *float64 { return &m.MemoryGBps }},
	{Name: "l2_read_gbps", Unit: "GB/s", What: "bytes read from L2", Source: "GB10: a guess, since only writes are published; others: published microbenchmarks, rounded", least: 0.65, most: 1.6,
		at: func(m *Machine) *float64 { return &m.L2ReadGBps }},
	{Name: "l2_write_gbps", Unit: "GB/s", What: "bytes written to L2", Source: "GB10: one test has just under 1 TB/s; others: a guess by GB10's ratio to reads", least: 0.8, most: 1.25,
		at: func(m *Machine) *float64 { return &m.L2WriteGBps }},
	{Name: "l2_together", Unit: "share", What: "time of reading and writing L2 at once, of one after the other", Source: "a guess: 1 if slices bind, 0.6 if only the two directions of the network did", least: 0.6, most: 1,
		at: func(m *Machine) *float64 { return &m.L2Together }},
	{Name: "evict_first", Unit: "share", What: "whether what is read as evict-first leaves L2 before all else: 0 or 1", Source: "a guess: the PTX ISA calls it a hint, and says no more", least: 0, most: 1, zero: true,
		at: func(m *Machine) *float64 { return &m.EvictFirst }},
	{Name: "kept_share", Unit: "share", What: "part of L2 that holds what a model uses, whatever else does", Source: "a guess: from half of L2 to all of it", least: 2. / 3, most: 4. / 3,
		at: func(m *Machine) *float64 { return &m.KeptShare }},
	{Name: "prefetch_rate", Unit: "share", What: "rate at which bulk prefetches bring bytes to L2, of memory_gbps",
		Source: "a guess: nothing is published", least: 0.6, most: 1,
		at: func(m *Machine) *float64 { return &m.PrefetchRate }},
	{Name: "prefetch_kept", Unit: "share", What: "prefetched bytes that arrive while loads keep device memory busy",
		Source: "a guess: the PTX ISA lets hardware drop prefetches, and says no more", least: 0.5, most: 1, zero: true,
		at: func(m *Machine) *float64 { return &m.PrefetchKept }},
	{Name: "launch_us", Unit: "µs", What: "from the end of a graph's kernel to the beginning of the next", Source: "0.58 published of a related part; an H100's is near 1 without dependent launch", least: 0.6, most: 1.7,
		at: func(m *Machine) *float64 { return &m.LaunchUS }},
	{Name: "launch_plain_us", Unit: "µs", What: "likewise, of a kernel that is no dependent launch; unless measured, launch_us",
		Source: "up to 1 on an H100, where launch_us is about 0.6", least: 1, most: 1.7,
		at:    func(m *Machine) *float64 { return &m.LaunchPlainUS },
		unset: func(m *Machine) float64 { return m.LaunchUS }},
	{Name: "graph_us", Unit: "µs", What: "launching a graph and waiting for it, beside what its kernels take", Source: "15 published of a related part", least: 0.4, most: 1.3,
		at: func(m *Machine) *float64 { return &m.GraphUS }},
	{Name: "memory_latency_us", Unit: "µs", What: "a load that device memory serves", Source: "0.5 to 0.9 in published microbenchmarks", least: 0.75, most: 1.3,
		at: func(m *Machine) *float64 { return &m.MemoryLatencyUS }},
	{Name: "cache_latency_us", Unit: "µs", What: "a load that L2 serves", Source: "200 to 300 clocks in published microbenchmarks, more across partitions", least: 0.5, most: 1.3,
		at: func(m *Machine) *float64 { return &m.CacheLatencyUS }},
	{Name: "atomic_us", Unit: "µs", What: "an atomic on device memory and the barrier behind it", Source: "a guess of two to three round trips to L2", least: 0.6, most: 1.5,
		at: func(m *Machine) *float64 { return &m.AtomicUS }},
	{Name: "start_us", Unit: "µs", What: "a block's start: parameters, coordinates", Source: "a guess", least: 0.5, most: 2,
		at: func(m *Machine) *float64 { return &m.StartUS }},
	{Name: "barrier_clocks", Unit: "clocks", What: "a barrier of a block", Source: "20 to 40 clocks in published microbenchmarks", least: 0.7, most: 1.4,
		at: func(m *Machine) *float64 { return &m.BarrierClocks }},
	{Name: "alone_issue", Unit: "per clock", What: "instructions of a warp by itself", Source: "arithmetic latency of 4 to 5 clocks, partly hidden by independent instructions", least: 0.6, most: 1.8,
		at: func(m *Machine) *float64 { return &m.AloneIssue }},
	{Name: "few_blocks_issue", Unit: "share",
		What:   "issue rate of a block where multiprocessors stay idle, of its rate with one to itself",
		Source: "a guess: 0.5 if two blocks are placed on one multiprocessor while others are idle", least: 0.5, most: 1,
		at: func(m *Machine) *float64 { return &m.FewBlocksIssue }},
	{Name: "busy_warps", Unit: "warps", What: "warps that fill a multiprocessor's tensor pipes", Source: "4 to 12 in published microbenchmarks, by shape and type", least: 0.5, most: 1.5,
		at: func(m *Machine) *float64 { return &m.BusyWarps }},
	{Name: "loads_at_a_time", Unit: "loads", What: "plain loads of a thread in flight together", Source: "a guess", least: 0.5, most: 2,
		at: func(m *Machine) *float64 { return &m.LoadsAtATime }},
	{Name: "l2_bytes_clock", Unit: "bytes per clock", What: "bytes that a multiprocessor reads from L2, or writes there", Source: "64 on paper, less in published microbenchmarks", least: 0.7, most: 1,
		at: func(m *Machine) *float64 { return &m.L2BytesClock }},
	{Name: "exposed", Unit: "share", What: "share of a term that the longest one does not hide", Source: "a guess", least: 0, most: 3,
		at: func(m *Machine) *float64 { return &m.Exposed }},
}, products())

// products are the rows of multiply-adds by type.
func products() []Constant {
	types := map[string]bool{}
	for _, t := range target.All() {
		for name := range t.TFLOPS {
			types[name] = true
		}
	}
	var out []Constant
	for _, name := range slices.Sorted(maps.Keys(types)) {
		out = append(out, Constant{Name: "tflops_" + name, Unit: "TFLOPS", What: "dense products of " + name + ", all multiprocessors together",
			Source: "GB10: measured; others: data sheets", least: 0.85, most: 1.05, product: name})
	}
	return out
}

// All lists the constants of a machine, in a fixed order. Types that a target does not multiply are not among them.
func (m *Machine) All() []Constant {
	return slices.DeleteFunc(slices.Clone(constants), func(c Constant) bool { return c.product != "" && m.TFLOPS[c.product] == 0 })
}

// Value is the machine's figure by which the model chooses.
func (m *Machine) Value(c Constant) float64 {
	if c.product != "" {
		return m.TFLOPS[c.product]
	}
	if x := *c.at(m); x != 0 || c.unset == nil {
		return x
	}
	return c.unset(m)
}

// Figure is the machine's range of a constant: what was measured on it, else what is published.
func (m *Machine) Figure(c Constant) Figure {
	if f, ok := m.Measured[c.Name]; ok {
		return f
	}
	x := m.Value(c)
	return Figure{Low: c.least * x, Middle: x, High: c.most * x}
}

// with is the machine with another value of a constant.
func (m *Machine) with(c Constant, x float64) *Machine {
	t, n := *m.Target, *m
	n.Target = &t
	if c.product == "" {
		*c.at(&n) = x
		return &n
	}
	t.TFLOPS = maps.Clone(t.TFLOPS)
	t.TFLOPS[c.product] = x
	return &n
}

// Range is the range of a predicted time. Each constant is set to both ends of its own range, one at a time; what that adds
// and takes away are taken to be independent of each other, so their squares add up. Of is the time on a machine. So Low is far from a
// promise: constants could be wrong together, and the model itself may be.
func (m *Machine) Range(of func(m *Machine) float64) Figure {
	f := Figure{Middle: of(m)}
	var less, more float64
	for _, c := range m.All() {
		r := m.Figure(c)
		a, b := of(m.with(c, r.Low))-f.Middle, of(m.with(c, r.High))-f.Middle
		down, up := max(0, -min(a, b)), max(0, max(a, b))
		less, more = less+float64(down*down), more+float64(up*up)
	}
	f.Low, f.High = f.Middle-math.Sqrt(less), f.Middle+math.Sqrt(more)
	return f
}

// Measure returns the target with figures measured on one machine in place of its own. Names that are no constants of the target, and
// ranges without order or sign, are refused.
func Measure(t *target.Target, figures map[string]Figure) (*target.Target, error) {
	m, out := Of(t), *t
	out.Measured = map[string]Figure{}
	var names []string
	zero := map[string]bool{}
	for _, c := range m.All() {
		names, zero[c.Name] = append(names, c.Name), c.zero
	}
	for _, name := range slices.Sorted(maps.Keys(figures)) {
		f := figures[name]
		switch {
		case !slices.Contains(names, name):
			return nil, fmt.Errorf("no constant %q of %s: use %s", name, t.Name, strings.Join(names, ", "))
		case !(0 <= f.Low && f.Low <= f.Middle && f.Middle <= f.High && !math.IsInf(f.High, 0)), f.Middle == 0 && !zero[name]:
			return nil, fmt.Errorf("%s: %g, %g, %g are not a low, a middle and a high figure", name, f.Low, f.Middle, f.High)
		}
		out.Measured[name] = f
	}
	return &out, nil
}
