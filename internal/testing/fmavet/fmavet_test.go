package fmavet_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/tools/go/analysis/analysistest"

	"github.com/spark-compile/spark-compile/internal/testing/fmavet"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
)

func TestProductsAreFollowedToAdditions(t *testing.T) {
	analysistest.Run(t, analysistest.TestData(), fmavet.Analyzer, "a")
}

// whose are commands and packages whose numbers reach files, with all that they are made of.
var whose = []string{"./cmd/spark-compile", "./cmd/spark-run", "./cmd/spark-dora", "./internal/profile", "./testdata/gen/..."}

// shown are packages whose numbers are looked at: bounds of rounding decide what spark-run --trace prints, and openpilot's loop computes on the host what
// its own modeld does there with NumPy. Plots are drawn.
var shown = []string{"/internal/roundoff", "/runtime/modeld", "/internal/viewer", "/internal/report", "/internal/webpage"}

func isShown(path string) bool {
	return slices.ContainsFunc(shown, func(s string) bool { return strings.Contains(path+"/", s+"/") })
}

const module = "github.com/spark-compile/spark-compile"

// goCommand runs the go command at the module's root.
func goCommand(t *testing.T, env []string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	var out, errors bytes.Buffer
	c := exec.Command("go", args...)
	c.Dir, c.Stdout, c.Stderr, c.Env = "../../..", &out, &errors, append(os.Environ(), env...)
	err = c.Run()
	return out.String(), errors.String(), err
}

func TestNumbersThatReachFilesAreTheSameOnEveryMachine(t *testing.T) {
	fulltest.Long(t)
	list, stderr, err := goCommand(t, nil, append([]string{"list", "-deps"}, whose...)...)
	require.NoError(t, err, stderr)
	var packages []string
	for _, p := range strings.Fields(list) {
		if strings.HasPrefix(p, module+"/") && !isShown(p) {
			packages = append(packages, p)
		}
	}
	for _, must := range []string{"ir", "passes", "codegen/contraction", "codegen/loop", "codegen/window", "internal/calibrate", "internal/compile", "internal/cost", "internal/blas", "internal/minifloat", "internal/profile", "runtime", "testdata/gen/driving"} {
		require.Contains(t, packages, module+"/"+must)
	}
	dir := t.TempDir()
	if strings.Contains(dir, " ") { // the go command reads the tool's name up to a space
		dir, err = os.MkdirTemp("/tmp", "fmavet")
		require.NoError(t, err)
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
	}
	tool := filepath.Join(dir, "fmavet")
	_, stderr, err = goCommand(t, nil, "build", "-o", tool, "./internal/testing/fmavet/vet")
	require.NoError(t, err, stderr)
	_, stderr, err = goCommand(t, nil, append([]string{"vet", "-vettool=" + tool}, packages...)...)
	require.NoError(t, err, stderr)
}

// TestArm64HasNoFusedInstructions compiles the same packages for arm64 and reads the assembly: what the compiler fused counts,
// wherever the analyzer did not see it. math.FMA is asked for.
func TestArm64HasNoFusedInstructions(t *testing.T) {
	if !fulltest.Runs(t.Name()) {
		t.Skip("SPARK_FULL=1 compiles everything for arm64")
	}
	args := append([]string{"build", "-o", t.TempDir(), "-gcflags=" + module + "/...=-S"}, whose...)
	_, assembly, err := goCommand(t, []string{"GOARCH=arm64", "CGO_ENABLED=0"}, args...)
	require.NoError(t, err)
	require.Contains(t, assembly, "FMULD", "no assembly of arm64")
	fused := regexp.MustCompile(`\(([^() ]+\.go):(\d+)\)\s+FN?M(?:ADD|SUB)[DS]\s`)
	asked := 0
	for _, m := range fused.FindAllStringSubmatch(assembly, -1) {
		line := sourceLine(t, m[1], m[2])
		if isShown(m[1]) {
			continue
		}
		if strings.Contains(line, "math.FMA(") {
			asked++
			continue
		}
		t.Errorf("%s:%s: fused: %s", m[1], m[2], strings.TrimSpace(line))
	}
	require.NotZero(t, asked, "math.FMA is one instruction: if none is seen, nothing is")
}

func sourceLine(t *testing.T, file, line string) string {
	t.Helper()
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	n, err := strconv.Atoi(line)
	require.NoError(t, err)
	return strings.Split(string(raw), "\n")[n-1]
}
