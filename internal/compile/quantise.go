package compile

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

// Accuracy is what the choice of low precision was and what it costs.
type Accuracy struct {
	Layers    []calibrate.LayerChoice
	Slices    []calibrate.Quality // of the first target's program on the calibration inputs
	Others    []Measured          // of the other targets' programs
	Inputs    int                 // that it was calibrated on and measured with
	Generated bool                // those inputs were made up
	MinCosine float64

	plan   *passes.Quantisation
	inputs []map[string]*ir.Array
	exact  map[string][][]float64 // of the file on inputs; nil: not evaluated yet
}

// fewInputs is the number of calibration inputs below which what is measured on them says little of others: of the small
// vision model calibrated on 4, cosine 0.9992 on these was 0.953 on another, on 8 it was 0.99985 and 0.99983.
const fewInputs = 8

// storePass is the pass that stores values and weights as a calibration chose.
const storePass = "narrow"

// quantise runs the passes, calibrating in front of the one that stores. Later targets take the first one's choice.
func (r *Result) quantise(ctx context.Context, pc *passes.Context, g *ir.Graph, opt Options, observe func(string, *ir.Graph)) error {
	names := opt.Passes
	if names == nil {
		var err error
		if names, err = passes.Pipeline(pc.Precision); err != nil {
			return err
		}
	}
	at := slices.Index(names, storePass)
	if at < 0 {
		return fmt.Errorf("--precision %s needs the pass %s", pc.Precision, storePass)
	}
	if err := passes.CheckOrder(names); err != nil {
		return err
	}
	if at > 0 {
		if err := passes.Run(pc, g, names[:at], observe); err != nil {
			return err
		}
	}
	if r.Accuracy == nil {
		rest := func(q *passes.Quantisation) (*ir.Graph, error) {
			final, c := g.Clone(), *pc
			c.Quantisation = q
			return final, passes.Run(&c, final, names[at:], nil)
		}
		if err := r.calibrate(ctx, pc, g.Clone(), opt, rest); err != nil {
			return err
		}
	}
	pc.Quantisation = r.Accuracy.plan
	return passes.Run(pc, g, names[at:], observe)
}

// calibrate chooses layers and their numbers for a graph of f32 regions.
func (r *Result) calibrate(ctx context.Context, pc *passes.Context, g *ir.Graph, opt Options, final func(*passes.Quantisation) (*ir.Graph, error)) error {
	r.Accuracy = &Accuracy{MinCosine: opt.MinCosine, Generated: len(opt.Calibrate) == 0}
	var inputs []map[string]*ir.Array
	var files []string
	var err error
	if r.Accuracy.Generated {
		inputs = calibrate.Generate(g, cmp.Or(opt.Generated, calibrate.GeneratedInputs))
		if opt.Warn != nil {
			opt.Warn(fmt.Sprintf("no --calibrate: activations are scaled on %d generated inputs, not on the model's own data; accuracy on real inputs may be far lower", len(inputs)))
		}
	} else if inputs, files, err = calibrate.Load(opt.Calibrate, g); err != nil {
		return err
	}
	r.Accuracy.Inputs, r.Accuracy.inputs = len(inputs), inputs
	if !r.Accuracy.Generated && len(inputs) < fewInputs && opt.Warn != nil {
		opt.Warn(fmt.Sprintf("%d calibration inputs are few: weights are fitted to them, so that the accuracy measured on them flatters; give %d or more", len(inputs), fewInputs))
	}
	measure := func(ctx context.Context, q *passes.Quantisation) ([]calibrate.Quality, error) {
		g, err := final(q)
		if err != nil {
			return nil, err
		}
		p, err := trial(r.Program.Model, g, pc.Target, pc.Precision)
		if err != nil {
			return nil, err
		}
		nameSlices(p, opt.Slices)
		return r.quality(ctx, p, pc.Target.Name, opt)
	}
	c, err := calibrate.New(g, inputs, opt.Progress)
	if err != nil {
		return err
	}
	c.Name(files)
	choice, err := c.Choose(ctx, calibrate.Options{Precision: pc.Precision, MinCosine: opt.MinCosine, Keep: opt.Keep, Target: pc.Target, Technique: calibrate.Best, Measure: measure})
	if err != nil {
		return err
	}
	r.Accuracy.Layers, r.Accuracy.plan = choice.Layers, choice.Plan
	return nil
}

// namedSlices are the parts that the model's metadata describes of the output called outputs, else of the first.
func namedSlices(m *onnx.Model, g *ir.Graph) ([]calibrate.Slice, error) {
	if len(g.Outputs) == 0 {
		return nil, nil
	}
	out := g.Outputs[0]
	for _, v := range g.Outputs {
		if v.Name == "outputs" {
			out = v
		}
	}
	parts, err := m.OutputSlices(out.Type.Numel())
	if err != nil {
		return nil, err
	}
	var list []calibrate.Slice
	for _, s := range parts {
		list = append(list, calibrate.Slice{Output: out.Name, Name: s.Name, Start: s.Start, Stop: s.End})
	}
	return list, nil
}
