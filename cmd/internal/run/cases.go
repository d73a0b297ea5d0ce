package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spark-compile/spark-compile/codegen/gopkg"
	"github.com/spark-compile/spark-compile/internal/compile"
	"github.com/spark-compile/spark-compile/internal/memory"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/report"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// testCase is one set of inputs and its expected outputs.
type testCase struct {
	name   string // of its file; "" for inputs given one by one
	arrays map[string]given
	expect string // file of want
	want   map[string]*npy.Array
	got    map[string][]float64 // outputs, once it has run
}

// cases reads --input and --expect. Each .npz file of an input directory is a case, whose expected outputs are in the file of
// the same name in the directory of --expect. Other inputs are shared by all cases.
func (f *flags) cases(ctx context.Context, p *runtime.Program) ([]testCase, error) {
	var dir string
	var rest []string
	for _, in := range f.Input {
		info, err := os.Stat(in)
		if err != nil || !info.IsDir() {
			rest = append(rest, in)
			continue
		}
		if dir != "" {
			return nil, fmt.Errorf("--input %s and --input %s: want only one directory", dir, in)
		}
		dir = in
	}
	shared, err := inputs(ctx, p, rest)
	if err != nil {
		return nil, err
	}
	if dir == "" {
		c := testCase{arrays: shared, expect: f.Expect}
		switch {
		case f.Random != nil && len(f.Input) > 0:
			return nil, errors.New("--random and --input cannot be combined")
		case f.Random != nil:
			c.arrays, err = random(p, *f.Random)
		case len(f.Input) == 0:
			err = f.ownRun(&c, p)
		}
		if err != nil || c.want != nil {
			return []testCase{c}, err
		}
		c.want, err = expected(ctx, f.Expect, p)
		return []testCase{c}, err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.npz"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("--input %s: no .npz files in this directory", dir)
	}
	if info, err := os.Stat(f.Expect); f.Expect != "" && (err != nil || !info.IsDir()) {
		return nil, fmt.Errorf("--expect %s: with a directory of inputs, want a directory too, with files of the same names", f.Expect)
	}
	slices.Sort(files)
	var out []testCase
	for _, file := range files {
		c := testCase{name: filepath.Base(file)}
		if c.arrays, err = inputs(ctx, p, append(slices.Clone(rest), file)); err != nil {
			return nil, err
		}
		if f.Expect != "" {
			c.expect = filepath.Join(f.Expect, c.name)
			if written := strings.TrimSuffix(c.expect, ".npz"); isDir(written) {
				c.expect = written
			}
		}
		if c.want, err = expected(ctx, c.expect, p); err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, comparable(p, out)
}

// comparable returns an error unless all cases expect the same outputs, since figures are combined over the cases.
func comparable(p *runtime.Program, cases []testCase) error {
	for _, c := range cases[1:] {
		for _, q := range p.Outputs {
			if first := cases[0]; (c.want[q.Name] == nil) != (first.want[q.Name] == nil) {
				return fmt.Errorf("output %s is in only one of %s and %s", q.Name, first.expect, c.expect)
			}
		}
	}
	return nil
}

// run runs one case --runs times, writes its outputs to --output-dir and returns the times in milliseconds. States that the case does not set start at zero.
func (c *testCase) run(ctx context.Context, p *runtime.Program, s *runtime.Session, f *flags) ([]float64, error) {
	fail := func(err error) ([]float64, error) {
		if c.name != "" {
			err = fmt.Errorf("%s: %w", c.name, err)
		}
		return nil, err
	}
	if c.arrays != nil {
		if err := fill(p, s, c.arrays); err != nil {
			return fail(err)
		}
	}
	times := make([]float64, f.Runs)
	for i := range times {
		begin := time.Now()
		if err := s.Run(ctx); err != nil {
			return fail(err)
		}
		times[i] = report.Milliseconds(time.Since(begin))
	}
	var err error
	if c.got, err = s.Float64s(); err != nil {
		return fail(err)
	}
	if f.OutputDir == "" {
		return times, nil
	}
	return times, writeOutputs(filepath.Join(f.OutputDir, strings.TrimSuffix(c.name, ".npz")), p, s)
}

func writeOutputs(dir string, p *runtime.Program, s *runtime.Session) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, out := range p.Outputs {
		a := &npy.Array{DType: out.DType, Shape: out.Shape, Data: s.Output(out.Name)}
		if err := npy.WriteFile(filepath.Join(dir, gopkg.FileName(out.Name)+".npy"), a); err != nil {
			return err
		}
	}
	return nil
}

