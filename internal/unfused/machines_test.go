package unfused_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// machines are processors to compile for, and what runs their programs on this one.
var machines = []struct {
	name string
	env  []string
	run  string // "" runs them itself
}{
	{"amd64 v1", []string{"GOARCH=amd64", "GOAMD64=v1"}, ""},
	{"amd64 v3, which fuses", []string{"GOARCH=amd64", "GOAMD64=v3"}, ""},
	{"arm64, which fuses", []string{"GOARCH=arm64"}, "qemu-aarch64"},
}

// TestPackagesAreTheSameOnEveryMachine compiles a model in fp8, calibrated on generated inputs, by compilers built for several
// machines: the package has the same bytes.
func TestPackagesAreTheSameOnEveryMachine(t *testing.T) {
	if os.Getenv("SPARK_FULL") == "" {
		t.Skip("SPARK_FULL=1 builds compilers for other machines")
	}
	models := t.TempDir()
	_, stderr, err := goCommand(t, nil, "run", "./testdata/gen", "-o", models, "-model", "dmonitoring")
	require.NoError(t, err, stderr)
	var first map[string]string
	for _, m := range machines {
		t.Run(m.name, func(t *testing.T) {
			bin, out := filepath.Join(t.TempDir(), "spark-compile"), filepath.Join(t.TempDir(), "dmonitoring")
			command := []string{bin, filepath.Join(models, "dmonitoring.onnx"), "--precision", "fp8", "--min-cosine", "0", "--quiet", "-o", out}
			if m.run != "" {
				if _, err := exec.LookPath(m.run); err != nil {
					t.Skipf("no %s on this machine: Debian has it in qemu-user", m.run)
				}
				command = append([]string{m.run}, command...)
			}
			_, stderr, err := goCommand(t, append(m.env, "CGO_ENABLED=0"), "build", "-o", bin, "./cmd/spark-compile")
			require.NoError(t, err, stderr)
			log, err := exec.Command(command[0], command[1:]...).CombinedOutput()
			require.NoError(t, err, "%s", log)
			files := contents(t, out)
			if first == nil {
				first = files
			}
			require.Contains(t, files, "weights.bin")
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
