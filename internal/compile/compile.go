// Package compile turns an ONNX model into a runtime.Program in one call.
package compile

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spark-compile/spark-compile/codegen"
	"github.com/spark-compile/spark-compile/codegen/families"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/profile"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/toolchain"
	"github.com/spark-compile/spark-compile/internal/tune/tunefile"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
	"github.com/spark-compile/spark-compile/runtime"
)

// Options says how to compile.
type Options struct {
	Import    onnx.ImportOptions
	Precision string           // of internal/precision
	Targets   []string         // at least one
	Machine   *cost.File       // measured figures of one machine, in place of its target's; nil: none
	Tuning    *tunefile.Table  // schedules that a search found; nil: none
	Tune      Tune             // that search, for the program that is compiled; nil: none
	Passes    []string         // nil for the default pipeline
	Assembler *toolchain.Ptxas // for register counts and cubins; nil: neither
	Cubin     bool             // keep what Assembler makes in the program
	GraphOnly bool             // end with the graph of the first target, where nothing is calibrated or measured: Passes may then lack those that kernels need

	// Sample is the graph of one sample, of which Import.Batch are computed independently; nil if the graph does
	// not say. Compile finds it itself.
	Sample *ir.Graph

	// Memory bounds the bytes of the arena of Entries, by computing values again; 0: not.
	Memory int

	// Skip becomes the additional entry runtime.SkipEntry; nil: there is none.
	Skip *ir.Graph

	// F32Inputs and F32Outputs make inputs and outputs f32 where the file has f16 or bf16, which they keep otherwise.
	F32Inputs, F32Outputs bool

	// Unfused names regions that stay launches of their own, whatever is predicted of them as parts of chains.
	Unfused []string

	// MinCosine is the accuracy budget of every output slice, on each set of inputs. A precision that calibrates is searched
	// for the fastest program within it, or quantises every layer if it is 0; another precision is checked unless it is 0.
	MinCosine        float64
	Calibrate        []string          // .npz files and directories of them; none: generated inputs
	Validate         []string          // as Calibrate: inputs that nothing is fitted to, to judge on
	CalibrationCache string            // of precisions that calibrate: file to keep what was found in, and to take it from; none: ""
	Generated        int               // number of generated inputs; 0: calibrate.GeneratedInputs
	Smaller          bool              // of precisions that calibrate, with a budget: smaller weights, also where that is slower
	Keep             []string          // of precisions that calibrate: nodes whose layers stay at fp16
	Slices           []calibrate.Slice // named parts of the outputs; if nil, Compile takes those of the model's metadata
	Warn             func(string)
	Digest           string // of the file, for Provenance; Compile finds it itself

	Observe  func(pass string, g *ir.Graph) // after each pass, of the first target
	Trace    bool                           // keep Result.Origins
	Progress func(console.Event)
	meter    *console.Meter // of Progress
	part     bool           // of Entries, which have no Smaller
	loop     bool           // it is the step of a loop
	batching batching       // of tests; none: the fastest by estimate
	chosen   *kernel.Memo   // what regions that were weighed, candidates, the program and the same in fp16 have in common
}

// Result is a compiled program and what a report says about it.
type Result struct {
	Program   *runtime.Program
	Source    *ir.Graph               // as imported
	Graph     *ir.Graph               // final, of the first target: of a micro-batch, where its program runs in such
	File      []calibrate.LayerChoice // layers that the file has quantised, where Accuracy lists none
	Accuracy  *Accuracy               // of precisions that calibrate, and where a budget was to be checked
	Layers    map[string]int          // of Entries: layers of parts that are calibrated for the first target, by precision
	Fallbacks []codegen.Fallback
	// Recomputed is what the first target computes again to keep to Options.Memory.
	Recomputed []Recomputed
	Origins    []*Origin     // of each variant, where Options.Trace asked for them
	Compile    time.Duration // without ptxas
	Ptxas      time.Duration

	entries []codegen.Entry      // of Entries, for the first target, before values are computed again
	regions []*ir.Node           // one for each launch of the first target; nil for a copy
	made    [][]int              // bytes of the weights of the parts of each, the last one's first
	repeats int                  // of the launch list of the first target
	half    *Result              // of Half
	golden  map[string][]float64 // the file's outputs in f32 on Inputs; nil: not computed
	profile *profile.Profile
	path    string
	opt     Options

	digest     string                 // of the file
	calibrated []map[string]*ir.Array // inputs that the precision was fitted to
}

// Origin says of a variant what its launches compute, where its values lie, and what they were before they were stored.
type Origin struct {
	Graph      *ir.Graph                    // of regions
	Regions    []*ir.Node                   // that the launches of the entry run compute; nil for a copy
	Places     map[*ir.Value]runtime.Access // of the graph's values, constants left out
	Exact      *ir.Graph                    // the regions before narrow: the file's constants, nothing rounded to fewer bits
	Provenance map[string]string            // names of the graph's values → of the values in Exact that they stand for
}

