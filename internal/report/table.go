package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/plural"
)

// Table prints layers, slices and totals of a report as text, as far as there are any.
func (r *Report) Table(w io.Writer) error {
	if len(r.Layers) > 0 {
		if err := r.layers(w); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	if r.Calibration != nil {
		if err := r.sets(w, "", r.Sets); err != nil {
			return err
		}
		for _, o := range r.Others {
			fmt.Fprintln(w)
			if err := r.sets(w, "for "+o.Target+", ", o.Sets); err != nil {
				return err
			}
		}
		fmt.Fprintln(w)
	}
	if len(r.Layers) > 0 {
		r.formats(w)
	}
	r.budget(w)
	r.times(w)
	return nil
}

// layers prints one line per layer.
func (r *Report) layers(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "layer\top\tprecision\tMMAC\tµs\tweights KB\tof fp16\talone\tin place\twhy")
	for _, l := range r.Layers {
		us, alone, inPlace := "?", "–", "–"
		if l.Alone > 0 {
			alone = fmt.Sprintf("%.2g", l.Alone)
		}
		if l.InPlace > 0 {
			inPlace = fmt.Sprintf("%.2g", l.InPlace)
		}
		if l.US > 0 {
			us = fmt.Sprintf("%.2f", l.US)
		}
		if len(l.With) > 0 {
			us += " with " + strings.Join(l.With, ", ")
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%.2f\t%s\t%.1f\t%.2f\t%s\t%s\t%s\n", l.Name, l.Op, l.Precision, float64(l.MACs)/1e6, us,
			float64(l.Bytes)/1e3, ratio(int64(l.Bytes), int64(l.HalfBytes)), alone, inPlace, l.Why)
	}
	return t.Flush()
}

// sets prints the accuracy on each set of inputs.
func (r *Report) sets(w io.Writer, of string, sets []calibrate.SetQuality) error {
	for i, s := range sets {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintf(w, "%son %s:\n", of, r.inputs(s))
		if err := Slices(w, s.Slices, s.Inputs); err != nil {
			return err
		}
	}
	return nil
}

// inputs describes a set of inputs.
func (r *Report) inputs(s calibrate.SetQuality) string {
	text := plural.Count(s.Inputs, s.Name+" input")
	if r.Calibration.Generated && s.Name == compile.CalibrationSet {
		text = plural.Count(s.Inputs, "generated input") + ", not the model's own"
	}
	if s.Fitted {
		text += ", in sample"
	}
	return text
}

// Slices prints one line per slice, with its accuracy over a number of inputs.
func Slices(w io.Writer, list []calibrate.Quality, inputs int) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "output\telements\tcosine\tmax abs\trelative L2\tvariation explained")
	for _, s := range list {
		explained := fmt.Sprintf("%.4f", s.Explained)
		switch {
		case inputs == 1:
			explained = "–"
		case s.Constant:
			explained = "does not vary"
		}
		cosine := fmt.Sprintf("%.6f", s.Cosine)
		if s.Pooled {
			cosine += " pooled"
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%.3g\t%.3g\t%s\n", s.Name, s.Elements, cosine, s.MaxAbs, s.RelL2, explained)
	}
	return t.Flush()
}

// sum is the total of the layers of one format.
type sum struct {
	format      string
	layers      int
	macs        int64
	weights     int64 // number of them
	bytes, half int64
}

// formats prints the share of each format.
func (r *Report) formats(w io.Writer) {
	var all sum
	var list []*sum
	for _, l := range r.Layers {
		i := slices.IndexFunc(list, func(s *sum) bool { return s.format == l.Precision })
		if i < 0 {
			i, list = len(list), append(list, &sum{format: l.Precision})
		}
		for _, s := range []*sum{list[i], &all} {
			s.layers++
			s.macs += l.MACs
			s.weights += int64(l.Weights)
			s.bytes += int64(l.Bytes)
			s.half += int64(l.HalfBytes)
		}
	}
	for _, s := range list {
		fmt.Fprintf(w, "%s: %s, %.1f %% of the multiplications and %.1f %% of the weights of these layers; weights %.3g MB, %.3f of fp16\n",
			s.format, plural.Count(s.layers, "layer"), 100*ratio(s.macs, all.macs), 100*ratio(s.weights, all.weights), float64(s.bytes)/1e6, ratio(s.bytes, s.half))
	}
	fmt.Fprintf(w, "all %d: weights %.3g MB, %.3f of fp16 (scales and padding included)\n", all.layers, float64(all.bytes)/1e6, ratio(all.bytes, all.half))
}

func ratio(a, b int64) float64 { return float64(a) / float64(max(b, 1)) }

// budget prints the accuracy budget and the slice nearest to it.
func (r *Report) budget(w io.Writer) {
	if len(r.Slices) == 0 {
		return
	}
	least := slices.MinFunc(r.Slices, func(a, b calibrate.Quality) int { return cmp.Compare(a.Cosine, b.Cosine) })
	on := ""
	for _, set := range r.Sets {
		if set.Name == least.Set {
			on = " on " + r.inputs(set)
		}
	}
	budget := "none (--min-cosine 0: everything is quantised that can be)"
	if r.Calibration.MinCosine > 0 {
		budget = fmt.Sprintf("cosine %g", r.Calibration.MinCosine)
	}
	if c := r.Reference; c != nil && c.Float64 < c.Inputs {
		fmt.Fprintf(w, "reference: the file in fp32; it is %.1g from float64 at most (relative L2 of %s, on the first and the last of %s)\n", c.Apart, c.Where, plural.Count(c.Inputs, "input"))
	}
	fmt.Fprintf(w, "budget: %s; least: %s with %.6f%s", budget, least.Name, least.Cosine, on)
	expected := slices.MinFunc(r.Slices, func(a, b calibrate.Quality) int { return cmp.Compare(a.Expected, b.Expected) })
	if expected.Expected != 0 {
		fmt.Fprintf(w, "; on other inputs %.6f is expected (%s)", expected.Expected, expected.Name)
	}
	fmt.Fprintln(w)
}

// between is a predicted time with its range.
func between(f cost.Figure) string {
	return fmt.Sprintf("%.1f (%.0f to %.0f)", f.Middle, f.Low, f.High)
}

// times prints the predicted times, and their ratio to the first.
func (r *Report) times(w io.Writer) {
	switch k := r.Kept; {
	case k == nil || len(r.Predicted) == 0:
	case k.Layers == 0:
		defer fmt.Fprintf(w, "%s: no layer is faster in it within the budget; --prefer size takes smaller weights, a lower --min-cosine more layers\n", k.Precision)
	default:
		defer fmt.Fprintf(w, "%s would be no faster: %.1f µs, %.1f with cold weights; %s, %.3g MB of weights; --prefer size keeps it\n",
			k.Precision, k.US, k.ColdUS, plural.Count(k.Launches, "launch"), float64(k.Weights)/1e6)
	}
	for i, p := range r.Predicted {
		fmt.Fprintf(w, "%s on %s, predicted: %s µs, %s with cold weights; %s, %.3g MB of weights", p.Precision, p.Device, between(p.Range), between(p.ColdRange), plural.Count(p.Launches, "launch"), float64(p.WeightsBytes)/1e6)
		if i > 0 {
			first := r.Predicted[0]
			fmt.Fprintf(w, ": %.2f times as fast as %s, %.2f with cold weights", first.US/p.US, first.Precision, first.ColdUS/p.ColdUS)
		}
		fmt.Fprintln(w)
	}
}
