// Package cost estimates how long a launch takes on a target. Kernel families choose schedules with its one function and its
// constants, and internal/profile predicts with them: both describe a launch as Work, a family as planned, a profile as counted.
//
// # The model
//
// Terms inside a multiprocessor are those of the busiest one, which executes n = ⌈blocks / SMs⌉ of the blocks, in
// waves = ⌈n / resident blocks⌉:
//
//	tensor   multiply-adds / rate of the type; fewer than BusyWarps resident warps use the pipes in proportion
//	issue    the fullest of: Schedulers warp instructions a clock (a warp alone issues AloneIssue a clock), and the lanes a
//	         clock of the pipes: f32 128, integer and conversion 64, f64 and special functions 16 or as the target says,
//	         loads, stores and shuffles 32
//	L1       one wavefront of shared memory a clock, bank conflicts included, or four sectors of plain loads
//	L2       bytes read / rate of reads and bytes written / rate of writes, or L2BytesClock a clock either way for the busiest
//	         multiprocessor, together
//	DRAM     bytes / rate of DRAM
//	gap      cost of a graph node
//
// A multiprocessor is busy for max(tensor, issue, L1), of which each of its n blocks causes a share. A block also
// waits: for its start, for round trips to memory, for atomics and barriers. Copies that it started several chunks
// early (streamed) arrive while it computes. Blocks of one wave wait at the same time, and a block of the next
// wave waits while others compute, so the multiprocessor takes
//
//	max(busy + wait, waves · (wait + max(busy / n, streamed)))
//
// Latency is what this exceeds busy by. A round trip takes DRAM's latency if the launch reads anything from DRAM, since the
// last of its data ends it; what is written there later costs no trip. Of the multiprocessor's time, L2 and DRAM, the longest counts in full and hides all but a share
// (Exposed) of the others. The gap is added.
//
// # Reads and writes of L2
//
// What is read and what is written crosses the network between multiprocessors and L2 in opposite directions, each with a rate of its
// own. But both look up the same tags and use the same data banks of a slice. So together they take the largest of the reads'
// time, the writes' time, and L2Together times their sum, which is the slices' share. At 1 the times add up: so the model has it,
// because nobody has published a rate of both at once, and schedules that write little are not chosen by an overlap that may not
// exist. spark-bench --machine measures it by a kernel that copies. An atomic counts as a write: L2 does it, and little comes back.
//
// # What L2 keeps
//
// KeptShare of L2 holds what models use again; the rest is for the host, for other processes and for blocks that its hash places
// unevenly. Schedules do not depend on it: internal/profile says by it what DRAM serves, and calibration whether a model's weights stay.
//
// # Launches in a row
//
// Blocks of a dependent launch that fit next to those of the preceding launch fetch their first weights before
// that one ends (EarlyBytes). Sequence lets this traffic begin when the preceding launch begins, after what that
// one fetches itself. What a launch prefetches for later ones (Fetches) comes after its own traffic, at
// PrefetchRate of DRAM's rate, and a launch waits for its part (Awaits). Hardware may drop prefetches when DRAM is
// busy: PrefetchKept of them arrive, and a launch loads the rest of what it reads (Prefetched) itself. Every
// prefetch is assumed to find DRAM busy, since launches that prefetch load weights too. Write-back to DRAM (Back)
// comes after the launch's reads, and no launch waits for it. The total then lies between the sum of the launches'
// times and the larger of two sums: of all DRAM traffic, and of everything else.
//
// Lanes a clock are those of the CUDA C++ Programming Guide, "Arithmetic instructions"; rates are the target's; the other
// constants are round figures of published microbenchmarks. The model ranks schedules and names what bounds a launch; it
// is not a promise of microseconds until a device has confirmed it.
package cost

import "github.com/spark-compile/spark-compile/internal/target"

