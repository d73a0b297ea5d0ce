package compile

import (
	"context"
	"fmt"
	"math"

	"github.com/spark-compile/spark-compile/codegen"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
	"github.com/spark-compile/spark-compile/runtime"
)

// Accuracy is how far a program is from its file, and, if the precision calibrates, which format each layer got.
type Accuracy struct {
	Layers    []calibrate.LayerChoice // of precisions that calibrate
	Slices    []calibrate.Quality     // of the first target's program
	Others    []Measured              // of the other targets' programs
	Inputs    int                     // number of inputs that it was calibrated and measured on
	Generated bool                    // those inputs were generated, not given
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

// storePass is the pass that applies the formats that a calibration chose.
const storePass = "narrow"

// calibration is the stage before storePass. It owns what a trial needs: the graph of f32 regions, the remaining passes, and
// the data to measure programs on.
type calibration struct {
	*yardstick
	program runtime.Program // without variants
	graph   *ir.Graph
	context passes.Context
	rest    []string
}

// choose finds the layers to quantise, and how.
func (s *calibration) choose(ctx context.Context, opt *Options) (*calibrate.Choice, error) {
	keep := keepFew
	if opt.MinCosine > 0 { // the graph is walked again and again
		keep = math.MaxInt
	}
	e, err := newNative(s.context.Target, keep)
	if err != nil {
		return nil, err
	}
	defer e.Close()
	c, err := calibrate.New(s.graph, s.inputs, e, opt.Progress)
	if err != nil {
		return nil, err
	}
	c.Name(s.files)
	return c.Choose(ctx, s, calibrate.Options{Precision: opt.Precision, MinCosine: opt.MinCosine, Keep: opt.Keep, Target: s.context.Target, Technique: calibrate.Best})
}

// Measure implements calibrate.Trial: it compiles the plan, without a cubin, and runs the program.
func (s *calibration) Measure(ctx context.Context, plan *passes.Quantisation) ([]calibrate.Quality, error) {
	g, pc := s.graph.Clone(), s.context
	pc.Quantisation = plan
	if err := passes.Run(&pc, g, s.rest, nil); err != nil {
		return nil, err
	}
	w := codegen.NewWeights()
	out, err := codegen.Generate(entries(g), pc.Target, families, w)
	if err != nil {
		return nil, err
	}
	p := s.program
	p.Variants, p.Weights = []runtime.Variant{out.Variant}, w.Bytes()
	describe(&p, g, s.slices)
	return s.measure(ctx, &p, pc.Target.Name)
}

// warnIgnored warns about options that have no effect in the chosen precision.
func (opt *Options) warnIgnored() {
	if precision.Calibrates(opt.Precision) {
		return
	}
	if len(opt.Keep) > 0 {
		opt.warn("--keep has no effect in %s: use it with --precision %s", opt.Precision, precision.Calibrating())
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
