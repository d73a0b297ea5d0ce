package report

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Table prints layers and slices of a report for a person, nothing if it has none.
func (r *Report) Table(w io.Writer) error {
	if len(r.Layers) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "layer\top\tprecision\tMMAC\tweights KB\talone\tin place\twhy it stayed")
	totals := map[string]int64{}
	var names []string
	var all int64
	bytes, half := 0, 0
	for _, l := range r.Layers {
		fmt.Fprintf(t, "%s\t%s\t%s\t%.2f\t%.1f\t%.2g\t%.2g\t%s\n", l.Name, l.Op, l.Precision, float64(l.MACs)/1e6, float64(l.Bytes)/1e3, l.Alone, l.InPlace, l.Why)
		if totals[l.Precision] == 0 {
			names = append(names, l.Precision)
		}
		totals[l.Precision] += l.MACs
		all += l.MACs
		bytes, half = bytes+l.Bytes, half+l.HalfBytes
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, n := range names {
		fmt.Fprintf(w, "%s: %.1f %% of the multiplications of these layers\n", n, 100*float64(totals[n])/float64(all))
	}
	fmt.Fprintf(w, "weights of these layers: %.2f MB, %.2f of fp16\n\n", float64(bytes)/1e6, float64(bytes)/float64(half))
	t = tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "output\telements\tcosine\tmax abs\trelative L2\tvariation explained")
	for _, s := range r.Slices {
		explained := fmt.Sprintf("%.4f", s.Explained)
		if s.Constant {
			explained = "does not vary"
		}
		fmt.Fprintf(t, "%s\t%d\t%.6f\t%.3g\t%.3g\t%s\n", s.Name, s.Elements, s.Cosine, s.MaxAbs, s.RelL2, explained)
	}
	return t.Flush()
}
