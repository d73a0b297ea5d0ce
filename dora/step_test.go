package dora

import (
	"bytes"
	"context"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/minifloat"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// small is a small model of the repository's own, opened.
func small(t *testing.T, name string) *Model {
	t.Helper()
	src, err := driving.Made(name, driving.Small)
	require.NoError(t, err)
	file, err := onnx.Decode(name+".onnx", src.ONNX)
	require.NoError(t, err)
	m, err := Open(file, onnx.ImportOptions{})
	require.NoError(t, err)
	return m
}

// trainer opens a step on the CPU device, with its checks on or without.
func trainer(t *testing.T, s *Step, check bool) *Trainer {
	t.Helper()
	d, err := emu.Open(emu.Options{Check: check})
	require.NoError(t, err)
	tr, err := s.Open(context.Background(), d)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, tr.Close())
		require.NoError(t, d.Close())
	})
	return tr
}

// feed sets the model's inputs to drawn ones and the targets to the base's outputs for them, changed at random.
func feed(t *testing.T, m *Model, s *runtime.Session, seed int) {
	t.Helper()
	in := calibrate.Generate(m.graph, seed+1)[seed]
	out, err := ir.Evaluate(context.Background(), m.graph, in, ir.EvalOptions{})
	require.NoError(t, err)
	for name, a := range in {
		require.NoError(t, s.Set(name, a.Tensor().Dense()))
	}
	rng := rand.New(rand.NewPCG(1, 2)) // the same change whatever the inputs
	for _, v := range m.graph.Outputs {
		if !v.Type.DType.IsFloat() {
			continue
		}
		target := runtime.View[float32](s.Input("target:" + v.Name))
		for i, y := range out[v.Name].F {
			target[i] = float32(y + 0.3*math.Abs(y)*rng.NormFloat64())
		}
	}
}

// TestLaunchesOfAnAdaptedModel: two low-rank products a layer, a cast of the adapter, and heads that are no longer
// batched. What depends only on the adapter is computed separately. Gradients are computed in place in one vector.
func TestLaunchesOfAnAdaptedModel(t *testing.T) {
	m := small(t, "policy")
	a, err := Init(m, InitOptions{Rank: 2})
	require.NoError(t, err)
	base, err := compile.Graph(context.Background(), "policy", m.graph, compile.Options{Precision: "bf16", Targets: []string{"sm_121"}})
	require.NoError(t, err)
	s, err := NewStep(context.Background(), m, a, StepOptions{Precision: "bf16"})
	require.NoError(t, err)
	v := &s.Program.Variants[0]
	launches := func(name string) int { return len(v.Entry(name).Launches) }
	layers, most := len(a.Layers), 0
	for _, n := range base.Graph.Nodes { // entries have no chains
		if !n.IsFamily(ir.FamilyView) {
			most += len(n.Parts())
		}
	}
	t.Log(layers, most, launches(EntryRun), launches(EntryPrepare), launches(EntryStep))
	assert.LessOrEqual(t, launches(EntryRun), most+3*layers/2) // the product with B is in the layer's kernel, but for that of a vector
	assert.LessOrEqual(t, launches(EntryPrepare), 3*layers+3)
	assert.LessOrEqual(t, launches(EntryStep), launches(EntryRun)+launches(EntryPrepare)+12*layers+10)
	for _, l := range v.Entry(EntryStep).Launches {
		assert.LessOrEqual(t, len(l.Reads), 16, l.Note)
		assert.Nil(t, l.Copy, "the adapter and its moments are updated where they lie")
	}
}

