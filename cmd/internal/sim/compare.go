package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/spark-compile/spark-compile/bench/scenario"
	"github.com/spark-compile/spark-compile/bench/scenario/stats"
	"github.com/spark-compile/spark-compile/internal/atomicfile"
	"github.com/spark-compile/spark-compile/internal/cli"
	"github.com/spark-compile/spark-compile/internal/console"
	samples "github.com/spark-compile/spark-compile/internal/report"
)

type compareFlags struct {
	command `kong:"-"`
	tierFlag
	budgetFlag
	A         string   `arg:"" help:"Algorithm, as run takes it, or a file that run --json wrote." names:""`
	B         string   `arg:"" help:"What is compared with it, likewise." names:""`
	Scenarios []string `help:"Built-in scenarios, or scenario files, that algorithms run. Default: those that are built in for the tier, without openpilot's maneuvers, which have to be named; with --route, the route." placeholder:"S,…" names:""`
	Route     string   `help:"Run on the road of a recorded route, and show driving models its pictures. Default scenario: the route itself." placeholder:"DIR"`
	N         int      `name:"n" help:"How many times each scenario runs. Default: 100." default:"100" placeholder:"N"`
	Seed      uint64   `help:"Seed of draws and noise. Default: 1." default:"1" placeholder:"S"`
	Tolerance float64  `help:"Difference that does not matter: of a rate of failures, and as a share of A's mean. Default: 0." default:"0" placeholder:"T"`
	Metrics   []string `help:"Metrics that are judged, which should be chosen beforehand; default: all that spark-sim list calls failures or costs." placeholder:"M,…"`
	Device    string   `help:"auto, cuda, cuda:N or emu; default: SPARK_DEVICE, else auto." placeholder:"NAME"`
	JSON      string   `name:"json" help:"Write the comparison to this file; - is standard output." placeholder:"FILE" writes:""`
	HTML      string   `name:"html" help:"Write a page with distributions and the worst regressions, A beside B from above, to this file." placeholder:"FILE" writes:""`
	Times     bool     `help:"Also say what a step takes, cold and warm: measured here, and predicted for the default target. It is not judged."`
	Quiet     bool     `help:"Show no progress."`

	Regressions string `help:"Write the loops in which B is worst beside A into this folder, a scenario file each for spark-sim replay." placeholder:"DIR" writes:""`
}

// errWorse reports that B is worse.
const errWorse = cli.Failure("B is worse")

// once gives warnings on that were not given before.
func once(warn func(string)) func(text string) {
	given := map[string]bool{}
	return func(text string) {
		if !given[text] {
			given[text] = true
			warn(text)
		}
	}
}

// side is what a run of one of the two ended with: read from a file, or run.
func (f *compareFlags) side(ctx context.Context, what string, warn func(string), stderr io.Writer) (*report, error) {
	if filepath.Ext(what) != ".json" {
		run := runFlags{tierFlag: f.tierFlag, Route: f.Route, Scenarios: f.Scenarios, Algorithm: what, N: &f.N, Seed: &f.Seed,
			Device: f.Device, Quiet: f.Quiet, Times: f.Times}
		if calibrates(what) {
			run.budgetFlag = f.budgetFlag
		}
		if len(run.Scenarios) == 0 && f.Route == "" {
			t, err := f.tier()
			if err != nil {
				return nil, err
			}
			list := t.Families()
			if t == scenario.Planner { // maneuvers are openpilot's own test, which one names
				list = scenario.Families
			}
			for _, x := range list {
				run.Scenarios = append(run.Scenarios, x.Name)
			}
		}
		r, err := run.plan(ctx, warn)
		if err != nil {
			return nil, err
		}
		_, _, err = run.simulate(ctx, &job{}, &start{Report: r}, nil, stderr)
		if errors.Is(err, context.Canceled) {
			fmt.Fprintf(stderr, "%s of %s had run, and nothing is kept: to go on after a stop, run each algorithm with "+
				"spark-sim run --json FILE and compare the files\n", console.Count(len(r.Metrics), "loop"), what)
		}
		return r, err
	}
	r, err := readReport(what)
	if err == nil && r.Partial {
		err = fmt.Errorf("%s has %d of %s, since the run was stopped; go on with spark-sim run --resume %s", what,
			len(r.Metrics), console.Count(r.total(), "loop"), what)
	}
	return r, err
}

