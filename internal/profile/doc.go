// Package profile says what each launch of a compiled model costs: exact counts, taken while the CPU device executes the
// very instructions that the GPU gets, and from them a predicted time on a named device.
//
//	profile.go   counts of a launch, by class, and their sums
//	model.go     the predicted time; occupancy
//	table.go     the table for a terminal; html.go: for a browser
//
// # The model
//
// A launch takes
//
//	gap + max(tensor, issue, L1, L2, DRAM, latency)
//
// and is bound by the largest term, or by the gap where that is larger than all of them. Terms inside a multiprocessor
// are those of the busiest one, which executes ⌈blocks / SMs⌉ of the blocks:
//
//	tensor   MACs of mma / rate of the type; fewer than 8 resident warps use the pipes in proportion
//	issue    the fullest of: 4 warp instructions a clock (a warp alone issues 0.4 a clock), and the lanes a clock of
//	         the pipes: f32 128, integer and conversion 64, f64 and special functions 16 or as the target says,
//	         loads, stores and shuffles 32
//	L1       one wavefront of shared memory a clock, bank conflicts included, or four sectors of plain loads
//	L2       sectors of 32 bytes that a first-level cache of 64 KB a block (direct-mapped) does not serve; asynchronous
//	         copies of 16 bytes and stores go past it / rate of L2, and 64 bytes a clock for the busiest multiprocessor
//	DRAM     unique sectors / rate of DRAM, of memory that does not stay in L2 between runs: constants if all constants
//	         of the model together exceed 3/4 of L2, other memory if it does so itself
//	latency  waves · (start of a block + round trips to memory + barriers), waves = ⌈blocks / (SMs · resident blocks)⌉;
//	         plain loads travel eight at a time, asynchronous copies as many groups at a time as cp.async.wait_group
//	         leaves under way plus one; a trip takes the longer, the more of the sectors come from DRAM
//	gap      the target's cost of a graph node
//
// Cold times take every constant from DRAM: what a run costs after another model's. Rates are the target's (internal/target); tf32 runs at half the rate of 16-bit types. Lanes a clock are those of the CUDA C++ Programming Guide, "Arithmetic instructions".
// Latencies are round figures of published microbenchmarks. The model ranks kernels and names what bounds them; it is
// not a promise of microseconds until a device has confirmed it.
package profile
