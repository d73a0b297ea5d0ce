package bench

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/internal/report"
	"github.com/spark-compile/spark-compile/internal/webpage"
)

// bins is the number of bars of a histogram.
const bins = 60

// axisEnd is where the axis of a histogram ends for sorted samples: at the slowest, or at the 99th percentile if the slowest
// would leave the others less than half of the axis.
func axisEnd(sorted []float64) float64 {
	low, high, p99 := sorted[0], sorted[len(sorted)-1], report.Quantile(sorted, .99)
	if high-low <= 2*(p99-low) {
		return high
	}
	return p99
}

// histogram is the share of the samples in each bar in percent. What is slower than the axis is in the last one.
func histogram(samples []float64, low, high float64) []float64 {
	shares := make([]float64, bins)
	for _, v := range samples {
		bin := min(int((v-low)/(high-low)*bins), bins-1)
		if v > high {
			bin = bins - 1
		}
		shares[max(bin, 0)] += 100 / float64(len(samples))
	}
	return shares
}

// distribution draws a histogram of latency for each series, of every sample.
func distribution(names []string, samples [][]float64) template.HTML {
	var ends, shares []float64
	for _, s := range samples {
		sorted := slices.Sorted(slices.Values(s))
		ends = append(ends, sorted[0], axisEnd(sorted))
	}
	x := webpage.NewScale(ends, 0, 1, false)
	counts := make([][]float64, len(samples))
	var notes []string
	for i, s := range samples {
		counts[i] = histogram(s, x.Low, x.High)
		shares = append(shares, slices.Max(counts[i]))
		slower := 0
		for _, v := range s {
			if v > x.High {
				slower++
			}
		}
		if slower > 0 {
			notes = append(notes, fmt.Sprintf("last bar of %s: %d slower, up to %s ms", names[i], slower, number(slices.Max(s))))
		}
	}
	p := webpage.Axes(webpage.Axis{Label: "ms per run", Values: ends}, webpage.Axis{Label: "% of runs", Values: append(shares, 0)})
	for i := range counts {
		var points strings.Builder
		fmt.Fprintf(&points, "%.1f,%.1f", p.X.From, p.Y.At(0))
		for b, v := range counts[i] {
			left, right := x.Low+(x.High-x.Low)*float64(b)/bins, x.Low+(x.High-x.Low)*float64(b+1)/bins
			fmt.Fprintf(&points, " %.1f,%.1f %.1f,%.1f", p.X.At(left), p.Y.At(v), p.X.At(right), p.Y.At(v))
		}
		fmt.Fprintf(&points, " %.1f,%.1f", p.X.To, p.Y.At(0))
		fmt.Fprintf(p, `<polygon class="%s" points="%s" fill="currentColor" fill-opacity="0.25" stroke="currentColor"/>`,
			webpage.Class(i), points.String())
	}
	return p.Figure("Latency distribution", names, notes...)
}

// bar is a row of a table of launches: its bar spans shares of the column in percent.
type bar struct {
	Launch, Title, Time, Share string
	Width                      float64
}

// mostBars is how many launches the page shows.
const mostBars = 25

// bars are the slowest launches.
func bars(layers []Layer) (out []bar) {
	sorted := slices.Clone(layers)
	slices.SortFunc(sorted, func(a, b Layer) int { return cmp.Or(cmp.Compare(b.MS, a.MS), a.Index-b.Index) })
	var total float64
	for _, l := range layers {
		total += l.MS
	}
	for _, l := range sorted[:min(mostBars, len(sorted))] {
		out = append(out, bar{Launch: fmt.Sprintf("#%d %s", l.Index, l.Kernel), Title: l.Note, Time: number(l.MS),
			Share: fmt.Sprintf("%.1f", 100*l.MS/max(total, 1e-12)), Width: 100 * max(l.MS, 0) / max(sorted[0].MS, 1e-9)})
	}
	return out
}

// scatter plots error against time, one point per precision.
func scatter(names []string, ms, l2 []float64) template.HTML {
	floor := slices.Clone(l2)
	for i := range floor {
		floor[i] = min(max(floor[i], 1e-9), 1e3) // a logarithmic axis has neither zero nor infinity
	}
	p := webpage.Axes(webpage.Axis{Label: "ms per run (p50)", Values: append([]float64{0}, ms...)},
		webpage.Axis{Label: "relative L2", Values: append([]float64{slices.Min(floor) / 2, 2 * slices.Max(floor)}, floor...), Log: true})
	for i := range ms {
		fmt.Fprintf(p, `<circle class="%s" cx="%.1f" cy="%.1f" r="5" fill="currentColor"/>`, webpage.Class(i), p.X.At(ms[i]), p.Y.At(floor[i]))
	}
	return p.Figure("Accuracy against time", names)
}
