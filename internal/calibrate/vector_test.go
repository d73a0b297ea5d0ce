package calibrate

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/passes"
)

// heads are two heads of two layers on one vector, which become two SegmentedMatVec: 64 numbers to 24 and to 40, and these to 8
// and to 6.
func heads(t *testing.T, rng *rand.Rand) []passes.Site {
	t.Helper()
	g := ir.NewGraph("g")
	add := func(op string, in ...*ir.Value) *ir.Value {
		n, err := g.Add(op, op, nil, in...)
		require.NoError(t, err)
		return n.Outputs[0]
	}
	weights := func(k, n int) *ir.Value {
		xs := make([]float64, k*n)
		for i := range xs {
			xs[i] = normal(rng)
		}
		return g.Constant("w", ir.FromFloats(ir.T(ir.Float32, k, n), xs))
	}
	x := g.AddInput("x", ir.T(ir.Float32, 1, 64))
	a, b := add("Relu", add("MatMul", x, weights(64, 24))), add("Relu", add("MatMul", x, weights(64, 40)))
	g.Outputs = []*ir.Value{add("MatMul", a, weights(24, 8)), add("MatMul", b, weights(40, 6))}
	names, err := passes.Pipeline(precision.FP8)
	require.NoError(t, err)
	require.NoError(t, passes.Run(&passes.Context{Precision: precision.FP8}, g, names[:slices.Index(names, "assign-storage")], nil))
	sites := passes.Sites(g)
	require.Len(t, sites, 2)
	return sites
}

// TestAVectorsPartsSayHowItsWeightsAreRounded: of layers that multiply a vector, every channel is fitted to the part that it reads.
// The vectors have few causes, so that errors can cancel.
func TestAVectorsPartsSayHowItsWeightsAreRounded(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	sites := heads(t, rng)
	require.Equal(t, []segment{{0, 64, 0, 64}}, segmentsOf(&sites[0]))
	require.Equal(t, []segment{{0, 8, 0, 24}, {8, 6, 24, 40}}, segmentsOf(&sites[1]))
	for _, s := range sites {
		const causes = 5
		var mix [causes * 64]float64
		for i := range mix {
			mix[i] = normal(rng)
		}
		vectors := func(count int) (out []*ir.Tensor) {
			for range count {
				x := make([]float64, 64)
				for c := range causes {
					by := normal(rng)
					for i := range x {
						x[i] += by * mix[c*64+i]
					}
				}
				out = append(out, ir.FromFloats(ir.T(ir.Float32, 64), x))
			}
			return out
		}
		seen, others := vectors(16), vectors(50)
		for _, format := range []string{"fp8 weights", "nvfp4 weights"} {
			miss := func(fitted bool) (sum float64) {
				r := newRounder(&s, layerNamed(t, format).Weights, Technique{Feedback: true, Recover: true})
				if !fitted {
					r.patches = nil
				}
				r.fit(t.Context(), seen, seen, nil)
				for _, part := range segmentsOf(&s) {
					for n := part.first; n < part.first+part.count; n++ {
						for _, x := range others {
							wrong := 0.0
							for k := range part.length {
								wrong += (r.w[s.At(0, n, k)] - r.fake.F[s.At(0, n, k)]) * float64(floats(x)[part.from+k])
							}
							sum += wrong * wrong
						}
					}
				}
				return sum
			}
			require.Less(t, miss(true), .5*miss(false), "%s of %s", format, s.Name())
		}
	}
}
