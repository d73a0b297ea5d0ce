package teacher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

func (opt *Options) defaults() {
	if opt.Precision == "" {
		opt.Precision = precision.Default
	}
	if opt.Batch == 0 {
		opt.Batch = 8
	}
	if len(opt.Targets) == 0 {
		opt.Targets = []string{target.Default().Name}
	}
	if opt.CacheBytes == 0 {
		opt.CacheBytes = 4 << 30
	}
	if opt.Warn == nil {
		opt.Warn = func(string) {}
	}
}

// compiled is the program for a batch, which gives inner values as outputs too. Its outputs are f32, but for those of the precision
// file, which are the file's.
func compiled(ctx context.Context, file *onnx.Model, opt *Options) (_ *compile.Result, err error) {
	if opt.Batch < 1 {
		return nil, fmt.Errorf("a batch of %d samples: give 1 or more", opt.Batch)
	}
	imports := opt.Import
	if imports.Batch = opt.Batch; opt.Batch == 1 {
		imports.Batch = 0 // shapes are the file's
	}
	g, sample, err := onnx.ImportBatch(file, imports)
	if err != nil {
		return nil, err
	}
	of := g
	if sample != nil {
		of = sample
	}
	if err := give(of, opt); err != nil {
		return nil, fmt.Errorf("%s: %w", file.Path, err)
	}
	if sample != nil {
		if g, err = sample.Batch(opt.Batch); err != nil {
			return nil, fmt.Errorf("%s: %w", file.Path, err)
		}
	}
	to := compile.Options{Import: imports, Sample: sample, Precision: opt.Precision, Targets: opt.Targets, F32Outputs: opt.Precision != precision.File, Warn: opt.Warn}
	if precision.Calibrates(opt.Precision) {
		var given *float64
		if opt.MinCosine != 0 {
			given = &opt.MinCosine
		}
		to.MinCosine = max(0, compile.Budget(opt.Precision, given))
		if to.Slices, err = compile.Slices(file, g, imports.Batch); err != nil {
			return nil, err
		}
	}
	if len(opt.Calibrate) > 0 && precision.Calibrates(opt.Precision) {
		dir, err := os.MkdirTemp("", "spark-teacher-")
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		if err := writeCalibration(dir, g, opt); err != nil {
			return nil, fmt.Errorf("%s: calibration: %w", file.Path, err)
		}
		to.Calibrate = []string{dir}
	}
	return compile.Graph(ctx, file.Path, g, to)
}

// give adds inner values to a graph's outputs. Names that the file does not have may be those of the graph in f32, which adapters are made for.
func give(g *ir.Graph, opt *Options) error {
	named := func(name string) bool {
		return computed(g, name) != nil || slices.ContainsFunc(g.Outputs, func(v *ir.Value) bool { return v.Name == name })
	}
	if opt.Precision != precision.File && slices.ContainsFunc(opt.Values, func(name string) bool { return !named(name) }) {
		pc := &passes.Context{Precision: precision.FP32}
		pc.F32Outputs = true
		if err := passes.Run(pc, g, []string{"promote-f32", "simplify"}, nil); err != nil {
			return err
		}
	}
	for _, name := range opt.Values {
		if slices.ContainsFunc(g.Outputs, func(v *ir.Value) bool { return v.Name == name }) {
			continue
		}
		v := computed(g, name)
		if v == nil {
			return fmt.Errorf("it computes no value %q", name)
		}
		if !v.Type.DType.IsFloat() {
			return fmt.Errorf("the value %q is %v: only floats are compared", name, v.Type)
		}
		g.Outputs = append(g.Outputs, v)
	}
	return nil
}

// computed is the value of a name that a node computes, or nil.
func computed(g *ir.Graph, name string) *ir.Value {
	for _, n := range g.Nodes {
		for _, v := range n.Outputs {
			if v.Name == name {
				return v
			}
		}
	}
	return nil
}

// writeCalibration writes inputs for the compiler, a file for each batch. The last batch is filled up with the first samples.
func writeCalibration(dir string, g *ir.Graph, opt *Options) error {
	for at, k := 0, 0; at < len(opt.Calibrate); at, k = at+opt.Batch, k+1 {
		arrays := map[string]*npy.Array{}
		for _, v := range g.Inputs {
			a := &npy.Array{DType: v.Type.DType.String(), Shape: v.Type.Shape}
			for i := range opt.Batch {
				a.Data = append(a.Data, opt.Calibrate[(at+i)%len(opt.Calibrate)][v.Name]...)
			}
			if len(a.Data) != v.Type.Bytes() {
				return fmt.Errorf("input %q has %d bytes for %d samples, want %d", v.Name, len(a.Data), opt.Batch, v.Type.Bytes())
			}
			arrays[v.Name] = a
		}
		if err := npy.WriteZip(filepath.Join(dir, fmt.Sprintf("%06d.npz", k)), arrays); err != nil {
			return err
		}
	}
	return nil
}
