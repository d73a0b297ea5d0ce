package compile

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/runtime"
)

// dropping is the file of a machine whose mma keeps so many bits of its sums, by type, and is like its target's row otherwise.
func dropping(sumBits map[string]int) *cost.File {
	return &cost.File{Format: cost.FileFormat, Target: "sm_121", Device: "GPU", SumBits: sumBits}
}

// onGolden runs a program on golden inputs of ../shared/models on a CPU device that adds as sumBits says, and returns all outputs in a row, and the
// golden ones.
func onGolden(t *testing.T, p *runtime.Program, sumBits map[string]int, golden []string) (out, want []float64) {
	t.Helper()
	d, err := emu.Open(emu.Options{CutOff: emu.CutOffs(sumBits)})
	require.NoError(t, err)
	defer d.Close()
	s, err := runtime.Open(t.Context(), p, d, runtime.ModelOptions{Target: "sm_121"})
	require.NoError(t, err)
	defer s.Close()
	for _, path := range golden {
		z, err := npy.ReadZip(path)
		require.NoError(t, err)
		got := outputs(t, p, s, z)
		for _, q := range p.Outputs {
			x, err := z[q.Name].Float64s()
			require.NoError(t, err)
			out, want = append(out, got[q.Name]...), append(want, x...)
		}
	}
	return out, want
}

// TestModels_OnTensorCoresThatDropBits runs the models of ../shared/models, where they are, with every sum in f32,
// with sums of which what is below 22 bits is dropped, which is next to nothing but moves numbers to a neighbouring
// code where they are rounded, and below 13 bits; then so with kernels that add partial sums in f32. -v prints rows
// of docs/measurements/partial-sums-models.csv: relative L2 from the golden outputs, and from the same program's
// outputs with sums in f32.
func TestModels_OnTensorCoresThatDropBits(t *testing.T) {
	all := os.Getenv("SPARK_MEASURE") != ""
	if !all && !fulltest.Runs(t.Name()) {
		t.Skip("runs a full-size model in the interpreter: set SPARK_FULL=1; SPARK_MEASURE=1 runs all of them")
	}
	models, low := []string{"driving_policy"}, []string{"fp16"}
	if all {
		models, low = []string{"driving_policy", "dmonitoring_model", "driving_vision"}, []string{"fp16", "fp8"}
	}
	const few, nearlyAll = 13, 22
	t.Log("model,precision,golden inputs,f32,13 bits,partial: f32,partial: 13 bits,moved at 22 bits,moved at 13 bits,partial: moved at 13 bits")
	for _, name := range models {
		m, err := onnx.Load(shared(t, name+".onnx"))
		require.NoError(t, err)
		golden, err := filepath.Glob(shared(t, "golden") + "/" + name + "_*.npz")
		require.NoError(t, err)
		for _, precision := range low {
			t.Run(name+"/"+precision, func(t *testing.T) {
				opt := Options{Precision: precision, Targets: []string{"sm_121"}}
				dtype := "f16"
				if precision == "fp8" {
					dtype = "e4m3"
					opt.Calibrate = []string{shared(t, "calibration", name)}
				}
				plain, err := compiled(t.Context(), m, opt)
				require.NoError(t, err)
				drops := map[string]int{dtype: few}
				opt.Machine = dropping(drops)
				partial, err := compiled(t.Context(), m, opt)
				require.NoError(t, err)
				distance := func(got, want []float64) float64 {
					c, err := runtime.Compare(got, want, 0, 0)
					require.NoError(t, err)
					return c.RelL2
				}
				exact, want := onGolden(t, plain.Program, nil, golden)
				nearly, _ := onGolden(t, plain.Program, map[string]int{dtype: nearlyAll}, golden)
				dropped, _ := onGolden(t, plain.Program, drops, golden)
				sums, _ := onGolden(t, partial.Program, nil, golden)
				added, _ := onGolden(t, partial.Program, drops, golden)
				t.Logf("%s,%s,%d,%.2e,%.2e,%.2e,%.2e,%.2e,%.2e,%.2e", name, precision, len(golden), distance(exact, want), distance(dropped, want),
					distance(sums, want), distance(added, want), distance(nearly, exact), distance(dropped, exact), distance(added, sums))
				require.NotZero(t, distance(dropped, exact))
				if precision == "fp16" { // in 8 bits, which code a number is rounded to decides
					require.Less(t, distance(added, sums), distance(dropped, exact), "partial sums in f32 make dropped bits matter less")
				}
			})
		}
	}
}

// TestTheBudgetIsJudgedWithTheSumsOfTheMachine: a program whose sums are good enough in f32 misses its budget on a machine that drops bits.
func TestTheBudgetIsJudgedWithTheSumsOfTheMachine(t *testing.T) {
	fulltest.Long(t)
	m := small(t, "policy")
	compile := func(f *cost.File, budget float64) (float64, error) {
		r, err := compiled(t.Context(), m, Options{Precision: "fp16", Targets: []string{"sm_121"}, Machine: f, MinCosine: budget, Generated: 2})
		if err != nil {
			return 0, err
		}
		return calibrate.Least(r.Accuracy.Slices), nil
	}
	exact, err := compile(nil, .1)
	require.NoError(t, err)
	same, err := compile(dropping(nil), .1)
	require.NoError(t, err)
	require.Equal(t, exact, same)
	drops := dropping(map[string]int{"f16": 4})
	dropped, err := compile(drops, .1)
	require.NoError(t, err)
	require.Less(t, dropped, exact-1e-4)
	_, err = compile(drops, (dropped+exact)/2)
	require.ErrorContains(t, err, "the outputs miss --min-cosine")
}