// TestConvolutionsOfAStepHaveKernels: those of gradients too are contractions or windows, none is summed by a loop. Depthwise weights
// take magnitudes, whose gradient is a sum over the layer's output.
func TestConvolutionsOfAStepHaveKernels(t *testing.T) {
	fulltest.Long(t)
	m := small(t, "vision")
	a, err := Init(m, InitOptions{Rank: 2})
	require.NoError(t, err)
	s, err := NewStep(context.Background(), m, a, StepOptions{Precision: "bf16"})
	require.NoError(t, err)
	for _, k := range s.Program.Variants[0].Kernels {
		assert.False(t, k.Family == ir.FamilyLoop && strings.HasPrefix(k.Name, "conv"), k.Name) // named after the op that sums
	}
}

// TestPtxasTakesEveryKernelOfAStep: without spills, and with constants loaded before the wait, as in programs that only run. ptxas takes
// minutes for a step of vision, so in one precision.
func TestPtxasTakesEveryKernelOfAStep(t *testing.T) {
	fulltest.Long(t)
	tool := kerneltest.Assembler(t)
	for _, name := range []string{"policy", "vision", "dmonitoring"} {
		for _, in := range []string{"bf16", "fp16", "fp32"} {
			full := fulltest.Runs(t.Name())
			if in != "bf16" && name != "policy" || !full && (in != "bf16" || name != "policy") {
				continue
			}
			m := small(t, name)
			a, err := Init(m, InitOptions{Rank: 2})
			require.NoError(t, err)
			opt := StepOptions{Precision: in, Targets: []string{"sm_121"}}
			if full {
				opt.Targets = append(opt.Targets, "sm_90")
			}
			s, err := NewStep(context.Background(), m, a, opt)
			require.NoError(t, err)
			kerneltest.Assembled(t, tool, s.Program)
		}
	}
}

func TestAStepLowersTheLoss(t *testing.T) {
	fulltest.Long(t)
	for _, in := range []string{"fp32", "fp16", "bf16"} {
		if in == "bf16" && !fulltest.Runs(t.Name()) {
			continue
		}
		m := small(t, "policy")
		a, err := Init(m, InitOptions{Rank: 2})
		require.NoError(t, err)
		s, err := NewStep(context.Background(), m, a, StepOptions{Precision: in, ClipNorm: 10})
		require.NoError(t, err)
		tr := trainer(t, s, true)
		feed(t, m, tr.Session(), 0)
		var losses []float64
		for range 10 {
			r, err := tr.Step(context.Background(), 1e-3)
			require.NoError(t, err)
			if r.Applied {
				losses = append(losses, r.Loss)
			}
		}
		t.Log(in, losses)
		assert.Less(t, losses[len(losses)-1], 0.9*losses[0], in)
	}
}

// TestGradientsOfWholeModels: the compiled program, with what is fused in steps, against the evaluator in float64, a tensor of
// the adapter at a time. One that all but cancels, as in dmonitoring's heads of one output, is 1e-11 to 1e-17 of the whole
// gradient: it is held to 1e-9 of that. Where rounding every value to f32 misses a tenth of the bound or more, ten times what it
// misses is allowed, ten bounds at most. In fp16 so is what rounding the values that are stored in f16 misses by itself (0.07 of
// one tensor of vision, of which the program misses 0.025). bf16, and fp16 of dmonitoring, miss more than 2e-2, as PyTorch does:
// TestGradientsInHalfPrecision holds them to that.
func TestGradientsOfWholeModels(t *testing.T) {
	fulltest.Long(t)
	for _, name := range models {
		for in, bound := range map[string]float64{"fp32": 1e-4, "fp16": 2e-2} {
			if in != "fp32" && name != "policy" && (name == "dmonitoring" || !fulltest.Runs(t.Name())) {
				continue
			}
			m := small(t, name)
			s := newGradients(t, m, trained(t, m, InitOptions{Rank: 2}), StepOptions{Precision: in})
			s.asStep = true
			s.compare(t, name, bound)
		}
	}
}

