package teacher

import (
	"maps"
	"slices"
)

// Spreads are, of samples' values by name, the mean squares by which an element differs from its mean over the samples (Welford 1962).
// Relative to it a mean squared error is the part of the variation that is not explained. One sample has spreads of 0.
func Spreads(values []map[string][]float32) map[string]float64 {
	out := map[string]float64{}
	if len(values) == 0 {
		return out
	}
	for _, name := range slices.Sorted(maps.Keys(values[0])) {
		mean := make([]float64, len(values[0][name]))
		sum := 0.0
		for k, v := range values {
			for i, x := range v[name] {
				d := float64(x) - mean[i]
				mean[i] += d / float64(k+1)
				sum += float64(d * (float64(x) - mean[i]))
			}
		}
		out[name] = sum / float64(len(values)*max(len(mean), 1))
	}
	return out
}
