package profile

import (
	"io"

	"github.com/spark-compile/spark-compile/internal/webpage"
)

var pageTemplate = webpage.New(`{{define "title"}}{{.P.Model}} {{.P.Precision}} on {{.P.Device}}{{end}}
{{define "bar"}}<td class="track"><div><i class="s0" style="width:{{.}}%"></i></div></td>{{end}}
{{define "body"}}
<h1>{{.P.Model}} <small>{{.P.Precision}} for {{.P.Target}}, counted on the CPU device, predicted for {{.P.Device}}</small></h1>
<p>{{.Time}} in {{.P.Total.Launches}} launches of {{len .P.Kernels}} kernels.</p>
<div class="plots">
<div class="scroll"><table class="bars"><tr><th>bound by</th><th>launches</th><th>time</th><th></th></tr>
{{range .Bounds}}<tr><td>{{.Name}}</td><td>{{.Count}}</td><td>{{.Value}}</td>{{template "bar" .Percent}}</tr>
{{end}}</table></div>
<div class="scroll"><table class="bars"><tr><th>instructions</th><th>warps</th><th>share</th><th></th></tr>
{{range .Mix}}<tr><td>{{.Name}}</td><td>{{.Count}}</td><td>{{.Value}}</td>{{template "bar" .Percent}}</tr>
{{end}}</table></div>
</div>
<div class="scroll"><table><tr>{{range $i, $h := .Header}}<th{{if eq $i 1 3 9 20}} class="l"{{end}}>{{$h}}</th>{{end}}</tr>
{{range .Rows}}<tr>{{$w := .Percent}}{{range $i, $c := .Cells}}{{if eq $i 1}}{{template "bar" $w}}{{else}}<td{{if eq $i 3 9 20}} class="l"{{end}}>{{$c}}</td>{{end}}{{end}}</tr>
{{end}}</table></div>
{{end}}`, nil)

type htmlRow struct {
	Cells   []string
	Percent float64 // of the column that the bar spans
}

// WriteHTML writes the profile as one page without scripts.
func (p *Profile) WriteHTML(w io.Writer) error {
	data := struct {
		P           *Profile
		Time        string
		Bounds, Mix []line
		Header      []string
		Rows        []htmlRow
	}{P: p, Time: trim(p.Total.US) + " µs", Header: header, Bounds: p.bounds(), Mix: p.mix()}
	for i := range p.Kernels {
		k := &p.Kernels[i]
		data.Rows = append(data.Rows, htmlRow{p.row(k), 100 * k.Share / p.Kernels[0].Share})
	}
	return pageTemplate.Execute(w, data)
}
