// Package cost estimates how long a launch takes on a target. Kernel families choose schedules and internal/profile predicts
// with its one function and its constants: a family describes a candidate as Work, a profile what it counted.
//
// # The model
//
// Terms inside a multiprocessor are those of the busiest one, which executes ⌈blocks / SMs⌉ of the blocks, in
// waves = ⌈blocks / (SMs · resident blocks)⌉:
//
//	tensor   multiply-adds / rate of the type; fewer than BusyWarps resident warps use the pipes in proportion
//	issue    the fullest of: Schedulers warp instructions a clock (a warp alone issues AloneIssue a clock), and the lanes a
//	         clock of the pipes: f32 128, integer and conversion 64, f64 and special functions 16 or as the target says,
//	         loads, stores and shuffles 32
//	L1       one wavefront of shared memory a clock, bank conflicts included, or four sectors of plain loads
//	L2       bytes / rate of L2, and, not pipelined, L2BytesClock a clock for the busiest multiprocessor
//	DRAM     bytes / rate of DRAM
//	latency  waves · (start of a block + round trips to memory + atomics + barriers)
//	gap      cost of a graph node
//
// A trip takes longer the more of its data comes from DRAM. The time is
//
//	gap + max(tensor, issue, L1, L2, DRAM, latency) + a share of their sum that is exposed + tail
//
// A block that computes on one chunk while it fetches the next ones is pipelined: inside the multiprocessor its launch takes
//
//	waves · (start + first chunk's trip + chunks · (max(tensor, issue, L1, trip / chunks under way) + turn))
//
// instead of tensor, issue, L1 and latency; every wave counts as a full one.
//
// Lanes a clock are those of the CUDA C++ Programming Guide, "Arithmetic instructions"; rates are the target's; the other
// constants are round figures of published microbenchmarks. The model ranks schedules and names what bounds a launch; it
// is not a promise of microseconds until a device has confirmed it.
package cost

import "github.com/spark-compile/spark-compile/internal/target"

// Constants describe a machine to the model, beyond its target's row. They are plain data, so that figures measured on one
// machine can replace them.
type Constants struct {
	MemoryLatencyUS float64 `json:"memory_latency_us"` // of a load that DRAM serves
	CacheLatencyUS  float64 `json:"cache_latency_us"`  // of one that L2 serves
	AtomicUS        float64 `json:"atomic_us"`         // of an atomic and the barrier behind it
	TicketUS        float64 `json:"ticket_us"`         // the same with a fence, and the wait of the last block
	StartUS         float64 `json:"start_us"`          // of a block: parameters, coordinates
	TurnUS          float64 `json:"turn_us"`           // barrier, addresses and branch of a chunk
	FinishUS        float64 `json:"finish_us"`         // for each output element that a thread finishes
	BarrierClocks   float64 `json:"barrier_clocks"`
	Schedulers      float64 `json:"schedulers"`      // of a multiprocessor: warp instructions a clock
	AloneIssue      float64 `json:"alone_issue"`     // warp instructions a clock of a warp by itself
	BusyWarps       float64 `json:"busy_warps"`      // warps that fill the tensor pipes
	LoadsAtATime    float64 `json:"loads_at_a_time"` // plain loads of a thread in flight together
	Wavefront       float64 `json:"wavefront_bytes"` // bytes that shared memory yields in a clock
	L2BytesClock    float64 `json:"l2_bytes_clock"`  // bytes that a multiprocessor reads from L2 in a clock
	Hidden          float64 `json:"hidden"`          // share of a pipelined trip that other blocks hide
	Exposed         float64 `json:"exposed"`         // share of a term that the longest one does not hide
	ExposedAlone    float64 `json:"exposed_alone"`   // the same for a block alone on its multiprocessor, whose phases do not overlap
	Idle            float64 `json:"idle"`            // factor where multiprocessors have no block: unmodelled effects favour more blocks
	Unfilled        float64 `json:"unfilled"`        // how much longer a contraction may take to fill every multiprocessor
}

// published serves every target: targets differ by less than the published figures do among themselves.
var published = Constants{MemoryLatencyUS: 0.7, CacheLatencyUS: 0.25, AtomicUS: 0.7, TicketUS: 1.2, StartUS: 0.3, TurnUS: 0.03, FinishUS: 0.004,
	BarrierClocks: 30, Schedulers: 4, AloneIssue: 0.4, BusyWarps: 8, LoadsAtATime: 8, Wavefront: 128, L2BytesClock: 64, Hidden: 0.5,
	Exposed: 0.1, ExposedAlone: 0.2, Idle: 1.2, Unfilled: 1.3}

