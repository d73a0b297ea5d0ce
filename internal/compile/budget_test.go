package compile

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

// inputFiles writes inputs as .npz files and returns their directory.
func inputFiles(t *testing.T, inputs []map[string]*npy.Array) string {
	t.Helper()
	dir := t.TempDir()
	for i, in := range inputs {
		require.NoError(t, npy.WriteZip(filepath.Join(dir, fmt.Sprintf("%02d.npz", i)), in))
	}
	return dir
}

// drawn are uniform inputs of another kind than those that a calibration generates.
func drawn(g *ir.Graph) []map[string]*npy.Array {
	m := map[string]*npy.Array{}
	for name, a := range Inputs(g) {
		m[name] = &npy.Array{DType: a.DType.String(), Shape: a.Shape, Data: a.Tensor().Dense()}
	}
	return []map[string]*npy.Array{m}
}

// TestTheBudgetIsJudgedOnValidationInputs: with a budget that calibration inputs meet and validation inputs miss, more layers
// stay in fp16; and the report has both sets.
func TestTheBudgetIsJudgedOnValidationInputs(t *testing.T) {
	fulltest.Long(t)
	source := forced(t, "policy", "fp8", "sm_121").Source
	dir := inputFiles(t, drawn(source))
	opt := Options{Precision: "fp8", Targets: []string{"sm_121"}, Generated: 2, Validate: []string{dir}}
	free, err := compiled(t.Context(), small(t, "policy"), opt)
	require.NoError(t, err)
	sets := free.Accuracy.Sets
	require.Len(t, sets, 3)
	for i, name := range []string{CalibrationSet, PerturbedSet, ValidationSet} {
		require.Equal(t, name, sets[i].Name)
		require.Equal(t, i == 0, sets[i].Fitted)
	}
	require.Equal(t, calibrate.Worst(sets), free.Accuracy.Slices)
	in, out := min(lowest(sets[0].Slices), lowest(sets[1].Slices)), lowest(sets[2].Slices)
	require.Less(t, out, in, "the validation inputs are no harder than the others: choose others")

	opt.MinCosine, opt.Smaller = (in+out)/2, true
	r, err := compiled(t.Context(), small(t, "policy"), opt)
	require.NoError(t, err)
	require.GreaterOrEqual(t, lowest(r.Accuracy.Sets[2].Slices), opt.MinCosine)
	require.Positive(t, in16Bits(r))
}

func lowest(q []calibrate.Quality) float64 {
	x := 1.0
	for _, s := range q {
		x = min(x, s.Cosine)
	}
	return x
}

func in16Bits(r *Result) (count int) {
	for _, l := range r.Accuracy.Layers {
		if l.Precision == "fp16" {
			count++
		}
	}
	return count
}

// slowL2 is a machine on which layers of small models wait for their weights, so that shorter ones make them faster.
var slowL2 = func() *cost.File {
	one := func(x float64) cost.Figure { return cost.Figure{Low: x, Middle: x, High: x} }
	return &cost.File{Format: cost.FileFormat, Target: "sm_121", Device: "GPU", Figures: map[string]cost.Figure{"l2_read_gbps": one(150), "l2_bytes_clock": one(6.8)}}
}()

// TestAChosenProgramIsMeasuredOnce: what a search measured last is the program, byte for byte, so that it is not run on all inputs again.
func TestAChosenProgramIsMeasuredOnce(t *testing.T) {
	fulltest.Long(t)
	runs, candidates := 0, 0
	r, err := compiled(t.Context(), small(t, "policy"), Options{Precision: "fp8", MinCosine: .9, Generated: 4, Targets: []string{"sm_121"}, Machine: slowL2,
		Progress: func(e console.Event) {
			switch {
			case !e.Begin:
			case strings.Contains(e.Phase, "running the program"):
				runs++
			case strings.HasPrefix(e.Phase, "compiling the formats of the fit"), strings.HasPrefix(e.Phase, "compiling with"):
				candidates++
			}
		}})
	require.NoError(t, err)
	require.Nil(t, r.Accuracy.Fallback, "choose a model that is faster in fp8")
	require.Positive(t, candidates)
	require.Equal(t, candidates, runs)
}

// TestValidationInputsThatCalibrate are warned of.
func TestValidationInputsThatCalibrate(t *testing.T) {
	fulltest.Long(t)
	source := forced(t, "policy", "fp8", "sm_121").Source
	dir := inputFiles(t, append(unseen(source), drawn(source)...))
	var warned []string
	_, err := compiled(t.Context(), small(t, "policy"), Options{Precision: "fp8", Targets: []string{"sm_121"}, Calibrate: []string{dir},
		Validate: []string{filepath.Join(dir, "01.npz")}, Warn: func(text string) { warned = append(warned, text) }})
	require.NoError(t, err)
	require.Contains(t, strings.Join(warned, "\n"), "validation inputs are calibration inputs too, 1 of 1, which")
}

