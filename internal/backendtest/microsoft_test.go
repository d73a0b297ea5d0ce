package backendtest

import (
	"archive/zip"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/internal/toolchain"
	"github.com/spark-compile/spark-compile/ir"
)

var update = flag.Bool("update", false, "record ONNX Runtime's outputs again")

// recorded holds what testdata/microsoft.py writes with seed 1.
const recorded = "testdata/microsoft.zip"

// byONNXRuntime runs testdata/microsoft.py, or skips.
func byONNXRuntime(t *testing.T, seed string) string {
	t.Helper()
	interpreter, err := toolchain.FindPython()
	if err != nil || exec.Command(interpreter, "-c", "import onnx, onnxruntime").Run() != nil {
		t.Skip("no Python with onnxruntime: set SPARK_PYTHON, or run make tools")
	}
	dir := t.TempDir()
	out, err := exec.Command(interpreter, filepath.Join("..", "..", "testdata", "microsoft.py"), dir, seed).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return dir
}

// pass runs the cases on the CPU device with all checks on: none may fail or be skipped.
func pass(t *testing.T, dir string) (names []string) {
	t.Helper()
	results, err := Run(context.Background(), []string{dir}, Options{Open: checked})
	require.NoError(t, err)
	for _, r := range results {
		if r.Outcome != Passed {
			t.Errorf("%s %s: %v", r.Name, r.Outcome, r.Err)
		}
		names = append(names, r.Name)
	}
	return names
}

// TestMicrosoftOperators holds operators of com.microsoft, and those of trees and linear models, to what ONNX Runtime
// computed when the cases were recorded. Every operator that is converted has a case.
func TestMicrosoftOperators(t *testing.T) {
	fulltest.Long(t)
	if *update {
		pack(t, byONNXRuntime(t, "1"), recorded)
	}
	dir := unpacked(t, recorded)
	names := pass(t, dir)
	seen := map[string]bool{}
	for _, name := range names {
		c, err := Load(filepath.Join(dir, name))
		require.NoError(t, err)
		for _, n := range c.Model.Proto.Graph.Node {
			seen[onnx.Domain(n.GetDomain())+"."+n.GetOpType()] = true
		}
	}
	nodecased := []string{"ai.onnx.ml.ArrayFeatureExtractor", "ai.onnx.ml.Binarizer"} // by the onnx package
	for _, domain := range []string{"com.microsoft", "ai.onnx.ml"} {
		for _, op := range onnx.Operators(domain, 0) {
			name := domain + "." + op
			require.True(t, seen[name] || slices.Contains(nodecased, name), "%s has no case in testdata/microsoft.py", name)
		}
	}
}

// TestMicrosoftOperatorsOnOtherData is the same with data that are not recorded, by the ONNX Runtime that is installed.
func TestMicrosoftOperatorsOnOtherData(t *testing.T) {
	fulltest.Long(t)
	pass(t, byONNXRuntime(t, "2"))
}

// pack writes the files of a directory into an archive whose bytes depend on them alone.
func pack(t *testing.T, dir, path string) {
	t.Helper()
	var buffer bytes.Buffer
	w := zip.NewWriter(&buffer)
	root := os.DirFS(dir)
	require.NoError(t, fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		f, err := w.Create(name)
		if err != nil {
			return err
		}
		_, err = f.Write(data)
		return err
	}))
	require.NoError(t, w.Close())
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, buffer.Bytes(), 0o644))
}

func unpacked(t *testing.T, path string) string {
	t.Helper()
	z, err := zip.OpenReader(path)
	require.NoError(t, err)
	defer z.Close()
	dir := t.TempDir()
	for _, f := range z.File {
		r, err := f.Open()
		require.NoError(t, err)
		data, err := io.ReadAll(r)
		require.NoError(t, err)
		to := filepath.Join(dir, filepath.FromSlash(f.Name))
		require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o755))
		require.NoError(t, os.WriteFile(to, data, 0o644))
	}
	return dir
}

// TestMicrosoftOperators_InF16 holds attention with caches, weights in blocks and RoiAlign, compiled for fp16, to what ONNX
// Runtime computed in f32: products of operands with 11 bits, and caches kept in f16.
func TestMicrosoftOperators_InF16(t *testing.T) {
	fulltest.Long(t)
	dir := unpacked(t, recorded)
	var dirs []string
	for _, pattern := range []string{"GroupQueryAttention_*", "RotaryEmbedding_*", "GatherBlockQuantized_*", "MatMulNBits_*", "RoiAlign_*"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		require.NoError(t, err)
		require.NotEmpty(t, found, pattern)
		dirs = append(dirs, found...)
	}
	worst := 0.
	results, err := Run(context.Background(), dirs, Options{Open: checked, Precision: "fp16", Workers: 1,
		Compare: func(c *Case, got, want *ir.Tensor) error {
			off := relativeL2(got, want)
			worst = max(worst, off)
			if bound := 4.9e-4; !(off <= bound) {
				return fmt.Errorf("relative L2 is %.3g, want at most %.3g", off, bound)
			}
			return nil
		}})
	require.NoError(t, err)
	for _, r := range results {
		if r.Outcome != Passed {
			t.Errorf("%s %s: %v", r.Name, r.Outcome, r.Err)
		}
	}
	t.Logf("the worst of %d is %.3g", len(results), worst)
}
