// Package profile counts what each launch of a compiled model does, exactly, while the CPU device executes the same
// instructions as the GPU, and predicts from the counts its time on a named device.
//
//	profile.go   counts of a launch, by class, and their sums
//	model.go     from counts to the cost model's work
//	table.go     the table for a terminal; html.go: for a browser
//
// # What is counted for the model of internal/cost
//
// L2 serves the sectors of 32 bytes that a direct-mapped first-level cache of 64 KB a block would miss; asynchronous copies of
// 16 bytes and stores bypass that cache. DRAM serves unique sectors of memory that does not stay in L2 between runs: constants
// if all constants of the model together exceed 3/4 of L2, other memory if it exceeds that by itself. Plain loads are in
// flight eight at a time, asynchronous copies as many groups at a time as cp.async.wait_group leaves pending, plus one; a wait
// that leaves none pending is a round trip. Cold times read every constant from DRAM: the cost of a run after another model's.
package profile
