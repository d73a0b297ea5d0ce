package backendtest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/internal/testing/golden"
	"github.com/spark-compile/spark-compile/ir"
)

func checked(context.Context) (hal.Device, error) {
	return emu.Open(emu.Options{Check: true, Workers: 1})
}

// TestNodeCasesThroughPTX compiles every node case of the onnx package and runs its kernels on the CPU device with all
// checks on: no wrong answer, no violation, and refusals only by name, as docs/data/skipped-cases.csv counts them (UPDATE=1 writes it).
func TestNodeCasesThroughPTX(t *testing.T) {
	fulltest.Long(t)
	results, err := Run(context.Background(), []string{written(t, "nodecases")}, Options{Open: checked})
	require.NoError(t, err)
	reasons := map[string]int{}
	for _, r := range results {
		switch r.Outcome {
		case Failed:
			t.Errorf("%s: %v", r.Name, r.Err)
		case Skipped:
			reasons[r.Reason()]++
		}
	}
	rows := [][]string{{"cases", "reason"}}
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		rows = append(rows, []string{strconv.Itoa(reasons[reason]), reason})
	}
	golden.CSV(t, "../../docs/data/skipped-cases.csv", rows)
	count := CountOutcomes(results)
	golden.States(t, "../../docs/operators.md", fmt.Sprintf("%d passed, %d failed, %d skipped", count[Passed], count[Failed], count[Skipped]))
}

// TestLightModelsThroughPTX runs well-known networks with constant weights; all nine of them only if SPARK_FULL is set.
func TestLightModelsThroughPTX(t *testing.T) {
	dir := written(t, "light")
	names := LightModels()
	if !fulltest.Runs(t.Name()) {
		names = names[:2]
	}
	open := func(context.Context) (hal.Device, error) { return emu.Open(emu.Options{}) }
	for _, name := range names {
		for _, precision := range []string{"", "fp32"} {
			t.Run(name+"/"+precision, func(t *testing.T) {
				results, err := Run(context.Background(), []string{filepath.Join(dir, name)}, Options{Open: open, Precision: precision, Workers: 1})
				require.NoError(t, err)
				require.NoError(t, results[0].Err)
			})
		}
	}
}

// oneCase writes a case directory: y = relu(x), with what is expected.
func oneCase(t *testing.T, op string, want float64) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "case_"+op)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "test_data_set_0"), 0o755))
	b := onnx.NewBuilder("case", 17)
	b.Input("x", ir.Float32, 2)
	b.Node(op, []string{"x"}, []string{"y"})
	b.Output("y", ir.Float32, 2)
	m, err := b.Model()
	require.NoError(t, err)
	require.NoError(t, m.Save(filepath.Join(dir, "model.onnx")))
	for name, x := range map[string][]float64{"input_0": {-1, 2}, "output_0": {0, want}} {
		raw, err := onnx.TensorFile(name, ir.FromFloats(ir.T(ir.Float32, 2), x))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "test_data_set_0", name+".pb"), raw, 0o644))
	}
	return dir
}

// TestOutcomes needs nothing but the repository: a right case passes, a wrong expectation fails, a random
// operator is skipped.
func TestOutcomes(t *testing.T) {
	right, wrong, none := oneCase(t, "Relu", 2), oneCase(t, "Relu", 3), oneCase(t, "RandomNormalLike", 2)
	for dir, want := range map[string]Outcome{right: Passed, wrong: Failed, none: Skipped} {
		results, err := Run(context.Background(), []string{dir}, Options{Open: checked})
		require.NoError(t, err)
		require.Equal(t, want, results[0].Outcome, "%s: %v", dir, results[0].Err)
	}
	_, err := Run(context.Background(), []string{t.TempDir()}, Options{Open: checked})
	require.ErrorContains(t, err, "no test case")
}
