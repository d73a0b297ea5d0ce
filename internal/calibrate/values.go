package calibrate

import (
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/internal/blas"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// floats are the elements of a dense tensor of f32: the tensor's own memory.
func floats(t *ir.Tensor) []float32 { return runtime.View[float32](t.Data) }

// asFloats is a tensor of any type as f32: itself, if it is that already.
func asFloats(t *ir.Tensor) *ir.Tensor {
	if t.DType == ir.Float32 {
		return t
	}
	return ir.FromFloats(ir.Type{DType: ir.Float32, Shape: t.Shape}, t.Floats())
}

// infinite are the bits of the infinite f32; those of NaNs are above.
const infinite = 0xff << 23

// finite reports the first element that is not a finite number.
func finite(t *ir.Tensor) (float64, bool) {
	if !t.DType.IsFloat() {
		return 0, true
	}
	if t.DType == ir.Float32 {
		xs := floats(t)
		if blas.Magnitude(xs) < infinite {
			return 0, true
		}
		at := slices.IndexFunc(xs, func(x float32) bool { return math.Float32bits(x)&^(1<<31) >= infinite })
		return float64(xs[at]), false
	}
	for _, x := range t.Floats() {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return x, false
		}
	}
	return 0, true
}
