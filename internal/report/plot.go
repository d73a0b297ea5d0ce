package report

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"slices"
	"strings"
)

// PlotColours are Okabe and Ito's palette, which colour-blind readers can distinguish.
var PlotColours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#f0e442"}

// Size of a plot and its margins, in pixels.
const PlotWidth, Height, MarginLeft, MarginBottom, MarginTop = 720, 260, 60, 40, 24

// Canvas collects the elements of one plot.
type Canvas struct {
	strings.Builder
	Height int
}

// Text writes s at a place; anchor is start, middle or end.
func (c *Canvas) Text(x, y float64, anchor, s string) {
	fmt.Fprintf(c, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, x, y, anchor, html.EscapeString(s))
}

// Line draws a line of a class of the page's style sheet: axis or grid.
func (c *Canvas) Line(x1, y1, x2, y2 float64, class string) {
	fmt.Fprintf(c, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" class="%s"/>`, x1, y1, x2, y2, class)
}

// SVG is the plot as an element of a page.
func (c *Canvas) SVG(title string) template.HTML {
	return template.HTML(fmt.Sprintf(`<svg viewBox="0 0 %d %d" role="img" aria-label="%s">%s</svg>`, PlotWidth, c.Height, html.EscapeString(title), c.String()))
}

// Scale maps values to pixels.
type Scale struct {
	Low, High, From, To float64
	Log                 bool
}

// NewScale spans the values between two pixels.
func NewScale(values []float64, from, to float64, log bool) Scale {
	s := Scale{Low: slices.Min(values), High: slices.Max(values), From: from, To: to, Log: log}
	if s.Low == s.High {
		if log || s.Low != 0 {
			s.Low, s.High = s.Low*.9, s.High*1.1
		} else {
			s.High = 1
		}
	}
	return s
}

// At is the pixel of a value.
func (s Scale) At(v float64) float64 {
	low, high := s.Low, s.High
	if s.Log {
		low, high, v = math.Log(low), math.Log(high), math.Log(v)
	}
	return s.From + (v-low)/(high-low)*(s.To-s.From)
}

// Value is that of a share of the axis, from 0 to 1.
func (s Scale) Value(share float64) float64 {
	if s.Log {
		return math.Exp(math.Log(s.Low) + share*(math.Log(s.High)-math.Log(s.Low)))
	}
	return s.Low + share*(s.High-s.Low)
}

const ticks = 5

// Axes draws both axes with their labels.
func (c *Canvas) Axes(x, y Scale, xLabel, yLabel string, xf, yf func(float64) string) {
	bottom := float64(c.Height - MarginBottom)
	c.Line(MarginLeft, bottom, PlotWidth-10, bottom, "axis")
	c.Line(MarginLeft, MarginTop, MarginLeft, bottom, "axis")
	for i := range ticks {
		share := float64(i) / (ticks - 1)
		v := x.Value(share)
		c.Line(x.At(v), bottom, x.At(v), bottom+4, "axis")
		c.Text(x.At(v), bottom+16, "middle", xf(v))
		v = y.Value(share)
		c.Line(MarginLeft, y.At(v), PlotWidth-10, y.At(v), "grid")
		c.Text(MarginLeft-6, y.At(v)+4, "end", yf(v))
	}
	c.Text((MarginLeft+PlotWidth)/2, float64(c.Height)-6, "middle", xLabel)
	c.Text(MarginLeft, 12, "middle", yLabel)
}

// Legend names the series.
func (c *Canvas) Legend(names []string) {
	x := float64(PlotWidth - 14)
	for i := len(names) - 1; i >= 0; i-- {
		c.Text(x, 12, "end", names[i])
		x -= 7*float64(len([]rune(names[i]))) + 14
		fmt.Fprintf(c, `<rect x="%.1f" y="4" width="9" height="9" fill="%s"/>`, x, PlotColours[i%len(PlotColours)])
		x -= 12
	}
}

// Series is a curve: y over x, with a name.
type Series struct {
	Name string
	X, Y []float64
}

// least is what a logarithmic axis shows of zero and below.
const least = 1e-12

// Curves draws series over a common axis. Numbers that are not finite leave gaps. With log the vertical axis is logarithmic.
func Curves(title, xLabel, yLabel string, series []Series, log bool, number func(float64) string) template.HTML {
	height := func(y float64) float64 {
		if log {
			return max(y, least)
		}
		return y
	}
	finite := func(y float64) bool { return !math.IsNaN(y) && !math.IsInf(y, 0) }
	var names []string
	var xs, ys []float64
	for _, s := range series {
		names = append(names, s.Name)
		xs = append(xs, s.X...)
		for _, y := range s.Y {
			if finite(y) {
				ys = append(ys, height(y))
			}
		}
	}
	c := &Canvas{Height: Height}
	if len(ys) == 0 {
		c.Text(PlotWidth/2, Height/2, "middle", "nothing yet")
		return c.SVG(title)
	}
	x, y := NewScale(xs, MarginLeft, PlotWidth-20, false), NewScale(ys, Height-MarginBottom, MarginTop, log)
	c.Axes(x, y, xLabel, yLabel, number, number)
	for i, s := range series {
		colour := PlotColours[i%len(PlotColours)]
		var points []string
		flush := func() {
			switch len(points) {
			case 0:
			case 1:
				at := strings.Split(points[0], ",")
				fmt.Fprintf(c, `<circle cx="%s" cy="%s" r="3" fill="%s"/>`, at[0], at[1], colour)
			default:
				fmt.Fprintf(c, `<polyline points="%s" fill="none" stroke="%s" stroke-width="1.5"/>`, strings.Join(points, " "), colour)
			}
			points = nil
		}
		for k := range s.X {
			if !finite(s.Y[k]) {
				flush()
				continue
			}
			points = append(points, fmt.Sprintf("%.1f,%.1f", x.At(s.X[k]), y.At(height(s.Y[k]))))
		}
		flush()
	}
	c.Legend(names)
	return c.SVG(title)
}
