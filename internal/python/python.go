// Package python finds the Python interpreter in which comparisons run: $SPARK_PYTHON, else .venv/bin/python in the
// current directory or above it.
package python

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// ErrNotFound says that there is no interpreter.
var ErrNotFound = errors.New("no Python for comparisons: set SPARK_PYTHON, or run make tools")

// Find finds the interpreter.
func Find() (string, error) {
	if p := os.Getenv("SPARK_PYTHON"); p != "" {
		found, err := exec.LookPath(p)
		if err != nil {
			return "", fmt.Errorf("SPARK_PYTHON: %w", err)
		}
		return found, nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", ErrNotFound
	}
	for {
		if p, err := exec.LookPath(filepath.Join(dir, ".venv", "bin", "python")); err == nil {
			return p, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", ErrNotFound
		}
		dir = up
	}
}

// Version is the version of a Python package, or an error that says why it cannot be imported.
func Version(ctx context.Context, python, pkg string) (string, error) {
	ctx, stop := context.WithTimeout(ctx, time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, python, "-c", "import "+pkg+"; print("+pkg+".__version__)")
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	last := lines[len(lines)-1]
	if err != nil {
		return "", fmt.Errorf("%s: import %s: %w: %s", python, pkg, err, last)
	}
	return last, nil
}
