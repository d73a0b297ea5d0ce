package fmavet_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/stretchr/testify/require"
)

// machines are processors to compile for, and what runs their programs on this one. Under qemu they are static, for want of
// the other machine's glibc.
var machines = []struct {
	name string
	env  []string
	tags string
	run  string // "" runs them itself
}{
	{"amd64 v1", []string{"GOARCH=amd64", "GOAMD64=v1"}, "", ""},
	{"amd64 v3, which fuses", []string{"GOARCH=amd64", "GOAMD64=v3"}, "", ""},
	{"arm64, which fuses", []string{"GOARCH=arm64"}, "nodriver", "qemu-aarch64"},
}

// asked are compiles whose bytes depend on the most arithmetic: fitted to inputs that the compiler generates, and to given
// ones with a search of the budget.
var asked = []struct {
	model, precision string
	given            bool
	flags            []string
}{
	{"dmonitoring", "fp8", true, []string{"--min-cosine", "0"}},
	{"policy", "nvfp4", true, []string{"--min-cosine", "0.99", "--prefer", "size"}},
	{"policy", "fp8", false, []string{"--min-cosine", "0"}},
}

// TestPackagesAreTheSameOnEveryMachine compiles models in low precisions by compilers built for several machines: the packages
// have the same bytes, and compute the same on the CPU device there.
func TestPackagesAreTheSameOnEveryMachine(t *testing.T) {
	if !fulltest.All() {
		t.Skip("SPARK_FULL=1 builds compilers for other machines")
	}
	models := t.TempDir()
	_, stderr, err := goCommand(t, nil, "run", "./testdata/gen", "-o", models, "-model", "all", "-inputs", "5")
	require.NoError(t, err, stderr)
	first := map[int]map[string]string{}
	for _, m := range machines {
		t.Run(m.name, func(t *testing.T) {
			if _, err := exec.LookPath(m.run); m.run != "" && err != nil {
				t.Skipf("no %s on this machine: Debian has it in qemu-user", m.run)
			}
			bin := filepath.Join(t.TempDir(), "spark")
			_, stderr, err := goCommand(t, append(m.env, "CGO_ENABLED=0"), "build", "-tags", m.tags, "-o", bin, "./cmd/spark")
			require.NoError(t, err, stderr)
			run := func(args ...string) {
				t.Helper()
				command := append([]string{bin}, args...)
				if m.run != "" {
					command = append([]string{m.run}, command...)
				}
				log, err := exec.Command(command[0], command[1:]...).CombinedOutput()
				require.NoError(t, err, "%s", log)
			}
			for k, a := range asked {
				out := filepath.Join(t.TempDir(), a.model)
				command := append([]string{"compile", filepath.Join(models, a.model+".onnx"), "--precision", a.precision, "--quiet", "-o", out}, a.flags...)
				if a.given {
					for i := 1; i < 5; i++ {
						command = append(command, "--calibrate", filepath.Join(models, fmt.Sprintf("%s_%d.npz", a.model, i)))
					}
				}
				run(command...)
				run("run", out, "--device", "emu", "--input", filepath.Join(models, a.model+".npz"), "--output-dir", filepath.Join(out, "outputs"))
				files := contents(t, out)
				if first[k] == nil {
					first[k] = files
				}
				require.Contains(t, files, "weights.bin")
				require.Contains(t, files, "outputs/outputs.npy")
				require.Len(t, files, len(first[k]))
				for name, text := range first[k] {
					require.True(t, text == files[name], "%s in %s: %s differs from that of %s", a.model, a.precision, name, machines[0].name)
				}
			}
		})
	}
}

// contents are the files of a directory by path.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		out[name] = string(raw)
		return err
	}))
	return out
}
