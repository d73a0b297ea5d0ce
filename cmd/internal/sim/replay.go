package sim

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"text/tabwriter"

	"github.com/spark-compile/spark-compile/bench/scenario"
	"github.com/spark-compile/spark-compile/hal/detect"
	"github.com/spark-compile/spark-compile/internal/atomicfile"
	"github.com/spark-compile/spark-compile/internal/cli"
	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/internal/npy"
	samples "github.com/spark-compile/spark-compile/internal/report"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

type replayFlags struct {
	command `kong:"-"`
	budgetFlag
	File      string  `arg:"" help:"Report that run --json wrote, or file that compare --regressions wrote."`
	Scenario  string  `help:"Scenario of the report. Default: that of its first loop that failed, else its first." placeholder:"S" names:""`
	Loop      *int    `help:"Number of the loop. Default: the first of that scenario that failed, else 0." placeholder:"K"`
	Algorithm string  `help:"What drives. Default: what drove." placeholder:"A" names:""`
	Route     string  `help:"Recorded route whose pictures models see. Default: that of the report." placeholder:"DIR"`
	Device    string  `help:"auto, cuda, cuda:N or emu; default: SPARK_DEVICE, else auto." placeholder:"NAME"`
	Every     float64 `help:"Seconds between the rows that are shown. Default: 1." default:"1" placeholder:"SECONDS"`
	Trace     string  `help:"Write all steps to this file: .csv, .npz with an array for each column, or as an openpilot log, rlog or rlog.zst." placeholder:"FILE" writes:""`
}

// errOther reports that a loop did not end as it did in the report.
const errOther = cli.Failure("the loop ended otherwise than in the report")

