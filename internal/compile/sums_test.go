package compile

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/fulltest"
	"github.com/spark-compile/spark-compile/internal/npy"
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

// TestWhatModelsLoseBySumsThatDropBits runs the models of ../shared/models, where they are, with every sum in f32, with sums of which what is below 13
// bits is dropped, and so with kernels that add partial sums in f32. -v prints the table of docs/measurements.md.
func TestWhatModelsLoseBySumsThatDropBits(t *testing.T) {
	if !fulltest.Runs(t.Name()) {
		t.Skip("runs full-size models in the interpreter: set SPARK_FULL=1")
	}
	models, low := []string{"driving_policy"}, []string{"fp16"}
	if fulltest.All() {
		models, low = []string{"driving_policy", "dmonitoring_model", "driving_vision"}, []string{"fp16", "fp8"}
	}
	const bits = 13
	for _, name := range models {
		m, err := onnx.Load(shared(t, name+".onnx"))
		require.NoError(t, err)
		golden, err := filepath.Glob(shared(t, "golden") + "/" + name + "_*.npz")
		require.NoError(t, err)
		for _, precision := range low {
			t.Run(name+"/"+precision, func(t *testing.T) {
				opt := Options{Precision: precision, Targets: []string{"sm_121"}}
				drops := map[string]int{"f16": bits}
				if precision == "fp8" {
					drops = map[string]int{"e4m3": bits}
					opt.Calibrate = []string{shared(t, "calibration", name)}
				}
				plain, err := Compile(t.Context(), m, opt)
				require.NoError(t, err)
				opt.Machine = dropping(drops)
				partial, err := Compile(t.Context(), m, opt)
				require.NoError(t, err)
				distance := func(got, want []float64) float64 {
					c, err := runtime.Compare(got, want, 0, 0)
					require.NoError(t, err)
					return c.RelL2
				}
				line, moved := fmt.Sprintf("| %s | %s | %d |", name, precision, len(golden)), []float64{}
				for _, r := range []*Result{plain, partial} {
					exact, want := onGolden(t, r.Program, nil, golden)
					dropped, _ := onGolden(t, r.Program, drops, golden)
					moved = append(moved, distance(dropped, exact))
					line += fmt.Sprintf(" %.2e | %.2e | %.2e |", distance(exact, want), distance(dropped, want), moved[len(moved)-1])
				}
				t.Log(line)
				require.NotZero(t, moved[0])
				require.Less(t, moved[1], moved[0], "partial sums in f32 make dropped bits matter less")
			})
		}
	}
}

// TestTheBudgetIsJudgedWithTheSumsOfTheMachine: a program whose sums are good enough in f32 misses its budget on a machine that drops bits.
func TestTheBudgetIsJudgedWithTheSumsOfTheMachine(t *testing.T) {
	m := small(t, "policy")
	compile := func(f *cost.File, budget float64) (float64, error) {
		r, err := Compile(t.Context(), m, Options{Precision: "fp16", Targets: []string{"sm_121"}, Machine: f, MinCosine: budget, Generated: 2})
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
