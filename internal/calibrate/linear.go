package calibrate

import (
	"cmp"
	"slices"
	"sync"

	"github.com/spark-compile/spark-compile/internal/blas"
	"github.com/spark-compile/spark-compile/internal/parallel"
	"github.com/spark-compile/spark-compile/ir"
)

// matrix is dense and row-major, of f32: what is computed here has far more noise from being sampled. Products multiply rows
// by rows, so that both factors are read in memory order.
type matrix struct {
	rows, cols int
	a          []float32
	memory     *ir.Tensor // of a room; nil: a's own
}

func newMatrix(rows, cols int) *matrix {
	return &matrix{rows: rows, cols: cols, a: make([]float32, rows*cols)}
}
func (m *matrix) row(i int) []float32     { return m.a[i*m.cols : (i+1)*m.cols : (i+1)*m.cols] }
func (m *matrix) at(i, j int) float64     { return float64(m.a[i*m.cols+j]) }
func (m *matrix) set(i, j int, x float64) { m.a[i*m.cols+j] = float32(x) }

// chunk is the number of elements of a row multiplied at a time: the fewer, the less the sums lose.
const chunk = 384

// panels are packed rows whose memory is used again.
var panels = sync.Pool{New: func() any { return &blas.Panels{} }}

// addDots adds factor·(row i of a)·(row j of b), over columns lo to hi of both, to element (i, at+j) of c, for the rows
// a0 ≤ i < a1 of a and b0 ≤ j < b1 of b, with c's rows numbered as a's.
func addDots(c *matrix, at int, factor float64, a *matrix, a0, a1 int, b *matrix, b0, b1, lo, hi int) {
	if a0 == a1 || b0 == b1 {
		return
	}
	sums, packed := scratch((a1-a0)*(b1-b0)), panels.Get().(*blas.Panels)
	defer free(sums)
	defer panels.Put(packed)
	for ; lo < hi; lo += chunk {
		left, right := blas.Rows32{F: a.a[a0*a.cols+lo:], Stride: a.cols, Count: a1 - a0}, blas.Rows32{F: b.a[b0*b.cols+lo:], Stride: b.cols, Count: b1 - b0}
		packed.Pack(right, min(chunk, hi-lo))
		blas.Products(sums, b1-b0, left, packed)
		for i := a0; i < a1; i++ {
			blas.Axpy(float32(factor), sums[(i-a0)*(b1-b0):][:b1-b0], c.row(i)[at:])
		}
	}
}

// dot is Σ x·y in four interleaved sums.
func dot(x, y []float32) float64 {
	var a, b, c, d float32
	y = y[:len(x)]
	i := 0
	for ; i+4 <= len(x); i += 4 {
		a += float32(x[i] * y[i])
		b += float32(x[i+1] * y[i+1])
		c += float32(x[i+2] * y[i+2])
		d += float32(x[i+3] * y[i+3])
	}
	for ; i < len(x); i++ {
		a += float32(x[i] * y[i])
	}
	return float64(a) + float64(b) + (float64(c) + float64(d))
}

// wide is a row in float64.
func wide(row []float32) []float64 {
	out := make([]float64, len(row))
	for i, x := range row {
		out[i] = float64(x)
	}
	return out
}

// permuted is a square matrix with rows and columns in another order.
func (m *matrix) permuted(order []int, pool *BufferPool) *matrix {
	out := pool.matrix(m.rows, m.cols)
	parallel.For(m.rows, func(i int) {
		row, from := out.row(i), m.row(order[i])
		for j, q := range order {
			row[j] = from[q]
		}
	})
	return out
}

// descending is the order of the diagonal, greatest first.
func (m *matrix) descending() []int {
	order := make([]int, m.rows)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(m.at(b, b), m.at(a, a)) })
	return order
}

// meanDiagonal is the mean of the diagonal; 1 for a matrix of zeros.
func (m *matrix) meanDiagonal() float64 {
	mean := 0.0
	for i := range m.rows {
		mean += m.at(i, i)
	}
	if mean == 0 {
		return 1
	}
	return mean / float64(m.rows)
}

// mirror copies the lower triangle to the upper one.
func (m *matrix) mirror() {
	for i := range m.rows {
		for j := range i {
			m.set(j, i, m.at(i, j))
		}
	}
}
