// Package webpage holds what the commands' HTML pages share: their frame and style sheet, and plots as inline SVG. A page is one
// file that loads nothing, follows the reader's light or dark scheme, and fits windows from 480 to 2,560 pixels.
package webpage

import (
	_ "embed"
	"html/template"
)

// Style is the style sheet of every page.
//
//go:embed style.css
var Style string

// New is a page's template. The text defines the templates "title" and "body".
func New(text string, functions template.FuncMap) *template.Template {
	t := template.New("page").Funcs(functions)
	template.Must(t.Parse(`<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{template "title" .}}</title>
<style>
` + Style + `</style>
</head>
<body>
{{template "body" .}}
</body>
</html>
`))
	return template.Must(t.Parse(text))
}
