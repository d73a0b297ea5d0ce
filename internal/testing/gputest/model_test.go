package gputest

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/runtime"
)

// Package is a compiled model with inputs and golden outputs.
type Package struct {
	Name    string // MODEL/PACKAGE
	Program *runtime.Program
	Golden  []string // .npz files that hold inputs and outputs by name, at least one
}

// FindPackages reads ROOT/MODEL/PACKAGE, with ROOT/MODEL/*.npz as golden outputs.
func FindPackages(root string) ([]*Package, error) {
	found, err := filepath.Glob(filepath.Join(root, "*", "*", runtime.ProgramFile))
	if err != nil {
		return nil, err
	}
	var all []*Package
	for _, path := range found {
		dir := filepath.Dir(path)
		p := &Package{Name: filepath.Base(filepath.Dir(dir)) + "/" + filepath.Base(dir)}
		if p.Program, err = runtime.Read(os.DirFS(dir)); err != nil {
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
		if p.Golden, err = filepath.Glob(filepath.Join(filepath.Dir(dir), "*.npz")); err != nil {
			return nil, err
		}
		if len(p.Golden) == 0 {
			return nil, fmt.Errorf("%s: no golden .npz beside it", dir)
		}
		all = append(all, p)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: no MODEL/PACKAGE/%s", root, runtime.ProgramFile)
	}
	return all, nil
}

// Bounds say how far an output may be from its reference; a zero bound is none.
type Bounds struct {
	MinCosine float64
	RelL2     float64
}

// bounds of models with known golden outputs, by file and precision. Other models have the bounds of their precision;
// quantised ones have none.
var bounds = map[string]Bounds{
	"dmonitoring_model.onnx fp32": {RelL2: 1e-5},
	"dmonitoring_model.onnx fp16": {MinCosine: 0.99999, RelL2: 2.5e-3},
	"driving_vision.onnx fp32":    {RelL2: 1e-5},
	"driving_vision.onnx fp16":    {MinCosine: 0.99998},
	"driving_policy.onnx fp32":    {RelL2: 1e-5},
	"driving_policy.onnx fp16":    {MinCosine: 0.999999},
}

// quantised reports whether a model computes on numbers of 8 bits or fewer. A sum in another order then changes codes, and
// later layers amplify the difference, so devices differ from each other as much as from the golden outputs. But a GPU should
// be no further from those than the CPU device.
func (p *Package) quantised() bool {
	return precision.Calibrates(p.Program.Precision)
}

// noFurther bounds a GPU's distance from golden outputs by the CPU device's: two draws of the same rounding noise differ
// by a tenth or so.
func noFurther(cpu runtime.Metrics) Bounds { return Bounds{RelL2: 1.25*cpu.RelL2 + 1e-3} }

// Bounds are those of the package's model and precision.
func (p *Package) Bounds() Bounds {
	if b, ok := bounds[p.Program.Model+" "+p.Program.Precision]; ok {
		return b
	}
	row, err := precision.Lookup(p.Program.Precision)
	if err != nil || row.Calibrates() {
		return Bounds{}
	}
	return Bounds{MinCosine: row.MinCosine, RelL2: row.RelL2}
}

// check returns an error if the metrics miss the bounds.
func (b Bounds) check(m runtime.Metrics) error {
	switch {
	case !(m.Cosine >= b.MinCosine):
		return fmt.Errorf("cosine %.9f, want %.9f", m.Cosine, b.MinCosine)
	case b.RelL2 > 0 && !(m.RelL2 <= b.RelL2):
		return fmt.Errorf("relative L2 %.3g, want at most %.3g", m.RelL2, b.RelL2)
	}
	return nil
}

// betweenDevices bounds the difference of two devices that run the same program by what each may be off. For a cosine c
// between vectors of equal length the relative L2 is √(2(1-c)).
func (b Bounds) betweenDevices() Bounds {
	if b.RelL2 == 0 {
		b.RelL2 = math.Sqrt(2 * (1 - b.MinCosine))
	}
	return b
}

// running is a package on a device.
type running struct {
	*runtime.Session
	program *runtime.Program
}

// start loads the variant for a target, or the device's own if target is empty.
func (p *Package) start(ctx context.Context, d hal.Device, target string) (*running, error) {
	s, err := runtime.Open(ctx, p.Program, d, runtime.ModelOptions{Target: target})
	if err != nil {
		return nil, err
	}
	return &running{s, p.Program}, nil
}

// fill sets every input and state from a golden file's arrays.
func (r *running) fill(arrays map[string]*npy.Array) error {
	for _, in := range r.program.Inputs {
		a := arrays[in.Name]
		if a == nil {
			return fmt.Errorf("no input %s", in.Name)
		}
		data, err := a.As(in.DType, in.Shape)
		if err != nil {
			return fmt.Errorf("input %s: %w", in.Name, err)
		}
		if err := r.Set(in.Name, data); err != nil {
			return err
		}
	}
	return nil
}

// outputs runs once on a golden file's inputs and returns the outputs' bytes by name.
func (r *running) outputs(ctx context.Context, arrays map[string]*npy.Array) (map[string][]byte, error) {
	if err := r.fill(arrays); err != nil {
		return nil, err
	}
	if err := r.Run(ctx); err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for _, port := range r.program.Outputs {
		out[port.Name] = append([]byte{}, r.Output(port.Name)...)
	}
	return out, nil
}
