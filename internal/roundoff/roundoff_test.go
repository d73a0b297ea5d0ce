package roundoff

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/ir"
)

func randoms(rng *rand.Rand, d ir.DType, shape ...int) *ir.Array {
	a := ir.NewArray(ir.T(d, shape...))
	for i := range a.F {
		a.F[i] = ir.RoundTo(d, rng.NormFloat64())
	}
	return a
}

// layer is a region: relu(x·w·scale), in codes of type to.
func layer(t *testing.T, k int, to ir.DType) (*ir.Node, *ir.Graph) {
	t.Helper()
	g, b := ir.NewGraph("g"), ir.NewGraph("layer")
	x, w := b.AddInput("x", ir.T(ir.Float32, 16, k)), b.AddInput("w", ir.T(ir.Float32, k, 16))
	add := func(op string, attrs ir.Attrs, in ...*ir.Value) *ir.Value {
		n, err := b.Add(op, op, attrs, in...)
		require.NoError(t, err)
		return n.Outputs[0]
	}
	y := add("Mul", nil, add("MatMul", nil, x, w), b.Constant("s", ir.ScalarFloat(ir.Float32, 1.7)))
	b.Outputs = []*ir.Value{add("Cast", ir.Attrs{"to": to}, add("Relu", nil, y))}
	n, err := g.NewRegion(ir.FamilyContraction, "layer", b, g.AddInput("x", x.Type), g.AddInput("w", w.Type))
	require.NoError(t, err)
	return n, g
}

// TestSumsInAnyOrderAreInRange sums products in f32 forwards, backwards and in pairs.
func TestSumsInAnyOrderAreInRange(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, k := range []int{1, 7, 64, 1000} {
		for _, to := range []ir.DType{ir.Float32, ir.Float16, ir.Float8E4M3FN} {
			n, _ := layer(t, k, to)
			x, w := randoms(rng, ir.Float32, 16, k), randoms(rng, ir.Float32, k, 16)
			out, err := Model{}.Node(n, []Range{Exactly(x), Exactly(w)})
			require.NoError(t, err)
			wide := 0
			for i := range 16 {
				for j := range 16 {
					terms := make([]float32, k)
					for c := range k {
						terms[c] = float32(x.F[i*k+c] * w.F[c*16+j])
					}
					lo, hi := out[0].Lo.F[i*16+j], out[0].Hi.F[i*16+j]
					if lo != hi {
						wide++
					}
					for name, sum := range map[string]float32{"forwards": fold(terms, 1), "backwards": fold(terms, -1), "in pairs": pairs(terms)} {
						y := ir.RoundTo(to, math.Max(0, float64(sum*1.7)))
						require.True(t, lo <= y && y <= hi, "%d products summed %s to %v: %v is outside of [%v, %v]", k, name, to, y, lo, hi)
					}
				}
			}
			if to == ir.Float8E4M3FN {
				require.Less(t, wide, 13, "one in twenty at a tie")
			}
		}
	}
}

func fold(xs []float32, step int) float32 {
	sum := float32(0)
	for i := range xs {
		if step < 0 {
			i = len(xs) - 1 - i
		}
		sum += xs[i]
	}
	return sum
}

func pairs(xs []float32) float32 {
	if len(xs) == 1 {
		return xs[0]
	}
	return pairs(xs[:len(xs)/2]) + pairs(xs[len(xs)/2:])
}

func TestATieIsOpenAndNothingElseIs(t *testing.T) {
	n, _ := layer(t, 1, ir.Float8E4M3FN)
	x, w := ir.NewArray(ir.T(ir.Float32, 16, 1)), ir.NewArray(ir.T(ir.Float32, 1, 16))
	w.F[0] = 1
	for i := range 16 {
		x.F[i] = float64(i+1) / 1.7
	}
	x.F[15] = 17 / 1.7 // half way between 16 and 18
	out, err := Model{}.Node(n, []Range{Exactly(x), Exactly(w)})
	require.NoError(t, err)
	for i := range 15 {
		require.Equal(t, float64(i+1), out[0].Lo.F[i*16])
		require.Equal(t, float64(i+1), out[0].Hi.F[i*16])
	}
	require.Equal(t, 16., out[0].Lo.F[15*16])
	require.Equal(t, 18., out[0].Hi.F[15*16])
}

