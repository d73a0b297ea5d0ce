package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/cli"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/ptxas"
	"github.com/spark-compile/spark-compile/internal/report"
	"github.com/spark-compile/spark-compile/runtime"
)

// run runs one model.
func (f *flags) run(ctx context.Context, stdout, stderr io.Writer) error {
	if f.Model == "" {
		return errors.New("no model: spark-run DIR or spark-run MODEL.onnx")
	}
	if f.Runs < 1 {
		return fmt.Errorf("--runs %d: want at least 1", f.Runs)
	}
	p, err := f.program(ctx, stderr)
	if err != nil {
		return err
	}
	arrays, err := f.inputs()
	if err != nil {
		return err
	}
	want, err := f.expected(p)
	if err != nil {
		return err
	}
	var m *runtime.Model
	var s *runtime.Session
	d, counts, notices, err := f.open(ctx, func(d hal.Device) (err error) {
		if m, err = runtime.NewModel(ctx, p, d, runtime.ModelOptions{Target: f.Target}); err != nil {
			return err
		}
		if s, err = m.NewSession(ctx, runtime.SessionOptions{}); err != nil {
			return errors.Join(err, m.Close())
		}
		return nil
	})
	if err != nil {
		return err
	}
	defer d.Close()
	defer m.Close()
	defer s.Close()
	for _, n := range notices {
		fmt.Fprintln(stderr, "spark-run:", n)
	}
	if f.Profile && len(f.Input) == 0 {
		fmt.Fprintln(stderr, "spark-run: no inputs: profiling a run on zeros")
	} else if err := fill(p, s, arrays); err != nil {
		return err
	}
	times := make([]time.Duration, f.Runs)
	for i := range times {
		begin := time.Now()
		if err := s.Run(ctx); err != nil {
			return err
		}
		times[i] = time.Since(begin)
	}
	info := d.Info()
	r := report.Of(p, m.Variant)
	r.Device = fmt.Sprintf("%s (%s)", info.Name, info.Backend)
	r.Time(times)
	if f.Profile {
		if err := f.profiled(stdout, p, m.Variant, counts, r); err != nil {
			return err
		}
	}
	return f.finish(stdout, p, s, want, r)
}

// program reads a package, or compiles an ONNX file in memory.
func (f *flags) program(ctx context.Context, stderr io.Writer) (*runtime.Program, error) {
	info, err := os.Stat(f.Model)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		if f.Precision != "" || len(f.Shape) > 0 {
			return nil, fmt.Errorf("%s is compiled already: --precision and --shape are for ONNX files", f.Model)
		}
		p, err := runtime.Read(os.DirFS(f.Model))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Model, err)
		}
		return p, nil
	}
	precision, err := cli.Precision(f.Precision, stderr)
	if err != nil {
		return nil, err
	}
	target := f.Target
	if target == "" {
		target = "sm_121"
	}
	opt := compile.Options{Precision: precision, Targets: []string{target}, MinCosine: calibrate.DefaultMinCosine,
		Warn: func(text string) { fmt.Fprintln(stderr, "warning:", text) }}
	if opt.Import.Shapes, err = cli.Shapes(f.Shape); err != nil {
		return nil, err
	}
	if f.Profile { // for the registers; occupancy is an upper bound without them
		if opt.Assembler, err = ptxas.Find(ctx); err != nil && !errors.Is(err, ptxas.ErrNotFound) {
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
	return r.Program, nil
}

// given is an array from the command line; named says that its flag named it, so that it must be an input.
type given struct {
	*npy.Array
	named bool
}

// inputs reads the --input flags.
func (f *flags) inputs() (map[string]given, error) {
	out := map[string]given{}
	for _, in := range f.Input {
		name, path, ok := strings.Cut(in, "=")
		switch {
		case ok && strings.HasSuffix(path, ".npy"):
			a, err := npy.ReadFile(path)
			if err != nil {
				return nil, err
			}
			if out[name].named {
				return nil, fmt.Errorf("--input %s: given twice", name)
			}
			out[name] = given{a, true}
		case strings.HasSuffix(in, ".npz"):
			all, err := npy.ReadZip(in)
			if err != nil {
				return nil, err
			}
			for n, a := range all {
				if !out[n].named {
					out[n] = given{a, false}
				}
			}
		default:
			return nil, fmt.Errorf("--input %s: want NAME=FILE.npy or FILE.npz", in)
		}
	}
	return out, nil
}

// fill copies the arrays into the session's inputs. Arrays of a .npz that are no inputs are not looked at.
func fill(p *runtime.Program, s *runtime.Session, arrays map[string]given) error {
	states := map[string]bool{}
	for _, st := range p.States {
		states[st.Input] = true
	}
	var missing []string
	known := map[string]bool{}
	for _, in := range p.Inputs {
		known[in.Name] = true
		a := arrays[in.Name]
		if a.Array == nil {
			if !states[in.Name] {
				missing = append(missing, fmt.Sprintf("%s %s%v", in.Name, in.DType, in.Shape))
			}
			continue
		}
		data, err := a.As(in.DType, in.Shape)
		if err != nil {
			return fmt.Errorf("input %q: %w", in.Name, err)
		}
		if states[in.Name] {
			if err := s.SetState(in.Name, data); err != nil {
				return err
			}
			continue
		}
		copy(s.Input(in.Name), data)
	}
	if len(missing) > 0 {
		return fmt.Errorf("missing inputs: %s; give them with --input NAME=FILE.npy or --input FILE.npz", strings.Join(missing, ", "))
	}
	var extra []string
	for n, a := range arrays {
		if !known[n] && a.named {
			extra = append(extra, n)
		}
	}
	if len(extra) > 0 {
		slices.Sort(extra)
		return fmt.Errorf("%s has no input %s", p.Model, strings.Join(extra, ", "))
	}
	return nil
}

// finish writes and compares the outputs and prints what there is to say.
func (f *flags) finish(w io.Writer, p *runtime.Program, s *runtime.Session, want map[string]*npy.Array, r *report.Report) error {
	fmt.Fprintf(w, "%s %s on %s: %d launches, arena %.2f MB, weights %.2f MB\n", r.Model, r.Precision, r.Device, r.Launches, float64(r.ArenaBytes)/1e6, float64(r.WeightsBytes)/1e6)
	fmt.Fprintf(w, "%d runs: mean %.3f ms, p50 %.3f ms, p99 %.3f ms\n", r.Runs, r.MeanMS, r.P50MS, r.P99MS)
	if f.OutputDir != "" {
		if err := writeOutputs(f.OutputDir, p, s); err != nil {
			return err
		}
	}
	var missed error
	if f.Expect != "" {
		var err error
		if missed, err = f.compare(w, p, s, want, r); err != nil {
			return err
		}
	}
	if f.JSON != "" {
		if err := r.Write(f.JSON); err != nil {
			return err
		}
	}
	return missed
}

func writeOutputs(dir string, p *runtime.Program, s *runtime.Session) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, out := range p.Outputs {
		a := &npy.Array{DType: out.DType, Shape: out.Shape, Data: s.Output(out.Name)}
		if err := npy.WriteFile(filepath.Join(dir, url.PathEscape(out.Name)+".npy"), a); err != nil {
			return err
		}
	}
	return nil
}

