package backendtest

import (
	"fmt"
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// Tolerance is how far a value may be from the expected one: |got-want| ≤ Abs + Rel·|want|.
type Tolerance struct{ Rel, Abs float64 }

// For is the tolerance of an element type. Published outputs of f16 and bf16 were computed in these types, rounding at
// every step, and so are several units in the last place off themselves. f8 and f4 are results of casts, which are exact, as
// are integers.
func For(d ir.DType) Tolerance {
	switch d {
	case ir.Float32, ir.Float64:
		return Tolerance{1e-3, 1e-5}
	case ir.Float16:
		return Tolerance{5e-3, 1e-3}
	case ir.BFloat16:
		return Tolerance{2e-2, 4e-3}
	}
	return Tolerance{}
}

// Compare compares an output with what was expected; the error says where they differ most.
func Compare(got, want *ir.Tensor, tol Tolerance) error {
	if got.DType != want.DType || !slices.Equal(got.Shape, want.Shape) {
		return fmt.Errorf("%v, want %v", got.Type, want.Type)
	}
	bad, worst, at := 0, -1.0, 0
	for i := range want.Numel() {
		if off := excess(got, want, i, tol); off > 0 {
			bad++
			if off > worst {
				worst, at = off, i
			}
		}
	}
	if bad == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d elements differ, element %d of %v: %v, want %v", bad, want.Numel(), at, want.Type, got.FloatAt(at), want.FloatAt(at))
}

// excess is how far element i lies beyond the tolerance; 0 if it does not.
func excess(got, want *ir.Tensor, i int, tol Tolerance) float64 {
	if !want.DType.IsFloat() {
		if got.IntAt(i) == want.IntAt(i) {
			return 0
		}
		return max(1, math.Abs(got.FloatAt(i)-want.FloatAt(i)))
	}
	g, w := got.FloatAt(i), want.FloatAt(i)
	switch {
	case math.IsNaN(g) && math.IsNaN(w), g == w:
		return 0
	case math.IsNaN(g) || math.IsNaN(w) || math.IsInf(g, 0) || math.IsInf(w, 0):
		return math.Inf(1)
	}
	return max(0, math.Abs(g-w)-tol.Abs-float64(tol.Rel*math.Abs(w)))
}
