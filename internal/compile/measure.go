package compile

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// Measured is the accuracy of one target's variant of the program: run by the CPU device, compared with the
// file's outputs in float64, or in f32 where that is as good.
type Measured struct {
	Target string                 `json:"target"`
	Slices []calibrate.Quality    `json:"slices"` // that the budget is compared with
	Sets   []calibrate.SetQuality `json:"sets"`
}

// Names of sets of inputs.
const (
	CalibrationSet = "calibration"
	HeldOutSet     = "held-out"
	PerturbedSet   = "perturbed"
	ValidationSet  = "validation"
)

// accuracyEvaluator is what programs are measured against: sets of inputs, and the file's outputs for them.
type accuracyEvaluator struct {
	source    *ir.Graph
	target    func(string) (*target.Target, error)         // by its name, with what is known of the machine
	slices    []calibrate.Slice                            // named parts of the outputs
	sets      []calibrate.Set                              // of a precision that calibrates, the calibration inputs that it is fitted to first
	inputs    []map[string]*ir.Array                       // the calibration inputs
	files     []string                                     // of the calibration inputs
	generated bool                                         // the calibration inputs were generated
	fitted    bool                                         // the precision calibrates
	worst     []int                                        // inputs of all sets in the order in which programs are run on them; nil: as they are
	few       float64                                      // multiplications up to which every input is evaluated in float64
	exact     *reference                                   // nil: not made yet
	narrow    map[string][][]float64                       // the file's outputs in f32 by name, [input][element], where the calibration computed them; nil: it did not
	golden    map[string][]float64                         // the same on Inputs
	known     map[[sha256.Size]byte][]calibrate.SetQuality // by identity: the program that a search chooses is measured already
	progress  *console.Meter
}

// newAccuracyEvaluator loads the inputs, or generates some to calibrate with or if there are none.
func newAccuracyEvaluator(source *ir.Graph, opt *Options) (*accuracyEvaluator, error) {
	y := &accuracyEvaluator{source: source, target: opt.target, slices: opt.Slices, progress: opt.meter, fitted: precision.Calibrates(opt.Precision), few: fewMACs, known: map[[sha256.Size]byte][]calibrate.SetQuality{}}
	if y.fitted || len(opt.Calibrate) > 0 || len(opt.Validate) == 0 {
		if err := y.calibrate(opt); err != nil {
			return nil, err
		}
	}
	if len(opt.Validate) == 0 {
		return y, nil
	}
	inputs, _, err := calibrate.Load(opt.Validate, source)
	if err != nil {
		return nil, fmt.Errorf("validation: %w", err)
	}
	if y.fitted {
		if same := calibrate.Same(inputs, y.inputs); same > 0 {
			opt.warn("validation inputs are calibration inputs too, %d of %d, which the program is fitted to: accuracy on them is optimistic; give --validate other inputs", same, len(inputs))
		}
	}
	y.sets = append(y.sets, calibrate.Set{Name: ValidationSet, Inputs: inputs})
	return y, nil
}

