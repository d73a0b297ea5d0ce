package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/internal/openpilot"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// Algorithm drives the cars of a batch: a Controller, a Policy or Models, which are compiled into the step, or a
// Callback.
type Algorithm interface{ algorithm() string }

func (c *Controller) algorithm() string { return c.Name }

// Callback is an algorithm in Go: from what each loop sees to its commands. It is called once a step, for the whole
// batch.
type Callback struct {
	Name string
	// Act fills commands, [2][loops]: curvature in 1/m and acceleration in m/s², from seen, [len(Observations)][loops].
	Act func(ctx context.Context, step int, seen, commands [][]float32) error
	// Look is Act of a callback that sees what driving models see: pictures of Width × Height pixels, both even,
	// [loops, 2, 6, Height/2, Width/2] of road and wide camera: four planes of luma, U and V, as WarpFrame orders them.
	Look          func(ctx context.Context, step int, pictures []byte, seen, commands [][]float32) error
	Width, Height int
}

func (c *Callback) algorithm() string { return c.Name }

// check is an error if nothing can be called.
func (c *Callback) check() error {
	switch {
	case (c.Act == nil) == (c.Look == nil):
		return fmt.Errorf("algorithm %q: a callback needs one of Act and Look", c.Name)
	case c.Look != nil && (c.Width < 2 || c.Height < 2 || c.Width%2 != 0 || c.Height%2 != 0 ||
		max(c.Width, c.Height) > 4096):
		return fmt.Errorf("algorithm %q: pictures of %d × %d pixels; want even numbers from 2 to 4096", c.Name,
			c.Width, c.Height)
	}
	return nil
}

// BuiltIn is the built-in controller of that name.
func BuiltIn(name string) (*Controller, error) {
	if name == Asked.Name {
		return Asked, nil
	}
	names := ""
	for i := range Controllers {
		if Controllers[i].Name == name {
			return &Controllers[i], nil
		}
		names += " " + Controllers[i].Name
	}
	return nil, fmt.Errorf("no algorithm %q: there are%s", name, names)
}

// Runner runs batches of scenarios.
type Runner struct {
	Device hal.Device
	// Batch is how many loops run at once; 0: 1,024. Results do not depend on it. With Models it is 8 at most, with a
	// Policy 256, and fewer take as long.
	Batch   int
	Tier    Tier     // with a Controller or a Callback that acts; Planner for others
	Targets []string // of the compiled step; none: the default
	Warn    func(string)

	// MinCosine is the accuracy budget of networks of precisions that are calibrated, as compile.Budget takes it.
	MinCosine *float64
	// Recording is what cameras see, with Models or a Callback that looks; nil: pictures are drawn.
	Recording *Recording

	// Progress is told of steps and of loops that ended; nil: nobody is.
	Progress *console.Meter
	// Ended is given the metrics of loops as they end, from loop first of the batch on; its error ends the batch.
	Ended func(first int, metrics [][]float64) error
	// Stopped is given the batch in flight when the context ends. That is then noticed between steps alone: a step is a
	// launch of ten where no model sees pictures. Nil, or with a Callback, which may keep what nobody knows: the batch
	// is lost.
	Stopped func(c *Checkpoint)
	// Keep is given the batch in flight between two steps, where Every has gone by since it was asked last; its error ends
	// the batch. The checkpoint is valid until it returns. A batch that Stopped cannot have is not kept.
	Keep  func(c *Checkpoint) error
	Every time.Duration
	// Checkpoints are batches to go on from, where loops are cut into the same batches. One that does not fit is told to
	// Warn, and its loops start anew.
	Checkpoints []Checkpoint
}

// Result is what a batch ended with: a row for each loop, in the order of the scenarios, and of the seeds within
// each.
type Result struct {
	Scenarios []Scenario
	Seeds     int    // loops of each scenario
	Seed      uint64 // of the batch
	Tier      Tier
	Metrics   [][]float64 // [loops][len(Tier.Metrics())]
	Steps     int         // that were run, of all loops
	Launches  int         // of a step
	Timing    Timing
	Layers    map[string]int   // of a network in a precision that is calibrated: how many are in which precision
	Program   *runtime.Program // whose entry "run" is a step; with a Callback, what follows its commands
}

// Timing is what steps took on the device, of all loops that run at once.
type Timing struct {
	Loops int           // of a step
	Cold  time.Duration // the first one; with ten at a time, a tenth of the first ten
	Warm  time.Duration // mean of the others; 0: there were none

	steps int // that are not the first
}

// add notes some steps that were run together.
func (t *Timing) add(took time.Duration, steps int) {
	took /= time.Duration(steps)
	if t.Cold == 0 {
		t.Cold = took
		return
	}
	t.steps += steps
	t.Warm += (took - t.Warm) * time.Duration(steps) / time.Duration(t.steps)
}