// Constants describe a machine to the model, beyond its target's row. Their names, sources and ranges are in the table of constants.
type Constants struct {
	MemoryLatencyUS float64 // of a load that DRAM serves
	CacheLatencyUS  float64 // of one that L2 serves
	AtomicUS        float64 // of an atomic and the barrier after it
	StartUS         float64 // of a block: parameters, coordinates
	BarrierClocks   float64
	Schedulers      float64 // of a multiprocessor: warp instructions a clock
	AloneIssue      float64 // warp instructions a clock of a warp by itself
	FewBlocksIssue  float64 // issue rate of a block where multiprocessors stay idle, of its rate with one to itself
	BusyWarps       float64 // warps that fill the tensor pipes
	LoadsAtATime    float64 // plain loads of a thread in flight together
	L2BytesClock    float64 // bytes that a multiprocessor reads from L2 in a clock, and that it writes there
	L2Together      float64 // time of reads and writes of L2 at once, as a share of the sum of their times
	KeptShare       float64 // of L2, that holds what a model uses, whatever else does
	EvictFirst      float64 // of devices like this one, that let what is read as evict-first leave L2 first (createpolicy)
	PrefetchRate    float64 // at which bulk prefetches bring bytes to L2, as a share of MemoryGBps
	PrefetchKept    float64 // share of prefetched bytes that arrive while loads keep DRAM busy
	LaunchPlainUS   float64 // gap of a launch that is not dependent; 0: not known, as LaunchUS
	GraphUS         float64 // of launching a graph and waiting for it, without its kernels
	Exposed         float64 // share of a term that the longest one does not hide
}

// published serves every target: targets differ by less than the published figures do among themselves.
var published = Constants{MemoryLatencyUS: 0.7, CacheLatencyUS: 0.25, AtomicUS: 0.7, StartUS: 0.3, BarrierClocks: 30,
	Schedulers: 4, AloneIssue: 0.4, BusyWarps: 8, LoadsAtATime: 8, L2BytesClock: 64, L2Together: 1, KeptShare: 0.75, EvictFirst: 1, GraphUS: 15, Exposed: 0.1,
	PrefetchRate: 1, PrefetchKept: 1, FewBlocksIssue: 1}

// Machine is a target with the model's constants.
type Machine struct {
	*target.Target
	Constants
}

// Of returns the machine that a target's row describes, with what was measured on it in place of what is published.
func Of(t *target.Target) *Machine {
	m := &Machine{t, published}
	if len(t.Measured) == 0 {
		return m
	}
	for _, c := range m.All() {
		if f, ok := t.Measured[c.Name]; ok {
			m = m.with(c, f.Middle)
		}
	}
	return m
}

// Products are multiply-adds of an element type, named as in the IR.
type Products struct {
	Type string
	MACs float64
}

// Work is what a launch does, as a schedule plans it or as a run counts it. Amounts are for the whole launch unless the comment
// says otherwise.
type Work struct {
	Blocks, Warps int  // Warps of a block
	Resident      int  // blocks that a multiprocessor can hold
	Plain         bool // begins when the preceding launch has ended; schedules do not say

	Products                             []Products // by mma; fma of f32 is Float
	Issued                               float64    // warp instructions
	Float, Integer, Special, Memory, F64 float64    // of them, by pipe
	Wavefronts                           float64    // clocks of shared memory and of the first-level cache
	L2Read, L2Written                    float64    // bytes
	DRAMBytes                            float64
	Back                                 float64 // of DRAMBytes: written, and leaves L2 when others take its place, for which nothing waits
	EarlyBytes                           float64 // of DRAMBytes: what a dependent launch can fetch before the preceding launch ends

	Fetches    float64 // bytes that its prefetches ask DRAM for, not counted in DRAMBytes
	Awaits     float64 // bytes of the prefetches of launch After that must have come before it can end
	After      int     // launch of the list that prefetched what it reads, if Awaits is not 0
	Prefetched float64 // bytes that it reads which prefetches asked DRAM for, not counted in DRAMBytes

	Sparse float64 // bytes of the region's inputs that it reads, if that is a part of them that the plan knows; 0: all

	Loads    float64 // of a thread: plain loads, LoadsAtATime of which are in flight together
	Trips    float64 // of a block: round trips of asynchronous copies that it waits for, one after the other
	Streamed float64 // of a block: the other waits for asynchronous copies, each divided by the number in flight
	Atomics  float64 // of a block
	Barriers float64 // of a block

	SerialTail float64 // bytes that one block reads from L2 when the others have ended, beyond its share; Estimate does not know of it
}

