package calibrate

import (
	"context"
	"math"
	"runtime"
	"slices"

	"github.com/spark-compile/spark-compile/internal/blas"
	"github.com/spark-compile/spark-compile/internal/parallel"
)

// factored is a symmetric positive definite matrix H as two triangles.
type factored struct {
	t        *matrix // lower, Tᵀ·T = H: |T·e|² is eᵀ·H·e, and row j of T·e has no part of what follows element j
	reversed *matrix // lower, the Cholesky factor of H with rows and columns reversed: what T is made of
}

// panel is the number of columns factored or solved at a time; earlier columns contribute through products of blocks.
const panel = 32

// batch bounds the number of rows that one core takes at a time: the more, the less often the other factor is packed.
const batch = 256

// batches calls f for ranges of rows that cover n, on all cores, until a context ends.
func batches(ctx context.Context, n int, f func(lo, hi int)) {
	size := min(batch, max(32, n/runtime.GOMAXPROCS(0)))
	parallel.ForContext(ctx, (n+size-1)/size, func(i int) { f(i*size, min((i+1)*size, n)) })
}

// factor decomposes h with a number added to its diagonal, unless the context ends.
func (h *matrix) factor(ctx context.Context, added float64, pool *BufferPool) *factored {
	n := h.rows
	l := pool.zeros(n, n)
	batches(ctx, n, func(lo, hi int) {
		for i := lo; i < hi; i++ {
			row, from := l.row(i), h.row(n-1-i)
			for j := range i + 1 {
				row[j] = from[n-1-j]
			}
			row[i] = float32(float64(row[i]) + added)
		}
	})
	cholesky(ctx, l)
	t := pool.zeros(n, n)
	parallel.ForContext(ctx, (n+panel-1)/panel, func(b int) { // H = R·Rᵀ with R[a][b] = l[n-1-a][n-1-b], and T = Rᵀ
		lo, hi := b*panel, min((b+1)*panel, n)
		for j := range hi {
			from := l.row(n - 1 - j)
			for i := max(lo, j); i < hi; i++ {
				t.a[i*n+j] = from[n-1-i]
			}
		}
	})
	return &factored{t, l}
}

// leave gives both triangles back.
func (f *factored) leave(pool *BufferPool) { pool.giveMatrices(f.t, f.reversed) }

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
	if lo == hi {
		return
	}
	size := end - p
	inverse, out := blas.Pack(blas.Rows32{F: l.inverse(p, end).a, Stride: size, Count: size}, size), make([]float32, (hi-lo)*size)
	blas.Products(out, size, blas.Rows32{F: x.a[lo*x.cols+p:], Stride: x.cols, Count: hi - lo}, inverse)
	for i := lo; i < hi; i++ {
		copy(x.row(i)[p:end], out[(i-lo)*size:])
	}
}

// inverse is that of the lower triangle of a block on the diagonal.
func (l *matrix) inverse(p, end int) *matrix {
	m := newMatrix(end-p, end-p)
	column := make([]float64, end-p)
	for c := range column {
		column[c] = 1 / l.at(p+c, p+c)
		for i := c + 1; i < len(column); i++ {
			sum := 0.0
			for k, x := range l.row(p + i)[p+c : p+i] {
				sum += float64(float64(x) * column[c+k])
			}
			column[i] = -sum / l.at(p+i, p+i)
		}
		for i := c; i < len(column); i++ {
			m.set(i, c, column[i])
		}
	}
	return m
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