// TestLooseHoldsBothRoundings: a file's f16 values may be rounded or kept.
func TestLooseHoldsBothRoundings(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	g := ir.NewGraph("g")
	x, w := g.AddInput("x", ir.T(ir.Float16, 8, 32)), g.AddInput("w", ir.T(ir.Float16, 32, 8))
	s, err := g.Add("Mul", "s", nil, x, g.Constant("c", ir.ScalarFloat(ir.Float16, 0.3)))
	require.NoError(t, err)
	y, err := g.Add("MatMul", "y", nil, s.Outputs[0], w)
	require.NoError(t, err)
	a, b := randoms(rng, ir.Float16, 8, 32), randoms(rng, ir.Float16, 32, 8)
	out, err := Model{Loose: true}.Values(y.Outputs, map[*ir.Value]Range{x: Exactly(a), w: Exactly(b)})
	require.NoError(t, err)
	c := ir.RoundTo(ir.Float16, 0.3)
	for i := range 8 {
		for j := range 8 {
			kept, all := 0.0, 0.0
			for k := range 32 {
				kept += a.F[i*32+k] * c * b.F[k*8+j]
				all += ir.RoundTo(ir.Float16, a.F[i*32+k]*c) * b.F[k*8+j]
			}
			for _, v := range []float64{kept, all, ir.RoundTo(ir.Float16, all)} {
				require.True(t, out[0].Lo.F[i*8+j] <= v && v <= out[0].Hi.F[i*8+j])
			}
		}
	}
}

// TestMeansAreInRange: in whatever order, and nothing that is off by much more than that.
func TestMeansAreInRange(t *testing.T) {
	const rows, size = 16, 300
	x := randoms(rand.New(rand.NewPCG(7, 7)), ir.Float32, rows, size)
	g := ir.NewGraph("g")
	n, err := g.Add("ReduceMean", "mean", ir.Attrs{"axes": []int{1}}, g.AddInput("x", x.Type))
	require.NoError(t, err)
	r, err := Model{}.Node(n, []Range{Exactly(x)})
	require.NoError(t, err)
	outside := 0
	for i := range rows {
		xs := make([]float32, size)
		for k := range xs {
			xs[k] = float32(x.F[i*size+k])
		}
		for _, got := range []float32{fold(xs, 1) / size, pairs(xs) / size} {
			require.GreaterOrEqual(t, float64(got), r[0].Lo.F[i])
			require.LessOrEqual(t, float64(got), r[0].Hi.F[i])
		}
		if mid := (r[0].Lo.F[i] + r[0].Hi.F[i]) / 2; mid+1e-5 > r[0].Hi.F[i] {
			outside++
		}
	}
	require.Equal(t, rows, outside)
}

// TestCodesOfBlocksThatAreNotKnown: of a scale between the least and the greatest, where the least is 0 and makes all codes 0.
func TestCodesOfBlocksThatAreNotKnown(t *testing.T) {
	lo, hi := ir.NewArray(ir.T(ir.Float32, ir.BlockSize)), ir.NewArray(ir.T(ir.Float32, ir.BlockSize))
	for i := range hi.F {
		hi.F[i] = 0.001 * float64(i)
	}
	g := ir.NewGraph("g")
	n, err := g.Add("BlockQuantize", "blocks", ir.Attrs{"scale": 0.02}, g.AddInput("x", lo.Type))
	require.NoError(t, err)
	r, err := Model{}.Node(n, []Range{{lo, hi}})
	require.NoError(t, err)
	for part := range 101 {
		x := mapped(hi, func(v float64) float64 { return v * float64(part) / 100 })
		y, err := ir.EvaluateNode(n, []*ir.Array{x})
		require.NoError(t, err)
		for k, y := range y {
			for i, y := range y.F {
				require.True(t, r[k].Lo.F[i] <= y && y <= r[k].Hi.F[i], "output %d of %d %%: %v is outside of [%v, %v]", k, part, y, r[k].Lo.F[i], r[k].Hi.F[i])
			}
		}
	}
}

// TestNormsOfRowsThatAreNotKnown: where an operand is at a tie it moves the deviation as well, which no expansion of first
// order sees; a row of one value has next to none.
func TestNormsOfRowsThatAreNotKnown(t *testing.T) {
	lo := &ir.Array{Type: ir.T(ir.Float32, 3, 3), F: []float64{4.8, 4, 3, 1, 1, 1, 2, 2, 2}}
	hi := &ir.Array{Type: lo.Type, F: []float64{5.2, 4, 3, 3, 1.001, 1, 2, 2, 2.5}}
	g := ir.NewGraph("g")
	n, err := g.Add("LayerNorm", "norm", ir.Attrs{"axis": 1}, g.AddInput("x", lo.Type))
	require.NoError(t, err)
	r, err := Model{}.Node(n, []Range{{lo, hi}})
	require.NoError(t, err)
	for corner := range 8 {
		x := ir.NewArray(lo.Type)
		for i := range x.F {
			if x.F[i] = lo.F[i]; corner>>(i%3)&1 == 1 {
				x.F[i] = hi.F[i]
			}
		}
		y, err := ir.EvaluateNode(n, []*ir.Array{x})
		require.NoError(t, err)
		for i, y := range y[0].F {
			require.True(t, r[0].Lo.F[i] <= y && y <= r[0].Hi.F[i], "%v is outside of [%v, %v]: element %d of corner %d", y, r[0].Lo.F[i], r[0].Hi.F[i], i, corner)
		}
	}
	require.Less(t, r[0].Hi.F[0]-r[0].Lo.F[0], 2.5, "the row is known to 0.2")
}