// TestGradientsOfFullModels: the same at full size, for the real driver monitoring and the stand-in of policy. Driver monitoring in
// fp16 is not held to 2e-2: 19 of its tensors miss by more, up to 0.17 of one, with a loss scale of 1024 or 65536: its Relus are on or off
// by what rounding makes of values near zero (docs/measurements.md, "Gradients in 16 bits").
func TestGradientsOfFullModels(t *testing.T) {
	if !fulltest.Runs(t.Name()) {
		t.Skip("a long test: make test-full")
	}
	for _, name := range []string{"driving_policy", "dmonitoring_model"} {
		path := filepath.Join("..", "..", "shared", "models", name+".onnx")
		if _, err := os.Stat(path); err != nil {
			t.Skip("no full-size models beside the repository: ", err)
		}
		file, err := onnx.Load(path)
		require.NoError(t, err)
		m, err := Open(file, onnx.ImportOptions{})
		require.NoError(t, err)
		for in, bound := range map[string]float64{"fp32": 1e-4, "fp16": 2e-2} {
			if in == "fp16" && name == "dmonitoring_model" {
				continue
			}
			newGradients(t, m, trained(t, m, InitOptions{}), StepOptions{Precision: in}).compare(t, name, bound)
		}
	}
}

// TestDirectionalDerivativesOfWholeModels: the gradient of the loss by all trained numbers, along three directions, against
// differences of fourth order of the loss, all in float64. Gradients pass through the norms here: a detached norm has no loss.
func TestDirectionalDerivativesOfWholeModels(t *testing.T) {
	for _, name := range models {
		if name != "policy" && !fulltest.Runs(t.Name()+name) {
			continue
		}
		m := small(t, name)
		s := newGradients(t, m, trained(t, m, InitOptions{Rank: 2, FullNorm: true}), StepOptions{Precision: "fp32"})
		s.given[keptScale].F[0] = 1
		at := s.given[keptAdapter]
		gradient := s.evaluated(t, ir.EvalOptions{})[outputGradient].F
		rng := rand.New(rand.NewPCG(7, 7))
		for range 3 {
			const h = 1e-8 // farther on, dmonitoring passes kinks of its activations
			direction := make([]float64, s.trained.size)
			want := 0.0
			for i := range direction {
				direction[i] = rng.NormFloat64() * math.Abs(at.F[i])
				want += direction[i] * gradient[i]
			}
			moved := func(by float64) float64 {
				x := ir.NewArray(at.Type)
				for i := range x.F {
					x.F[i] = at.F[i] + by*direction[i]
				}
				s.given[keptAdapter] = x
				return s.evaluated(t, ir.EvalOptions{})[OutputLoss].F[0]
			}
			got := (8*(moved(h)-moved(-h)) - (moved(2*h) - moved(-2*h))) / (12 * h)
			t.Logf("%s: %.9g, differences %.9g", name, want, got)
			assert.InEpsilon(t, got, want, 1e-5, name)
		}
	}
}

// gradients are what a step computes of an adapter on a batch: gains and inverse norms first, then loss and gradients. On the
// device these are two programs here.
type gradients struct {
	*Step
	opt    StepOptions
	graphs []*ir.Graph
	given  map[string]*ir.Array
	asStep bool // compiled with what is fused in steps alone
}

func newGradients(t *testing.T, m *Model, a *Adapter, opt StepOptions) *gradients {
	t.Helper()
	opt.LossScale = 1
	opt.defaults()
	s := &gradients{Step: &Step{Adapter: a, model: m}, opt: opt, given: batches(t, m, 1)[0]}
	s.trained, s.gains, s.inverse = a.vectors()
	require.NoError(t, s.store(opt.Base))
	for _, entry := range []string{EntryPrepare, EntryStep} {
		if entry == EntryPrepare && s.gains.size == 0 {
			continue
		}
		e, err := s.entry(m, entry, &opt)
		require.NoError(t, err)
		s.graphs = append(s.graphs, e.Parts[0].Graph)
	}
	s.given[keptScale] = &ir.Array{Type: ir.T(ir.Float32), F: []float64{1024}}
	flat := ir.NewArray(ir.T(ir.Float32, s.trained.size))
	for _, p := range s.trained.parts {
		for i, x := range *p.data {
			flat.F[p.at+i] = float64(x)
		}
	}
	s.given[keptAdapter] = flat
	return s
}

