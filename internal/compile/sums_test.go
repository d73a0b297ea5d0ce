package compile

import (
	"context"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/fulltest"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/runtime"
)

// dropping is the file of a machine whose mma of a type keeps so many bits of its sums, and is like its target's row otherwise.
func dropping(dtype string, bits int) *cost.File {
	return &cost.File{Format: cost.FileFormat, Target: "sm_121", Device: "GPU", SumBits: map[string]int{dtype: bits}}
}

// onDevice runs a program on golden inputs of ../shared/models on a CPU device that adds as sumBits says, and returns the relative L2 of each output
// from the golden one.
func onDevice(t *testing.T, p *runtime.Program, sumBits map[string]int, golden []string) (out []float64) {
	t.Helper()
	d, err := emu.Open(emu.Options{CutOff: emu.CutOffs(sumBits)})
	require.NoError(t, err)
	defer d.Close()
	s, err := runtime.Open(context.Background(), p, d, runtime.ModelOptions{Target: "sm_121"})
	require.NoError(t, err)
	defer s.Close()
	for _, path := range golden {
		z, err := npy.ReadZip(path)
		require.NoError(t, err)
		got := outputs(t, p, s, z)
		for _, q := range p.Outputs {
			want, err := z[q.Name].Float64s()
			require.NoError(t, err)
			c, err := runtime.Compare(got[q.Name], want, 0, 0)
			require.NoError(t, err)
			out = append(out, c.RelL2)
		}
	}
	return out
}

// TestWhatModelsLoseBySumsThatDropBits runs the models of ../shared/models, where they are, with every sum in f32, with sums of which what is below 13
// bits is dropped, and so with kernels that add partial sums in f32. -v prints the table of docs/measurements.md.
func TestWhatModelsLoseBySumsThatDropBits(t *testing.T) {
	models, inputs := []string{"driving_policy"}, 1
	if fulltest.Runs(t.Name()) {
		models, inputs = []string{"dmonitoring_model", "driving_policy", "driving_vision"}, 3
	}
	if only := os.Getenv("SPARK_SUMS_MODELS"); only != "" {
		models = strings.Split(only, ",")
	}
	const bits = 13
	for _, name := range models {
		m, err := onnx.Load(shared(t, name+".onnx"))
		require.NoError(t, err)
		var golden []string
		for k := range inputs {
			golden = append(golden, shared(t, "golden", fmt.Sprintf("%s_%d.npz", name, k)))
		}
		for precision, dtype := range map[string]string{"fp16": "f16", "fp8": "e4m3"} {
			t.Run(name+"/"+precision, func(t *testing.T) {
				opt := Options{Precision: precision, Targets: []string{"sm_121"}}
				if precision == "fp8" {
					opt.Calibrate = []string{shared(t, "calibration", name)}
				}
				plain, err := Compile(t.Context(), m, opt)
				require.NoError(t, err)
				f := dropping(dtype, bits)
				opt.Machine = f
				partial, err := Compile(t.Context(), m, opt)
				require.NoError(t, err)
				exact, dropped, added := onDevice(t, plain.Program, nil, golden), onDevice(t, plain.Program, f.SumBits, golden), onDevice(t, partial.Program, f.SumBits, golden)
				worst := func(x []float64) (w float64) {
					for _, v := range x {
						w = math.Max(w, v)
					}
					return w
				}
				t.Logf("| %s | %s | %d | %.2e | %.2e | %.2e |", name, precision, len(golden), worst(exact), worst(dropped), worst(added))
				t.Logf("%.3e %.3e %.3e", exact, dropped, added)
				require.Greater(t, worst(dropped), worst(exact))
			})
		}
	}
}
