package dora

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/spark-compile/spark-compile/dora/teacher"
	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// probeRank is the rank of the adapters whose gradients say how sensitive a loss is to a weight.
const probeRank = 4

// Sensitivity says how strongly a loss pulls at each weight that takes an adapter, by module: the root of the mean square, over
// inputs, of the gradient of a new adapter of low rank, whose first factor is random. It is what InitOptions.Sensitivity
// takes. Give sets the inputs of a session, and those that the loss added, to the k-th of count.
func Sensitivity(ctx context.Context, m *Model, opt StepOptions, d hal.Device, count int, give func(k int, s *runtime.Session) error) (_ map[string]float64, err error) {
	if count < 1 {
		return nil, fmt.Errorf("%s: sensitivities need inputs", m.File.Path)
	}
	a, err := Init(m, InitOptions{Rank: probeRank})
	if err != nil {
		return nil, err
	}
	opt.MicroBatches = 2 // so that gradients are kept
	step, err := NewStep(ctx, m, a, opt)
	if err != nil {
		return nil, err
	}
	t, err := step.Open(ctx, d)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	of := map[string]*Layer{}
	for i, p := range a.passes() {
		for _, name := range []string{p.InputA(), p.InputB(), p.InputM()} {
			of[name] = a.Layers[i]
		}
	}
	squares := map[string]float64{}
	zeros := make([]byte, 4*step.trained.size)
	for k := range count {
		if err := give(k, t.session); err != nil {
			return nil, err
		}
		if err := t.session.SetState(keptSum, zeros); err != nil {
			return nil, err
		}
		if _, err := t.Accumulate(ctx); err != nil {
			return nil, err
		}
		state, err := t.session.State(keptSum)
		if err != nil {
			return nil, err
		}
		g := runtime.View[float32](state)
		for _, p := range step.trained.parts {
			for i, x := range g[p.at : p.at+p.numel()] {
				if x-x != 0 {
					return nil, fmt.Errorf("%s: input %d: gradient %d of %s is %v", m.File.Path, k, i, p.name, x)
				}
				squares[of[p.name].Module] += float64(float64(x) * float64(x))
			}
		}
	}
	for module, x := range squares {
		squares[module] = math.Sqrt(x / float64(count))
	}
	return squares, nil
}

// Fisher is a loss whose gradients have, in the mean over signs drawn for every element, the Fisher information of the outputs as
// their mean square, if the outputs have normal errors in proportion to their spread. The signs are inputs called target:NAME.
func Fisher(outputs []Match) func(x *ir.Expansion, g *ir.Graph, outputs map[string]*ir.Value) *ir.Value {
	return func(x *ir.Expansion, g *ir.Graph, named map[string]*ir.Value) *ir.Value {
		var sum *ir.Value
		for _, m := range outputs {
			y := named[m.Name]
			if y == nil {
				return x.Fail("the model has no output %q of floats", m.Name)
			}
			axes := []int{}
			for i := range y.Type.Shape {
				axes = append(axes, i)
			}
			part := x.Add("ReduceSum", ir.Attrs{"axes": axes}, x.Add("Mul", nil, y, g.AddInput(Target(m.Name), y.Type)))
			part = x.Add("Mul", nil, part, x.Like(y, 1/math.Sqrt(max(m.Spread, least)*float64(y.Type.Numel()))))
			if sum != nil {
				part = x.Add("Add", nil, sum, part)
			}
			sum = part
		}
		return sum
	}
}

// OutputSensitivity is the Sensitivity of the model's own outputs, on inputs by name as bytes of their types.
func (m *Model) OutputSensitivity(ctx context.Context, d hal.Device, inputs []map[string][]byte) (_ map[string]float64, err error) {
	outputs, err := m.spreads(ctx, d, inputs)
	if err != nil {
		return nil, err
	}
	opt := StepOptions{Precision: precision.FP32, Loss: Fisher(outputs)}
	return Sensitivity(ctx, m, opt, d, len(inputs), func(k int, s *runtime.Session) error {
		for name, data := range inputs[k] {
			if err := s.Set(name, data); err != nil {
				return err
			}
		}
		rng := rand.New(rand.NewPCG(uint64(k), 0))
		for _, o := range outputs {
			signs := runtime.View[float32](s.Input(Target(o.Name)))
			for i := range signs {
				signs[i] = float32(2*rng.IntN(2) - 1)
			}
		}
		return nil
	})
}

// spreads are the model's outputs, with how far they vary over inputs; of one input, by 1.
func (m *Model) spreads(ctx context.Context, d hal.Device, inputs []map[string][]byte) (_ []Match, err error) {
	t, err := teacher.Open(ctx, m.File, d, teacher.Options{Precision: precision.FP32, Batch: m.batch, Import: m.imports})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	var samples []map[string][]byte
	for _, in := range inputs {
		for i := range m.batch {
			one := map[string][]byte{}
			for name, data := range in {
				n := len(data) / m.batch
				one[name] = data[i*n : (i+1)*n]
			}
			samples = append(samples, one)
		}
	}
	values, err := t.Values(ctx, make([]string, len(samples)), samples)
	if err != nil {
		return nil, err
	}
	out := Matches(t.Names(), teacher.Spreads(values))
	for i := range out {
		if len(samples) == 1 { // nothing varies
			out[i].Spread = 1
		}
	}
	return out, nil
}
