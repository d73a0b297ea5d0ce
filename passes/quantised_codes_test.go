package passes

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/minifloat"
	"github.com/spark-compile/spark-compile/internal/precision"
	"github.com/spark-compile/spark-compile/ir"
)

// site is a product with n rows of k weights, as regions have it.
func site(t *testing.T, n, k int, w *ir.Tensor) *Site {
	t.Helper()
	g, b := ir.NewGraph("g"), ir.NewGraph("b")
	x, p := b.AddInput("x", ir.T(ir.Float32, 4, k)), b.AddInput("w", ir.T(ir.Float32, n, k))
	y, err := b.Add("MatMul", "y", ir.Attrs{"transB": true}, x, p)
	require.NoError(t, err)
	b.Outputs = y.Outputs
	r, err := g.NewRegion(ir.FamilyContraction, "r", b, g.AddInput("x", x.Type), g.Constant("w", w))
	require.NoError(t, err)
	s, ok := SiteOf(r)
	require.True(t, ok)
	return &s
}

// storedWeights folds what a file computes weights from, [k,n] there, and does to them what passes do: a
// transposition and factors of the output channels.
func storedWeights(t *testing.T, k, n, block int, codes, scales *ir.Tensor, factors []float64) *ir.Tensor {
	t.Helper()
	g := ir.NewGraph("g")
	add := func(op string, attrs ir.Attrs, in ...*ir.Value) *ir.Value {
		m, err := g.Add(op, op, attrs, in...)
		require.NoError(t, err)
		return m.Outputs[0]
	}
	x := g.AddInput("x", ir.T(ir.Float32, 4, k))
	s := g.Constant("s", scales)
	if scales.DType != ir.Float32 {
		s = add("DequantizeLinear", ir.Attrs{"to": ir.Float32}, s, g.Constant("global", ir.ScalarFloat(ir.Float32, 0.0371)))
	}
	w := add("DequantizeLinear", ir.Attrs{"to": ir.Float32, "axis": 0, "block": block}, g.Constant("w", codes), s)
	y := add("MatMul", nil, x, w)
	g.Outputs = []*ir.Value{add("Mul", nil, y, g.Constant("f", ir.FromFloats(ir.T(ir.Float32, n), factors)))}
	require.NoError(t, Run(&Context{Precision: precision.FP32}, g, []string{"fold", "fold-scale", "gemm"}, nil))
	for _, m := range g.Nodes {
		if m.Op.Name == "MatMul" {
			require.True(t, m.Attrs.Bool("transB"))
			return m.Inputs[1].Const
		}
	}
	t.Fatal("no product")
	return nil
}

// TestBlocksAreCarried: numbers and scales reach the layer as the file has them, whatever passes did: rows and blocks
// of zeros, greatest and least block scales, scales that are powers of two.
func TestBlocksAreCarried(t *testing.T) {
	const n, k = 12, 80
	for _, d := range []ir.DType{ir.Float8E4M3FN, ir.Float32} {
		rng := rand.New(rand.NewPCG(5, 6))
		codes, scales, factors := make([]float64, n*k), make([]float64, n*k/ir.BlockSize), make([]float64, n)
		for i := range scales {
			scales[i] = minifloat.E4M3FN.Decode(uint32(1 + rng.IntN(126)))
			if d == ir.Float32 {
				scales[i] = math.Ldexp(1, rng.IntN(12)-30)
			}
		}
		for i := range factors {
			factors[i] = ir.RoundTo(ir.Float32, rng.NormFloat64())
		}
		for j := range k {
			for i := range n {
				codes[j*n+i] = minifloat.E2M1.Decode(uint32(rng.IntN(16)))
				if i == 0 || i == 1 && j/ir.BlockSize == 2 {
					codes[j*n+i] = 0
				}
			}
		}
		w := storedWeights(t, k, n, ir.BlockSize, ir.FromFloats(ir.T(ir.Float4E2M1, k, n), codes), ir.FromFloats(ir.T(d, k/ir.BlockSize, n), scales), factors)
		s := site(t, n, k, w)
		l, ok := fromFile(s, ir.Float16)
		require.True(t, ok, "%v", d)
		require.Equal(t, ir.Float4E2M1, l.Weights.DType)
		require.Equal(t, []int{n, k / ir.BlockSize}, l.Blocks.Shape)
		for i := range n {
			for j := range k {
				require.Equal(t, codes[j*n+i], l.Weights.FloatAt(i*k+j), "row %d, weight %d", i, j)
				got := l.Weights.FloatAt(i*k+j) * l.Blocks.FloatAt(s.BlockAt(0, i, s.Block(j))) * l.Scales[i]
				require.InDelta(t, w.FloatAt(i*k+j), got, 2*codeError*math.Abs(got), "row %d, weight %d", i, j)
			}
		}
		xs := w.Floats()
		xs[3*k+7] = 1.01*xs[3*k+7] + 1
		changed := ir.FromFloats(w.Type, xs)
		changed.Codes = w.Codes
		_, ok = fromFile(site(t, n, k, changed), ir.Float16)
		require.False(t, ok, "a weight that is no multiple of its scales")
	}
}

