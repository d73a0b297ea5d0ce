//go:build !bundle

package gputest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
)

// standIn is a shell script in place of the bundle's binaries and of Python, ncu and compute-sanitizer. It writes the
// files that it is asked for; commands that match $HANG hang, those that match $DEAF even at SIGTERM; those that match $BREAK
// fail; all take $SLOW seconds. What hangs ends in success after 15 s, and from then on nothing hangs: a script that does
// not hold its limits fails soon, and by its summary.
const standIn = `#!/bin/sh
name=${0##*/}
echo "$name $*" >>"$CALLS"
case "$name $*" in python*find_spec*) exit "${NO_TORCH:-0}" ;; esac
asked() { test -n "$1" && ! test -f "$CALLS.over" && echo "$name $call" | grep -qE -e "$1"; }
call=$*
if asked "${DEAF:-}"; then
  trap '' TERM
  for i in $(seq 300); do sleep 0.05; done
  : >"$CALLS.over"
fi
if asked "${HANG:-}"; then
  echo $$ >>"$CALLS.hung"
  sleep 15
  : >"$CALLS.over"
fi
sleep "${SLOW:-0}"
if [ -n "${BREAK:-}" ] && echo "$name $*" | grep -qE -e "$BREAK"; then echo "it broke"; exit 3; fi
for argument; do
  case $previous in
  -o) out=$argument ;;
  --json | --tune-file) printf '{\n "written": "%s"\n}\n' "$name $1" >"$argument" ;;
  esac
  previous=$argument
done
case "$name $*" in
gen*) : >"$out/$4.onnx" ;;
*machine.json) echo '{}' >"$out" ;;
"spark compile"*) mkdir -p "$out" && printf "${WEIGHTS:-weights}" >"$out/weights.bin" && echo '{}' >"$out/program.json" ;;
"spark run"*) test -f "$2/weights.bin" && test -f "$2/program.json" || exit 4 ;;
gputest*TestVectors*) echo "    mma.sync: sums in f32, 23 bits"; echo vectors >"$SPARK_RECORD/gpu.npz" ;;
python*) echo "a compiler's chatter"; echo '{"model": "policy.onnx", "mode": "graph"}' ;;
esac
`

// fakeBundle is a bundle of stand-ins, and a directory to put on the PATH.
func fakeBundle(t *testing.T) (bundle, tools string) {
	t.Helper()
	dir := t.TempDir()
	bundle, tools = filepath.Join(dir, "bundle"), filepath.Join(dir, "tools")
	require.NoError(t, os.MkdirAll(filepath.Join(bundle, "bin"), 0o755))
	require.NoError(t, os.Mkdir(tools, 0o755))
	script, err := os.ReadFile("run.sh")
	require.NoError(t, err)
	write := func(path, text string) {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o755))
	}
	write(filepath.Join(bundle, "run.sh"), string(script))
	for name, text := range map[string]string{"target": "sm_90\n", "longest": "first\nsecond\n", "predicted.json": "[\n]\n",
		"bin/torch_latency.py": ""} {
		write(filepath.Join(bundle, name), text)
	}
	for _, name := range []string{"spark", "gen", "cuda.test", "gputest.test"} {
		write(filepath.Join(bundle, "bin", name+".gz"), zipped(t, []byte(standIn)))
	}
	for _, name := range []string{"python", "ncu", "compute-sanitizer"} {
		write(filepath.Join(tools, name), standIn)
	}
	write(filepath.Join(tools, "nvidia-smi"), "#!/bin/sh\n"+simulated["nvidia-smi"]+"\n")
	for _, model := range []string{"policy", "vision", "dmonitoring"} {
		files := map[string]string{model + "/" + model + ".npz": "golden"}
		for _, precision := range []string{"fp16", "fp8", "nvfp4"} {
			digest := sha256.Sum256([]byte("weights"))
			files[model+"/"+precision+"/program.json"] = fmt.Sprintf(`{"weights.bin": "%x"}`, digest)
			if precision != "fp16" {
				files[model+"/"+precision+"/weights.bin"] = "weights"
			}
		}
		files[model+"/generated"] = "small\n"
		if model == "dmonitoring" {
			delete(files, model+"/generated")
			files[model+"/dmonitoring_model.onnx"], files[model+"/fp16/weights.bin"] = "", "weights"
		}
		write(filepath.Join(bundle, model+".tar.gz"), archived(t, files))
	}
	return bundle, tools
}

func zipped(t *testing.T, data []byte) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(data)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.String()
}