// unbounded stands for a metric that is not finite, of a loop that diverged; 0 where more is better.
const unbounded = 1e6

// Failed says whether a loop ended in a failure.
func (r *Result) Failed(loop int) bool {
	for i, m := range r.Tier.Metrics() {
		if m.Failure && r.Metrics[loop][i] > 0 {
			return true
		}
	}
	return false
}

// RunBatch runs each scenario n times. Loop k of a scenario draws its noise from the seed, the scenario's stream and k
// alone: neither other scenarios nor the size of batches change a bit of it. Two loops that would draw the same noise
// are an error. A loop that diverges is marked in its metrics; the others go on.
//
// An error that comes later than the first batch, such as the end of the context, comes with the result of the loops
// that had ended.
func (r *Runner) RunBatch(ctx context.Context, scenarios []Scenario, a Algorithm, n int, seed uint64) (*Result, error) {
	return r.run(ctx, scenarios, a, n, seed, nil)
}

// stepLoops is how many loops a step of an algorithm's networks always has; 0: as many as run at once.
func stepLoops(a Algorithm) int {
	switch a.(type) {
	case *Models:
		return modelLoops
	case *Policy:
		return policyLoops
	}
	return 0
}

// AtOnce is how many loops of an algorithm run at once.
func (r *Runner) AtOnce(a Algorithm) int {
	return min(cmp.Or(r.Batch, 1024), cmp.Or(stepLoops(a), math.MaxInt))
}

