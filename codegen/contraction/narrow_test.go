package contraction

import (
	"fmt"
	"math"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/internal/cost"
	"github.com/spark-compile/spark-compile/internal/ptx"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

// narrowCase is a matrix product or convolution on narrow operands, as the passes write it: activations a, or f16
// ones rounded to e4m3 when they are read, weights b, then a scale of each channel and a bias.
type narrowCase struct {
	a, b, out ir.DType
	round     bool
	terms     int  // of what is rounded; 0: 1
	split     bool // weights are read in two terms

	m, k, n int // MatMul, if m > 0

	h, w, c, co, window, stride, pad, group int // Conv

	members  int
	residual ir.DType // 0: none
	align    int      // of the activations; 0: 256

	unassembled bool
	across      bool // blocks of b lie along the output channels
}

func (c narrowCase) region(b *kerneltest.Region) *ir.Node {
	if c.members > 0 {
		b.Members(c.members)
	}
	batched := c.members > 0
	matmul := c.m > 0
	shape, weight, axis, channels := []int{1, c.m, c.k}, []int{c.k, c.n}, 0, c.n
	if !matmul {
		shape, weight, axis, channels = []int{1, c.h, c.w, c.c}, []int{c.co, c.c / c.group, c.window, c.window}, 1, c.co
	}
	blocked := axis
	if c.across {
		blocked = 1 - axis
	}
	size := 1.0
	if c.a == e2m1 {
		size = 2
	}
	in := b.Input(ir.T(c.a, shape...), size, false, batched)
	var x *ir.Value
	if c.a == e2m1 {
		blocks := slices.Clone(shape)
		blocks[len(blocks)-1] /= blockSize
		x = b.Dequantise(len(shape)-1, blockSize, in, scales(b, blocks, false, batched))
	} else {
		x = b.Cast(in, f32)
	}
	if c.round {
		scale := 0.013
		if c.terms == 2 {
			scale = 0x1p-6
		}
		x = b.Rounded(x, ir.Storage{DType: e4m3, Scale: scale, SplitTerms: c.terms})
	}
	scale := 0.1
	switch {
	case c.b == e2m1:
		scale = 2
	case c.a == bf16, c.split: // all exponents of 8 bits
		scale = 30
	}
	w := b.Input(ir.T(c.b, weight...), scale, true, batched)
	if c.b == e2m1 {
		blocks := append([]int{}, weight...)
		blocks[blocked] = ceilDiv(blocks[blocked], blockSize)
		w = b.Dequantise(blocked, blockSize, w, scales(b, blocks, true, batched))
	} else {
		w = b.Cast(w, f32)
	}
	if c.split {
		w = b.Rounded(w, ir.Storage{DType: e4m3, SplitTerms: 2})
	}
	var y *ir.Value
	if matmul {
		y = b.Add("MatMul", nil, x, w)
	} else {
		y = b.Add("Conv", ir.Attrs{"strides": []int{c.stride, c.stride}, "pads": []int{c.pad, c.pad, c.pad, c.pad}, "dilations": []int{1, 1}, "group": c.group, "layout": "NHWC"}, x, w)
	}
	y = b.Add("Mul", nil, y, b.Input(ir.T(f32, channels), 1, true, batched))
	y = b.Add("Add", nil, y, b.Input(ir.T(f32, channels), 1, true, batched))
	if c.residual != ir.Invalid {
		y = b.Add("Add", nil, y, b.Cast(b.Input(ir.T(c.residual, y.Type.Shape...), 1, false, batched), f32))
	}
	switch c.out {
	case e4m3:
		y = b.Add("Mul", nil, y, b.Splat(1/0.021))
	case e2m1:
		return b.FinishBlocks(y, c.outputScale())
	}
	return b.Finish(b.Cast(y, c.out))
}

// scales adds an input of positive block scales of many sizes.
func scales(b *kerneltest.Region, shape []int, constant, batched bool) *ir.Value {
	draw := func(r *rand.Rand, _ int) float64 {
		return math.Abs(r.NormFloat64())*math.Ldexp(1, r.Intn(9)-6) + 1.0/512
	}
	return b.Drawing(ir.T(e4m3, shape...), draw, constant, batched)
}

func (c narrowCase) check(t *testing.T, targets ...string) *kernel.Spec {
	t.Helper()
	b := newRegion(t)
	region := c.region(b)
	var spec *kernel.Spec
	for _, name := range targets {
		ctx := kerneltest.Target(t, name)
		if c.align > 0 {
			ctx.Align = func(v *ir.Value) int {
				if v == region.Inputs[0] {
					return c.align
				}
				return 256
			}
		}
		if c.round && !ctx.Target.Multiplies("e4m3") {
			_, err := Family.Lower(region, ctx)
			require.ErrorContains(t, err, "no conversion to e4m3")
			continue
		}
		spec = b.Check(Family.Lower, ctx)
		if !testing.Short() && !c.unassembled {
			kerneltest.Assemble(t, spec, ctx.Target)
		}
	}
	return spec
}

// combinations are the types that operands may have together.
var combinations = []narrowCase{
	{a: bf16, b: bf16, out: bf16}, {a: bf16, b: e4m3, out: bf16}, {a: bf16, b: e2m1, out: f32},
	{a: e4m3, b: e4m3, out: e4m3}, {a: e4m3, b: e4m3, out: f16}, {a: e4m3, b: f16, out: e4m3}, {a: e4m3, b: ir.Float6E3M2, out: f16}, {a: bf16, b: ir.Float6E3M2, out: f32},
	{a: e4m3, b: e2m1, out: e4m3},
	{a: f16, b: e4m3, out: f16}, {a: f16, b: ir.Float6E3M2, out: f16}, {a: f16, b: e2m1, out: f32}, {a: f16, b: f16, out: e4m3},
	{a: f16, b: e4m3, out: e4m3, round: true}, {a: f16, b: e2m1, out: f16, round: true}, {a: f16, b: f16, out: f32, round: true},
	{a: bf16, b: e4m3, out: bf16, round: true},
	{a: f16, b: e4m3, out: f16, round: true, terms: 2}, {a: f16, b: e4m3, out: e4m3, round: true, terms: 2}, {a: f16, b: e2m1, out: f32, round: true, terms: 2},
	{a: e4m3, b: f16, out: f16, split: true}, {a: f16, b: f16, out: e4m3, round: true, split: true}, {a: f16, b: f16, out: f16, round: true, terms: 2, split: true},
	{a: bf16, b: f16, out: bf16, round: true, split: true}, {a: f16, b: f16, out: f16, split: true},
	{a: f32, b: e4m3, out: f32}, {a: f32, b: e2m1, out: f32}, {a: f32, b: f32, out: e4m3},
}

func (c narrowCase) types() string {
	s := fmt.Sprintf("%s×%s→%s", c.a, c.b, c.out)
	if c.round {
		s += fmt.Sprintf(" rounded to %d", max(1, c.terms))
	}
	if c.split {
		s += " in two"
	}
	return s
}

// targetsOf are the targets on which combination i of types is tried in size j: two sizes on the default one and one
// on each of the others, other sizes for other combinations. Every combination meets every target, every size every
// target, and a size most combinations. What is lost, a fault in one combination at one size on one target, is found
// with SPARK_FULL, which tries them all.
func targetsOf(i, j, sizes int) []string {
	all := target.Names()
	if fulltest.Runs(fmt.Sprint("contraction targets ", i)) {
		return all
	}
	switch k := (i + j) % sizes; k {
	case 0, 1:
		return all[:1]
	case 2, 3:
		return all[k-1 : k]
	}
	return nil
}

func TestNarrowMatMulEqualsTheReference(t *testing.T) {
	fulltest.Long(t)
	sizes := []narrowCase{
		{m: 25, k: 384, n: 96}, {m: 33, k: 80, n: 40}, {m: 130, k: 256, n: 64, members: 2}, {m: 5, k: 7, n: 3}, {m: 25, k: 1536, n: 48},
	}
	for i, types := range combinations {
		for j, size := range sizes {
			c := types
			c.m, c.k, c.n, c.members = size.m, size.k, size.n, size.members
			t.Run(fmt.Sprintf("%s %dx%dx%d", c.types(), c.m, c.k, c.n), func(t *testing.T) { c.check(t, targetsOf(i, j, len(sizes))...) })
		}
	}
}

func TestNarrowConvEqualsTheReference(t *testing.T) {
	fulltest.Long(t)
	sizes := []narrowCase{
		{h: 8, w: 8, c: 64, co: 64, window: 1, stride: 1, group: 1},
		{h: 8, w: 10, c: 32, co: 48, window: 3, stride: 2, pad: 1, group: 1, residual: f16},
		{h: 7, w: 5, c: 16, co: 40, window: 3, stride: 1, pad: 1, group: 1, members: 2, residual: e4m3},
		{h: 6, w: 6, c: 12, co: 20, window: 3, stride: 1, pad: 1, group: 1},
		{h: 6, w: 6, c: 64, co: 32, window: 3, stride: 1, pad: 1, group: 2},
		{h: 5, w: 7, c: 3, co: 7, window: 3, stride: 1, pad: 0, group: 1, residual: e4m3},
	}
	for i, types := range combinations {
		for j, size := range sizes {
			c := size
			c.a, c.b, c.out, c.round, c.terms, c.split = types.a, types.b, types.out, types.round, types.terms, types.split
			t.Run(fmt.Sprintf("%s %+v", c.types(), size), func(t *testing.T) { c.check(t, targetsOf(i, j, len(sizes))...) })
		}
	}
}

// TestBlocksAcross: scales along the output channels, as the way back of a layer has them, are packed in 4 bits too,
// and narrow weights of bf16 activations are converted in registers where there is arithmetic on bf16.
func TestBlocksAcross(t *testing.T) {
	for i, a := range []ir.DType{f16, bf16, e4m3} {
		for j, c := range []narrowCase{
			{m: 25, k: 384, n: 96}, {m: 33, k: 80, n: 40}, {m: 130, k: 256, n: 72, members: 2}, {m: 5, k: 7, n: 30},
			{h: 8, w: 8, c: 64, co: 64, window: 1, stride: 1, group: 1}, {h: 8, w: 10, c: 24, co: 40, window: 3, stride: 2, pad: 1, group: 1},
			{h: 7, w: 5, c: 16, co: 48, window: 3, stride: 1, pad: 1, group: 1, members: 2},
		} {
			c.a, c.b, c.out, c.across = a, e2m1, f32, true
			t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
				for _, name := range targetsOf(i, j, 3) {
					spec := c.check(t, name)
					tgt, err := target.Lookup(name)
					require.NoError(t, err)
					if a == bf16 && name == "sm_80" {
						continue // it has no such product
					}
					require.Contains(t, spec.Build(tgt, "k").String(), map[bool]string{false: "mul.rn.f16x2", true: "mul.rn.bf16x2"}[a == bf16], name)
				}
			})
		}
	}
}

// TestBlockScaledProducts: e2m1 with block scales on both sides, in the instruction that multiplies the scales as well.
func TestBlockScaledProducts(t *testing.T) {
	for _, c := range []narrowCase{
		{m: 25, k: 384, n: 96, out: f32}, {m: 130, k: 192, n: 40, out: f16, members: 2}, {m: 25, k: 1536, n: 48, out: e4m3},
		{h: 8, w: 8, c: 64, co: 64, window: 1, stride: 1, group: 1, out: f16, residual: f16},
		{h: 8, w: 10, c: 64, co: 48, window: 3, stride: 2, pad: 1, group: 1, out: f32, residual: f16},
		{h: 7, w: 5, c: 192, co: 40, window: 3, stride: 1, pad: 1, group: 1, out: e4m3, members: 2},
		{h: 6, w: 6, c: 128, co: 32, window: 3, stride: 1, pad: 1, group: 2, out: f32},
		{h: 6, w: 6, c: 64, co: 5, window: 3, stride: 1, pad: 0, group: 1, out: f32},
		// Channels that are no multiple of an mma's 64: rows end within one, windows cross taps within one.
		{m: 25, k: 144, n: 40, out: f32}, {m: 130, k: 240, n: 40, out: f16, members: 2}, {m: 70, k: 16, n: 24, out: f32}, {m: 64, k: 672, n: 112, out: e4m3},
		{h: 8, w: 8, c: 112, co: 48, window: 1, stride: 2, group: 1, out: f16},
		{h: 7, w: 5, c: 80, co: 40, window: 3, stride: 1, pad: 1, group: 1, out: f32, members: 2},
		{h: 6, w: 6, c: 48, co: 8, window: 3, stride: 1, pad: 0, group: 1, out: f32},
	} {
		c.a, c.b = e2m1, e2m1
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			spec := c.check(t, "sm_121")
			tgt, err := target.Lookup("sm_121")
			require.NoError(t, err)
			text := spec.Build(tgt, "k").String()
			require.Contains(t, text, ".target sm_121a")
			require.Contains(t, text, "kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3")
			for _, name := range []string{"sm_90", "sm_80"} {
				tgt, err := target.Lookup(name)
				require.NoError(t, err)
				_, err = Family.Lower(c.region(newRegion(t)), &kernel.Context{Target: tgt})
				require.ErrorContains(t, err, name+" does not multiply e2m1 with block scales")
			}
		})
	}
}

// TestScalesAreInEveryLaneThatCouldBeRead: whichever thread of a quad the selectors of a block-scaled mma name, the
// results have the same bits. No kernel of another compiler shows which lane is read, so ours must not depend on it.
func TestScalesAreInEveryLaneThatCouldBeRead(t *testing.T) {
	for _, c := range []narrowCase{
		{m: 25, k: 384, n: 96, out: f32}, {m: 70, k: 144, n: 40, out: f16, members: 2}, {h: 7, w: 5, c: 80, co: 40, window: 3, stride: 1, pad: 1, group: 1, out: f32},
	} {
		c.a, c.b = e2m1, e2m1
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			b := newRegion(t)
			region := c.region(b)
			ctx := kerneltest.Target(t, "sm_121")
			spec, err := Family.Lower(region, ctx)
			require.NoError(t, err)
			emit := spec.Emit
			var want []float64
			for threadA := range 2 {
				for threadB := range 4 {
					spec.Emit = func(k *ptx.Kernel, params []ptx.Sym) {
						emit(k, params)
						products := 0
						for _, s := range k.Body {
							if s.Instr == nil || s.Instr.Def.Undefined == nil {
								continue
							}
							products++
							require.Equal(t, ptx.Vec{ptx.Imm(0), ptx.Imm(0)}, s.Instr.Operands[5])
							s.Instr.Operands[5], s.Instr.Operands[7] = ptx.Vec{ptx.Imm(0), ptx.Imm(threadA)}, ptx.Vec{ptx.Imm(0), ptx.Imm(threadB)}
						}
						require.Positive(t, products)
					}
					got := kerneltest.Run(t, spec, ctx.Target, b.Data)[region.Outputs[0]].Floats()
					if want == nil {
						want = got
					}
					require.Equal(t, want, got, "threads %d and %d", threadA, threadB)
				}
			}
		})
	}
}

// TestNarrowVariables multiplies two activations.
func TestNarrowVariables(t *testing.T) {
	for _, d := range []ir.DType{bf16, e4m3} {
		for _, transposed := range []bool{true, false} {
			b := newRegion(t)
			shape := []int{3, 64, 40}
			if transposed {
				shape = []int{3, 40, 64}
			}
			x := b.Cast(b.Input(ir.T(d, 3, 25, 64), 1, false, false), f32)
			y := b.Cast(b.Input(ir.T(d, shape...), 1, false, false), f32)
			b.Finish(b.Cast(b.Add("MatMul", ir.Attrs{"transB": transposed}, x, y), f32))
			b.Check(Family.Lower, sm121(t))
		}
	}
}

// TestNaNTravels: a NaN among e4m3 activations is one in the sums of its row, on targets with and without conversions.
func TestNaNTravels(t *testing.T) {
	for _, name := range target.Names() {
		tgt, err := target.Lookup(name)
		require.NoError(t, err)
		b := newRegion(t)
		region := narrowCase{a: e4m3, b: e4m3, out: e4m3, m: 20, k: 64, n: 32}.region(b)
		b.Data[region.Inputs[0]].Data[3*64+5] = 0x7f
		b.Data[region.Inputs[0]].Data[4*64+17] = 0xff
		spec, err := Family.Lower(region, &kernel.Context{Target: tgt})
		require.NoError(t, err)
		for i, x := range kerneltest.Run(t, spec, tgt, b.Data)[region.Outputs[0]].Floats() {
			require.Equal(t, i/32 == 3 || i/32 == 4, math.IsNaN(x), "%s element %d", name, i)
		}
	}
}

// TestWarpsTakeATermEach where a launch has few warps and a chunk of K is too short to share: the tensor cores are
// then as busy as with weights in one term, and the launch is predicted to take as long. A longer chunk is shared.
func TestWarpsTakeATermEach(t *testing.T) {
	for _, c := range []struct{ k, each int }{{144, 2}, {240, 1}} {
		size := narrowCase{a: e4m3, b: e4m3, out: f16, h: 80, w: 40, c: c.k, co: 24, window: 1, stride: 1, group: 1, unassembled: true}
		lowered := func(c narrowCase) (p *problem, s Schedule, us float64) {
			region, ctx := c.region(newRegion(t)), sm121(t)
			k, err := Family.Analyse(region, ctx)
			require.NoError(t, err)
			own, err := k.Choose()
			require.NoError(t, err)
			return k.(*tiled).p, own.Schedule.(Schedule), cost.Of(ctx.Target).Estimate(own.Work).US
		}
		_, _, one := lowered(size)
		size.b, size.split = f16, true
		p, s, two := lowered(size)
		require.Equal(t, c.each, s.warpsTerm(&p.num), s)
		if c.each == 2 {
			require.Less(t, two, 1.05*one, s)
		}
		size.check(t, "sm_121")
	}
}

// TestNarrowInstructions: what a GPU is to execute.
func TestNarrowInstructions(t *testing.T) {
	for _, c := range []struct {
		narrowCase
		target, want string
	}{
		{narrowCase{a: e4m3, b: e4m3, out: e4m3}, "sm_121", "m16n8k32.row.col.f32.e4m3.e4m3.f32"},
		{narrowCase{a: e4m3, b: e4m3, out: e4m3}, "sm_90", "m16n8k32.row.col.f32.e4m3.e4m3.f32"},
		{narrowCase{a: e4m3, b: f16, out: e4m3, split: true}, "sm_121", "m16n8k32.row.col.f32.e4m3.e4m3.f32"},
		{narrowCase{a: e4m3, b: f16, out: e4m3, split: true}, "sm_90", "m16n8k32.row.col.f32.e4m3.e4m3.f32"},
		{narrowCase{a: e4m3, b: f16, out: e4m3, split: true}, "sm_80", "m16n8k16.row.col.f32.f16.f16.f32"},
		{narrowCase{a: e4m3, b: e4m3, out: e4m3}, "sm_80", "m16n8k16.row.col.f32.f16.f16.f32"},
		{narrowCase{a: f16, b: e4m3, out: f16, round: true}, "sm_121", "m16n8k32.row.col.f32.e4m3.e4m3.f32"},
		{narrowCase{a: f16, b: e4m3, out: f16, round: true, terms: 2}, "sm_121", "m16n8k32.row.col.f32.e4m3.e4m3.f32"},
		{narrowCase{a: f16, b: e2m1, out: f16}, "sm_121", "m16n8k16.row.col.f32.f16.f16.f32"},
		{narrowCase{a: bf16, b: bf16, out: bf16}, "sm_121", "m16n8k16.row.col.f32.bf16.bf16.f32"},
	} {
		c.m, c.k, c.n = 64, 256, 64
		tgt, err := target.Lookup(c.target)
		require.NoError(t, err)
		spec, err := Family.Lower(c.region(newRegion(t)), &kernel.Context{Target: tgt})
		require.NoError(t, err)
		text := spec.Build(tgt, "k").String()
		require.Contains(t, text, c.want, c.types())
		if c.out == e4m3 {
			require.Contains(t, text, "st.global.v4.b32", "16 bytes at a time")
		}
		require.Contains(t, text, "cp.async.cg")
		require.NotContains(t, text, ".target sm_121a")
	}
}

// TestStoresOfBytes: columns of one byte leave sixteen or eight at a time, whichever cuts them evenly.
func TestStoresOfBytes(t *testing.T) {
	for n, want := range map[int]string{64: "st.global.v4.b32", 40: "st.global.v2.b32", 36: "st.global.u8"} {
		ctx := sm121(t)
		spec, err := Family.Lower(narrowCase{a: e4m3, b: e4m3, out: e4m3, m: 64, k: 256, n: n}.region(newRegion(t)), ctx)
		require.NoError(t, err)
		text := spec.Build(ctx.Target, "k").String()
		for _, op := range []string{"st.global.v4.b32", "st.global.v2.b32", "st.global.u8"} {
			require.Equal(t, op == want, strings.Contains(text, op), "%d columns: %s", n, op)
		}
	}
}

// TestPackedSizes: weights take the bits that they have.
func TestPackedSizes(t *testing.T) {
	for d, want := range map[ir.DType]float64{f16: 16, e4m3: 8, ir.Float6E3M2: 6, e2m1: 4.5} {
		ctx := sm121(t)
		spec, err := Family.Lower(narrowCase{a: f16, b: d, out: f16, m: 64, k: 1024, n: 256}.region(newRegion(t)), ctx)
		require.NoError(t, err)
		for _, o := range spec.Operands {
			if o.Const != nil {
				require.Equal(t, want, float64(8*len(o.Const))/(1024*256), d.String())
			}
		}
	}
}

// TestNarrowRefusals: each names what is wrong.
func TestNarrowRefusals(t *testing.T) {
	for reason, build := range map[string]func(b *kerneltest.Region) *ir.Value{
		"before the anchor is computed": func(b *kerneltest.Region) *ir.Value {
			x := b.Add("Mul", nil, b.Cast(b.Input(ir.T(f16, 8, 16), 1, false, false), f32), b.Splat(2))
			return b.Add("MatMul", nil, x, b.Cast(b.Input(ir.T(f16, 16, 8), 1, true, false), f32))
		},
		"no contraction kernel for e4m3 times f32": func(b *kerneltest.Region) *ir.Value {
			x := b.Cast(b.Input(ir.T(e4m3, 8, 16), 1, false, false), f32)
			return b.Add("MatMul", nil, x, b.Input(ir.T(f32, 16, 8), 1, true, false))
		},
		"operand 1 is rounded": func(b *kerneltest.Region) *ir.Value {
			x := b.Cast(b.Input(ir.T(f16, 8, 16), 1, false, false), f32)
			w := b.Rounded(b.Cast(b.Input(ir.T(f16, 16, 8), 1, false, false), f32), ir.Storage{DType: e4m3, Scale: 2})
			return b.Add("MatMul", nil, x, w)
		},
		"two terms of f16": func(b *kerneltest.Region) *ir.Value { // 0.3 is no power of two
			x := b.Rounded(b.Cast(b.Input(ir.T(f16, 8, 16), 1, false, false), f32), ir.Storage{DType: e4m3, Scale: 0.3, SplitTerms: 2})
			return b.Add("MatMul", nil, x, b.Cast(b.Input(ir.T(e4m3, 16, 8), 1, true, false), f32))
		},
		"e2m1 in blocks of 16": func(b *kerneltest.Region) *ir.Value {
			x := b.Cast(b.Input(ir.T(f16, 8, 16), 1, false, false), f32)
			w := b.Dequantise(0, 8, b.Input(ir.T(e2m1, 16, 8), 1, true, false), b.Drawing(ir.T(e4m3, 2, 8), kerneltest.Numbers(e4m3, 1), true, false))
			return b.Add("MatMul", nil, x, w)
		},
	} {
		t.Run(strings.ReplaceAll(reason, " ", "_"), func(t *testing.T) {
			b := newRegion(t)
			_, err := Family.Lower(b.Finish(build(b)), sm121(t))
			require.ErrorContains(t, err, reason)
		})
	}
}

// TestRandomNarrowRegions draws types, shapes and alignments.
func TestRandomNarrowRegions(t *testing.T) {
	cases := 60
	if testing.Short() {
		cases = 15
	}
	rng := rand.New(rand.NewSource(11))
	pick := func(xs ...int) int { return xs[rng.Intn(len(xs))] }
	for i := range cases {
		c := combinations[rng.Intn(len(combinations))]
		c.members = pick(0, 0, 1, 3)
		c.align = pick(0, 0, 16, 8, 4)
		c.unassembled = i%4 > 0 // ptxas takes longer than the run, and has seen their like
		if rng.Intn(2) == 0 {
			c.m, c.k, c.n = 1+rng.Intn(70), 1+rng.Intn(300), 1+rng.Intn(80)
		} else {
			c.group = pick(1, 1, 2)
			c.h, c.w, c.c, c.co = 5+rng.Intn(6), 5+rng.Intn(6), pick(2, 8, 16, 17, 32, 48)*c.group, pick(1, 8, 16, 33, 64)*c.group
			c.window, c.stride, c.pad = pick(1, 2, 3), pick(1, 2), pick(0, 1)
			c.residual = []ir.DType{ir.Invalid, f16, e4m3, f32}[rng.Intn(4)]
		}
		t.Run(fmt.Sprintf("%d %s %+v", i, c.types(), c), func(t *testing.T) { c.check(t, target.Names()[i%3]) })
	}
}