func archived(t *testing.T, files map[string]string) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, text := range files {
		require.NoError(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}))
		_, err := w.Write([]byte(text))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return zipped(t, b.Bytes())
}

// scriptRun is what became of a run of the script.
type scriptRun struct {
	text  string
	err   error
	took  time.Duration
	out   string
	calls string
}

// runScript runs a bundle's script and adds the lines of it that were executed.
func runScript(t *testing.T, bundle string, reached map[int]bool, args []string, env ...string) scriptRun {
	t.Helper()
	dir := t.TempDir()
	r := scriptRun{out: filepath.Join(dir, "out")}
	trace, err := os.Create(filepath.Join(dir, "trace"))
	require.NoError(t, err)
	defer trace.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	traced := []string{"-c", `PS4='+$LINENO '; set -x; . "$0" "$@"`, filepath.Join(bundle, "run.sh")}
	c := exec.CommandContext(ctx, "bash", append(traced, args...)...)
	calls := filepath.Join(dir, "calls")
	c.Env = append(append(os.Environ(), "BASH_XTRACEFD=3", "OUT="+r.out, "CALLS="+calls), env...)
	c.ExtraFiles, c.WaitDelay = []*os.File{trace}, time.Second
	begin := time.Now()
	text, failed := c.CombinedOutput()
	r.text, r.err, r.took = string(text), failed, time.Since(begin)
	require.NoError(t, ctx.Err(), r.text)
	// "run.sh: line 99: 1234 Killed" is none.
	require.NotRegexp(t, `run\.sh: line \d+: *[^ \d]`, r.text, "an error of the script's own")
	raw, err := os.ReadFile(calls)
	if err == nil {
		r.calls = string(raw)
	}
	lines, err := os.ReadFile(trace.Name())
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`(?m)^\++(\d+) `).FindAllStringSubmatch(string(lines), -1) {
		n, err := strconv.Atoi(m[1])
		require.NoError(t, err)
		reached[n] = true
	}
	return r
}

// read is a file of the results.
func (r *scriptRun) read(t *testing.T, name string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(r.out, name))
	require.NoError(t, err)
	return string(raw)
}

var stepLine = regexp.MustCompile(`(?m)^(ok|FAIL|LIMIT|LATE|skip) +(.*) \((?:exit status \d+, )?([^()]*?)(?: s)?\)$`)

// statuses are the steps of a summary by what became of them.
func (r *scriptRun) statuses(t *testing.T) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, m := range stepLine.FindAllStringSubmatch(r.read(t, "summary.txt"), -1) {
		out[m[1]] = append(out[m[1]], m[2])
	}
	return out
}

// tableOf is one of the script's tables: steps in order, and the sum of their limits in seconds.
func tableOf(t *testing.T, name string) (steps []string, sum int) {
	t.Helper()
	raw, err := os.ReadFile("run.sh")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(raw), "\n"+name+"='\n")
	require.True(t, ok)
	rows, _, _ := strings.Cut(rest, "\n'\n")
	for _, row := range strings.Split(rows, "\n") {
		limit, step, ok := strings.Cut(strings.TrimSpace(row), " ")
		if !ok {
			continue
		}
		n, err := strconv.Atoi(limit)
		require.NoError(t, err, row)
		steps, sum = append(steps, step), sum+n
	}
	return steps, sum
}

