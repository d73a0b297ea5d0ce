package webpage

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"strings"
)

// Width of a plot and the usual height, in units of its viewBox: a plot is about as wide on a page.
const Width, Height = 480, 240

// charWidth bounds the mean width of a character of a plot's text.
const charWidth = 7.4

// mostChars is how many characters fit across a plot.
const mostChars = 64

// TextWidth bounds the width of a text in a plot.
func TextWidth(s string) float64 { return charWidth * float64(len([]rune(s))) }

// Plot collects the elements of one plot.
type Plot struct {
	strings.Builder
	Height int
	X, Y   Scale // of Axes
}

// Axis is what an axis spans, and its name with the unit.
type Axis struct {
	Label  string
	Values []float64
	Log    bool
}

// Axes begins a plot with two axes, whose ticks are round numbers.
func Axes(x, y Axis) *Plot {
	const top, bottom, right = 26., Height - 38., Width - 14.
	p := &Plot{Height: Height, Y: NewScale(y.Values, bottom, top, y.Log)}
	ticks := p.Y.Ticks()
	labels := p.Y.Labels(ticks)
	left := 20.
	for _, l := range labels {
		left = max(left, TextWidth(l)+8)
	}
	for i, v := range ticks {
		p.Line(left, p.Y.At(v), right, p.Y.At(v), "grid")
		p.tick(left-6, p.Y.At(v)+4, "end", labels[i])
	}
	p.X = NewScale(x.Values, left, right, x.Log)
	p.Line(left, bottom, right, bottom, "axis")
	p.Line(left, top, left, bottom, "axis")
	p.XTicks(bottom, bottom+4, "axis")
	p.Text((left+right)/2, Height-5, "middle", x.Label)
	p.Text(0, 12, "start", y.Label)
	return p
}

// XTicks draws the ticks of X between two heights, with labels below. A label that would touch the one before is left out.
func (p *Plot) XTicks(from, to float64, class string) {
	ticks := p.X.Ticks()
	end := math.Inf(-1)
	for i, label := range p.X.Labels(ticks) {
		at, half := p.X.At(ticks[i]), TextWidth(label)/2
		p.Line(at, from, at, to, class)
		middle := min(max(at, half), Width-half)
		if middle-half > end+4 {
			p.tick(middle, to+13, "middle", label)
			end = middle + half
		}
	}
}

// Text writes s at a place; anchor is start, middle or end. What would leave the plot moves into it, and is shortened if need be.
func (p *Plot) Text(x, y float64, anchor, s string) { p.text(x, y, anchor, "", s) }

func (p *Plot) tick(x, y float64, anchor, s string) { p.text(x, y, anchor, ` class="tick"`, s) }

func (p *Plot) text(x, y float64, anchor, class, s string) {
	s = Shorten(s, mostChars)
	before := map[string]float64{"start": 0, "middle": .5, "end": 1}[anchor] * TextWidth(s) // of the text, left of x
	x = max(min(x, Width-TextWidth(s)+before), before)
	fmt.Fprintf(p, `<text x="%.1f" y="%.1f" text-anchor="%s"%s>%s</text>`, x, y, anchor, class, html.EscapeString(s))
}

// Shorten replaces the middle of a text of more than so many characters by an ellipsis.
func Shorten(s string, most int) string {
	r := []rune(s)
	if len(r) <= most {
		return s
	}
	head := (most - 1) / 2
	return string(r[:head]) + "…" + string(r[len(r)-(most-1-head):])
}

// Line draws a line of a class of the style sheet: axis or grid.
func (p *Plot) Line(x1, y1, x2, y2 float64, class string) {
	fmt.Fprintf(p, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" class="%s"/>`, x1, y1, x2, y2, class)
}

// Class is the style sheet's class of a series, which gives its colour.
func Class(series int) string { return fmt.Sprintf("s%d", series%7) }

// SVG is the plot as an element of a page.
func (p *Plot) SVG(title string) template.HTML {
	return template.HTML(fmt.Sprintf(`<svg viewBox="0 0 %d %d" role="img" aria-label="%s">%s</svg>`, Width, p.Height,
		html.EscapeString(title), p.String()))
}

// Figure is the plot with a caption, the names of its series, and notes.
func (p *Plot) Figure(title string, series []string, notes ...string) template.HTML {
	var b strings.Builder
	fmt.Fprintf(&b, `<figure><figcaption>%s</figcaption>`, html.EscapeString(title))
	if len(series) > 0 {
		b.WriteString(`<ul class="legend">`)
		for i, name := range series {
			fmt.Fprintf(&b, `<li class="%s"><span>%s</span></li>`, Class(i), html.EscapeString(name))
		}
		b.WriteString(`</ul>`)
	}
	b.WriteString(string(p.SVG(title)))
	for _, note := range notes {
		fmt.Fprintf(&b, `<p>%s</p>`, html.EscapeString(note))
	}
	b.WriteString(`</figure>`)
	return template.HTML(b.String())
}

// Series is a curve: y over x, with a name.
type Series struct {
	Name string
	X, Y []float64
}

// least is what a logarithmic axis shows of zero and below.
const least = 1e-12

// Curves draws series over a common axis. Numbers that are not finite leave gaps. With log the vertical axis is logarithmic.
func Curves(title, xLabel, yLabel string, series []Series, log bool) template.HTML {
	height := func(y float64) float64 {
		if log {
			return max(y, least)
		}
		return y
	}
	x, y := Axis{Label: xLabel}, Axis{Label: yLabel, Log: log}
	var names []string
	for _, s := range series {
		if len(series) > 1 {
			names = append(names, s.Name)
		}
		for k, v := range s.Y {
			if finite(v) {
				x.Values, y.Values = append(x.Values, s.X[k]), append(y.Values, height(v))
			}
		}
	}
	if len(y.Values) == 0 {
		p := &Plot{Height: 40}
		p.Text(Width/2, 24, "middle", "no data")
		return p.Figure(title, names)
	}
	p := Axes(x, y)
	for i, s := range series {
		fmt.Fprintf(p, `<g class="%s">`, Class(i))
		var points []string
		flush := func() {
			switch len(points) {
			case 0:
			case 1:
				at := strings.Split(points[0], ",")
				fmt.Fprintf(p, `<circle cx="%s" cy="%s" r="3" fill="currentColor"/>`, at[0], at[1])
			default:
				fmt.Fprintf(p, `<polyline points="%s" fill="none" stroke="currentColor" stroke-width="1.5"/>`, strings.Join(points, " "))
			}
			points = nil
		}
		for k := range s.X {
			if !finite(s.Y[k]) {
				flush()
				continue
			}
			points = append(points, fmt.Sprintf("%.1f,%.1f", p.X.At(s.X[k]), p.Y.At(height(s.Y[k]))))
		}
		flush()
		p.WriteString(`</g>`)
	}
	return p.Figure(title, names)
}
