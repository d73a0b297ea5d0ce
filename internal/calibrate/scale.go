package calibrate

import (
	"math"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
)

// sampleSize bounds how many elements of a tensor an observer looks at.
const sampleSize = 1 << 16

// sample takes pieces of neighbours of the arrays at an even step, the same ones every time.
func sample(arrays []*ir.Array, neighbours int) []float64 {
	total := 0
	for _, a := range arrays {
		total += len(a.F) / neighbours
	}
	step := max(1, total*neighbours/sampleSize) | 1 // odd, so that it does not walk along one channel
	var out []float64
	for _, a := range arrays {
		for i := 0; i < len(a.F)/neighbours; i += step {
			out = append(out, a.F[i*neighbours:(i+1)*neighbours]...)
		}
	}
	return out
}

// Range is the scale that was chosen for a tensor, and how well it fits.
type Range struct {
	Scale    float64 `json:"scale"`
	Error    float64 `json:"error"`    // relative L2 of rounding a sample with it
	Max      float64 `json:"max"`      // greatest magnitude seen
	Headroom float64 `json:"headroom"` // greatest magnitude that does not saturate, relative to Max
}

// headroom is how much greater than anything seen an activation may be before it saturates. In a floating-point format room
// above costs nothing until numbers sink below the least normal one (e4m3 has 14 octaves of normal numbers, and so have the
// scales of blocks), while saturation on inputs unlike those seen costs whole features (docs/measurements.md).
const headroom = 4

// positions is the number of scales tried in an octave: where in it the numbers lie decides how they round.
const positions = 8

// observe chooses the scale with which an operand's format represents a tensor at the least squared error, among those of
// one octave that leave headroom. A tensor of zeros has scale 1. Of blocks it is the scale of all: their scales have the
// headroom.
func observe(arrays []*ir.Array, f precision.Operand) Range {
	top := 0.0
	for _, a := range arrays {
		for _, x := range a.F {
			top = max(top, math.Abs(x))
		}
	}
	neighbours, greatest := 1, f.Max()
	if f.Blocks {
		neighbours, greatest = ir.BlockSize, f.Max()*blockScale.Max()
	}
	best := Range{Scale: 1, Error: math.Inf(1), Max: top}
	xs := sample(arrays, neighbours)
	for j := range positions {
		scale := float64(float32(headroom * top * (1 + float64(float64(j)/positions)) / greatest))
		if scale == 0 {
			continue
		}
		if e := roundingError(xs, f, scale); e < best.Error {
			best = Range{Scale: scale, Error: e, Max: top, Headroom: scale * greatest / top}
		}
	}
	if math.IsInf(best.Error, 1) { // of zeros, or of numbers too small for a scale
		best.Error = 0
	}
	return best
}

// roundingError is the relative L2 of rounding a sample with a scale.
func roundingError(xs []float64, f precision.Operand, scale float64) float64 {
	var sum, norm float64
	add := func(x, y, step float64) {
		d := float64(y*step) - x
		sum += float64(d * d)
		norm += float64(x * x)
	}
	if f.Blocks {
		y, scales := make([]float64, len(xs)), make([]float64, len(xs)/ir.BlockSize)
		ir.QuantizeBlocks(xs, scale, y, scales)
		for i, x := range xs {
			add(x, y[i], scales[i/ir.BlockSize]*scale)
		}
	} else {
		for _, x := range xs {
			add(x, f.Round(x/scale, true), scale)
		}
	}
	return math.Sqrt(sum / max(norm, math.SmallestNonzeroFloat64))
}

// stored is an array after a kernel has stored and loaded it: multiplied by 1/scale, rounded, multiplied by scale.
func stored(a *ir.Array, f precision.Operand, scale float64) *ir.Array {
	if f.Blocks {
		return storedBlocks(a, scale)
	}
	inverse := float64(float32(1 / scale))
	scale = float64(float32(scale))
	out := &ir.Array{Type: a.Type, F: make([]float64, len(a.F))}
	spread(len(a.F), func(lo, hi int) {
		for i := lo; i < hi; i++ {
			out.F[i] = f.Round(a.F[i]*inverse, true) * scale
		}
	})
	return out
}

// storedBlocks is an array after kernels have stored it in blocks and loaded it to multiply.
func storedBlocks(a *ir.Array, scale float64) *ir.Array {
	out := &ir.Array{Type: a.Type, F: make([]float64, len(a.F))}
	spread(len(a.F)/ir.BlockSize, func(lo, hi int) {
		scales := make([]float64, hi-lo)
		lo, hi = lo*ir.BlockSize, hi*ir.BlockSize
		ir.QuantizeBlocks(a.F[lo:hi], scale, out.F[lo:hi], scales)
		for i := lo; i < hi; i++ {
			out.F[i] *= float64(scales[(i-lo)/ir.BlockSize] * scale)
		}
	})
	return out
}