// Time is an estimated time and what it is made of, in microseconds.
type Time struct {
	US      float64 `json:"us"`
	By      string  `json:"bound"`
	Tensor  float64 `json:"tensor"`
	Issue   float64 `json:"issue"`
	L1      float64 `json:"l1"`
	L2      float64 `json:"l2"`
	DRAM    float64 `json:"dram"`
	Latency float64 `json:"latency"`
	Gap     float64 `json:"gap"`
	Waves   int     `json:"waves"`

	back            float64 // of DRAM, for what is written
	early, near     float64 // fetched before the preceding launch ends, and the rest then
	fetches, awaits float64 // what DRAM takes for its prefetches, and for those of launch after that it needs
	after           int
}

// Estimate is the time of a launch. Products are rounded before they are added, so that the compiler makes the same choices
// whatever machine it runs on.
func (m *Machine) Estimate(w *Work) Time {
	clk, sms := m.ClockGHz*1e3, float64(m.SMs) // clocks a µs
	mine := (w.Blocks + m.SMs - 1) / m.SMs
	resident := max(1, min(mine, w.Resident))
	there := float64(resident * w.Warps)
	t := Time{Gap: m.Launch(w.Plain), Waves: (mine + resident - 1) / resident}
	share := float64(mine) / float64(w.Blocks) // of the busiest multiprocessor

	for _, p := range w.Products {
		t.Tensor += 2 * p.MACs / (m.rate(p.Type) * 1e6 / sms)
	}
	t.Tensor = float64(t.Tensor * (share / min(1, there/m.BusyWarps)))
	issue := w.Issued / min(m.Schedulers, there*m.AloneIssue)
	pipe := max(32*w.Float/m.floatLanes(), w.Integer/2, 2*w.Special, w.Memory, 32*w.F64/float64(m.F64PerClock))
	t.Issue = max(issue, pipe) * share / clk
	if 1 < w.Blocks && w.Blocks < m.SMs { // a block by itself shares no multiprocessor
		t.Issue /= m.FewBlocksIssue
	}
	t.L1 = w.Wavefronts * share / clk
	one := m.L2BytesClock * clk / share // bytes a µs of all, if the busiest multiprocessor sets the pace
	t.L2 = m.l2(w.L2Read/min(m.L2ReadGBps*1e3, one), w.L2Written/min(m.L2WriteGBps*1e3, one))
	loaded := w.DRAMBytes + float64((1-m.PrefetchKept)*w.Prefetched)
	t.DRAM = loaded / (m.MemoryGBps * 1e3)

	trip := m.CacheLatencyUS
	if loaded > w.Back {
		trip = m.MemoryLatencyUS
	}
	trips := w.Trips + w.Loads/m.LoadsAtATime
	if w.Loads > 0 {
		trips = max(trips, w.Trips+1)
	}
	wait := m.StartUS + float64(trip*trips) + float64(m.AtomicUS*w.Atomics) + w.Barriers*m.BarrierClocks/clk
	busy := max(t.Tensor, t.Issue, t.L1)
	inside := max(busy+wait, float64(float64(t.Waves)*(wait+max(busy/float64(mine), float64(trip*w.Streamed)))))
	t.Latency = inside - busy
	t.back = w.Back / (m.MemoryGBps * 1e3)
	t.early = min(w.EarlyBytes, loaded) / (m.MemoryGBps * 1e3)
	perUS := float64(m.MemoryGBps*1e3) * m.PrefetchRate // bytes of prefetches
	t.fetches, t.awaits = float64(m.PrefetchKept*w.Fetches)/perUS, float64(m.PrefetchKept*w.Awaits)/perUS
	t.after = w.After
	device := m.both(inside, t.L2)
	t.US, t.near = t.Gap+m.both(device, t.DRAM), t.Gap+m.both(device, t.DRAM-t.early)
	t.bound()
	return t
}

// SerialTail is the time in which one multiprocessor reads what the last block of a launch reads by itself: the sums of all that share its tile.
// A launch's time, which has averages over blocks, lacks it.
func (m *Machine) SerialTail(w *Work) float64 {
	return w.SerialTail / (m.L2BytesClock * m.ClockGHz * 1e3)
}