func (f *compareFlags) run(ctx context.Context, w, stderr io.Writer) error {
	for _, path := range []string{f.JSON, f.HTML} { // before hours of work, not after
		if path != "" && !atomicfile.IsStdout(path) {
			if err := samples.CheckPath(path); err != nil {
				return err
			}
		}
	}
	if err := f.check(f.A, f.B); err != nil {
		return err
	}
	if f.Regressions != "" {
		if err := os.MkdirAll(f.Regressions, 0o755); err != nil {
			return fmt.Errorf("--regressions: %w", err)
		}
		if err := samples.CheckPath(filepath.Join(f.Regressions, "loop.yaml")); err != nil {
			return fmt.Errorf("--regressions: %w", err)
		}
	}
	t, err := f.tier()
	if err != nil {
		return err
	}
	if filepath.Ext(f.A) != ".json" {
		if _, err := t.Judged(f.Metrics...); err != nil {
			return fmt.Errorf("--metrics: %w", err)
		}
	}
	warn := once(warnTo(stderr)) // both import the same drives
	a, err := f.side(ctx, f.A, warn, stderr)
	if err != nil {
		return err
	}
	metrics, err := a.tier().Judged(f.Metrics...)
	if err != nil {
		return fmt.Errorf("--metrics: %w", err)
	}
	b, err := f.side(ctx, f.B, warn, stderr)
	if err != nil {
		return err
	}
	if d := differences(a, b, false); d != "" {
		return fmt.Errorf("%s and %s are no pairs: %s; run both alike", f.A, f.B, d)
	}
	r, err := stats.Compare(metrics, a.Metrics, b.Metrics, stats.Options{Tolerance: f.Tolerance, Seed: f.Seed})
	if err != nil {
		return fmt.Errorf("%s and %s: %w", f.A, f.B, err)
	}
	if f.JSON != "" {
		if err := atomicfile.WriteJSON(f.JSON, comparison{r, ofBoth(a.Layers, b.Layers), ofBoth(a.Times, b.Times)}); err != nil {
			return err
		}
	}
	if text := sameNetwork(a, b); text != "" {
		fmt.Fprintln(stderr, "warning:", text)
	}
	if err := compared(w, r, a, b); err != nil {
		return err
	}
	if f.HTML != "" {
		if err := writePage(ctx, f.HTML, f.Device, []*report{a, b}, r); err != nil {
			return err
		}
	}
	if f.Regressions != "" {
		if err := writeRegressions(f.Regressions, r, a, b); err != nil {
			return err
		}
	}
	if r.Verdict == stats.Worse {
		return errWorse
	}
	return nil
}

// comparison is what --json writes.
type comparison struct {
	*stats.Report
	Layers map[string]map[string]int `json:"layers,omitempty"` // of a and b, as in their reports
	Times  map[string]*times         `json:"times,omitempty"`  // of a and b, where they were measured
}

// ofBoth has what there is of a and b.
func ofBoth[T any](a, b T) map[string]T {
	by := map[string]T{"a": a, "b": b}
	maps.DeleteFunc(by, func(_ string, x T) bool { return reflect.ValueOf(x).IsNil() })
	return by
}

// compared prints a line for each metric that is judged, the worst regression, and the verdict.
func compared(w io.Writer, r *stats.Report, a, b *report) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "metric\tA\tB\tB - A\t95 %\tp (Holm)\tdetectable\tB is\tworst regression")
	for _, c := range r.Metrics {
		if c.Kind == stats.Neutral {
			continue
		}
		worst := ""
		if len(c.Regressions) > 0 {
			i := c.Regressions[0]
			family, k := a.loop(i)
			worst = fmt.Sprintf("%s, loop %d", family.Name, k)
		}
		mean, detectable := stats.Distinct(c.A.Mean, c.B.Mean, 4), "none"
		if c.Detectable != nil {
			detectable = fmt.Sprintf("%.2g", *c.Detectable)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%+.3g\t%.3g to %.3g\t%.2g\t%s\t%s\t%s\n", c.Name, mean[0], mean[1], c.Difference,
			c.Interval.Low, c.Interval.High, c.Adjusted, detectable, c.Verdict, worst)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	stored := a.stored("A: ") + b.stored("B: ")
	if _, err := fmt.Fprintf(w, "\n%s\n%d pairs, %s\n%s", r.Line, r.Pairs, a.Tier, stored); err != nil {
		return err
	}
	return errors.Join(a.Times.shown(w, "A"), b.Times.shown(w, "B"))
}

// regression is a loop in which B is worse than A.
type regression struct {
	loop   int
	metric int // in which it is
}

// regressions are the worst loops, first of all metrics in which B is worse, then of the others: the largest difference
// of each, then the second one, each loop once.
func regressions(r *stats.Report, most int) (out []regression) {
	seen := map[int]bool{}
	for _, worse := range []bool{true, false} {
		for rank := 0; ; rank++ {
			found := false
			for k, c := range r.Metrics {
				if (c.Verdict == stats.Worse) != worse || rank >= len(c.Regressions) {
					continue
				}
				found = true
				if i := c.Regressions[rank]; !seen[i] && len(out) < most {
					seen[i] = true
					out = append(out, regression{i, k})
				}
			}
			if !found {
				break
			}
		}
	}
	return out
}

// mostRegressions is how many loops are written or drawn.
const mostRegressions = 10

func writeRegressions(dir string, r *stats.Report, a, b *report) error {
	for _, x := range regressions(r, mostRegressions) {
		family, k := a.loop(x.loop)
		loop, err := a.tier().ReplayOf(family, a.Seed, k, b.Algorithm)
		if err != nil {
			return err
		}
		loop.MinCosine = b.MinCosine
		path := filepath.Join(dir, fileName(fmt.Sprintf("%s-%d.yaml", family.Name, k)))
		if err := atomicfile.Write(path, loop.Format(x.sides(a, b, a.Algorithm, b.Algorithm))); err != nil {
			return err
		}
	}
	return nil
}

// fileName is a name without what file systems and shells take otherwise.
func fileName(name string) string {
	return strings.Map(func(c rune) rune {
		if c < 128 && (unicode.IsLetter(c) || unicode.IsDigit(c) || strings.ContainsRune("-_.=", c)) {
			return c
		}
		return '_'
	}, name)
}
