package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/bench"
	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/target"
)

const (
	worst     = 10  // kernels that are listed
	leastRank = 0.8 // correlation of launches below which the cost model cannot choose between schedules
)

// markdown is the report.
func (r *results) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\n", r.deviceName())
	if why := r.noGPU(); why != "" {
		fmt.Fprintf(&b, "**This describes no GPU**: %s.\n\n", why)
	}
	r.writeSteps(&b)
	r.writeDecisions(&b)
	r.writePrograms(&b)
	r.writeAccuracy(&b)
	r.writeTerms(&b)
	r.writeKernels(&b)
	r.writeAblations(&b)
	r.writeConstants(&b)
	return b.String()
}

// writeSteps lists the steps that did not pass, and the files that are missing.
func (r *results) writeSteps(b *strings.Builder) {
	count := map[string]int{}
	var rest []string
	for _, s := range r.steps {
		count[s.status]++
		if s.status != "ok" {
			rest = append(rest, fmt.Sprintf("- %s: `%s` (%s)\n", s.status, s.name, s.detail))
		}
	}
	fmt.Fprintf(b, "%s: %d passed, %d skipped.\n\n", console.Count(len(r.steps), "step"), count["ok"], count["skip"])
	for _, text := range r.missing {
		rest = append(rest, "- missing: "+text+"\n")
	}
	if len(rest) > 0 {
		fmt.Fprintf(b, "%s\n", strings.Join(rest, ""))
	}
}

// writeDecisions says what follows from the results.
func (r *results) writeDecisions(b *strings.Builder) {
	if r.noGPU() != "" {
		return
	}
	var all []string
	if r.machine != nil {
		for _, l := range r.pulled() {
			x := digits(r.machine.Figures[l.constant].Middle)
			all = append(all, fmt.Sprintf("`%s` is %s (%s): %s", l.constant, x, l.condition(), l.then))
		}
		for _, name := range slices.Sorted(maps.Keys(r.machine.SumBits)) {
			bits := r.machine.SumBits[name]
			all = append(all, fmt.Sprintf("sums of %s keep %d bits: compile with `--machine machine.json`", name, bits))
		}
	}
	for _, p := range r.predicted {
		m := r.bench("bench", p.Model, p.Precision)
		if m == nil || m.LaunchToLaunch == nil {
			continue
		}
		if us := 1e3 * m.LaunchToLaunch.P50; us < float64(p.Range.Low) || us > float64(p.Range.High) {
			all = append(all, fmt.Sprintf("%s %s takes %s µs, outside the predicted %s: see Terms", p.Model, p.Precision,
				digits(us), ranged(p.Range)))
		}
		if m.Predicted != nil && m.Predicted.Rank != nil && *m.Predicted.Rank < leastRank {
			all = append(all, fmt.Sprintf("%s %s: launches rank by %.2f, less than %g: correct the first term of Terms",
				p.Model, p.Precision, *m.Predicted.Rank, leastRank))
		}
	}
	for _, m := range r.measured {
		for _, a := range m.Ablations {
			if v := verdict(&a); a.Unused == "" && v != keep {
				all = append(all, fmt.Sprintf("%s %s, %s: %s", m.Model, m.Precision, a.Mechanism, v))
			}
		}
	}
	if len(all) > 0 {
		fmt.Fprintf(b, "## Decisions\n\n- %s\n\n", strings.Join(all, "\n- "))
	}
}

// pulled are the levers whose condition the measured constants meet.
func (r *results) pulled() (out []*lever) {
	t, err := target.Lookup(r.machine.Target)
	if err != nil {
		return nil // ReadFile has looked it up
	}
	m := cost.Of(t)
	for i := range levers {
		for _, c := range m.All() {
			if yes, _ := levers[i].pulled(r.machine.Figures, m.Figure(c).Middle); yes && c.Name == levers[i].constant {
				out = append(out, &levers[i])
			}
		}
	}
	return out
}

// writePrograms sets predicted and measured runs side by side.
func (r *results) writePrograms(b *strings.Builder) {
	b.WriteString("## Programs\n\nMedians in µs. Warm: launch to launch, by the device's clock; cold: with L2 flushed " +
		"before.\n\n")
	fmt.Fprintf(b, "%s measured / predicted | rank correlation | PyTorch |\n%s--:|--:|---|\n", rowHeader, rowRule)
	for i, row := range r.rows() {
		p := r.predicted[i]
		ratio, rank := "", ""
		if m := r.bench("bench", p.Model, p.Precision); m != nil {
			if m.LaunchToLaunch != nil && p.US > 0 {
				ratio = fmt.Sprintf("%.2f", 1e3*m.LaunchToLaunch.P50/float64(p.US))
			}
			if m.Predicted != nil && m.Predicted.Rank != nil {
				rank = fmt.Sprintf("%.2f", *m.Predicted.Rank)
			}
		}
		peers := ""
		if p.Precision == precision.FP16 {
			peers = r.peersOf(p.Model)
		}
		fmt.Fprintf(b, "%s %s | %s | %s |\n", &row, ratio, rank, peers)
	}
	b.WriteString("\n")
	for _, p := range r.peers {
		if why := cmp.Or(p.Error, p.Skipped); why != "" {
			fmt.Fprintf(b, "- %s, %s of %s: %s\n", p.Model, p.Mode, p.Asked, why)
		}
	}
	for _, p := range r.predicted {
		if r.bench("bench", p.Model, p.Precision) == nil {
			fmt.Fprintf(b, "- not measured: %s in %s\n", p.Model, p.Precision)
		}
	}
	b.WriteString("\n")
}