// Launch is the time from the end of a launch to the beginning of the next, by programmatic dependent launch or by
// a full edge of the graph.
func (m *Machine) Launch(plain bool) float64 {
	if plain && m.LaunchPlainUS > 0 {
		return m.LaunchPlainUS
	}
	return m.LaunchUS
}

// Copy is the time of a graph's node that copies bytes within the device's memory, through L2.
func (m *Machine) Copy(bytes int) Time {
	t := Time{L2: m.l2(float64(bytes)/(m.L2ReadGBps*1e3), float64(bytes)/(m.L2WriteGBps*1e3)), Gap: m.Launch(true)}
	t.US = t.Gap + t.L2
	t.near = t.US
	t.bound()
	return t
}

// LeavesFirst reports whether what is read as evict-first is taken to leave L2 before all else.
func (m *Machine) LeavesFirst() bool { return m.EvictFirst >= 0.5 }

// KeptBytes is how much of what a model uses L2 holds.
func (m *Machine) KeptBytes() int { return int(float64(m.KeptShare * float64(m.L2Bytes))) }

// Left is the part of bytes that have left L2 when they are used again and so many bytes were touched meanwhile, each once: none up to what L2
// keeps, all from 5/3 of that on, and evenly more between the two. How a device replaces is not published.
func (m *Machine) Left(distance float64) float64 {
	return min(1, max(0, 1.5*(distance/max(float64(m.KeptBytes()), 1)-1)))
}

// l2 is the time of reads and writes of L2 that take so long by themselves.
func (m *Machine) l2(reads, writes float64) float64 {
	return max(reads, writes, float64((reads+writes)*m.L2Together))
}

// both is the time of two things at once, the longer of which hides most of the shorter.
func (m *Machine) both(a, b float64) float64 { return max(a, b) + float64(min(a, b)*m.Exposed) }

// Sequence is the time of launches one after the other. DRAM serves requests in launch order. If dependent[i], the
// early bytes of launch i begin when launch i-1 begins, after that one's own traffic. What a launch prefetches for
// others comes after its own traffic. A launch ends no earlier than its prefetched bytes arrive.
func Sequence(launches []Time, dependent []bool) float64 {
	ends := Ends(launches, dependent)
	if len(ends) == 0 {
		return 0
	}
	return ends[len(ends)-1]
}

// Ends are the times at which launches one after the other end.
func Ends(launches []Time, dependent []bool) []float64 {
	var begun, done, free float64 // of the preceding launch; when DRAM has served all that was asked for
	served, ends := make([]float64, len(launches)), make([]float64, len(launches))
	for i, t := range launches {
		end, own := done+t.US, t.DRAM-t.back
		if dependent[i] {
			free = max(free, begun) + t.early
			end, own = min(end, max(done+t.near, free)), own-t.early
		}
		if own > 0 {
			free = max(free, done) + own
			end = max(end, free)
		}
		if t.awaits > 0 {
			end = max(end, served[t.after]+t.awaits)
		}
		if t.back > 0 {
			free = max(free, done) + t.back
		}
		served[i] = max(free, done)
		if t.fetches > 0 {
			free = served[i] + t.fetches
		}
		begun, done = done, end
		ends[i] = end
	}
	return ends
}

// rate is TFLOPS of a type; a type without an mma of its own is multiplied as a wider one.
func (m *Machine) rate(t string) float64 {
	for _, t := range []string{t, map[string]string{"e2m1": "e4m3", "e5m2": "e4m3"}[t], "f16"} {
		if r := m.TFLOPS[t]; r > 0 {
			return r
		}
	}
	return 1
}

// floatLanes is the number of f32 operations that a multiprocessor does in a clock.
func (m *Machine) floatLanes() float64 {
	return m.TFLOPS["f32"] * 1e12 / 2 / float64(m.SMs) / (m.ClockGHz * 1e9)
}

// bound names the longest term.
func (t *Time) bound() {
	most := 0.0
	for _, x := range []struct {
		by string
		us float64
	}{{"tensor", t.Tensor}, {"issue", t.Issue}, {"L1", t.L1}, {"L2", t.L2}, {"DRAM", t.DRAM}, {"latency", t.Latency}, {"launch", t.Gap}} {
		if x.us > most {
			most, t.By = x.us, x.by
		}
	}
}
