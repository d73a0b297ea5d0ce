package compile

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

// Reference says what a program's outputs were compared with.
type Reference struct {
	Inputs    int      `json:"inputs"`
	Float64   int      `json:"float64_inputs"`       // on which the file was evaluated in float64; on the others it was computed in f32
	FP32RelL2 *float64 `json:"fp32_rel_l2"`          // how far that is from float64: Definitions' fp32_rel_l2; nil: all in float64
	Where     string   `json:"fp32_slice,omitempty"` // the output or slice of which that is true
}

// reference is the file's outputs on every input of an accuracy evaluator.
type reference struct {
	outputs   map[string][][]float64 // by name, [input][element]
	float64   []bool                 // by input: evaluated in float64; else computed in f32
	fp32RelL2 map[string]float64     // of each output and slice, where some were computed in f32: relative L2 from float64
}

// fewMACs is the number of multiplications of all inputs together, about a second's, up to which all are evaluated in
// float64.
const fewMACs = 1e9

// finer is how much nearer to float64 than a program the reference in f32 must be.
const finer = 100

// refer makes the reference once. The precisions that calibrate compute the file in f32 where evaluating every input in
// float64 would take long, and evaluate only the first and the last.
func (y *accuracyEvaluator) refer(ctx context.Context, parts []calibrate.Slice, on string) error {
	if y.exact != nil {
		return nil
	}
	all := y.all()
	r := &reference{outputs: map[string][][]float64{}, float64: make([]bool, len(all))}
	for _, v := range y.source.Outputs {
		r.outputs[v.Name] = make([][]float64, len(all))
	}
	if y.precise() {
		if err := y.evaluate(ctx, r, r.missing()); err != nil {
			return err
		}
		y.exact = r
		return nil
	}
	t, err := target.Lookup(on)
	if err != nil {
		return err
	}
	if err := y.run32(ctx, r, t); err != nil {
		return fmt.Errorf("the reference in fp32: %w", err)
	}
	if err := y.checked(ctx, r, parts); err != nil {
		return err
	}
	y.exact = r
	return nil
}

// precise reports whether every input is evaluated in float64.
func (y *accuracyEvaluator) precise() bool {
	count := len(y.all())
	return !y.fitted || count <= 2 || float64(multiplications(y.source))*float64(count) <= y.few
}

// forward computes, by a graph of f32 regions, what a calibration does not that goes through it afterwards: the means of its
// values, if they are asked for, and, for a reference in f32, the outputs for the inputs that are not calibrated on.
func (y *accuracyEvaluator) forward(ctx context.Context, g *ir.Graph, means bool) (map[string][]float64, error) {
	all, count := y.all(), 0
	fitted, held := calibrate.Split(y.inputs)
	var at []int // in all
	if means {
		at = calibrate.MeanInputs(len(fitted)) // all begins with these
		count = len(at)
	}
	inputs := permuted(all, at)
	if !y.precise() {
		for i := len(fitted) + len(held); i < len(all); i++ {
			at, inputs = append(at, i), append(inputs, all[i])
		}
		inputs = append(inputs, Inputs(y.source))
	}
	if len(inputs) == 0 {
		return nil, nil
	}
	// By the same kernels in every compilation, so that findings for one target serve another.
	e, err := newNative(target.Default())
	if err != nil {
		return nil, err
	}
	defer e.Close()
	y.progress.Begin(y.multiplied(len(inputs), console.CostForward), "computing the file in fp32 on %s", console.Count(len(inputs), "input"))
	g = wideOutputs(g)
	see, found := calibrate.Means(g, count)
	if !means {
		see = nil
	}
	out, err := calibrate.Forward(ctx, g, inputs, e, see)
	if err != nil || y.precise() {
		return found, err
	}
	y.narrow, y.golden = map[string][][]float64{}, map[string][]float64{}
	for name, rows := range out {
		y.golden[name] = rows[len(at)]
		y.narrow[name] = make([][]float64, len(all))
		for i, to := range at {
			y.narrow[name][to] = rows[i]
		}
	}
	return found, nil
}

// walked takes what a calibration has computed in f32 for its inputs; nil if it has not.
func (y *accuracyEvaluator) walked(exact map[string][][]float64) {
	for name, rows := range exact {
		fitted, held := calibrate.Split(rows)
		copy(y.narrow[name], append(fitted, held...))
	}
}

func multiplications(g *ir.Graph) (total int64) {
	for _, n := range g.Nodes {
		total += n.MACs()
	}
	return total
}

