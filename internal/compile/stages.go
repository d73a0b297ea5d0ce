package compile

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/codegen"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

// stages are the passes of a compilation, grouped by the graph that they yield.
type stages struct {
	fuse     []string // regions of f32, each of what a layer became
	subtract []string // the same, less the means that data have there
	store    []string // regions as they are stored and launched
}

// all are the passes of every stage.
func (s *stages) all() []string { return slices.Concat(s.fuse, s.subtract, s.store) }

// stages cuts the passes into stages, and checks what the options want of them.
func (opt *Options) stages() (s stages, err error) {
	names := opt.Passes
	if names == nil {
		if names, err = passes.Pipeline(opt.Precision); err != nil {
			return s, err
		}
	}
	if err := passes.CheckOrder(names); err != nil {
		return s, err
	}
	calibrates := precision.Calibrates(opt.Precision)
	for _, need := range []string{"promote-f32", "assign-storage"} {
		if calibrates && !slices.Contains(names, need) {
			return s, fmt.Errorf("--precision %s needs the pass %s: add it to --passes", opt.Precision, need)
		}
	}
	if (opt.F32Inputs || opt.F32Outputs) && !slices.Contains(names, "promote-f32") {
		return s, errors.New("inputs and outputs of f32 need the pass promote-f32, which --passes or the precision leaves out")
	}
	if !slices.Contains(names, "fuse") && (calibrates || !opt.GraphOnly) {
		return s, errors.New("--passes has no fuse, and kernels are made of the regions that it makes: add it behind the passes that change operations")
	}
	s.fuse, s.store = passes.Cut(names, passes.StorageStage)
	s.fuse, s.subtract = passes.Cut(s.fuse, passes.MeansStage)
	return s, passes.CheckNeeds(names)
}

// fused is a graph of f32 regions, less the means of values in data: the same for every target. Nothing changes it.
type fused struct {
	graph   *ir.Graph
	context passes.Context // of no target
}

// stored is a graph of regions as a target stores and launches them.
type stored struct {
	graph  *ir.Graph
	origin *Origin // nil: nobody asked
}

// compilation goes through the stages.
type compilation struct {
	*Result
	stages
	data    *accuracyEvaluator // nil: there is nothing to measure
	weights *codegen.Weights
	fused   map[int]*fused // by how often the launch list runs
	search  *calibration   // nil: nothing was calibrated
	formats *passes.Quantisation
	observe func(pass string, g *ir.Graph)
}

// compile compiles for every target. All share the choice of the first one's calibration.
func (r *Result) compile(ctx context.Context, targets []*target.Target) (err error) {
	opt := &r.opt
	if opt.chosen == nil {
		opt.chosen = new(kernel.Memo)
	}
	c := &compilation{Result: r, weights: codegen.NewWeights(), fused: map[int]*fused{}, observe: opt.Observe}
	if c.stages, err = opt.stages(); err != nil {
		return err
	}
	if c.data, err = r.measuring(); err != nil {
		return err
	}
	defer func() {
		if e := c.search.keep(ctx, opt); err == nil {
			err = e
		}
	}()
	for _, t := range targets {
		if err := c.target(ctx, t); err != nil {
			return err
		}
		if opt.GraphOnly && c.data == nil {
			return nil
		}
	}
	r.Program.Weights = c.weights.Bytes()
	describe(r.Program, r.Graph, r.repeats, opt.Slices)
	if err := r.Program.Validate(); err != nil {
		return err
	}
	if c.data == nil {
		return nil
	}
	if err := r.judge(ctx, c.data); err != nil {
		return err
	}
	return r.keepHalf(ctx, c.data)
}

// measuring is what programs are measured against, where they are.
func (r *Result) measuring() (*accuracyEvaluator, error) {
	opt := &r.opt
	if !precision.Calibrates(opt.Precision) && opt.MinCosine <= 0 {
		return nil, nil
	}
	data, err := newAccuracyEvaluator(r.Source, opt)
	if err != nil {
		return nil, err
	}
	r.Accuracy = &Accuracy{}
	if data.fitted {
		r.calibrated = data.inputs
	}
	if opt.MinCosine <= 0 || !data.fitted { // else a candidate was measured
		opt.meter.Expect(data.referring() + data.running())
	}
	if data.fitted {
		opt.meter.Expect(comparing(r.Source))
	}
	return data, nil
}

// target adds the variant of a target.
func (c *compilation) target(ctx context.Context, t *target.Target) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c.opt.meter.Begin(0, "%s: passes", t.Name)
	m, err := c.micro(ctx, t, c.all())
	if err != nil {
		return err
	}
	f := c.fused[m.repeats]
	if f == nil {
		if f, err = c.fuse(ctx, m.graph); err != nil {
			return err
		}
		c.fused[m.repeats] = f
	}
	s, err := c.store(ctx, f, t)
	if err != nil {
		return err
	}
	c.observe = nil
	if c.opt.GraphOnly && c.data == nil {
		c.Graph = s.graph
		return nil
	}
	return c.generate(ctx, s, m, t, c.weights)
}

// fuse makes regions of an imported graph, which it changes.
func (c *compilation) fuse(ctx context.Context, g *ir.Graph) (*fused, error) {
	pc := c.opt.passContext(nil)
	if c.data != nil {
		pc.Greatest = c.data.greatest()
	}
	if err := passes.Run(pc, g, c.stages.fuse, c.observe); err != nil {
		return nil, err
	}
	if precision.Calibrates(c.opt.Precision) {
		var err error
		if pc.Means, err = c.data.forward(ctx, g, len(c.subtract) > 0); err != nil {
			return nil, err
		}
		c.golden = c.data.golden
	}
	err := passes.Run(pc, g, c.subtract, c.observe)
	return &fused{g, *pc}, err
}

// store chooses formats, once, and stores regions in them.
func (c *compilation) store(ctx context.Context, f *fused, t *target.Target) (*stored, error) {
	s, pc, first := &stored{graph: f.graph.Clone()}, f.context, c.Graph == nil
	pc.Target, pc.Benefit = t, c.opt.passContext(t).Benefit
	switch calibrates := precision.Calibrates(c.opt.Precision); {
	case calibrates:
		pc.Halved = map[*ir.Tensor]*ir.Tensor{} // each candidate is narrowed
		if first {
			if err := c.calibrate(ctx, f, pc); err != nil {
				return nil, err
			}
		}
	case first:
		c.File = calibrate.FileLayers(s.graph)
	}
	pc.Quantisation = c.formats
	if c.opt.Trace {
		s.origin = originOf(s.graph)
		pc.Provenance = s.origin.Provenance
	}
	return s, passes.Run(&pc, s.graph, c.stages.store, c.observe)
}

// calibrate chooses formats.
func (c *compilation) calibrate(ctx context.Context, f *fused, pc passes.Context) error {
	c.search = &calibration{accuracyEvaluator: c.data, program: *c.Program, graph: f.graph, context: pc, rest: c.stages.store, chosen: c.opt.chosen}
	choice, err := c.search.choose(ctx, &c.opt)
	if err != nil {
		return err
	}
	c.formats, c.Accuracy.Layers = choice.Plan, choice.Layers
	return nil
}

// originOf is the origin of a variant whose graph is to be stored.
func originOf(g *ir.Graph) *Origin {
	o := &Origin{Graph: g, Exact: g.Clone(), Provenance: map[string]string{}}
	for _, n := range g.Nodes {
		for _, v := range n.Outputs {
			o.Provenance[v.Name] = v.Name
		}
	}
	for _, v := range g.Inputs {
		o.Provenance[v.Name] = v.Name
	}
	return o
}
