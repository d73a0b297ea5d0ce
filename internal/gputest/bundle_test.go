//go:build !bundle

package gputest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/fulltest"
)

// simulated are programs that the script asks on a machine with a GPU and PyTorch, as far as it asks them.
var simulated = map[string]string{
	"nvidia-smi": `case "$*" in
*-lms*) while :; do echo "now, 2000 MHz"; sleep 0.1; done ;;
*) echo "NVIDIA-SMI, simulated" ;;
esac`,
	"python": `test "$1" = -c && exit
echo "a compiler's chatter"
echo '{"model": "policy", "mode": "eager", "asked": "eager", "wall": {"mean_ms": 1.5, "p50_ms": 1.25, "p99_ms": 2.5}, "event": {"mean_ms": 1.4, "p50_ms": 1.125, "p99_ms": 2.4}}'`,
}

// TestTheBundleRunsDry builds the bundle with a small model and goes through every line of its script: once with the CPU device in place
// of the GPU, where nothing may fail, and once for a GPU that is not there, where all of it does that needs one.
func TestTheBundleRunsDry(t *testing.T) {
	if !fulltest.Runs(t.Name()) {
		t.Skip("builds the bundle and runs it: set SPARK_FULL=1")
	}
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	dir := t.TempDir()
	bundle, tools := filepath.Join(dir, "bundle"), filepath.Join(dir, "tools")
	c := exec.Command("make", "gpu-bundle", "GPU_MODELS="+filepath.Join(dir, "none"), "GPU_SIZE=small", "GPU_DIR="+bundle, "GPU_ARCH="+runtime.GOARCH, "GPU_FLAGS=")
	c.Dir = root
	made, err := c.CombinedOutput()
	require.NoError(t, err, "%s", made)
	require.NoError(t, os.Mkdir(tools, 0o755))
	for name, body := range simulated {
		require.NoError(t, os.WriteFile(filepath.Join(tools, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755))
	}
	script := filepath.Join(bundle, "run.sh")
	reached := map[int]bool{}

	out := filepath.Join(dir, "out")
	text, err := followed(t, script, reached, []string{"PATH=" + tools + ":" + os.Getenv("PATH"), "PYTHON=python", "OUT=" + out, "SPARK_DEVICE=emu", "RUNS=2", "TUNE=20", "PRECISIONS=fp16 nvfp4"}, "policy")
	require.NoError(t, err, text)
	require.Contains(t, text, "0 steps failed")
	for _, want := range []string{"ok    vectors", "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32: sums in f32, ", "ok    constants of the machine", "ok    policy nvfp4: 2 runs", "ok    models against golden outputs", "ok    latency", "ok    report", "ok    policy: compile, tuned 1", "tuning: ", "ok    policy tuned: policy", "ok    policy: tuned beside untuned",
		"ok    policy: PyTorch fp16 compile", "ok    policy: ONNX Runtime, CPU", "policy eager eager: wall p50 1.25, p99 2.5 ms; on the device p50 1.125, p99 2.4 ms"} {
		require.Contains(t, text, want)
	}
	contents := map[string]string{}
	files, err := os.ReadDir(out)
	require.NoError(t, err)
	var names []string
	for _, f := range files {
		raw, err := os.ReadFile(filepath.Join(out, f.Name()))
		require.NoError(t, err)
		require.NotEmpty(t, raw, f.Name())
		names, contents[f.Name()] = append(names, f.Name()), string(raw)
	}
	require.Equal(t, "bench.json cpu.npz log.txt machine.json machine.txt report.html reports.jsonl summary.txt", strings.Join(names, " "))
	require.Contains(t, contents["report.html"], "Predicted and measured, nvfp4")
	require.Contains(t, contents["report.html"], "<h3>Timeline, nvfp4")
	require.Contains(t, contents["machine.txt"], "NVIDIA-SMI, simulated")
	require.Contains(t, contents["machine.txt"], "Clocks during the runs:\nnow, 2000 MHz\n")
	require.Contains(t, contents["reports.jsonl"], `{"step": "policy nvfp4: 2 runs", "report": {`)
	require.Contains(t, contents["reports.jsonl"], `{"step": "policy: tuning file", "report": { "format": 1, "target": "sm_121",`)
	require.Contains(t, contents["reports.jsonl"], `{"step": "peer", "report": {"model": "policy"`)

	for _, other := range []string{"vision", "dmonitoring", "supercombo"} {
		require.NoError(t, os.RemoveAll(filepath.Join(bundle, other)))
	}
	text, err = followed(t, script, reached, []string{"PYTHON=false", "OUT=" + filepath.Join(dir, "without"), "RUNS=2", "TUNE=20", "PRECISIONS=bf16 fp32"})
	require.Error(t, err, text)
	for _, want := range []string{"FAIL  vectors (exit status 1", "FAIL  device (exit status 1", "FAIL  latency (exit status 1", "FAIL  models against golden outputs", "FAIL  constants of the machine", "ok    policy bf16: compile", "FAIL  policy fp32: 2 runs", "skip  PyTorch"} {
		require.Contains(t, text, want)
	}
	require.Empty(t, notReached(t, script, reached))
}

// followed runs the script and adds the lines of it that were executed.
func followed(t *testing.T, script string, reached map[int]bool, env []string, args ...string) (string, error) {
	trace, err := os.Create(filepath.Join(t.TempDir(), "trace"))
	require.NoError(t, err)
	defer trace.Close()
	c := exec.Command("bash", append([]string{"-c", `PS4='+$LINENO '; set -x; . "$0" "$@"`, script}, args...)...)
	c.Env, c.ExtraFiles = append(append(os.Environ(), "BASH_XTRACEFD=3"), env...), []*os.File{trace}
	text, failed := c.CombinedOutput()
	require.NotContains(t, string(text), "run.sh: line ", "an error of the script's own")
	lines, err := os.ReadFile(trace.Name())
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`(?m)^\++(\d+) `).FindAllStringSubmatch(string(lines), -1) {
		n, err := strconv.Atoi(m[1])
		require.NoError(t, err)
		reached[n] = true
	}
	return string(text), failed
}

// notReached are the script's lines that were not executed but could have been: neither words of the shell alone, nor those of a
// program of sed, nor what only the published models have.
func notReached(t *testing.T, script string, reached map[int]bool) (missing []string) {
	raw, err := os.ReadFile(script)
	require.NoError(t, err)
	nothing := regexp.MustCompile(`^(#.*|(if .*|\S+\(\) )?\{|\}.*|else|fi|done|esac|)$`)
	sed, published := regexp.MustCompile(`^(t found|d|:found|s/ms .*)$`), regexp.MustCompile(`^"(driving|dmonitoring)_\w+ fp16"\) echo [0-9.]+ ;;$`)
	for i, line := range strings.Split(string(raw), "\n") {
		line = strings.TrimSpace(line)
		if !reached[i+1] && !nothing.MatchString(line) && !sed.MatchString(line) && !published.MatchString(line) {
			missing = append(missing, fmt.Sprintf("%d: %s", i+1, line))
		}
	}
	require.Greater(t, len(reached), 90)
	return missing
}
