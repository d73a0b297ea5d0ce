// Package examples_test runs the examples as a user would: it compiles small generated models with spark-compile, and builds the programs against what
// that writes.
package examples_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/openpilot"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// module is a copy of examples/go with the packages that its README has a user generate.
type module struct {
	t   *testing.T
	dir string
	env []string
}

func newModule(t *testing.T) *module {
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	m := &module{t, filepath.Join(t.TempDir(), "go"), append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-mod=readonly", "GOPROXY=off", "GOSUMDB=off", "SPARK_DEVICE=emu", "OPENPILOT_DGX_PRECISION=")}
	require.NoError(t, os.CopyFS(m.dir, os.DirFS("go")))
	for _, generated := range []string{"driving", "monitoring"} { // of who tried the examples here
		require.NoError(t, os.RemoveAll(filepath.Join(m.dir, generated)))
	}
	m.run("go", "mod", "edit", "-replace", "github.com/spark-compile/spark-compile="+root)
	spark := filepath.Join(t.TempDir(), "spark-compile")
	build := exec.Command("go", "build", "-o", spark, "./cmd/spark-compile")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	text, err := build.CombinedOutput()
	require.NoError(t, err, "%s", text)
	for file, model := range map[string]string{"driving_vision": "vision", "driving_policy": "policy", "dmonitoring_model": "dmonitoring_luma"} {
		made, err := driving.Made(model, driving.Tiny)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(m.dir, file+".onnx"), made.ONNX, 0o644))
	}
	m.run(spark, "driving_vision.onnx", "driving_policy.onnx", "-o", "driving", "--quiet")
	m.run(spark, "dmonitoring_model.onnx", "--modeld", "-o", "monitoring", "--quiet")
	return m
}

// run runs a command in the module and returns what it prints.
func (m *module) run(name string, args ...string) string {
	m.t.Helper()
	cmd := exec.CommandContext(m.t.Context(), name, args...)
	cmd.Dir, cmd.Env = m.dir, m.env
	out, err := cmd.CombinedOutput()
	require.NoError(m.t, err, "%s %s (where go.mod is not up to date: go mod tidy in examples/go, with both packages generated)\n%s", name, strings.Join(args, " "), out)
	return string(out)
}

// frames writes a drive of so many frames.
func (m *module) frames(name string, write func(dir string) error) string {
	m.t.Helper()
	dir := filepath.Join(m.dir, name)
	require.NoError(m.t, os.Mkdir(dir, 0o755))
	require.NoError(m.t, write(dir))
	return dir
}

func TestGoExamples(t *testing.T) {
	fulltest.Long(t)
	m := newModule(t)
	m.run("go", "vet", "./...")

	source, err := os.ReadFile("go/drive/main.go")
	require.NoError(t, err)
	require.LessOrEqual(t, strings.Count(string(source), "\n"), 40, "lines of the first example, which the README counts")
	lines := strings.Split(strings.TrimSpace(m.run("go", "run", "./drive")), "\n")
	require.Len(t, lines, 100)
	curvatures := map[string]bool{}
	for i, line := range lines {
		said := regexp.MustCompile(fmt.Sprintf(`^frame %2d: curvature +(-?\d\.\d{6}) 1/m, acceleration +-?\d+\.\d{3} m/s², \d+\.\d\d ms$`, i)).FindStringSubmatch(line)
		require.NotNil(t, said, line)
		curvatures[said[1]] = true
	}
	require.Greater(t, len(curvatures), 50, "commands change with what is seen, now and before")

	road, wide := openpilot.Cameras(8)
	for _, format := range []openpilot.Format{openpilot.NPZ, openpilot.PNG} {
		dir := m.frames(string(format), func(dir string) error { return openpilot.WriteDirectory(dir, format, road, wide, 4) })
		for _, missed := range []string{"000001.npz", "000001_road.png", "000001_wide.png"} {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, missed)))
		}
		require.Regexp(t, `(?s)^cpu .*\nframe 0: in 10 s at .*\nframe 2: 1 missed before it, so no model runs\nframe 3: in 10 s at -?\d+\.\d m, `,
			m.run("go", "run", "./replay", "driving", string(format)))
	}

	m.frames("driver", func(dir string) error { return openpilot.WriteDriver(dir, openpilot.NPZ, wide, 2) })
	require.Regexp(t, `^frame 0: face \d+ %, eyes \d+ % and \d+ %, pitch -?\d+\.\d\d, yaw -?\d+\.\d\d rad\nframe 1: `, m.run("go", "run", "./monitor", "driver"))
}
