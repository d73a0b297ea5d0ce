package bench

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
	"github.com/spark-compile/spark-compile/internal/report"
	"github.com/spark-compile/spark-compile/internal/toolchain"
	"github.com/spark-compile/spark-compile/runtime"
)

//go:embed onnxruntime.py
var onnxRuntimeScript string

// Peer is the same model in ONNX Runtime, on the CPU.
type Peer struct {
	Version string    `json:"version"`
	LoadMS  float64   `json:"load_ms"`
	FirstMS float64   `json:"first_ms"`
	Samples []float64 `json:"samples_ms"`
	report.Summary
	// Ratio is the peer's median divided by ours: above 1 means that ours is faster.
	Ratio   float64         `json:"ratio"`
	Outputs []report.Output `json:"outputs,omitempty"` // ours against the peer's
}

// ONNXRuntime runs an ONNX file in ONNX Runtime with a Python interpreter, on the inputs that Inputs generates for its
// program. It also returns the outputs by name.
func ONNXRuntime(ctx context.Context, python, model string, p *runtime.Program,
	opt Options) (*Peer, map[string][]float64, error) {
	data, err := Inputs(p)
	if err != nil {
		return nil, nil, err
	}
	arrays := map[string]*npy.Array{}
	for _, q := range p.Inputs {
		arrays[q.Name] = &npy.Array{DType: q.DType, Shape: q.Shape, Data: data[q.Name]}
	}
	r, theirs, err := RunONNXRuntime(ctx, python, model, arrays, opt.Runs, opt.Warmup)
	if err != nil {
		return nil, nil, err
	}
	want := map[string][]float64{}
	for name, a := range theirs {
		if want[name], err = a.Float64s(); err != nil {
			return nil, nil, err
		}
	}
	return r, want, nil
}

// RunONNXRuntime runs an ONNX file in ONNX Runtime on inputs by name, converted to the types of the file: once, then warmup
// and runs times more. Without runs no time is measured. It returns the outputs of the first run, in float64.
func RunONNXRuntime(ctx context.Context, python, model string, inputs map[string]*npy.Array,
	runs, warmup int) (*Peer, map[string]*npy.Array, error) {
	dir, err := os.MkdirTemp("", "spark-onnxruntime")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(dir)
	in, out, script := filepath.Join(dir, "in.npz"), filepath.Join(dir, "out.npz"), filepath.Join(dir, "run.py")
	if err := npy.WriteZip(in, inputs); err != nil {
		return nil, nil, err
	}
	if err := os.WriteFile(script, []byte(onnxRuntimeScript), 0o600); err != nil {
		return nil, nil, err
	}
	cmd := exec.CommandContext(ctx, python, script, model, in, out, strconv.Itoa(runs), strconv.Itoa(warmup))
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
	var r Peer
	if err := json.Unmarshal(stdout.Bytes(), &r); err != nil || len(r.Samples) != runs {
		return nil, nil, fmt.Errorf("ONNX Runtime printed %q", stdout.String())
	}
	if runs > 0 {
		r.Summary = report.Summarise(r.Samples)
	}
	theirs, err := npy.ReadZip(out)
	return &r, theirs, err
}
