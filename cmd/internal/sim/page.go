package sim

import (
	"bytes"
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"html/template"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/spark-compile/spark-compile/bench/scenario"
	"github.com/spark-compile/spark-compile/bench/scenario/stats"
	"github.com/spark-compile/spark-compile/hal/detect"
	"github.com/spark-compile/spark-compile/internal/atomicfile"
	"github.com/spark-compile/spark-compile/internal/console"
	samples "github.com/spark-compile/spark-compile/internal/report"
	"github.com/spark-compile/spark-compile/internal/webpage"
)

//go:embed page.html
var pageText string

var pageTemplate = webpage.New(pageText, template.FuncMap{
	"number": short, "apart": func(a, b float64) [2]string { return stats.Distinct(a, b, 3) },
})

// mostCases is how many loops a page shows.
const mostCases = 6

// page is what --html writes: nothing to load, and without scripts its pictures stand still.
type page struct {
	Title, Line, Run string
	Sides            []string // names of the algorithms
	Judged           []stats.Comparison
	Failures         [][]string
	Cases            []pageCase
	NotShown         string // why there are no cases
	Distributions    []template.HTML
}

// pageCase is a loop that is shown.
type pageCase struct {
	Title, Text string
	View        template.HTML
	Plots       []template.HTML
	Data        []pageSide
}

// pageSide is what a script moves: rows of time, offset, heading, speed, station, and gap and lateral of each car.
type pageSide struct {
	Name   string      `json:"name"`
	Step   float64     `json:"step"`  // s between rows
	At     int         `json:"at"`    // row that is shown first
	X      float64     `json:"x"`     // pixel of the own car
	Y      float64     `json:"y"`     // of the centre of the lane
	Scale  float64     `json:"scale"` // pixels a metre
	Length float64     `json:"length"`
	Rows   [][]float64 `json:"rows"`
}

// short is a number as a table shows it.
func short(x float64) string { return strconv.FormatFloat(x, 'g', 3, 64) }

// quantity is a value of a metric with its unit.
func quantity(x float64, m scenario.Metric) string { return withUnit(short(x), m) }

func withUnit(number string, m scenario.Metric) string {
	return strings.TrimSpace(number + " " + m.Unit)
}

// sides says what a metric was in a loop with A and with B, by the names given.
func (x regression) sides(a, b *report, nameA, nameB string) string {
	m := a.tier().Metrics()[x.metric]
	figures := stats.Distinct(a.Metrics[x.loop][x.metric], b.Metrics[x.loop][x.metric], 3)
	return fmt.Sprintf("%s: %s with %s, %s with %s", m.Name, withUnit(figures[0], m), nameA, withUnit(figures[1], m), nameB)
}

// writePage writes the page of one run, or of two that are compared.
func writePage(ctx context.Context, path, device string, sides []*report, compared *stats.Report) error {
	p := &page{Title: "Closed loops: " + sides[0].Algorithm, Line: sides[0].summary()}
	first := sides[0]
	p.Sides = []string{first.Algorithm}
	var worst []int
	notes := map[int]string{}
	if compared != nil {
		b := sides[1]
		p.Title = fmt.Sprintf("Closed loops: %s (A) and %s (B)", first.Algorithm, b.Algorithm)
		p.Line, p.Sides = compared.Line, []string{"A: " + first.Algorithm, "B: " + b.Algorithm}
		for _, c := range compared.Metrics {
			if c.Kind != stats.Neutral {
				p.Judged = append(p.Judged, c)
			}
		}
		for _, x := range regressions(compared, mostCases) {
			worst = append(worst, x.loop)
			notes[x.loop] = x.sides(first, b, "A", "B") + "."
		}
	} else {
		worst = first.worst(mostCases)
		m, far := first.deviation()
		for _, i := range worst {
			notes[i] = fmt.Sprintf("At most %s beside the centre of the lane.", quantity(first.Metrics[i][far], m))
			if first.tier() == scenario.Controls {
				notes[i] = fmt.Sprintf("A root mean square of %s beside what is asked for.",
					quantity(first.Metrics[i][far], m))
			}
			if first.failed(i) {
				notes[i] = "It failed. " + notes[i]
			}
		}
	}
	p.Run = fmt.Sprintf("%s of %s, %s, seed %d, on %s.", console.Count(len(first.Metrics), "loop"),
		console.Count(len(first.Scenarios), "scenario"), first.Tier, first.Seed, first.Device)
	for i, side := range sides {
		label := ""
		if len(sides) > 1 {
			label = string(rune('A'+i)) + ": "
		}
		if text := side.stored(label); text != "" {
			p.Run += " " + strings.TrimSuffix(text, "\n") + "."
		}
	}
	for s := range first.Scenarios {
		row := []string{first.Scenarios[s].Name}
		for _, side := range sides {
			failed, of := 0, 0
			for i := s * side.N; i < min((s+1)*side.N, len(side.Metrics)); i++ {
				of++
				if side.failed(i) {
					failed++
				}
			}
			row = append(row, fmt.Sprintf("%d of %d", failed, of))
		}
		p.Failures = append(p.Failures, row)
	}
	for k, m := range first.tier().Metrics() {
		if !m.Failure {
			p.Distributions = append(p.Distributions, distribution(m, k, p.Sides, sides))
		}
	}
	if err := p.record(ctx, device, worst, notes, sides); err != nil {
		return err
	}
	if len(worst) == 0 {
		p.NotShown = "B is worse than A in no loop."
	}
	var b bytes.Buffer
	if err := pageTemplate.Execute(&b, p); err != nil {
		return err
	}
	return atomicfile.Write(path, b.Bytes())
}

