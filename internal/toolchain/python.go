// Package toolchain finds and runs external programs. Python: $SPARK_PYTHON, else .venv/bin/python in the current directory or above it, else
// python3 or python on the PATH. ptxas, NVIDIA's assembler, where it is installed: it assembles the cubin stored with the PTX and checks every
// emitted kernel; results are cached by content.
package toolchain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// ErrNoPython reports that there is no interpreter.
var ErrNoPython = errors.New("no Python for comparisons: set SPARK_PYTHON, or have python3 on the PATH")

// FindPython finds the interpreter.
func FindPython() (string, error) {
	if p := os.Getenv("SPARK_PYTHON"); p != "" {
		found, err := exec.LookPath(p)
		if err != nil {
			return "", fmt.Errorf("SPARK_PYTHON: %w", err)
		}
		return found, nil
	}
	for _, name := range []string{FindAbove(filepath.Join(".venv", "bin", "python")), "python3", "python"} {
		if p, err := exec.LookPath(name); err == nil {
			return p, nil
		}
	}
	return "", ErrNoPython
}

// FindAbove returns the first match of a pattern in the current directory, or else in the nearest directory above it that has
// one; "" if none has.
func FindAbove(pattern string) string {
	dir, err := os.Getwd()
	for err == nil {
		if found, _ := filepath.Glob(filepath.Join(dir, pattern)); len(found) > 0 {
			return found[0]
		}
		if dir == filepath.Dir(dir) {
			break
		}
		dir = filepath.Dir(dir)
	}
	return ""
}

// PythonPackageVersion returns the version of a Python package, or why it cannot be imported.
func PythonPackageVersion(ctx context.Context, python, pkg string) (string, error) {
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, python, "-c", "import "+pkg+"; print("+pkg+".__version__)")
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	last := lines[len(lines)-1]
	if err != nil {
		return "", fmt.Errorf("%s: import %s: %s", python, pkg, cmp.Or(last, err.Error()))
	}
	return last, nil
}