// TestFloatsThatNoKernelMultipliesAreCarried in 16 bits, which hold them exactly.
func TestFloatsThatNoKernelMultipliesAreCarried(t *testing.T) {
	const n, k = 4, 32
	rng := rand.New(rand.NewPCG(3, 4))
	for _, d := range []ir.DType{ir.Float8E5M2, ir.Float8E4M3FNUZ} {
		codes := make([]float64, n*k)
		for i := range codes {
			codes[i] = ir.RoundTo(d, rng.NormFloat64())
		}
		w := storedWeights(t, k, n, 0, ir.FromFloats(ir.T(d, k, n), codes), ir.FromFloats(ir.T(ir.Float32), []float64{0.017}), []float64{1, 2, -3, 0.1})
		for _, half := range []ir.DType{ir.Float16, ir.BFloat16} {
			l, ok := fromFile(site(t, n, k, w), half)
			require.True(t, ok, "%v", d)
			require.Equal(t, half, l.Weights.DType)
			for i := range n {
				for j := range k {
					require.Equal(t, codes[j*n+i], l.Weights.FloatAt(i*k+j), "%v", d)
				}
			}
		}
	}
}

// TestIntegersAreCarried in 16 bits, and scales along the input channels in no layer.
func TestIntegersAreCarried(t *testing.T) {
	const n, k = 6, 32
	rng := rand.New(rand.NewPCG(1, 2))
	codes := make([]int64, n*k)
	for i := range codes {
		codes[i] = int64(rng.IntN(255)) - 127
	}
	factors := []float64{1, 2, -3, 0.1, 0, 5}
	w := storedWeights(t, k, n, 0, ir.FromInts(ir.T(ir.Int8, k, n), codes), ir.FromFloats(ir.T(ir.Float32), []float64{0.017}), factors)
	l, ok := fromFile(site(t, n, k, w), ir.BFloat16)
	require.True(t, ok)
	require.Equal(t, ir.BFloat16, l.Weights.DType)
	for i := range n {
		for j := range k {
			if factors[i] != 0 {
				require.Equal(t, float64(codes[j*n+i]), l.Weights.FloatAt(i*k+j))
				require.InEpsilon(t, 0.017*factors[i], l.Scales[i], 1e-6)
			}
		}
	}
	each := make([]float64, k)
	for j := range each {
		each[j] = 0.01 * float64(j+1)
	}
	w = storedWeights(t, k, n, 0, ir.FromInts(ir.T(ir.Int8, k, n), codes), ir.FromFloats(ir.T(ir.Float32, k), each), factors)
	_, ok = fromFile(site(t, n, k, w), ir.Float16)
	require.False(t, ok)
	plain := ir.FromFloats(ir.T(ir.Float32, n, k), w.Floats())
	_, ok = fromFile(site(t, n, k, plain), ir.Float16)
	require.False(t, ok, "no file quantised these")
}
