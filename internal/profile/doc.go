// Package profile says what each launch of a compiled model costs: exact counts, taken while the CPU device executes the
// very instructions that the GPU gets, and from them a predicted time on a named device.
//
//	profile.go   counts of a launch, by class, and their sums
//	model.go     what of the counts the cost model takes
//	table.go     the table for a terminal; html.go: for a browser
//
// # What is counted for the model of internal/cost
//
// L2 gets the sectors of 32 bytes that a first-level cache of 64 KB a block (direct-mapped) does not serve; asynchronous
// copies of 16 bytes and stores go past it. DRAM gets unique sectors of memory that does not stay in L2 between runs:
// constants if all constants of the model together exceed 3/4 of L2, other memory if it does so itself. Plain loads travel
// eight at a time, asynchronous copies as many groups at a time as cp.async.wait_group leaves under way plus one. tf32 counts
// as twice as many products of 16 bits. Cold times take every constant from DRAM: what a run costs after another model's.
package profile
