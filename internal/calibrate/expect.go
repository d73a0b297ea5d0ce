package calibrate

import (
	"math"

	"github.com/spark-compile/spark-compile/ir"
)

// On inputs of one kind log10(1 − cosine) is near enough to normally distributed, with a deviation of 0.1 to 0.5. A
// search takes the first program that its budget lets pass, which is one that was lucky on the inputs of the search,
// so others are worse than the worst of these: in 16 of 28 programs of the generator's networks, by up to 10 times.
// Beyond mean + 3 deviations is one of 28, beyond 2 and 2.5 are 7 and 4, and beyond the worst of three draws of
// perturbed inputs 12 (2026-11-22). √(1 + 1/n) lowers unseen inputs beyond the bound from 17 to 2 of 936, where
// 0.13 % are expected; it was chosen although it costs vision 2.3 % in fp8, against the rule written before, of at
// most 1 %. Student's t has none beyond, and costs driver monitoring 3.3 % (2026-11-24).
const (
	sigmas      = 3.0  // standard deviations above the mean that other inputs are expected to stay below
	usualSpread = 0.4  // the standard deviation of most networks
	usualWeight = 8.0  // in inputs: the weight of usualSpread relative to the measured ones
	leastMiss   = 1e-9 // of 1 − cosine; below, inputs differ by roundings
)

// miss is log10(1 − cosine) of an input.
func miss(cosine float64) float64 { return ir.Log10(max(1-cosine, leastMiss)) }

// expect fills in what cosine a slice is expected to keep on other inputs of the kind of its sets: its worst one so far, or less by
// mean and standard deviation. Perturbed inputs are another kind, which count by the worst alone. The deviation is that within the sets,
// since a set of few inputs doesn't show its own; that of another input from the mean of n is √(1 + 1/n) times it, since the mean is of no more.
func expect(worst *Quality, sets []Quality) {
	worst.Expected = worst.Cosine
	square, weight := float64(usualSpread*usualSpread)*usualWeight, usualWeight
	for _, q := range sets {
		for _, x := range q.misses {
			square += float64((x - average(q.misses)) * (x - average(q.misses)))
		}
		weight += float64(max(len(q.misses)-1, 0))
	}
	spread := math.Sqrt(square / weight)
	for _, q := range sets {
		if n := float64(len(q.misses)); n > 0 {
			worst.Expected = min(worst.Expected, 1-ir.Pow(10, average(q.misses)+float64(float64(sigmas*spread)*math.Sqrt(1+1/n))))
		}
	}
}

func average(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}
