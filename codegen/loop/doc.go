// Package loop is the kernel family for everything that needs no tensor cores: elementwise arithmetic, data movement,
// reductions, normalisations, scans, gathers, matrix-vector products. It lowers any region, so it is also what the
// other families fall back to.
//
// The region's outputs are expressions over the output index (package lower). A schedule says which threads compute
// them:
//
//	flat    every thread computes one element or a vector of neighbours; reductions run within the thread
//	row     a warp or a block shares each row: the row is read once, coalesced; its reductions are combined by
//	        shuffles and shared memory, and what fits stays in registers for the row's elements
//	column  threads along the output share reductions over a dimension further out, combined in shared memory
//
// Fused loops are one kernel (fused.go): blocks compute in shared memory what the last loop reads of its producers.
package loop
