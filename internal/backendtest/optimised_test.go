package backendtest

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/internal/toolchain"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// TestNetworksThatONNXRuntimeOptimised compiles what ONNX Runtime's optimisers and quantisers make of generated networks (see
// testdata/optimised.py) and runs it on the CPU device. Outputs are as near to ONNX Runtime's as these are to themselves
// on inputs that differ by 1e-6.
func TestNetworksThatONNXRuntimeOptimised(t *testing.T) {
	fulltest.Long(t)
	interpreter, err := toolchain.FindPython()
	if err != nil || exec.Command(interpreter, "-c", "import onnx, onnxruntime, sympy").Run() != nil {
		t.Skip("no Python with onnxruntime and sympy: set SPARK_PYTHON, or run make tools")
	}
	dir, models := t.TempDir(), t.TempDir()
	args := []string{filepath.Join("..", "..", "testdata", "optimised.py"), dir}
	for _, name := range []string{"dmonitoring", "policy"} {
		m, err := driving.Made(name, driving.Small)
		require.NoError(t, err)
		path := filepath.Join(models, name+".onnx")
		require.NoError(t, os.WriteFile(path, m.ONNX, 0o644))
		args = append(args, path)
	}
	out, err := exec.Command(interpreter, args...).CombinedOutput()
	require.NoError(t, err, "%s", out)

	seen := map[string]bool{}
	results, err := Run(context.Background(), []string{dir}, Options{
		Open: func(context.Context) (hal.Device, error) { return emu.Open(emu.Options{Workers: 1}) },
		Compare: func(c *Case, got, want *ir.Tensor) error {
			text, err := os.ReadFile(filepath.Join(c.Dir, "spread"))
			if err != nil {
				return err
			}
			spread, err := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
			if err != nil {
				return err
			}
			off := relativeL2(got, want)
			t.Logf("%s: relative L2 %.2g from ONNX Runtime, whose own is %.2g", c.Name, off, spread)
			if bound := 2*spread + 1e-4; !(off <= bound) {
				return fmt.Errorf("relative L2 is %.3g, want at most %.3g", off, bound)
			}
			return nil
		},
	})
	require.NoError(t, err)
	require.Len(t, results, 20)
	for _, r := range results {
		if r.Outcome != Passed {
			t.Errorf("%s %s: %v", r.Name, r.Outcome, r.Err)
		}
		c, err := Load(filepath.Join(dir, r.Name))
		require.NoError(t, err)
		for _, n := range c.Model.Proto.Graph.Node {
			if onnx.Domain(n.GetDomain()) == "com.microsoft" {
				seen[n.GetOpType()] = true
			}
		}
	}
	for _, op := range []string{"Attention", "BiasGelu", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "FusedConv", "FusedGemm", "FusedMatMul", "Gelu", "MatMulIntegerToFloat", "QAttention", "QGemm",
		"QLinearAdd", "QLinearConcat", "QLinearMul", "QLinearSigmoid", "QLinearSoftmax", "SkipLayerNormalization"} {
		require.True(t, seen[op], "no file has %s", op)
	}
}

// relativeL2 is the L2 norm of the difference, divided by that of what is expected.
func relativeL2(got, want *ir.Tensor) float64 {
	var square, all float64
	for i := range want.Numel() {
		d := got.FloatAt(i) - want.FloatAt(i)
		square, all = square+d*d, all+want.FloatAt(i)*want.FloatAt(i)
	}
	return math.Sqrt(square / all)
}
