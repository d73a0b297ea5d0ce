//go:build amd64 || arm64

package blas

// tile adds to sums, of rows and columns, the products of k elements, 1 or more, of the first rows of a and of
// tileCols columns of b that lie side by side, in ascending order.
//
//go:noescape
func tile(sums *[tileRows * tileCols]float64, a *[tileRows]*float64, rows int, b *float64, k int)

// tile32 sets rows of sums, of productCols columns, to the products of k elements, 1 or more, of the first rows of a
// and of b's columns, which lie side by side, in ascending order, each sum from 0 on, plus the columns' biases. With
// registers of 512 bits all eight rows are written, and of each the columns whose bits are set; else rows in fours,
// and all columns.
//
//go:noescape
func tile32(to, a *[tileRows]*float32, rows int, b *float32, k int, bias *float32, columns uint32)

// tile32at is tile32 of rows whose element i lies at an offset of its own.
//
//go:noescape
func tile32at(to, a *[tileRows]*float32, rows int, b *float32, k int, bias *float32, columns uint32, offsets *int32)

// axpy adds a times n numbers, a positive multiple of 16.
//
//go:noescape
func axpy(a float32, x, y *float32, n int)

// positive is Positive of n numbers, a positive multiple of 16.
//
//go:noescape
func positive(to, from *float32, n int)

// magnitude is the greatest of n numbers' bits without sign, of a positive multiple of 16.
//
//go:noescape
func magnitude(x *float32, n int) uint32

// requantise is Requantise of n numbers, a positive multiple of 8.
//
//go:noescape
func requantise(r *Rounding, x *float32, n int)

// requantise2 is Requantise2 of n numbers, a positive multiple of 8.
//
//go:noescape
func requantise2(r *Rounding, x *float32, n int)

// squares is Squares of n numbers, a positive multiple of 8, before its sums are added.
//
//go:noescape
func squares(d, s *[sumLanes]float64, x, y *float32, n int)

// columns sums eight columns over one or more rows; columnDifferences sums differences. stride is in bytes.
//
//go:noescape
func columns(sums *float64, x *float32, rows, stride int)

//go:noescape
func columnDifferences(sums *float64, x, y *float32, rows, stride int)

// windows computes the channels, a positive multiple of 8, of neighbouring output pixels, 1 or more: of the first,
// from the pixels that taps point to; of each further one, from those step elements on. Weights are [tap][channel];
// bias may be nil.
//
//go:noescape
func windows(out *float32, taps **float32, count int, weights, bias *float32, channels, pixels, step int)
