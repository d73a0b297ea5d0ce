package backendtest

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

// found lists the test cases next to the repository that were wrong once, except those that need an adapter.
func found(t *testing.T) (cases []string) {
	t.Helper()
	for _, below := range []string{"*", filepath.Join("*", "*")} {
		paths, err := filepath.Glob(filepath.Join("..", "..", "..", "shared", "found", below, "model.onnx"))
		require.NoError(t, err)
		for _, path := range paths {
			dir := filepath.Dir(path)
			if _, err := os.Stat(filepath.Join(dir, "adapter_config.json")); err == nil {
				continue
			}
			if _, err := os.Stat(filepath.Join(dir, "test_data_set_0")); err == nil {
				cases = append(cases, dir)
			}
		}
	}
	if len(cases) == 0 {
		t.Skip("no models that were wrong once in ../shared/found")
	}
	return cases
}

// TestFoundCases_PassInEveryPrecision compares elements in the file's precision and f32, and directions in others.
func TestFoundCases_PassInEveryPrecision(t *testing.T) {
	fulltest.Long(t)
	cases := found(t)
	for _, p := range precision.Names() {
		t.Run(p, func(t *testing.T) {
			opt := Options{Open: checked, Workers: 1, Precision: p}
			switch p {
			case precision.File, precision.FP32:
			case precision.NVFP4:
				opt.Compare = atLeast(0.9)
			default:
				opt.Compare = atLeast(0.99)
			}
			results, err := Run(context.Background(), cases, opt)
			require.NoError(t, err)
			for _, r := range results {
				if r.Outcome == Failed {
					t.Errorf("%s: %v", r.Name, r.Err)
				}
			}
		})
	}
}

// atLeast compares outputs by their cosine; NaNs and infinities must be where they are expected.
func atLeast(cosine float64) func(*Case, *ir.Tensor, *ir.Tensor) error {
	return func(_ *Case, got, want *ir.Tensor) error {
		if !got.Type.Equal(want.Type) {
			return fmt.Errorf("%v, want %v", got.Type, want.Type)
		}
		var xy, xx, yy float64
		for i := range want.Numel() {
			x, y := got.FloatAt(i), want.FloatAt(i)
			if x == y || math.IsNaN(x) && math.IsNaN(y) {
				if math.IsNaN(x) || math.IsInf(x, 0) {
					x, y = 0, 0
				}
			}
			xy, xx, yy = xy+x*y, xx+x*x, yy+y*y
		}
		if c := xy / math.Sqrt(xx*yy); xx+yy > 0 && !(c >= cosine) {
			return fmt.Errorf("cosine %.4f, want at least %g", c, cosine)
		}
		return nil
	}
}
