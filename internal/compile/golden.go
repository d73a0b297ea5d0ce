package compile

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/spark-compile/spark-compile/codegen/gopkg"
	"github.com/spark-compile/spark-compile/hal/emu"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/npy"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// Inputs makes the inputs of a graph's golden run.
func Inputs(g *ir.Graph) map[string]*ir.Array { return RandomInputs(g, 1) }

// RandomInputs makes inputs for a graph, the same for a seed: floats in [-1, 1), bytes over their range, other integers 0 or 1.
func RandomInputs(g *ir.Graph, seed uint64) map[string]*ir.Array {
	return calibrate.Draw(g, seed, func(rng *rand.Rand, a *ir.Array) {
		for i := range a.F {
			a.F[i] = ir.RoundTo(a.DType, float64(2*float64(rng.Float64()))-1)
		}
		for i := range a.I {
			a.I[i] = rng.Int64N(2)
			if a.DType == ir.Uint8 {
				a.I[i] = rng.Int64N(256)
			}
		}
	})
}

// Golden records a run on Inputs for the test of the generated package: the outputs of the imported graph in float64. In
// precisions that calibrate these are the final graph's, the bounds are how far they are from the file's (in f32 where accuracy
// is judged by that), and the program's own outputs on the CPU device are recorded too: a
// run there must repeat them bit for bit, since the bounds, which allow for quantisation, might not reveal a wrong kernel.
func (r *Result) Golden(ctx context.Context) (*gopkg.Golden, error) {
	fail := func(err error) (*gopkg.Golden, error) {
		return nil, fmt.Errorf("%s: golden run, for the package's test: %w", r.Program.Model, err)
	}
	bounds, err := precision.Lookup(r.Program.Precision)
	if err != nil {
		return fail(err)
	}
	in := Inputs(r.Source)
	g := &gopkg.Golden{Inputs: map[string][]byte{}, Bounds: map[string]gopkg.Bounds{}}
	for _, q := range r.Program.Inputs {
		g.Inputs[q.Name] = portBytes(in[q.Name], q)
	}
	for _, q := range r.Program.Outputs {
		cosine, relL2 := bounds.Bounds(q.DType)
		g.Bounds[q.Name] = gopkg.Bounds{MinCosine: cosine, RelL2: relL2}
	}
	exact := r.golden
	if exact == nil || !bounds.Calibrates() {
		if exact, err = outputsOf(ctx, r.Source, in, ir.EvalOptions{}); err != nil {
			return fail(err)
		}
	}
	if g.Outputs = exact; bounds.Calibrates() {
		if g.Outputs, err = outputsOf(ctx, r.Graph, in, ir.EvalOptions{Round: true}); err != nil {
			return fail(err)
		}
		if err := loosen(g, exact); err != nil {
			return fail(err)
		}
	}
	if bounds.Calibrates() {
		if err := r.record(ctx, g, in); err != nil {
			return fail(err)
		}
	}
	return g, nil
}

// outputsOf are the outputs of a graph in float64.
func outputsOf(ctx context.Context, g *ir.Graph, in map[string]*ir.Array, opt ir.EvalOptions) (map[string][]float64, error) {
	list := make([]*ir.Array, len(g.Inputs))
	for i, v := range g.Inputs {
		list[i] = in[v.Name].As(v.Type.DType)
	}
	results, err := ir.EvaluateList(ctx, g, list, opt)
	out := map[string][]float64{}
	for i, a := range results {
		out[g.Outputs[i].Name] = a.Floats()
	}
	return out, err
}

// loosen widens the bounds of a quantised program to what quantisation itself costs on the golden inputs: summing in another
// order moves a few numbers to a neighbouring code, and later layers propagate that as they propagate the rounding.
func loosen(g *gopkg.Golden, exact map[string][]float64) error {
	var all gopkg.Bounds
	for _, b := range g.Bounds {
		all = b // of a precision that calibrates, the type of an output changes nothing
	}
	for name, want := range exact {
		m, err := runtime.Compare(g.Outputs[name], want, 0, 0)
		if err != nil {
			return fmt.Errorf("output %q: %w", name, err)
		}
		// Round figures do not depend on the order in which a processor adds.
		all.RelL2 = math.Max(all.RelL2, math.Ceil(m.RelL2*1e3)/1e3)
		all.MinCosine = math.Min(all.MinCosine, math.Floor(m.Cosine*1e4)/1e4)
	}
	for name := range g.Bounds {
		g.Bounds[name] = all
	}
	return nil
}

// record runs the first target's program on the CPU device, keeps its outputs, and checks them against the golden ones: no
// package is written whose own test would fail.
func (r *Result) record(ctx context.Context, g *gopkg.Golden, in map[string]*ir.Array) error {
	g.Program = map[string][]byte{}
	return runEach(ctx, r.Program, r.Program.Variants[0].Target, emu.Options{}, []map[string]*ir.Array{in}, func(s *runtime.Session) error {
		got, err := s.Float64s()
		if err != nil {
			return err
		}
		for _, q := range r.Program.Outputs {
			g.Program[q.Name] = bytes.Clone(s.Output(q.Name))
			m, err := runtime.Compare(got[q.Name], g.Outputs[q.Name], 0, 0)
			if err != nil {
				return fmt.Errorf("output %q: %w", q.Name, err)
			}
			if b := g.Bounds[q.Name]; m.Cosine < b.MinCosine || m.RelL2 > b.RelL2 {
				return fmt.Errorf("output %q of the program differs from its graph by more than quantisation explains (cosine %.6f, want %g; relative L2 %.3g, want %g): this is a bug in the compiler, please report it; --precision fp16 is not affected",
					q.Name, m.Cosine, b.MinCosine, m.RelL2, b.RelL2)
			}
		}
		return nil
	})
}

// WriteInputs writes the inputs of a graph to an .npz file and returns what Options.Calibrate takes: that, or nothing if
// the graph has no inputs, or some of 4 bits, which NumPy lacks. Other floats that NumPy lacks become f32.
func WriteInputs(path string, g *ir.Graph, inputs map[string]*ir.Tensor) ([]string, error) {
	arrays := map[string]*npy.Array{}
	for _, v := range g.Inputs {
		t := inputs[v.Name]
		if t == nil {
			return nil, fmt.Errorf("no array for input %s", v.Name)
		}
		if t.DType.Bits() < 8 {
			return nil, nil
		}
		if d := t.DType; d.IsFloat() && d != ir.Float16 && d != ir.Float32 && d != ir.Float64 {
			t = ir.FromFloats(ir.T(ir.Float32, t.Shape...), t.Floats())
		}
		arrays[v.Name] = &npy.Array{DType: t.DType.String(), Shape: t.Shape, Data: t.Dense()}
	}
	if len(arrays) == 0 {
		return nil, nil
	}
	return []string{path}, npy.WriteZip(path, arrays)
}
