// Package opt is spark opt, which runs passes on a model or on IR text and prints the IR after them.
//
//	spark opt model.onnx
//	spark opt model.onnx --passes none --full > model.ir
//	spark opt model.ir --passes fold,simplify,dce
package opt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/codegen/families"
	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal/config"
	"github.com/spark-compile/spark-compile/internal/cli"
	"github.com/spark-compile/spark-compile/internal/memory"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

// flags is the command line.
type flags struct {
	File      string     `arg:"" name:"file" help:"Model, or IR as this command and spark-compile --emit ir print it: a name that ends in .ir."`
	Passes    []string   `help:"Run these passes, in this order; none: print the IR as it was read. Default: the passes of the precision." placeholder:"LIST"`
	Precision string     `help:"${precisions} of those that need no calibration; default: OPENPILOT_DGX_PRECISION, else ${precision}." placeholder:"P"`
	Target    string     `help:"One of ${targets}." default:"${target}" placeholder:"T"`
	Shape     cli.Shapes `help:"Set an input's shape." placeholder:"input=1x3x48x192" mapsep:"none"`
	Batch     int        `help:"Set the leading dimension of every input of a model." placeholder:"N"`
	Full      bool       `help:"Print large constants in full, so that the text can be read again; else by their digests."`
}

// Summary is what the command does, in a sentence.
const Summary = "Run passes on a model or on IR, and print the IR after them."

// Main runs the command, under the name that was typed, and returns its exit code.
func Main(name string, args []string, stdout, stderr io.Writer) int {
	var f flags
	return cli.Main(&f, name, Summary, args, stdout, stderr, func(context.Context) error {
		g, err := f.read(func(text string) { fmt.Fprintf(stderr, "warning: %s\n", text) })
		if err != nil {
			return err
		}
		if err := f.apply(g); err != nil {
			return fmt.Errorf("%s: %w", f.File, err)
		}
		return g.Print(stdout, ir.PrintOptions{Full: f.Full})
	})
}

// read is the graph of the file, as it is there.
func (f *flags) read(warn func(string)) (*ir.Graph, error) {
	if strings.HasSuffix(f.File, ".ir") {
		if f.Batch != 0 || len(f.Shape) > 0 {
			return nil, fmt.Errorf("%s: IR has its shapes: leave --shape and --batch out", f.File)
		}
		text, err := memory.ReadFile(f.File)
		if err != nil {
			return nil, err
		}
		g, err := ir.Parse(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.File, err)
		}
		return g, nil
	}
	file, err := cli.ONNX(f.File)
	if err != nil {
		return nil, err
	}
	m, err := onnx.Load(file)
	if err != nil {
		return nil, err
	}
	if err := m.Validate(); err != nil {
		return nil, err
	}
	g, _, err := onnx.ImportBatch(m, onnx.ImportOptions{Shapes: f.Shape, Batch: f.Batch, Warn: warn})
	return g, err
}

// apply runs the passes.
func (f *flags) apply(g *ir.Graph) error {
	settings, err := config.Read(config.Flags{Precision: f.Precision}, nil)
	if err != nil {
		return err
	}
	t, err := target.Lookup(f.Target)
	if err != nil {
		return err
	}
	names := f.Passes
	switch {
	case len(names) == 1 && names[0] == "none":
		return nil
	case len(names) == 0:
		if precision.Calibrates(settings.Precision.Value) {
			return fmt.Errorf("--precision %s: its passes need what calibration finds: use spark compile --emit ir, or name passes with --passes", settings.Precision.Value)
		}
		if slices.ContainsFunc(g.Nodes, func(n *ir.Node) bool { return n.Region != nil }) {
			return errors.New("it has regions already, which the passes of a precision make: name those that are left with --passes, as in --passes assign-storage,reorder-for-locality,fuse-producers")
		}
		if names, err = passes.Pipeline(settings.Precision.Value); err != nil {
			return err
		}
	}
	kernels := families.New(new(kernel.Memo))
	pc := &passes.Context{Target: t, Precision: settings.Precision.Value}
	pc.Benefit = func(n *ir.Node) float64 { return kernels.Benefit(n, t) }
	return passes.Run(pc, g, names, nil)
}
