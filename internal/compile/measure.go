package compile

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// Measured is the accuracy of one target's variant of the program: run on the calibration inputs by the CPU device, compared
// with the float64 evaluation of the file.
type Measured struct {
	Target string              `json:"target"`
	Slices []calibrate.Quality `json:"slices"`
}

// yardstick is what programs are measured against: inputs, and the file's outputs for them in float64.
type yardstick struct {
	source    *ir.Graph
	slices    []calibrate.Slice // named parts of the outputs
	inputs    []map[string]*ir.Array
	files     []string               // of the inputs
	generated bool                   // the inputs were generated
	exact     map[string][][]float64 // by output, [input][element]; nil: not evaluated yet
	progress  func(format string, args ...any)
}

// newYardstick loads the calibration inputs, or generates some.
func newYardstick(source *ir.Graph, opt *Options) (*yardstick, error) {
	y := &yardstick{source: source, slices: opt.Slices, generated: len(opt.Calibrate) == 0, progress: opt.progress}
	if y.generated {
		y.inputs = calibrate.Generate(source, cmp.Or(opt.Generated, calibrate.GeneratedInputs))
		if precision.Calibrates(opt.Precision) {
			opt.warn("no --calibrate: activation scales come from %d generated inputs, not from the model's own data; accuracy on real inputs may be far lower", len(y.inputs))
		} else {
			opt.warn("no --calibrate: --min-cosine is checked on %d generated inputs, not on the model's own data", len(y.inputs))
		}
		return y, nil
	}
	var err error
	if y.inputs, y.files, err = calibrate.Load(opt.Calibrate, source); err != nil {
		return nil, err
	}
	if precision.Calibrates(opt.Precision) && len(y.inputs) < fewInputs {
		opt.warn("few calibration inputs (%d): weights are fitted to them, so the accuracy measured on them is optimistic; give %d or more", len(y.inputs), fewInputs)
	}
	return y, nil
}

// measure runs one target's variant of a program on the inputs and compares its outputs, whole and by slice.
func (y *yardstick) measure(ctx context.Context, p *runtime.Program, target string) ([]calibrate.Quality, error) {
	if err := y.evaluate(ctx); err != nil {
		return nil, err
	}
	y.progress("%s: running the program on %d calibration inputs", target, len(y.inputs))
	got := map[string][][]float64{}
	err := runEach(ctx, p, target, y.inputs, func(s *runtime.Session) error {
		out, err := s.Float64s()
		for name, x := range out {
			got[name] = append(got[name], x)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("running the program for %s: %w", target, err)
	}
	return calibrate.MeasureAll(calibrate.SlicesOf(p), got, y.exact)
}

// evaluate evaluates the file on every input, once.
func (y *yardstick) evaluate(ctx context.Context) error {
	if y.exact != nil {
		return nil
	}
	all := map[string][][]float64{}
	for i, in := range y.inputs {
		y.progress("evaluating calibration input %d of %d in float64", i+1, len(y.inputs))
		out, err := ir.Evaluate(ctx, y.source, in, ir.EvalOptions{})
		if err != nil {
			return fmt.Errorf("calibration input %d: %w", i+1, err)
		}
		for _, v := range y.source.Outputs {
			all[v.Name] = append(all[v.Name], out[v.Name].Floats())
		}
	}
	y.exact = all
	return nil
}

// runEach runs a target's variant of a program on the CPU device and calls ran after every input.
func runEach(ctx context.Context, p *runtime.Program, target string, inputs []map[string]*ir.Array, ran func(*runtime.Session) error) error {
	d, err := emu.Open(emu.Options{})
	if err != nil {
		return err
	}
	defer d.Close()
	s, err := runtime.Open(ctx, p, d, runtime.ModelOptions{Target: target})
	if err != nil {
		return err
	}
	defer s.Close()
	for _, in := range inputs {
		for _, q := range p.Inputs {
			if err := s.Set(q.Name, in[q.Name].Tensor().Dense()); err != nil {
				return err
			}
		}
		if err := s.Run(ctx); err != nil {
			return err
		}
		if err := ran(s); err != nil {
			return err
		}
	}
	return nil
}

// judge measures every variant of the finished program. Those of a precision that calibrates share the first target's choice, which keeps
// the budget: if another one misses it, that is a warning.
func (r *Result) judge(ctx context.Context, y *yardstick) error {
	opt, a := &r.opt, r.Accuracy
	a.Inputs, a.Generated, a.MinCosine = len(y.inputs), y.generated, opt.MinCosine
	for i, v := range r.Program.Variants {
		q, err := y.measure(ctx, r.Program, v.Target)
		if err != nil {
			return err
		}
		if i == 0 {
			a.Slices = q
		} else {
			a.Others = append(a.Others, Measured{v.Target, q})
		}
		low := calibrate.Below(q, opt.MinCosine)
		switch {
		case len(low) == 0:
		case !precision.Calibrates(opt.Precision):
			return fmt.Errorf("for %s the outputs miss --min-cosine %g in %s, on %d inputs: %s; %s",
				v.Target, opt.MinCosine, opt.Precision, len(y.inputs), strings.Join(low, ", "), wider(opt.Precision))
		default:
			opt.warn("for %s the outputs miss --min-cosine %g, which %s meets: %s; compile for that target alone to search for its own choice",
				v.Target, opt.MinCosine, r.Program.Variants[0].Target, strings.Join(low, ", "))
		}
	}
	return nil
}

// wider is the remedy for a program that misses its budget.
func wider(name string) string {
	if more := precision.Wider(name); more != "" {
		return fmt.Sprintf("compile with --precision %s, or a lower --min-cosine", more)
	}
	return "give a lower --min-cosine"
}
