package passes

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
)

// foldError is the relative L2 of a layer (x·factor - term)·W, whose x is made by another layer, in a precision: the
// graph after all passes, rounded as it rounds, against the file in float64. What W multiplies has a deviation of 1.
func foldError(t *testing.T, in string, term, factor float64) float64 {
	t.Helper()
	const rows, size = 64, 128
	b := newGraphBuilder(t, ir.Float32)
	b.rng = rand.New(rand.NewPCG(11, 12))
	x := b.input("x", ir.Float32, rows, size)
	x = b.op("MatMul", nil, x, b.weight(0, 1/math.Sqrt(size), size, size))
	x = b.op("Add", nil, x, b.scalar(term))
	kept := func() { x = b.op("Max", nil, x, b.scalar(-1e30)) } // nothing is folded across it
	kept()
	x = b.op("Mul", nil, x, b.scalar(1/factor))
	kept()
	x = b.op("Mul", nil, x, b.scalar(factor))
	if term != 0 {
		x = b.op("Sub", nil, x, b.scalar(term))
	}
	g := b.output(b.op("MatMul", nil, x, b.weight(0, 1/math.Sqrt(size), size, size)))
	inputs := randomInputs(g, 5)
	want := evaluateAll(t, g, inputs)
	require.NoError(t, Run(&Context{Precision: in}, g, nil, nil))
	got := evaluateWith(t, g, inputs, ir.EvalOptions{Round: true})
	return relativeL2(got[0].Floats(), want[0].Floats())
}

// TestFold_BoundsTermsAndFactors: greatestTerm and greatestFactor stand where a layer's own error has grown six
// times, and not yet at all.
func TestFold_BoundsTermsAndFactors(t *testing.T) {
	const beyond = 1.001
	for _, in := range []string{precision.FP32, precision.FP16, precision.BF16} {
		t.Run(in, func(t *testing.T) {
			for _, c := range []float64{0, 1, 2, 4, greatestTerm, greatestTerm * beyond} {
				t.Logf("term %g: %.3g", c, foldError(t, in, c, 1))
			}
			for _, k := range []float64{1 / (greatestFactor * beyond), 1. / greatestFactor, 1, greatestFactor, greatestFactor * beyond} {
				t.Logf("factor %g: %.3g", k, foldError(t, in, 0, k))
			}
			folded, separate := foldError(t, in, greatestTerm, 1), foldError(t, in, greatestTerm*beyond, 1)
			require.InDelta(t, foldError(t, in, 0, 1), separate, 0.05*separate, "beyond the limit nothing is lost")
			if in != precision.FP32 {
				require.InDelta(t, 6, folded/separate, 1)
			}
			for _, limit := range []float64{greatestFactor, 1. / greatestFactor} {
				require.InDelta(t, 1, foldError(t, in, 0, limit)/foldError(t, in, 0, 1), 0.1, "a factor of %g", limit)
			}
			p, err := precision.Lookup(in)
			require.NoError(t, err)
			require.Less(t, folded, p.RelL2/2, "a layer's error, of what a whole network may have")
		})
	}
}

// TestABatchNormOfAFarMeanKeepsItsDigits: before a convolution, whatever its scale; after one it is folded into the
// weights.
func TestABatchNormOfAFarMeanKeepsItsDigits(t *testing.T) {
	for _, scale := range []float64{1e-3, 1, 100} {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("scale %g, after a convolution: %v", scale, after), func(t *testing.T) {
				const c, mean = 16, 300
				constant := func(b *graphBuilder, x float64) *ir.Value { return b.g.Constant("c", ir.Splat(ir.T(ir.Float32, c), x)) }
				b := newGraphBuilder(t, ir.Float32)
				x := b.op("Add", nil, b.op("Relu", nil, b.input("x", ir.Float32, 1, c, 9, 9)), b.scalar(mean))
				x = b.op("Max", nil, x, b.scalar(0)) // the terms are not added up
				if after {
					x = b.conv(x, c, 1, 1, 1)
				}
				x = b.op("BatchNorm", nil, x, constant(b, scale), constant(b, 0), constant(b, mean), constant(b, 0.34))
				g := b.output(b.op("Conv", ir.Attrs{"strides": []int{1, 1}, "pads": []int{0, 0, 0, 0}, "dilations": []int{1, 1}}, x, b.weight(0, 0.25, 8, c, 1, 1)))
				inputs := randomInputs(g, 5)
				want := evaluateAll(t, g, inputs)
				require.NoError(t, Run(&Context{Precision: precision.FP16}, g, nil, nil))
				got := evaluateWith(t, g, inputs, ir.EvalOptions{Round: true})
				if after {
					require.Zero(t, opCounts(g)["BatchNorm"])
					return
				}
				require.Less(t, relativeL2(got[0].Floats(), want[0].Floats()), 1e-3)
			})
		}
	}
}
