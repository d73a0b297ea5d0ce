// Package onnxruntime runs ONNX files in ONNX Runtime, on the CPU, with a Python interpreter that has it.
package onnxruntime

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/toolchain"
)

//go:embed run.py
var script string

// Times are what ONNX Runtime took, in milliseconds.
type Times struct {
	Version string    `json:"version"`
	LoadMS  float64   `json:"load_ms"`
	FirstMS float64   `json:"first_ms"`
	Samples []float64 `json:"samples_ms"`
}

// Run runs an ONNX file in ONNX Runtime on inputs by name, converted to the types of the file: once, then warmup
// and runs times more. Without runs no time is measured. It returns the outputs of the first run, in float64.
func Run(ctx context.Context, python, model string, inputs map[string]*npy.Array,
	runs, warmup int) (*Times, map[string]*npy.Array, error) {
	dir, err := os.MkdirTemp("", "spark-onnxruntime")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(dir)
	in, out, file := filepath.Join(dir, "in.npz"), filepath.Join(dir, "out.npz"), filepath.Join(dir, "run.py")
	if err := npy.WriteZip(in, inputs); err != nil {
		return nil, nil, err
	}
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		return nil, nil, err
	}
	cmd := exec.CommandContext(ctx, python, file, model, in, out, strconv.Itoa(runs), strconv.Itoa(warmup))
	toolchain.OwnProcessGroup(cmd)
	cmd.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
		last := lines[len(lines)-1]
		if ctx.Err() != nil || last == "" {
			return nil, nil, fmt.Errorf("ONNX Runtime: %w: %s", err, last)
		}
		return nil, nil, errors.New(last)
	}
	var t Times
	if err := json.Unmarshal(stdout.Bytes(), &t); err != nil || len(t.Samples) != runs {
		return nil, nil, fmt.Errorf("ONNX Runtime printed %q", stdout.String())
	}
	theirs, err := npy.ReadZip(out)
	return &t, theirs, err
}