// summary says how many loops failed.
func (r *report) summary() string {
	failed := 0
	for i := range r.Metrics {
		if r.failed(i) {
			failed++
		}
	}
	text := fmt.Sprintf("%d of %s failed", failed, console.Count(len(r.Metrics), "loop"))
	if r.Partial {
		text += fmt.Sprintf("; the run was stopped behind them, of %d", r.total())
	}
	return text
}

// deviation is the metric by which loops of the tier that did not fail are the worst, and its column.
func (r *report) deviation() (m scenario.Metric, column int) {
	name := "offset_max"
	if r.tier() == scenario.Controls {
		name = "accel_error"
	}
	column = slices.Index(r.Columns, name)
	return r.tier().Metrics()[column], column
}

// worst are the loops that failed, one of each scenario first, and then those with the largest deviation.
func (r *report) worst(most int) []int {
	_, far := r.deviation()
	type rank struct {
		loop, round int // round: how many of its scenario failed before it
		failed      bool
	}
	var order []rank
	count := map[int]int{}
	for i := range r.Metrics {
		x := rank{loop: i, failed: r.failed(i)}
		if x.failed {
			x.round = count[i/r.N]
			count[i/r.N]++
		}
		order = append(order, x)
	}
	slices.SortStableFunc(order, func(a, b rank) int {
		switch {
		case a.failed != b.failed && a.failed:
			return -1
		case a.failed != b.failed:
			return 1
		case a.failed:
			return cmp.Compare(a.round, b.round)
		}
		return cmp.Compare(r.Metrics[b.loop][far], r.Metrics[a.loop][far])
	})
	var out []int
	for _, x := range order[:min(most, len(order))] {
		out = append(out, x.loop)
	}
	return out
}

// record runs the worst loops again, and draws them.
func (p *page) record(ctx context.Context, device string, worst []int, notes map[int]string, sides []*report) error {
	if len(worst) == 0 {
		return nil
	}
	var loops []scenario.Scenario
	for _, i := range worst {
		s, err := sides[0].draw(i)
		if err != nil {
			return err
		}
		loops = append(loops, s)
	}
	d, _, err := detect.Open(ctx, detect.Options{Name: device, Called: "--device"})
	if err != nil {
		return err
	}
	defer d.Close()
	traces := make([][]scenario.Trace, len(sides))
	for k, r := range sides {
		a, err := scenario.Named(r.Algorithm)
		if err == nil {
			var what string
			if what, err = r.changed(ctx, a); what != "" {
				err = fmt.Errorf("%s has changed since", what)
			}
		}
		if err != nil { // of a report that another machine wrote
			p.NotShown = fmt.Sprintf("Loops are not shown: %v.", err)
			return nil
		}
		run, err := r.runner(ctx, d)
		if err != nil { // of a report that another machine wrote
			p.NotShown = fmt.Sprintf("Loops are not shown: %v.", err)
			return nil
		}
		result, list, err := run.Record(ctx, loops, a, r.Seed)
		if err != nil {
			return err
		}
		traces[k] = list
		for j, i := range worst {
			if !slices.Equal(result.Metrics[j], r.Metrics[i]) {
				notes[i] += fmt.Sprintf(" Here %s drives it with other bits than on %s, where it ran.", r.Algorithm,
					r.Device)
			}
		}
	}
	for j, i := range worst {
		family, k := sides[0].loop(i)
		c := pageCase{Title: fmt.Sprintf("%s, loop %d", family.Name, k), Text: notes[i]}
		var shown []scenario.Trace
		for _, list := range traces {
			shown = append(shown, list[j])
		}
		if sides[0].tier() != scenario.Controls { // which has no road
			c.View, c.Data = view(p.Sides, shown)
		}
		c.Plots = curves(p.Sides, shown)
		p.Cases = append(p.Cases, c)
	}
	return nil
}

