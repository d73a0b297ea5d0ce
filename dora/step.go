package dora

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/codegen"
	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
	"github.com/spark-compile/spark-compile/runtime"
)

// Inputs and outputs of a step in addition to those of the model and the loss. Each is one f32.
const (
	InputRate  = "learning_rate" // the rate of this update
	InputCount = "update"        // the number of this update: 1, 2, …
	OutputLoss = "loss"          // of this micro-batch, not scaled
	OutputNorm = "gradient_norm" // over all trained numbers and micro-batches, before clipping
	OutputDone = "applied"       // 1 if the update was applied, 0 if a gradient was not finite
)

// What a session keeps. Adapter holds the trained numbers of all layers concatenated, gains and inverse norms what
// follows from them: m/‖V‖ and 1/‖V‖ of every row.
const (
	keptAdapter = "adapter"
	keptGain    = "adapter.gain"
	keptInverse = "adapter.inverse_norm"
	keptFirst   = "adamw.first"
	keptSecond  = "adamw.second"
	keptSum     = "gradient.sum"
	keptScale   = "loss.scale"
	keptGood    = "loss.good"
)

// Entries of a step's program.
const (
	EntryPrepare    = "prepare"    // gains and norms from the adapter
	EntryRun        = "run"        // the adapted model
	EntryStep       = "step"       // forward, loss, backward, update
	EntryAccumulate = "accumulate" // forward, loss, backward: the gradient is kept for the next step
	EntryApply      = "apply"      // update by the gradient that is kept
	EntryEvaluate   = "evaluate"   // forward, loss
)

// StepOptions say how a step trains.
type StepOptions struct {
	// Precision is fp32, fp16 or bf16: of the model's values; trained numbers and their moments are f32. No layers
	// stay f32: in PyTorch's autocast leaving out any one part of policy changes the median error of gradients in
	// bf16 from 0.032 to between that and 0.036.
	Precision string
	// Base is how frozen weights are stored: fp8, fp6 or nvfp4, as narrow as that precision has them; "": as in
	// the file. They are rounded to the nearest numbers, or as Model.RoundBase found them if Base is the name that
	// it gave. The adapter is trained with the rounded ones. Programs of fp32 keep them wide.
	Base    string
	Targets []string // of PTX; the default target if there is none
	// Loss builds the loss, one f32, from the model's outputs by name, which are f32. It may add inputs to the graph, and append single
	// f32 to its outputs, named by Term: what the loss consists of. By default MeanSquared.
	Loss func(x *ir.Expansion, g *ir.Graph, outputs map[string]*ir.Value) *ir.Value

	Beta1, Beta2 float64 // 0.9 and 0.999 by default
	Epsilon      float64 // 1e-8
	WeightDecay  float64 // decoupled
	ClipNorm     float64 // 0: no clipping
	MicroBatches int     // whose mean gradient makes an update; 1 by default
	// Exchange lets the caller have the gradient before it is applied, to take the mean of several ranks' ones: an update is
	// Trainer.Accumulate for every micro-batch, Gradient, and Apply instead of Step.
	Exchange bool
	// Evaluate adds what Trainer.Evaluate runs.
	Evaluate bool
	// LossScale is what the loss is multiplied with before it is differentiated; 0: 65536 in fp16, else 1. In fp16 it doubles
	// after 2000 updates and halves where a gradient is not finite.
	LossScale float64
	// Patience is the number of updates in a row that may be left out, since a gradient is not finite, before Trainer.Step is an
	// error that names the first value that became NaN; 20 by default, more than the loss scale of fp16 needs to come down to 1.
	Patience int
	// Memory bounds the bytes of what the device keeps between launches, in addition to weights, inputs, outputs
	// and trained numbers, by recomputing values for their gradients instead of keeping them; 0: not. Step.Explain
	// says which.
	Memory int
}

