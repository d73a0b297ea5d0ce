//go:build !bundle

package gputest

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/fulltest"
)

// TestTheBundleRunsDry builds the bundle with a small model and goes through all of its script, the CPU device in place of the GPU.
func TestTheBundleRunsDry(t *testing.T) {
	if !fulltest.Runs(t.Name()) {
		t.Skip("builds the bundle and runs it: set SPARK_FULL=1")
	}
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	dir := t.TempDir()
	run := func(name string, env []string, args ...string) string {
		c := exec.Command(name, args...)
		c.Dir, c.Env = root, append(os.Environ(), env...)
		text, err := c.CombinedOutput()
		require.NoError(t, err, "%s", text)
		return string(text)
	}
	bundle := filepath.Join(dir, "bundle")
	run("make", nil, "gpu-bundle", "GPU_MODELS="+filepath.Join(dir, "none"), "GPU_SIZE=small", "GPU_DIR="+bundle, "GPU_ARCH="+runtime.GOARCH, "GPU_FLAGS=")
	out := filepath.Join(dir, "out")
	text := run(filepath.Join(bundle, "run.sh"), []string{"OUT=" + out, "SPARK_DEVICE=emu", "RUNS=2", "PRECISIONS=fp16 nvfp4"}, "policy")
	require.Contains(t, text, "0 steps failed")
	for _, want := range []string{"ok    vectors", "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32: sums in f32, ", "ok    constants of the machine", "ok    policy nvfp4: 2 runs", "ok    models against golden outputs", "ok    latency", "ok    report"} {
		require.Contains(t, text, want)
	}
	files, err := os.ReadDir(out)
	require.NoError(t, err)
	var names []string
	for _, f := range files {
		info, err := f.Info()
		require.NoError(t, err)
		require.Positive(t, info.Size(), f.Name())
		names = append(names, f.Name())
	}
	require.Equal(t, "bench.json cpu.npz log.txt machine.json machine.txt report.html reports.jsonl summary.txt", strings.Join(names, " "))
	page, err := os.ReadFile(filepath.Join(out, "report.html"))
	require.NoError(t, err)
	require.Contains(t, string(page), "Predicted and measured, nvfp4")
	require.Contains(t, string(page), "<h3>Timeline, nvfp4")
}
