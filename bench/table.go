package bench

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/internal/report"
)

// Print writes the report as text tables.
func (r *Report) Print(w io.Writer) error {
	fmt.Fprintf(w, "%s: %s after %s\n\n", r.Device, console.Count(r.Runs, "run"), console.Count(r.Warmup, "warm-up run"))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	clock := slices.ContainsFunc(r.Results, func(x Result) bool { return x.LaunchToLaunch != nil })
	titles, columns := []string{"model", "precision", "launches"}, r.columns()
	for i, c := range columns {
		if i == 0 {
			c.Title = strings.TrimSpace(c.Title + " ms")
		}
		titles = append(titles, c.Title)
	}
	titles = append(titles, "first ms")
	if clock {
		titles = append(titles, "launch to launch", "cold", "host ms")
	}
	fmt.Fprintln(t, strings.Join(append(titles, "arena MB", "weights MB", "MMAC", "cosine", "rel L2", ""), "\t"))
	for i := range r.Results {
		x := &r.Results[i]
		row := []string{x.Model, x.Precision, fmt.Sprint(x.Launches)}
		for _, c := range columns {
			row = append(row, number(c.Of(&x.Summary)))
		}
		row = append(row, number(x.FirstMS))
		if clock {
			row = append(row, median(x.LaunchToLaunch), median(x.Cold), optional(x.HostMS))
		}
		row = append(row, fmt.Sprintf("%.2f", float64(x.ArenaBytes)/1e6), fmt.Sprintf("%.2f", float64(x.WeightsBytes)/1e6), x.MMAC())
		cosine, l2 := "–", "–"
		if len(x.Outputs) > 0 {
			a, b := worst(x.Outputs)
			cosine, l2 = fmt.Sprintf("%.7f", a), fmt.Sprintf("%.2g", b)
		}
		fmt.Fprintln(t, strings.Join(append(row, cosine, l2, ""), "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, column := range []struct{ title, name string }{{waitTitle(columns), "p50_ms"}, {"launch to launch", "launch_to_launch"}, {"host ms", "host_ms"}} {
		if what := r.Definitions[column.name]; what != "" {
			fmt.Fprintf(w, "%s: %s\n", column.title, what)
		}
	}
	if len(r.SwitchesOff) > 0 {
		fmt.Fprintf(w, "switched off: %s\n", strings.Join(r.SwitchesOff, ", "))
	}
	for i := range r.Results {
		for _, line := range r.Results[i].remarks() {
			fmt.Fprintln(w, line)
		}
	}
	if c := r.Concurrent; c != nil {
		n := len(c.Rounds)
		fmt.Fprintf(w, "\nall %d at the same time: %s per round\n", len(c.Models), c.Round.Text(n))
		for _, m := range c.Models {
			fmt.Fprintf(w, "  %s %s: %s\n", m.Model, m.Precision, m.Text(n))
		}
	}
	return nil
}

// columns are the times of a run that the tables show: of a single one just that.
func (r *Report) columns() []report.Column {
	n := 1
	for _, x := range r.Results {
		n = max(n, len(x.Samples))
	}
	out := report.Columns(n)
	if n == 1 {
		return out
	}
	return append(out, report.Column{Title: "min", Of: func(s *report.Summary) float64 { return s.Min }},
		report.Column{Title: "runs/s", Of: func(s *report.Summary) float64 { return s.PerSecond }})
}

// waitTitle names the columns in their explanation.
func waitTitle(columns []report.Column) string {
	if len(columns) == 1 {
		return "ms"
	}
	return columns[0].Title + " to " + columns[len(columns)-1].Title
}

// remarks are the lines below the table: state of the GPU, ONNX Runtime, baseline.
func (x *Result) remarks() []string {
	var out []string
	name := x.Model + " " + x.Precision
	if s := x.State; s != nil {
		line := fmt.Sprintf("%s: clock %s MHz (%s to %s), %s W, %s °C, %s %% busy", name, s.ClockMHz.Format("%.0f"), s.ClockMinMHz.Format("%.0f"), s.ClockMaxMHz.Format("%.0f"), s.PowerWatts.Format("%.1f"), s.Celsius.Format("%.0f"), s.Utilisation.Format("%.0f"))
		if slow := s.Throttle.Slowdowns(); len(slow) > 0 {
			line += ", THROTTLED: " + strings.Join(slow, ", ")
		}
		if s.Capped {
			line += ", CLOCK CAPPED, no reason reported: a healthy GPU would be faster"
		}
		out = append(out, line)
	}
	if p := x.ONNXRuntime; p != nil {
		line := fmt.Sprintf("%s: ONNX Runtime %s on the CPU: p50 %s ms, %.2f × ours", name, p.Version, number(p.P50), p.Ratio)
		if len(p.Outputs) > 0 {
			cosine, l2 := worst(p.Outputs)
			line += fmt.Sprintf("; outputs agree to cosine %.7f, relative L2 %.2g", cosine, l2)
		}
		out = append(out, line)
	}
	if p := x.Predicted; p != nil && x.LaunchToLaunch != nil && p.Range.Middle > 0 {
		line := fmt.Sprintf("%s: launch to launch it takes %.2f × the predicted %.1f µs (%.1f to %.1f)", name, 1e3*x.LaunchToLaunch.P50/p.Range.Middle, p.Range.Middle, p.Range.Low, p.Range.High)
		if p.Rank != nil {
			line += fmt.Sprintf("; its launches are in the predicted order, by a rank correlation of %.3f", *p.Rank)
		}
		out = append(out, line)
	}
	for i := range x.Ablations {
		out = append(out, fmt.Sprintf("%s: %s", name, &x.Ablations[i]))
	}
	if d := x.Baseline; d != nil {
		out = append(out, fmt.Sprintf("%s: %s than the baseline: p50 %s ms, was %s (× %.3f, p = %.2g)", name, verdict(d), number(x.P50), number(d.P50), d.Ratio, d.P))
	}
	return out
}

func verdict(d *Difference) string {
	if d.Verdict == "same" {
		return "no different"
	}
	return strings.ToUpper(d.Verdict)
}

// worst returns the smallest cosine and the largest relative L2 of the outputs.
func worst(outputs []report.Output) (cosine, l2 float64) {
	cosine = 1
	for _, o := range outputs {
		cosine, l2 = min(cosine, o.Cosine), max(l2, o.RelL2)
	}
	return cosine, l2
}

func median(s *report.Summary) string {
	if s == nil {
		return "–"
	}
	return number(s.P50)
}

func optional(ms *float64) string {
	if ms == nil {
		return "–"
	}
	return number(*ms)
}

// number formats milliseconds with about three significant digits.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a == 0:
		return "0"
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a >= 1:
		return fmt.Sprintf("%.2f", v)
	}
	return fmt.Sprintf("%.4f", v)
}
