package calibrate

import (
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/internal/minifloat"
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

// Range is what an observer made of a tensor.
type Range struct {
	Scale    float64 `json:"scale"`
	Observer string  `json:"observer"`  // max, percentile or mse
	Error    float64 `json:"error"`     // relative L2 of rounding a sample with it
	Max      float64 `json:"max"`       // greatest magnitude
	Fraction float64 `json:"saturated"` // share of the sample that saturates
}

// observe chooses the scale at which a format holds a tensor with the least squared error, among those that the greatest
// magnitude, percentiles and a search for the least error suggest. A tensor of zeros has scale 1.
func observe(arrays []*ir.Array, f *minifloat.Format) Range {
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

func roundingError(xs []float64, scale float64, f *minifloat.Format) float64 {
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

// stored is an array as a kernel stores and reads it: times 1/scale, rounded, times scale.
func stored(a *ir.Array, f *minifloat.Format, scale float64) *ir.Array {
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