// missing are the inputs that were not evaluated in float64.
func (r *reference) missing() (out []int) {
	for at, done := range r.float64 {
		if !done {
			out = append(out, at)
		}
	}
	return out
}

// evaluate evaluates the file on some inputs.
func (y *accuracyEvaluator) evaluate(ctx context.Context, r *reference, inputs []int) error {
	all := y.all()
	y.progress.Begin(y.multiplied(len(inputs), console.CostEvaluate), "evaluating %s in float64", console.Count(len(inputs), "input"))
	for i, at := range inputs {
		out, err := ir.Evaluate(ctx, y.source, all[at], ir.EvalOptions{})
		if err != nil {
			return fmt.Errorf("input %d: %w", at+1, err)
		}
		for _, v := range y.source.Outputs {
			r.outputs[v.Name][at] = out[v.Name].Floats()
		}
		r.float64[at] = true
		y.progress.Step(i+1, len(inputs), float64(i+1)/float64(len(inputs)))
	}
	return nil
}

// run32 computes the file in f32 on the inputs for which that has not been done.
func (y *accuracyEvaluator) run32(ctx context.Context, r *reference, t *target.Target) (err error) {
	var left []int
	for at := range r.float64 {
		for name, rows := range y.narrow {
			r.outputs[name][at] = rows[at]
		}
		if r.outputs[y.source.Outputs[0].Name][at] == nil {
			left = append(left, at)
		}
	}
	if len(left) == 0 {
		return nil
	}
	g, opt := y.source.Clone(), Options{Precision: precision.FP32}
	s, err := opt.stages()
	if err != nil {
		return err
	}
	pc := &passes.Context{Target: t, Precision: opt.Precision}
	pc.F32Outputs = true
	if err := passes.Run(pc, g, s.fuse, nil); err != nil {
		return err
	}
	e, err := newNative(t)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	y.progress.Begin(y.multiplied(len(left), console.CostForward), "computing the file in fp32 on %s", console.Count(len(left), "input"))
	out, err := calibrate.Forward(ctx, g, permuted(y.all(), left), e, nil)
	for name, rows := range out {
		for i, at := range left {
			r.outputs[name][at] = rows[i]
		}
	}
	return err
}

// checked also evaluates the first and the last input in float64, and measures how far f32 is from that.
func (y *accuracyEvaluator) checked(ctx context.Context, r *reference, parts []calibrate.Slice) error {
	r.fp32RelL2 = map[string]float64{}
	narrow := map[string][][]float64{}
	for name, x := range r.outputs {
		narrow[name] = slices.Clone(x)
	}
	inputs := []int{0, len(r.float64) - 1}
	if err := y.evaluate(ctx, r, inputs); err != nil {
		return err
	}
	for _, at := range inputs {
		row := func(of map[string][][]float64) map[string][][]float64 {
			rows := map[string][][]float64{}
			for name, x := range of {
				rows[name] = x[at : at+1]
			}
			return rows
		}
		qs, err := calibrate.MeasureAll(parts, row(narrow), row(r.outputs))
		if err != nil {
			return err
		}
		for _, q := range qs {
			r.fp32RelL2[q.Name] = max(r.fp32RelL2[q.Name], q.RelL2)
		}
	}
	return nil
}

// blurs reports whether f32 is too coarse a reference for what was measured against it.
func (r *reference) blurs(sets []calibrate.SetQuality) bool {
	for _, s := range sets {
		for _, q := range s.Slices {
			if relL2, ok := r.fp32RelL2[q.Name]; r.fp32RelL2 != nil && (!ok || float64(relL2*finer) > q.RelL2) {
				return true
			}
		}
	}
	return false
}

// evaluateRest evaluates the inputs that were computed in f32.
func (y *accuracyEvaluator) evaluateRest(ctx context.Context) error {
	if err := y.evaluate(ctx, y.exact, y.exact.missing()); err != nil {
		return err
	}
	y.exact.fp32RelL2 = nil
	return nil
}

// summary is what a report says of it.
func (r *reference) summary() Reference {
	out := Reference{Inputs: len(r.float64)}
	for _, done := range r.float64 {
		if done {
			out.Float64++
		}
	}
	for name, x := range r.fp32RelL2 {
		if had := out.FP32RelL2; had == nil || x > *had || x == *had && name < out.Where {
			out.FP32RelL2, out.Where = &x, name
		}
	}
	return out
}
