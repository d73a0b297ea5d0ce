// Package sim is spark-sim, which runs closed loops of driving by the batch.
//
//	spark-sim list
//	spark-sim show cut-in
//	spark-sim run curve cut-in --algorithm pid --n 100
//	spark-sim run scenarios.yaml --json results.json
//	spark-sim compare pid feedforward --scenarios curve,crosswind
//	spark-sim replay results.json --scenario curve --loop 12 --trace loop.csv
package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spark-compile/spark-compile/bench/scenario"
	"github.com/spark-compile/spark-compile/hal/detect"
	"github.com/spark-compile/spark-compile/internal/cli"
	"github.com/spark-compile/spark-compile/internal/console"
)

// flags is the command line.
type flags struct {
	List listFlags `cmd:"" help:"List scenarios, algorithms, observations, parameters and metrics, or the scenarios of a file."`
	Show showFlags `cmd:"" help:"Show the parameters of a scenario, as a seed draws them."`
	Run  runFlags  `cmd:"" help:"Run scenarios with many seeds, and show what they end with."`

	Compare compareFlags `cmd:"" help:"Compare two algorithms on the same scenarios and seeds; exit with 1 if B is worse."`
	Replay  replayFlags  `cmd:"" help:"Run a loop of a report again, and show what it did in each step."`
}

// command is one of them: kong calls AfterApply of the one that was chosen.
type command struct{ chosen bool }

// AfterApply marks the command.
func (c *command) AfterApply() error { c.chosen = true; return nil }

type listFlags struct {
	command `kong:"-"`
	tierFlag
	File   string `arg:"" optional:"" help:"Scenario file (YAML)."`
	Schema bool   `help:"Print the JSON Schema of scenario files."`
}

type showFlags struct {
	command `kong:"-"`
	tierFlag
	Scenario string `arg:"" help:"Built-in scenario, scenario file, or recorded drive."`
	Seed     uint64 `help:"Seed of what is drawn. Default: 1." default:"1" placeholder:"S"`
	N        int    `name:"n" help:"How many draws to show. Default: 1." default:"1" placeholder:"N"`
}

// Summary is what the command does, in a sentence.
const Summary = "Run closed loops of driving by the batch."

// Main runs the command, under the name that was typed, and returns its exit code.
func Main(name string, args []string, stdout, stderr io.Writer) int {
	stdout = console.EscapeWriter{Writer: cli.Tables(args, stdout, stderr)} // names are those of files
	stderr = console.EscapeWriter{Writer: stderr}
	var f flags
	return cli.Main(&f, name, Summary, args, stdout, stderr, func(ctx context.Context) error {
		switch {
		case f.List.chosen:
			return f.List.run(ctx, stdout, stderr)
		case f.Show.chosen:
			return f.Show.run(ctx, stdout, stderr)
		case f.Run.chosen:
			return detect.Explain(f.Run.run(ctx, stdout, stderr))
		case f.Compare.chosen:
			return detect.Explain(f.Compare.run(ctx, stdout, stderr))
		case f.Replay.chosen:
			return detect.Explain(f.Replay.run(ctx, stdout, stderr))
		}
		return errors.New("no command: list, show, run, compare or replay")
	})
}

// warnTo prints warnings.
func warnTo(stderr io.Writer) func(text string) {
	return func(text string) { fmt.Fprintln(stderr, "warning:", text) }
}

// load is the scenarios that names stand for. A warning says which recorded drives are left out, and why.
func load(ctx context.Context, t scenario.Tier, warn func(string), names ...string) ([]scenario.Family, error) {
	list, left, err := t.Load(ctx, names...)
	for _, err := range left {
		warn(scenario.Left(err))
	}
	return list, err
}

func (f *listFlags) run(ctx context.Context, w, stderr io.Writer) error {
	if f.Schema {
		if f.File != "" {
			return fmt.Errorf("--schema: it is the same for every file; leave %s out", f.File)
		}
		_, err := w.Write(scenario.Schema())
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if f.File != "" {
		tier, err := f.tier()
		if err != nil {
			return err
		}
		list, err := load(ctx, tier, warnTo(stderr), f.File)
		if err != nil {
			return err
		}
		for _, x := range list {
			fmt.Fprintf(t, "%s\t%s\t%s\n", x.Name, console.Count(len(x.Vary), "drawn parameter"),
				strings.Join(slices.Sorted(maps.Keys(x.Vary)), " "))
		}
		return t.Flush()
	}
	fmt.Fprintln(t, "Scenarios\ttier")
	for _, tier := range []scenario.Tier{scenario.Planner, scenario.Controls} {
		for _, x := range tier.Families() {
			fmt.Fprintf(t, "  %s\t%s\t%s\n", x.Name, tier.Short(), x.Doc)
		}
	}
	fmt.Fprintln(t, "\nAlgorithms\ttier")
	for _, x := range scenario.Controllers {
		fmt.Fprintf(t, "  %s\tany\t%s\n", x.Name, x.Doc)
	}
	fmt.Fprintf(t, "  %s\t%s\t%s\n", scenario.Asked.Name, scenario.Controls, scenario.Asked.Doc)
	fmt.Fprintln(t, "\nObservations\tunit\t")
	for _, p := range scenario.Observations {
		fmt.Fprintf(t, "  %s\t%s\t%s\n", p.Name, p.Unit, p.Doc)
	}
	fmt.Fprintln(t, "\nParameters\tdefault\tleast\tmost\tunit\t")
	for _, p := range scenario.Params {
		fmt.Fprintf(t, "  %s\t%v\t%v\t%v\t%s\t%s\n", p.Name, p.Default, p.Low, p.High, p.Unit, p.Doc)
	}
	for _, tier := range []scenario.Tier{scenario.Planner, scenario.Controls} {
		fmt.Fprintf(t, "\nMetrics of tier %s\tunit\t\n", tier.Short())
		for _, m := range tier.Metrics() {
			fmt.Fprintf(t, "  %s\t%s\t%s\n", m.Name, m.Unit, m.Doc)
		}
	}
	return t.Flush()
}

func (f *showFlags) run(ctx context.Context, w, stderr io.Writer) error {
	if f.N < 1 || f.N > 1000 {
		return fmt.Errorf("--n %d: want 1 to 1000", f.N)
	}
	tier, err := f.tier()
	if err != nil {
		return err
	}
	list, err := load(ctx, tier, warnTo(stderr), f.Scenario)
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i := range list {
		var draws []scenario.Scenario
		for k := range f.N {
			s, err := list[i].Draw(f.Seed, k)
			if err != nil {
				return err
			}
			draws = append(draws, s)
		}
		fmt.Fprintln(t, list[i].Name)
		for k, p := range scenario.Params {
			shown := false
			line := "  " + p.Name
			for _, s := range draws {
				shown = shown || s.Values[k] != p.Default
				line += fmt.Sprintf("\t%.5g", s.Values[k])
			}
			if shown {
				fmt.Fprintln(t, line+"\t"+p.Unit)
			}
		}
	}
	return t.Flush()
}
