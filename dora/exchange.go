package dora

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/runtime"
)

// Inputs are the names of what is set before each micro-batch: the model's inputs and those of the loss.
func (s *Step) Inputs() (names []string) {
	for _, p := range s.Program.Inputs {
		kept := slices.ContainsFunc(s.Program.States, func(st runtime.State) bool { return st.Input == p.Name })
		if !kept && p.Name != InputRate && p.Name != InputCount {
			names = append(names, p.Name)
		}
	}
	return names
}

// Gradient is the mean of the gradients that Accumulate has kept since the last update, of all trained numbers
// concatenated.
func (t *Trainer) Gradient() ([]float32, error) {
	data, err := t.session.State(keptSum)
	return runtime.View[float32](data), err
}

// Apply updates the adapter by a gradient at the learning rate, as Step does by its own. The gradient is what Gradient gives, or the
// mean of what several ranks have there. Result has no loss.
func (t *Trainer) Apply(ctx context.Context, rate float64, gradient []float32) (Result, error) {
	if err := t.settle(ctx); err != nil {
		return Result{}, err
	}
	if err := t.session.SetState(keptSum, runtime.Bytes(gradient)); err != nil {
		return Result{}, err
	}
	return t.apply(ctx, EntryApply, rate)
}

// Evaluate computes the loss for the inputs that are set and changes nothing. The step needs StepOptions.Evaluate.
func (t *Trainer) Evaluate(ctx context.Context) (float64, error) {
	if err := t.session.RunEntry(ctx, EntryEvaluate); err != nil {
		return 0, err
	}
	return t.number(OutputLoss), nil
}

// Snapshot is all that the next steps depend on besides their inputs: steps after Restore compute the bits that they would have
// computed after Snapshot.
type Snapshot struct {
	Updates int               // that were applied
	Refused int               // in a row, last
	Kept    map[string][]byte // by the name of the program's state: adapter, moments, loss scale and what follows from them
}

// Snapshot reads it from the device.
func (t *Trainer) Snapshot() (Snapshot, error) {
	if err := t.settle(ended()); err != nil {
		return Snapshot{}, err
	}
	s := Snapshot{t.count, t.refused, map[string][]byte{}}
	for _, st := range t.step.Program.States {
		data, err := t.session.State(st.Input)
		if err != nil {
			return Snapshot{}, err
		}
		s.Kept[st.Input] = data
	}
	return s, nil
}

// Restore writes a snapshot of the same step to the device. One of another step is an error, and then nothing is written.
func (t *Trainer) Restore(s Snapshot) error {
	if err := t.settle(ended()); err != nil {
		return err
	}
	var errs []error
	states := t.step.Program.States
	for _, st := range states {
		data, ok := s.Kept[st.Input]
		switch have, err := t.session.State(st.Input); {
		case err != nil:
			errs = append(errs, err)
		case !ok:
			errs = append(errs, fmt.Errorf("it lacks %q", st.Input))
		case len(data) != len(have):
			errs = append(errs, fmt.Errorf("%q has %d bytes, this step's has %d", st.Input, len(data), len(have)))
		}
	}
	if len(s.Kept) > len(states) {
		errs = append(errs, fmt.Errorf("it has %d states, this step %d", len(s.Kept), len(states)))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("the snapshot is not of this step: %w", err)
	}
	for _, st := range states {
		if err := t.session.SetState(st.Input, s.Kept[st.Input]); err != nil {
			return err
		}
	}
	t.count, t.refused = s.Updates, s.Refused
	return nil
}
