package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/cli"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/report"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/toolchain"
	"github.com/spark-compile/spark-compile/runtime"
)

// run runs one model.
func (f *flags) run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	if f.Model == "" {
		return errors.New("no model: give DIR or MODEL.onnx")
	}
	if f.Runs < 1 {
		return fmt.Errorf("--runs %d: want at least 1", f.Runs)
	}
	p, err := f.program(ctx, stderr)
	if err != nil {
		return err
	}
	cases, err := f.cases(ctx, p)
	if err != nil {
		return err
	}
	if err := f.origin(ctx, p, stderr, cases); err != nil {
		return err
	}
	var other *peer
	if f.Compare != "" {
		if other, err = f.findPeer(ctx, p); err != nil {
			return err
		}
	}
	t, cases, err := f.join(ctx, p, cases, stderr)
	if err != nil {
		return err
	}
	defer func() { err = t.end(ctx, stdout, len(cases), err) }()
	if len(cases) == 0 {
		return nil
	}
	stdout = t.out(stdout)
	var s *runtime.Session
	d, counts, notices, err := f.open(ctx, func(d hal.Device) (err error) {
		s, err = runtime.Open(ctx, p, d, runtime.ModelOptions{Target: f.Target})
		return err
	})
	if err != nil {
		return err
	}
	defer d.Close()
	defer s.Close()
	for _, n := range notices {
		fmt.Fprintln(stderr, "spark-run:", n)
	}
	if f.Profile && len(cases[0].arrays) == 0 && len(p.Inputs) > 0 {
		fmt.Fprintln(stderr, "spark-run: no inputs given: profiling a run on zeros")
		cases[0].arrays = nil
	}
	var times []float64
	for i := range cases {
		took, err := cases[i].run(ctx, p, s, f)
		if err != nil {
			return err
		}
		times = append(times, took...)
	}
	r := report.Of(p, s.Model().Variant)
	r.RanOn(d.Info())
	summary := report.Summarise(times)
	r.Runs, r.Summary = len(times), &summary
	if f.Profile {
		if err := f.profiled(stdout, p, s.Model().Variant, counts, r); err != nil {
			return err
		}
	}
	if len(f.Trace) > 0 {
		if r.Trace, err = f.trace(ctx, stderr, p, s, d, &cases[0]); err != nil {
			return err
		}
	}
	if other != nil {
		if r.Compared, err = other.run(ctx, p, cases); err != nil {
			return err
		}
	}
	return f.finish(stdout, p, cases, r)
}

// program reads a package or compiles an ONNX file in memory.
func (f *flags) program(ctx context.Context, stderr io.Writer) (*runtime.Program, error) {
	p, err := cli.Package(f.Model)
	switch {
	case p != nil && (f.Precision != "" || len(f.Shape) > 0 || f.IO != "file"):
		return nil, fmt.Errorf("%s is already compiled: --precision, --shape and --io apply to ONNX files only", f.Model)
	case p != nil || err != nil:
		return p, err
	}
	name, err := cli.Precision(f.Precision, stderr)
	if err != nil {
		return nil, err
	}
	tell, clear := cli.Progress(stderr, false)
	defer clear()
	opt := compile.Options{Precision: name, Targets: []string{cmp.Or(f.Target, target.Default().Name)}, MinCosine: compile.Budget(name, nil),
		Calibrate: f.Calibrate, Validate: f.Validate, CalibrationCache: f.Findings, Trace: len(f.Trace) > 0, Progress: tell,
		Warn: func(text string) {
			clear()
			fmt.Fprintln(stderr, "warning:", text)
		}}
	opt.Import.Shapes, opt.Import.MaxOutput = f.Shape, f.MaxOutput
	opt.F32Inputs, opt.F32Outputs = f.IO == "f32", f.IO == "f32"
	if f.Profile { // for register counts, without which occupancy is an upper bound
		if opt.Assembler, err = toolchain.FindPtxas(ctx); err != nil && !errors.Is(err, toolchain.ErrNoPtxas) {
			return nil, err
		}
	}
	m, err := onnx.Load(f.Model)
	if err != nil {
		return nil, err
	}
	r, err := compile.Compile(ctx, m, opt)
	if err != nil {
		return nil, err
	}
	r.Program.Provenance = r.Provenance()
	f.made = r
	return r.Program, nil
}