// peersOf are the times of others for a model, by events where there is a GPU.
func (r *results) peersOf(model string) string {
	var out []string
	for _, p := range r.peers {
		t := p.Event
		if t == nil {
			t = p.Wall
		}
		if p.Model == model && t != nil {
			out = append(out, fmt.Sprintf("%s %s %s", p.Mode, p.Asked, digits(1e3*t.P50)))
		}
	}
	return strings.Join(out, ", ")
}

// writeAccuracy lists the distances from golden outputs, by the worst output.
func (r *results) writeAccuracy(b *strings.Builder) {
	if len(r.golden) == 0 {
		return
	}
	b.WriteString("## Golden outputs\n\n| step | cosine, at least | relative L2, at most |\n|---|--:|--:|\n")
	for _, g := range r.golden {
		cosine, l2 := 1.0, 0.0
		for _, o := range g.Outputs {
			cosine, l2 = min(cosine, o.Cosine), max(l2, o.RelL2)
		}
		fmt.Fprintf(b, "| %s | %.7f | %.2g |\n", strings.TrimPrefix(g.step, "golden "), cosine, l2)
	}
	b.WriteString("\n")
}

// layer is a launch of a program, timed by itself.
type layer struct {
	model, precision string
	bench.Layer
}

func (l *layer) ratio() float64 { return 1e3 * l.MS / *l.PredictedUS }

// layers are those of all programs that have both a time and a prediction.
func (r *results) layers() []layer {
	var out []layer
	for _, m := range r.measured {
		if !strings.HasPrefix(m.step, "bench ") {
			continue
		}
		for _, l := range m.Layers {
			if l.MS > 0 && l.PredictedUS != nil && *l.PredictedUS > 0 {
				out = append(out, layer{m.Model, m.Precision, l})
			}
		}
	}
	return out
}

// writeTerms says which term of the cost model is off: launches by what bounds them.
func (r *results) writeTerms(b *strings.Builder) {
	logs := map[string][]float64{}
	for _, l := range r.layers() {
		logs[l.By] = append(logs[l.By], math.Log(l.ratio()))
	}
	if len(logs) == 0 {
		return
	}
	b.WriteString("## Terms\n\nLaunches by what is predicted to bound them; the geometric mean of measured / predicted, " +
		"the farthest from 1 first.\n\n")
	b.WriteString("| bound by | launches | measured / predicted |\n|---|--:|--:|\n")
	mean := func(by string) float64 {
		sum := 0.0
		for _, x := range logs[by] {
			sum += x
		}
		return sum / float64(len(logs[by]))
	}
	terms := slices.Sorted(maps.Keys(logs))
	slices.SortStableFunc(terms, func(x, y string) int { return cmp.Compare(math.Abs(mean(y)), math.Abs(mean(x))) })
	for _, by := range terms {
		fmt.Fprintf(b, "| %s | %d | %.2f |\n", by, len(logs[by]), math.Exp(mean(by)))
	}
	b.WriteString("\n")
}

// writeKernels lists the launches that are farthest from their predictions, slower or faster.
func (r *results) writeKernels(b *strings.Builder) {
	all := r.layers()
	if len(all) == 0 {
		return
	}
	slices.SortStableFunc(all, func(x, y layer) int {
		return cmp.Compare(math.Abs(math.Log(y.ratio())), math.Abs(math.Log(x.ratio())))
	})
	b.WriteString("## Kernels farthest from their predictions\n\n")
	b.WriteString("| program | launch | kernel | what | bound by | predicted µs | measured µs | ratio |\n" +
		"|---|--:|---|---|---|--:|--:|--:|\n")
	for _, l := range all[:min(worst, len(all))] {
		model := strings.TrimSuffix(l.model, ".onnx")
		fmt.Fprintf(b, "| %s %s | %d | `%s` | %s | %s | %s | %s | %.2f |\n", model, l.precision, l.Index,
			l.Kernel, l.Note, l.By, digits(*l.PredictedUS), digits(1e3*l.MS), l.ratio())
	}
	b.WriteString("\n")
}

// writeConstants lists constants as published and measured, and what follows.
func (r *results) writeConstants(b *strings.Builder) {
	if r.machine == nil {
		return
	}
	t, err := target.Lookup(r.machine.Target)
	if err != nil {
		return // ReadFile has looked it up
	}
	m := cost.Of(t)
	b.WriteString("## Constants\n\n| constant | unit | published | measured | |\n|---|---|--:|--:|---|\n")
	for _, c := range m.All() {
		published := m.Figure(c)
		found, then := "– "+r.machine.Left[c.Name], ""
		if x, ok := r.machine.Figures[c.Name]; ok {
			found = ranged(x)
			switch {
			case x.Middle < published.Low:
				then = "below what is published"
			case x.Middle > published.High:
				then = "above what is published"
			}
		}
		found = strings.TrimSpace(found)
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s |\n", c.Name, c.Unit, ranged(published), found, then)
	}
	for _, name := range slices.Sorted(maps.Keys(r.machine.Also)) {
		fmt.Fprintf(b, "| `%s` | | | %s | not read by the model |\n", name, ranged(r.machine.Also[name]))
	}
	b.WriteString("\n")
}
