package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spark-compile/spark-compile/bench/scenario"
	"github.com/spark-compile/spark-compile/internal/atomicfile"
	"github.com/spark-compile/spark-compile/internal/cli"
	"github.com/spark-compile/spark-compile/internal/console"
	samples "github.com/spark-compile/spark-compile/internal/report"
)

type runFlags struct {
	command `kong:"-"`
	tierFlag
	budgetFlag
	Scenarios []string `arg:"" optional:"" help:"Built-in scenarios, scenario files, or recorded drives (.csv, directories)." names:""`
	Algorithm string   `help:"What drives: one that spark-sim list names, the ONNX file of a policy or driving model, or vision.onnx+policy.onnx; policy.onnx:fp16 in that precision. Default: pid." placeholder:"A" names:""`
	Route     string   `help:"Run on the road of a recorded route, and show driving models its pictures from where they are. Default scenario: the route itself." placeholder:"DIR"`
	Precision string   `help:"Precision of a policy or of models, as behind the colon of --algorithm. Default: fp32." placeholder:"P"`
	N         *int     `name:"n" help:"How many times each scenario runs, with other draws and noise. Default: 100." placeholder:"N"`
	Seed      *uint64  `help:"Seed of draws and noise. Default: 1." placeholder:"S"`
	Device    string   `help:"auto, cuda, cuda:N or emu; default: SPARK_DEVICE, else auto." placeholder:"NAME"`
	Ranks     bool     `help:"Under mpirun, torchrun or Slurm: split the loops over the ranks; the first one writes what one process would."`
	Resume    string   `help:"Go on with a run that was stopped, from its report. What is given besides must be the same." placeholder:"FILE"`
	JSON      string   `name:"json" help:"Write metrics of every loop to this file; - is standard output, and the table goes to standard error. Default with --resume: that file." placeholder:"FILE" writes:"" over:"resume"`
	JSONL     string   `name:"jsonl" help:"Write a line of JSON for every loop to this file, as loops end." placeholder:"FILE" writes:""`
	NPZ       string   `name:"npz" help:"Write metrics and parameters of every loop to this file, an array each." placeholder:"FILE" writes:""`
	HTML      string   `name:"html" help:"Write a page with distributions and the worst loops, seen from above, to this file." placeholder:"FILE" writes:""`
	Times     bool     `help:"Also say what a step takes, cold and warm: measured here, and predicted for the default target. A report then has times, which no two runs share."`
	Quiet     bool     `help:"Show no progress."`

	batch int              // loops at once; 0: the default
	every time.Duration    // between savings of the report while loops run; 0: saveEvery
	ended func(of *report) // is told when loops have ended, for tests
	tell  func(console.Event)
}

// saveEvery is how often a report is saved while loops run, so that a run that is killed loses no more.
const saveEvery = time.Minute

// maxLoops is the most that a run may have.
const maxLoops = 1 << 20

func (f *runFlags) run(ctx context.Context, w, stderr io.Writer) (err error) {
	j, err := f.join(ctx, stderr)
	if err != nil {
		return err
	}
	defer func() { err = j.end(err) }()
	if err := j.same(ctx, f); err != nil {
		return err
	}
	var s *start
	if j.rank() == 0 {
		if s, err = f.begin(ctx, stderr); err != nil {
			return err
		}
	}
	if s, err = j.share(ctx, s); err != nil {
		return err
	}
	if j.rank() != 0 { // the first one writes
		_, _, err = f.simulate(ctx, j, s, nil, stderr)
		return err
	}
	r := s.Report
	var out *lines
	if f.JSONL != "" {
		if out, err = createLines(f.JSONL); err != nil {
			return err
		}
		defer out.close()
		if err := out.add(r, 0); err != nil {
			return err
		}
	}
	end, left, stopped := f.simulate(ctx, j, s, out, stderr)
	if stopped != nil && len(r.Metrics) == s.Ended && len(left) == 0 { // files that it goes on from stay as they are
		return stopped
	}
	return errors.Join(stopped, f.write(ctx, r, end, s.others(left), w, stderr), out.close())
}

