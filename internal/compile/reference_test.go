package compile

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
	"github.com/spark-compile/spark-compile/runtime"
)

// TestAReferenceInF32IsAsGoodAsFloat64: the accuracy of a program in fp8 is the same by both, float64 is evaluated on two
// inputs alone, and how far f32 is from it is said. A program that is itself no further from float64 than f32 is has all
// inputs evaluated.
func TestAReferenceInF32IsAsGoodAsFloat64(t *testing.T) {
	r := forced(t, "policy", "fp8")
	judged := func(few float64, r *Result) (*accuracyEvaluator, []calibrate.SetQuality) {
		y, err := newAccuracyEvaluator(r.Source, &Options{Precision: "fp8", Generated: 2})
		require.NoError(t, err)
		y.few = few
		sets, err := y.measure(t.Context(), r.Program, "sm_121", 0)
		require.NoError(t, err)
		return y, sets
	}
	y, wide := judged(fewMACs, r)
	require.Equal(t, Reference{Inputs: 4, Float64: 4}, y.exact.summary())
	y, narrow := judged(0, r)
	s := y.exact.summary()
	require.Equal(t, 2, s.Float64)
	require.NotEmpty(t, s.Where)
	require.NotNil(t, s.FP32RelL2)
	require.Positive(t, *s.FP32RelL2)
	require.Less(t, *s.FP32RelL2, 1e-5)
	for i := range wide {
		require.Len(t, narrow[i].Slices, len(wide[i].Slices))
		for k, q := range wide[i].Slices {
			require.InDelta(t, q.RelL2, narrow[i].Slices[k].RelL2, .02*q.RelL2, q.Name)
			require.InDelta(t, q.Cosine, narrow[i].Slices[k].Cosine, .03*(1-q.Cosine), q.Name)
		}
	}

	exact, err := Graph(t.Context(), "policy", r.Source, Options{Precision: "fp32", Targets: []string{"sm_121"}, F32Outputs: true})
	require.NoError(t, err)
	y, narrow = judged(0, exact)
	_, wide = judged(fewMACs, exact)
	require.Equal(t, 4, y.exact.summary().Float64)
	require.Equal(t, wide, narrow)
}

// TestAProgramIsMeasuredOnce: the second measurement is the first, until the program is another.
func TestAProgramIsMeasuredOnce(t *testing.T) {
	r := forced(t, "policy", "fp8")
	runs := 0
	y, err := newAccuracyEvaluator(r.Source, &Options{Precision: "fp8", Generated: 2, meter: console.New(func(e console.Event) {
		if e.Begin && e.Phase == "sm_121: running the program on 4 inputs" {
			runs++
		}
	})})
	require.NoError(t, err)
	first, err := y.measure(t.Context(), r.Program, "sm_121", 0)
	require.NoError(t, err)
	again, err := y.measure(t.Context(), r.Program, "sm_121", 0)
	require.NoError(t, err)
	require.Equal(t, first, again)
	require.Equal(t, 1, runs)
	other := *r.Program
	other.Weights = append([]byte{}, r.Program.Weights...)
	other.Weights[len(other.Weights)/2] ^= 0x10
	changed, err := y.measure(t.Context(), &other, "sm_121", 0)
	require.NoError(t, err)
	require.Equal(t, 2, runs)
	require.NotEqual(t, first, changed)
}

// TestTheReferenceIsTakenFromTheWalk: a calibration that goes through the graph leaves nothing of the reference in f32 to
// compute, and the rows are those of their inputs.
func TestTheReferenceIsTakenFromTheWalk(t *testing.T) {
	m := small(t, "policy")
	g, err := onnx.Import(m, onnx.ImportOptions{})
	require.NoError(t, err)
	var phases []string
	opt := Options{Precision: "fp8", Generated: 6, meter: console.New(func(e console.Event) {
		if e.Begin {
			phases = append(phases, e.Phase)
		}
	})}
	y, err := newAccuracyEvaluator(g, &opt)
	require.NoError(t, err)
	y.few = 0
	s, err := opt.stages()
	require.NoError(t, err)
	regions, pc := g.Clone(), passes.Context{Target: target.Default(), Precision: opt.Precision, SplitImageOptions: passes.SplitImageOptions{Greatest: y.greatest()}}
	require.NoError(t, passes.Run(&pc, regions, s.fuse, nil))
	require.Equal(t, ir.Float16, regions.Outputs[0].Type.DType)
	require.NoError(t, wideOutputs(regions).Verify())
	pc.Means, err = y.forward(t.Context(), regions, true)
	require.NoError(t, err)
	require.NotEmpty(t, pc.Means)
	require.NoError(t, passes.Run(&pc, regions, s.subtract, nil))
	c := &calibration{accuracyEvaluator: y, graph: regions, context: pc, rest: s.store}
	_, err = c.choose(t.Context(), &opt)
	require.NoError(t, err)

	phases = nil
	require.NoError(t, y.refer(t.Context(), nil, "sm_121"))
	require.Equal(t, []string{"evaluating 2 inputs in float64"}, phases)
	for _, v := range g.Outputs {
		for at, in := range append(y.all(), Inputs(g)) {
			got := y.golden[v.Name]
			if at < len(y.all()) {
				got = y.narrow[v.Name][at]
			}
			want, err := ir.Evaluate(t.Context(), g, in, ir.EvalOptions{})
			require.NoError(t, err)
			q, err := runtime.Compare(got, want[v.Name].Floats(), 0, 0)
			require.NoError(t, err)
			require.Less(t, q.RelL2, 1e-5, "input %d", at)
		}
	}
}