// MeanSquared is the sum of the outputs' mean squared differences from inputs called target:NAME.
func MeanSquared(x *ir.Expansion, g *ir.Graph, outputs map[string]*ir.Value) *ir.Value {
	var sum *ir.Value
	for _, name := range slices.Sorted(maps.Keys(outputs)) {
		mean := meanSquare(x, g, name, outputs[name])
		if sum == nil {
			sum = mean
		} else {
			sum = x.Add("Add", nil, sum, mean)
		}
	}
	return sum
}

// Step is a compiled training step of an adapter.
type Step struct {
	Adapter *Adapter
	Program *runtime.Program
	Compile *compile.Result

	trained, gains, inverse vector

	model *Model
	opt   StepOptions
	base  base
	terms []string // outputs that the loss has added
}

// growth is the number of updates after which the loss scale of fp16 doubles.
const growth = 2000

// NewStep compiles a step that trains the adapter. The model's shapes are those that it was opened with: a batch of N images
// is a micro-batch.
func NewStep(ctx context.Context, m *Model, a *Adapter, opt StepOptions) (*Step, error) {
	opt.defaults()
	s := &Step{Adapter: a, model: m, opt: opt}
	s.trained, s.gains, s.inverse = a.vectors()
	if err := s.store(opt.Base); err != nil {
		return nil, fmt.Errorf("%s: %w", m.File.Path, err)
	}
	entries := []compile.Entry{}
	wanted := map[string]bool{
		EntryRun:        true,
		EntryStep:       !opt.Exchange,
		EntryAccumulate: opt.Exchange || opt.MicroBatches > 1,
		EntryApply:      opt.Exchange,
		EntryEvaluate:   opt.Evaluate,
		EntryPrepare:    s.gains.size > 0,
	}
	for _, name := range []string{EntryRun, EntryStep, EntryAccumulate, EntryApply, EntryEvaluate, EntryPrepare} {
		if !wanted[name] {
			continue
		}
		e, err := s.entry(m, name, &opt)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", m.File.Path, name, err)
		}
		entries = append(entries, e)
	}
	r, err := compile.Entries(ctx, m.File.Path, entries, compile.Options{Precision: opt.Precision, Targets: opt.Targets, Memory: opt.Memory})
	if over := (*compile.MemoryError)(nil); errors.As(err, &over) {
		return nil, fmt.Errorf("%w: set StepOptions.Memory to that%s", err, smallerBatch(m.batch, over.Budget, over.Least))
	}
	if err != nil {
		return nil, err
	}
	s.Program, s.Compile = r.Program, r
	return s, nil
}

func (opt *StepOptions) defaults() {
	set := func(x *float64, v float64) {
		if *x == 0 {
			*x = v
		}
	}
	if opt.Precision == "" {
		opt.Precision = precision.BF16
	}
	if len(opt.Targets) == 0 {
		opt.Targets = []string{target.Default().Name}
	}
	if opt.Loss == nil {
		opt.Loss = MeanSquared
	}
	set(&opt.Beta1, 0.9)
	set(&opt.Beta2, 0.999)
	set(&opt.Epsilon, 1e-8)
	if opt.LossScale == 0 {
		opt.LossScale = 1
		if opt.Precision == precision.FP16 {
			opt.LossScale = 65536
		}
	}
	opt.MicroBatches = max(opt.MicroBatches, 1)
	if opt.Patience == 0 {
		opt.Patience = 20
	}
}