// finish prints the result, compares the outputs and writes the report.
func (f *flags) finish(w io.Writer, p *runtime.Program, cases []testCase, r *report.Report) error {
	fmt.Fprintf(w, "%s %s on %s: %s, arena %.2f MB, weights %.2f MB\n", r.Model, r.Precision, r.Device, console.Count(r.Launches, "launch"), float64(r.ArenaBytes)/1e6, float64(r.WeightsBytes)/1e6)
	fmt.Fprintf(w, "%s: %s\n", console.Count(r.Runs, "run"), r.Text(r.Runs))
	if f.Check {
		fmt.Fprintf(w, "checked in %s a run: bounds, alignment and initialisation of memory, declared reads and writes, races, synchronisation; nothing found\n", console.Count(r.Launches, "launch"))
	}
	var missed error
	if cases[0].want != nil {
		var err error
		if missed, err = f.compare(w, p, cases, r); err != nil {
			return err
		}
	}
	if r.Trace != nil {
		fmt.Fprintln(w)
		if err := r.Trace.Table(w); err != nil {
			return err
		}
		if r.Trace.FirstBad != nil || !r.Trace.SameBits {
			missed = errBad
		}
	}
	if f.JSON != "" {
		if err := r.Write(f.JSON); err != nil {
			return err
		}
	}
	return missed
}

// bounds are what outputs must meet: those of the flags, else those of the precision.
type bounds struct {
	rtol, atol    float64
	within        bool                 // every element is to be within rtol and atol
	cosine, relL2 float64              // 0: no bound
	row           *precision.Precision // the last two are its bounds for an output's type; nil: they are as they stand
	none          bool
	what          string // for the reader
}

// of are the bounds of an output.
func (b bounds) of(q runtime.Port) bounds {
	if b.row != nil {
		b.cosine, b.relL2 = b.row.Bounds(q.DType)
	}
	return b
}

// list says what is wanted of the outputs, by element type where that differs.
func (b bounds) list(p *runtime.Program) string {
	var types, each []string
	for _, q := range p.Outputs {
		c := b.of(q)
		text := fmt.Sprintf("cosine ≥ %g, relative L2 ≤ %.3g", c.cosine, c.relL2)
		if at := slices.Index(each, text); at < 0 {
			types, each = append(types, q.DType), append(each, text)
		}
	}
	if len(each) > 1 {
		for i := range each {
			each[i] = fmt.Sprintf("of %s outputs %s", types[i], each[i])
		}
	}
	return strings.Join(each, "; ")
}

func (f *flags) bounds(p *runtime.Program) bounds {
	b := bounds{rtol: 1e-3, atol: 1e-5}
	if f.Rtol != nil {
		b.rtol = *f.Rtol
	}
	if f.Atol != nil {
		b.atol = *f.Atol
	}
	if f.Rtol != nil || f.Atol != nil || f.MinCosine != nil {
		var list []string
		if f.MinCosine != nil {
			b.cosine = *f.MinCosine
			list = append(list, fmt.Sprintf("cosine ≥ %g", b.cosine))
		}
		if b.within = f.Rtol != nil || f.Atol != nil; b.within {
			list = append(list, fmt.Sprintf("every element within %g + %g·|expected|", b.atol, b.rtol))
		}
		b.what = "wanted: " + strings.Join(list, ", ")
		return b
	}
	const flags = "; --min-cosine, --rtol and --atol want something else"
	row, err := precision.Lookup(p.Precision)
	switch made := p.Provenance.Accuracy; {
	case err == nil && f.golden: // of a program that is calibrated, these are of its own rounding
		b.row = row
		b.what = "the package's own golden run; wanted: " + b.list(p)
	case err != nil || row.Calibrates() && (made == nil || made.Budget <= 0):
		b.none = true
		b.what = fmt.Sprintf("not judged: %s was compiled without an accuracy budget; --min-cosine, --rtol and --atol set bounds", p.Precision)
	case row.Calibrates():
		b.cosine = made.Budget
		b.what = fmt.Sprintf("wanted: cosine ≥ %g, the budget that it was compiled with%s", b.cosine, flags)
	default:
		b.row = row
		b.what = fmt.Sprintf("wanted in %s: %s%s", row.Name, b.list(p), flags)
	}
	return b
}

