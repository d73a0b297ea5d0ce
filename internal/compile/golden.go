package compile

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/spark-compile/spark-compile/codegen/gopkg"
	"github.com/spark-compile/spark-compile/internal/calibrate"
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
	g := &gopkg.Golden{Inputs: map[string][]byte{}, MinCosine: bounds.MinCosine, RelL2: bounds.RelL2}
	for name, a := range in {
		g.Inputs[name] = a.Tensor().Dense()
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
		if err := widen(g, exact); err != nil {
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
	arrays, err := ir.Evaluate(ctx, g, in, opt)
	out := map[string][]float64{}
	for name, a := range arrays {
		out[name] = a.Floats()
	}
	return out, err
}

// widen widens the bounds of a quantised program to what quantisation itself costs on the golden inputs: summing in another
// order moves a few numbers to a neighbouring code, and later layers propagate that as they propagate the rounding.
func widen(g *gopkg.Golden, exact map[string][]float64) error {
	for name, want := range exact {
		m, err := runtime.Compare(g.Outputs[name], want, 0, 0)
		if err != nil {
			return fmt.Errorf("output %q: %w", name, err)
		}
		// Round figures do not depend on the order in which a processor adds.
		g.RelL2 = math.Max(g.RelL2, math.Ceil(m.RelL2*1e3)/1e3)
		g.MinCosine = math.Min(g.MinCosine, math.Floor(m.Cosine*1e4)/1e4)
	}
	return nil
}

// record runs the first target's program on the CPU device, keeps its outputs, and checks them against the golden ones: no
// package is written whose own test would fail.
func (r *Result) record(ctx context.Context, g *gopkg.Golden, in map[string]*ir.Array) error {
	g.Program = map[string][]byte{}
	return runEach(ctx, r.Program, r.Program.Variants[0].Target, []map[string]*ir.Array{in}, func(s *runtime.Session) error {
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
			if m.Cosine < g.MinCosine || m.RelL2 > g.RelL2 {
				return fmt.Errorf("output %q of the program differs from its graph by more than quantisation explains (cosine %.6f, want %g; relative L2 %.3g, want %g): this is a bug in the compiler, please report it; --precision fp16 is not affected",
					q.Name, m.Cosine, g.MinCosine, m.RelL2, g.RelL2)
			}
		}
		return nil
	})
}
