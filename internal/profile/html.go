package profile

import (
	"html/template"
	"io"
)

var page = template.Must(template.New("profile").Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{{.P.Model}} {{.P.Precision}} on {{.P.Device}}</title>
<style>
body { font: 14px/1.4 system-ui, sans-serif; margin: 2em; color: #222 }
table { border-collapse: collapse; margin: 1em 0 }
th, td { padding: .15em .6em; text-align: right; white-space: nowrap; border-bottom: 1px solid #eee }
th { background: #fafafa; position: sticky; top: 0 }
.l { text-align: left } .bar { display: inline-block; height: .8em; background: #4a7ebb } .sub { color: #777 }
</style></head><body>
<h1>{{.P.Model}} <span class="sub">{{.P.Precision}} for {{.P.Target}}, counted on the CPU device, predicted for {{.P.Device}}</span></h1>
<p>{{.Time}} in {{.P.Total.Launches}} launches of {{len .P.Kernels}} kernels.</p>
<table><tr><th class="l">bound by</th><th>launches</th><th>time</th><th></th></tr>
{{range .Bounds}}<tr><td class="l">{{.Name}}</td><td>{{.Count}}</td><td>{{.Value}}</td><td class="l"><span class="bar" style="width:{{.Width}}px"></span></td></tr>
{{end}}</table>
<table><tr><th class="l">instructions</th><th>warps</th><th>share</th><th></th></tr>
{{range .Mix}}<tr><td class="l">{{.Name}}</td><td>{{.Count}}</td><td>{{.Value}}</td><td class="l"><span class="bar" style="width:{{.Width}}px"></span></td></tr>
{{end}}</table>
<table><tr>{{range $i, $h := .Header}}<th{{if eq $i 1 3 9 20}} class="l"{{end}}>{{$h}}</th>{{end}}</tr>
{{range .Rows}}<tr>{{$w := .Width}}{{range $i, $c := .Cells}}{{if eq $i 1}}<td class="l"><span class="bar" style="width:{{$w}}px"></span></td>{{else}}<td{{if eq $i 3 9 19}} class="l"{{end}}>{{$c}}</td>{{end}}{{end}}</tr>
{{end}}</table>
</body></html>
`))

type htmlRow struct {
	Cells []string
	Width int
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
		data.Rows = append(data.Rows, htmlRow{p.row(k), int(120 * k.Share / p.Kernels[0].Share)})
	}
	return page.Execute(w, data)
}