// entry builds the graphs of an entry: the model with what is differentiated, and then the update, in f32, and
// what follows from the updated adapter.
func (s *Step) entry(m *Model, name string, opt *StepOptions) (compile.Entry, error) {
	e := compile.Entry{Name: name, States: []codegen.StateBinding{{Input: keptAdapter, Initial: s.trained.bytes()}}}
	switch name {
	case EntryPrepare:
		return e, s.prepare(m, &e, keptAdapter, opt)
	case EntryApply:
		return e, s.update(m, &e, opt)
	}
	g, err := promoted(m.graph)
	if err != nil {
		return e, err
	}
	g.Name = name
	e.Parts = []compile.Part{{Graph: g, Precision: opt.Precision, Wide: OutputLoss}}
	ctx := passContext(opt.Precision, s.Adapter.passes(), s.base.Base)
	run, own := []string{"insert-dora", "quantise-base"}, g.Outputs
	if name != EntryRun {
		if err := s.addLoss(g, opt); err != nil {
			return e, fmt.Errorf("loss: %w", err)
		}
		// What the model spells out becomes one op first: its gradient computes again what is inside, where it is read.
		run = slices.Concat([]string{"recognise-gelu", "recognise-silu", "recognise-softmax", "recognise-layernorm", "recognise-attention"}, run)
	}
	if err := passes.Run(ctx, g, run, nil); err != nil {
		return e, err
	}
	if name != EntryRun {
		g.Outputs = g.Outputs[:len(g.Outputs)-len(own)] // every layer has its adapter, also those that the loss does not read
		g.RemoveDead()
	}
	gradients := name == EntryStep || name == EntryAccumulate
	if gradients {
		ctx.Losses = []string{scaledLoss}
		for _, p := range s.trained.parts {
			ctx.Variables = append(ctx.Variables, p.name)
		}
		if err := passes.Run(ctx, g, []string{"differentiate", "sink-padding"}, nil); err != nil {
			return e, err
		}
	}
	if name != EntryRun {
		g.Outputs = slices.Delete(g.Outputs, 1, 2) // the scaled loss
		g.RemoveDead()
	}
	if gradients {
		if err := s.trained.join(g, outputGradient, passes.GradientPrefix); err != nil {
			return e, err
		}
	}
	for _, v := range []*vector{&s.gains, &s.inverse, &s.trained} {
		if err := v.split(g, v.input(v.name)); err != nil {
			return e, err
		}
	}
	s.keepPrepared(&e, false)
	if !gradients {
		g.Inputs = slices.DeleteFunc(g.Inputs, func(v *ir.Value) bool { return v.Name == keptScale })
		return e, g.Verify()
	}
	return e, s.update(m, &e, opt)
}

// update adds the part that keeps or applies the gradient, and what prepares the updated adapter for the next run.
func (s *Step) update(m *Model, e *compile.Entry, opt *StepOptions) error {
	u := &update{Step: s, opt: opt, entry: e, g: ir.NewGraph("update")}
	e.Parts = append(e.Parts, compile.Part{Graph: u.g, Precision: precision.FP32})
	if err := u.g.Build("update", u.build); err != nil {
		return err
	}
	if err := u.g.Verify(); err != nil || e.Name == EntryAccumulate || s.gains.size == 0 {
		return err
	}
	return s.prepare(m, e, nextAdapter, opt)
}

// Outputs that a later part of an entry reads.
const (
	outputGradient = "gradient" // of all trained numbers
	nextAdapter    = "next:" + keptAdapter
)

// prepare adds the part that computes gains and inverse norms from a vector of trained numbers.
func (s *Step) prepare(m *Model, e *compile.Entry, from string, opt *StepOptions) error {
	g, err := promoted(m.graph)
	if err != nil {
		return err
	}
	g.Name = EntryPrepare
	ctx := passContext(opt.Precision, s.Adapter.passes(), s.base.Base)
	if err := passes.Run(ctx, g, []string{"insert-dora", "quantise-base"}, nil); err != nil {
		return err
	}
	g.Inputs, g.Outputs = slices.DeleteFunc(g.Inputs, func(v *ir.Value) bool { return s.trained.at(v.Name) < 0 }), nil
	if err := s.inverse.join(g, "next:"+keptInverse, ""); err != nil {
		return err
	}
	g.RemoveDead()
	if err := s.trained.split(g, s.trained.input(from)); err != nil {
		return err
	}
	if err := s.multiply(g, from); err != nil {
		return err
	}
	e.Parts = append(e.Parts, compile.Part{Graph: g, Precision: opt.Precision})
	s.keepPrepared(e, true)
	return g.Verify()
}

