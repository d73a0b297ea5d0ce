package fmavet_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/stretchr/testify/require"
)

// machines are processors to compile for, and what runs their programs on this one. Under qemu they are static, for want of
// the other machine's glibc.
var machines = []machine{
	{"amd64 v1", []string{"GOARCH=amd64", "GOAMD64=v1"}, "", ""},
	{"amd64 v3, which fuses", []string{"GOARCH=amd64", "GOAMD64=v3"}, "", ""},
	{"arm64, which fuses", []string{"GOARCH=arm64"}, "nodriver", "qemu-aarch64"},
}

type machine struct {
	name string
	env  []string
	tags string
	run  string // "" runs them itself
}

// build builds spark for the machine and returns what runs it.
func (m *machine) build(t *testing.T) (run func(args ...string)) {
	t.Helper()
	if _, err := exec.LookPath(m.run); m.run != "" && err != nil {
		t.Skipf("no %s on this machine: Debian has it in qemu-user", m.run)
	}
	bin := filepath.Join(t.TempDir(), "spark")
	_, stderr, err := goCommand(t, append(m.env, "CGO_ENABLED=0"), "build", "-tags", m.tags, "-o", bin, "./cmd/spark")
	require.NoError(t, err, stderr)
	return func(args ...string) {
		t.Helper()
		command := append([]string{bin}, args...)
		if m.run != "" {
			command = append([]string{m.run}, command...)
		}
		log, err := exec.Command(command[0], command[1:]...).CombinedOutput()
		require.NoError(t, err, "%s", log)
	}
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
			run := m.build(t)
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

// TestPackages_ComputeTheSameOnEveryMachine runs packages of all small models in all precisions on the CPU device of several
// machines: outputs have the same bytes.
func TestPackages_ComputeTheSameOnEveryMachine(t *testing.T) {
	if !fulltest.All() {
		t.Skip("SPARK_FULL=1 builds commands for other machines")
	}
	models := t.TempDir()
	_, stderr, err := goCommand(t, nil, "run", "./testdata/gen", "-o", models, "-model", "all", "-inputs", "5")
	require.NoError(t, err, stderr)
	names := []string{"vision", "policy", "dmonitoring", "supercombo"}
	precisions := []string{"fp32", "fp16", "bf16", "fp8", "fp6", "nvfp4"}
	first := map[string]string{}
	for i, m := range machines {
		t.Run(m.name, func(t *testing.T) {
			run, outputs := m.build(t), t.TempDir()
			for _, name := range names {
				for _, precision := range precisions {
					key := name + "_" + precision
					made := filepath.Join(models, key)
					if i == 0 {
						command := []string{"compile", filepath.Join(models, name+".onnx"), "--precision", precision, "--quiet", "-o", made}
						if !slices.Contains(precisions[:3], precision) {
							command = append(command, "--min-cosine", "0")
							for k := 1; k < 5; k++ {
								command = append(command, "--calibrate", filepath.Join(models, fmt.Sprintf("%s_%d.npz", name, k)))
							}
						}
						run(command...)
					}
					run("run", made, "--device", "emu", "--input", filepath.Join(models, name+".npz"), "--output-dir", filepath.Join(outputs, key))
				}
			}
			files := contents(t, outputs)
			require.GreaterOrEqual(t, len(files), len(names)*len(precisions))
			if i == 0 {
				first = files
			}
			require.Len(t, files, len(first))
			for name, text := range first {
				require.True(t, text == files[name], "%s differs from that of %s", name, machines[0].name)
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
