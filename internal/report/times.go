package report

import (
	"slices"
	"time"
)

// Summary describes times in milliseconds.
type Summary struct {
	Mean      float64 `json:"mean_ms"`
	P50       float64 `json:"p50_ms"`
	P99       float64 `json:"p99_ms"`
	Min       float64 `json:"min_ms"`
	Max       float64 `json:"max_ms"`
	PerSecond float64 `json:"per_second"` // consecutive runs
}

// Summarise summarises samples in milliseconds, at least one.
func Summarise(samples []float64) Summary {
	sorted := slices.Sorted(slices.Values(samples))
	var sum float64
	for _, x := range sorted {
		sum += x
	}
	s := Summary{Mean: sum / float64(len(sorted)), P50: Quantile(sorted, .5), P99: Quantile(sorted, .99), Min: sorted[0], Max: sorted[len(sorted)-1]}
	if s.Mean > 0 {
		s.PerSecond = 1000 / s.Mean
	}
	return s
}

// Quantile interpolates linearly between the order statistics of sorted samples (Hyndman and Fan 1996, type 7).
func Quantile(sorted []float64, q float64) float64 {
	at := float64(q * float64(len(sorted)-1))
	i := int(at)
	if i+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[i] + float64((at-float64(i))*(sorted[i+1]-sorted[i]))
}

// Milliseconds is a duration in milliseconds.
func Milliseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }
