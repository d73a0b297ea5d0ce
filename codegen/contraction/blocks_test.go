package contraction

import (
	"fmt"
	"math"
	"math/rand"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

// checkBlocks checks a region that ends with BlockQuantize and assembles it.
func checkBlocks(t *testing.T, b *kerneltest.Region) *kernel.Spec {
	t.Helper()
	ctx := sm121(t)
	spec := b.Check(Family.Lower, ctx)
	if !testing.Short() {
		kerneltest.Assemble(t, spec, ctx.Target)
	}
	return spec
}

// blockCases are producers of NVFP4: every kind of anchor, operand and epilogue.
var blockCases = []narrowCase{
	{m: 25, k: 384, n: 96, a: f16, b: f16}, {m: 130, k: 192, n: 64, a: f16, b: e2m1, members: 2}, {m: 33, k: 1536, n: 128, a: e2m1, b: e2m1},
	{m: 7, k: 80, n: 64, a: f32, b: f32}, {m: 64, k: 64, n: 192, a: e4m3, b: e4m3}, {m: 25, k: 2048, n: 64, a: f16, b: e4m3, round: true},
	{h: 8, w: 8, c: 64, co: 64, window: 1, stride: 1, group: 1, a: f16, b: f16, residual: f16},
	{h: 8, w: 10, c: 64, co: 128, window: 3, stride: 2, pad: 1, group: 1, a: e2m1, b: e2m1, residual: f16},
	{h: 7, w: 5, c: 64, co: 64, window: 3, stride: 1, pad: 1, group: 1, a: e2m1, b: e2m1, members: 2},
	{h: 6, w: 6, c: 12, co: 192, window: 3, stride: 1, pad: 1, group: 1, a: f32, b: f32},
	{h: 6, w: 6, c: 64, co: 64, window: 3, stride: 1, pad: 1, group: 2, a: f16, b: e4m3},
	{h: 5, w: 7, c: 256, co: 64, window: 1, stride: 1, group: 1, a: bf16, b: bf16, members: 1},
}

// outputScale is a scale with which block scales of the case's outputs are neither near e4m3's greatest value nor
// subnormal.
func (c narrowCase) outputScale() float64 {
	size := 0.1 * math.Sqrt(float64(max(c.k, c.c*c.window*c.window)))
	return size / 50
}

func TestProducersOfBlocksEqualTheReference(t *testing.T) {
	for _, c := range blockCases {
		t.Run(fmt.Sprintf("%s×%s %+v", c.a, c.b, c), func(t *testing.T) {
			b := newRegion(t)
			c.out = e2m1
			c.region(b)
			text := checkBlocks(t, b).Build(sm121(t).Target, "k").String()
			require.Contains(t, text, "cvt.rn.satfinite.e2m1x2.f32")
			require.Contains(t, text, "st.global.v2.b32")
		})
	}
}

// TestBlocks_AfterMovement: attention whose heads become channels, and an epilogue that counts rows in another way.
func TestBlocks_AfterMovement(t *testing.T) {
	for _, d := range bothTypes {
		t.Run("attention "+d.String(), func(t *testing.T) {
			b := newRegion(t)
			if d == f16 {
				b.Limits[e2m1] = 1e-3 // probabilities are rounded to f16
			}
			in := func() *ir.Value { return b.Cast(b.Input(ir.T(d, 1, 4, 25, 32), 1, false, false), f32) }
			y := b.Add("Attention", ir.Attrs{"scale": 0.2}, in(), in(), in())
			y = b.Add("Transpose", ir.Attrs{"perm": []int{0, 2, 1, 3}}, y)
			b.FinishBlocks(b.Add("Reshape", ir.Attrs{"shape": []int{1, 25, 128}}, y), 0.01)
			checkBlocks(t, b)
		})
		t.Run("reshaped, then a residual "+d.String(), func(t *testing.T) {
			b := newRegion(t)
			x := b.Cast(b.Input(ir.T(d, 2, 3, 10, 24), 1, false, false), f32)
			y := b.Add("MatMul", nil, x, b.Cast(b.Input(ir.T(d, 24, 64), 0.1, true, false), f32))
			y = b.Add("Reshape", ir.Attrs{"shape": []int{1, 60, 64}}, b.Add("Gelu", nil, y))
			b.FinishBlocks(b.Add("Add", nil, y, b.Input(ir.T(f32, 1, 60, 64), 1, false, false)), 0.01)
			checkBlocks(t, b)
		})
		t.Run("rows of 16 columns joined "+d.String(), func(t *testing.T) {
			b := newRegion(t)
			x := b.Cast(b.Input(ir.T(d, 8, 24), 1, false, false), f32)
			y := b.Add("MatMul", nil, x, b.Cast(b.Input(ir.T(d, 24, 16), 0.1, true, false), f32))
			b.FinishBlocks(b.Add("Reshape", ir.Attrs{"shape": []int{2, 64}}, y), 0.01)
			checkBlocks(t, b)
		})
	}
}

func TestRandomProducersOfBlocks(t *testing.T) {
	fulltest.Long(t)
	cases := 40
	if testing.Short() {
		cases = 10
	}
	rng := rand.New(rand.NewSource(5))
	pick := func(xs ...int) int { return xs[rng.Intn(len(xs))] }
	// Weights in two terms are those of fp8, whose values are not in blocks.
	types := slices.DeleteFunc(slices.Clone(combinations), func(c narrowCase) bool { return c.split })
	for i := range cases {
		c := types[rng.Intn(len(types))]
		c.members = pick(0, 0, 1, 3)
		if rng.Intn(4) == 0 {
			c.a, c.b, c.round = e2m1, e2m1, false
		}
		if rng.Intn(2) == 0 {
			c.m, c.k, c.n = 1+rng.Intn(140), 16*(1+rng.Intn(32)), 16*(1+rng.Intn(12))
		} else {
			c.group = 1
			c.h, c.w, c.c, c.co = 5+rng.Intn(6), 5+rng.Intn(6), 16*(1+rng.Intn(8)), 16*(1+rng.Intn(12))
			c.window, c.stride, c.pad = pick(1, 2, 3), pick(1, 2), pick(0, 1)
			c.residual = []ir.DType{ir.Invalid, f16, e4m3, f32}[rng.Intn(4)]
		}
		c.out = e2m1
		t.Run(fmt.Sprintf("%d %s %+v", i, c.types(), c), func(t *testing.T) {
			b := newRegion(t)
			c.region(b)
			checkBlocks(t, b)
		})
	}
}

// TestBlocksRefused: what cannot be stored in blocks, and where.
func TestBlocksRefused(t *testing.T) {
	matmul := func(b *kerneltest.Region, n int) *ir.Value {
		x := b.Cast(b.Input(ir.T(f16, 32, 64), 1, false, false), f32)
		return b.Add("MatMul", nil, x, b.Cast(b.Input(ir.T(f16, 64, n), 0.1, true, false), f32))
	}
	for reason, build := range map[string]func(b *kerneltest.Region){
		"are not 16 columns of the product": func(b *kerneltest.Region) {
			b.FinishBlocks(b.Add("Transpose", ir.Attrs{"perm": []int{1, 0}}, matmul(b, 48)), 1)
		},
	} {
		t.Run(reason, func(t *testing.T) {
			b := newRegion(t)
			build(b)
			_, err := Family.Lower(b.Node, sm121(t))
			require.ErrorContains(t, err, reason)
		})
	}
	b := newRegion(t)
	b.FinishBlocks(matmul(b, 64), 1)
	_, err := Family.Lower(b.Node, sm121(t))
	require.NoError(t, err)
	for _, name := range []string{"sm_90", "sm_80"} {
		tgt, err := target.Lookup(name)
		require.NoError(t, err)
		_, err = Family.Lower(b.Node, &kernel.Context{Target: tgt})
		require.ErrorContains(t, err, name+" has no conversion to e2m1")
	}
	ctx := sm121(t)
	ctx.Align = func(*ir.Value) int { return 4 }
	_, err = Family.Lower(b.Node, ctx)
	require.ErrorContains(t, err, "aligned to 4 bytes")
}