// follow runs both graphs, the second one with what the first one has computed.
func (s *gradients) follow(run func(g *ir.Graph, in map[string]*ir.Array) map[string]*ir.Array) map[string]*ir.Array {
	in := maps.Clone(s.given)
	for _, g := range s.graphs {
		for k, v := range run(g, in) {
			in[strings.TrimPrefix(k, "next:")] = v
		}
	}
	return in
}

func (s *gradients) evaluated(t *testing.T, opt ir.EvalOptions) map[string]*ir.Array {
	t.Helper()
	return s.follow(func(g *ir.Graph, in map[string]*ir.Array) map[string]*ir.Array {
		out, err := ir.Evaluate(context.Background(), g, in, opt)
		require.NoError(t, err)
		return out
	})
}

// tensors calls f with each tensor that is computed: its name, that of the output, where it lies there.
func (s *gradients) tensors(f func(name, out string, at, n int)) {
	f(OutputLoss, OutputLoss, 0, 1)
	for out, v := range map[string]*vector{outputGradient: &s.trained, keptGain: &s.gains, keptInverse: &s.inverse} {
		for _, p := range v.parts {
			f(p.name, out, p.at, p.numel())
		}
	}
}

// compare holds the compiled programs to the evaluator in float64.
func (s *gradients) compare(t *testing.T, name string, bound float64) {
	t.Helper()
	got, launches := s.device(t, name)
	want := s.evaluated(t, ir.EvalOptions{})
	worst, where := 0.0, ""
	rounded := sync.OnceValue(func() map[string]*ir.Array { return s.evaluated(t, ir.EvalOptions{Round: true}) })
	stored := sync.OnceValue(func() map[string]*ir.Array { return s.stored(t) })
	s.tensors(func(name, out string, at, n int) {
		w := want[out].F[at : at+n]
		e := missed(w, got[out].F[at:])
		part := norm(w) / norm(want[out].F)
		if s.opt.Precision == "fp32" && part < 1e-9 { // f32 has no more of it than noise
			assert.Less(t, e*part, 1e-9, "%s: %s beside the whole", s.opt.Precision, name)
			return
		}
		allowed := bound
		if e >= allowed {
			allowed = max(bound, 10*min(bound, missed(w, rounded()[out].F[at:])))
		}
		if e >= allowed && s.opt.Precision == "fp16" {
			allowed = max(allowed, missed(w, stored()[out].F[at:]))
			t.Logf("%s misses %.2g, rounding what is stored %.2g", name, e, allowed)
		}
		if e > worst {
			worst, where = e, name
		}
		assert.Less(t, e, allowed, "%s: %s", s.opt.Precision, name)
	})
	t.Logf("%s %s: %d launches, worst %.2g at %s", name, s.opt.Precision, launches, worst, where)
}

// stored evaluates with every value of more than 64 KiB rounded to f16, as narrow stores them, and nothing else rounded.
func (s *gradients) stored(t *testing.T) map[string]*ir.Array {
	t.Helper()
	return s.follow(func(g *ir.Graph, in map[string]*ir.Array) map[string]*ir.Array {
		at, out := map[*ir.Value]*ir.Array{}, map[string]*ir.Array{}
		known := func(v *ir.Value) *ir.Array {
			if v.IsConst() {
				return v.Const.Array()
			}
			return at[v]
		}
		for _, v := range g.Inputs {
			at[v] = in[v.Name]
		}
		for _, n := range g.Nodes {
			var given []*ir.Array
			for _, v := range n.Inputs {
				if v == nil {
					given = append(given, nil)
				} else {
					given = append(given, known(v))
				}
			}
			results, err := ir.EvaluateNode(n, given)
			require.NoError(t, err)
			for i, v := range n.Outputs {
				at[v] = results[i]
				if v.Type.DType == ir.Float32 && v.Type.Bytes() > 64<<10 {
					at[v] = &ir.Array{Type: v.Type, F: slices.Clone(results[i].F)}
					for k, x := range at[v].F {
						at[v].F[k] = minifloat.Float16.Round(x, true)
					}
				}
			}
		}
		for _, v := range g.Outputs {
			out[v.Name] = known(v)
		}
		return out
	})
}