// view draws the road from above, straightened, around the own car of each side: when it is farthest from the centre of
// the lane and still on the picture, or at the end if it never is far.
func view(names []string, traces []scenario.Trace) (template.HTML, []pageSide) {
	const scale, own, strip, row = 4.0, 120.0, 72.0, 92.0 // pixels a metre, pixel of the own car, heights
	const every = 2                                       // steps of a row
	s := traces[0].Scenario
	length, width, lane := s.Get("length"), s.Get("width"), s.Get("lane_width")
	columnOf := traces[0].Column
	offset := columnOf("offset")
	last := traces[len(traces)-1].Rows
	at := len(last) - 1
	far := 0.25
	for k, row := range last {
		if x := math.Abs(row[offset]); x > far && x < 1.5*lane {
			at, far = k, x
		}
	}
	at /= every
	var cars []int
	for car := range scenario.Cars {
		if s.Get(fmt.Sprintf("car%d_present", car)) > 0.5 {
			cars = append(cars, car)
		}
	}
	c := webpage.Plot{Height: row * len(traces)}
	var out []pageSide
	for i, trace := range traces {
		side := pageSide{Name: webpage.Shorten(names[i], 28), Step: every * scenario.Step, At: at, X: own,
			Y: float64(i)*row + row - strip/2, Scale: scale, Length: length}
		columns := []int{columnOf("time"), offset, columnOf("heading"), columnOf("speed"), columnOf("station")}
		for _, car := range cars {
			columns = append(columns, columnOf(fmt.Sprintf("gap%d", car)), columnOf(fmt.Sprintf("lateral%d", car)))
		}
		for k := 0; k < len(trace.Rows); k += every {
			var row []float64
			for _, column := range columns {
				x := trace.Rows[k][column]
				if math.IsNaN(x) || math.IsInf(x, 0) { // it diverged
					x = 0
				}
				row = append(row, math.Round(x*1e3)/1e3)
			}
			side.Rows = append(side.Rows, row)
		}
		now := side.Rows[min(at, len(side.Rows)-1)]
		place := func(x, y float64) string {
			return fmt.Sprintf("translate(%.1f %.1f)", own+float64(scale*x), side.Y-float64(scale*y))
		}
		box := func(attribute, class, transform string) {
			fmt.Fprintf(&c, `<g %s transform="%s"><rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="2"/></g>`, attribute, transform,
				class, -scale*length/2, -scale*width/2, scale*length, scale*width)
		}
		clip := fmt.Sprintf(`<svg x="0" y="%.0f" width="%d" height="%.0f" viewBox="0 %.0f %d %.0f">`, side.Y-strip/2,
			webpage.Width, strip, side.Y-strip/2, webpage.Width, strip)
		fmt.Fprintf(&c, `<g data-side="%d">%s<rect class="road" x="0" y="%.0f" width="%d" height="%.0f"/>`, i, clip,
			side.Y-strip/2, webpage.Width, strip)
		for _, y := range []float64{-1.5, -0.5, 0.5, 1.5} {
			fmt.Fprintf(&c, `<line class="edge" x1="0" x2="%d" y1="%.1f" y2="%.1f" stroke-dashoffset="%.0f"/>`,
				webpage.Width, side.Y-scale*lane*y, side.Y-scale*lane*y, scale*now[4])
		}
		for k := range cars {
			box(`data-car=""`, "other", place(now[5+2*k]+length, now[6+2*k]))
		}
		box(`data-own=""`, webpage.Class(i), place(0, now[1])+fmt.Sprintf(" rotate(%.1f)", -now[2]*180/math.Pi))
		c.WriteString(`</svg>`)
		fmt.Fprintf(&c, `<text data-text="" x="0" y="%.0f">%s</text></g>`, side.Y-strip/2-5,
			template.HTMLEscapeString(fmt.Sprintf("%s at %.1f s: %.1f m/s, %.2f m off centre", side.Name,
				now[0], now[3], now[1])))
		out = append(out, side)
	}
	return c.SVG("the road from above"), out
}

