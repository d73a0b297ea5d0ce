//go:build !bundle

package gputest

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
)

// simulated are programs that the script asks on a machine with a GPU and PyTorch, as far as it asks them.
var simulated = map[string]string{
	"nvidia-smi": `case "$*" in
*-lms*) while :; do echo "now, 2000 MHz"; sleep 0.1; done ;;
*) echo "NVIDIA-SMI, simulated" ;;
esac`,
	"python": `test "$1" = -c && exit
echo "a compiler's chatter"
echo '{"model": "policy.onnx", "mode": "graph", "asked": "fp16", "event": {"p50_ms": 1.125}}'`,
	"ncu":               `shift 8; exec "$@"`,
	"compute-sanitizer": `shift 6; exec "$@"`,
}

// TestBundle_RunsDry makes the bundle with small models and runs its script with the CPU device in place of the GPU,
// where no step may fail, and for a GPU that is not there, where all of them do that need one.
func TestBundle_RunsDry(t *testing.T) {
	if !fulltest.Runs(t.Name()) {
		t.Skip("builds the bundle and runs it: set SPARK_FULL=1")
	}
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	dir := t.TempDir()
	bundle, tools := filepath.Join(dir, "bundle"), filepath.Join(dir, "tools")
	c := exec.Command("make", "gpu-bundle", "GPU_MODELS="+filepath.Join(dir, "none"), "GPU_SIZE=small", "GPU_DIR="+bundle,
		"GPU_ARCH="+runtime.GOARCH, "GPU_FLAGS=-ldflags=-s") // not trimmed: packages come from the cache
	c.Dir = root
	kept := filepath.Join(bundle, "out", "summary.txt")
	require.NoError(t, os.MkdirAll(filepath.Dir(kept), 0o755))
	require.NoError(t, os.WriteFile(kept, []byte("results of the run before"), 0o644))
	begin := time.Now()
	made, err := c.CombinedOutput()
	require.NoError(t, err, "%s", made)
	t.Logf("made in %.0f s\n%s", time.Since(begin).Seconds(), made)
	require.FileExists(t, kept)
	require.NoError(t, os.Mkdir(tools, 0o755))
	for name, body := range simulated {
		require.NoError(t, os.WriteFile(filepath.Join(tools, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755))
	}
	quick, _ := tableOf(t, "QUICK")

	r := runScript(t, bundle, map[int]bool{}, nil, "PATH="+tools+":"+os.Getenv("PATH"), "PYTHON=python", "SPARK_DEVICE=emu",
		"RUNS=2")
	t.Logf("%s", r.read(t, "summary.txt"))
	require.NoError(t, r.err, r.text)
	got := r.statuses(t)
	require.Equal(t, []string{"device"}, got["skip"])
	require.Len(t, got["ok"], len(quick)-1)
	require.Less(t, r.took, 2*time.Minute)
	require.Contains(t, r.text, "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32: sums in f32, ")
	for name, want := range map[string]string{"machine.txt": "NVIDIA-SMI, simulated", "profile.txt": "policy",
		"bench.jsonl": `{"step": "bench vision fp16"`, "reports.jsonl": `{"step": "golden vision fp16: vision_1"`,
		"machine.json": `"dry_run": `} {
		require.Contains(t, r.read(t, name), want, name)
	}
	require.NotContains(t, r.read(t, "log.txt"), "not the weights", "the generator's weights are those of the packages")
	report := exec.Command("go", "run", "./internal/testing/gpureport", r.out)
	report.Dir = root
	text, err := report.CombinedOutput()
	require.NoError(t, err, "%s", text)
	require.Contains(t, string(text), "This describes no GPU")
	require.NotContains(t, string(text), "not measured: policy.onnx")

	r = runScript(t, bundle, map[int]bool{}, nil, "PATH=/usr/bin:/bin", "PYTHON=false", "RUNS=2")
	require.Error(t, r.err, r.text)
	got = r.statuses(t)
	require.Equal(t, []string{"models"}, got["ok"])
	for _, step := range quick {
		switch word, _, _ := strings.Cut(step, " "); word {
		case "models", "peer", "profile", "sanitize": // needs no GPU, or is not installed
		default:
			require.Contains(t, got["FAIL"], step)
		}
	}
}
