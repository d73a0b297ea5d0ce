package mutants

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
	"github.com/stretchr/testify/require"
)

// Mutant is one change to a compiled model.
type Mutant struct {
	Name string
	In   Site
	// Corrupts says what the change breaks: memory, synchronisation, launches or arithmetic.
	Corrupts string
	Why      string // of a change that nobody can notice: why it breaks nothing

	Kernel func(k *ptx.Kernel) error                         // changes the kernel, or
	Launch func(v *runtime.Variant, l *runtime.Launch) error // its first launch
}

// Site is a kind of kernel in a model: the first that fits is changed.
type Site struct {
	Model, Precision string
	Name             string // of the site, for the table
	family, schedule string // of KernelInfo; schedule is a part of it
	prefix           string // of the kernel's name
	but              string // not a part of the schedule
}

// model is a compiled model with inputs and the reference evaluator's outputs.
type model struct {
	program *runtime.Program
	inputs  map[string][]byte
	want    map[string][]float64
	sound   []map[string][]float64 // outputs of the unchanged program, of each run
}

// unfused follows the name of a model in the program whose layers are separate kernels.
const unfused = ", apart"

func load(t testing.TB, name, precision string) *model {
	t.Helper()
	if networks[name] != nil {
		return loadNetwork(t, name)
	}
	name, chainless := strings.CutSuffix(name, unfused)
	src, err := driving.Made(name, driving.Small)
	require.NoError(t, err)
	m, err := onnx.Decode(name+".onnx", src.ONNX)
	require.NoError(t, err)
	opt := compile.Options{Precision: precision, F32Outputs: precision == "fp32", Targets: []string{target.Default().Name}}
	r, err := compile.Compile(t.Context(), m, opt)
	require.NoError(t, err)
	if chainless {
		for _, n := range r.Graph.Nodes {
			for _, part := range n.Parts() {
				opt.Unfused = append(opt.Unfused, part.Name)
			}
		}
		r, err = compile.Compile(t.Context(), m, opt)
		require.NoError(t, err)
	}
	out := &model{program: r.Program, inputs: map[string][]byte{}, want: map[string][]float64{}}
	arrays := map[string]*ir.Array{}
	for _, in := range src.Inputs {
		x := in.Draw(1)
		arrays[in.Name], out.inputs[in.Name] = x.Array(), x.Dense()
	}
	results, err := ir.Evaluate(t.Context(), r.Source, arrays, ir.EvalOptions{})
	require.NoError(t, err)
	for n, a := range results {
		out.want[n] = a.Floats()
	}
	return out
}

// find is the index of the first kernel of the site in the variant's launch list.
func (s Site) find(v *runtime.Variant) (int, error) {
	info := map[string]runtime.KernelInfo{}
	for _, k := range v.Kernels {
		info[k.Name] = k
	}
	for i, l := range v.Entries[0].Launches {
		k := info[l.Kernel]
		if l.Kernel != "" && k.Family == s.family && strings.Contains(k.Schedule, s.schedule) && strings.HasPrefix(k.Name, s.prefix) &&
			(s.but == "" || !strings.Contains(k.Schedule, s.but)) {
			return i, nil
		}
	}
	return 0, fmt.Errorf("%s %s has no kernel for %s", s.Model, s.Precision, s.Name)
}

// apply makes the changed program; the original stays.
func (m *Mutant) apply(p *runtime.Program) (*runtime.Program, error) {
	out := *p
	v := p.Variants[0]
	v.Buffers = append([]runtime.Buffer{}, v.Buffers...)
	e := v.Entries[0]
	e.Launches = append([]runtime.Launch{}, e.Launches...)
	v.Entries = []runtime.Entry{e}
	out.Variants = []runtime.Variant{v}
	at, err := m.In.find(&v)
	if err != nil {
		return nil, err
	}
	if m.Launch != nil {
		l := &out.Variants[0].Entries[0].Launches[at]
		l.Reads, l.Writes = append([]runtime.Access{}, l.Reads...), append([]runtime.Access{}, l.Writes...)
		l.Params = append([]runtime.Param{}, l.Params...)
		return &out, m.Launch(&out.Variants[0], l)
	}
	mod, err := ptx.Parse(v.PTX)
	if err != nil {
		return nil, err
	}
	for _, k := range mod.Kernels {
		if k.Name == e.Launches[at].Kernel {
			if err := m.Kernel(k); err != nil {
				return nil, fmt.Errorf("%s of %s: %w", k.Name, p.Model, err)
			}
		}
	}
	text := mod.String()
	if text == v.PTX {
		return nil, errors.New("the change changes nothing")
	}
	out.Variants[0].PTX = text
	return &out, nil
}

// comparison is the name of the outcome that outputs show.
const comparison = "comparison of outputs"

// nobody is the outcome of a change without consequence.
const nobody = "nobody"

// run runs a program twice with all checks on and says who notices what; detail is the report, or the worst relative L2. The
// outputs are those of each run that no check ended.
func (m *model) run(ctx context.Context, p *runtime.Program) (caught, detail string, outputs []map[string][]float64, err error) {
	d, err := emu.Open(emu.Options{Check: true, Workers: 1, StepLimit: 1 << 24})
	if err != nil {
		return "", "", nil, err
	}
	worst := 0.0
	err = func() error {
		s, err := runtime.Open(ctx, p, d, runtime.ModelOptions{})
		if err != nil {
			return err
		}
		for range 2 { // the second run finds the counters that the first left
			for n, data := range m.inputs {
				copy(s.Input(n), data)
			}
			if err := s.Run(ctx); err != nil {
				return err
			}
			got, err := s.Float64s()
			if err != nil {
				return err
			}
			outputs = append(outputs, got)
			for name, x := range got {
				worst = max(worst, distance(x, m.want[name]))
			}
		}
		return nil
	}()
	var v *emu.Violation
	switch {
	case errors.As(err, &v):
		return string(v.Rule), v.Error(), nil, nil
	case err != nil:
		return "", "", nil, err
	case worst > tolerance[p.Precision]:
		return comparison, fmt.Sprintf("relative L2 %.2g", worst), outputs, nil
	}
	return nobody, fmt.Sprintf("relative L2 %.2g", worst), outputs, nil
}

// differs names an output that has other bits than that of the unchanged program; "" if there is none.
func (m *model) differs(outputs []map[string][]float64) string {
	for run, got := range outputs {
		for name, want := range m.sound[run] {
			for i, x := range want {
				if math.Float64bits(got[name][i]) != math.Float64bits(x) {
					return fmt.Sprintf("element %d of %s in run %d is %g, was %g", i, name, run, got[name][i], x)
				}
			}
		}
	}
	return ""
}

// tolerance is the relative L2 of a sound run with a factor of about five.
var tolerance = map[string]float64{"fp16": 1e-2, "fp32": 1e-5, narrow: 1e-6, deep: 1e-4, single: 1.2e-6, gradient: 1e-3, joint: 1.2e-3, tail: 6e-7, perceptron: 2.5e-4, residual: 2.5e-3}

func distance(got, want []float64) float64 {
	var d, n float64
	for i := range want {
		d += (got[i] - want[i]) * (got[i] - want[i])
		n += want[i] * want[i]
	}
	if math.IsNaN(d) {
		return math.Inf(1)
	}
	return math.Sqrt(d / n)
}