// multiply adds the gains to a graph that has the inverse norms: a product of vectors.
func (s *Step) multiply(g *ir.Graph, trained string) error {
	i := slices.IndexFunc(g.Inputs, func(v *ir.Value) bool { return v.Name == trained })
	var flat *ir.Value
	if i >= 0 {
		flat = g.Inputs[i]
	} else { // magnitudes alone
		flat = g.AddInput(trained, ir.T(ir.Float32, s.trained.size))
	}
	return g.Build(keptGain, func(x *ir.Expansion) {
		from, _ := s.trained.span(directions)
		m := x.Add("Slice", ir.Attrs{"starts": []int{from}, "sizes": []int{s.gains.size}}, flat)
		gain := x.Add("Mul", nil, m, g.Outputs[0])
		gain.Name = "next:" + keptGain
		g.Outputs = append(g.Outputs, gain)
	})
}

// keepPrepared says that gains and inverse norms are kept, and whether the entry changes them.
func (s *Step) keepPrepared(e *compile.Entry, next bool) {
	for _, v := range []*vector{&s.gains, &s.inverse} {
		if v.size == 0 {
			continue
		}
		i := slices.IndexFunc(e.States, func(k codegen.StateBinding) bool { return k.Input == v.name })
		if i < 0 {
			i, e.States = len(e.States), append(e.States, codegen.StateBinding{Input: v.name})
		}
		if next {
			e.States[i].Output = "next:" + v.name
		}
	}
}

// update builds what becomes of the gradients: kept for later, or clipped and applied by AdamW (Loshchilov and Hutter 2019,
// algorithm 2, with ε outside the root as PyTorch has it). A gradient that is not finite changes nothing but the loss scale.
type update struct {
	*Step
	opt   *StepOptions
	entry *compile.Entry
	g     *ir.Graph
	x     *ir.Expansion
}

func (u *update) op(name string, in ...*ir.Value) *ir.Value { return u.x.Add(name, nil, in...) }

func (u *update) output(name string, v *ir.Value) {
	v.Name = name
	u.g.Outputs = append(u.g.Outputs, v)
}

// keep says what is kept of an input, and its new value if it has one. Initial nil: it begins with zeros.
func (u *update) keep(input string, initial []byte, next *ir.Value) {
	k := codegen.StateBinding{Input: input, Initial: initial}
	if next != nil {
		k.Output = "next:" + input
		u.output(k.Output, next)
	}
	u.entry.States = append(u.entry.States, k)
}

// gradient is the vector of all gradients, of this micro-batch and those before.
func (u *update) gradient(scale *ir.Value) *ir.Value {
	if u.entry.Name == EntryApply {
		return u.g.AddInput(keptSum, ir.T(ir.Float32, u.trained.size))
	}
	d := u.g.AddInput(outputGradient, ir.T(ir.Float32, u.trained.size))
	d = u.op("Div", d, u.op("Mul", scale, u.x.Number(float64(u.opt.MicroBatches))))
	if u.accumulates() {
		d = u.op("Add", u.g.AddInput(keptSum, d.Type), d)
	}
	return d
}

// accumulates reports whether there is a sum of gradients.
func (u *update) accumulates() bool { return u.opt.Exchange || u.opt.MicroBatches > 1 }

// sum adds up a vector: rows of it first, which are blocks of a kernel, then their sums.
func (u *update) sum(v *ir.Value) *ir.Value {
	n := v.Type.Numel()
	row := max((n+sumRows-1)/sumRows, sumRows)
	rows := (n + row - 1) / row
	v = u.x.Reshape(u.x.Add("Pad", ir.Attrs{"begin": []int{0}, "end": []int{rows*row - n}}, v), rows, row)
	v = u.x.Add("ReduceSum", ir.Attrs{"axes": []int{1}}, v)
	return u.x.Add("ReduceSum", ir.Attrs{"axes": []int{0}}, v)
}

