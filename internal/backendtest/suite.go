package backendtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// Options are the settings of Run.
type Options struct {
	Open      func(ctx context.Context) (hal.Device, error) // opens a device for one worker, which Run closes
	Target    string                                        // "" for the device's, or the default if it has none
	Precision string                                        // "" keeps the file's types
	Tolerance func(d ir.DType) Tolerance                    // nil for nodecases.For
	Workers   int                                           // 0: one per core
	// Compare judges an output; nil for each element by Tolerance.
	Compare func(c *Case, got, want *ir.Tensor) error
}

// Outcome of a case.
type Outcome string

// A case is skipped if the compiler rejects it as unsupported, or if no kernel read an input of it.
const (
	Passed  Outcome = "passed"
	Failed  Outcome = "failed"
	Skipped Outcome = "skipped"
)

// Result is the outcome of a case.
type Result struct {
	Name    string
	Outcome Outcome
	Err     error // why it failed or was skipped
	Bound   bool  // inputs that decide shapes were compiled in as constants
	// Warnings are contradictions in the file that ONNX Runtime warns about.
	Warnings []string
}

// Reason is why a case was skipped, without names and numbers, for grouping.
func (r Result) Reason() string {
	var e *onnx.Error
	if errors.As(r.Err, &e) {
		return e.Class()
	}
	return r.Err.Error()
}

// disputed reports a case whose expected values are not ours.
type disputed string

func (d disputed) Error() string { return string(d) }

// errNoKernel reports a model of which nothing is computed from an input.
var errNoKernel = errors.New("no kernel reads an input: every output is a constant or an input")

// Run runs the cases at or below the directories and returns their results, sorted by name.
func Run(ctx context.Context, roots []string, opt Options) ([]Result, error) {
	var dirs []string
	for _, root := range roots {
		found, err := List(root)
		if err != nil {
			return nil, err
		}
		dirs = append(dirs, found...)
	}
	workers := cmp.Or(opt.Workers, goruntime.NumCPU())
	results := make([]Result, len(dirs))
	var started atomic.Int64
	work := func() error {
		d, err := opt.Open(ctx)
		if err != nil {
			return err
		}
		defer d.Close()
		for i := int(started.Add(1)) - 1; i < len(dirs) && ctx.Err() == nil; i = int(started.Add(1)) - 1 {
			results[i] = run(ctx, d, dirs[i], opt)
		}
		return ctx.Err()
	}
	var group sync.WaitGroup
	failures := make([]error, min(workers, len(dirs)))
	for w := range failures {
		group.Go(func() { failures[w] = work() })
	}
	group.Wait()
	slices.SortFunc(results, func(a, b Result) int { return strings.Compare(a.Name, b.Name) })
	return results, cmp.Or(failures...)
}

// run runs one case. A panic is a failure of the case, not of the run.
func run(ctx context.Context, d hal.Device, dir string, opt Options) (r Result) {
	r.Name = filepath.Base(dir)
	defer func() {
		if p := recover(); p != nil {
			r.Outcome, r.Err = Failed, fmt.Errorf("panic: %v", p)
		}
	}()
	if reason := Disputed[r.Name]; reason != "" {
		return Result{Name: r.Name, Outcome: Skipped, Err: disputed(reason)}
	}
	err := r.runCase(ctx, d, dir, opt)
	var e *onnx.Error
	switch {
	case err == nil:
		r.Outcome = Passed
	case errors.As(err, &e) && e.Unsupported, errors.Is(err, errNoKernel):
		r.Outcome, r.Err = Skipped, err
	default:
		r.Outcome, r.Err = Failed, err
	}
	return r
}

