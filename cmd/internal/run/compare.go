package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/onnxruntime"
	"github.com/spark-compile/spark-compile/internal/report"
	"github.com/spark-compile/spark-compile/internal/toolchain"
	"github.com/spark-compile/spark-compile/runtime"
)

// onnxRuntime is what --compare takes.
const onnxRuntime = "onnxruntime"

// checkCompare rejects what does not go with --compare.
func (f *flags) checkCompare() error {
	switch {
	case f.Compare == "":
		return nil
	case f.Compare != onnxRuntime:
		return fmt.Errorf("--compare %s: want %s", f.Compare, onnxRuntime)
	case f.Expect != "":
		return errors.New("--compare takes the expected outputs from ONNX Runtime: leave out --expect")
	case len(f.Suite) > 0 || f.PTX != "" || f.Replay != "":
		return errors.New("--compare works on one model, not with --suite, --ptx or --replay")
	case f.Runs > 1:
		return errors.New("--compare compares one run: leave out --runs")
	case f.ONNX == "" && isDir(f.Model):
		return errors.New("--compare runs the file that a package was compiled from: name that with --onnx FILE.onnx")
	}
	return nil
}

// peer is ONNX Runtime with the file of a program.
type peer struct {
	python, model string
	constants     map[string]*npy.Array // inputs of the file that --input of spark-compile fixed
}

// findPeer finds ONNX Runtime and the file that a program was compiled from.
func (f *flags) findPeer(ctx context.Context, p *runtime.Program) (*peer, error) {
	out := &peer{model: f.Model, constants: map[string]*npy.Array{}}
	if isDir(f.Model) {
		if p.Loop != nil {
			return nil, fmt.Errorf("--compare: %s is several models in one loop: compare a package of each", f.Model)
		}
		m, err := f.file(p)
		if err != nil {
			return nil, err
		}
		out.model = f.ONNX
		if err := out.fixed(p, m); err != nil {
			return nil, err
		}
	}
	var err error
	if out.python, err = toolchain.FindPython(); err != nil {
		return nil, fmt.Errorf("--compare onnxruntime: %w", err)
	}
	if _, err := toolchain.PythonPackageVersion(ctx, out.python, onnxRuntime); err != nil {
		return nil, fmt.Errorf("--compare onnxruntime: %w; install it with %s -m pip install onnxruntime, "+
			"or set SPARK_PYTHON to a Python that has it", err, out.python)
	}
	return out, nil
}

// fixed sets the constants, as far as a package records their values.
func (o *peer) fixed(p *runtime.Program, m *onnx.Model) error {
	values := map[string]string{}
	for _, flag := range p.Provenance.Flags {
		text, ok := strings.CutPrefix(flag, "--input ")
		if !ok {
			continue
		}
		name, value, _ := strings.Cut(text, "=")
		if strings.HasPrefix(value, "sha256:") {
			return fmt.Errorf("--compare: input %q was fixed to the values of a file, which are not recorded", name)
		}
		values[name] = value
	}
	tensors, err := compile.InputValues(m, values, nil)
	for name, t := range tensors {
		o.constants[name] = &npy.Array{DType: t.DType.String(), Shape: t.Shape, Data: t.Dense()}
	}
	return err
}

// run sets the expected outputs of every case to those of ONNX Runtime.
func (o *peer) run(ctx context.Context, p *runtime.Program, cases []testCase) (*report.ComparedWith, error) {
	var version string
	for i := range cases {
		c := &cases[i]
		arrays := maps.Clone(o.constants)
		inputs, err := given64(p, c.arrays)
		if err != nil {
			return nil, err
		}
		for _, q := range p.Inputs {
			x := inputs[q.Name].Tensor()
			arrays[q.Name] = &npy.Array{DType: x.DType.String(), Shape: x.Shape, Data: x.Dense()}
		}
		r, want, err := onnxruntime.Run(ctx, o.python, o.model, arrays, 0, 0)
		if err != nil {
			return nil, fmt.Errorf("--compare: %w; --trace all compares with the built-in float64 evaluator instead", err)
		}
		version = r.Version
		c.want, c.expect = want, "ONNX Runtime "+version
	}
	return &report.ComparedWith{Name: "ONNX Runtime", Version: version, Model: o.model}, nil
}

// compared is the row of an output.
type compared struct {
	report.Output
	note string
}

// rank is 0 for what misses its bounds, so that it is listed first.
func (c compared) rank() int {
	if c.Met != nil && !*c.Met {
		return 0
	}
	return 1
}

// worstFirst orders rows by verdict, then by relative L2.
func worstFirst(a, b compared) int {
	return cmp.Or(cmp.Compare(a.rank(), b.rank()), cmp.Compare(b.RelL2, a.RelL2))
}

// judge sets an output's bounds, and whether it meets them, and returns the verdict for the reader.
func (b bounds) judge(q runtime.Port, o *report.Output) string {
	if b.none {
		return "not judged"
	}
	b = b.of(q)
	o.Bounds = &report.Bounds{}
	if b.cosine != 0 {
		o.Bounds.MinCosine = &b.cosine
	}
	if b.relL2 != 0 {
		o.Bounds.MaxRelL2 = &b.relL2
	}
	if b.within {
		o.Bounds.Rtol, o.Bounds.Atol = &b.rtol, &b.atol
	}
	met := b.met(o.Metrics)
	if o.Met = &met; !met {
		return "MISS"
	}
	return "ok"
}
