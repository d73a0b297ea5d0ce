package dora

import (
	"context"
	"fmt"

	"github.com/spark-compile/spark-compile/hal"
)

// tooLarge says of a step that a device has no memory for what would fit.
func (s *Step) tooLarge(ctx context.Context, d hal.Device, cause error) error {
	v, err := s.Program.Variant(d.Info().Target)
	if err != nil {
		return cause
	}
	all, has := s.Program.Memory(v), d.Info().Memory
	err = fmt.Errorf("%w: a step takes %d bytes of the device, %d of them for values between launches", cause, all, v.ArenaBytes)
	if has == 0 {
		return err
	}
	budget := has - (all - v.ArenaBytes)
	if budget <= 0 {
		return fmt.Errorf("%w, and the device has %d: that is too few for weights, inputs and what is trained alone", err, has)
	}
	least, failed := s.Compile.LeastMemory(ctx)
	switch {
	case failed != nil:
		return err
	case least <= budget && budget < v.ArenaBytes:
		return fmt.Errorf("%w, and the device has %d: StepOptions.Memory = %d makes it fit if nothing else takes memory there, by computing values again", err, has, budget)
	case least <= budget:
		return fmt.Errorf("%w, and the device has %d: others take memory there; a StepOptions.Memory down to %d takes less", err, has, least)
	}
	return fmt.Errorf("%w, and the device has %d: with all that may be computed again, values between launches take %d, but there is room for %d%s", err, has, least, budget, smallerBatch(s.model.batch, budget, least))
}

// smallerBatch is what to do where a batch needs more memory for its values than there is.
func smallerBatch(batch, budget, least int) string {
	if n := int(float64(batch) * float64(budget) / float64(least)); n > 0 && n < batch {
		return fmt.Sprintf(", or take a batch of about %d instead of %d", n, batch)
	}
	return ", or a narrower precision"
}
