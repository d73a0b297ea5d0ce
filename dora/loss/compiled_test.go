package loss

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/dora"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// step compiles a step of a tiny model with all terms of its loss, in a batch.
func step(t testing.TB, name, precision string, samples int, terms Terms) *dora.Trainer {
	t.Helper()
	m, err := dora.Open(model(t, name), onnx.ImportOptions{Batch: samples})
	require.NoError(t, err)
	a, err := dora.Init(m, dora.InitOptions{Rank: 2, Seed: 3})
	require.NoError(t, err)
	s, err := dora.NewStep(context.Background(), m, a, dora.StepOptions{Precision: precision, Loss: terms.Build, Evaluate: true})
	require.NoError(t, err)
	d, err := emu.Open(emu.Options{Check: true})
	require.NoError(t, err)
	tr, err := s.Open(context.Background(), d)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, tr.Close())
		require.NoError(t, d.Close())
	})
	return tr
}

// given gives a session inputs that calibrate draws, and returns the model's outputs for them in float64.
func given(t testing.TB, name string, s *runtime.Session, samples int) map[string]*ir.Array {
	t.Helper()
	g, err := onnx.Import(model(t, name), onnx.ImportOptions{Batch: samples})
	require.NoError(t, err)
	in := calibrate.Generate(g, 1)[0]
	for name, a := range in {
		require.NoError(t, s.Set(name, a.Tensor().Dense()))
	}
	out, err := ir.Evaluate(context.Background(), g, in, ir.EvalOptions{})
	require.NoError(t, err)
	return out
}

// set gives a session inputs, targets and a path, and adds what the student computes of them to the data: y.
func set(t testing.TB, name string, s *runtime.Session, d data) data {
	t.Helper()
	d.y = given(t, name, s, d.t.Shape[0])["outputs"]
	for name, a := range map[string]*ir.Array{dora.Target("outputs"): d.t, Truth("plan"): d.truth} {
		if s.Input(name) != nil {
			require.NoError(t, s.Set(name, a.Tensor().Dense()))
		}
	}
	return d
}

// TestACompiledStepGivesTheTerms: all terms as outputs of a step in f32, for a batch: what float64 gives, up to rounding.
func TestACompiledStepGivesTheTerms(t *testing.T) {
	for _, name := range []string{"policy", "policy010"} {
		const samples = 2
		terms := everything(t, name)
		tr := step(t, name, "fp32", samples, terms)
		d := set(t, name, tr.Session(), drawn(terms[0].length, samples, 7))
		want := evaluate(t, terms, d)
		loss, err := tr.Evaluate(context.Background())
		require.NoError(t, err)
		got := tr.Terms()
		r, err := tr.Step(context.Background(), 1e-3)
		require.NoError(t, err)
		assert.True(t, r.Applied)
		require.Len(t, got, len(terms))
		for _, m := range terms {
			assert.InEpsilon(t, want[m.Name], got[m.Name], 1e-5, "%s of %s", m.Name, name)
			assert.InEpsilon(t, want[m.Name], r.Terms[m.Name], 1e-5, "%s of %s", m.Name, name)
		}
		assert.InEpsilon(t, want["loss"], loss, 1e-5, name)
		assert.InEpsilon(t, want["loss"], r.Loss, 1e-5, name)
	}
}

// TestALossIsComputedInF32: also in steps of 16 bits, where a batch is so large that values between kernels take more than what
// stays f32 anyway. Terms and gradient are those of float64 to five digits; rounded to f16 some would be infinite.
func TestALossIsComputedInF32(t *testing.T) {
	const samples = 8
	terms := everything(t, "policy010")
	d := drawn(terms[0].length, samples, 29)
	for i := range d.y.F { // sharp: a teacher a thousandth wide, to which the student is far off
		if i%7 == 0 {
			d.t.F[i] -= 6
		}
	}
	want := evaluate(t, terms, d)
	_, by := gradient(t, terms, d)
	g := graphOf(t, terms, samples)
	grads, err := g.Gradients([]*ir.Value{g.Outputs[len(g.Outputs)-1]}, []*ir.Value{nil}, g.Inputs[:1])
	require.NoError(t, err)
	grads[0].Name = "gradient"
	g.Outputs = append(g.Outputs, grads[0])
	for _, in := range []string{"fp16", "bf16"} {
		r, err := compile.Entries(context.Background(), "loss", []compile.Entry{{Name: "run", Parts: []compile.Part{{Graph: g, Precision: in, Wide: dora.OutputLoss}}}},
			compile.Options{Precision: in, Targets: []string{"sm_121"}})
		require.NoError(t, err)
		device, err := emu.Open(emu.Options{})
		require.NoError(t, err)
		s, err := runtime.Open(context.Background(), r.Program, device, runtime.ModelOptions{})
		require.NoError(t, err)
		for name, a := range d.inputs(g) {
			require.NoError(t, s.Set(name, a.Tensor().Dense()))
		}
		require.NoError(t, s.Run(context.Background()))
		for _, m := range terms {
			assert.InEpsilon(t, want[m.Name], runtime.View[float32](s.Output(dora.Term(m.Name)))[0], 1e-5, "%s in %s", m.Name, in)
		}
		miss := make([]float64, len(by))
		for i, x := range runtime.View[float32](s.Output("gradient")) {
			miss[i] = float64(x) - by[i]
		}
		assert.Less(t, total(miss), 1e-5*total(by), in)
		require.NoError(t, s.Close())
		require.NoError(t, device.Close())
	}
}
