package main

import (
	"fmt"
	"strings"

	"github.com/spark-compile/spark-compile/bench"
)

// significance is the p-value below which a difference counts, and margin the least share of the time that is worth a
// mechanism.
const (
	significance = .01
	margin       = .01
)

// writeAblations says what each mechanism is worth.
func (r *results) writeAblations(b *strings.Builder) {
	var rows strings.Builder
	for _, m := range r.measured {
		for _, a := range m.Ablations {
			fmt.Fprintf(&rows, "| %s %s | %s | ", strings.TrimSuffix(m.Model, ".onnx"), m.Precision, a.Mechanism)
			if a.Unused != "" {
				fmt.Fprintf(&rows, " | | | | | | not measured: %s |\n", a.Unused)
				continue
			}
			fmt.Fprintf(&rows, "%s | %s | %s |\n", contrast(a.LaunchToLaunch), contrast(a.Cold), verdict(&a))
		}
	}
	if rows.Len() == 0 {
		return
	}
	b.WriteString("## Mechanisms\n\nMedians in µs with and without, in turns; the ratio is without / with.\n\n" +
		"| program | mechanism | warm: with | without | ratio | cold: with | without | ratio | verdict |\n" +
		"|---|---|--:|--:|--:|--:|--:|--:|---|\n")
	b.WriteString(rows.String() + "\n")
}

func contrast(c *bench.Contrast) string {
	if c == nil {
		return " | | "
	}
	return fmt.Sprintf("%s | %s | %.3f", digits(1e3*c.OnMS), digits(1e3*c.OffMS), c.Ratio)
}

// keep is the verdict on a mechanism that helps.
const keep = "keep"

// verdict says whether the mechanism stays on: it must help warm or cold, and harm neither.
func verdict(a *bench.Ablation) string {
	helps, harms := false, false
	for _, c := range []*bench.Contrast{a.LaunchToLaunch, a.Cold} {
		if c == nil || c.P >= significance {
			continue
		}
		helps, harms = helps || c.Ratio > 1+margin, harms || c.Ratio < 1-margin
	}
	switch {
	case helps && harms:
		return "helps one and harms the other: decide by warm or cold use"
	case helps:
		return keep
	case harms:
		return "**off by default**"
	}
	return "no difference: the simpler program is without it"
}
