package dora

import (
	"fmt"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

// baseStorage is how frozen weights are stored under a name of StepOptions.Base: as the narrowest weights of the precision.
func baseStorage(name string) (precision.Operand, error) {
	if name == "" {
		return precision.Operand{}, nil
	}
	p, err := precision.Lookup(name)
	if err != nil || !p.Calibrates() {
		return precision.Operand{}, fmt.Errorf("frozen weights cannot be stored as %q: give %s, or nothing", name, precision.Calibrating())
	}
	return p.Ladder[0].Weights, nil
}

// base is how a step stores frozen weights.
type base struct {
	precision.Operand // its zero value: as in the file
	name              string
}

// store says how frozen weights are stored. Numbers trained beside rounded weights make up for what these miss, and mean nothing
// beside others.
func (s *Step) store(name string) (err error) {
	if s.base.Operand, err = baseStorage(name); err != nil {
		return err
	}
	s.base.name = name
	for _, l := range s.Adapter.Layers {
		if l.Base != "" && l.Base != name {
			return fmt.Errorf("layer %s of the adapter was trained beside weights stored as %s: give that as Base, not %q", l.Module, l.Base, name)
		}
	}
	return nil
}

// Stored are the weights [Out, Row] as a step has them whose options say Base: rounded to the nearest numbers of that storage, or
// the file's own. Depthwise convolutions keep theirs.
func (w *Weight) Stored(base string) ([]float64, error) {
	to, err := baseStorage(base)
	if err != nil || to.Format == nil || w.Depthwise() {
		return w.Rows(), err
	}
	r := passes.RoundRows(to, w.Rows(), w.Out, w.In(), ir.T(ir.Bool, w.Taps...).Numel())
	return r.Values(), nil
}
