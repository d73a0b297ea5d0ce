package dora

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/ir"
)

// Term is the name of an output by which a loss reports a part of itself.
func Term(name string) string { return termPrefix + name }

const termPrefix = "term:"

// Terms are the outputs that the loss has added, by the names that Term was given, of the last Step, Accumulate or Evaluate; nil if there
// are none.
func (t *Trainer) Terms() map[string]float64 {
	if len(t.step.terms) == 0 {
		return nil
	}
	out := map[string]float64{}
	for _, name := range t.step.terms {
		out[strings.TrimPrefix(name, termPrefix)] = t.number(name)
	}
	return out
}

// scaledLoss is what is differentiated.
const scaledLoss = "scaled loss"

// addLoss puts the loss, the scaled loss and what the loss has appended before the model's outputs.
func (s *Step) addLoss(g *ir.Graph, opt *StepOptions) error {
	own := len(g.Outputs)
	err := g.Build(OutputLoss, func(x *ir.Expansion) {
		outputs, model := map[string]*ir.Value{}, g.Outputs
		for _, v := range g.Outputs {
			if v.Type.DType.IsFloat() {
				outputs[v.Name] = x.Add("Cast", ir.Attrs{"to": ir.Float32}, v)
			}
		}
		loss := opt.Loss(x, g, outputs)
		loss.Name = OutputLoss
		scaled := x.Add("Mul", nil, loss, g.AddInput(keptScale, ir.T(ir.Float32)))
		scaled.Name = scaledLoss
		g.Outputs = slices.Concat([]*ir.Value{loss, scaled}, g.Outputs[len(model):], model)
	})
	if err == nil && g.Outputs[0].Type.Rank() != 0 {
		err = fmt.Errorf("it is %v, want one number", g.Outputs[0].Type)
	}
	if err != nil {
		return err
	}
	s.terms = nil
	for _, v := range g.Outputs[2 : len(g.Outputs)-own] {
		if !v.Type.Equal(ir.T(ir.Float32)) {
			return fmt.Errorf("its output %q is %v, want one f32", v.Name, v.Type)
		}
		s.terms = append(s.terms, v.Name)
	}
	return nil
}
