package run

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/hal"
	"github.com/spark-compile/spark-compile/internal/cli"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/console"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/internal/trace"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

const errBad = cli.Failure("a layer computes what rounding does not explain")

// checkTrace rejects what does not go together.
func (f *flags) checkTrace() error {
	switch {
	case len(f.Trace) == 0 && f.Compare == "" && !f.Profile && f.ONNX != "":
		return errors.New("--onnx names the file of a package for --trace, --compare or --profile")
	case len(f.Trace) == 0:
		return nil
	case f.ONNX == "" && isDir(f.Model):
		return errors.New("--trace on a package compares it with the file that it was compiled from: name that with --onnx FILE.onnx")
	case len(f.Suite) > 0 || f.Profile || f.Runs > 1:
		return errors.New("--trace compares one run of one model: leave out --suite, --profile and --runs")
	}
	return nil
}

// trace runs the case again with copies between the launches, and compares every region. plain has run it without.
func (f *flags) trace(ctx context.Context, stderr io.Writer, p *runtime.Program, plain *runtime.Session, d hal.Device, c *testCase) (*trace.Trace, error) {
	tell, clear := cli.Progress(stderr, false)
	defer clear()
	inputs, err := given64(p, c.arrays)
	if err != nil {
		return nil, err
	}
	v := plain.Model().Variant
	t, err := trace.New(ctx, p, v, f.made, inputs, f.Trace, d.Info().Backend != "emu", console.New(tell))
	if err != nil {
		return nil, err
	}
	s, err := runtime.Open(ctx, t.Program, d, runtime.ModelOptions{Target: v.Target})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	if err := fill(p, s, c.arrays); err != nil {
		return nil, err
	}
	if err := s.Run(ctx); err != nil {
		return nil, err
	}
	out, err := t.Compare(ctx, s)
	if err != nil {
		return nil, err
	}
	out.SameBits = true
	for _, q := range p.Outputs {
		out.SameBits = out.SameBits && bytes.Equal(plain.Output(q.Name), s.Output(q.Name))
	}
	return out, nil
}

// given64 are the inputs of a run that fill has accepted, for the evaluator. A state that is not given is zero.
func given64(p *runtime.Program, arrays map[string]given) (map[string]*ir.Array, error) {
	out := map[string]*ir.Array{}
	for _, q := range p.Inputs {
		dtype, err := ir.ParseDType(q.DType)
		if err != nil {
			return nil, err
		}
		t := ir.T(dtype, q.Shape...)
		data := make([]byte, t.Bytes())
		if a := arrays[q.Name]; a.Array != nil {
			if data, err = a.As(q.DType, q.Shape); err != nil {
				return nil, fmt.Errorf("input %q: %w", q.Name, err)
			}
		}
		x, err := ir.NewTensor(t, data)
		if err != nil {
			return nil, fmt.Errorf("input %q: %w", q.Name, err)
		}
		out[q.Name] = x.Array()
	}
	return out, nil
}

// origin sets the compilation that a program to trace, or whose profile is to name the file's nodes, comes from: of a
// package, it compiles the file of --onnx again.
func (f *flags) origin(ctx context.Context, p *runtime.Program, stderr io.Writer, cases []testCase) error {
	switch {
	case len(f.Trace) == 0 && (!f.Profile || f.ONNX == ""):
		return nil
	case len(f.Trace) > 0 && len(cases) > 1:
		return errors.New("--trace compares one run: give the inputs of one")
	case f.made != nil:
		return nil
	}
	m, err := f.file(p)
	if err != nil {
		return err
	}
	opt, err := f.again(p, m)
	if err != nil {
		return fmt.Errorf("%s: the flags that it was compiled with, %q: %w", f.Model, p.Provenance.Flags, err)
	}
	tell, clear := cli.Progress(stderr, false)
	defer clear()
	opt.Progress = tell
	if f.made, err = compile.Compile(ctx, m, opt); err != nil {
		return err
	}
	clear()
	return f.same(p, f.made, stderr)
}