// calibrate adds the calibration inputs.
func (y *accuracyEvaluator) calibrate(opt *Options) (err error) {
	fitted := y.fitted
	if y.generated = len(opt.Calibrate) == 0; y.generated {
		y.inputs = calibrate.Generate(y.source, cmp.Or(opt.Generated, calibrate.GeneratedInputs))
	} else if y.inputs, y.files, err = calibrate.Load(opt.Calibrate, y.source); err != nil {
		return fmt.Errorf("calibration: %w", err)
	}
	if !y.generated {
		for _, d := range calibrate.Doubts(y.source, y.inputs, y.files) {
			opt.warn("%s", d)
		}
		var inputs []map[string]*ir.Array
		var files []string
		for _, i := range calibrate.Distinct(y.inputs, nil) {
			inputs, files = append(inputs, y.inputs[i]), append(files, y.files[i])
		}
		y.inputs, y.files = inputs, files
	}
	switch {
	case y.generated && fitted:
		opt.warn("no --calibrate: activation scales come from %s, not from the model's own data; accuracy on real inputs may be far lower", console.Count(len(y.inputs), "generated input"))
	case y.generated:
		opt.warn("no --calibrate: --min-cosine is checked on %s, not on the model's own data", console.Count(len(y.inputs), "generated input"))
	case fitted && len(y.inputs) < fewInputs:
		opt.warn("few calibration inputs (%d): weights are fitted to them, so the accuracy measured on them is optimistic; give %d or more", len(y.inputs), fewInputs)
	}
	s := calibrate.Set{Name: CalibrationSet, Inputs: y.inputs, Fitted: fitted}
	var held []map[string]*ir.Array
	if fitted {
		s.Inputs, held = calibrate.Split(y.inputs)
	}
	y.sets = append(y.sets, s)
	if len(held) > 0 {
		y.sets = append(y.sets, calibrate.Set{Name: HeldOutSet, Inputs: held})
	}
	if fitted {
		perturbed, _ := calibrate.Perturb(y.source, y.part(opt), calibrate.JudgedDraw)
		p := calibrate.Set{Name: PerturbedSet, Perturbed: true}
		for _, i := range calibrate.Distinct(perturbed, y.inputs) { // what is all zero stays so
			p.Inputs = append(p.Inputs, perturbed[i])
		}
		if len(p.Inputs) > 0 {
			y.sets = append(y.sets, p)
		}
	}
	return nil
}

// part is the calibration inputs of which those to judge on are made: evenly spread, and few, since the file is run on each
// one. Without a budget nothing depends on them.
func (y *accuracyEvaluator) part(opt *Options) (out []map[string]*ir.Array) {
	in := y.inputs
	count := min(len(in), judgedBudget)
	if opt.MinCosine <= 0 {
		count = min(len(in), judgedForced)
	}
	for i := range count {
		out = append(out, in[i*len(in)/count])
	}
	return out
}

// The greatest numbers of perturbed inputs to judge on, with a budget and without.
const judgedBudget, judgedForced = 8, 4

// greatest is the greatest magnitude of each float input among the calibration inputs.
func (y *accuracyEvaluator) greatest() map[string]float64 {
	out := map[string]float64{}
	for _, in := range y.inputs {
		for name, a := range in {
			most := out[name]
			for _, x := range a.F {
				most = max(most, math.Abs(x))
			}
			out[name] = most
		}
	}
	return out
}

// all are the inputs of all sets in a row.
func (y *accuracyEvaluator) all() (out []map[string]*ir.Array) {
	for _, s := range y.sets {
		out = append(out, s.Inputs...)
	}
	return out
}

// measure runs one target's variant of a program on every set and compares its outputs, whole and by slice. It stops at the
// first input on which a cosine is below enough, and returns that input's figures, or before the perturbed inputs if what is expected by
// the others is below, and returns theirs. Of either kind, inputs on which the last program was worst come first.
func (y *accuracyEvaluator) measure(ctx context.Context, p *runtime.Program, target string, enough float64) ([]calibrate.SetQuality, error) {
	parts := calibrate.SlicesOf(p)
	if err := y.refer(ctx, parts, target); err != nil {
		return nil, err
	}
	all := y.all()
	id, err := identity(p, target)
	if err != nil {
		return nil, err
	}
	if known, ok := y.known[id]; ok {
		sets := slices.Clone(known)
		for i, s := range y.sets {
			sets[i].Fitted = s.Fitted
		}
		return sets, nil
	}
	perturbed := y.perturbed()
	if y.worst == nil {
		for i := range all {
			y.worst = append(y.worst, i)
		}
		slices.SortStableFunc(y.worst, func(a, b int) int { return cmp.Compare(perturbed[a], perturbed[b]) })
	}
	y.progress.Begin(y.running(), "%s: running the program on %s", target, console.Count(len(all), "input"))
	on, err := y.target(target)
	if err != nil {
		return nil, err
	}
	run := &measuredRun{accuracyEvaluator: y, parts: parts, perturbed: perturbed, enough: enough, got: map[string][][]float64{}, least: make([]float64, len(all))}
	for name := range y.exact.outputs {
		run.got[name] = make([][]float64, len(all))
	}
	// Where tensor cores are known to drop bits of sums, the program is judged with those sums.
	err = runEach(ctx, p, target, emu.Options{CutOff: emu.CutOffs(on.SumBits)}, permuted(all, y.worst), run.take)
	if err == errMissed {
		return run.missed, nil
	}
	if err != nil {
		return nil, fmt.Errorf("running the program for %s: %w", target, err)
	}
	got, least := run.got, run.least
	slices.SortStableFunc(y.worst, func(a, b int) int {
		return cmp.Or(cmp.Compare(perturbed[a], perturbed[b]), cmp.Compare(least[a], least[b]))
	})
	sets, err := y.compare(parts, got, true)
	if err == nil && y.exact.blurs(sets) {
		clear(y.known) // they were compared with another reference
		if err = y.evaluateRest(ctx); err == nil {
			sets, err = y.compare(parts, got, true)
		}
	}
	if err != nil {
		return nil, err
	}
	y.known[id] = sets
	return sets, nil
}