func TestRoundoff_NamesUnbounded(t *testing.T) {
	g := ir.NewGraph("g")
	x := g.AddInput("x", ir.T(ir.Float32, 4))
	n, err := g.Add("Sin", "wave", nil, x)
	require.NoError(t, err)
	_, err = Model{}.Node(n, []Range{Exactly(ir.NewArray(x.Type))})
	require.ErrorContains(t, err, `node "wave" (Sin): no bound of its rounding is known`)
	_, err = Model{}.Values(n.Outputs, nil)
	require.ErrorContains(t, err, "input without a value")
}

// TestSumsAlongAnAxisAreInRange: of any order, and nothing that is off by much more than that.
func TestSumsAlongAnAxisAreInRange(t *testing.T) {
	const rows, size = 8, 200
	x := randoms(rand.New(rand.NewPCG(8, 8)), ir.Float32, rows, size)
	for op, attrs := range map[string]ir.Attrs{"ReduceSum": {"axes": []int{1}, "keepdims": true}, "CumSum": {"axis": 1}} {
		g := ir.NewGraph("g")
		n, err := g.Add(op, op, attrs, g.AddInput("x", x.Type))
		require.NoError(t, err)
		r, err := Model{}.Node(n, []Range{Exactly(x)})
		require.NoError(t, err)
		last := r[0].Lo.Len() / rows
		for i := range rows {
			xs := make([]float32, size)
			for k := range xs {
				xs[k] = float32(x.F[i*size+k])
			}
			at := (i+1)*last - 1 // the sum of the row
			for _, got := range []float32{fold(xs, 1), fold(xs, -1), pairs(xs)} {
				require.GreaterOrEqual(t, float64(got), r[0].Lo.F[at], op)
				require.LessOrEqual(t, float64(got), r[0].Hi.F[at], op)
			}
			require.Less(t, r[0].Hi.F[at]-r[0].Lo.F[at], 3e-3, op)
		}
	}
}

// TestProbabilitiesAreRoundedAsValuesAreStored: kernels multiply v by probabilities of its own type.
func TestProbabilitiesAreRoundedAsValuesAreStored(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 9))
	var widths []float64
	for _, d := range []ir.DType{ir.Float32, ir.Float16, ir.BFloat16} {
		g, b := ir.NewGraph("g"), ir.NewGraph("attention")
		var in []Range
		var outer, inner []*ir.Value
		for _, name := range []string{"q", "k", "v"} {
			x := randoms(rng, d, 1, 1, 16, 16)
			in = append(in, Exactly(x))
			outer = append(outer, g.AddInput(name, x.Type))
			c, err := b.Add("Cast", name, ir.Attrs{"to": ir.Float32}, b.AddInput(name, x.Type))
			require.NoError(t, err)
			inner = append(inner, c.Outputs[0])
		}
		a, err := b.Add("Attention", "a", ir.Attrs{"scale": 0.25}, inner...)
		require.NoError(t, err)
		b.Outputs = a.Outputs
		n, err := g.NewRegion(ir.FamilyContraction, "a", b, outer...)
		require.NoError(t, err)
		r, err := Model{}.Node(n, in)
		require.NoError(t, err)
		width := 0.0
		for i := range r[0].Lo.F {
			width += r[0].Hi.F[i] - r[0].Lo.F[i]
		}
		widths = append(widths, width)
	}
	require.Greater(t, widths[1], 10*widths[0])
	require.Greater(t, widths[2], 5*widths[1])
}

func TestMagnitudesAndInfinities(t *testing.T) {
	g := ir.NewGraph("g")
	typ := ir.T(ir.Float32, 4)
	n, err := g.Add("Abs", "abs", nil, g.AddInput("x", typ))
	require.NoError(t, err)
	inf := math.Inf(1)
	r, err := Model{}.Node(n, []Range{{&ir.Array{Type: typ, F: []float64{-2, -1, 1, -inf}}, &ir.Array{Type: typ, F: []float64{-1, 3, 2, -inf}}}})
	require.NoError(t, err)
	require.Equal(t, []float64{1, 0, 1, inf}, r[0].Lo.F)
	require.Equal(t, []float64{2, 3, 2, inf}, r[0].Hi.F)
	sum, err := g.Add("Add", "sum", nil, n.Outputs[0], n.Outputs[0])
	require.NoError(t, err)
	r, err = Model{}.Node(sum, []Range{r[0], r[0]})
	require.NoError(t, err)
	require.Equal(t, inf, r[0].Lo.F[3], "what is infinite has no rounding")
	require.Less(t, r[0].Lo.F[0], 2.)
}
