package bench

import (
	"cmp"
	"fmt"
	"html"
	"html/template"
	"math"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/internal/report"
)

// Plots are inline SVG, with nothing to load or execute. The colours are Okabe and Ito's palette, which colour-blind readers
// can tell apart.
var colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#f0e442"}

const plotWidth, plotHeight, marginLeft, marginBottom, marginTop = 720, 260, 60, 40, 24

// canvas collects the elements of one plot.
type canvas struct {
	strings.Builder
	height int
}

func (c *canvas) text(x, y float64, anchor, s string) {
	fmt.Fprintf(c, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, x, y, anchor, html.EscapeString(s))
}

func (c *canvas) line(x1, y1, x2, y2 float64, class string) {
	fmt.Fprintf(c, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" class="%s"/>`, x1, y1, x2, y2, class)
}

func (c *canvas) svg(title string) template.HTML {
	return template.HTML(fmt.Sprintf(`<svg viewBox="0 0 %d %d" role="img" aria-label="%s">%s</svg>`, plotWidth, c.height, html.EscapeString(title), c.String()))
}

// scale maps values to pixels.
type scale struct {
	low, high, from, to float64
	log                 bool
}

func newScale(values []float64, from, to float64, log bool) scale {
	s := scale{low: slices.Min(values), high: slices.Max(values), from: from, to: to, log: log}
	if s.low == s.high {
		if log || s.low != 0 {
			s.low, s.high = s.low*.9, s.high*1.1
		} else {
			s.high = 1
		}
	}
	return s
}

func (s scale) at(v float64) float64 {
	low, high := s.low, s.high
	if s.log {
		low, high, v = math.Log(low), math.Log(high), math.Log(v)
	}
	return s.from + (v-low)/(high-low)*(s.to-s.from)
}

func (s scale) value(share float64) float64 {
	if s.log {
		return math.Exp(math.Log(s.low) + share*(math.Log(s.high)-math.Log(s.low)))
	}
	return s.low + share*(s.high-s.low)
}

const ticks = 5

// axes draws both axes with their labels.
func (c *canvas) axes(x, y scale, xLabel, yLabel string, xf, yf func(float64) string) {
	bottom := float64(c.height - marginBottom)
	c.line(marginLeft, bottom, plotWidth-10, bottom, "axis")
	c.line(marginLeft, marginTop, marginLeft, bottom, "axis")
	for i := range ticks {
		share := float64(i) / (ticks - 1)
		v := x.value(share)
		c.line(x.at(v), bottom, x.at(v), bottom+4, "axis")
		c.text(x.at(v), bottom+16, "middle", xf(v))
		v = y.value(share)
		c.line(marginLeft, y.at(v), plotWidth-10, y.at(v), "grid")
		c.text(marginLeft-6, y.at(v)+4, "end", yf(v))
	}
	c.text((marginLeft+plotWidth)/2, float64(c.height)-6, "middle", xLabel)
	c.text(marginLeft, 12, "middle", yLabel)
}

// legend names the series.
func (c *canvas) legend(names []string) {
	x := float64(plotWidth - 14)
	for i := len(names) - 1; i >= 0; i-- {
		c.text(x, 12, "end", names[i])
		x -= 7*float64(len([]rune(names[i]))) + 14
		fmt.Fprintf(c, `<rect x="%.1f" y="4" width="9" height="9" fill="%s"/>`, x, colours[i%len(colours)])
		x -= 12
	}
}

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
	x := newScale(ends, marginLeft, plotWidth-20, false)
	counts := make([][]float64, len(samples))
	label := "ms per run"
	for i, s := range samples {
		counts[i] = histogram(s, x.low, x.high)
		shares = append(shares, slices.Max(counts[i]))
		slower := 0
		for _, v := range s {
			if v > x.high {
				slower++
			}
		}
		if slower > 0 {
			label += fmt.Sprintf("; last bar of %s: %d slower, up to %s ms", names[i], slower, number(slices.Max(s)))
		}
	}
	c := &canvas{height: plotHeight}
	y := newScale([]float64{0, slices.Max(shares)}, plotHeight-marginBottom, marginTop, false)
	c.axes(x, y, label, "% of runs", number, func(v float64) string { return fmt.Sprintf("%.0f", v) })
	for i := range counts {
		var points strings.Builder
		fmt.Fprintf(&points, "%.1f,%.1f", x.from, y.at(0))
		for b, v := range counts[i] {
			left, right := x.at(x.low+(x.high-x.low)*float64(b)/bins), x.at(x.low+(x.high-x.low)*float64(b+1)/bins)
			fmt.Fprintf(&points, " %.1f,%.1f %.1f,%.1f", left, y.at(v), right, y.at(v))
		}
		fmt.Fprintf(&points, " %.1f,%.1f", x.to, y.at(0))
		colour := colours[i%len(colours)]
		fmt.Fprintf(c, `<polygon points="%s" fill="%s" fill-opacity="0.25" stroke="%s"/>`, points.String(), colour, colour)
	}
	c.legend(names)
	return c.svg("distribution of latency")
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
	c := &canvas{height: row*len(sorted) + 10}
	const left = 300.
	x := newScale([]float64{0, max(sorted[0].MS, 1e-9)}, left, plotWidth-150, false)
	for i, l := range sorted {
		y := float64(i*row + 4)
		label := fmt.Sprintf("#%d %s", l.Index, l.Kernel)
		if r := []rune(label); len(r) > 44 {
			label = string(r[:43]) + "…"
		}
		c.text(left-6, y+11, "end", label)
		fmt.Fprintf(c, `<rect x="%.1f" y="%.1f" width="%.1f" height="%d" fill="%s"><title>%s</title></rect>`, left, y, max(x.at(l.MS)-left, .5), row-4, colours[0],
			html.EscapeString(fmt.Sprintf("launch %d: %s", l.Index, l.Note)))
		c.text(x.at(l.MS)+6, y+11, "start", fmt.Sprintf("%s ms, %.1f %%", number(l.MS), 100*l.MS/max(total, 1e-12)))
	}
	return c.svg("time by launch")
}

// scatter plots error against time, one point per precision.
func scatter(names []string, ms, l2 []float64) template.HTML {
	c := &canvas{height: plotHeight}
	floor := slices.Clone(l2)
	for i := range floor {
		floor[i] = min(max(floor[i], 1e-9), 1e3) // a logarithmic axis has neither zero nor infinity
	}
	x, y := newScale(append([]float64{0}, ms...), marginLeft, plotWidth-120, false), newScale(floor, plotHeight-marginBottom-10, marginTop+10, true)
	c.axes(x, y, "ms per run (p50)", "relative L2", number, func(v float64) string { return fmt.Sprintf("%.1g", v) })
	for i := range ms {
		fmt.Fprintf(c, `<circle cx="%.1f" cy="%.1f" r="5" fill="%s"/>`, x.at(ms[i]), y.at(floor[i]), colours[i%len(colours)])
		c.text(x.at(ms[i])+9, y.at(floor[i])+4, "start", names[i])
	}
	return c.svg("error against time")
}