// device runs the compiled programs on the CPU device with its checks. It returns the launches of the second one too.
func (s *gradients) device(t *testing.T, name string) (got map[string]*ir.Array, launches int) {
	t.Helper()
	got = s.follow(func(g *ir.Graph, in map[string]*ir.Array) map[string]*ir.Array {
		opt := compile.Options{Precision: s.opt.Precision, Targets: []string{"sm_121"}}
		r, err := (*compile.Result)(nil), error(nil)
		if s.asStep {
			r, err = compile.Entries(context.Background(), name, []compile.Entry{{Name: EntryRun, Parts: []compile.Part{{Graph: g, Precision: opt.Precision}}}}, opt)
		} else {
			r, err = compile.Graph(context.Background(), name, g, opt)
		}
		require.NoError(t, err)
		d, err := emu.Open(emu.Options{Check: true})
		require.NoError(t, err)
		session, err := runtime.Open(context.Background(), r.Program, d, runtime.ModelOptions{})
		require.NoError(t, err)
		for _, p := range r.Program.Inputs {
			require.NoError(t, session.Set(p.Name, in[p.Name].Tensor().Dense()))
		}
		require.NoError(t, session.Run(context.Background()))
		numbers, err := session.Float64s()
		require.NoError(t, err)
		out := map[string]*ir.Array{}
		for k, v := range numbers {
			out[k] = &ir.Array{Type: ir.T(ir.Float32, len(v)), F: v}
		}
		launches = len(r.Program.Variants[0].Entries[0].Launches)
		require.NoError(t, session.Close())
		require.NoError(t, d.Close())
		return out
	})
	return got, launches
}

// missed is the relative L2 of y to want.
func missed(want, y []float64) float64 {
	var miss, size float64
	for i, x := range want {
		miss += (y[i] - x) * (y[i] - x)
		size += x * x
	}
	return math.Sqrt(miss / max(size, 1e-30))
}

// TestMicroBatchesAreOneBatch: the mean gradient of two is that of both, and a step leaves the same bits on every run.
func TestMicroBatchesAreOneBatch(t *testing.T) {
	fulltest.Long(t)
	m := small(t, "policy")
	train := func(micro int) (norm float64, a *Adapter) {
		a, err := Init(m, InitOptions{Rank: 2})
		require.NoError(t, err)
		s, err := NewStep(context.Background(), m, a, StepOptions{Precision: "fp32", MicroBatches: micro})
		require.NoError(t, err)
		tr := trainer(t, s, true)
		feed(t, m, tr.Session(), 0)
		for range 2 {
			for range micro - 1 {
				_, err := tr.Accumulate(context.Background())
				require.NoError(t, err)
			}
			r, err := tr.Step(context.Background(), 1e-3)
			require.NoError(t, err)
			require.True(t, r.Applied)
			norm = r.Norm
		}
		require.NoError(t, tr.Read())
		return norm, a
	}
	one, a := train(1)
	same, again := train(1)
	assert.Equal(t, one, same)
	assert.Equal(t, a.Layers, again.Layers)
	four, b := train(4)
	assert.InEpsilon(t, one, four, 1e-5)
	for i, l := range a.Layers {
		for k, x := range l.M {
			assert.InDelta(t, x, b.Layers[i].M[k], 1e-5)
		}
	}
}

