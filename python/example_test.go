package python_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/testing/clibrary"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/testdata/gen/driving"
)

// TestTheExampleDrives runs examples/python/drive.py on ONNX files; its lines are those of examples/go/drive.
func TestTheExampleDrives(t *testing.T) {
	fulltest.Long(t)
	py := interpreter(t)
	library, _ := clibrary.Build(t)
	clibrary.Reads(t, "../examples/python", "sparkcompile")
	data := t.TempDir()
	args := []string{"../examples/python/drive.py"}
	for _, name := range []string{"vision", "policy"} {
		m, err := driving.Made(name, driving.Tiny)
		require.NoError(t, err)
		args = append(args, filepath.Join(data, name+".onnx"))
		require.NoError(t, os.WriteFile(args[len(args)-1], m.ONNX, 0o644))
	}
	cmd := exec.Command(py, args...)
	cmd.Env = environment(t, library, data)
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", text)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	require.Len(t, lines, 100, "%s", text)
	curvatures := map[string]bool{}
	for i, line := range lines {
		said := regexp.MustCompile(fmt.Sprintf(`^frame %2d: curvature +(-?\d\.\d{6}) 1/m, acceleration +-?\d+\.\d{3} m/s², \d+\.\d\d ms$`, i)).FindStringSubmatch(line)
		require.NotNil(t, said, line)
		curvatures[said[1]] = true
	}
	require.Greater(t, len(curvatures), 10, "the model sees the stripes move")
	source, err := os.ReadFile(args[0])
	require.NoError(t, err)
	require.LessOrEqual(t, strings.Count(string(source), "\n"), 40)
}
