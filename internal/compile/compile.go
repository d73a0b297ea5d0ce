// Package compile is the whole way as one call: an ONNX model to a runtime.Program.
package compile

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spark-compile/spark-compile/codegen"
	"github.com/spark-compile/spark-compile/codegen/contraction"
	"github.com/spark-compile/spark-compile/codegen/loop"
	"github.com/spark-compile/spark-compile/codegen/window"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/ptxas"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
	"github.com/spark-compile/spark-compile/runtime"
)

// Options says how to compile.
type Options struct {
	Import    onnx.ImportOptions
	Precision string      // of internal/precision
	Targets   []string    // at least one
	Passes    []string    // nil for the default pipeline
	Assembler *ptxas.Tool // nil: no cubin, no register counts

	// Of fp8 and nvfp4:
	Calibrate []string          // .npz files and directories of them; none: generated inputs
	Generated int               // so many of them; 0: calibrate.GeneratedInputs
	MinCosine float64           // accuracy budget of every output slice on the calibration inputs; 0: quantise all
	Keep      []string          // nodes whose layers stay at fp16
	Slices    []calibrate.Slice // of the outputs; Compile adds those that the model's metadata names
	Warn      func(string)

	Observe  func(pass string, g *ir.Graph) // after each pass, of the first target
	Progress func(stage string)
}

// Result is a compiled program and what is worth saying about it.
type Result struct {
	Program   *runtime.Program
	Source    *ir.Graph        // as imported
	Graph     *ir.Graph        // final, of the first target
	Accuracy  *Accuracy        // of fp8 and nvfp4
	Half      *runtime.Program // of fp8 and nvfp4: the same file in fp16 for the first target, to compare with
	Fallbacks []codegen.Fallback
	Compile   time.Duration // without ptxas
	Ptxas     time.Duration

	regions []*ir.Node // that the launches of the first target compute
}

// Compile compiles a model. Errors name the file and, where there is one, the node.
func Compile(ctx context.Context, m *onnx.Model, opt Options) (*Result, error) {
	begin := time.Now()
	progress(opt, "import")
	if err := m.Validate(); err != nil {
		return nil, err
	}
	g, err := onnx.Import(m, opt.Import)
	if err != nil {
		return nil, err
	}
	if opt.Slices == nil {
		if opt.Slices, err = namedSlices(m, g); err != nil {
			return nil, err
		}
	}
	r, err := Graph(ctx, m.Path, g, opt)
	if err != nil {
		return nil, err
	}
	r.Compile = time.Since(begin) - r.Ptxas
	return r, nil
}