// file reads the file of --onnx, which must be the one that a package was compiled from.
func (f *flags) file(p *runtime.Program) (*onnx.Model, error) {
	m, err := onnx.Load(f.ONNX)
	if err != nil {
		return nil, err
	}
	digest, err := m.Digest()
	if err != nil {
		return nil, err
	}
	if from := p.Provenance.SHA256; digest != from {
		return nil, fmt.Errorf("--onnx %s: %s was compiled from another file: its SHA-256 is %s, and this file's %s",
			f.ONNX, f.Model, cmp.Or(from, "not recorded"), digest)
	}
	return m, nil
}

// again are the options by which a package was compiled, as far as it records them.
func (f *flags) again(p *runtime.Program, m *onnx.Model) (opt compile.Options, err error) {
	var given struct {
		Precision string
		Target    []string
		MinCosine *float64
		Prefer    string
		Keep      []string
		Shape     cli.Shapes `mapsep:"none"`
		Batch     int
		Input     cli.Values `mapsep:"none"`
		MaxOutput cli.Bounds `mapsep:"none"`
		Passes    []string
		Cubin     bool
	}
	var args []string
	for _, flag := range p.Provenance.Flags {
		name, value, ok := strings.Cut(flag, " ")
		if args = append(args, name); ok {
			args = append(args, value)
		}
	}
	k, err := kong.New(&given)
	if err == nil {
		_, err = k.Parse(args)
	}
	if err != nil {
		return opt, err
	}
	opt = compile.Options{Precision: p.Precision, Trace: true, Passes: given.Passes, Keep: given.Keep, Smaller: given.Prefer == "size",
		Calibrate: f.Calibrate, Validate: f.Validate, CalibrationCache: f.Findings}
	for _, v := range p.Variants {
		opt.Targets = append(opt.Targets, v.Target)
	}
	if precision.Calibrates(p.Precision) {
		opt.MinCosine = compile.Budget(p.Precision, given.MinCosine)
	}
	opt.Import.Shapes, opt.Import.Batch, opt.Import.MaxOutput = given.Shape, given.Batch, given.MaxOutput
	for name, value := range given.Input {
		if strings.HasPrefix(value, "sha256:") {
			return opt, fmt.Errorf("input %q was fixed to the values of a file, which are not recorded: trace the ONNX file itself", name)
		}
	}
	opt.Import.Constants, err = compile.InputValues(m, given.Input, given.Shape)
	return opt, err
}

// same refuses to trace a package by the compilation of another program. Constants and code may differ: that is what tracing
// is to find.
func (f *flags) same(p *runtime.Program, r *compile.Result, stderr io.Writer) error {
	if was, is := p.Provenance.Calibration, r.Provenance().Calibration; !reflect.DeepEqual(was, is) {
		return fmt.Errorf("%s was calibrated on %s, and this compilation on %s: give the same inputs with --calibrate", f.Model, described(was), described(is))
	}
	for i := range p.Variants {
		v, w := &p.Variants[i], &r.Program.Variants[i]
		if !reflect.DeepEqual(plain(v.Buffers), plain(w.Buffers)) || !reflect.DeepEqual(plain(v.Entries), plain(w.Entries)) {
			return fmt.Errorf("%s for %s has other launches than what this compiler, %s, makes of %s with the same flags; it was compiled by %s: trace with that version, or compile again", f.Model, v.Target, cli.Version(), f.ONNX, cmp.Or(p.Provenance.Compiler, "an unknown version"))
		}
		if v.PTX != w.PTX {
			fmt.Fprintf(stderr, "spark-run: the kernels of %s for %s are not those that this compiler makes of the file\n", f.Model, v.Target)
		}
	}
	if !bytes.Equal(p.Weights, r.Program.Weights) {
		fmt.Fprintf(stderr, "spark-run: the weights of %s are not those that this compiler makes of the file\n", f.Model)
	}
	return nil
}

// plain is a value as it is when it has been read from JSON.
func plain(v any) any {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return string(raw)
}

func described(c *runtime.Calibration) string {
	switch {
	case c == nil:
		return "no inputs"
	case c.Generated:
		return console.Count(c.Inputs, "generated input")
	}
	return fmt.Sprintf("%s (SHA-256 %.12s…)", console.Count(c.Inputs, "input"), c.SHA256)
}