func (f *replayFlags) run(ctx context.Context, w, stderr io.Writer) error {
	if f.Trace != "" && !isLog(f.Trace) && !slices.Contains([]string{".csv", ".npz"}, filepath.Ext(f.Trace)) {
		return fmt.Errorf("--trace %s: want a name that ends in .csv or .npz, or rlog or rlog.zst", f.Trace)
	}
	if f.Trace != "" {
		if err := samples.CheckPath(f.Trace); err != nil {
			return err
		}
	}
	if !(f.Every > 0) {
		return fmt.Errorf("--every %v: want seconds above 0", f.Every)
	}
	f.Route, f.Algorithm = cleanPath(f.Route), cleanAlgorithm(f.Algorithm)
	loop, was, in, err := f.find()
	if err != nil {
		return err
	}
	if f.Algorithm != "" && f.Algorithm != loop.Algorithm {
		loop.Algorithm, loop.MinCosine, was = f.Algorithm, nil, nil // nothing to compare with
	}
	if f.MinCosine != nil {
		if err := f.check(loop.Algorithm); err != nil {
			return err
		}
		if budget(loop.Algorithm, loop.MinCosine) != *f.MinCosine {
			loop.MinCosine, was = f.MinCosine, nil
		}
	}
	a, err := scenario.Named(loop.Algorithm)
	if err != nil {
		return err
	}
	if in != nil && f.Algorithm == "" {
		switch what, err := in.changed(ctx, a); {
		case err != nil:
			return err
		case what != "":
			return fmt.Errorf("%s: %s has changed since; give --algorithm to drive nevertheless", f.File, what)
		}
	}
	d, notice, err := detect.Open(ctx, detect.Options{Name: f.Device, Called: "--device"})
	if err != nil {
		return err
	}
	defer d.Close()
	if notice != "" {
		fmt.Fprintln(stderr, notice)
	}
	r := &report{Route: f.Route, MinCosine: loop.MinCosine}
	r.Tier = tierOf(a, planned(loop.Tier))
	run, err := r.runner(ctx, d)
	if err != nil {
		return err
	}
	result, traces, err := run.Record(ctx, []scenario.Scenario{loop.Scenario}, a, loop.Seed)
	if err != nil {
		return err
	}
	if f.Trace != "" {
		write := writeTrace
		if isLog(f.Trace) {
			write = writeLog
		}
		if err := write(f.Trace, &traces[0]); err != nil {
			return err
		}
	}
	fmt.Fprintf(w, "%s, loop %d, seed %d: %s, %s on %s\n\n", loop.Family, loop.Loop, loop.Seed, loop.Algorithm,
		r.Tier, d.Info().Name)
	if err := shown(w, &traces[0], f.Every); err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t)
	other := 0
	for k, m := range r.tier().Metrics() {
		fmt.Fprintf(t, "%s\t%.5g\t%s", m.Name, result.Metrics[0][k], m.Unit)
		if was != nil && was[k] != result.Metrics[0][k] {
			fmt.Fprintf(t, "\twas %.5g", was[k])
			other++
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	switch {
	case was == nil:
		return nil
	case other > 0:
		fmt.Fprintf(w, "\n%s of %d differ from those in %s: it ran on %s by version %s\n",
			console.Count(other, "metric"), len(was), f.File, in.Device, in.Program)
		return errOther
	}
	_, err = fmt.Fprintf(w, "\nthe same bits as in %s\n", f.File)
	return err
}

// planned is a tier without pictures, which an algorithm that sees some brings.
func planned(t scenario.Tier) scenario.Tier {
	if t == scenario.Pictures {
		return scenario.Planner
	}
	return t
}

// find is the loop that the arguments name, and if it is of a report what it ended with, and the report.
func (f *replayFlags) find() (loop *scenario.Replay, was []float64, in *report, err error) {
	if ext := filepath.Ext(f.File); ext == ".yaml" || ext == ".yml" {
		if f.Scenario != "" || f.Loop != nil {
			return nil, nil, nil, fmt.Errorf("--scenario and --loop: %s is one loop", f.File)
		}
		loop, err := scenario.ReadReplay(f.File)
		if err == nil && loop.Algorithm == "" && f.Algorithm == "" {
			err = fmt.Errorf("%s does not say what drove; give --algorithm", f.File)
		}
		return loop, nil, nil, err
	}
	r, err := readReport(f.File)
	if err != nil {
		return nil, nil, nil, err
	}
	f.Route = cmp.Or(f.Route, r.Route)
	if len(r.Metrics) == 0 {
		return nil, nil, nil, fmt.Errorf("%s: no loop has ended", f.File)
	}
	first, ok := -1, false
	for i := range r.Metrics {
		family, k := r.loop(i)
		if f.Scenario != "" && family.Name != f.Scenario || f.Loop != nil && k != *f.Loop {
			continue
		}
		if first < 0 {
			first = i
		}
		if ok = r.failed(i); ok {
			first = i
			break
		}
	}
	if first < 0 {
		var names []string
		for _, s := range r.Scenarios {
			names = append(names, s.Name)
		}
		return nil, nil, nil, fmt.Errorf("%s has no such loop: it has loops 0 to %d of %v, of which %d ended", f.File,
			r.N-1, names, len(r.Metrics))
	}
	family, k := r.loop(first)
	if loop, err = r.tier().ReplayOf(family, r.Seed, k, r.Algorithm); err == nil {
		loop.MinCosine = r.MinCosine
	}
	return loop, r.Metrics[first], r, err
}

// shown prints rows of a trace at such times, and the last one.
func shown(w io.Writer, trace *scenario.Trace, every float64) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	var columns []int
	for i, c := range trace.Columns {
		if math.IsNaN(trace.Rows[0][i]) { // of a car that is not there
			continue
		}
		columns = append(columns, i)
		fmt.Fprintf(t, "%s\t", c.Name)
	}
	fmt.Fprintln(t)
	for _, i := range columns {
		fmt.Fprintf(t, "%s\t", trace.Columns[i].Unit)
	}
	fmt.Fprintln(t)
	next := 0.0
	for i, row := range trace.Rows {
		if row[0] < next-scenario.Step/2 && i < len(trace.Rows)-1 {
			continue
		}
		next = (math.Floor(row[0]/every+0.5) + 1) * every
		for _, k := range columns {
			fmt.Fprintf(t, "%.4g\t", row[k])
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// writeTrace writes a row for each step, as CSV or as arrays.
func writeTrace(path string, trace *scenario.Trace) error {
	if filepath.Ext(path) == ".npz" {
		arrays := map[string]*npy.Array{}
		for k, c := range trace.Columns {
			var x []float64
			for _, row := range trace.Rows {
				x = append(x, row[k])
			}
			arrays[c.Name] = &npy.Array{DType: ir.Float64.String(), Shape: []int{len(x)}, Data: runtime.Bytes(x)}
		}
		return npy.WriteZip(path, arrays)
	}
	var b bytes.Buffer
	out := csv.NewWriter(&b)
	var line []string
	for _, c := range trace.Columns {
		line = append(line, c.Name)
	}
	rows := [][]string{line}
	for _, row := range trace.Rows {
		var line []string
		for _, x := range row {
			text := strconv.FormatFloat(x, 'g', -1, 64)
			if math.IsNaN(x) { // of a car that is not there
				text = ""
			}
			line = append(line, text)
		}
		rows = append(rows, line)
	}
	if err := out.WriteAll(rows); err != nil {
		return err
	}
	return atomicfile.Write(path, b.Bytes())
}
