package calibrate

import (
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
)

// sampleSize bounds how many elements of a tensor an observer looks at.
const sampleSize = 1 << 16

// sample takes elements of the arrays at an even step, the same ones every time.
func sample(arrays []*ir.Array) []float64 {
	total := 0
	for _, a := range arrays {
		total += len(a.F)
	}
	step := max(1, total/sampleSize)
	if step > 1 { // odd, so that it does not walk along one channel
		step |= 1
	}
	out := make([]float64, 0, total/step+len(arrays))
	for _, a := range arrays {
		for i := 0; i < len(a.F); i += step {
			out = append(out, a.F[i])
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
// suggested by the greatest magnitude, by percentiles and by a search. A tensor of zeros has scale 1.
func observe(arrays []*ir.Array, f precision.Operand) Range {
	if f.Blocks {
		return observeBlocks(arrays, f)
	}
	xs := sample(arrays)
	top := 0.0
	for _, a := range arrays {
		for _, x := range a.F {
			top = max(top, math.Abs(x))
		}
	}
	if top == 0 {
		return Range{Scale: 1, Observer: "max"}
	}
	sorted := make([]float64, len(xs))
	for i, x := range xs {
		sorted[i] = math.Abs(x)
	}
	slices.Sort(sorted)
	best := Range{Error: math.Inf(1)}
	try := func(name string, reach float64) {
		if reach <= 0 {
			return
		}
		scale := float64(float32(reach / f.Max()))
		if e := roundingError(xs, scale, f); e < best.Error {
			best = Range{Scale: scale, Observer: name, Error: e, Max: top}
		}
	}
	try("max", top)
	for _, p := range []float64{.9999, .999, .99} {
		try("percentile", sorted[int(p*float64(len(sorted)-1))])
	}
	for j := 1; j <= 24; j++ {
		try("mse", top*math.Exp2(-float64(j)/4))
	}
	over := 0
	for _, x := range xs {
		if math.Abs(x) > best.Scale*f.Max() {
			over++
		}
	}
	best.Fraction = float64(over) / float64(len(xs))
	return best
}

func roundingError(xs []float64, scale float64, f precision.Operand) float64 {
	var sum, norm float64
	for _, x := range xs {
		d := f.Round(x/scale, true)*scale - x
		sum += float64(d * d)
		norm += float64(x * x)
	}
	if norm == 0 {
		return 0
	}
	return math.Sqrt(sum / norm)
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

// observeBlocks chooses the scale of all blocks: the one with which the greatest scale of a block is the greatest number of
// its format, or one above or below it if that rounds better.
func observeBlocks(arrays []*ir.Array, f precision.Operand) Range {
	best := Range{Scale: 1, Observer: "max", Error: math.Inf(1)}
	for _, a := range arrays {
		for _, x := range a.F {
			best.Max = max(best.Max, math.Abs(x))
		}
	}
	if best.Max == 0 {
		best.Error = 0
		return best
	}
	xs := sampleBlocks(arrays)
	y, scales := make([]float64, len(xs)), make([]float64, len(xs)/ir.NVFP4Block)
	for _, t := range []struct {
		observer string
		factor   float64
	}{{"max", 1}, {"mse", 2}, {"mse", 0.9}, {"mse", 0.8}, {"mse", 0.5}, {"mse", 0.25}, {"mse", 0.0625}} {
		scale := float64(float32(best.Max * t.factor / (f.Max() * blockScale.Max())))
		if scale == 0 {
			continue
		}
		ir.QuantizeBlocks(xs, scale, y, scales)
		var sum, norm float64
		over := 0
		for i, x := range xs {
			step := scales[i/ir.NVFP4Block] * scale
			d := float64(y[i]*step) - x
			sum += float64(d * d)
			norm += float64(x * x)
			if math.Abs(x) > step*f.Max() {
				over++
			}
		}
		if e := math.Sqrt(sum / max(norm, math.SmallestNonzeroFloat64)); e < best.Error {
			best = Range{Scale: scale, Observer: t.observer, Error: e, Max: best.Max, Fraction: float64(over) / float64(len(xs))}
		}
	}
	return best
}

// sampleBlocks is sample with whole blocks.
func sampleBlocks(arrays []*ir.Array) []float64 {
	total := 0
	for _, a := range arrays {
		total += len(a.F) / ir.NVFP4Block
	}
	step := max(1, total*ir.NVFP4Block/sampleSize) | 1
	var out []float64
	for _, a := range arrays {
		for b := 0; b < len(a.F)/ir.NVFP4Block; b += step {
			out = append(out, a.F[b*ir.NVFP4Block:(b+1)*ir.NVFP4Block]...)
		}
	}
	return out
}

// storedBlocks is an array after kernels have stored it in blocks and loaded it to multiply.
func storedBlocks(a *ir.Array, scale float64) *ir.Array {
	out := &ir.Array{Type: a.Type, F: make([]float64, len(a.F))}
	spread(len(a.F)/ir.NVFP4Block, func(lo, hi int) {
		scales := make([]float64, hi-lo)
		lo, hi = lo*ir.NVFP4Block, hi*ir.NVFP4Block
		ir.QuantizeBlocks(a.F[lo:hi], scale, out.F[lo:hi], scales)
		for i := lo; i < hi; i++ {
			out.F[i] *= float64(scales[(i-lo)/ir.NVFP4Block] * scale)
		}
	})
	return out
}