// measuredRun is a run of a program on all inputs, the worst first, which ends where they show that it misses a budget.
type measuredRun struct {
	*accuracyEvaluator
	parts     []calibrate.Slice
	perturbed []int
	enough    float64 // the budget; 0: none
	at        int     // inputs so far
	got       map[string][][]float64
	least     []float64 // cosine of each input
	missed    []calibrate.SetQuality
}

// take adds the outputs of the next input.
func (r *measuredRun) take(s *runtime.Session) error {
	out, err := s.Float64s()
	if err != nil {
		return err
	}
	input, n := r.worst[r.at], len(r.worst)
	r.at++
	for name, x := range out {
		r.got[name][input] = x
	}
	one, err := r.one(r.parts, r.got, input)
	if err != nil {
		return err
	}
	r.least[input] = calibrate.Least(one.Slices)
	r.progress.Step(r.at, n, float64(r.at)/float64(n))
	if r.missed = []calibrate.SetQuality{one}; r.least[input] < r.enough && !r.exact.blurs(r.missed) {
		return errMissed
	}
	if r.at == n || r.perturbed[r.worst[r.at]] == r.perturbed[input] || r.enough <= 0 {
		return nil
	}
	if r.missed, err = r.compare(r.parts, r.got, false); err != nil {
		return err
	}
	if calibrate.LeastExpected(calibrate.Worst(r.missed)) < r.enough && !r.exact.blurs(r.missed) {
		return errMissed
	}
	return nil
}

// identity is the digest of all that a target's variant of a program computes with.
func identity(p *runtime.Program, target string) (id [sha256.Size]byte, err error) {
	h := sha256.New()
	for _, v := range p.Variants {
		if v.Target != target {
			continue
		}
		fmt.Fprintf(h, "%q", ptx.Undocumented(v.PTX))
		if err := json.NewEncoder(h).Encode([]any{v.Entries, v.Buffers}); err != nil {
			return id, err
		}
	}
	h.Write(p.Weights)
	h.Sum(id[:0])
	return id, nil
}

// errMissed ends a run of a program that has missed its budget.
var errMissed = errors.New("missed")

// one are the figures of a single input, of the outputs and slices where one is enough.
func (y *accuracyEvaluator) one(parts []calibrate.Slice, got map[string][][]float64, input int) (q calibrate.SetQuality, err error) {
	row := func(of map[string][][]float64) map[string][][]float64 {
		rows := map[string][][]float64{}
		for name, x := range of {
			rows[name] = x[input : input+1]
		}
		return rows
	}
	q.Inputs = 1
	for i, end := 0, 0; end <= input; i++ {
		q.Name, q.Fitted, q.Perturbed = y.sets[i].Name, y.sets[i].Fitted, y.sets[i].Perturbed
		end += len(y.sets[i].Inputs)
	}
	q.Slices, err = calibrate.MeasureAll(calibrate.Unpooled(parts), row(got), row(y.exact.outputs))
	return q, err
}

func permuted[T any](list []T, order []int) (out []T) {
	for _, i := range order {
		out = append(out, list[i])
	}
	return out
}

