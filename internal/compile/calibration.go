package compile

import (
	"context"
	"fmt"

	"github.com/spark-compile/spark-compile/codegen"
	"github.com/spark-compile/spark-compile/codegen/families"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
	"github.com/spark-compile/spark-compile/runtime"
)

// Accuracy is how far a program is from its file, and, if the precision calibrates, which format each layer got.
type Accuracy struct {
	Layers    []calibrate.LayerChoice // of precisions that calibrate
	Measured                          // the first target's program
	Others    []Measured              // the other targets' programs
	Fallback  *FP16Fallback           // the program is fp16, which was not asked for
	Reference Reference
	Generated bool // the calibration inputs were generated, not given
	MinCosine float64
}

// defaultMinCosine is the accuracy budget of precisions that calibrate, where none is given.
const defaultMinCosine = 0.999

// Budget is Options.MinCosine for a precision and what the command line gives, nil if nothing. By default only precisions
// that calibrate have a budget.
func Budget(name string, given *float64) float64 {
	switch {
	case given != nil:
		return *given
	case precision.Calibrates(name):
		return defaultMinCosine
	}
	return 0
}

// fewInputs is the number of calibration inputs below which accuracy measured on them does not generalise: the small vision
// model calibrated on 4 inputs had cosine 0.9992 on them and 0.953 on another; calibrated on 8, 0.99985 and 0.99983.
const fewInputs = 8

// calibration chooses formats of fused regions. It owns what a trial needs: the graph of f32 regions, the remaining passes, and
// the data to measure programs on.
type calibration struct {
	*accuracyEvaluator
	program runtime.Program // without variants
	graph   *ir.Graph
	context passes.Context
	rest    []string
	walk    *calibrate.Calibration
	save    bool // what it finds
	chosen  *kernel.Memo
}

// choose finds the layers to quantise, and how.
func (s *calibration) choose(ctx context.Context, opt *Options) (*calibrate.Outcome, error) {
	e, err := newNative(s.context.Target)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	c, err := calibrate.New(wideOutputs(s.graph), opt.Precision, s.inputs, e, opt.meter)
	if err != nil {
		return nil, err
	}
	c.Name(s.files)
	s.walk = c
	if err := s.recall(c, opt); err != nil {
		return nil, err
	}
	defer opt.meter.Expect(s.calibrating(c, opt.MinCosine > 0))()
	choice, err := c.Choose(ctx, s, calibrate.Options{Precision: opt.Precision, MinCosine: opt.MinCosine, Keep: opt.Keep, Smaller: opt.Smaller, Target: s.context.Target, Technique: calibrate.Best, Save: s.save})
	s.walked(c.Exact())
	return choice, err
}

// planned is the graph of a plan, whose regions have kernels. Where chained is nil, each layer has its own.
func (s *calibration) planned(ctx context.Context, plan *passes.Quantisation, halved map[*ir.Tensor]*ir.Tensor, benefit func(*ir.Node) float64) (*ir.Graph, error) {
	g, pc := s.graph.Clone(), s.context
	pc.Quantisation, pc.Halved, pc.Benefit = plan, halved, benefit
	if err := passes.Run(&pc, g, s.rest, nil); err != nil {
		return nil, err
	}
	return g, ctx.Err()
}

// Measure implements calibrate.Trial: it compiles the plan, without a cubin, and runs the program.
func (s *calibration) Measure(ctx context.Context, plan *passes.Quantisation, enough float64) ([]calibrate.Quality, error) {
	g, err := s.planned(ctx, plan, s.context.Halved, s.context.Benefit)
	if err != nil {
		return nil, err
	}
	w := codegen.NewWeights()
	out, err := codegen.Generate(entries(g), s.context.Target, families.New(s.chosen), w)
	if err != nil {
		return nil, err
	}
	p := s.program
	p.Variants, p.Weights = []runtime.Variant{out.Variant}, w.Bytes()
	describe(&p, g, 1, s.slices)
	s.walked(s.walk.Exact())
	sets, err := s.measure(ctx, &p, s.context.Target.Name, enough)
	return calibrate.Worst(sets), err
}

// Times implements calibrate.Trial: it chooses the schedules of the plan's regions and takes the times by which they were chosen, with
// weights in L2 if all of them fit there.
func (s *calibration) Times(ctx context.Context, plan *passes.Quantisation) (map[string]float64, error) {
	g, err := s.planned(ctx, plan, nil, nil) // a fit follows, which has little room for weights in 16 bits
	if err != nil {
		return nil, err
	}
	out, err := codegen.Schedule(entries(g)[0], s.context.Target, families.New(s.chosen))
	if err != nil {
		return nil, err
	}
	m, us := cost.Of(s.context.Target), map[string][]float64{}
	warm := out.ConstantBytes <= m.KeptBytes()
	for i, n := range out.Regions {
		w := out.Works[i]
		if n == nil || w == nil {
			continue
		}
		work := *w
		if warm {
			work.DRAMBytes = 0
		}
		us[n.Name] = append(us[n.Name], m.Estimate(&work).US)
	}
	times := map[string]float64{}
	for _, n := range s.graph.Nodes { // narrow keeps names of regions, and the order of those of one name
		if list := us[n.Name]; len(list) > 0 && !n.IsFamily(ir.FamilyView) {
			times[n.Outputs[0].Name], us[n.Name] = list[0], list[1:]
		}
	}
	return times, nil
}

// warnIgnored warns about options that have no effect in the chosen precision.
func (opt *Options) warnIgnored() {
	if precision.Calibrates(opt.Precision) {
		return
	}
	if opt.CalibrationCache != "" {
		opt.warn("--calibration has no effect in %s: use it with --precision %s", opt.Precision, precision.Calibrating())
	}
	if len(opt.Keep) > 0 {
		opt.warn("--keep has no effect in %s: use it with --precision %s", opt.Precision, precision.Calibrating())
	}
	if len(opt.Validate) > 0 && opt.MinCosine <= 0 {
		opt.warn("--validate has no effect in %s without --min-cosine", opt.Precision)
	}
	if len(opt.Calibrate) > 0 && opt.MinCosine <= 0 {
		opt.warn("--calibrate has no effect in %s without --min-cosine: only --precision %s are calibrated", opt.Precision, precision.Calibrating())
	}
}

// warn reports a warning, if anybody listens.
func (opt *Options) warn(format string, args ...any) {
	if opt.Warn != nil {
		opt.Warn(fmt.Sprintf(format, args...))
	}
}