// TestScript goes through every line of the bundle's script with stand-ins for programs and GPU.
func TestScript(t *testing.T) {
	fulltest.Long(t)
	bundle, tools := fakeBundle(t)
	quick, limits := tableOf(t, "QUICK")
	full, _ := tableOf(t, "FULL")
	path := "PATH=" + tools + ":" + os.Getenv("PATH")
	reached := map[int]bool{}

	t.Run("runs every step in order", func(t *testing.T) {
		r := runScript(t, bundle, reached, []string{"FULL"}, path, "PYTHON=python")
		require.NoError(t, r.err, r.text)
		require.Equal(t, map[string][]string{"ok": slices.Concat(quick, full)}, r.statuses(t))
		require.Contains(t, r.text, "      mma.sync: sums in f32, 23 bits\n")
		require.Regexp(t, `\n0 steps failed in [0-9.]+ s; results are in `, r.text)
		files, err := os.ReadDir(r.out)
		require.NoError(t, err)
		var names []string
		for _, f := range files {
			names = append(names, f.Name())
		}
		require.Equal(t, []string{"bench.jsonl", "gpu.npz", "log.txt", "machine.json", "machine.txt", "profile.txt",
			"reports.jsonl", "summary.txt"}, names)
		for name, wants := range map[string][]string{
			"reports.jsonl": {`{"step": "predicted", "report": []}`,
				`{"step": "golden policy fp16: policy", "report": { "written": "spark run"}}`,
				`{"step": "peer policy", "report": {"model": "policy.onnx", "mode": "graph"}}`,
				`{"step": "tuning file policy", "report": {`},
			"bench.jsonl": {`{"step": "ablate vision fp16", "report": { "written": "spark bench"}}`},
		} {
			for _, want := range wants {
				require.Contains(t, r.read(t, name), want)
			}
			for _, line := range strings.Split(strings.TrimSpace(r.read(t, name)), "\n") {
				require.True(t, json.Valid([]byte(line)), line)
			}
		}
		require.Contains(t, r.read(t, "machine.txt"), "During the runs:\nnow, 2000 MHz\n")
		require.Contains(t, r.calls, "ncu --kernel-name regex:^(first|second)$ ")
		require.Contains(t, r.calls, "compute-sanitizer --tool racecheck ")
		require.Contains(t, r.calls, "gen -o ")
		require.Contains(t, r.calls, " --machine-file "+r.out+"/machine.json --json ")
		require.NotContains(t, r.read(t, "log.txt"), "not the weights")
	})

	t.Run("takes the package that is made there if weights differ", func(t *testing.T) {
		r := runScript(t, bundle, reached, nil, path, "PYTHON=python", "WEIGHTS=others", "STEPS=^golden policy fp16")
		require.NoError(t, r.err, r.text)
		require.Equal(t, map[string][]string{"ok": {"models", "golden policy fp16"}}, r.statuses(t))
		require.Contains(t, r.read(t, "log.txt"), "policy fp16: not the weights of the bundle's package")
	})

	t.Run("goes on after failures", func(t *testing.T) {
		r := runScript(t, bundle, reached, nil, path, "PYTHON=python", "BREAK=vision|--machine")
		require.Error(t, r.err)
		got := r.statuses(t)
		require.Equal(t, []string{"models", "machine", "golden vision fp16", "bench vision fp16", "ablate vision fp16",
			"peer vision fp16 eager,graph", "profile vision fp16", "peer vision fp16 compile"}, got["FAIL"])
		require.Len(t, got["ok"], len(quick)-8)
		require.Contains(t, r.text, "FAIL  machine (exit status 3, ")
		require.Contains(t, r.read(t, "summary.txt"), "\n      it broke\n")
	})

	t.Run("programs that tell of the machine hang", func(t *testing.T) {
		deaf := t.TempDir()
		hang := "#!/bin/sh\ntrap '' TERM\nfor i in $(seq 400); do sleep 0.05; done\n"
		require.NoError(t, os.WriteFile(filepath.Join(deaf, "nvidia-smi"), []byte(hang), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(deaf, "python"), []byte(hang), 0o755))
		r := runScript(t, bundle, reached, nil, "PATH="+deaf+":"+tools+":"+os.Getenv("PATH"), "PYTHON=python", "SCALE=0.04",
			"TOTAL_SECONDS=1000", "STEPS=peer policy fp16 graph")
		require.Error(t, r.err)
		require.Equal(t, []string{"peer policy fp16 graph"}, r.statuses(t)["LIMIT"])
		require.Less(t, r.took, 20*time.Second, "nvidia-smi would take 40 s, Python 20 s")
	})

	t.Run("keeps constants that were found before a failure", func(t *testing.T) {
		partial, _ := fakeBundle(t)
		broken := strings.Replace(standIn, "*machine.json) echo '{}' >\"$out\" ;;", "*machine.json) echo '{}' >\"$out\"; exit 2 ;;", 1)
		require.NotEqual(t, standIn, broken)
		packed := []byte(zipped(t, []byte(broken)))
		require.NoError(t, os.WriteFile(filepath.Join(partial, "bin", "spark.gz"), packed, 0o644))
		r := runScript(t, partial, reached, nil, path, "PYTHON=python", "STEPS=^machine|^bench policy fp16")
		require.Error(t, r.err)
		require.Equal(t, []string{"machine"}, r.statuses(t)["FAIL"])
		require.Contains(t, r.calls, " --machine-file "+r.out+"/machine.json --json ")
	})

	t.Run("without a GPU and its tools", func(t *testing.T) {
		plain := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(plain, "python"), []byte(standIn), 0o755))
		r := runScript(t, bundle, reached, nil, "PATH="+plain+":/usr/bin:/bin", "PYTHON=python", "NO_TORCH=1",
			"SPARK_DEVICE=emu")
		require.NoError(t, r.err, r.text)
		got := r.statuses(t)
		require.Equal(t, []string{"device", "peer policy fp16 graph", "peer dmonitoring fp16 graph",
			"peer vision fp16 eager,graph", "profile vision fp16", "sanitize racecheck policy fp16",
			"sanitize memcheck policy fp16", "peer policy fp16 compile", "peer dmonitoring fp16 compile",
			"peer vision fp16 compile"}, got["skip"])
		require.Len(t, got["ok"], len(quick)-10)
		require.NotContains(t, r.calls, "--machine-file", "the CPU device's constants predict nothing")
	})

	// Every program hangs: each step ends at its own limit, and the script at its own.
	const slack = 8 * time.Second
	t.Run("holds the limit of each step", func(t *testing.T) {
		r := runScript(t, bundle, reached, nil, path, "PYTHON=python", "HANG=.", "SCALE=0.004", "TOTAL_SECONDS=100000")
		require.Error(t, r.err)
		require.Equal(t, map[string][]string{"LIMIT": quick}, r.statuses(t))
		require.Less(t, r.took, time.Duration(limits)*4*time.Millisecond+slack)
	})
	t.Run("holds its own limit", func(t *testing.T) {
		r := runScript(t, bundle, reached, nil, path, "PYTHON=python", "HANG=.", "SCALE=0.004", "TOTAL_SECONDS=300")
		require.Error(t, r.err)
		got := r.statuses(t)
		require.Equal(t, quick, slices.Concat(got["LIMIT"], got["LATE"]))
		require.NotEmpty(t, got["LIMIT"]) // how many depends on how busy this host is
		require.NotEmpty(t, got["LATE"])
		require.Less(t, r.took, 1200*time.Millisecond+slack)
	})
	t.Run("ends a step at its own limit", func(t *testing.T) {
		r := runScript(t, bundle, reached, nil, path, "PYTHON=python", "HANG=--modes compile", "SCALE=0.1",
			"TOTAL_SECONDS=10", "STEPS=vision fp16 compile")
		require.Error(t, r.err)
		require.Equal(t, []string{"peer vision fp16 compile"}, r.statuses(t)["LIMIT"])
		require.Less(t, r.took, time.Second+slack, "the step's limit is 10 s, and the script's 1 s")
	})
	t.Run("kills what ignores the first signal", func(t *testing.T) {
		r := runScript(t, bundle, reached, nil, path, "PYTHON=python", "DEAF=ablate", "SCALE=0.02", "TOTAL_SECONDS=100000",
			"STEPS=policy fp16$")
		require.Error(t, r.err)
		got := r.statuses(t)
		require.Equal(t, []string{"ablate policy fp16"}, got["LIMIT"])
		require.NoFileExists(t, filepath.Join(filepath.Dir(r.out), "calls.over"), "it was not killed, but ended by itself")
		require.Contains(t, got["ok"], "sanitize memcheck policy fp16")
	})
	t.Run("leaves steps out on a slow machine", func(t *testing.T) {
		r := runScript(t, bundle, reached, nil, path, "PYTHON=python", "SLOW=0.2", "SCALE=0.02", "TOTAL_SECONDS=150")
		require.Error(t, r.err)
		got := r.statuses(t)
		require.Contains(t, got["ok"], "vectors")
		require.NotEmpty(t, got["LATE"])
		require.Equal(t, "peer vision fp16 compile", got["LATE"][len(got["LATE"])-1])
		require.Less(t, r.took, 3*time.Second+slack)
	})

	t.Run("keeps what was done before it is killed", func(t *testing.T) {
		dir := t.TempDir()
		out := filepath.Join(dir, "out")
		c := exec.Command("bash", filepath.Join(bundle, "run.sh"))
		c.Env = append(os.Environ(), path, "PYTHON=python", "OUT="+out, "CALLS="+filepath.Join(dir, "calls"), "HANG=--ablate")
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		require.NoError(t, c.Start())
		calls := ""
		require.Eventually(t, func() bool {
			raw, _ := os.ReadFile(filepath.Join(dir, "calls"))
			calls = string(raw)
			_, err := os.Stat(filepath.Join(dir, "calls.hung"))
			return strings.Contains(calls, "--ablate") && err == nil
		}, time.Minute, 20*time.Millisecond)
		require.NoError(t, syscall.Kill(-c.Process.Pid, syscall.SIGKILL))
		require.Error(t, c.Wait())
		hung, err := os.ReadFile(filepath.Join(dir, "calls.hung"))
		require.NoError(t, err)
		pid, err := strconv.Atoi(strings.TrimSpace(string(hung)))
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL), "a command has a process group of its own, by timeout")
		r := scriptRun{out: out}
		done := slices.Index(quick, "ablate vision fp16")
		require.Equal(t, map[string][]string{"ok": quick[:done]}, r.statuses(t))
		require.Contains(t, r.read(t, "bench.jsonl"), `{"step": "bench vision fp16", "report": {`)
		require.Contains(t, r.read(t, "reports.jsonl"), `{"step": "golden vision fp16: vision", "report": {`)
		require.NotEmpty(t, r.read(t, "gpu.npz"))
		require.NotEmpty(t, r.read(t, "machine.json"))
	})

	t.Run("files of results stay small", func(t *testing.T) {
		big, _ := fakeBundle(t)
		noisy := strings.Replace(standIn, "sleep \"${SLOW:-0}\"", "head -c 9000000 /dev/zero", 1)
		packed := []byte(zipped(t, []byte(noisy)))
		require.NoError(t, os.WriteFile(filepath.Join(big, "bin", "gputest.test.gz"), packed, 0o644))
		r := runScript(t, big, reached, nil, path, "PYTHON=python", "STEPS=vectors|compare")
		require.NoError(t, r.err, r.text)
		require.Less(t, len(r.read(t, "log.txt")), 16<<20)
	})

	t.Run("refuses a damaged bundle", func(t *testing.T) {
		for _, name := range []string{"bin/spark.gz", "policy.tar.gz"} {
			damaged, _ := fakeBundle(t)
			require.NoError(t, os.WriteFile(filepath.Join(damaged, name), []byte("no archive"), 0o644))
			r := runScript(t, damaged, reached, nil, path)
			require.Error(t, r.err)
			require.Contains(t, r.text, "cannot unpack")
		}
		r := runScript(t, bundle, reached, []string{"SLOWLY"}, path)
		require.Error(t, r.err)
		require.Contains(t, r.text, "usage: ")
	})

	require.Empty(t, notReached(t, filepath.Join(bundle, "run.sh"), reached))
}