// sumRows is the number of rows of a long sum, and the least length of one.
const sumRows = 256

func (u *update) build(x *ir.Expansion) {
	u.x = x
	opt, op, number := u.opt, u.op, x.Number
	f32, vector := ir.T(ir.Float32), ir.T(ir.Float32, u.trained.size)
	scale := u.g.AddInput(keptScale, f32)
	initial := binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(opt.LossScale)))
	d := u.gradient(scale)
	if u.entry.Name == EntryAccumulate {
		u.keep(keptSum, nil, d)
		u.keep(keptScale, initial, nil)
		return
	}
	squares := u.sum(op("Mul", d, d))
	length := op("Sqrt", squares)
	u.output(OutputNorm, length)
	finite := op("Equal", op("Sub", squares, squares), number(0)) // ∞ - ∞ is NaN, which equals nothing
	u.output(OutputDone, x.Add("Cast", ir.Attrs{"to": ir.Float32}, finite))
	if opt.ClipNorm > 0 {
		d = op("Mul", d, op("Min", op("Div", number(opt.ClipNorm), op("Add", length, number(1e-6))), number(1)))
	}
	rate, count := u.g.AddInput(InputRate, f32), u.g.AddInput(InputCount, f32)
	flat, first, second := u.g.AddInput(keptAdapter, vector), u.g.AddInput(keptFirst, vector), u.g.AddInput(keptSecond, vector)
	mean := op("Add", op("Mul", first, number(opt.Beta1)), op("Mul", d, number(1-opt.Beta1)))
	square := op("Add", op("Mul", second, number(opt.Beta2)), op("Mul", op("Mul", d, d), number(1-opt.Beta2)))
	correction := func(beta float64) *ir.Value { return op("Sub", number(1), op("Pow", number(beta), count)) }
	root := op("Div", op("Sqrt", square), op("Sqrt", correction(opt.Beta2)))
	move := op("Div", op("Mul", mean, op("Div", rate, correction(opt.Beta1))), op("Add", root, number(opt.Epsilon)))
	next := op("Sub", op("Mul", flat, op("Sub", number(1), op("Mul", rate, number(opt.WeightDecay)))), move)
	u.entry.States[0].Output = nextAdapter
	u.output(nextAdapter, op("Where", finite, next, flat))
	u.keep(keptFirst, nil, op("Where", finite, mean, first))
	u.keep(keptSecond, nil, op("Where", finite, square, second))
	if u.accumulates() {
		u.keep(keptSum, nil, x.Constant(ir.Splat(vector, 0)))
	}
	if opt.Precision != precision.FP16 {
		u.keep(keptScale, initial, nil)
		return
	}
	good := u.g.AddInput(keptGood, f32)
	more := op("Add", good, number(1))
	full := op("LessEqual", number(growth), more)
	u.keep(keptScale, initial, op("Where", finite, op("Where", full, op("Mul", scale, number(2)), scale), op("Mul", scale, number(0.5))))
	u.keep(keptGood, nil, op("Where", op("And", finite, op("Not", full)), more, number(0)))
}

// Trainer runs a step on a device. One goroutine uses it at a time.
type Trainer struct {
	step    *Step
	session *runtime.Session
	count   int
	refused int // updates in a row that were left out

	left bool // an update goes on though its context has ended: whether it is applied is not known
}

// Open loads the step's program on a device.
func (s *Step) Open(ctx context.Context, d hal.Device) (*Trainer, error) {
	session, err := runtime.Open(ctx, s.Program, d, runtime.ModelOptions{})
	if errors.Is(err, hal.ErrOutOfMemory) {
		err = s.tooLarge(ctx, d, err)
	}
	if err != nil {
		return nil, err
	}
	t := &Trainer{step: s, session: session}
	if err := t.Write(ctx); err != nil {
		return nil, errors.Join(err, session.Close())
	}
	return t, nil
}