func (r *Result) runCase(ctx context.Context, d hal.Device, dir string, opt Options) error {
	c, err := Load(dir)
	if err != nil {
		return err
	}
	c.Model.Warn = func(text string) { r.Warnings = append(r.Warnings, text) }
	r.Bound = len(c.Bound()) > 0
	kernels := false
	for i, set := range c.Sets {
		g, err := c.Import(set)
		if err != nil {
			return err
		}
		ran, err := runSet(ctx, d, c, set, g, opt)
		if err != nil {
			return fmt.Errorf("data set %d: %w", i, err)
		}
		kernels = kernels || ran
	}
	if !kernels {
		return errNoKernel
	}
	return nil
}

// runSet compiles and runs one data set, and reports whether a kernel reads an input.
func runSet(ctx context.Context, d hal.Device, c *Case, set Set, g *ir.Graph, opt Options) (kernels bool, err error) {
	co := compile.Options{Precision: cmp.Or(opt.Precision, precision.File), Targets: []string{cmp.Or(opt.Target, d.Info().Target, target.Default().Name)}}
	given := c.Inputs(set)
	if precision.Calibrates(co.Precision) {
		dir, err := os.MkdirTemp("", "spark-suite-")
		if err != nil {
			return false, err
		}
		defer os.RemoveAll(dir)
		// generated ones may be of another magnitude
		if co.Calibrate, err = compile.WriteInputs(filepath.Join(dir, "inputs.npz"), g, given); err != nil {
			return false, err
		}
	}
	r, err := compile.Graph(ctx, c.Model.Path, g, co)
	if err != nil {
		return false, err
	}
	s, err := runtime.Open(ctx, r.Program, d, runtime.ModelOptions{Target: co.Targets[0]})
	if err != nil {
		return false, err
	}
	defer s.Close()
	for _, in := range r.Program.Inputs {
		if t := given[in.Name]; t != nil {
			if err := s.Set(in.Name, t.Dense()); err != nil {
				return false, err
			}
		}
	}
	if err := s.Run(ctx); err != nil {
		return false, err
	}
	return readsInput(&r.Program.Variants[0]), compare(c, set, r.Program, s, opt)
}

// readsInput reports whether a kernel of the program reads an input, or what was copied from one. A kernel that copies a constant
// says nothing of the kernels.
func readsInput(v *runtime.Variant) bool {
	given := map[int]bool{}
	for i, b := range v.Buffers {
		given[i] = b.Kind == runtime.InputBuffer
	}
	for _, e := range v.Entries {
		for _, l := range e.Launches {
			switch {
			case !slices.ContainsFunc(l.Reads, func(a runtime.Access) bool { return given[a.Buffer] }):
			case l.Kernel != "":
				return true
			default:
				given[l.Copy.Dst.Buffer] = true
			}
		}
	}
	return false
}

func compare(c *Case, set Set, p *runtime.Program, s *runtime.Session, opt Options) error {
	tolerance := opt.Tolerance
	if tolerance == nil {
		tolerance = For
	}
	for i, o := range c.Model.Proto.Graph.Output {
		want := set.Outputs[i]
		if want == nil {
			return fmt.Errorf("output %q has no expected tensor", o.GetName())
		}
		at := slices.IndexFunc(p.Outputs, func(q runtime.Port) bool { return q.Name == o.GetName() })
		if at < 0 {
			return fmt.Errorf("the program has no output %q", o.GetName())
		}
		q := p.Outputs[at]
		d, err := ir.ParseDType(q.DType)
		if err != nil {
			return err
		}
		got, err := ir.NewTensor(ir.T(d, q.Shape...), s.Output(q.Name))
		if err != nil {
			return err
		}
		judge := opt.Compare
		if judge == nil {
			judge = func(_ *Case, got, want *ir.Tensor) error {
				return Compare(got, want, tolerance(want.DType))
			}
		}
		if err := judge(c, Unpadded(got, want), want); err != nil {
			return fmt.Errorf("output %q: %w", q.Name, err)
		}
	}
	return nil
}

// CountOutcomes counts outcomes.
func CountOutcomes(results []Result) map[Outcome]int {
	counts := map[Outcome]int{}
	for _, r := range results {
		counts[r.Outcome]++
	}
	return counts
}