// Compile compiles a model. Errors name the file and, where there is one, the node.
func Compile(ctx context.Context, m *onnx.Model, opt Options) (*Result, error) {
	begin := time.Now()
	opt.meter = console.New(opt.Progress)
	opt.meter.Begin(0, "importing")
	if err := m.Validate(); err != nil {
		return nil, err
	}
	if opt.Import.Warn == nil {
		opt.Import.Warn = opt.Warn
	}
	g, sample, err := onnx.ImportBatch(m, opt.Import)
	if err != nil {
		return nil, err
	}
	opt.Sample = sample
	if opt.Slices == nil {
		if opt.Slices, err = Slices(m, g, opt.Import.Batch); err != nil {
			return nil, err
		}
	}
	r, err := Graph(ctx, m.Path, g, opt)
	if err != nil {
		return nil, err
	}
	if r.digest, err = m.Digest(); err != nil {
		return nil, err
	}
	r.Compile = time.Since(begin) - r.Ptxas
	return r, nil
}

// Graph compiles an imported graph, which it does not change; path is the model's, for messages.
func Graph(ctx context.Context, path string, g *ir.Graph, opt Options) (*Result, error) {
	begin := time.Now()
	targets, err := opt.targets()
	if err != nil {
		return nil, err
	}
	opt.warnIgnored()
	if opt.meter == nil {
		opt.meter = console.New(opt.Progress)
	}
	r := &Result{Source: g, Program: &runtime.Program{Format: runtime.FormatVersion, Model: filepath.Base(path), Precision: opt.Precision}, path: path, opt: opt}
	if err := r.compile(ctx, targets); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	r.Compile = time.Since(begin) - r.Ptxas
	return r, nil
}

// targets looks up the targets and warns where one lacks arithmetic of the precision.
func (opt *Options) targets() ([]*target.Target, error) {
	if len(opt.Targets) == 0 {
		return nil, fmt.Errorf("no target: choose one or more of %s", strings.Join(target.Names(), ", "))
	}
	p, err := precision.Lookup(opt.Precision)
	if err != nil {
		return nil, err
	}
	if f := opt.Machine; f != nil && !slices.Contains(opt.Targets, f.Target) {
		return nil, fmt.Errorf("the machine file was measured on %s (%s), which is not among the targets %s", f.Device, f.Target, strings.Join(opt.Targets, ", "))
	}
	var out []*target.Target
	for i, name := range opt.Targets {
		if slices.Contains(opt.Targets[:i], name) {
			return nil, fmt.Errorf("target %s is given twice: name it once", name)
		}
		t, err := opt.target(name)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
		if p.Multiplies != "" && !t.Multiplies(p.Multiplies) {
			opt.warn("%s %s", name, p.Stored)
		}
	}
	return out, nil
}

// target is a row of the targets, with the figures of the machine file if it is that machine's.
func (opt *Options) target(name string) (*target.Target, error) {
	t, err := target.Lookup(name)
	if err != nil {
		return nil, err
	}
	return opt.Machine.On(t)
}

// generate adds the variant of a target, and its origin if it is known.
func (r *Result) generate(ctx context.Context, s *stored, m *micro, t *target.Target, w *codegen.Weights) error {
	r.opt.meter.Begin(0, "%s: kernels", t.Name)
	e, err := m.entry(s.graph)
	if err != nil {
		return err
	}
	tuned, err := r.choose(ctx, &e, t)
	if err != nil {
		return err
	}
	if r.opt.loop {
		e.HorizontalFusion = s.origin == nil && r.opt.Tune == nil // both know one region a launch
		var states []runtime.State
		for _, k := range e.States {
			states = append(states, runtime.State{Input: k.Input, Output: k.Output, Delay: k.Delay})
		}
		e.Objective = func(v *runtime.Variant, e *runtime.Entry, works []*cost.Work) float64 {
			warm, cold := profile.PlannedLoop(v, e, works, states, t)
			return warm + cold
		}
	}
	list := []codegen.Entry{e}
	if skip := r.opt.Skip; skip != nil {
		skipped := Entry{Name: runtime.SkipEntry, Parts: []Part{{Graph: skip, Precision: precision.FP32}}, States: States(skip)}
		g, err := skipped.lowered(ctx, t, &r.opt, nil)
		if err != nil {
			return fmt.Errorf("entry %s: %w", skipped.Name, err)
		}
		list = append(list, codegen.Entry{Name: skipped.Name, Graph: g, States: skipped.States})
	}
	out, err := codegen.Generate(list, t, families.New(r.opt.chosen), w)
	if err := r.applied(tuned, err); err != nil {
		return err
	}
	first := r.Graph == nil
	if err := r.add(ctx, list, out, t, s.origin); err != nil {
		return err
	}
	if first {
		r.Graph = s.graph // with its front
	}
	return nil
}