// begin is what the run begins with: nothing, or with --resume what another one had.
func (f *runFlags) begin(ctx context.Context, stderr io.Writer) (*start, error) {
	r, err := f.plan(ctx, warnTo(stderr))
	if err != nil {
		return nil, err
	}
	for _, path := range []string{f.JSON, f.NPZ, f.HTML} { // before hours of work, not after
		if path != "" && !atomicfile.IsStdout(path) {
			if err := samples.CheckPath(path); err != nil {
				return nil, err
			}
		}
	}
	s := &start{Report: r, Ended: len(r.Metrics)}
	if r.State != "" {
		if s.Checkpoints, err = readState(f.Resume, r); err != nil {
			fmt.Fprintf(stderr, "loops that were on their way start anew: %v\n", err)
		}
		r.State = ""
	}
	return s, nil
}

// write writes the files that are asked for, and shows what a run ended with. What cannot be written keeps nothing else
// from being.
func (f *runFlags) write(
	ctx context.Context, r *report, end string, left []scenario.Checkpoint, w, stderr io.Writer,
) error {
	var failed error
	kept := "give --json FILE to keep such loops and go on from them"
	if f.JSON != "" {
		written, err := f.writeJSON(r, left)
		failed = err
		switch {
		case !written:
			kept = f.JSON + " could not be written"
		case !atomicfile.IsStdout(f.JSON):
			kept = fmt.Sprintf("%s has them; go on with --resume %s", f.JSON, f.JSON)
		}
	}
	if f.NPZ != "" {
		failed = errors.Join(failed, r.writeNPZ(f.NPZ))
	}
	if f.HTML != "" && ctx.Err() == nil && len(r.Metrics) > 0 {
		failed = errors.Join(failed, writePage(ctx, f.HTML, f.Device, []*report{r}, nil))
	}
	failed = errors.Join(failed, r.show(w, end))
	if r.Partial {
		way := ""
		if r.State != "" {
			way = fmt.Sprintf(", and on the way of %s", console.Count(loopsOf(left), "other"))
		}
		_, err := fmt.Fprintf(stderr, "stopped behind %d of %s%s: %s\n", len(r.Metrics),
			console.Count(r.total(), "loop"), way, kept)
		failed = errors.Join(failed, err)
	}
	return failed
}

// show prints the table, what the run was, and what a step takes where that was measured.
func (r *report) show(w io.Writer, end string) error {
	if err := table(w, r); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(w, "\n%s\n%s", end, r.stored("")); err != nil {
		return err
	}
	return r.Times.shown(w, r.Algorithm)
}