// perturbed says of the inputs of all sets which are perturbed ones, of which nothing is expected: 1; the others: 0.
func (y *accuracyEvaluator) perturbed() (out []int) {
	for _, s := range y.sets {
		kind := 0
		if s.Perturbed {
			kind = 1
		}
		out = append(out, slices.Repeat([]int{kind}, len(s.Inputs))...)
	}
	return out
}

// compare measures outputs on every set of inputs, or on all but the perturbed ones.
func (y *accuracyEvaluator) compare(parts []calibrate.Slice, got map[string][][]float64, perturbed bool) (out []calibrate.SetQuality, err error) {
	from := 0
	for _, s := range y.sets {
		to := from + len(s.Inputs)
		if s.Perturbed && !perturbed {
			from = to
			continue
		}
		part := func(of map[string][][]float64) map[string][][]float64 {
			rows := map[string][][]float64{}
			for name, x := range of {
				rows[name] = x[from:to]
			}
			return rows
		}
		q, err := calibrate.MeasureAll(parts, part(got), part(y.exact.outputs))
		if err != nil {
			return nil, fmt.Errorf("%s inputs: %w", s.Name, err)
		}
		out = append(out, calibrate.SetQuality{Name: s.Name, Inputs: len(s.Inputs), Fitted: s.Fitted, Perturbed: s.Perturbed, Slices: q})
		from = to
	}
	return out, nil
}

// runEach runs a target's variant of a program on the CPU device and calls ran after every input.
func runEach(ctx context.Context, p *runtime.Program, target string, device emu.Options, inputs []map[string]*ir.Array, ran func(*runtime.Session) error) error {
	d, err := emu.Open(device)
	if err != nil {
		return err
	}
	defer d.Close()
	s, err := runtime.Open(ctx, p, d, runtime.ModelOptions{Target: target})
	if err != nil {
		return err
	}
	defer s.Close()
	for _, in := range inputs {
		for _, q := range p.Inputs {
			if err := s.Set(q.Name, portBytes(in[q.Name], q)); err != nil {
				return err
			}
		}
		if err := s.Run(ctx); err != nil {
			return err
		}
		if err := ran(s); err != nil {
			return err
		}
	}
	return nil
}

// portBytes are the elements of an array of the file's as a program takes them, which may be wider.
func portBytes(a *ir.Array, q runtime.Port) []byte {
	if q.DType == ir.Float32.String() {
		a = a.As(ir.Float32)
	}
	return a.Tensor().Dense()
}

// judge measures every variant of the finished program. Those of a precision that calibrates share the first target's choice, which keeps
// the budget: if another one misses it, that is a warning.
func (r *Result) judge(ctx context.Context, y *accuracyEvaluator) error {
	opt, a := &r.opt, r.Accuracy
	a.Generated, a.MinCosine = y.generated, opt.MinCosine
	for i, v := range r.Program.Variants {
		sets, err := y.measure(ctx, r.Program, v.Target, 0)
		if err != nil {
			return err
		}
		m := Measured{v.Target, calibrate.Worst(sets), sets}
		if i == 0 {
			a.Measured = m
		} else {
			a.Others = append(a.Others, m)
		}
		low := calibrate.Below(m.Slices, opt.MinCosine)
		switch {
		case len(low) == 0:
		case !precision.Calibrates(opt.Precision):
			return fmt.Errorf("for %s the outputs miss --min-cosine %g in %s, on %s: %s; %s",
				v.Target, opt.MinCosine, opt.Precision, console.Count(len(y.all()), "input"), strings.Join(low, ", "), wider(opt.Precision))
		default:
			opt.warn("for %s the outputs miss --min-cosine %g, which %s meets: %s; compile for that target alone to search for its own choice",
				v.Target, opt.MinCosine, r.Program.Variants[0].Target, strings.Join(low, ", "))
		}
	}
	a.Reference = y.exact.summary()
	return nil
}

// wider is the remedy for a program that misses its budget.
func wider(name string) string {
	if more := precision.Wider(name); more != "" {
		return fmt.Sprintf("compile with --precision %s, or a lower --min-cosine", more)
	}
	return "give a lower --min-cosine"
}
