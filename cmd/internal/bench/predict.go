package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/spark-compile/spark-compile/internal/atomicfile"
	"github.com/spark-compile/spark-compile/internal/cli"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/profile"
	"github.com/spark-compile/spark-compile/internal/report"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/toolchain"
	"github.com/spark-compile/spark-compile/runtime"
)

// predict counts the work of a run of every model in every precision on the CPU device and prints the predicted time on the
// target's device. Low precision is forced and calibrated on one generated input, since times do not depend on the data.
func (s *session) predict(ctx context.Context, precisions []string) error {
	if s.Baseline != "" || s.HTML != "" || s.Concurrent || s.Layers {
		return errors.New("--predict measures nothing: leave out --baseline, --html, --layers and --concurrent")
	}
	var err error
	switch {
	case s.Target != "":
		s.target = s.Target
	case s.machine != nil:
		s.target = s.machine.Target
	default:
		s.target = target.Default().Name
	}
	if s.assembler, err = toolchain.FindPtxas(ctx); err != nil && !errors.Is(err, toolchain.ErrNoPtxas) {
		return err
	}
	if err != nil {
		s.note("ptxas not found: without register counts, predicted occupancy is an upper bound")
	}
	var all []report.Prediction
	var profiles []*profile.Profile
	for _, path := range s.Models {
		programs, err := s.programsOf(ctx, path, precisions)
		if err != nil {
			return err
		}
		for _, p := range programs {
			v, err := p.Variant(s.Target)
			if err != nil {
				return err
			}
			on, err := target.Lookup(v.Target)
			if err == nil {
				on, err = s.machine.On(on)
			}
			if err != nil {
				return err
			}
			s.note(fmt.Sprintf("%s %s: counting the work of a run", p.Model, p.Precision))
			time, prof, err := report.Predict(ctx, p, v, on)
			if err != nil {
				return err
			}
			all, profiles = append(all, time), append(profiles, prof)
		}
	}
	if err := predictions(s.out, all); err != nil {
		return err
	}
	if !s.Quiet {
		if err := slower(s.out, profiles); err != nil {
			return err
		}
	}
	if s.JSON == "" {
		return nil
	}
	return atomicfile.WriteJSON(s.JSON, all)
}

// programsOf reads a package, or compiles an ONNX file in every precision.
func (s *session) programsOf(ctx context.Context, path string, precisions []string) ([]*runtime.Program, error) {
	if p, err := cli.Package(path); p != nil || err != nil {
		return []*runtime.Program{p}, err
	}
	var out []*runtime.Program
	for _, precision := range precisions {
		s.note(fmt.Sprintf("%s: compiling in %s", path, precision))
		p, _, err := s.compile(ctx, path, compile.Options{Precision: precision, Machine: s.machine, Assembler: s.assembler, Generated: 1})
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// predictions prints a line per program, with times relative to the same model in fp16. Next to each predicted
// time is its range, by what is known of the machine, and the caller's time: with launching the graph and the wait
// for it.
func predictions(w io.Writer, all []report.Prediction) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "model\tprecision\tdevice\tµs\tfrom\tto\tcold µs\tfrom\tto\twaited µs\tfp16 / this\tcold\tlaunches\tweights MB\tread MB\twritten MB\t")
	for _, p := range all {
		warm, cold := "", ""
		for _, q := range all {
			if q.Model == p.Model && q.Device == p.Device && q.Precision == "fp16" {
				warm, cold = fmt.Sprintf("%.2f", q.US/p.US), fmt.Sprintf("%.2f", q.ColdUS/p.ColdUS)
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.1f\t%.0f\t%s\t%s\t%d\t%.2f\t%.2f\t%.2f\t\n", p.Model, p.Precision, p.Device,
			p.US, p.Range.Low, p.Range.High, p.ColdUS, p.ColdRange.Low, p.ColdRange.High, p.Waited.Middle, warm, cold, p.Launches,
			float64(p.WeightsBytes)/1e6, float64(p.ReadBytes)/1e6, float64(p.WriteBytes)/1e6)
	}
	return t.Flush()
}

// slower lists the launches that are slower in a lower precision than in fp16.
func slower(w io.Writer, profiles []*profile.Profile) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	found := false
	for _, p := range profiles {
		base := slices.IndexFunc(profiles, func(q *profile.Profile) bool {
			return q.Model == p.Model && q.Device == p.Device && q.Precision == "fp16" && len(q.Launches) == len(p.Launches)
		})
		if base < 0 {
			continue
		}
		for i := range p.Launches {
			was, is := &profiles[base].Launches[i], &p.Launches[i]
			if is.Time.US <= 1.02*was.Time.US && is.ColdUS <= 1.02*was.ColdUS {
				continue
			}
			if !found {
				fmt.Fprint(t, "\nslower than in fp16\tlaunch\tkernel\tµs\twas\tcold µs\twas\tbound by\twhat\n")
				found = true
			}
			fmt.Fprintf(t, "%s %s\t%d\t%s\t%.2f\t%.2f\t%.2f\t%.2f\t%s, was %s\t%s\n", p.Model, p.Precision, i, is.Kernel, is.Time.US, was.Time.US, is.ColdUS, was.ColdUS, is.Time.By, was.Time.By, is.Note)
		}
	}
	return t.Flush()
}
