package calibrate

import (
	"context"
	"math"
	"runtime"
	"slices"
)

// factored is a symmetric positive definite matrix H as two triangles.
type factored struct {
	t        *matrix // lower, Tᵀ·T = H: |T·e|² is eᵀ·H·e, and row j of T·e has no part of what follows element j
	reversed *matrix // lower, the Cholesky factor of H with rows and columns reversed: what T is made of
}

// panel is the number of columns factored or solved at a time; earlier columns contribute through products of blocks.
const panel = 32

// batch bounds the number of rows that one core takes at a time: the more, the less often the other factor is packed.
const batch = 128

// batches calls f for ranges of rows that cover n, on all cores, until a context ends.
func batches(ctx context.Context, n int, f func(lo, hi int)) {
	size := min(batch, max(32, n/runtime.GOMAXPROCS(0)))
	until(ctx, (n+size-1)/size, func(i int) { f(i*size, min((i+1)*size, n)) })
}

// factor decomposes h, unless the context ends.
func (h *matrix) factor(ctx context.Context) *factored {
	n := h.rows
	l := newMatrix(n, n)
	batches(ctx, n, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			row, from := l.row(i), h.row(n-1-i)
			for j := range i + 1 {
				row[j] = from[n-1-j]
			}
		}
	})
	cholesky(ctx, l)
	t := newMatrix(n, n)
	batches(ctx, n, func(lo, hi int) { // H = R·Rᵀ with R[a][b] = l[n-1-a][n-1-b], and T = Rᵀ
		for i := lo; i < hi; i++ {
			for j := range i + 1 {
				t.set(i, j, l.at(n-1-j, n-1-i))
			}
		}
	})
	return &factored{t, l}
}

// cholesky replaces the lower triangle of a matrix with its Cholesky factor.
func cholesky(ctx context.Context, l *matrix) {
	n := l.rows
	for p := 0; p < n && ctx.Err() == nil; p += panel {
		end := min(p+panel, n)
		batches(ctx, n-p, func(lo, hi int) {
			addDots(l, p, -1, l, p+lo, p+hi, l, p, end, 0, p)
		})
		for i := p; i < end; i++ {
			row := l.row(i)
			for j := p; j < i; j++ {
				row[j] = float32((float64(row[j]) - dot(row[p:j], l.row(j)[p:j])) / l.at(j, j))
			}
			row[i] = float32(math.Sqrt(max(float64(row[i])-dot(row[p:i], row[p:i]), 1e-30)))
		}
		batches(ctx, n-end, func(lo, hi int) {
			substitute(l, l, end+lo, end+hi, p, end)
		})
		for i := p; i < end; i++ {
			clear(l.row(i)[i+1 : end]) // the products above filled the block's upper half
		}
	}
}

// substitute solves L·x = b in rows lo to hi of x, in place, for the unknowns p to end; the contribution of the earlier ones
// has already been subtracted.
func substitute(l, x *matrix, lo, hi, p, end int) {
	for i := lo; i < hi; i++ {
		row := x.row(i)
		for j := p; j < end; j++ {
			row[j] = float32((float64(row[j]) - dot(row[p:j], l.row(j)[p:j])) / l.at(j, j))
		}
	}
}

// forward solves L·x = b in rows lo to hi of x, in place.
func forward(l, x *matrix, lo, hi int) {
	for p := 0; p < l.rows; p += panel {
		end := min(p+panel, l.rows)
		addDots(x, p, -1, x, lo, hi, l, p, end, 0, p)
		substitute(l, x, lo, hi, p, end)
	}
}

// solve replaces rows lo to hi of x, each a right-hand side b, with the solutions of H·x = b.
func (f *factored) solve(x *matrix, lo, hi int) {
	for i := lo; i < hi; i++ {
		slices.Reverse(x.row(i))
	}
	forward(f.reversed, x, lo, hi)
	for i := lo; i < hi; i++ {
		slices.Reverse(x.row(i))
	}
	forward(f.t, x, lo, hi)
}
