package linear

import "golang.org/x/sys/cpu"

// vectors reports whether tile may be called, and wide whether registers of 512 bits are there.
var (
	vectors = cpu.X86.HasAVX2
	wide    = cpu.X86.HasAVX512F
)

// tile adds to sums, of rows and columns, the products of k elements of the first rows of a and of tileCols columns of b that
// lie side by side, in ascending order.
func tile(sums *[tileRows * tileCols]float64, a *[tileRows]*float64, rows int, b *float64, k int) {
	if wide {
		tile8(sums, a, b, k)
		return
	}
	for r := 0; r < rows; r += 4 {
		tile4(&sums[r*tileCols], a[r], a[r+1], a[r+2], a[r+3], b, k)
	}
}

//go:noescape
func tile4(sums, a0, a1, a2, a3, b *float64, k int)

//go:noescape
func tile8(sums *[tileRows * tileCols]float64, a *[tileRows]*float64, b *float64, k int)

// product sets sums, of rows and columns, to the products of the first rows of a with a panel.
func product(sums *[productRows * productCols]float32, a *[productRows]*float32, rows int, panel *float32, k int) {
	if wide {
		product8(sums, a, panel, k)
		return
	}
	for r := 0; r < rows; r += 4 {
		product4(&sums[r*productCols], a[r], a[r+1], a[r+2], a[r+3], panel, k)
	}
}

//go:noescape
func product4(sums, a0, a1, a2, a3, b *float32, k int)

//go:noescape
func product8(sums *[productRows * productCols]float32, a *[productRows]*float32, b *float32, k int)

// axpy adds a times n numbers, a positive multiple of 16.
//
//go:noescape
func axpy(a float32, x, y *float32, n int)