// Graph compiles an imported graph, which it does not change; path is the model's, for messages.
func Graph(ctx context.Context, path string, g *ir.Graph, opt Options) (*Result, error) {
	begin := time.Now()
	if err := checkTargets(opt.Targets); err != nil {
		return nil, err
	}
	r := &Result{Source: g, Program: &runtime.Program{Format: runtime.FormatVersion, Model: filepath.Base(path), Precision: opt.Precision}}
	weights := codegen.NewWeights()
	for i, name := range opt.Targets {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := warnOf(name, opt); err != nil {
			return nil, err
		}
		if err := r.target(ctx, name, i == 0, opt, weights); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	r.Program.Weights = weights.Bytes()
	describe(r.Program, r.Graph)
	nameSlices(r.Program, opt.Slices)
	if err := r.Program.Validate(); err != nil {
		return nil, err
	}
	if r.Accuracy != nil {
		if err := r.measure(ctx, opt); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		half, err := Graph(ctx, path, g, Options{Precision: precision.FP16, Targets: opt.Targets[:1], Passes: opt.Passes, Assembler: opt.Assembler})
		if err != nil {
			return nil, err
		}
		r.Half, r.Ptxas = half.Program, r.Ptxas+half.Ptxas
		r.Accuracy.weigh(r, half)
	}
	r.Compile = time.Since(begin) - r.Ptxas
	return r, nil
}

func checkTargets(targets []string) error {
	if len(targets) == 0 {
		return fmt.Errorf("no target: want one or more of %s", strings.Join(target.Names(), ", "))
	}
	for i, t := range targets {
		if slices.Contains(targets[:i], t) {
			return fmt.Errorf("target %s is given twice", t)
		}
	}
	return nil
}

// warnOf says what a target cannot do of the precision, and what is done instead.
func warnOf(name string, opt Options) error {
	t, err := target.Lookup(name)
	if err != nil || opt.Warn == nil {
		return err
	}
	if p, err := precision.Lookup(opt.Precision); err == nil && p.Multiplies != "" && t.TFLOPS[p.Multiplies] == 0 {
		opt.Warn(name + " " + p.Stored)
	}
	return nil
}

func progress(opt Options, format string, args ...any) {
	if opt.Progress != nil {
		opt.Progress(fmt.Sprintf(format, args...))
	}
}

// families are the kernel families of every program.
var families = codegen.Families{Contraction: contraction.Lower, Window: window.Lower, Loop: loop.Lower}

// target compiles one variant.
func (r *Result) target(ctx context.Context, name string, first bool, opt Options, w *codegen.Weights) error {
	t, err := target.Lookup(name)
	if err != nil {
		return err
	}
	progress(opt, "%s: passes", name)
	g := r.Source.Clone()
	observe := opt.Observe
	if !first {
		observe = nil
	}
	pc := &passes.Context{Target: t, Precision: opt.Precision}
	if precision.Calibrates(opt.Precision) {
		err = r.quantise(ctx, pc, g, opt, observe)
	} else {
		err = passes.Run(pc, g, opt.Passes, observe)
	}
	if err != nil {
		return err
	}
	progress(opt, "%s: kernels", name)
	out, err := codegen.Generate(entries(g), t, families, w)
	if err != nil {
		return err
	}
	if opt.Assembler != nil {
		progress(opt, "%s: ptxas", name)
		begin := time.Now()
		if err := assemble(ctx, opt.Assembler, t, &out.Variant); err != nil {
			return err
		}
		r.Ptxas += time.Since(begin)
	}
	if first {
		r.Graph, r.Fallbacks, r.regions = g, out.Fallbacks, out.Regions[0]
	}
	r.Program.Variants = append(r.Program.Variants, out.Variant)
	return nil
}

// assemble adds the cubin and what ptxas says of each kernel.
func assemble(ctx context.Context, tool *ptxas.Tool, t *target.Target, v *runtime.Variant) error {
	out, err := tool.Assemble(ctx, v.PTX, t.Name)
	if err != nil {
		return err
	}
	v.Cubin = out.Cubin
	usage := map[string]ptxas.Usage{}
	for _, u := range out.Usage {
		usage[u.Kernel] = u
	}
	for i := range v.Kernels {
		k := &v.Kernels[i]
		u := usage[k.Name]
		k.Regs, k.Spills = u.Regs, u.Spills
	}
	return nil
}

// entries is what a model's program does: a run. An input state_X is kept on the device, and next_state_X is its new value.
func entries(g *ir.Graph) []codegen.Entry {
	run := codegen.Entry{Name: "run", Graph: g}
	for _, in := range g.Inputs {
		for _, out := range g.Outputs {
			if strings.HasPrefix(in.Name, "state_") && out.Name == "next_"+in.Name && out.Type.Equal(in.Type) {
				run.Kept = append(run.Kept, codegen.Kept{Input: in.Name, Output: out.Name})
			}
		}
	}
	return []codegen.Entry{run}
}

// describe fills in inputs, outputs and states.
func describe(p *runtime.Program, g *ir.Graph) {
	for _, v := range g.Inputs {
		p.Inputs = append(p.Inputs, port(v))
	}
	for _, v := range g.Outputs {
		p.Outputs = append(p.Outputs, port(v))
	}
	for _, e := range entries(g) {
		for _, k := range e.Kept {
			p.States = append(p.States, runtime.State{Input: k.Input, Output: k.Output})
		}
	}
}

func port(v *ir.Value) runtime.Port {
	return runtime.Port{Name: v.Name, DType: v.Type.DType.String(), Shape: append([]int{}, v.Type.Shape...)}
}

// nameSlices names parts of the outputs.
func nameSlices(p *runtime.Program, parts []calibrate.Slice) {
	for i := range p.Outputs {
		for _, s := range parts {
			if s.Output == p.Outputs[i].Name && s.Name != "" {
				p.Outputs[i].Slices = append(p.Outputs[i].Slices, runtime.Slice{Name: s.Name, Start: s.Start, Stop: s.Stop})
			}
		}
	}
}