// TestAProgramThatIsNoFasterStaysInHalf keeps all layers out of fp8 but one that is no faster in it; then it asks of a program
// that is in nvfp4 all over, and slower.
func TestAProgramThatIsNoFasterStaysInHalf(t *testing.T) {
	fulltest.Long(t)
	var keep []string
	for i, l := range forced(t, "policy", "fp8", "sm_121").Accuracy.Layers {
		if i > 0 {
			keep = append(keep, l.Name)
		}
	}
	var warned []string
	opt := Options{Precision: "fp8", MinCosine: .9, Generated: 2, Targets: []string{"sm_121", "sm_90"}, Keep: keep, Warn: func(text string) { warned = append(warned, text) }}
	r, err := compiled(t.Context(), small(t, "policy"), opt)
	require.NoError(t, err)
	half, err := compiled(t.Context(), small(t, "policy"), Options{Precision: "fp16", Targets: opt.Targets})
	require.NoError(t, err)
	require.NotNil(t, r.Accuracy.Fallback)
	require.Equal(t, "fp8", r.Accuracy.Fallback.Precision)
	require.Zero(t, r.Accuracy.Fallback.Layers)
	require.Equal(t, half.Program, r.Program)
	require.Contains(t, strings.Join(warned, "\n"), "no layer is faster in fp8 within a budget of 0.9: the program is in fp16; --prefer size")
	require.Len(t, r.Accuracy.Layers, in16Bits(r))
	require.False(t, r.Accuracy.Sets[0].Fitted)
	require.Len(t, r.Accuracy.Others, 1)

	opt.Smaller, opt.Targets = true, opt.Targets[:1]
	r, err = compiled(t.Context(), small(t, "policy"), opt)
	require.NoError(t, err)
	require.Nil(t, r.Accuracy.Fallback)
	require.Less(t, len(r.Program.Weights), len(half.Program.Weights))

	slow := *lowPrecision(t, "policy", Options{Precision: "nvfp4", Smaller: true}) // all weights of 4 bits
	accuracy := *slow.Accuracy
	accuracy.Layers, slow.Accuracy = slices.Clone(accuracy.Layers), &accuracy
	slow.opt.MinCosine, slow.opt.Warn, slow.opt.Smaller = .1, opt.Warn, false
	y, err := newAccuracyEvaluator(slow.Source, &slow.opt)
	require.NoError(t, err)
	require.NoError(t, slow.keepHalf(t.Context(), y))
	require.Equal(t, len(accuracy.Layers), accuracy.Fallback.Layers)
	require.Contains(t, warned[len(warned)-1], "nvfp4 is predicted to be no faster than fp16 on gb10")
	require.Equal(t, once(t, small(t, "policy"), Options{Precision: "fp16", Targets: opt.Targets}).Program.Weights, slow.Program.Weights)
}

// TestNoLayerGoesDownThatBecomesSlower: within a budget, on a machine with a slow L2 (on GB10 the small policy stays in fp16), policy in nvfp4 is faster
// than in fp16, and than with 4 bits forced in every layer, or in all but a few that have 8, since its layers have the formats that their kernels
// are fastest in.
func TestNoLayerGoesDownThatBecomesSlower(t *testing.T) {
	fulltest.Long(t)
	of := func(o Options) *Result {
		o.Precision, o.Machine = "nvfp4", slowL2
		return lowPrecision(t, "policy", o)
	}
	slow, few, r := of(Options{Smaller: true}), of(Options{}), of(Options{MinCosine: .9})
	half, err := slow.Half(t.Context())
	require.NoError(t, err)
	us := func(r *Result) float64 {
		p, err := r.Profile(t.Context())
		require.NoError(t, err)
		return p.Total.US
	}
	t.Logf("fp16 %.2f µs, forced %.2f, forced for size %.2f, within the budget %.2f", us(half), us(few), us(slow), us(r))
	require.Less(t, us(r), us(half))
	require.Less(t, us(r), us(few))
	require.Less(t, us(r), us(slow))
	for _, l := range r.Accuracy.Layers {
		if l.Precision == "fp16" || strings.HasPrefix(l.Precision, "fp8") {
			require.NotEmpty(t, l.Why, l.Name)
		}
	}
}