// notReached are the script's lines that were not executed but could have been: not words of the shell alone, nor lines
// of a table.
func notReached(t *testing.T, script string, reached map[int]bool) (missing []string) {
	t.Helper()
	raw, err := os.ReadFile(script)
	require.NoError(t, err)
	words := regexp.MustCompile(`^(#.*|(if .*|\S+\(\) )?\{|\}.*|else|fi|done.*|esac|do|'|\S+\) ;;|0 \| 77\) ;;|\*\)|;;|)$`)
	table := regexp.MustCompile(`^((QUICK|FULL)='|\d+ [a-z].*)$`)
	continued := false // bash numbers a command by one of its lines
	for i, line := range strings.Split(string(raw), "\n") {
		line = strings.TrimSpace(line)
		here := reached[i+1] || continued
		continued = strings.HasSuffix(line, `\`) && here
		if !here && !words.MatchString(line) && !table.MatchString(line) {
			missing = append(missing, fmt.Sprintf("%d: %s", i+1, line))
		}
	}
	require.Greater(t, len(reached), 90)
	return missing
}

// TestSizes_CountTheCheckout: what git does not ignore travels along with the bundle, and counts.
func TestSizes_CountTheCheckout(t *testing.T) {
	script, err := filepath.Abs("sizes.sh")
	require.NoError(t, err)
	dir := t.TempDir()
	sizes := func(limit string) (string, error) {
		c := exec.Command(script, "bundle", limit)
		c.Dir = dir
		out, err := c.CombinedOutput()
		return string(out), err
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "bundle"), 0o755))
	for name, size := range map[string]int{"bundle/policy.tar.gz": 1 << 20, "untracked": 3 << 19, "ignored": 8 << 20} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), make([]byte, size), 0o644))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, ".gitignore"), []byte("bundle\nignored\n"), 0o644))
	text, err := sizes("3")
	require.NoError(t, err, text)
	require.Contains(t, text, "  0.00 MiB  checkout\n", "an archive of the sources")
	require.NoError(t, exec.Command("git", "-C", dir, "init", "-q").Run())
	text, err = sizes("3")
	require.NoError(t, err, text)
	require.Equal(t, "  1.50 MiB  checkout\n  1.00 MiB  policy.tar.gz\n  2.50 MiB  in all, of 3\n", text)
	text, err = sizes("2")
	require.Error(t, err)
	require.Contains(t, text, "too much travels")
}