// add makes what was generated for a target a variant of the program.
func (r *Result) add(ctx context.Context, entries []codegen.Entry, out *codegen.Result, t *target.Target, from *Origin) error {
	if r.opt.Assembler != nil {
		r.opt.meter.Begin(0, "%s: ptxas", t.Name)
		begin := time.Now()
		if err := assemble(ctx, r.opt.Assembler, t, &out.Variant); err != nil {
			return err
		}
		if !r.opt.Cubin {
			out.Variant.Cubin = nil
		}
		r.Ptxas += time.Since(begin)
	}
	if from != nil {
		from.Regions, from.Places = out.Regions[0], out.Places[0]
		r.Origins = append(r.Origins, from)
	}
	if r.Graph == nil {
		r.repeats = max(1, entries[0].Repeats)
		r.Graph, r.Fallbacks, r.regions, r.made = entries[0].Graph, out.Fallbacks, out.Regions[0], out.Made[0]
	}
	r.Program.Variants = append(r.Program.Variants, out.Variant)
	return nil
}

// assemble adds the cubin, and the registers and spills that ptxas reports for each kernel.
func assemble(ctx context.Context, tool *toolchain.Ptxas, t *target.Target, v *runtime.Variant) error {
	out, err := tool.Assemble(ctx, v.PTX, t.Name)
	if err != nil {
		return err
	}
	v.Cubin = out.Cubin
	usage := map[string]toolchain.Usage{}
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

// entries lists the entries of a model's program, which is only run.
func entries(g *ir.Graph) []codegen.Entry {
	return []codegen.Entry{{Name: "run", Graph: g, States: States(g)}}
}

// States lists what a model keeps from run to run: input state_X stays on the device; output next_state_X is its new value, in the next run
// or in a later one (ir.Value.Delay).
func States(g *ir.Graph) (kept []codegen.StateBinding) {
	for _, in := range g.Inputs {
		for _, out := range g.Outputs {
			if strings.HasPrefix(in.Name, "state_") && out.Name == "next_"+in.Name && out.Type.Equal(in.Type) {
				kept = append(kept, codegen.StateBinding{Input: in.Name, Output: out.Name, Delay: in.Delay})
			}
		}
	}
	return kept
}

// passContext is what passes are told of a target.
func (opt *Options) passContext(t *target.Target) *passes.Context {
	memo := opt.chosen
	if memo == nil {
		memo = new(kernel.Memo)
	}
	kernels := families.New(memo)
	c := &passes.Context{Target: t, Precision: opt.Precision}
	c.F32Inputs, c.F32Outputs, c.Unfused = opt.F32Inputs, opt.F32Outputs, opt.Unfused
	c.Benefit = func(n *ir.Node) float64 { return kernels.Benefit(n, t) }
	return c
}

// describe fills in inputs, outputs with their named slices, and states.
func describe(p *runtime.Program, g *ir.Graph, repeats int, parts []calibrate.Slice) {
	for _, v := range g.Inputs {
		p.Inputs = append(p.Inputs, repeated(port(v), repeats))
	}
	for _, v := range g.Outputs {
		p.Outputs = append(p.Outputs, repeated(port(v), repeats))
	}
	name(p.Outputs, parts)
	for _, k := range States(g) {
		p.States = append(p.States, runtime.State{Input: k.Input, Output: k.Output, Delay: k.Delay})
	}
}

// name gives outputs their named slices.
func name(outputs []runtime.Port, parts []calibrate.Slice) {
	for i := range outputs {
		for _, s := range parts {
			if s.Output == outputs[i].Name && s.Name != "" {
				outputs[i].Slices = append(outputs[i].Slices, s.Slice)
			}
		}
	}
}

func port(v *ir.Value) runtime.Port {
	return runtime.Port{Name: v.Name, DType: v.Type.DType.String(), Shape: append([]int{}, v.Type.Shape...)}
}

// repeated is a port of which each repetition of the launch list has a slice.
func repeated(q runtime.Port, repeats int) runtime.Port {
	switch {
	case repeats == 1:
	case len(q.Shape) == 0: // a number for each sample
		q.Shape = []int{repeats}
	default:
		q.Shape[0] *= repeats
	}
	return q
}

// Slices lists the parts of the output called outputs, or else of the first one, that the model's metadata names.
func Slices(m *onnx.Model, g *ir.Graph, samples int) ([]calibrate.Slice, error) {
	if len(g.Outputs) == 0 {
		return nil, nil
	}
	out := g.Outputs[0]
	for _, v := range g.Outputs {
		if v.Name == "outputs" {
			out = v
		}
	}
	size, every := out.Type.Numel(), 0
	if samples > 1 && out.Type.Rank() > 0 && out.Type.Shape[0]%samples == 0 {
		size /= samples
		every = size
	}
	parts, err := m.OutputSlices(size)
	if err != nil {
		return nil, err
	}
	var list []calibrate.Slice
	for _, s := range parts {
		list = append(list, calibrate.Slice{Output: out.Name, Slice: runtime.Slice{Name: s.Name, Start: s.Start, Stop: s.End, Every: every}})
	}
	return list, nil
}