// Session is the program's session: inputs are set and outputs read there.
func (t *Trainer) Session() *runtime.Session { return t.session }

// Close frees the session.
func (t *Trainer) Close() error { return t.session.Close() }

// Result is what a step says.
type Result struct {
	Loss, Norm float64
	Applied    bool
	Terms      map[string]float64 // what the loss has added to its outputs: Trainer.Terms
}

// Accumulate runs forward and backward on the inputs that are set and keeps the gradient. It returns the loss.
func (t *Trainer) Accumulate(ctx context.Context) (float64, error) {
	if err := t.session.RunEntry(ctx, EntryAccumulate); err != nil {
		return 0, err
	}
	return t.number(OutputLoss), nil
}

// Step runs forward and backward on the inputs that are set and updates the adapter at the learning rate. A gradient that is not
// finite changes nothing but the loss scale; after StepOptions.Patience of them in a row it is an error. Where ctx ends in it, the device may go on
// (hal.ErrBusy): it is an update like others then.
func (t *Trainer) Step(ctx context.Context, rate float64) (Result, error) {
	r, err := t.apply(ctx, EntryStep, rate)
	r.Loss, r.Terms = t.number(OutputLoss), t.Terms()
	return r, err
}

// apply runs an entry that updates the adapter.
func (t *Trainer) apply(ctx context.Context, entry string, rate float64) (Result, error) {
	if err := t.settle(ctx); err != nil {
		return Result{}, err
	}
	t.set(InputRate, rate)
	t.set(InputCount, float64(t.count+1))
	if err := t.session.RunEntry(ctx, entry); err != nil {
		t.left = errors.Is(err, hal.ErrBusy)
		return Result{}, err
	}
	r := Result{Norm: t.number(OutputNorm), Applied: t.number(OutputDone) == 1}
	if t.counted(r.Applied); t.refused >= t.step.opt.Patience {
		return r, fmt.Errorf("%s: %d updates in a row had a gradient that is not finite: %s", t.step.Program.Model, t.refused, t.blame(ctx))
	}
	return r, nil
}

// counted notes whether an update was applied.
func (t *Trainer) counted(applied bool) {
	if applied {
		t.count++
		t.refused = 0
	} else {
		t.refused++
	}
}

// settle waits for the end of a run whose context has ended, and counts it if it was an update.
func (t *Trainer) settle(ctx context.Context) error {
	err := t.session.Wait(ctx)
	if !t.left || errors.Is(err, hal.ErrBusy) {
		return err
	}
	t.left = false
	if err != nil {
		return err
	}
	done := make([]byte, 4)
	at, _ := t.session.Memory(true, OutputDone) // nobody has fetched it
	if err := at.Memory.Read(done, at.Offset); err != nil {
		return err
	}
	t.counted(runtime.View[float32](done)[0] == 1)
	return nil
}

// ended is a context that has ended.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func (t *Trainer) set(name string, x float64) {
	runtime.View[float32](t.session.Input(name))[0] = float32(x)
}

func (t *Trainer) number(name string) float64 {
	return float64(runtime.View[float32](t.session.Output(name))[0])
}

// Read brings the trained numbers from the device into the adapter.
func (t *Trainer) Read() error {
	data, err := t.session.State(keptAdapter)
	if err != nil {
		return err
	}
	for _, l := range t.step.Adapter.Layers {
		l.Base = t.step.base.name
	}
	t.step.trained.read(data)
	return nil
}

// Write brings the adapter's numbers to the device, which computes what follows from them.
func (t *Trainer) Write(ctx context.Context) error {
	if err := t.settle(ctx); err != nil {
		return err
	}
	if err := t.session.SetState(keptAdapter, t.step.trained.bytes()); err != nil || t.step.gains.size == 0 {
		return err
	}
	return t.session.RunEntry(ctx, EntryPrepare)
}