// Machine is a target with the model's constants.
type Machine struct {
	*target.Target
	Constants
}

// Of returns the machine that a target's row describes.
func Of(t *target.Target) *Machine { return &Machine{t, published} }

// Products are multiply-adds of an element type, named as in the IR.
type Products struct {
	Type string
	MACs float64
}

// Work is what a launch does. Amounts are for the whole launch unless they say of a block.
type Work struct {
	Blocks, Warps int // Warps of a block
	Resident      int // blocks that a multiprocessor can hold

	Products                             []Products // by mma, or by fma of f32
	Issued                               float64    // warp instructions
	Float, Integer, Special, Memory, F64 float64    // of them, by pipe
	Wavefronts                           float64    // clocks of shared memory and of the first-level cache
	L2Bytes, DRAMBytes                   float64

	Trips    float64 // of a block: round trips to memory, one after the other
	Far      float64 // share of the trips' data that DRAM serves
	Atomics  float64 // of a block
	Barriers float64 // of a block

	Chunks int // of a pipelined block; 0: not pipelined
	Ahead  int // chunks in flight while one is computed on

	TailUS  float64 // after everything else
	Counted bool    // executed and counted instruction by instruction, not planned: no term is assumed to be exposed
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
}

// Estimate is the time of a launch. Products are rounded before they are added, so that the compiler makes the same choices
// whatever machine it runs on.
func (m *Machine) Estimate(w *Work) Time {
	clk, sms := m.ClockGHz*1e3, float64(m.SMs) // clocks a µs
	mine := (w.Blocks + m.SMs - 1) / m.SMs
	resident := max(1, min(mine, w.Resident))
	there := float64(resident * w.Warps)
	t := Time{Gap: m.LaunchUS, Waves: (mine + resident - 1) / resident}
	if w.Chunks > 0 {
		mine = t.Waves * resident
	}
	waves, share := float64(t.Waves), float64(mine)/float64(w.Blocks) // of the busiest multiprocessor

	for _, p := range w.Products {
		t.Tensor += 2 * p.MACs / (m.rate(p.Type) * 1e6 / sms)
	}
	t.Tensor *= share / min(1, there/m.BusyWarps)
	issue := w.Issued / min(m.Schedulers, there*m.AloneIssue) * share / clk
	pipe := max(32*w.Float/m.floatLanes(), w.Integer/2, 2*w.Special, w.Memory, 32*w.F64/float64(m.F64PerClock)) * share / clk
	t.Issue = max(issue, pipe)
	t.L1 = w.Wavefronts * share / clk
	t.L2 = w.L2Bytes / (m.L2GBps * 1e3)
	t.DRAM = w.DRAMBytes / (m.MemoryGBps * 1e3)

	trip := m.CacheLatencyUS + float64((m.MemoryLatencyUS-m.CacheLatencyUS)*w.Far)
	if w.Chunks > 0 {
		chunks := float64(w.Chunks)
		flow := max(t.Tensor, t.Issue, t.L1, waves*chunks*trip/float64(w.Ahead)*m.Hidden)
		t.Latency = waves * (m.StartUS + trip + float64(chunks*m.TurnUS))
		inside := flow + t.Latency
		t.US = max(inside, t.L2, t.DRAM) + float64((inside+t.L2+t.DRAM)*m.Exposed)
	} else {
		t.L2 = max(t.L2, w.L2Bytes*share/m.L2BytesClock/clk)
		t.Latency = waves * (m.StartUS + float64(trip*w.Trips) + float64(m.AtomicUS*w.Atomics) + w.Barriers*m.BarrierClocks/clk)
		t.US = max(t.Tensor, t.Issue, t.L1, t.L2, t.DRAM, t.Latency)
		exposed := m.Exposed
		switch {
		case w.Counted:
			exposed = 0
		case resident == 1:
			exposed = m.ExposedAlone
		}
		t.US += float64((t.Tensor + issue + pipe + t.L1 + t.L2 + t.DRAM + t.Latency) * exposed)
	}
	t.US += t.Gap + w.TailUS
	t.bound()
	return t
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

// Layer is the time in microseconds of a layer whose schedule is not known yet: reading weights (bytes) from DRAM, reading
// activations (bytes) from L2 or arithmetic on a type of operands, whichever takes longest.
func (m *Machine) Layer(weights, activations float64, operands string, macs float64) float64 {
	return max(weights/m.MemoryGBps/1e3, activations/m.L2GBps/1e3, 2*macs/max(m.TFLOPS[operands], 1)/1e6)
}
