package calibrate

import "slices"

// fault changes a number that a stage of calibration computed: tests break calibration with it, to see that they notice.
// It is nil elsewhere, and no inner loop asks.
type fault func(s stage, x float64) float64

// stage is where a fault can be.
type stage int

const (
	feedbacks stage = iota // what the errors of other weights add to a weight, in feedback
	recovery               // second moments between inputs and their errors, which recovery is in proportion to
	means                  // what is added to channels
	scales                 // of activations
	blocks                 // scales of blocks of weights
)

func (f fault) of(s stage, x float64) float64 {
	if f == nil {
		return x
	}
	return f(s, x)
}

// spoil changes numbers in place.
func spoil[T float32 | float64](f fault, s stage, xs []T) {
	if f == nil {
		return
	}
	for i, x := range xs {
		xs[i] = T(f(s, float64(x)))
	}
}

// triangle is a factor whose numbers below the diagonal were spoilt.
func (f fault) triangle(t *matrix) *matrix {
	if f == nil {
		return t
	}
	t = &matrix{rows: t.rows, cols: t.cols, a: slices.Clone(t.a)}
	for i := range t.rows {
		spoil(f, feedbacks, t.row(i)[:i])
	}
	return t
}
