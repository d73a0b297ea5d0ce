package bench

import (
	"bytes"
	"html/template"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/internal/atomicfile"
	"github.com/spark-compile/spark-compile/internal/report"
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
	Plot      template.HTML
}

type timelinePlot struct {
	*Timeline
	Precision string
	Plot      template.HTML
}

// WriteHTML writes the report as one self-contained page: no script, font or network access.
func (r *Report) WriteHTML(path string) error {
	var table bytes.Buffer
	if err := r.Print(&table); err != nil {
		return err
	}
	var out bytes.Buffer
	err := page.Execute(&out, struct {
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
			g.Timelines = append(g.Timelines, timelinePlot{x.Timeline, x.Precision, x.Timeline.plot()})
		}
	}
	g.Distribution = distribution(names, samples)
	if len(ms) > 0 {
		g.Scatter = scatter(measured, ms, l2)
	}
}

var page = template.Must(template.New("report").Funcs(template.FuncMap{
	"ms": number, "median": median, "optional": optional, "join": strings.Join,
	"waits":  waitTitle,
	"figure": func(c report.Column, x *Result) float64 { return c.Of(&x.Summary) },
	"us":     func(ms float64) float64 { return 1e3 * ms },
	"ratio":  func(a, b float64) float64 { return a / b },
	"value":  func(x *float64) float64 { return *x },
	"mb":     func(n int) float64 { return float64(n) / 1e6 },
}).Parse(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>spark-bench: {{.Device}}</title>
<style>
body { font: 15px/1.45 system-ui, sans-serif; max-width: 1100px; margin: 2em auto; padding: 0 1em; color: #1b1f24; background: #fff }
h1 { font-size: 1.5em } h2 { font-size: 1.2em; margin-top: 2.2em; border-bottom: 1px solid #d0d7de } h3 { font-size: 1em; margin-bottom: .3em }
table { border-collapse: collapse; font-variant-numeric: tabular-nums } th, td { padding: .25em .7em; text-align: right; border-bottom: 1px solid #e4e8ec }
th:first-child, td:first-child { text-align: left } .scroll { overflow-x: auto } .slower { color: #b3261e } .faster { color: #1a7f37 }
svg { width: 100%; max-width: 860px; font-size: 11px; fill: #1b1f24 } svg .axis { stroke: #57606a } svg .grid { stroke: #eaeef2 }
pre { overflow-x: auto; background: #f6f8fa; padding: 1em; font-size: 12px } .warn { color: #b3261e; font-weight: 600 }
</style>
</head>
<body>
<h1>spark-bench on {{.Device}}</h1>
<p>{{.Machine}}{{with .Driver}}, driver {{.}}{{end}}. {{.Runs}} runs after {{.Warmup}} warm-up runs. Times are in milliseconds.{{with .SwitchesOff}} Switched off: {{join . ", "}}.{{end}}</p>
{{with .Definitions}}<dl>
<dt>{{waits $.Columns}}</dt><dd>{{index . "p50_ms"}}</dd>{{with index . "launch_to_launch"}}<dt>launch to launch</dt><dd>{{.}}</dd>
<dt>cold</dt><dd>{{index $.Definitions "cold"}}</dd><dt>host</dt><dd>{{index $.Definitions "host_ms"}}</dd>{{end}}
</dl>{{end}}
{{range .Groups}}
<h2>{{.Model}}</h2>
<div class="scroll"><table>
<tr><th>precision</th><th>launches</th>{{range $.Columns}}<th>{{or .Title "ms"}}</th>{{end}}<th>first</th><th>load</th><th>launch to launch</th><th>cold</th><th>host</th><th>arena MB</th><th>weights MB</th><th>MMAC</th></tr>
{{range .Results}}<tr><td>{{.Precision}}</td><td>{{.Launches}}</td>{{$r := .}}{{range $.Columns}}<td>{{ms (figure . $r)}}</td>{{end}}<td>{{ms .FirstMS}}</td><td>{{ms .LoadMS}}</td><td>{{median .LaunchToLaunch}}</td><td>{{median .Cold}}</td><td>{{optional .HostMS}}</td><td>{{printf "%.2f" (mb .ArenaBytes)}}</td><td>{{printf "%.2f" (mb .WeightsBytes)}}</td><td>{{.MMAC}}</td></tr>
{{end}}</table></div>
{{range .Results}}{{with .Baseline}}<p class="{{.Verdict}}">Baseline: {{.Verdict}}; p50 was {{ms .P50}} ms, ratio {{printf "%.3f" .Ratio}}, p = {{printf "%.2g" .P}}.</p>{{end}}
{{$p := .Precision}}{{with .State}}{{if .Throttle.Slowdowns}}<p class="warn">{{$p}}: throttled during the run: {{join .Throttle.Slowdowns ", "}}</p>{{end}}{{if .Capped}}<p class="warn">{{$p}}: the clock was capped, no reason reported</p>{{end}}{{end}}{{end}}
{{range .Results}}{{$p := .Precision}}{{range .Ablations}}<p>{{$p}}: {{.String}}</p>
{{end}}{{end}}<h3>Latency distribution</h3>
{{.Distribution}}
{{if .Scatter}}<h3>Precision against accuracy</h3>
{{.Scatter}}
<div class="scroll"><table><tr><th>output</th><th>precision</th><th>max abs</th><th>cosine</th><th>relative L2</th></tr>
{{range .Results}}{{$p := .Precision}}{{range .Outputs}}<tr><td>{{.Name}}</td><td>{{$p}}</td><td>{{printf "%.3g" .MaxAbs}}</td><td>{{printf "%.9f" .Cosine}}</td><td>{{printf "%.3g" .RelL2}}</td></tr>
{{end}}{{end}}</table></div>{{end}}
{{range .Timelines}}<h3>Timeline, {{.Precision}}</h3>
<p>Medians of {{.Runs}} runs, by stamps that kernels write: light while a launch waits for those in front, dark from then until its last block ends; below, what it is predicted to take. The clock advances by {{.ResolutionNS}} ns at a time; half of the times are known to {{.RefinedNS}} ns{{if lt .RefinedNS .ResolutionNS}}, by the cycle counters of the multiprocessors{{end}}. With stamps a run takes {{ms .StampedMS}} ms.</p>
{{.Plot}}
{{end}}{{range .Layers}}<h3>Time by launch, {{.Precision}} (longest first)</h3>
{{with $.Definitions}}<p>{{index . "layers"}}</p>{{end}}
{{.Plot}}
{{end}}{{range .Results}}{{if .Predicted}}<h3>Predicted and measured, {{.Precision}}</h3>
<p>The graph is predicted to take {{printf "%.1f" .Predicted.Range.Middle}} µs ({{printf "%.1f" .Predicted.Range.Low}} to {{printf "%.1f" .Predicted.Range.High}}){{with .LaunchToLaunch}}, and takes {{printf "%.1f" (us .P50)}}{{end}}; with its launch and the wait for it {{printf "%.1f" .Predicted.Waited.Middle}} µs, and it takes {{printf "%.1f" (us .P50)}}.{{with .Predicted.Rank}} Rank correlation of its launches: {{printf "%.3f" (value .)}}.{{end}}</p>
<div class="scroll"><table><tr><th>launch</th><th>µs</th><th>predicted</th><th>ratio</th><th>bound by</th><th>what</th></tr>
{{range .Layers}}{{if .PredictedUS}}<tr><td>{{.Index}} {{.Kernel}}</td><td>{{printf "%.2f" (us .MS)}}</td><td>{{printf "%.2f" (value .PredictedUS)}}</td><td>{{printf "%.2f" (ratio (us .MS) (value .PredictedUS))}}</td><td>{{.By}}</td><td>{{.Note}}</td></tr>
{{end}}{{end}}</table></div>
{{end}}{{end}}{{end}}
<h2>Text table</h2>
<pre>{{.Table}}</pre>
</body>
</html>
`))
