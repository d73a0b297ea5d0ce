package dora

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

// blame says which value of the step that ran last was the first to become NaN, or infinite if none did: the step's graph is
// evaluated on what the session holds, with values rounded as they are stored.
func (t *Trainer) blame(ctx context.Context) string {
	nan, infinite, err := t.notFinite(ctx)
	switch {
	case err != nil:
		return fmt.Sprintf("which value was the first could not be found out: %v", err)
	case nan == nil && infinite == nil:
		return "evaluated in float64 on the same inputs all values are finite: a kernel is wrong, or a product overflows before it is stored"
	case nan == nil:
		return "the first value that became infinite is " + described(infinite)
	case infinite == nil:
		return "the first value that became NaN is " + described(nan)
	}
	return fmt.Sprintf("the first value that became NaN is %s, which depends on %s, which is infinite", described(nan), described(infinite))
}

func described(v *ir.Value) string {
	place := "an input"
	if v.Def != nil {
		if place = "of node " + v.Def.Name; len(v.Def.From) > 0 {
			place = "from node " + v.Def.From[0].Name
		}
	}
	return fmt.Sprintf("%q, %v, %s", v.Name, v.Type, place)
}

// notFinite finds the first value of the step that has a NaN, and the first infinite one that it depends on, or that there is.
func (t *Trainer) notFinite(ctx context.Context) (nan, first *ir.Value, err error) {
	s := t.step
	e, err := s.entry(s.model, EntryStep, &s.opt)
	if err != nil {
		return nil, nil, err
	}
	on, err := target.Lookup(t.session.Model().Variant.Target)
	if err != nil {
		return nil, nil, err
	}
	g := e.Parts[0].Graph
	if err := passes.Run(&passes.Context{Target: on, Precision: s.opt.Precision}, g, nil, nil); err != nil {
		return nil, nil, err
	}
	kept := map[string]bool{}
	for _, k := range e.States {
		kept[k.Input] = true
	}
	given := map[string]*ir.Array{}
	var infinite []*ir.Value
	look := func(v *ir.Value, a *ir.Array) {
		for _, x := range a.F {
			if x != x && nan == nil {
				nan = v
			}
		}
		if slices.ContainsFunc(a.F, func(x float64) bool { return math.IsInf(x, 0) }) {
			infinite = append(infinite, v)
		}
	}
	for _, v := range g.Inputs {
		data := t.session.Input(v.Name)
		if kept[v.Name] {
			if data, err = t.session.State(v.Name); err != nil {
				return nil, nil, err
			}
		}
		x, err := ir.NewTensor(v.Type, data)
		if err != nil {
			return nil, nil, err
		}
		given[v.Name] = x.Array()
		look(v, given[v.Name])
	}
	if _, err := ir.Evaluate(ctx, g, given, ir.EvalOptions{Round: true, Observe: look}); err != nil {
		return nil, nil, err
	}
	before := map[*ir.Value]bool{}
	var mark func(v *ir.Value)
	mark = func(v *ir.Value) {
		if v == nil || before[v] {
			return
		}
		if before[v] = true; v.Def != nil {
			for _, w := range v.Def.Inputs {
				mark(w)
			}
		}
	}
	mark(nan)
	for _, v := range infinite {
		if nan == nil || before[v] {
			return nan, v, nil
		}
	}
	return nan, nil, nil
}
