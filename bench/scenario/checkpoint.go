package scenario

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/ir"
)

// Checkpoint is a batch that was stopped between two steps. A Runner that has it goes on to the bits that the batch
// would have ended with.
type Checkpoint struct {
	First   int               // place of its first loop among the loops of the run
	Loops   int               // that it has
	Step    int               // steps that were run
	States  map[string][]byte // of the session, all loops of the compiled step
	Metrics [][]float64       // of a batch that had ended; it has no states then
}

// checkpoint is the state of a batch before a step.
func (b *batch) checkpoint(step int) (*Checkpoint, error) {
	c := &Checkpoint{First: b.first, Loops: len(b.list), Step: step, States: map[string][]byte{}}
	for _, name := range b.stateNames() {
		x, err := b.session.State(name)
		if err != nil {
			return nil, err
		}
		c.States[name] = x
	}
	return c, nil
}

// restore gives the session, which has begun, the states of a checkpoint. An error leaves it between the two.
func (b *batch) restore(c *Checkpoint) error {
	names := b.stateNames()
	if len(c.States) != len(names) {
		return fmt.Errorf("it has %d states, want %d", len(c.States), len(names))
	}
	if steps := b.length(); c.Step < 0 || c.Step >= max(steps, 1) {
		return fmt.Errorf("%d of %s were run", c.Step, console.Count(steps, "step"))
	}
	for _, name := range names {
		data, err := b.fit(name, c)
		if err != nil {
			return err
		}
		if err := b.session.SetState(name, data); err != nil {
			return err
		}
	}
	return nil
}

// fit resizes a checkpoint's state to the step's number of loops. A controller's step is compiled for the loops
// that run at once, of which a resumed run may have fewer or more. The checkpoint's loops come first, before the
// batch's initial ones. States are [..., loops] of float32.
func (b *batch) fit(name string, c *Checkpoint) ([]byte, error) {
	data, from := c.States[name], len(c.States["alive"])/4
	if from == b.size || b.models != nil || b.policy != nil {
		return data, nil
	}
	x, err := b.session.State(name)
	if err != nil {
		return nil, err
	}
	rows := len(x) / (4 * b.size)
	if from < c.Loops || len(data) != 4*rows*from {
		return nil, fmt.Errorf("state %q of %d loops has %d bytes, want %d of at least %d loops", name, from, len(data),
			4*rows*from, c.Loops)
	}
	for i := range rows {
		copy(x[4*i*b.size:], data[4*i*from:][:4*c.Loops])
	}
	return x, nil
}

// checkpointOf is the checkpoint of the loops of a batch; nil: there is none.
func (r *Runner) checkpointOf(first, loops int) *Checkpoint {
	i := slices.IndexFunc(r.Checkpoints, func(c Checkpoint) bool { return c.First == first && c.Loops == loops })
	if i < 0 {
		return nil
	}
	return &r.Checkpoints[i]
}

// stateNames are those of all that a session keeps from step to step.
func (d *design) stateNames() (names []string) {
	names = slices.Clone(d.numbers())
	for name := range d.stateSizes() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// stateSizes are the bytes of states that are no numbers of a loop.
func (d *design) stateSizes() map[string]int {
	sizes := map[string]int{}
	for name, shape := range d.tableShapes() {
		sizes[name] = 4 * ir.T(ir.Float32, shape...).Numel() * d.loops
	}
	if d.models != nil {
		d.models.states(sizes)
	}
	if d.policy != nil {
		d.policy.states(sizes)
	}
	return sizes
}

// stops hands over the checkpoint before a step, if the batch is to end there.
func (b *batch) stops(ctx context.Context, step int) error {
	if b.stopped == nil || ctx.Err() == nil {
		return nil
	}
	c, err := b.checkpoint(step)
	if err != nil {
		return err
	}
	b.stopped(c)
	return ctx.Err()
}

// keeps saves the checkpoint before a step, if it is due and steps have run since the first one.
func (b *batch) keeps(first, step int) error {
	if b.keep == nil || step == first || time.Since(b.saved) < b.every {
		return nil
	}
	c, err := b.checkpoint(step)
	if err != nil {
		return err
	}
	b.saved = time.Now()
	return b.keep(c)
}