// met reports whether figures meet the bounds. Outputs that agree exactly do, whatever their cosine: zeros have none.
func (b bounds) met(m runtime.Metrics) bool {
	if b.within && m.Within < 1 {
		return false
	}
	return m.MaxAbs == 0 || m.Cosine >= b.cosine && (b.relL2 == 0 || m.RelL2 <= b.relL2)
}

// compare compares every output with the expected array of its name. Over several cases it reports the largest difference,
// the smallest cosine and the mean of the other figures. missed is errMiss if a bound is not met.
func (f *flags) compare(w io.Writer, p *runtime.Program, cases []testCase, r *report.Report) (missed, err error) {
	b := f.bounds(p)
	got, want := map[string][][]float64{}, map[string][][]float64{}
	var rows []compared
	var absent []string
	for _, out := range p.Outputs {
		if cases[0].want[out.Name] == nil {
			absent = append(absent, out.Name)
			continue
		}
		all := runtime.Metrics{Cosine: 1}
		for _, c := range cases {
			ref, err := c.want[out.Name].Float64s()
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", c.expect, out.Name, err)
			}
			m, err := runtime.Compare(c.got[out.Name], ref, b.rtol, b.atol)
			if err != nil {
				return nil, fmt.Errorf("output %q: %w", out.Name, err)
			}
			all.MaxAbs, all.Cosine = max(all.MaxAbs, m.MaxAbs), min(all.Cosine, m.Cosine)
			all.RelL2 += m.RelL2 / float64(len(cases))
			all.Within += m.Within / float64(len(cases))
			got[out.Name], want[out.Name] = append(got[out.Name], c.got[out.Name]), append(want[out.Name], ref)
		}
		row := compared{Output: report.Output{Name: out.Name, Metrics: all}}
		if row.note = b.judge(out, &row.Output); row.Met != nil && !*row.Met {
			missed = errMiss
		}
		rows = append(rows, row)
	}
	if r.Compared != nil {
		slices.SortStableFunc(rows, worstFirst)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "output\tmax abs\tcosine\trelative L2\twithin\t")
	for _, x := range rows {
		fmt.Fprintf(t, "%s\t%.3g\t%.9f\t%.3g\t%.4f\t%s\n", x.Name, x.MaxAbs, x.Cosine, x.RelL2, x.Within, x.note)
		r.Outputs = append(r.Outputs, x.Output)
	}
	for _, name := range absent {
		fmt.Fprintf(t, "%s\t\t\t\t\tnot in %s\n", name, cases[0].expect)
	}
	if err := t.Flush(); err != nil {
		return nil, err
	}
	if r.Compared != nil {
		fmt.Fprintf(w, "compared with %s %s on the CPU, running %s\n", r.Compared.Name, r.Compared.Version, r.Compared.Model)
	}
	fmt.Fprintln(w, b.what)
	judged := slices.DeleteFunc(calibrate.SlicesOf(p), func(s calibrate.Slice) bool { return want[s.Output] == nil })
	if r.Slices, err = calibrate.MeasureAll(judged, got, want); err != nil {
		return nil, err
	}
	if len(cases) == 1 && len(judged) == len(r.Outputs) { // the table above has everything
		return missed, nil
	}
	fmt.Fprintln(w)
	return missed, report.Slices(w, r.Slices, len(cases))
}