// TestUpdatesThatAreNeverAppliedAreAnError which names the value that was not finite first.
func TestUpdatesThatAreNeverAppliedAreAnError(t *testing.T) {
	m := small(t, "policy")
	a, err := Init(m, InitOptions{Rank: 2, Targets: []string{"*up"}})
	require.NoError(t, err)
	s, err := NewStep(context.Background(), m, a, StepOptions{Precision: "fp16", Patience: 3})
	require.NoError(t, err)
	tr := trainer(t, s, false)
	for _, c := range []struct {
		input string
		value float32
		want  string
	}{
		{"target:outputs", float32(math.Inf(1)), `which depends on "target:outputs", f32[1,1000], an input, which is infinite`},
		{"target:outputs", 1e30, `, which depends on `}, // squared
		{"target:outputs", float32(math.NaN()), `the first value that became NaN is "target:outputs", f32[1,1000], an input`},
	} {
		feed(t, m, tr.Session(), 0)
		_, err = tr.Step(context.Background(), 1e-3)
		require.NoError(t, err, "a good step between them")
		runtime.View[float32](tr.Session().Input(c.input))[0] = c.value
		for range 2 {
			r, err := tr.Step(context.Background(), 1e-3)
			require.NoError(t, err)
			require.False(t, r.Applied)
		}
		_, err = tr.Step(context.Background(), 1e-3)
		require.ErrorContains(t, err, "policy.onnx: 3 updates in a row had a gradient that is not finite: the first value that became NaN is ")
		require.ErrorContains(t, err, c.want)
		t.Log(err)
	}
}

// TestAStepHasTheSameBits again, on one worker or several, and after its adapter was saved and loaded.
func TestAStepHasTheSameBits(t *testing.T) {
	fulltest.Long(t)
	m := small(t, "dmonitoring")
	a, err := Init(m, InitOptions{Rank: 1})
	require.NoError(t, err)
	s, err := NewStep(context.Background(), m, a, StepOptions{Precision: "bf16", ClipNorm: 1})
	require.NoError(t, err)
	train := func(workers int) (map[string][]byte, []byte) {
		d, err := emu.Open(emu.Options{Workers: workers})
		require.NoError(t, err)
		defer d.Close()
		tr, err := s.Open(context.Background(), d)
		require.NoError(t, err)
		defer tr.Close()
		feed(t, m, tr.Session(), 0)
		for range 3 {
			r, err := tr.Step(context.Background(), 1e-3)
			require.NoError(t, err)
			require.True(t, r.Applied)
		}
		kept := map[string][]byte{}
		for _, p := range s.Program.States {
			data, err := tr.Session().State(p.Input)
			require.NoError(t, err)
			kept[p.Input] = bytes.Clone(data)
		}
		require.NoError(t, tr.Session().RunEntry(context.Background(), EntryRun))
		return kept, bytes.Clone(tr.Session().Output("outputs"))
	}
	one, before := train(1)
	for _, workers := range []int{1, 2, 5} {
		again, out := train(workers)
		for name, data := range one {
			assert.True(t, bytes.Equal(data, again[name]), "%s on %d workers", name, workers)
		}
		assert.Equal(t, before, out)
	}

	trained := s.trained
	trained.read(one[keptAdapter])
	path := filepath.Join(t.TempDir(), "a.safetensors")
	require.NoError(t, a.Save(path))
	loaded, err := Load(path, m)
	require.NoError(t, err)
	again, err := NewStep(context.Background(), m, loaded, StepOptions{Precision: "bf16", ClipNorm: 1})
	require.NoError(t, err)
	tr := trainer(t, again, true)
	feed(t, m, tr.Session(), 0)
	require.NoError(t, tr.Session().RunEntry(context.Background(), EntryRun))
	assert.Equal(t, before, tr.Session().Output("outputs"))
}

