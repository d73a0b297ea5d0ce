package bench

import (
	"bytes"
	_ "embed"
	"html/template"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/internal/atomicfile"
	"github.com/spark-compile/spark-compile/internal/report"
	"github.com/spark-compile/spark-compile/internal/webpage"
)

// group holds the results of one model in all precisions.
type group struct {
	Model        string
	Results      []*Result
	Distribution template.HTML
	Scatter      template.HTML
	Layers       []layerPlot
	Timelines    []timelinePlot
}

type layerPlot struct {
	Precision string
	Bars      []bar
}

type timelinePlot struct {
	*Timeline
	Precision string
}

// WriteHTML writes the report as one self-contained page: no script, font or network access.
func (r *Report) WriteHTML(path string) error {
	var table bytes.Buffer
	if err := r.Print(&table); err != nil {
		return err
	}
	var out bytes.Buffer
	err := reportTemplate.Execute(&out, struct {
		*Report
		Table   string
		Groups  []group
		Columns []report.Column
	}{r, table.String(), r.groups(), r.columns()})
	if err != nil {
		return err
	}
	return atomicfile.Write(path, out.Bytes())
}

// groups groups the results by model, in the order in which they were measured.
func (r *Report) groups() []group {
	var out []group
	for i := range r.Results {
		x := &r.Results[i]
		j := slices.IndexFunc(out, func(g group) bool { return g.Model == x.Model })
		if j < 0 {
			j, out = len(out), append(out, group{Model: x.Model})
		}
		out[j].Results = append(out[j].Results, x)
	}
	for i := range out {
		out[i].plot()
	}
	return out
}

func (g *group) plot() {
	var names, measured []string
	var samples [][]float64
	var ms, l2 []float64
	for _, x := range g.Results {
		names = append(names, x.Precision)
		samples = append(samples, x.Samples)
		if len(x.Outputs) > 0 {
			_, e := worst(x.Outputs)
			measured, ms, l2 = append(measured, x.Precision), append(ms, x.P50), append(l2, e)
		}
		if len(x.Layers) > 0 {
			g.Layers = append(g.Layers, layerPlot{x.Precision, bars(x.Layers)})
		}
		if x.Timeline != nil {
			g.Timelines = append(g.Timelines, timelinePlot{x.Timeline, x.Precision})
		}
	}
	g.Distribution = distribution(names, samples)
	if len(ms) > 0 {
		g.Scatter = scatter(measured, ms, l2)
	}
}

//go:embed report.html
var reportPage string

var reportTemplate = webpage.New(reportPage, template.FuncMap{
	"ms": number, "median": median, "optional": optional, "join": strings.Join,
	"waits":  waitTitle,
	"figure": func(c report.Column, x *Result) float64 { return c.Of(&x.Summary) },
	"us":     func(ms float64) float64 { return 1e3 * ms },
	"ratio":  func(a, b float64) float64 { return a / b },
	"value":  func(x *float64) float64 { return *x },
	"mb":     func(n int) float64 { return float64(n) / 1e6 },
})
