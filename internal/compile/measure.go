package compile

import (
	"context"
	"fmt"
	"strings"

	"github.com/spark-compile/spark-compile/codegen"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// Measured is the accuracy of one target's variant of the program on the calibration inputs, run by the CPU device, against
// the float64 evaluation of the file.
type Measured struct {
	Target string              `json:"target"`
	Slices []calibrate.Quality `json:"slices"`
}

// trial is the program that a final graph becomes on one target, without a cubin.
func trial(model string, g *ir.Graph, t *target.Target, precision string) (*runtime.Program, error) {
	w := codegen.NewWeights()
	out, err := codegen.Generate(entries(g), t, families, w)
	if err != nil {
		return nil, err
	}
	p := &runtime.Program{Format: runtime.FormatVersion, Model: model, Precision: precision, Variants: []runtime.Variant{out.Variant}, Weights: w.Bytes()}
	describe(p, g)
	return p, nil
}

// evaluateAll evaluates a graph exactly on every input: by output, [input][element].
func evaluateAll(ctx context.Context, g *ir.Graph, inputs []map[string]*ir.Array, opt Options) (map[string][][]float64, error) {
	all := map[string][][]float64{}
	for i, in := range inputs {
		progress(opt, "evaluating calibration input %d of %d in float64", i+1, len(inputs))
		out, err := ir.Evaluate(ctx, g, in, ir.EvalOptions{})
		if err != nil {
			return nil, fmt.Errorf("calibration input %d: %w", i+1, err)
		}
		for _, v := range g.Outputs {
			all[v.Name] = append(all[v.Name], out[v.Name].Floats())
		}
	}
	return all, nil
}

// runAll runs a target's variant of a program on the CPU device on every input: by output, [input][element].
func runAll(ctx context.Context, p *runtime.Program, target string, inputs []map[string]*ir.Array) (map[string][][]float64, error) {
	all := map[string][][]float64{}
	err := runEach(ctx, p, target, inputs, func(s *runtime.Session) error {
		for _, q := range p.Outputs {
			x, err := runtime.Float64s(q.DType, s.Output(q.Name))
			if err != nil {
				return fmt.Errorf("output %q: %w", q.Name, err)
			}
			all[q.Name] = append(all[q.Name], x)
		}
		return nil
	})
	return all, err
}

// runEach runs a target's variant of a program on the CPU device and calls ran after every input.
func runEach(ctx context.Context, p *runtime.Program, target string, inputs []map[string]*ir.Array, ran func(*runtime.Session) error) error {
	d, err := emu.Open(emu.Options{})
	if err != nil {
		return err
	}
	defer d.Close()
	m, err := runtime.NewModel(ctx, p, d, runtime.ModelOptions{Target: target})
	if err != nil {
		return err
	}
	defer m.Close()
	s, err := m.NewSession(ctx, runtime.SessionOptions{})
	if err != nil {
		return err
	}
	defer s.Close()
	for _, in := range inputs {
		if err := fill(p, s, in); err != nil {
			return err
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

// fill puts arrays into a session's inputs and states.
func fill(p *runtime.Program, s *runtime.Session, in map[string]*ir.Array) error {
	states := map[string]bool{}
	for _, st := range p.States {
		states[st.Input] = true
	}
	for _, q := range p.Inputs {
		data := in[q.Name].Tensor().Dense()
		if !states[q.Name] {
			copy(s.Input(q.Name), data)
		} else if err := s.SetState(q.Name, data); err != nil {
			return fmt.Errorf("input %q: %w", q.Name, err)
		}
	}
	return nil
}

// quality measures one target's variant of a program on the calibration inputs.
func (r *Result) quality(ctx context.Context, p *runtime.Program, target string, opt Options) ([]calibrate.Quality, error) {
	a := r.Accuracy
	if a.exact == nil {
		var err error
		if a.exact, err = evaluateAll(ctx, r.Source, a.inputs, opt); err != nil {
			return nil, err
		}
	}
	progress(opt, "%s: running the program on %d calibration inputs", target, len(a.inputs))
	got, err := runAll(ctx, p, target, a.inputs)
	if err != nil {
		return nil, fmt.Errorf("running the program for %s: %w", target, err)
	}
	return calibrate.MeasureAll(calibrate.SlicesOf(p), got, a.exact)
}

// measure measures every variant of the finished program. The search has run the first target's; that another one misses
// the budget is said.
func (r *Result) measure(ctx context.Context, opt Options) error {
	for i, v := range r.Program.Variants {
		q, err := r.quality(ctx, r.Program, v.Target, opt)
		if err != nil {
			return err
		}
		if i == 0 {
			r.Accuracy.Slices = q
			continue
		}
		r.Accuracy.Others = append(r.Accuracy.Others, Measured{v.Target, q})
		if low := below(q, opt.MinCosine); len(low) > 0 && opt.Warn != nil {
			opt.Warn(fmt.Sprintf("for %s the outputs miss --min-cosine %g, which %s meets: %s; compile for it alone, so that the search is for it",
				v.Target, opt.MinCosine, r.Program.Variants[0].Target, strings.Join(low, ", ")))
		}
	}
	return nil
}

// below lists the slices that miss a budget.
func below(q []calibrate.Quality, budget float64) []string {
	var out []string
	for _, s := range q {
		if s.Cosine < budget {
			out = append(out, fmt.Sprintf("%s %.9f", s.Name, s.Cosine))
		}
	}
	return out
}
