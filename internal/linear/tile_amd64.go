package linear

import "golang.org/x/sys/cpu"

// vectors reports whether tile may be called, and wide whether registers of 512 bits are there.
var (
	vectors = cpu.X86.HasAVX2
	wide    = cpu.X86.HasAVX512F
)

// tile adds to sums, of rows and columns, the products of k elements, 1 or more, of the first rows of a and of tileCols columns of b
// that lie side by side, in ascending order.
//
//go:noescape
func tile(sums *[tileRows * tileCols]float64, a *[tileRows]*float64, rows int, b *float64, k int)

// tile32 is tile in f32, with productCols columns.
//
//go:noescape
func tile32(sums *[tileRows * productCols]float32, a *[tileRows]*float32, rows int, b *float32, k int)

// axpy adds a times n numbers, a positive multiple of 16.
//
//go:noescape
func axpy(a float32, x, y *float32, n int)

// magnitude is the greatest of n numbers' bits without sign, of a positive multiple of 16.
//
//go:noescape
func magnitude(x *float32, n int) uint32

// requantise is Requantise of n numbers, a positive multiple of 8.
//
//go:noescape
func requantise(r *Rounding, x *float32, n int)
