package trace

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spark-compile/spark-compile/internal/console"
)

// Table prints the rows, the outputs and the first bad layer.
func (t *Trace) Table(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "launch\tregion\tkernel\tstored\tshape\trelative L2\town\tcosine\tmax abs\tat\toutside\tnodes inside")
	for _, r := range t.Rows {
		fmt.Fprintf(tw, "%d\t%s\t%s\t%s\t%s\t%.2g\t%.2g\t%.6f\t%.2g\t%s\t%s\t%s\n", r.Launch, r.Region, r.Kernel, r.short(), list(r.Shape), r.RelL2, r.Own, r.Cosine, r.MaxAbs,
			list(r.Worst), r.verdict(), strings.Join(r.Nodes, ", "))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nrelative L2, cosine, max abs: against the file in float64. own: what the region adds itself, on the inputs that the launch had. outside: elements that rounding cannot make of these inputs")
	for _, o := range t.Outputs {
		fmt.Fprintf(w, "output %s: relative L2 %.3g, cosine %.9f, max abs %.3g at %s; the passes changed it by %.1g\n", o.Name, o.RelL2, o.Cosine, o.MaxAbs, list(o.Worst), o.Passes)
	}
	if !t.SameBits {
		fmt.Fprintln(w, "the outputs of this run differ from those of the same run without copies: launches race; --check finds the place on the CPU device")
	}
	switch {
	case t.FirstBad != nil:
		r := t.Rows[*t.FirstBad]
		fmt.Fprintf(w, "first bad layer: %s (launch %d, kernel %s): %s\n", r.Region, r.Launch, r.Kernel, r.why())
		fmt.Fprintf(w, "it computes: %s\n", strings.Join(r.Nodes, ", "))
	case t.Most != nil:
		r := t.Rows[*t.Most]
		fmt.Fprintf(w, "no bad layer: every region computes what rounding can make of its inputs; %s adds most itself: own %.2g of %.2g\n", r.Region, r.Own, r.RelL2)
	}
	return nil
}

func list(xs []int) string { return strings.ReplaceAll(fmt.Sprint(xs), " ", ",") }

// short is how the value is stored, with three digits of the scale.
func (r *Row) short() string {
	if r.Scale == 1 {
		return r.Stored
	}
	return fmt.Sprintf("%s × %.3g", r.Stored, r.Scale)
}

// verdict is the column for what is outside.
func (r *Row) verdict() string {
	text := fmt.Sprint(r.Outside)
	if r.Unbounded != "" {
		text = fmt.Sprintf("apart %.1g", r.RoundedRelL2)
	}
	if r.Bad {
		text += " BAD"
	}
	return text
}

// why says in what a row is bad.
func (r *Row) why() string {
	switch {
	case r.Changed != "":
		return r.Changed
	case r.Unbounded != "":
		return fmt.Sprintf("relative L2 %.3g from the evaluator on the same inputs, more than %.1g (%s)", r.RoundedRelL2, r.Limit, r.Unbounded)
	}
	elements := 1
	for _, d := range r.Shape {
		elements *= d
	}
	return fmt.Sprintf("%d of %s outside of what rounding can make of its inputs, one by %.3g; own error %.2g", r.Outside, console.Count(elements, "element"), r.Beyond, r.Own)
}