// curves are what the sides did over time.
func curves(names []string, traces []scenario.Trace) (out []template.HTML) {
	list := []string{"offset", "speed"}
	if traces[0].Column("offset") < 0 {
		list = []string{"accel", "speed"}
	}
	for car := range scenario.Cars {
		if traces[0].Scenario.Get(fmt.Sprintf("car%d_present", car)) > 0.5 {
			list = append(list, fmt.Sprintf("gap%d", car))
		}
	}
	if len(list) == 2 {
		list = append(list, "lateral", "command")
	}
	for _, name := range list {
		column := traces[0].Column(name)
		var series []webpage.Series
		for i, trace := range traces {
			s := webpage.Series{Name: names[i]}
			for _, row := range trace.Rows {
				s.X, s.Y = append(s.X, row[0]), append(s.Y, row[column])
			}
			series = append(series, s)
		}
		out = append(out, webpage.Curves(name+" over time", "time, s", traces[0].Columns[column].Unit, series, false))
	}
	return out
}

// distribution draws a metric: a row for each scenario and side.
func distribution(m scenario.Metric, k int, names []string, sides []*report) template.HTML {
	const row, top, mostLabel = 14, 4, 26
	var rows [][]float64 // sorted
	left := 0.
	var labels []string
	for s := range sides[0].Scenarios {
		labels = append(labels, webpage.Shorten(sides[0].Scenarios[s].Name, mostLabel))
		left = max(left, webpage.TextWidth(labels[s])+8)
		for _, side := range sides {
			var values []float64
			for i := s * side.N; i < min((s+1)*side.N, len(side.Metrics)); i++ {
				values = append(values, side.Metrics[i][k])
			}
			sort.Float64s(values)
			rows = append(rows, values)
		}
	}
	bottom := float64(top + len(rows)*row + len(sides[0].Scenarios)*6)
	p := webpage.Plot{Height: int(bottom) + 18, X: webpage.NewScale(slices.Concat(rows...), left, webpage.Width-14, false)}
	p.XTicks(top, bottom, "grid")
	y := float64(top)
	for i, values := range rows {
		if i%len(sides) == 0 {
			p.Text(left-8, y+float64(row*len(sides))/2+4, "end", labels[i/len(sides)])
		}
		if len(values) > 0 {
			box(&p, values, webpage.Class(i%len(sides)), y, row)
		}
		y += row
		if i%len(sides) == len(sides)-1 {
			y += 6
		}
	}
	title := m.Name
	if m.Unit != "" {
		title += ", " + m.Unit
	}
	return p.Figure(title, names)
}

// box draws how sorted values are distributed.
func box(p *webpage.Plot, values []float64, class string, y, row float64) {
	q := func(share float64) float64 { return p.X.At(samples.Quantile(values, share)) }
	middle := y + row/2
	fmt.Fprintf(p, `<g class="%s" fill="currentColor"><rect x="%.1f" y="%.1f" width="%.1f" height="1"/>`, class, q(0.05),
		middle-0.5, max(q(0.95)-q(0.05), 1))
	width := q(0.75) - q(0.25)
	fmt.Fprintf(p, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.0f"/>`, q(0.25), y+2, max(width, 2), row-4)
	fmt.Fprintf(p, `<circle cx="%.1f" cy="%.1f" r="1.6"/><circle cx="%.1f" cy="%.1f" r="1.6"/></g>`, q(0), middle, q(1), middle)
	if width < 4 {
		return
	}
	fmt.Fprintf(p, `<rect class="median" x="%.1f" y="%.1f" width="1.5" height="%.0f"/>`, q(0.5)-0.75, y+2, row-4)
}
