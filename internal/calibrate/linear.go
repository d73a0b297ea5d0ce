package calibrate

import (
	"cmp"
	"math"
	"slices"
)

// square is a symmetric or triangular matrix, row by row.
type square struct {
	n int
	a []float64
}

func newSquare(n int) *square             { return &square{n, make([]float64, n*n)} }
func (s *square) row(i int) []float64     { return s.a[i*s.n : (i+1)*s.n] }
func (s *square) at(i, j int) float64     { return s.a[i*s.n+j] }
func (s *square) set(i, j int, x float64) { s.a[i*s.n+j] = x }

// dot is Σ x·y in four interleaved sums.
func dot(x, y []float64) float64 {
	var a, b, c, d float64
	y = y[:len(x)]
	i := 0
	for ; i+4 <= len(x); i += 4 {
		a += float64(x[i] * y[i])
		b += float64(x[i+1] * y[i+1])
		c += float64(x[i+2] * y[i+2])
		d += float64(x[i+3] * y[i+3])
	}
	for ; i < len(x); i++ {
		a += float64(x[i] * y[i])
	}
	return a + b + (c + d)
}

// axpy is y += a·x.
func axpy(a float64, x, y []float64) {
	y = y[:len(x)]
	for i, v := range x {
		y[i] += float64(a * v)
	}
}

// permuted is the matrix with rows and columns in another order.
func (s *square) permuted(order []int) *square {
	out := newSquare(s.n)
	for i, p := range order {
		row, from := out.row(i), s.row(p)
		for j, q := range order {
			row[j] = from[q]
		}
	}
	return out
}

// descending is the order of the diagonal, greatest first.
func (s *square) descending() []int {
	order := make([]int, s.n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(s.at(b, b), s.at(a, a)) })
	return order
}

// damp adds a fraction of the mean diagonal to the diagonal.
func (s *square) damp(fraction float64) *square {
	mean := 0.0
	for i := range s.n {
		mean += s.at(i, i)
	}
	mean /= float64(s.n)
	if mean == 0 {
		mean = 1
	}
	out := &square{s.n, slices.Clone(s.a)}
	for i := range s.n {
		out.set(i, i, out.at(i, i)+float64(fraction*mean))
	}
	return out
}

// factor returns T, lower triangular, with Tᵀ·T the matrix, which must be positive definite: |T·e|² is eᵀ·H·e, and row j
// of T·e has no part of what follows element j.
func (s *square) factor() *square {
	// Cholesky of the matrix with rows and columns reversed, reversed back.
	n := s.n
	l := newSquare(n)
	for i := range n {
		li := l.row(i)
		for j := 0; j <= i; j++ {
			x := s.at(n-1-i, n-1-j) - dot(li[:j], l.row(j)[:j])
			if i == j {
				li[j] = math.Sqrt(max(x, 1e-300))
			} else {
				li[j] = x / l.at(j, j)
			}
		}
	}
	t := newSquare(n)
	for i := range n {
		for j := 0; j <= i; j++ { // H = R·Rᵀ with R[a][b] = l[n-1-a][n-1-b], and T = Rᵀ
			t.set(n-1-j, n-1-i, l.at(i, j))
		}
	}
	return t
}

// solve returns x with Tᵀ·T·x = b, for T of factor. It destroys b.
func (t *square) solve(b []float64) []float64 {
	n := t.n
	// Tᵀ·y = b: the last unknown first.
	for j := n - 1; j >= 0; j-- {
		row := t.row(j)
		b[j] /= row[j]
		axpy(-b[j], row[:j], b[:j])
	}
	for j := range n {
		row := t.row(j)
		b[j] = (b[j] - dot(row[:j], b[:j])) / row[j]
	}
	return b
}