// TestABatchIsItsMicroBatches: a step of two samples at once is that of one after the other.
func TestABatchIsItsMicroBatches(t *testing.T) {
	fulltest.Long(t)
	src, err := driving.Made("policy", driving.Small)
	require.NoError(t, err)
	file, err := onnx.Decode("policy.onnx", src.ONNX)
	require.NoError(t, err)
	given := batches(t, small(t, "policy"), 2)
	train := func(batch, micro int) []float32 {
		m, err := Open(file, onnx.ImportOptions{Batch: batch})
		require.NoError(t, err)
		a, err := Init(m, InitOptions{Rank: 2})
		require.NoError(t, err)
		s, err := NewStep(context.Background(), m, a, StepOptions{Precision: "fp32", MicroBatches: micro})
		require.NoError(t, err)
		tr := trainer(t, s, true)
		for i := range micro {
			for _, p := range s.Program.Inputs {
				if given[0][p.Name] == nil {
					continue // what a session keeps
				}
				var data []byte
				for k := range batch {
					data = append(data, given[i*batch+k][p.Name].Tensor().Dense()...)
				}
				require.NoError(t, tr.Session().Set(p.Name, data))
			}
			if i < micro-1 {
				_, err := tr.Accumulate(context.Background())
				require.NoError(t, err)
			} else {
				_, err = tr.Step(context.Background(), 1e-3)
				require.NoError(t, err)
			}
		}
		first, err := tr.Session().State(keptFirst) // a tenth of the gradient
		require.NoError(t, err)
		return runtime.View[float32](first)
	}
	both, each := train(2, 1), train(1, 2)
	var miss, size float64
	for i, x := range each {
		d := float64(both[i] - x)
		miss, size = miss+d*d, size+float64(x*x)
	}
	assert.Less(t, math.Sqrt(miss/size), 1e-5)
	assert.NotZero(t, size)
}

// TestAGradientThatIsNotFiniteChangesNothing but the loss scale, which falls until it is. Then the update is the first
// one that AdamW makes: each number moves by the rate, or by less where its gradient is as small as epsilon.
func TestAGradientThatIsNotFiniteChangesNothing(t *testing.T) {
	m := small(t, "policy")
	a, err := Init(m, InitOptions{Rank: 2, Targets: []string{"*up"}})
	require.NoError(t, err)
	s, err := NewStep(context.Background(), m, a, StepOptions{Precision: "fp16", LossScale: 1 << 30})
	require.NoError(t, err)
	tr := trainer(t, s, false)
	feed(t, m, tr.Session(), 0)
	const rate = 1e-3
	before, err := tr.Snapshot()
	require.NoError(t, err)
	r, err := tr.Step(context.Background(), rate)
	require.NoError(t, err)
	assert.False(t, r.Applied)
	after, err := tr.Snapshot()
	require.NoError(t, err)
	assert.Equal(t, []float32{1 << 29}, runtime.View[float32](after.Kept[keptScale]))
	assert.Zero(t, after.Updates)
	for name, data := range before.Kept {
		if name != keptScale {
			assert.Equal(t, data, after.Kept[name], name)
		}
	}
	for range 25 {
		if r, err = tr.Step(context.Background(), rate); r.Applied {
			break
		}
		require.NoError(t, err)
	}
	assert.True(t, r.Applied)
	assert.Equal(t, 1, tr.count)
	after, err = tr.Snapshot()
	require.NoError(t, err)
	was, is := runtime.View[float32](before.Kept[keptAdapter]), runtime.View[float32](after.Kept[keptAdapter])
	most := 0.0
	for i, x := range is {
		moved := math.Abs(float64(x) - float64(was[i]))
		rounding := math.Abs(float64(x)) * 0x1p-23
		require.True(t, moved <= rate*1.0001+rounding, "number %d is %v and was %v", i, x, was[i]) // no NaN is
		most = max(most, moved)
	}
	assert.InEpsilon(t, rate, most, 1e-3)
}
