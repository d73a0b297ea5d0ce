package compile

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"

	"github.com/spark-compile/spark-compile/codegen/gopkg"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// Inputs makes deterministic inputs for a graph: floats in [-1, 1), bytes over their range, other integers 0 or 1.
func Inputs(g *ir.Graph) map[string]*ir.Array {
	out := map[string]*ir.Array{}
	for _, in := range g.Inputs {
		h := fnv.New64a()
		h.Write([]byte(in.Name))
		rng := rand.New(rand.NewPCG(h.Sum64(), 1))
		a := ir.NewArray(in.Type)
		for i := range a.F {
			a.F[i] = ir.RoundTo(in.Type.DType, 2*rng.Float64()-1)
		}
		for i := range a.I {
			a.I[i] = rng.Int64N(2)
			if in.Type.DType == ir.Uint8 {
				a.I[i] = rng.Int64N(256)
			}
		}
		out[in.Name] = a
	}
	return out
}

// goldenBounds is how close a run must come to the float64 evaluation of the imported graph, by precision: fp32 sums in
// another order, fp16 and bf16 also round what travels between kernels. Of fp8 and nvfp4 it is the final graph, rounded as
// the program rounds: a sum in another order moves a few numbers to their neighbour.
var goldenBounds = map[string]gopkg.Golden{
	"fp32":  {MinCosine: 0.9999999, RelL2: 1e-4},
	"fp16":  {MinCosine: 0.9999, RelL2: 1e-2},
	"fp8":   {MinCosine: 0.9999, RelL2: 2e-2},
	"nvfp4": {MinCosine: 0.9999, RelL2: 2e-2},
	"bf16":  {MinCosine: 0.999, RelL2: 5e-2},
	"file":  {MinCosine: 0.9999, RelL2: 1e-2},
}

// Golden evaluates the imported graph (of fp8 and nvfp4 the final one) in float64 on Inputs, for the test of the generated package.
func (r *Result) Golden(ctx context.Context) (*gopkg.Golden, error) {
	bounds, ok := goldenBounds[r.Program.Precision]
	if !ok {
		return nil, fmt.Errorf("no golden bounds for precision %q", r.Program.Precision)
	}
	in := Inputs(r.Source)
	graph, round := r.Source, ir.EvalOptions{}
	if quantises(r.Program.Precision) { // what it costs is the budget's; the test asks whether the kernels do it
		graph, round.Round = r.Graph, true
	}
	out, err := ir.Evaluate(ctx, graph, in, round)
	if err != nil {
		return nil, fmt.Errorf("%s: golden run, for the package's test: %w", r.Program.Model, err)
	}
	if round.Round {
		if bounds, err = r.quantisedBounds(ctx, in, out, bounds); err != nil {
			return nil, err
		}
	}
	g := &gopkg.Golden{Inputs: map[string][]byte{}, Outputs: map[string][]float64{}, MinCosine: bounds.MinCosine, RelL2: bounds.RelL2}
	for name, a := range in {
		g.Inputs[name] = a.Tensor().Dense()
	}
	for name, a := range out {
		g.Outputs[name] = a.Floats()
	}
	return g, nil
}

// quantisedBounds widens the bounds of a quantised program to what quantisation itself costs on the golden inputs: a sum in
// another order moves a few numbers to the neighbouring code, and the layers behind carry that on as they carry on the
// rounding.
func (r *Result) quantisedBounds(ctx context.Context, in, final map[string]*ir.Array, b gopkg.Golden) (gopkg.Golden, error) {
	exact, err := ir.Evaluate(ctx, r.Source, in, ir.EvalOptions{})
	if err != nil {
		return b, fmt.Errorf("%s: golden run, for the package's test: %w", r.Program.Model, err)
	}
	for name, want := range exact {
		m, err := runtime.Compare(final[name].Floats(), want.Floats(), 0, 0)
		if err != nil {
			return b, fmt.Errorf("%s: output %q: %w", r.Program.Model, name, err)
		}
		// In round figures, which do not depend on how a processor adds.
		b.RelL2 = math.Max(b.RelL2, math.Ceil(m.RelL2*1e3)/1e3)
		b.MinCosine = math.Min(b.MinCosine, math.Floor(m.Cosine*1e4)/1e4)
	}
	return b, nil
}