// expected reads a file of expected outputs, or returns nil for "". Shapes must match the outputs' except for dimensions of 1.
func expected(ctx context.Context, path string, p *runtime.Program) (map[string]*npy.Array, error) {
	if path == "" {
		return nil, nil
	}
	read := func(path string) (map[string]*npy.Array, error) { return named(ctx, path, p.Outputs) }
	if isDir(path) {
		read = func(dir string) (map[string]*npy.Array, error) { return readDir(dir, p.Outputs) }
	}
	want, err := read(path)
	if err != nil {
		return nil, err
	}
	long := func(shape []int) []int {
		return slices.DeleteFunc(slices.Clone(shape), func(d int) bool { return d == 1 })
	}
	found := false
	for _, out := range p.Outputs {
		a := want[out.Name]
		if a == nil {
			continue
		}
		found = true
		if !slices.Equal(long(a.Shape), long(out.Shape)) {
			return nil, fmt.Errorf("%s: %s has shape %v, but the output %v", path, out.Name, a.Shape, out.Shape)
		}
	}
	if !found {
		return nil, fmt.Errorf("%s contains no output of %s", path, p.Model)
	}
	return want, nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// readDir reads what writeOutputs wrote.
func readDir(dir string, outputs []runtime.Port) (map[string]*npy.Array, error) {
	names := map[string]string{} // by file name; those of long names cannot be decoded
	for _, out := range outputs {
		names[gopkg.FileName(out.Name)] = out.Name
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.npy"))
	if err != nil {
		return nil, err
	}
	out := map[string]*npy.Array{}
	for _, file := range files {
		base := strings.TrimSuffix(filepath.Base(file), ".npy")
		name, ok := names[base]
		if !ok {
			var err error
			if name, err = url.PathUnescape(base); err != nil {
				continue // not one of ours
			}
		}
		if out[name], err = npy.ReadFile(file); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// random draws inputs.
func random(p *runtime.Program, seed uint64) (map[string]given, error) {
	g := ir.NewGraph(p.Model)
	for _, q := range p.Inputs {
		d, err := ir.ParseDType(q.DType)
		if err != nil {
			return nil, err
		}
		g.Inputs = append(g.Inputs, &ir.Value{Name: q.Name, Type: ir.T(d, q.Shape...)})
	}
	out := map[string]given{}
	for name, a := range compile.RandomInputs(g, seed) {
		t := a.Tensor()
		out[name] = given{&npy.Array{DType: t.DType.String(), Shape: t.Shape, Data: t.Dense()}, true}
	}
	return out, nil
}

// ownRun takes the inputs of a package's golden run, and its outputs unless others are expected. An ONNX file has none.
func (f *flags) ownRun(c *testCase, p *runtime.Program) error {
	folder := filepath.Join(f.Model, "testdata")
	read := func(kind, what, name, dtype string, shape []int) (*npy.Array, error) {
		data, err := memory.ReadFile(filepath.Join(folder, gopkg.GoldenFile(kind, name)))
		if err == nil {
			var d ir.DType
			if d, err = ir.ParseDType(dtype); err == nil && len(data) != ir.T(d, shape...).Bytes() {
				err = fmt.Errorf("%d bytes of data, shape %v needs %d", len(data), shape, ir.T(d, shape...).Bytes())
			}
		}
		if err != nil {
			err = fmt.Errorf("golden %s %q: %w; compile the package again, or give --input and --expect", what, name, err)
		}
		return &npy.Array{DType: dtype, Shape: shape, Data: data}, err
	}
	for _, q := range p.Inputs {
		a, err := read("in", "input", q.Name, q.DType, q.Shape)
		if errors.Is(err, fs.ErrNotExist) || err != nil && !isDir(f.Model) {
			return nil // an input that is missing is reported with the others
		}
		if err != nil {
			return err
		}
		c.arrays[q.Name] = given{a, true}
	}
	if f.Expect != "" || f.Compare != "" || len(p.Inputs) == 0 {
		return nil
	}
	want := map[string]*npy.Array{}
	for _, q := range p.Outputs {
		a, err := read("out", "output", q.Name, "f64", q.Shape)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // no golden run of this output: nothing to compare with
		}
		if err != nil {
			return err
		}
		want[q.Name] = a
	}
	c.want, c.expect, f.golden = want, folder, true
	return nil
}

// given is an array from the command line; named means that its flag named it, so it must be an input.
type given struct {
	*npy.Array
	named bool
}

// named reads those arrays of a .npz file that are ports of a program. What else is in the file may be larger than memory.
func named(ctx context.Context, path string, ports []runtime.Port) (map[string]*npy.Array, error) {
	names := make([]string, len(ports))
	for i, q := range ports {
		names[i] = q.Name
	}
	return npy.ReadNamed(path, uint64(memory.Of(ctx)), names...)
}

// inputs reads the arrays of --input flags, by name.
func inputs(ctx context.Context, p *runtime.Program, flags []string) (map[string]given, error) {
	out := map[string]given{}
	for _, in := range flags {
		name, path, ok := strings.Cut(in, "=")
		switch {
		case ok && strings.HasSuffix(path, ".npy"):
			a, err := npy.ReadFile(path)
			if err != nil {
				return nil, err
			}
			if out[name].named {
				return nil, fmt.Errorf("--input %s: given twice", name)
			}
			out[name] = given{a, true}
		case strings.HasSuffix(in, ".npz"):
			all, err := named(ctx, in, p.Inputs)
			if err != nil {
				return nil, err
			}
			for n, a := range all {
				if !out[n].named {
					out[n] = given{a, false}
				}
			}
		default:
			return nil, fmt.Errorf("--input %s: want NAME=FILE.npy or FILE.npz", in)
		}
	}
	return out, nil
}

// fill copies the arrays into the session's inputs. Arrays of a .npz that are not inputs are ignored.
func fill(p *runtime.Program, s *runtime.Session, arrays map[string]given) error {
	states := map[string]bool{}
	for _, st := range p.States {
		states[st.Input] = true
	}
	var missing []string
	known := map[string]bool{}
	for _, in := range p.Inputs {
		known[in.Name] = true
		a := arrays[in.Name]
		data := make([]byte, len(s.Input(in.Name))) // a state starts at zero
		switch {
		case a.Array != nil:
			var err error
			if data, err = a.As(in.DType, in.Shape); err != nil {
				return fmt.Errorf("input %q: %w", in.Name, err)
			}
		case !states[in.Name]:
			missing = append(missing, fmt.Sprintf("%s %s%v", in.Name, in.DType, in.Shape))
			continue
		}
		if err := s.Set(in.Name, data); err != nil {
			return err
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("missing inputs: %s; give them with --input NAME=FILE.npy or --input FILE.npz, or run on random ones with --random SEED", strings.Join(missing, ", "))
	}
	var extra []string
	for n, a := range arrays {
		if !known[n] && a.named {
			extra = append(extra, n)
		}
	}
	if len(extra) > 0 {
		slices.Sort(extra)
		return fmt.Errorf("%s has no input %s", p.Model, strings.Join(extra, ", "))
	}
	return nil
}
