package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/internal/cost"
)

// PrintVerdict says in a few lines what a program gains over the same file in fp16, how accurate it is, and which formats its
// layers got, as far as these are known.
func (r *Report) PrintVerdict(w io.Writer) {
	r.times(w)
	r.accuracy(w)
	if len(r.Layers) > 0 {
		r.formats(w)
	}
}

// Rows of Brief, which are the slowest layers and the least accurate outputs, and their columns.
const briefLayers, briefOutputs, briefColumns = 12, 10, 100

// Brief prints the layers that take longest and the outputs that are least accurate, in rows of at most 100 columns.
func (r *Report) Brief(w io.Writer) error {
	if list := slowest(r.Layers, briefLayers); len(list) > 0 {
		fmt.Fprintf(w, "\n%s:\n", title("slowest", len(list), len(r.Layers), "layer"))
		if err := briefly(w, list); err != nil {
			return err
		}
	}
	if r.Calibration == nil || len(r.Slices) == 0 {
		return nil
	}
	list := slices.Clone(r.Slices)
	slices.SortStableFunc(list, func(a, b calibrate.Quality) int { return cmp.Compare(a.Cosine, b.Cosine) })
	list = list[:min(len(list), briefOutputs)]
	fmt.Fprintf(w, "\n%s, each on its worst set of inputs:\n", title("least accurate", len(list), len(r.Slices), "output"))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "output\tcosine\trelative L2\tmax abs\ton")
	for _, q := range list {
		fmt.Fprintf(t, "%s\t%s\t%.3g\t%.3g\t%s\n", elided(q.Name, 40), cosine(&q), q.RelL2, q.MaxAbs, r.set(q.Set))
	}
	return t.Flush()
}

// briefly prints one line per layer. Names are elided so that lines fit.
func briefly(w io.Writer, list []Layer) error {
	rows := [][]string{{"layer", "precision", "µs", "KB", "of fp16", "alone"}}
	for _, l := range list {
		us, alone, _ := l.figures()
		rows = append(rows, []string{l.nodes(), l.Precision, us, fmt.Sprintf("%.1f", float64(l.Bytes)/1e3),
			fmt.Sprintf("%.2f", ratio(int64(l.Bytes), int64(l.HalfBytes))), alone})
	}
	left := briefColumns
	for i := range rows[0][1:] {
		widest := 0
		for _, row := range rows {
			widest = max(widest, utf8.RuneCountInString(row[i+1]))
		}
		left -= widest + 2
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		row[0] = elided(row[0], left)
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	return t.Flush()
}

// title is that of a table which shows some of all rows.
func title(which string, shown, all int, of string) string {
	if shown == all {
		return console.Count(all, of)
	}
	return fmt.Sprintf("%s %d of %s (--layers shows all)", which, shown, console.Count(all, of))
}

// slowest are the layers that take longest, in the order of the list.
func slowest(list []Layer, count int) (out []Layer) {
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(list[b].US, list[a].US) })
	order = order[:min(count, len(list))]
	slices.Sort(order)
	for _, i := range order {
		out = append(out, list[i])
	}
	return out
}

// Table prints every layer and every output on each set of inputs, as far as there are any.
func (r *Report) Table(w io.Writer) error {
	if len(r.Layers) > 0 {
		fmt.Fprintln(w)
		if err := r.layers(w); err != nil {
			return err
		}
	}
	if r.Calibration == nil {
		return nil
	}
	fmt.Fprintln(w)
	if err := r.sets(w, "", r.Sets); err != nil {
		return err
	}
	for _, o := range r.Others {
		fmt.Fprintln(w)
		if err := r.sets(w, "for "+o.Target+", ", o.Sets); err != nil {
			return err
		}
	}
	return nil
}

// layers prints one line per node of the file. Batched nodes share the figures of the first.
func (r *Report) layers(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "layer\top\tprecision\tMMAC\tµs\tweights KB\tof fp16\talone\tin place\twhy\tlaunch shared with")
	for _, l := range r.Layers {
		us, alone, inPlace := l.figures()
		name := slices.Concat(l.Nodes, []string{l.Name})[0]
		fmt.Fprintf(t, "%s\t%s\t%s\t%.2f\t%s\t%.1f\t%.2f\t", name, l.Op, l.Precision, float64(l.MACs)/1e6, us,
			float64(l.Bytes)/1e3, ratio(int64(l.Bytes), int64(l.HalfBytes)))
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", alone, inPlace, cmp.Or(l.Why, "–"), cmp.Or(strings.Join(l.With, ", "), "–"))
		for _, other := range l.Nodes[min(1, len(l.Nodes)):] {
			fmt.Fprintf(t, "%s\t%s\t%s\t↑\t↑\t↑\t↑\t↑\t↑\tbatched with %s\t–\n", other, l.Op, l.Precision, name)
		}
	}
	return t.Flush()
}

