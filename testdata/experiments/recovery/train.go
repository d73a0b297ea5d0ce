package recovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/spark-compile/spark-compile/dora"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// Input is what a model reads, by name.
type Input = map[string][]byte

// Quality is how near a model is to the teacher on some inputs, over all its outputs.
type Quality struct {
	Relative  float64 // mean relative L2
	Explained float64 // 1 − squared error / squared deviation of the teacher's outputs from their mean over the inputs
}

func (q Quality) String() string {
	return fmt.Sprintf("relative L2 %.4f, variation explained %.3f", q.Relative, q.Explained)
}

// Bench holds models to a teacher on inputs.
type Bench struct {
	device hal.Device
	Inputs []Input
	names  []string
	want   [][]float64 // by input, all outputs concatenated
}

// NewBench runs the teacher on the inputs.
func NewBench(ctx context.Context, d hal.Device, t *Teacher, inputs []Input) (*Bench, error) {
	b := &Bench{device: d, Inputs: inputs}
	for _, m := range t.Outputs {
		b.names = append(b.names, m.Name)
	}
	for _, in := range inputs {
		values, err := t.Of(ctx, in)
		if err != nil {
			return nil, err
		}
		var y []float64
		for _, name := range b.names {
			for _, x := range values[name] {
				y = append(y, float64(x))
			}
		}
		b.want = append(b.want, y)
	}
	return b, nil
}

