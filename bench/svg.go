package bench

import (
	"cmp"
	"fmt"
	"html"
	"html/template"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/internal/report"
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
	x := report.NewScale(ends, report.MarginLeft, report.PlotWidth-20, false)
	counts := make([][]float64, len(samples))
	label := "ms per run"
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
			label += fmt.Sprintf("; last bar of %s: %d slower, up to %s ms", names[i], slower, number(slices.Max(s)))
		}
	}
	c := &report.Canvas{Height: report.Height}
	y := report.NewScale([]float64{0, slices.Max(shares)}, report.Height-report.MarginBottom, report.MarginTop, false)
	c.Axes(x, y, label, "% of runs", number, func(v float64) string { return fmt.Sprintf("%.0f", v) })
	for i := range counts {
		var points strings.Builder
		fmt.Fprintf(&points, "%.1f,%.1f", x.From, y.At(0))
		for b, v := range counts[i] {
			left, right := x.At(x.Low+(x.High-x.Low)*float64(b)/bins), x.At(x.Low+(x.High-x.Low)*float64(b+1)/bins)
			fmt.Fprintf(&points, " %.1f,%.1f %.1f,%.1f", left, y.At(v), right, y.At(v))
		}
		fmt.Fprintf(&points, " %.1f,%.1f", x.To, y.At(0))
		colour := report.PlotColours[i%len(report.PlotColours)]
		fmt.Fprintf(c, `<polygon points="%s" fill="%s" fill-opacity="0.25" stroke="%s"/>`, points.String(), colour, colour)
	}
	c.Legend(names)
	return c.SVG("distribution of latency")
}

// bars draws the slowest launches, one per row.
func bars(layers []Layer) template.HTML {
	const most, row = 25, 18
	sorted := slices.Clone(layers)
	slices.SortFunc(sorted, func(a, b Layer) int { return cmp.Or(cmp.Compare(b.MS, a.MS), a.Index-b.Index) })
	var total float64
	for _, l := range layers {
		total += l.MS
	}
	sorted = sorted[:min(most, len(sorted))]
	c := &report.Canvas{Height: row*len(sorted) + 10}
	const left = 300.
	x := report.NewScale([]float64{0, max(sorted[0].MS, 1e-9)}, left, report.PlotWidth-150, false)
	for i, l := range sorted {
		y := float64(i*row + 4)
		label := fmt.Sprintf("#%d %s", l.Index, l.Kernel)
		if r := []rune(label); len(r) > 44 {
			label = string(r[:43]) + "…"
		}
		c.Text(left-6, y+11, "end", label)
		fmt.Fprintf(c, `<rect x="%.1f" y="%.1f" width="%.1f" height="%d" fill="%s"><title>%s</title></rect>`, left, y, max(x.At(max(l.MS, 0))-left, .5), row-4, report.PlotColours[0],
			html.EscapeString(fmt.Sprintf("launch %d: %s", l.Index, l.Note)))
		c.Text(x.At(max(l.MS, 0))+6, y+11, "start", fmt.Sprintf("%s ms, %.1f %%", number(l.MS), 100*l.MS/max(total, 1e-12)))
	}
	return c.SVG("time by launch")
}

// scatter plots error against time, one point per precision.
func scatter(names []string, ms, l2 []float64) template.HTML {
	c := &report.Canvas{Height: report.Height}
	floor := slices.Clone(l2)
	for i := range floor {
		floor[i] = min(max(floor[i], 1e-9), 1e3) // a logarithmic axis has neither zero nor infinity
	}
	x, y := report.NewScale(append([]float64{0}, ms...), report.MarginLeft, report.PlotWidth-120, false), report.NewScale(floor, report.Height-report.MarginBottom-10, report.MarginTop+10, true)
	c.Axes(x, y, "ms per run (p50)", "relative L2", number, func(v float64) string { return fmt.Sprintf("%.1g", v) })
	for i := range ms {
		fmt.Fprintf(c, `<circle cx="%.1f" cy="%.1f" r="5" fill="%s"/>`, x.At(ms[i]), y.At(floor[i]), report.PlotColours[i%len(report.PlotColours)])
		c.Text(x.At(ms[i])+9, y.At(floor[i])+4, "start", names[i])
	}
	return c.SVG("error against time")
}
