// Package blas multiplies matrices of float64 with the same bits on every machine: sums run in ascending order, each product is rounded
// before it is added, and a vector instruction computes several sums, never parts of one. BLAS libraries are faster, but pick the order and
// fused multiply-adds by machine.
package blas

// Rows are rows of a row-major matrix.
type Rows struct {
	F      []float64 // from the first element of the first row on
	Stride int       // elements from one row to the next
	Count  int
}

func (r Rows) row(i, k int) []float64 { return r.F[i*r.Stride:][:k:k] }

// Part is count of the rows, from row first on.
func (r Rows) Part(first, count int) Rows { return Rows{r.F[first*r.Stride:], r.Stride, count} }

const (
	tileRows = 8
	tileCols = 8
	// chunk is the number of elements of a row multiplied at a time: with tileCols rows of b and tileRows of a it fits the
	// first-level cache.
	chunk = 256
)

// Dots sets element (i, j) of c to the dot product of the first k elements of row i of a and row j of b. stride is
// the row stride of c.
func Dots(c []float64, stride int, a, b Rows, k int) {
	if !vectors || min(a.Count, b.Count) < 2 || k == 0 {
		dots(c, stride, a, b, k)
		return
	}
	var sums [tileRows * tileCols]float64
	var from [tileRows]*float64
	packed := make([]float64, min(k, chunk)*tileCols)
	for j := 0; j < b.Count; j += tileCols {
		width := min(tileCols, b.Count-j)
		for lo := 0; lo < k; lo += chunk {
			size := min(chunk, k-lo)
			pack(packed, b, j, width, lo, size)
			for i := 0; i < a.Count; i += tileRows {
				height := min(tileRows, a.Count-i)
				for r := range from { // rows that are not there repeat the last one
					from[r] = &a.F[(i+min(r, height-1))*a.Stride+lo : len(a.F)][0]
				}
				if lo == 0 {
					clear(sums[:])
				} else {
					for r := range height {
						copy(sums[r*tileCols:][:width], c[(i+r)*stride+j:])
					}
				}
				tile(&sums, &from, height, &packed[0], size)
				for r := range height {
					copy(c[(i+r)*stride+j:][:width], sums[r*tileCols:])
				}
			}
		}
	}
}

// pack transposes columns lo to lo+size of width rows of b, beginning with row j; rows that are missing from tileCols are zero.
func pack(to []float64, b Rows, j, width, lo, size int) {
	if width == tileCols {
		var rows [tileCols][]float64
		for r := range rows {
			rows[r] = b.F[(j+r)*b.Stride+lo:][:size]
		}
		r0, r1, r2, r3, r4, r5, r6, r7 := rows[0], rows[1], rows[2], rows[3], rows[4], rows[5], rows[6], rows[7]
		for i, x := range r0 {
			d := (*[tileCols]float64)(to[i*tileCols:])
			d[0], d[1], d[2], d[3], d[4], d[5], d[6], d[7] = x, r1[i], r2[i], r3[i], r4[i], r5[i], r6[i], r7[i]
		}
		return
	}
	clear(to)
	for r := range width {
		for i, x := range b.F[(j+r)*b.Stride+lo:][:size] {
			to[i*tileCols+r] = x
		}
	}
}

// dots is Dots without vector instructions.
func dots(c []float64, stride int, a, b Rows, k int) {
	j := 0
	for ; j+4 <= b.Count; j += 4 {
		p, q, r, s := b.row(j, k), b.row(j+1, k), b.row(j+2, k), b.row(j+3, k)
		i := 0
		for ; i+2 <= a.Count; i += 2 {
			sums := dots2x4(a.row(i, k), a.row(i+1, k), p, q, r, s)
			copy(c[i*stride+j:][:4], sums[:4])
			copy(c[(i+1)*stride+j:][:4], sums[4:])
		}
		for ; i < a.Count; i++ {
			sums := dots2x4(a.row(i, k), a.row(i, k), p, q, r, s)
			copy(c[i*stride+j:][:4], sums[:4])
		}
	}
	for ; j < b.Count; j++ {
		for i := range a.Count {
			c[i*stride+j] = Dot(a.row(i, k), b.row(j, k))
		}
	}
}

// Dot is Σ a[i]·b[i], added in ascending order. b is at least as long as a.
func Dot(a, b []float64) float64 {
	b = b[:len(a)]
	sum := 0.0
	for i, x := range a {
		sum += float64(x * b[i])
	}
	return sum
}

// dots2x4 is the products of two rows with four; the eight sums stay in registers. All rows are as long as the first.
func dots2x4(a0, a1, b0, b1, b2, b3 []float64) (s [8]float64) {
	n := len(a0)
	a1, b0, b1, b2, b3 = a1[:n], b0[:n], b1[:n], b2[:n], b3[:n]
	var s0, s1, s2, s3, s4, s5, s6, s7 float64
	for k, x := range a0 {
		y := a1[k]
		p, q, r, t := b0[k], b1[k], b2[k], b3[k]
		s0 += float64(x * p)
		s1 += float64(x * q)
		s2 += float64(x * r)
		s3 += float64(x * t)
		s4 += float64(y * p)
		s5 += float64(y * q)
		s6 += float64(y * r)
		s7 += float64(y * t)
	}
	return [8]float64{s0, s1, s2, s3, s4, s5, s6, s7}
}
