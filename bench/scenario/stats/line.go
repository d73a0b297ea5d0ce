package stats

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spark-compile/spark-compile/internal/console"
)

// conclude is the verdict over all metrics, and a sentence that says which of them it rests on.
func conclude(r *Report) (Verdict, string) {
	found := map[Verdict][]string{}
	judged := 0
	for _, c := range r.Metrics {
		if c.Verdict != NotJudged {
			judged++
		}
		found[c.Verdict] = append(found[c.Verdict], c.phrase())
	}
	over := fmt.Sprintf("in %s over %s", console.Count(r.Pairs, "pair"), console.Count(judged, "metric"))
	list := func(v Verdict) string { return strings.Join(found[v], ", ") }
	switch {
	case judged == 0:
		return NotJudged, "no metric is judged: all are neutral"
	case len(found[Worse]) > 0 && len(found[Better]) > 0:
		return Worse, fmt.Sprintf("B is worse %s: %s; better: %s", over, list(Worse), list(Better))
	case len(found[Worse]) > 0:
		return Worse, fmt.Sprintf("B is worse %s: %s", over, list(Worse))
	case len(found[Mixed]) > 0:
		line := fmt.Sprintf("B is mixed %s, most pairs changing one way and the mean the other: %s", over, list(Mixed))
		if len(found[Better]) > 0 {
			line += "; better: " + list(Better)
		}
		return Mixed, line
	case len(found[Better]) > 0:
		return Better, fmt.Sprintf("B is better %s: %s", over, list(Better))
	case len(found[WithinTolerance]) > 0:
		return WithinTolerance, fmt.Sprintf("B differs %s, but within tolerance: %s", over, list(WithinTolerance))
	}
	return NoDifference, "no difference found " + over
}

// phrase is a metric with its difference: "jerk 1.2 → 1.5 m/s³ (p = 0.003)".
func (c *Comparison) phrase() string {
	a, b, unit := c.A.Mean, c.B.Mean, c.Unit
	if c.Kind == Failure {
		a, b, unit = 100*a, 100*b, "%"
	}
	if unit != "" {
		unit = " " + unit
	}
	figures := Distinct(a, b, 3)
	return fmt.Sprintf("%s %s → %s%s (p = %.2g)", c.Name, figures[0], figures[1], unit, c.Adjusted)
}

// Distinct writes two numbers with so many significant digits, or as many as it takes to show that they differ.
func Distinct(a, b float64, digits int) (text [2]string) {
	const exact = 17 // digits of a float64
	for {
		for i, x := range []float64{a, b} {
			text[i] = strconv.FormatFloat(x, 'g', digits, 64)
		}
		if a == b || text[0] != text[1] || digits >= exact {
			return text
		}
		digits++
	}
}