// Model compiles a model in fp32 and measures it.
func (b *Bench) Model(ctx context.Context, m *dora.Model) (q Quality, err error) {
	g, err := onnx.Import(m.File, onnx.ImportOptions{})
	if err != nil {
		return q, err
	}
	r, err := compile.Graph(ctx, m.File.Path, g, compile.Options{Precision: "fp32", Targets: []string{target.Default().Name}})
	if err != nil {
		return q, err
	}
	s, err := runtime.Open(ctx, r.Program, b.device, runtime.ModelOptions{})
	if err != nil {
		return q, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return b.Session(ctx, s)
}

// Session measures what the entry run of a session computes.
func (b *Bench) Session(ctx context.Context, s *runtime.Session) (Quality, error) {
	var got [][]float64
	for _, in := range b.Inputs {
		if err := set(s, in); err != nil {
			return Quality{}, err
		}
		if err := s.Run(ctx); err != nil {
			return Quality{}, err
		}
		all, err := s.Float64s()
		if err != nil {
			return Quality{}, err
		}
		var y []float64
		for _, name := range b.names {
			y = append(y, all[name]...)
		}
		got = append(got, y)
	}
	return judge(got, b.want)
}

func set(s *runtime.Session, in Input) error {
	for name, data := range in {
		if err := s.Set(name, data); err != nil {
			return err
		}
	}
	return nil
}

func judge(got, want [][]float64) (q Quality, err error) {
	mean := make([]float64, len(want[0]))
	for _, y := range want {
		for i, x := range y {
			mean[i] += x / float64(len(want))
		}
	}
	var missed, varies float64
	for k, y := range want {
		m, err := runtime.Compare(got[k], y, 0, 0)
		if err != nil {
			return q, err
		}
		q.Relative += m.RelL2 / float64(len(want))
		for i, x := range y {
			d, v := got[k][i]-x, x-mean[i]
			missed += float64(d * d)
			varies += float64(v * v)
		}
	}
	q.Explained = 1 - missed/varies
	return q, nil
}

// Stage is a part of training: steps on one input each, at a rate that falls as half a cosine.
type Stage struct {
	Steps  int
	Rate   float64
	Forced bool    // each layer reads what the teacher's layers give
	Inner  float64 // weight of what the layers give; 0: the outputs alone
}

// Order is the order in which training takes inputs: all of them in a random order, again and again.
func Order(inputs, steps int, seed uint64) (out []int) {
	rng := rand.New(rand.NewPCG(seed, 3))
	for len(out) < steps {
		out = append(out, rng.Perm(inputs)...)
	}
	return out[:steps]
}

// Stages of training: at rates that were chosen on calibration inputs kept from training. What an adapter can undo needs no last
// stage; what none can gains by one.
var Stages = [2]Stage{{Steps: 250, Rate: 2e-2, Forced: true, Inner: 10}, {Rate: 1e-3, Inner: 10}}

// Share is the greatest size of an adapter, as a share of the model's weights. Target is the mean relative L2 that
// damage aims at. Draws is the number of perturbed inputs of each calibration input.
const (
	Share  = 0.01
	Target = 0.2
	Draws  = 7
)

// Outcome is what an adapter reached on unseen inputs.
type Outcome struct {
	Quality       // of the step's program, with the base as that stores it
	Constants int // bytes that the program keeps of weights
}

// Train trains the adapter of a damaged model, by steps of that arithmetic, and measures the result on unseen inputs.
func (n *Network) Train(ctx context.Context, m *dora.Model, a *dora.Adapter, by Arithmetic, stages []Stage, seed uint64, tell func(string)) (t Outcome, err error) {
	steps := 0
	for _, s := range stages {
		steps += s.Steps
	}
	order := Order(len(n.Lessons.Inputs), steps, seed)
	for k, s := range stages {
		if s.Steps == 0 {
			continue
		}
		if t, err = s.train(ctx, n, m, a, by, order[:s.Steps], tell); err != nil {
			return t, err
		}
		order = order[s.Steps:]
		tell(fmt.Sprintf("stage %d: %v", k+1, t.Quality))
	}
	return t, nil
}

// Arithmetic is how a step computes: the precision of its values, fp32 if none is named, and how it stores frozen weights, as the
// file if not said.
type Arithmetic struct{ Precision, Base string }

// options are those of a step with a loss of distillation.
func (by Arithmetic) options(n *Network, inner []dora.Match, weight float64, forced bool) dora.StepOptions {
	return dora.StepOptions{Precision: cmp.Or(by.Precision, "fp32"), Base: by.Base, Loss: dora.Distil(n.Teacher.Outputs, inner, weight, forced)}
}

// Untrained measures a model without training, as a step computes it: with a LoRA adapter that changes nothing.
func (n *Network) Untrained(ctx context.Context, m *dora.Model, by Arithmetic) (t Outcome, err error) {
	a, err := dora.Init(m, dora.InitOptions{Kind: dora.LoRA, Rank: 1})
	if err != nil {
		return t, err
	}
	s := Stage{Inner: 1}
	return s.train(ctx, n, m, a, by, nil, nil)
}

// Merged measures a model with an adapter merged into its file.
func (n *Network) Merged(ctx context.Context, m *dora.Model, a *dora.Adapter) (q Quality, err error) {
	file, err := m.Merged(a)
	if err != nil {
		return q, err
	}
	merged, err := dora.Open(file, onnx.ImportOptions{})
	if err != nil {
		return q, err
	}
	return n.Unseen.Model(ctx, merged)
}

func (s *Stage) train(ctx context.Context, n *Network, m *dora.Model, a *dora.Adapter, by Arithmetic, order []int, tell func(string)) (t Outcome, err error) {
	inner := n.Teacher.Inner
	if s.Inner == 0 {
		inner = nil
	}
	step, err := dora.NewStep(ctx, m, a, by.options(n, inner, s.Inner, s.Forced))
	if err != nil {
		return t, err
	}
	tr, err := step.Open(ctx, n.Device)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, tr.Close()) }()
	loss := 0.0
	for k, i := range order {
		if err := n.Lessons.Give(ctx, tr.Session(), i, s.Inner > 0); err != nil {
			return t, err
		}
		r, err := tr.Step(ctx, s.Rate*.5*(1+ir.Cos(math.Pi*float64(k)/float64(s.Steps))))
		if err != nil {
			return t, err
		}
		if !r.Applied {
			return t, fmt.Errorf("step %d of %d: a gradient is not finite", k+1, s.Steps)
		}
		if loss += r.Loss; (k+1)%every == 0 {
			tell(fmt.Sprintf("step %d of %d: loss %.4f", k+1, s.Steps, loss/every))
			loss = 0
		}
	}
	if err := tr.Read(); err != nil {
		return t, err
	}
	t.Constants = len(step.Program.Weights)
	t.Quality, err = n.Unseen.Session(ctx, tr.Session())
	return t, err
}

// Lessons are inputs with what the teacher makes of them, which is kept as far as there is room.
type Lessons struct {
	Teacher *Teacher
	Inputs  []Input

	values []map[string][]float32
	bytes  int
}

// limit is the number of bytes up to which lessons keep what the teacher computed.
const limit = 1 << 30

// Give sets the inputs of a session to the i-th, and what the loss compares with to what the teacher makes of it.
func (l *Lessons) Give(ctx context.Context, s *runtime.Session, i int, inner bool) error {
	if l.values == nil {
		l.values = make([]map[string][]float32, len(l.Inputs))
	}
	values := l.values[i]
	if values == nil {
		var err error
		if values, err = l.Teacher.Of(ctx, l.Inputs[i]); err != nil {
			return err
		}
		for _, v := range values {
			l.bytes += 4 * len(v)
		}
		if l.bytes < limit {
			l.values[i] = values
		}
	}
	if err := set(s, l.Inputs[i]); err != nil {
		return err
	}
	matches := l.Teacher.Outputs
	if inner {
		matches = slices.Concat(matches, l.Teacher.Inner)
	}
	for _, m := range matches {
		if err := s.Set(dora.Target(m.Name), runtime.Bytes(values[m.Name])); err != nil {
			return err
		}
	}
	return nil
}

// every is the number of steps between two lines of progress.
const every = 50