// figures are a layer's time and errors as text.
func (l *Layer) figures() (us, alone, inPlace string) {
	figure := func(format string, x float64, none string) string {
		if x > 0 {
			return fmt.Sprintf(format, x)
		}
		return none
	}
	return figure("%.2f", l.US, "?"), figure("%.2g", l.Alone, "–"), figure("%.2g", l.InPlace, "–")
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
	text := console.Count(s.Inputs, s.Name+" input")
	if r.Calibration.Generated && s.Name == compile.CalibrationSet {
		text = console.Count(s.Inputs, "generated input") + ", not the model's own"
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
		explained := "–"
		switch {
		case inputs == 1:
		case s.Constant:
			explained = "does not vary"
		case s.Explained != nil:
			explained = fmt.Sprintf("%.4f", *s.Explained)
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%.3g\t%.3g\t%s\n", s.Name, s.Elements, cosine(&s), s.MaxAbs, s.RelL2, explained)
	}
	return t.Flush()
}

func cosine(q *calibrate.Quality) string {
	text := fmt.Sprintf("%.6f", q.Cosine)
	if q.Pooled {
		text += " pooled"
	}
	return text
}

// formats prints how many layers each format has, the most first, and the size of their weights.
func (r *Report) formats(w io.Writer) {
	count := map[string]int{}
	var bytes, half int64
	for _, l := range r.Layers {
		count[l.Precision]++
		bytes, half = bytes+int64(l.Bytes), half+int64(l.HalfBytes)
	}
	names := slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b))
	})
	var list []string
	for _, name := range names {
		list = append(list, fmt.Sprintf("%d %s", count[name], name))
	}
	fmt.Fprintf(w, "layers: %s; weights %.3g MB, %.3f of fp16\n", strings.Join(list, ", "), float64(bytes)/1e6, ratio(bytes, half))
}

func ratio(a, b int64) float64 { return float64(a) / float64(max(b, 1)) }

// set describes the set of inputs of a name.
func (r *Report) set(name string) string {
	for _, s := range r.Sets {
		if s.Name == name {
			return r.inputs(s)
		}
	}
	return name
}

// accuracy prints the least cosine, the accuracy budget, and what the figures are measured against.
func (r *Report) accuracy(w io.Writer) {
	v := r.verdict()
	if v == nil {
		return
	}
	budget, on := "no budget", ""
	if v.MinCosine != nil {
		budget = fmt.Sprintf("budget %g", *v.MinCosine)
	}
	if v.Set != "" {
		on = " on " + r.set(v.Set)
	}
	fmt.Fprintf(w, "accuracy: least cosine %.6f (%s%s); %s\n", v.LeastCosine, v.Output, on, budget)
	if v.Expected != nil {
		fmt.Fprintf(w, "  expected on other inputs: %.6f (%s)\n", *v.Expected, v.ExpectedOf)
	}
	if c := r.Reference; c != nil && c.FP32RelL2 != nil {
		fmt.Fprintf(w, "  against the file in fp32, which is within %.1g of float64 (relative L2, %s)\n", *c.FP32RelL2, c.Where)
	}
}

// between is a predicted time with its range.
func between(f cost.Figure) string {
	return fmt.Sprintf("%.1f (%.0f to %.0f)", f.Middle, f.Low, f.High)
}

// times prints the predicted time of the program, and that of the same file in fp16.
func (r *Report) times(w io.Writer) {
	if len(r.Predicted) == 0 {
		return
	}
	for _, p := range slices.Backward(r.Predicted) {
		fmt.Fprintf(w, "predicted on %s: %s %s µs, with cold weights %s\n", p.Device, p.Precision, between(p.Range), between(p.ColdRange))
	}
	if len(r.Predicted) > 1 {
		half, here := r.Predicted[0], r.Predicted[1]
		fmt.Fprintf(w, "  %.2f times as fast as %s, %.2f with cold weights\n", half.US/here.US, half.Precision, half.ColdUS/here.ColdUS)
	}
	if k := r.Kept; k != nil && k.Layers > 0 {
		fmt.Fprintf(w, "  %s would be no faster: %.1f µs, %.1f with cold weights, %.3g MB of weights\n",
			k.Precision, k.US, k.ColdUS, float64(k.Weights)/1e6)
	}
}