// plan is the report of a run of which no loop has ended yet, or with --resume the first ones.
func (f *runFlags) plan(ctx context.Context, warn func(string)) (*report, error) {
	f.Route = cleanPath(f.Route)
	var was *report
	if f.Resume != "" {
		var err error
		if was, err = readReport(f.Resume); err != nil {
			return nil, err
		}
		if f.JSON == "" {
			f.JSON = f.Resume
		}
	}
	r := &report{Version: reportVersion, Program: cli.Version(), Seed: 1, N: 100}
	tier, err := f.tier()
	if err != nil {
		return nil, err
	}
	if r.Algorithm = "pid"; tier == scenario.Controls {
		r.Algorithm = scenario.Asked.Name
	}
	if was != nil {
		r.Algorithm, r.Seed, r.N, r.Scenarios, r.Device = was.Algorithm, was.Seed, was.N, was.Scenarios, was.Device
		r.Route, r.MinCosine = was.Route, was.MinCosine
		if f.Tier == "" && was.tier() != scenario.Pictures {
			tier = was.tier()
		}
	}
	if f.Algorithm != "" {
		r.Algorithm = cleanAlgorithm(f.Algorithm)
	}
	if f.Precision != "" {
		paths, in := scenario.FilesOf(r.Algorithm)
		switch {
		case len(paths) == 0:
			return nil, fmt.Errorf("--precision %s: algorithm %q has no network; leave it out", f.Precision,
				r.Algorithm)
		case in != "" && in != f.Precision:
			return nil, fmt.Errorf("--precision %s: algorithm %q has another one; leave one of them out", f.Precision,
				r.Algorithm)
		}
		r.Algorithm = strings.Join(paths, "+") + ":" + f.Precision
	}
	if f.MinCosine != nil {
		if err := f.check(r.Algorithm); err != nil {
			return nil, err
		}
		r.MinCosine = f.MinCosine
	}
	if f.Seed != nil {
		r.Seed = *f.Seed
	}
	if f.N != nil {
		r.N = *f.N
	}
	if len(f.Scenarios) > 0 {
		if r.Scenarios, err = load(ctx, tier, warn, f.Scenarios...); err != nil {
			return nil, err
		}
	}
	if was != nil && f.Route != "" && f.Route != was.Route {
		return nil, fmt.Errorf("--route %s: %s is a report of route %q; run anew without --resume", f.Route, f.Resume,
			was.Route)
	}
	route := f.Route
	if was != nil {
		if route = ""; len(f.Scenarios) > 0 { // those of the report are on the road already
			route = was.Route
		}
	}
	a, err := scenario.Named(r.Algorithm)
	if err != nil {
		return nil, err
	}
	r.Tier = tierOf(a, tier)
	if route != "" {
		if err := r.take(ctx, route, warn); err != nil {
			return nil, err
		}
	}
	if len(r.Scenarios) == 0 {
		return nil, errors.New("no scenario: give names or files, --route DIR, or --resume FILE")
	}
	if r.N < 1 || r.N > maxLoops/len(r.Scenarios) {
		return nil, fmt.Errorf("--n %d of %s: want 1 to %d loops in all", r.N,
			console.Count(len(r.Scenarios), "scenario"), maxLoops)
	}
	if r.Digest, err = digest(a); err != nil {
		return nil, err
	}
	if r.Pictures, err = r.pictures(ctx); err != nil {
		return nil, fmt.Errorf("--route: %w", err)
	}
	r.Columns = columns(r.tier())
	if was == nil {
		return r, nil
	}
	if d := differences(was, r, true); d != "" {
		return nil, fmt.Errorf("%s is a report of another run: %s; leave that out, or run anew without --resume",
			f.Resume, d)
	}
	r.Metrics, r.Partial, r.State, r.Layers = was.Metrics, was.Partial, was.State, was.Layers
	return r, nil
}

// table prints, for each scenario, rates of failure and of each other metric the median and the worst loop.
func table(w io.Writer, r *report) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "scenario\tfailed")
	shown := []string{"collision", "out_of_lane", "disengaged", "offset_max", "settled", "time_to_collision",
		"lateral_jerk", "brake_max"}
	if r.tier() == scenario.Controls {
		shown = []string{"diverged", "lateral_error", "lateral_error_max", "accel_error", "accel_error_max",
			"speed_error", "jerk"}
	}
	metrics := r.tier().Metrics()
	var columns []int
	for i, m := range metrics {
		if slices.Contains(shown, m.Name) {
			columns = append(columns, i)
			fmt.Fprintf(t, "\t%s", m.Name)
		}
	}
	fmt.Fprintln(t)
	for i := range r.Scenarios {
		name := r.Scenarios[i].Name
		rows := r.Metrics[min(i*r.N, len(r.Metrics)):min((i+1)*r.N, len(r.Metrics))]
		if len(rows) == 0 {
			continue // the run was stopped before
		}
		failed := 0
		for k := range rows {
			if r.failed(i*r.N + k) {
				failed++
			}
		}
		fmt.Fprintf(t, "%s\t%d of %d", name, failed, len(rows))
		for _, k := range columns {
			values := make([]float64, 0, len(rows))
			sum := 0.0
			for _, row := range rows {
				values = append(values, row[k])
				sum += row[k]
			}
			sort.Float64s(values)
			if m := metrics[k]; m.Failure {
				fmt.Fprintf(t, "\t%.0f", sum)
			} else {
				fmt.Fprintf(t, "\t%.3g / %.3g", values[len(values)/2], worst(values, m))
			}
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprint(w, "of metrics with two numbers: the median loop and the worst\n", r.outside())
	return err
}
