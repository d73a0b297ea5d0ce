package report

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Summary describes times in milliseconds.
type Summary struct {
	Mean      float64  `json:"mean_ms"`
	P50       float64  `json:"p50_ms"`
	P99       *float64 `json:"p99_ms"` // nil of fewer than tailSamples
	Min       float64  `json:"min_ms"`
	Max       float64  `json:"max_ms"`
	PerSecond float64  `json:"per_second"` // consecutive runs
}

// tailSamples are the fewest samples that have a 99th percentile: of fewer it is little but their maximum.
const tailSamples = 20

// Column is a figure of a Summary, with its title.
type Column struct {
	Title string
	Of    func(*Summary) float64
}

// Columns are the figures to print of n samples. One sample is one time, without a title.
func Columns(n int) []Column {
	if n == 1 {
		return []Column{{"", func(s *Summary) float64 { return s.P50 }}}
	}
	out := []Column{
		{"mean", func(s *Summary) float64 { return s.Mean }},
		{"p50", func(s *Summary) float64 { return s.P50 }},
	}
	if n >= tailSamples {
		out = append(out, Column{"p99", func(s *Summary) float64 { return *s.P99 }})
	}
	return append(out, Column{"max", func(s *Summary) float64 { return s.Max }})
}

// Text is the Columns of n samples in a sentence.
func (s *Summary) Text(n int) string {
	var out []string
	for _, c := range Columns(n) {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %.3f ms", c.Title, c.Of(s))))
	}
	return strings.Join(out, ", ")
}

// Summarise summarises samples in milliseconds, at least one.
func Summarise(samples []float64) Summary {
	sorted := slices.Sorted(slices.Values(samples))
	var sum float64
	for _, x := range sorted {
		sum += x
	}
	n := len(sorted)
	s := Summary{Mean: sum / float64(n), P50: Quantile(sorted, .5), Min: sorted[0], Max: sorted[n-1]}
	if n >= tailSamples {
		p99 := Quantile(sorted, .99)
		s.P99 = &p99
	}
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
