package tinyphysics

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

// Options say how a step is compiled.
type Options struct {
	Batch     int      // drives that a step computes at a time; 0: 64
	Precision string   // of the network: fp32 (also ""), fp16, bf16, or one that is calibrated; the loop around it is f64 in each
	Targets   []string // of PTX; none: the default target

	// Of precisions that are calibrated.
	Calibrate []string // .npz files and directories of them, as Record writes them
	MinCosine float64  // accuracy budget of the logits; 0: every layer is quantised
	Warn      func(string)
}

// defaultBatch is Options.Batch where none is given.
const defaultBatch = 64

// Compile makes a program of a network: an entry, run, that is one row of a batch of drives. Errors name the file and
// what of the network's contract is missing.
func Compile(ctx context.Context, m *onnx.Model, opt Options) (*compile.Result, error) {
	if opt.Batch == 0 {
		opt.Batch = defaultBatch
	}
	if opt.Batch < 0 {
		return nil, fmt.Errorf("%s: a batch of %d drives: give 1 or more", m.Path, opt.Batch)
	}
	if opt.Precision == "" {
		opt.Precision = precision.FP32
	}
	if len(opt.Targets) == 0 {
		opt.Targets = []string{target.Default().Name}
	}
	if precision.Calibrates(opt.Precision) && len(opt.Calibrate) == 0 {
		return nil, fmt.Errorf("%s: precision %s is calibrated on what the network sees: give drives that Record wrote", m.Path,
			opt.Precision)
	}
	network, err := load(m, opt.Batch)
	if err != nil {
		return nil, err
	}
	entry := compile.Entry{Name: "run"}
	s := &step{batch: opt.Batch, entry: &entry}
	if err := s.part("control", s.control); err != nil {
		return nil, err
	}
	entry.Parts = append(entry.Parts, compile.Part{Graph: network, Precision: opt.Precision,
		Calibrate: opt.Calibrate, MinCosine: opt.MinCosine})
	if err := s.part("respond", s.respond); err != nil {
		return nil, err
	}
	return compile.Entries(ctx, m.Path, []compile.Entry{entry},
		compile.Options{Precision: opt.Precision, Targets: opt.Targets, Warn: opt.Warn})
}

// load imports a network for a batch of drives, whose only output becomes the logits of the last position.
func load(m *onnx.Model, batch int) (*ir.Graph, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	if err := contract(m); err != nil {
		return nil, err
	}
	g, err := onnx.Import(m, onnx.ImportOptions{Batch: batch})
	if err != nil {
		return nil, err
	}
	ports := slices.Concat(g.Inputs, g.Outputs)
	for _, want := range []ir.Value{
		{Name: networkStates, Type: ir.T(ir.Float32, batch, window, features)},
		{Name: networkTokens, Type: ir.T(ir.Int64, batch, window)},
		{Name: networkOutput, Type: ir.T(ir.Float32, batch, window, vocabulary)},
	} {
		i := slices.IndexFunc(ports, func(v *ir.Value) bool { return v.Name == want.Name })
		if !ports[i].Type.Equal(want.Type) {
			return nil, mismatch(m, "%s is %v and must be %v for %d drives", want.Name, ports[i].Type, want.Type, batch)
		}
	}
	g.Outputs = slices.DeleteFunc(g.Outputs, func(v *ir.Value) bool { return v.Name != networkOutput })
	g.RemoveDead()
	if err := lastPosition(g); err != nil {
		return nil, fmt.Errorf("%s: %w", m.Path, err)
	}
	return g, g.Verify()
}

// contract is an error unless a file's inputs and outputs have the names of the network's.
func contract(m *onnx.Model) error {
	inputs, outputs := m.Ports()
	var missing []string
	for _, name := range []string{networkStates, networkTokens} {
		if !slices.Contains(inputs, name) {
			missing = append(missing, "input "+name)
		}
	}
	if !slices.Contains(outputs, networkOutput) {
		missing = append(missing, "output "+networkOutput)
	}
	if len(missing) > 0 {
		return mismatch(m, "%s missing: its inputs are %s, its outputs %s", strings.Join(missing, " and "),
			strings.Join(inputs, ", "), strings.Join(outputs, ", "))
	}
	if i := slices.IndexFunc(inputs, func(n string) bool { return n != networkStates && n != networkTokens }); i >= 0 {
		return mismatch(m, "input %s has nothing that feeds it: a lateral-dynamics network has %s and %s alone", inputs[i],
			networkStates, networkTokens)
	}
	return nil
}

func mismatch(m *onnx.Model, format string, args ...any) error {
	return &onnx.Error{File: m.Path, Reason: "not a lateral-dynamics network: " + fmt.Sprintf(format, args...),
		Remedy: "give the controls challenge's tinyphysics.onnx or a network of the same inputs and outputs"}
}
