package contraction

import (
	"fmt"
	"math"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

// adaptedCase is a layer [m,k]·[k,n] by constant weights plus an adapter's product [m,r]·[r,n], then a gain of each
// column; with both, the value before the gain is a second result.
type adaptedCase struct {
	m, k, n, r     int
	dtype          ir.DType
	members        int
	transB, transD bool
	both           bool
	factors        bool // of the layer's input
}

func (c adaptedCase) region(b *kerneltest.Region) *ir.Node {
	if c.members > 0 {
		b.Members(c.members)
	}
	batched := c.members > 0
	oriented := func(k, n int, trans bool) ir.Type {
		if trans {
			k, n = n, k
		}
		return ir.T(c.dtype, k, n)
	}
	x := b.Cast(b.Input(ir.T(c.dtype, 1, c.m, c.k), 1, false, false), f32)
	w := b.Cast(b.Input(oriented(c.k, c.n, c.transB), 0.1, true, batched), f32)
	u := b.Cast(b.Input(ir.T(c.dtype, 1, c.m, c.r), 1, false, batched), f32)
	d := b.Cast(b.Input(oriented(c.r, c.n, c.transD), 1, false, batched), f32)
	in := []*ir.Value{x, w, u, d}
	if c.factors {
		// Powers of two: products with them are exact in 16 bits.
		power := func(r *rand.Rand, _ int) float64 { return math.Ldexp(float64(1-2*r.Intn(2)), r.Intn(5)-2) }
		in = append(in, b.Read(b.Drawing(ir.T(f32, c.k), power, false, false), false))
	}
	sum := b.Add("MatMulSum", ir.Attrs{"transB": c.transB, "transD": c.transD}, in...)
	y := b.Add("Mul", nil, sum, b.Input(ir.T(f32, c.n), 1, false, false))
	if c.both {
		return b.Finish(b.Cast(sum, c.dtype), b.Cast(y, c.dtype))
	}
	return b.Finish(b.Cast(y, c.dtype))
}

var adaptedCases = []adaptedCase{
	{m: 25, k: 384, n: 96, r: 2},
	{m: 25, k: 384, n: 96, r: 1, transB: true, transD: true},
	{m: 130, k: 64, n: 72, r: 16, transD: true},
	{m: 40, k: 200, n: 64, r: 5, both: true},
	{m: 5, k: 41, n: 3, r: 3, transD: true},
	{m: 32, k: 128, n: 64, r: 64, transB: true},
	{m: 64, k: 96, n: 40, r: 17, members: 2, transD: true},
	{m: 25, k: 1152, n: 96, r: 2, factors: true},
	{m: 50, k: 41, n: 24, r: 3, factors: true, transD: true, members: 2},
	{m: 130, k: 128, n: 72, r: 16, factors: true, both: true},
}

func TestASecondProductIsAdded(t *testing.T) {
	for _, d := range []ir.DType{f16, bf16, f32} {
		for _, c := range adaptedCases {
			c.dtype = d
			t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
				b := newRegion(t)
				c.region(b)
				b.Check(Family.Lower, sm121(t))
			})
		}
	}
}

// TestASecondProductIsAssembled for every target, without spills.
func TestASecondProductIsAssembled(t *testing.T) {
	fulltest.Long(t)
	for _, on := range target.Names() {
		for _, d := range []ir.DType{f16, bf16, f32} {
			for _, c := range []adaptedCase{{m: 800, k: 384, n: 1152, r: 16, transD: true, both: true}, {m: 800, k: 1152, n: 384, r: 2, factors: true}, {m: 33, k: 96, n: 40, r: 64, factors: true}} {
				c.dtype = d
				b := newRegion(t)
				ctx := kerneltest.Target(t, on)
				spec, err := Family.Lower(c.region(b), ctx)
				require.NoError(t, err)
				kerneltest.Assemble(t, spec, ctx.Target)
			}
		}
	}
}

// TestEveryScheduleAddsTheSecondProduct: once, whichever warps and blocks share K.
func TestEveryScheduleAddsTheSecondProduct(t *testing.T) {
	fulltest.Long(t)
	for i, d := range bothTypes {
		b, ctx := newRegion(t), sm121(t)
		region := adaptedCase{m: 40, k: 200, n: 72 - int(d-f16), r: 9, dtype: d, transD: true, factors: i == 0}.region(b)
		p, err := normalise(region)
		require.NoError(t, err)
		pl, err := newPlan(p, ctx)
		require.NoError(t, err)
		valid := slices.DeleteFunc(candidates(p), func(s Schedule) bool { return s.valid(p, ctx.Target) != nil || pl.fits(s) != nil })
		tried := valid
		if !fulltest.Runs(t.Name()) {
			tried = threewise(valid)
		}
		require.Greater(t, len(tried), 15)
		for _, s := range tried {
			b.CheckSpec(write(p, pl.at(p, s), s, ctx.Target), ctx.Target)
		}
	}
}

// TestASecondProductIsOneMoreChunk: the launch reads its operands once a tile and multiplies 16 more of K.
func TestASecondProductIsOneMoreChunk(t *testing.T) {
	products := func(r int) int {
		b := newRegion(t)
		var region *ir.Node
		if r > 0 {
			region = adaptedCase{m: 128, k: 256, n: 128, r: r, dtype: f16}.region(b)
		} else {
			region = gemmCase{m: 128, k: 256, n: 128, dtype: f16}.region(b)
		}
		p, err := normalise(region)
		require.NoError(t, err)
		pl, err := newPlan(p, sm121(t))
		require.NoError(t, err)
		s := Schedule{BM: 64, BN: 64, BK: 64, WarpsM: 2, WarpsN: 2, WarpsK: 1, Stages: 3, SplitK: 1}
		require.NoError(t, s.valid(p, sm121(t).Target))
		return strings.Count(write(p, pl.at(p, s), s, sm121(t).Target).Build(target.Default(), "k").String(), p.num.mmaOpcode())
	}
	alone := products(0)
	require.Positive(t, alone)
	require.Equal(t, alone/4, products(16)-alone, "16 of K where the loop has 64")
	require.Equal(t, products(1), products(16))
}
