package passes

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/internal/minifloat"
	"github.com/spark-compile/spark-compile/ir"
)

// site is a product with n rows of k weights, as regions have it.
func site(t *testing.T, n, k int, w []float64) *Site {
	t.Helper()
	g, b := ir.NewGraph("g"), ir.NewGraph("b")
	x, p := b.AddInput("x", ir.T(ir.Float32, 4, k)), b.AddInput("w", ir.T(ir.Float32, n, k))
	y, err := b.Add("MatMul", "y", ir.Attrs{"transB": true}, x, p)
	require.NoError(t, err)
	b.Outputs = y.Outputs
	r, err := g.NewRegion(ir.FamilyContraction, "r", b, 0, nil, g.AddInput("x", x.Type), g.Constant("w", ir.FromFloats(p.Type, w)))
	require.NoError(t, err)
	s, ok := SiteOf(r)
	require.True(t, ok)
	return &s
}

// TestBlocksAreFoundAgain in weights that a scale of the row has multiplied since: rows and blocks of zeros, blocks that
// many units explain, greatest and least block scales.
func TestBlocksAreFoundAgain(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	const n, k = 12, 80
	w := make([]float64, n*k)
	for i := range n {
		row := ir.RoundTo(ir.Float32, rng.Float64()+0.1)
		for b := range k / BlockSize {
			scale := minifloat.E4M3FN.Decode(uint32(1 + rng.IntN(126)))
			for j := range BlockSize {
				code := minifloat.E2M1.Decode(uint32(rng.IntN(16)))
				switch {
				case i == 0 || i == 1 && b == 2:
					code = 0
				case i == 2:
					code = float64(4 * (j % 2))
				}
				w[i*k+b*BlockSize+j] = ir.RoundTo(ir.Float32, ir.RoundTo(ir.Float32, 0.0371*scale*code)*row)
			}
		}
	}
	s := site(t, n, k, w)
	l, ok := onBlocks(s)
	require.True(t, ok)
	require.Equal(t, ir.Float4E2M1, l.Weights.DType)
	require.Equal(t, []int{n, k / BlockSize}, l.Blocks.Shape)
	for i := range n {
		for j := range k {
			got := l.Weights.FloatAt(i*k+j) * l.Blocks.FloatAt(s.BlockAt(0, i, s.Block(j))) * l.Scales[i]
			require.InDelta(t, w[i*k+j], got, 2*gridError*math.Abs(w[i*k+j]), "row %d, weight %d", i, j)
		}
	}
	w[3*k+7] *= 1.01
	_, ok = onBlocks(site(t, n, k, w))
	require.False(t, ok, "a weight beside the grid")
}

func TestOrdinaryWeightsLieOnNoGrid(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	w := make([]float64, 8*64)
	for i := range w {
		w[i] = ir.RoundTo(ir.Float16, rng.NormFloat64())
	}
	s := site(t, 8, 64, w)
	_, ok := onBlocks(s)
	require.False(t, ok)
	_, ok = onGrid(s, ir.Float8E4M3FN, ir.Float8E4M3FN)
	require.False(t, ok)
	_, ok = onGrid(s, ir.Int8, ir.Float16)
	require.False(t, ok)
}
