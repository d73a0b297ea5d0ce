package calibrate

import (
	"math"
	"slices"

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

// Range is the scale that an observer chose for a tensor, and how well it fits.
type Range struct {
	Scale    float64 `json:"scale"`
	Observer string  `json:"observer"`  // that suggested it: max, percentile or mse
	Error    float64 `json:"error"`     // relative L2 of rounding a sample with it
	Max      float64 `json:"max"`       // greatest magnitude
	Fraction float64 `json:"saturated"` // fraction of the sample that saturates
}

// observe chooses the scale with which an operand's format represents a tensor at the least squared error, among those
// suggested by the greatest magnitude, by percentiles and by a search. A tensor of zeros has scale 1. Of blocks it is the
// scale of all: one with which the greatest scale of a block is the greatest number of its format, or near it.
func observe(arrays []*ir.Array, f precision.Operand) Range {
	top := 0.0
	for _, a := range arrays {
		for _, x := range a.F {
			top = max(top, math.Abs(x))
		}
	}
	if top == 0 {
		return Range{Scale: 1, Observer: "max"}
	}
	neighbours, greatest := 1, f.Max()
	if f.Blocks {
		neighbours, greatest = ir.BlockSize, f.Max()*blockScale.Max()
	}
	xs := sample(arrays, neighbours)
	best := Range{Scale: 1, Observer: "max", Error: math.Inf(1), Max: top}
	try := func(observer string, reach float64) {
		scale := float64(float32(reach / greatest))
		if scale == 0 {
			return
		}
		if e, saturated := roundingError(xs, f, scale); e < best.Error {
			best = Range{Scale: scale, Observer: observer, Error: e, Max: top, Fraction: saturated}
		}
	}
	try("max", top)
	if f.Blocks {
		for _, factor := range []float64{2, 0.9, 0.8, 0.5, 0.25, 0.0625} {
			try("mse", top*factor)
		}
		return best
	}
	sorted := make([]float64, len(xs))
	for i, x := range xs {
		sorted[i] = math.Abs(x)
	}
	slices.Sort(sorted)
	for _, p := range []float64{.9999, .999, .99} {
		try("percentile", sorted[int(p*float64(len(sorted)-1))])
	}
	for j := 1; j <= 24; j++ {
		try("mse", top*math.Exp2(-float64(j)/4))
	}
	return best
}

// roundingError is the relative L2 of rounding a sample with a scale, and the fraction of it that saturates.
func roundingError(xs []float64, f precision.Operand, scale float64) (relL2, saturated float64) {
	var sum, norm float64
	over := 0
	add := func(x, y, step float64) {
		d := float64(y*step) - x
		sum += float64(d * d)
		norm += float64(x * x)
		if math.Abs(x) > step*f.Max() {
			over++
		}
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
	return math.Sqrt(sum / max(norm, math.SmallestNonzeroFloat64)), float64(over) / float64(len(xs))
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