// run is RunBatch; record is called before the first step of a batch and after each step.
func (r *Runner) run(
	ctx context.Context, scenarios []Scenario, a Algorithm, n int, seed uint64, record func(b *batch) error,
) (*Result, error) {
	if err := r.check(scenarios, a, n); err != nil {
		return nil, err
	}
	total := len(scenarios) * n
	each := min(r.AtOnce(a), total)
	d, callback, err := r.design(scenarios, a, cmp.Or(stepLoops(a), each))
	if err != nil {
		return nil, err
	}
	if r.Recording != nil {
		if err := d.show(ctx, r.Recording, a, scenarios); err != nil {
			return nil, err
		}
	}
	if err := d.checkRoads(scenarios); err != nil {
		return nil, err
	}
	done, err := d.calibrate(ctx, r)
	if err != nil {
		return nil, err
	}
	defer done()
	b, err := d.open(ctx, r)
	if err != nil {
		return nil, err
	}
	defer b.session.Close()
	b.callback, b.seed, b.record = callback, seed, record
	out := &Result{Scenarios: scenarios, Seeds: n, Seed: seed, Tier: r.Tier}
	if d.view != nil {
		out.Tier = Pictures
	}
	out.Launches, out.Program, out.Layers, out.Timing.Loops = b.launches, b.program, b.layers, d.loops
	defer func() { out.Timing.Cold, out.Timing.Warm = b.timing.Cold, b.timing.Warm }()
	if callback == nil {
		b.stopped, b.keep, b.every, b.saved = r.Stopped, r.Keep, r.Every, time.Now()
	}
	r.Progress.Begin(float64(total), "%s: %s", a.algorithm(), console.Count(total, "loop"))
	for from := 0; from < total; from += each {
		b.take(scenarios, n, from, min(from+each, total))
		b.tell = func(step, steps int) {
			done := float64(from) + float64(len(b.list)*step)/float64(steps)
			r.Progress.Step(from, total, done/float64(total))
		}
		rows, err := b.run(ctx, r.checkpointOf(from, len(b.list)))
		if err != nil {
			return out, err
		}
		for _, row := range rows {
			out.Metrics = append(out.Metrics, row)
			out.Steps += int(math.Round(row[len(row)-1] / Step))
		}
		r.Progress.Step(len(out.Metrics), total, float64(len(out.Metrics))/float64(total))
		if r.Ended != nil {
			if err := r.Ended(from, out.Metrics[from:]); err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

// check says why scenarios cannot run, each n times.
func (r *Runner) check(scenarios []Scenario, a Algorithm, n int) error {
	switch {
	case len(scenarios) == 0:
		return errors.New("there is no scenario to run")
	case n < 1:
		return fmt.Errorf("each scenario is to run %d times; want once at least", n)
	case r.Batch < 0:
		return fmt.Errorf("a batch of %d loops; want 1 at least, or 0 for the default", r.Batch)
	case a == nil:
		return errors.New("there is no algorithm")
	}
	for _, s := range scenarios {
		if err := s.check(); err != nil {
			return err
		}
	}
	if err := disjoint(scenarios, n); err != nil {
		return err
	}
	return r.Tier.check(a)
}

// design is the step of so many loops, in which an algorithm drives, and the algorithm itself if it is asked from outside.
func (r *Runner) design(scenarios []Scenario, a Algorithm, size int) (d *design, callback *Callback, err error) {
	d = &design{loops: size, float: ir.Float32, tier: r.Tier, warn: r.Warn, minCosine: r.MinCosine, knots: knotsOf(scenarios)}
	switch a := a.(type) {
	case *Controller:
		d.controller = a
	case *Callback:
		if callback, err = a, a.check(); err == nil && a.Look != nil {
			d.view, err = viewOf(a.Height, a.Width)
		}
	case *Models:
		if d.models, err = a.load(size); err == nil {
			d.view = d.models.view
		}
	case *Policy:
		d.policy, err = a.load(size)
	default:
		err = fmt.Errorf("algorithm %T is neither a controller, nor a policy, nor driving models, nor a callback", a)
	}
	return d, callback, err
}

// take gives a batch the loops from one to another, of scenarios that run n times each.
func (b *batch) take(scenarios []Scenario, n, from, to int) {
	b.first, b.list, b.numbers = from, nil, nil
	for i := from; i < to; i++ {
		b.list = append(b.list, scenarios[i/n])
		b.numbers = append(b.numbers, scenarios[i/n].stream(i/n)+uint64(i%n))
	}
}

// open compiles a step and loads it.
func (d *design) open(ctx context.Context, r *Runner) (*batch, error) {
	program, err := d.compiled(ctx, r.Targets)
	if err != nil {
		return nil, err
	}
	b := &batch{design: d, size: d.loops, program: program.Program, layers: program.Layers}
	for _, e := range program.Program.Variants[0].Entries {
		if e.Name != entrySteps {
			b.launches += len(e.Launches)
		}
	}
	if b.session, err = runtime.Open(ctx, program.Program, r.Device, runtime.ModelOptions{}); err != nil {
		return nil, err
	}
	if err := d.load(b.session); err != nil {
		return nil, errors.Join(err, b.session.Close())
	}
	return b, nil
}

// stream is the number of the first loop of a scenario, by its place in the batch where it has none of its own.
func (s Scenario) stream(place int) uint64 {
	if s.Stream != 0 {
		return s.Stream
	}
	return uint64(place) << 32
}

// disjoint says which two scenarios have loops of the same noise.
func disjoint(scenarios []Scenario, n int) error {
	order := make([]int, len(scenarios))
	for i := range order {
		order[i] = i
	}
	first := func(i int) uint64 { return scenarios[i].stream(i) }
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(first(i), first(j)) })
	for k := 1; k < len(order); k++ {
		i, j := order[k-1], order[k]
		if first(j)-first(i) < uint64(n) {
			return fmt.Errorf("scenarios %d (%q) and %d (%q) have overlapping seeds: loops of both would draw the same noise; give them "+
				"other streams", i, scenarios[i].Name, j, scenarios[j].Name)
		}
	}
	return nil
}

// batch is loops that run together.
type batch struct {
	*design
	session  *runtime.Session
	program  *runtime.Program
	layers   map[string]int // as of Result
	timing   Timing
	size     int
	launches int // of a step
	callback *Callback
	seed     uint64
	first    int // place of its first loop among all
	list     []Scenario
	numbers  []uint64 // of the loops
	metrics  []float32
	tell     func(step, steps int)
	record   func(b *batch) error
	stopped  func(c *Checkpoint) // is given the batch where the context ends; nil: the batch is lost
	keep     func(c *Checkpoint) error
	every    time.Duration
	saved    time.Time // when keep was last asked
}

// run runs the batch from its beginning or a checkpoint to its end, and returns a row of metrics for each loop.
func (b *batch) run(ctx context.Context, from *Checkpoint) (rows [][]float64, err error) {
	if from != nil && from.Metrics != nil {
		return from.Metrics, nil
	}
	if err := b.begin(); err != nil {
		return nil, err
	}
	first := 0
	if from != nil {
		if err := b.restore(from); err != nil {
			if b.warn != nil {
				b.warn(fmt.Sprintf("checkpoint of loops from %d on: %v; they start anew", b.first, err))
			}
			if err := b.begin(); err != nil {
				return nil, err
			}
		} else {
			first = from.Step
		}
	}
	if b.record != nil {
		if err := b.record(b); err != nil {
			return nil, err
		}
	}
	if err := b.steps(ctx, first); err != nil {
		return nil, err
	}
	b.metrics = append([]float32{}, runtime.View[float32](b.session.Output(outputResult))...)
	for i := range b.list {
		rows = append(rows, b.row(i))
	}
	return rows, nil
}

// length is how many steps the longest loop has.
func (b *batch) length() (steps int) {
	for _, s := range b.list {
		steps = max(steps, int(math.Ceil(s.Get("duration")/Step-1e-9)))
	}
	return steps
}

// steps runs the steps from one on to the end of the last loop.
func (b *batch) steps(ctx context.Context, first int) error {
	work := ctx
	if b.stopped != nil { // a step that was stopped on its way leaves nothing to go on from
		work = context.WithoutCancel(ctx)
	}
	steps := b.length()
	for step := first; step < steps; step++ {
		if err := errors.Join(b.stops(ctx, step), b.keeps(first, step)); err != nil {
			return err
		}
		begin, begun := time.Now(), step
		if b.atOnce() && b.record == nil && steps-step >= stepsAtOnce {
			if err := b.session.RunEntry(work, entrySteps); err != nil {
				return err
			}
			step += stepsAtOnce - 1
		} else if err := b.step(work, step); err != nil {
			return err
		}
		b.timing.add(time.Since(begin), step+1-begun)
		if b.record != nil {
			if err := b.record(b); err != nil {
				return err
			}
		}
		b.tell(step+1, steps)
		if step%50 == 49 { // many end early: they collided, or diverged
			alive, err := b.state("alive")
			if err != nil {
				return err
			}
			if !slices.Contains(alive, 1) {
				break
			}
		}
	}
	return nil
}

// row are the metrics of a loop.
func (b *batch) row(i int) []float64 {
	metrics := b.tier.Metrics()
	row := make([]float64, len(metrics))
	for k, m := range metrics {
		row[k] = float64(b.metrics[k*b.size+i])
		if math.IsNaN(row[k]) || math.IsInf(row[k], 0) { // it diverged, and says so
			row[k] = unbounded
			if m.Higher {
				row[k] = 0
			}
		}
	}
	return row
}

// state is what loops keep under a name of states or sums: a number of each.
func (b *batch) state(name string) ([]float32, error) {
	x, err := b.session.State(name)
	return runtime.View[float32](x), err
}

// begin gives the session the initial states. Padding repeats the first loop, since every batch has the same size.
func (b *batch) begin() error {
	padded, numbers := make([]Scenario, b.size), make([]uint64, b.size)
	for i := range padded {
		k := i
		if k >= len(b.list) {
			k = 0
		}
		padded[i], numbers[i] = b.list[k], b.numbers[k]
	}
	params := make([]float32, tableRows*b.size)
	for i, s := range padded {
		for k, x := range s.table() {
			params[k*b.size+i] = float32(x)
		}
	}
	if err := b.start(b.session, padded); err != nil {
		return err
	}
	key := []uint64{b.seed & math.MaxUint32, b.seed >> 32}
	inputs := map[string][]byte{inputParams: runtime.Bytes(params)}
	inputs[inputKey], inputs[inputLoop] = runtime.Bytes(key), runtime.Bytes(numbers)
	if b.knots > 0 {
		inputs[inputRoads] = b.roads(padded)
	}
	for name, data := range inputs {
		if err := b.session.Set(name, data); err != nil {
			return err
		}
	}
	return nil
}

func (b *batch) step(ctx context.Context, step int) error {
	if b.callback == nil {
		return b.session.Run(ctx)
	}
	if err := b.session.RunEntry(ctx, entryObserve); err != nil {
		return err
	}
	seen := rowsOf(runtime.View[float32](b.session.Output(outputSeen)), b.size)
	act := make([]float32, 2*b.size)
	commands := rowsOf(act, b.size)
	name := b.callback.Name
	var err error
	if b.callback.Look != nil {
		err = b.callback.Look(ctx, step, b.session.Output(openpilot.Planes), seen, commands)
	} else {
		err = b.callback.Act(ctx, step, seen, commands)
	}
	if err != nil {
		return fmt.Errorf("algorithm %q: step %d: %w", name, step, err)
	}
	for k, what := range []string{"curvature", "acceleration"} {
		if len(commands[k]) != b.size {
			return fmt.Errorf("algorithm %q: step %d: %d values of %s for %d loops", name, step, len(commands[k]),
				what, b.size)
		}
		for i, x := range commands[k][:len(b.list)] {
			if f := float64(x); math.IsNaN(f) || math.IsInf(f, 0) {
				return fmt.Errorf("algorithm %q: step %d: %s of scenario %q is %v", name, step, what, b.list[i].Name, x)
			}
		}
		copy(act[k*b.size:], commands[k])
	}
	if err := b.session.Set(inputAct, runtime.Bytes(act)); err != nil {
		return err
	}
	return b.session.RunEntry(ctx, entryAdvance)
}

func rowsOf(x []float32, size int) (rows [][]float32) {
	for from := 0; from < len(x); from += size {
		rows = append(rows, x[from:from+size:from+size])
	}
	return rows
}
