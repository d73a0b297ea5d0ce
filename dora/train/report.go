package train

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"maps"
	"path/filepath"
	"slices"

	"github.com/spark-compile/spark-compile/internal/atomicfile"
	"github.com/spark-compile/spark-compile/internal/webpage"
)

//go:embed report.html
var page string

var pageTemplate = webpage.New(page, template.FuncMap{"number": number})

// view is what the page shows.
type view struct {
	Model, Teacher, Data string
	Layers, Params       int
	Update, Updates      int
	Base, Best           *Evaluation
	BestAt               int
	Verdict              string // none: nothing was validated
	Worse                bool   // than the base
	Rows                 []row
	Settings             [][2]string
	Curves               []template.HTML
	Pictures             []picture
}

// row is a term of the loss on the samples that are kept from training.
type row struct {
	Name       string
	Base, Best float64
}

// picture is a frame with what the models see in it.
type picture struct {
	Caption string
	PNG     template.URL
}

func number(x float64) string { return fmt.Sprintf("%.4g", x) }

// Verdict says in a sentence what training gained on validation samples, or that it made the model worse.
func Verdict(base, best *Evaluation, update int) string {
	if best.Loss > base.Loss {
		return fmt.Sprintf("validation loss rose from %.4g without the adapter to %.4g at best, after update %d; the base model stays the best: "+
			"take a smaller --lr, more data, or another --loss", base.Loss, best.Loss, update)
	}
	return fmt.Sprintf("validation loss %.4g without the adapter, %.4g at best, after update %d", base.Loss, best.Loss, update)
}

// report writes the page.
func (r *run) report() error {
	v := view{Model: filepath.Base(r.opt.Model), Data: r.opt.Data, Layers: len(r.adapter.Layers), Params: r.adapter.Params(), Update: r.pos.Update,
		Updates: r.each * r.opt.Epochs, Base: r.pos.Base, Best: r.pos.Best, BestAt: r.pos.BestAt, Curves: curves(r.records), Pictures: r.pictures}
	if r.opt.Teacher != "" {
		v.Teacher = filepath.Base(r.opt.Teacher)
	}
	if v.Base != nil && v.Best != nil {
		v.Verdict, v.Worse = Verdict(v.Base, v.Best, v.BestAt), v.Best.Loss > v.Base.Loss
		for _, name := range slices.Sorted(maps.Keys(v.Best.Terms)) {
			v.Rows = append(v.Rows, row{name, v.Base.Terms[name], v.Best.Terms[name]})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.pos.Settings)) {
		if value := r.pos.Settings[name]; value != "" {
			v.Settings = append(v.Settings, [2]string{name, value})
		}
	}
	var out bytes.Buffer
	if err := pageTemplate.Execute(&out, v); err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(r.opt.Output, reportFile), out.Bytes())
}

// curves are those of the records: the loss on both sets, its terms, the learning rate and the gradient's norm, the speed.
func curves(records []Record) []template.HTML {
	loss, smooth, held := webpage.Series{Name: "training"}, webpage.Series{Name: "smoothed"}, webpage.Series{Name: "validation"}
	rate, norm, speed, waited := webpage.Series{Name: "learning rate"}, webpage.Series{Name: "norm"}, webpage.Series{Name: "samples/s"}, webpage.Series{Name: "% waiting"}
	terms := map[string]*webpage.Series{}
	var w watch
	positive := true
	add := func(s *webpage.Series, r Record, y float64) {
		s.X, s.Y = append(s.X, float64(r.Update)), append(s.Y, y)
	}
	for _, r := range records {
		if r.Validation != nil {
			add(&held, r, r.Validation.Loss)
			positive = positive && r.Validation.Loss > 0
			continue
		}
		if !r.Skipped || r.Loss != 0 { // of an update that was left out it may not be finite, and is not recorded then
			_ = w.see(r.Loss, 0)
			add(&loss, r, r.Loss)
			add(&smooth, r, w.Smooth)
			positive = positive && r.Loss > 0
		}
		add(&rate, r, r.Rate)
		if r.Norm > 0 {
			add(&norm, r, r.Norm)
		}
		add(&speed, r, r.Samples)
		add(&waited, r, 100*r.Waited)
		for name, x := range r.Terms {
			if terms[name] == nil {
				terms[name] = &webpage.Series{Name: name}
			}
			add(terms[name], r, x)
		}
	}
	plot := webpage.Curves
	out := []template.HTML{plot("Loss", "update", "loss", []webpage.Series{loss, smooth, held}, positive)}
	if len(terms) > 1 {
		var list []webpage.Series
		all := true
		for _, name := range slices.Sorted(maps.Keys(terms)) {
			list = append(list, *terms[name])
			all = all && slices.Min(terms[name].Y) > 0
		}
		out = append(out, plot("Terms of the loss", "update", "term", list, all))
	}
	return append(out, plot("Learning rate", "update", "rate", []webpage.Series{rate}, false),
		plot("Norm of the gradient", "update", "norm", []webpage.Series{norm}, true),
		plot("Speed", "update", "samples/s", []webpage.Series{speed}, false),
		plot("Share of the time without data", "update", "%", []webpage.Series{waited}, false))
}
