package dora

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

// TestWeightsFittedToInputs: they are numbers of the storage, for all weights that are rounded at all but some that regions multiply
// in another form, and on other inputs the model is nearer to itself with them than with the nearest. The same inputs give the same.
func TestWeightsFittedToInputs(t *testing.T) {
	ctx := context.Background()
	nearest := []string{"plan.2.weight", // a factor is in it
		"face.0.weight", "eyes.0.weight", "state.0.weight"} // of a flattened image, whose channels are last in regions
	for _, c := range []struct{ name, storage string }{{"policy", "fp8"}, {"policy", "nvfp4"}, {"dmonitoring", "nvfp4"}} {
		m := small(t, c.name)
		inputs := calibrate.Generate(m.graph, 24)
		base, err := m.RoundBase(ctx, c.storage, inputs[:16])
		require.NoError(t, err)
		assert.Regexp(t, "^"+c.storage+":[0-9a-f]{12}$", base)
		for _, w := range m.Weights {
			r, ok := m.rounded[base][w.Name]
			assert.Equal(t, !w.Depthwise() && !slices.Contains(nearest, w.Name), ok, w.Name)
			if !ok {
				continue
			}
			format := r.DType.Format()
			for _, x := range r.Numbers {
				require.Equal(t, format.Round(x, true), x)
			}
			for _, x := range r.Blocks {
				require.Equal(t, ir.BlockScale.Format().Round(x, true), x)
			}
			near, err := w.Stored(c.storage)
			require.NoError(t, err)
			fitted, err := w.Stored(base)
			require.NoError(t, err)
			off := func(got []float64) float64 { return missed(w.Rows(), got) }
			assert.Less(t, off(fitted), 3*off(near), "%v: %s", c, w.Name)
			to, err := baseStorage(c.storage)
			require.NoError(t, err)
			assert.Equal(t, passes.RoundRows(to, w.Rows(), w.Out, w.In(), w.Row/w.In()).DType, r.DType, "%v: %s", c, w.Name)
		}
		near, fitted := rounded(t, m, c.storage), rounded(t, m, base)
		var of [2]float64
		for _, in := range inputs[16:] {
			want := outputs(t, m, nil, in)
			of[0] += relative(t, want, outputs(t, near, nil, in)) / 8
			of[1] += relative(t, want, outputs(t, fitted, nil, in)) / 8
		}
		t.Logf("%v: relative L2 %.4f nearest, %.4f fitted", c, of[0], of[1])
		assert.Less(t, of[1], of[0], "%v", c)

		if c.storage == "fp8" {
			continue
		}
		fresh := small(t, c.name)
		again, err := fresh.RoundBase(ctx, c.storage, inputs[:16])
		require.NoError(t, err)
		assert.Equal(t, base, again)
		other, err := fresh.RoundBase(ctx, c.storage, inputs[8:])
		require.NoError(t, err)
		assert.NotEqual(t, base, other)
	}
}

// TestAStepBesideFittedWeights: its program computes the gradients of the model with these weights and stores as many bytes as with
// the nearest, slots take its adapter, and merging it wants the same inputs again.
func TestAStepBesideFittedWeights(t *testing.T) {
	ctx := context.Background()
	m := small(t, "policy")
	inputs := calibrate.Generate(m.graph, 8)
	base, err := m.RoundBase(ctx, "nvfp4", inputs)
	require.NoError(t, err)
	a := trained(t, m, InitOptions{Rank: 2})
	narrow := newGradients(t, m, a, StepOptions{Precision: "fp32", Base: base})
	narrow.compare(t, base, 1e-4)
	wide := newGradients(t, rounded(t, m, base), a, StepOptions{Precision: "fp32"})
	wide.given = narrow.given
	want, got := wide.evaluated(t, ir.EvalOptions{}), narrow.evaluated(t, ir.EvalOptions{})
	assert.Less(t, missed(want[OutputLoss].F, got[OutputLoss].F), 1e-5)
	size := func(base string) int {
		s, err := NewStep(ctx, m, a, StepOptions{Precision: "bf16", Base: base})
		require.NoError(t, err)
		return len(s.Program.Weights)
	}
	assert.InEpsilon(t, size("nvfp4"), size(base), 0.01)

	for _, l := range a.Layers {
		l.Base = base
	}
	path := filepath.Join(t.TempDir(), "a.safetensors")
	require.NoError(t, a.Save(path))
	beside := outputs(t, rounded(t, m, base), a, inputs[0])
	r, err := Slots(ctx, m, SlotOptions{Count: 1, Base: base}, compile.Options{Precision: "fp16", Targets: []string{"sm_121"}})
	require.NoError(t, err)
	s := opened(t, r.Program)
	require.NoError(t, s.LoadAdapter(ctx, 0, path))
	in := calibrate.Generate(m.graph, 1)[0]
	exact := map[string][]float64{}
	for name, x := range outputs(t, rounded(t, m, base), a, in) {
		exact[name] = x.F
	}
	requireClose(t, m, exact, outputsOn(t, m, s), 4e-3, "slots")

	fresh := small(t, "policy")
	again, err := Load(path, fresh)
	require.NoError(t, err)
	merged := filepath.Join(t.TempDir(), "merged.onnx")
	require.ErrorContains(t, Merge(fresh, again, merged), "round them again on the same inputs")
	_, err = NewStep(ctx, fresh, again, StepOptions{Base: base})
	require.ErrorContains(t, err, "round them again on the same inputs")
	_, err = NewStep(ctx, fresh, again, StepOptions{Base: "nvfp4"})
	require.ErrorContains(t, err, "was trained beside weights stored as "+base)
	nearest, err := Slots(ctx, fresh, SlotOptions{Count: 1, Base: "nvfp4"}, compile.Options{Precision: "fp16", Targets: []string{"sm_121"}})
	require.NoError(t, err)
	require.ErrorContains(t, opened(t, nearest.Program).LoadAdapter(ctx, 0, path), "compile with --adapter-base nvfp4 and --calibrate")
	require.ErrorContains(t, fresh.RoundAgain(ctx, again, inputs[1:]), "give the inputs that they were rounded on")
	require.NoError(t, fresh.RoundAgain(ctx, again, inputs))
	require.NoError(t, Merge(fresh, again, merged))
	file, err := onnx.Load(merged)
	require.NoError(t, err)
	out, err := Open(file, onnx.ImportOptions{})
	require.NoError(t, err)
	require.Len(t, again.Layers, len(m.Weights))
	assert.Less(t, relative(t, beside, outputs(t, out, nil, inputs[0])), 2e-3) // the file stores f16
	for _, bad := range []string{"", "int4"} {
		_, err := m.RoundBase(ctx, bad, inputs)
		assert.Error(t, err, bad)
	}
	_, err = m.RoundBase(ctx, "fp8", nil)
	assert.ErrorContains(t, err, "no calibration inputs")
}
