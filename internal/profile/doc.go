// Package profile counts what each launch of a compiled model does, exactly, while the CPU device executes the same
// instructions as the GPU, and predicts from the counts its time on a named device.
//
//	profile.go   counts of a launch, by class, and their sums
//	model.go     from counts to the cost model's work
//	cache.go     which part of it DRAM serves
//	turn.go      programs that run in turn, which share L2
//	table.go     the table for a terminal; html.go: for a browser
//	timeline.go  programs that stamp when their launches ran, and runs read from them
//	refine.go    times finer than a coarse shared clock, by the multiprocessors' cycle counters
//
// # What is counted for the model of internal/cost
//
// L2 serves the sectors of 32 bytes that a direct-mapped first-level cache of 64 KB a block would miss;
// asynchronous copies of 16 bytes and stores bypass that cache; stores and atomics are writes. A byte that is used
// again after no more was touched than L2 keeps (3/4 of it, a constant of the cost model) is still there; after
// 5/3 of that it is not, and between the two a part of it is, in a run after others of the same program. What is
// evicted after it was written is written to DRAM. Ranges of predictions repeat this with the least and the most
// that L2 may keep. Inputs are in DRAM when a run begins, since the host writes them. Of inputs of which a launch
// declares to read more than it does, such as camera frames, only what it did read counts. Cold times have no
// constants in L2 when the run begins: the cost of a run after another model's. Plain loads are in flight eight at
// a time, asynchronous copies as many groups at a time as cp.async.wait_group leaves pending, plus one; a wait
// that leaves none pending is a round trip. A dependent launch fetches constants early into the shared memory of
// blocks that fit next to those of the preceding launch, and no more.
package profile