// expected reads the file of --expect, nil without one, and holds its arrays against the outputs' shapes, in which
// dimensions of 1 do not count.
func (f *flags) expected(p *runtime.Program) (map[string]*npy.Array, error) {
	if f.Expect == "" {
		return nil, nil
	}
	want, err := npy.ReadZip(f.Expect)
	if err != nil {
		return nil, err
	}
	long := func(shape []int) []int {
		return slices.DeleteFunc(slices.Clone(shape), func(d int) bool { return d == 1 })
	}
	found := false
	for _, out := range p.Outputs {
		a := want[out.Name]
		if a == nil {
			continue
		}
		found = true
		if !slices.Equal(long(a.Shape), long(out.Shape)) {
			return nil, fmt.Errorf("%s: %s has shape %v, the output %v", f.Expect, out.Name, a.Shape, out.Shape)
		}
	}
	if !found {
		return nil, fmt.Errorf("%s holds no output of %s", f.Expect, p.Model)
	}
	return want, nil
}

// compare holds every output against the array of its name. missed is errMiss if a bound that was asked for is not met.
func (f *flags) compare(w io.Writer, p *runtime.Program, s *runtime.Session, want map[string]*npy.Array, r *report.Report) (missed, err error) {
	rtol, atol := 1e-3, 1e-5
	if f.Rtol != nil {
		rtol = *f.Rtol
	}
	if f.Atol != nil {
		atol = *f.Atol
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "output\tmax abs\tcosine\trelative L2\twithin\t")
	for _, out := range p.Outputs {
		a := want[out.Name]
		if a == nil {
			fmt.Fprintf(t, "%s\t\t\t\t\tnot in %s\n", out.Name, f.Expect)
			continue
		}
		ref, err := a.Float64s()
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", f.Expect, out.Name, err)
		}
		got, err := runtime.Float64s(out.DType, s.Output(out.Name))
		if err != nil {
			return nil, err
		}
		m, err := runtime.Compare(got, ref, rtol, atol)
		if err != nil {
			return nil, fmt.Errorf("output %q: %w", out.Name, err)
		}
		r.Outputs = append(r.Outputs, report.Output{Name: out.Name, Metrics: m})
		ok := true
		if f.MinCosine != nil {
			ok = m.Cosine >= *f.MinCosine
		}
		if f.Rtol != nil || f.Atol != nil || f.MinCosine == nil {
			ok = ok && m.Within == 1
		}
		note := "ok"
		if !ok {
			note, missed = "MISS", errMiss
		}
		fmt.Fprintf(t, "%s\t%.3g\t%.9f\t%.3g\t%.4f\t%s\n", out.Name, m.MaxAbs, m.Cosine, m.RelL2, m.Within, note)
	}
	return missed, t.Flush()
}
