package randgraph

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/frontend/onnx/onnxpb"
	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// Precisions are those that cases are compiled in where nobody names others.
var Precisions = []string{precision.File, precision.FP16, precision.BF16}

// Fault is what is wrong with a case.
type Fault struct {
	Stage     string // import, evaluate, compile, run, answer; "judge": ONNX Runtime's answer is another one than ours
	Precision string // of compile, run and answer
	Err       error
}

func (f *Fault) Error() string {
	if f.Precision == "" {
		return fmt.Sprintf("%s: %v", f.Stage, f.Err)
	}
	return fmt.Sprintf("%s, %s: %v", f.Stage, f.Precision, f.Err)
}

// Checked counts what the checks of a case compared.
type Checked struct {
	Undecided, Elements map[string]int // by precision, elements whose bound says little, and all
	TooGreat            int            // precisions left out since a value would leave their range
}

// Check runs a case through the compiler in every precision. A nil fault: none was found.
func (c *Case) Check(ctx context.Context, d hal.Device, precisions []string) (*Checked, *Fault) {
	return c.check(ctx, d, precisions, mostRuns)
}

func (c *Case) check(ctx context.Context, d hal.Device, precisions []string, runs int) (*Checked, *Fault) {
	done := &Checked{map[string]int{}, map[string]int{}, 0}
	g, err := c.importIt()
	if err == nil {
		err = g.Verify()
	}
	if err != nil {
		return done, &Fault{Stage: "import", Err: err}
	}
	for _, p := range precisions {
		exact := g
		if p == precision.FP32 {
			if exact, err = promoted(ctx, g); err != nil {
				return done, &Fault{"compile", p, err}
			}
		}
		b, err := newBounds(exact, c.Inputs, roundingOf(p), runs)
		if err != nil {
			return done, &Fault{"evaluate", p, err}
		}
		if (p == precision.FP16 || precision.Calibrates(p)) && b.top > 65504/2 {
			done.TooGreat++
			continue
		}
		out, stage, err := c.run(ctx, d, g, p)
		if err != nil {
			return done, &Fault{stage, p, err}
		}
		for _, v := range g.Outputs {
			if err := b.compare(v.Name, out[v.Name]); err != nil {
				return done, &Fault{"answer", p, err}
			}
		}
		u, n := b.undecided()
		done.Undecided[p] += u
		done.Elements[p] += n
	}
	return done, nil
}

// promoted is a graph whose values are f32 where they were narrower, as precision fp32 computes it.
func promoted(ctx context.Context, g *ir.Graph) (*ir.Graph, error) {
	opt := compile.Options{Precision: precision.FP32, Passes: []string{"promote-f32"}, GraphOnly: true}
	opt.Targets = []string{target.Default().Name}
	r, err := compile.Graph(ctx, "", g.Clone(), opt)
	if err != nil {
		return nil, err
	}
	return r.Graph, nil
}

// run compiles and runs the case, and says at which stage it failed.
func (c *Case) run(ctx context.Context, d hal.Device, g *ir.Graph, p string) (out map[string]*ir.Tensor, stage string, err error) {
	stage = "compile"
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	name := target.Default().Name
	opt := compile.Options{Precision: p, Targets: []string{name}}
	if precision.Calibrates(p) {
		dir, err := os.MkdirTemp("", "spark-randgraph-")
		if err != nil {
			return nil, stage, err
		}
		defer os.RemoveAll(dir)
		if opt.Calibrate, err = compile.WriteInputs(filepath.Join(dir, "inputs.npz"), g, c.Inputs); err != nil {
			return nil, stage, err
		}
	}
	r, err := compile.Graph(ctx, c.Model.Path, g, opt)
	if err != nil {
		return nil, stage, err
	}
	stage = "run"
	s, err := runtime.Open(ctx, r.Program, d, runtime.ModelOptions{Target: name})
	if err != nil {
		return nil, stage, err
	}
	defer s.Close()
	for _, q := range r.Program.Inputs {
		if err := s.Set(q.Name, c.Inputs[q.Name].Dense()); err != nil {
			return nil, stage, err
		}
	}
	if err := s.Run(ctx); err != nil {
		return nil, stage, err
	}
	out = map[string]*ir.Tensor{}
	for _, q := range r.Program.Outputs {
		t, err := ir.ParseDType(q.DType)
		if err != nil {
			return nil, stage, err
		}
		if out[q.Name], err = ir.NewTensor(ir.T(t, q.Shape...), append([]byte{}, s.Output(q.Name)...)); err != nil {
			return nil, stage, err
		}
	}
	for _, v := range g.Outputs {
		if out[v.Name] == nil {
			return nil, "answer", fmt.Errorf("the program has no output %q", v.Name)
		}
	}
	return out, stage, nil
}

// importIt imports the case's model.
func (c *Case) importIt() (g *ir.Graph, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic while importing: %v", p)
		}
	}()
	bound := map[string]*ir.Tensor{}
	for _, name := range onnx.ShapeInputs(c.Model) {
		if t := c.Inputs[name]; t != nil && c.isInput(name) {
			bound[name] = t
		}
	}
	return onnx.Import(c.Model, onnx.ImportOptions{Constants: bound})
}

// isInput reports whether a name is a graph input without a default.
func (c *Case) isInput(name string) bool {
	g := c.Model.Proto.Graph
	return slices.ContainsFunc(g.Input, func(v *onnxpb.ValueInfoProto) bool { return v.GetName() == name }) &&
		!slices.ContainsFunc(g.Initializer, func(t *onnxpb.TensorProto) bool { return t.GetName() == name })
}

// evaluate computes the outputs of the imported graph, rounding every value to its type.
func (c *Case) evaluate(g *ir.Graph) (out map[string]*ir.Array, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic while evaluating: %v", p)
		}
	}()
	in := map[string]*ir.Array{}
	for _, v := range g.Inputs {
		in[v.Name] = c.Inputs[v.Name].Array()
	}
	return ir.Evaluate(context.Background(), g, in, ir.EvalOptions{Round: true})
}
