package contraction

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

// expandCase is an inverted residual of pixels of k channels: expanded to c, under depthwise windows, projected to n.
type expandCase struct {
	h, w, k, c, n     int
	window            [2]int
	stride, pad       int
	x, between        ir.DType
	members, images   int
	residual, gated   bool
	matmul, unbiassed bool
	narrow            narrowExpansion
	partial           bool // on tensor cores that keep few bits
	shared            bool // the projection's bias is the gate, and c is n
}

// narrowExpansion are an expandCase's narrow operands, as the passes write them.
type narrowExpansion struct {
	weights, projected ir.DType // of the expansion, and of the projection; 0: as x and between
	slid, out          ir.DType // what is projected, and the result; 0: as between and x
	round, split       bool     // the expansion's pixels are rounded to e4m3 when they are read, its weights are two terms
	terms              int      // of what is rounded; 0: 1
}

// scaled multiplies by a number for each channel.
func scaled(r *kerneltest.Region, y *ir.Value) *ir.Value {
	return r.Add("Mul", nil, y, r.Input(ir.T(f32, y.Type.Shape[len(y.Type.Shape)-1]), 1, true, true))
}

// parts are the three regions, whose graph the last one checks.
func (c expandCase) parts(t testing.TB) (list [3]*kerneltest.Region) {
	g := kerneltest.NewGraph(t, "g")
	for i, family := range []string{ir.FamilyContraction, ir.FamilyWindow, ir.FamilyContraction} {
		list[i] = g.Region(family)
		if c.members > 0 {
			list[i].Members(c.members)
		}
	}
	expansion, depthwise, projection := list[0], list[1], list[2]
	conv := func(group, stride int, pad int) ir.Attrs {
		return ir.Attrs{"layout": "NHWC", "group": group, "strides": []int{stride, stride}, "dilations": []int{1, 1}, "pads": []int{pad, pad, pad, pad}}
	}
	shape := []int{max(1, c.images), c.h, c.w, c.k}
	d := c.narrow
	x := expansion.Cast(expansion.Input(ir.T(c.x, shape...), 1, false, true), f32)
	if d.round {
		scale := 0.013
		if d.terms == 2 {
			scale = 0x1p-6
		}
		x = expansion.Rounded(x, ir.Storage{DType: e4m3, Scale: scale, SplitTerms: d.terms})
	}
	weights := func(r *kerneltest.Region, d ir.DType, size float64, shape ...int) *ir.Value {
		if d == e2m1 {
			blocks := slices.Clone(shape)
			blocks[1] = ceilDiv(blocks[1], blockSize)
			return r.Dequantise(1, blockSize, r.Input(ir.T(d, shape...), 2, true, true), scales(r, blocks, true, true))
		}
		return r.Cast(r.Input(ir.T(d, shape...), size, true, true), f32)
	}
	gate := expansion.Drawing(ir.T(f32, c.c), kerneltest.Numbers(f32, 1), true, true)
	var y *ir.Value
	if c.matmul {
		y = expansion.Add("MatMul", nil, x, weights(expansion, cmp.Or(d.weights, c.x), 0.3, c.k, c.c))
	} else {
		in := []*ir.Value{x, weights(expansion, cmp.Or(d.weights, c.x), 0.3, c.c, c.k, 1, 1)}
		if d.split {
			in[1] = expansion.Rounded(in[1], ir.Storage{DType: e4m3, SplitTerms: 2})
		}
		bias := !c.unbiassed && d.weights == ir.Invalid
		if bias {
			in = append(in, expansion.Input(ir.T(f32, c.c), 1, true, true))
		}
		if y = expansion.Add("Conv", conv(1, 1, 0), in...); d.weights != ir.Invalid {
			y = expansion.Add("Add", nil, scaled(expansion, y), expansion.Input(ir.T(f32, c.c), 1, true, true))
		}
	}
	if c.gated { // what follows reads every channel's scale, and every pixel
		y = expansion.Add("Mul", nil, y, expansion.Read(gate, true))
		y = expansion.Add("Add", nil, y, expansion.Input(ir.T(f32, append(shape[:3:3], 1)...), 1, false, true))
	}
	hidden := expansion.Finish(expansion.Cast(expansion.Add("Relu", nil, y), c.between)).Outputs[0]
	taps, bias := depthwise.Input(ir.T(f32, c.c, 1, c.window[0], c.window[1]), 0.3, true, true), depthwise.Input(ir.T(f32, c.c), 1, true, true)
	image := depthwise.Cast(depthwise.Read(hidden, true), f32)
	slid := depthwise.Finish(depthwise.Cast(depthwise.Add("Relu", nil, depthwise.Add("Conv", conv(c.c, c.stride, c.pad), image, taps, bias)), cmp.Or(d.slid, c.between))).Outputs[0]
	a := projection.Cast(projection.Read(slid, true), f32)
	w := weights(projection, cmp.Or(d.projected, c.between), 0.1, c.n, c.c, 1, 1)
	last := projection.Drawing(ir.T(f32, c.n), kerneltest.Numbers(f32, 1), true, true)
	if c.shared {
		last = gate
	}
	z := projection.Add("Conv", conv(1, 1, 0), a, w, projection.Read(last, true))
	if c.residual {
		z = projection.Add("Add", nil, z, projection.Cast(projection.Input(ir.T(cmp.Or(d.out, c.x), shape...), 1, false, true), f32))
	}
	projection.Finish(projection.Cast(z, cmp.Or(d.out, c.x)))
	return list
}

func (c expandCase) region(t testing.TB) *kerneltest.Region {
	p := c.parts(t)
	return joined(p[0], p[1], p[2])
}

// all8 has e4m3 everywhere but in the image, twice two terms of pixels and of weights.
var (
	all8  = narrowExpansion{weights: e4m3, projected: e4m3, slid: e4m3, out: e4m3}
	twice = narrowExpansion{weights: f16, round: true, terms: 2, split: true, slid: e4m3, projected: e4m3}
)

func TestInvertedResidualsEqualTheReference(t *testing.T) {
	fulltest.Long(t)
	for _, c := range []expandCase{
		{h: 10, w: 20, k: 16, c: 48, n: 24, window: [2]int{3, 3}, stride: 1, pad: 1, x: f16, between: f16},
		{h: 9, w: 7, k: 24, c: 40, n: 24, window: [2]int{3, 3}, stride: 1, pad: 1, x: f16, between: f16, residual: true, images: 2},
		{h: 21, w: 13, k: 40, c: 72, n: 40, window: [2]int{5, 5}, stride: 2, pad: 2, x: f16, between: f16, images: 2},
		{h: 11, w: 9, k: 16, c: 24, n: 8, window: [2]int{3, 5}, stride: 2, pad: 1, x: bf16, between: bf16, members: 2, unbiassed: true},
		{h: 9, w: 11, k: 12, c: 24, n: 16, window: [2]int{3, 3}, stride: 1, pad: 0, x: f32, between: f32, gated: true},
		{h: 9, w: 11, k: 8, c: 40, n: 8, window: [2]int{5, 5}, stride: 1, pad: 2, x: f32, between: f32, members: 2, residual: true},
		{h: 8, w: 8, k: 8, c: 24, n: 130, window: [2]int{3, 3}, stride: 1, pad: 1, x: f16, between: f16, gated: true, matmul: true},
		{h: 5, w: 6, k: 16, c: 8, n: 8, window: [2]int{1, 1}, stride: 1, pad: 0, x: f16, between: f16},
		{h: 9, w: 7, k: 12, c: 24, n: 8, window: [2]int{3, 3}, stride: 1, pad: 1, x: f16, between: f16},
		{h: 9, w: 7, k: 24, c: 48, n: 24, window: [2]int{3, 3}, stride: 1, pad: 1, x: e4m3, between: f16, narrow: all8},
		{h: 21, w: 13, k: 40, c: 72, n: 40, window: [2]int{5, 5}, stride: 2, pad: 2, x: e4m3, between: f16, images: 2, narrow: all8},
		{h: 10, w: 12, k: 160, c: 48, n: 16, window: [2]int{3, 3}, stride: 1, pad: 1, x: e4m3, between: f16, members: 2, narrow: narrowExpansion{weights: e4m3, out: f16}},
		{h: 9, w: 7, k: 24, c: 40, n: 24, window: [2]int{3, 3}, stride: 1, pad: 1, x: f16, between: f16, residual: true, narrow: twice},
		{h: 9, w: 7, k: 40, c: 40, n: 40, window: [2]int{3, 3}, stride: 1, pad: 1, x: f16, between: f16, residual: true, narrow: narrowExpansion{weights: e4m3, round: true, terms: 2}},
		{h: 9, w: 7, k: 40, c: 40, n: 16, window: [2]int{3, 3}, stride: 2, pad: 1, x: bf16, between: bf16, gated: true, narrow: narrowExpansion{weights: e4m3, round: true, slid: e4m3, projected: e4m3}},
		{h: 9, w: 7, k: 24, c: 72, n: 16, window: [2]int{3, 3}, stride: 1, pad: 0, x: e4m3, between: f16, narrow: narrowExpansion{weights: f16, split: true, slid: e4m3, projected: e4m3}},
		{h: 9, w: 7, k: 40, c: 40, n: 40, window: [2]int{3, 3}, stride: 1, pad: 1, x: f16, between: f16, residual: true, narrow: narrowExpansion{weights: e4m3, projected: e4m3}},
		{h: 9, w: 7, k: 40, c: 40, n: 40, window: [2]int{3, 3}, stride: 1, pad: 1, x: bf16, between: bf16, narrow: narrowExpansion{weights: e3m2, projected: e4m3}},
		{h: 9, w: 7, k: 80, c: 40, n: 40, window: [2]int{3, 3}, stride: 1, pad: 1, x: f16, between: f16, narrow: narrowExpansion{weights: e2m1, projected: e2m1}},
		{h: 9, w: 7, k: 272, c: 40, n: 40, window: [2]int{3, 3}, stride: 1, pad: 1, x: e4m3, between: f16, narrow: all8, partial: true},
		{h: 9, w: 7, k: 24, c: 40, n: 40, window: [2]int{3, 3}, stride: 1, pad: 1, x: f16, between: f16, gated: true, shared: true},
	} {
		for _, target := range []string{"sm_121", "sm_90", "sm_80"} {
			t.Run(fmt.Sprintf("%s %+v", target, c), func(t *testing.T) {
				b := c.region(t)
				ctx := kerneltest.Target(t, target)
				if c.partial && target == "sm_121" {
					ctx = keeping(t, 23)
				}
				if c.narrow.round && !ctx.Target.Multiplies("e4m3") {
					_, err := Family.Lower(b.Node, ctx)
					require.ErrorContains(t, err, "no conversion to e4m3")
					return
				}
				spec := b.Check(Family.Lower, ctx)
				require.Equal(t, ir.FamilyFused, spec.Family)
				t.Log(spec.Schedule)
				kerneltest.Assemble(t, spec, ctx.Target)
			})
		}
	}
}

// TestEveryScheduleExpands runs candidates: part of the image is the tile's, columns beyond the matrix, channels
// beyond the last one.
func TestEveryScheduleExpands(t *testing.T) {
	c := expandCase{h: 11, w: 19, k: 40, c: 72, n: 40, window: [2]int{3, 3}, stride: 1, pad: 1, x: f16, between: f16, residual: true}
	narrow := c
	narrow.narrow = twice
	for _, x := range []struct {
		expandCase
		each, least int
	}{{c, 11, 25}, {narrow, 5, 8}} {
		b, ctx := x.region(t), sm121(t)
		p, err := normaliseFor(b.Node, ctx.Target)
		require.NoError(t, err)
		pl, err := newPlan(p, ctx)
		require.NoError(t, err)
		tried := 0
		for i, s := range candidates(p) {
			if i%x.each == 0 && s.valid(p, ctx.Target) == nil && pl.fits(s) == nil {
				b.CheckSpec(write(p, pl.at(p, s), s, ctx.Target), ctx.Target)
				tried++
			}
		}
		t.Log(tried, "schedules")
		require.Greater(t, tried, x.least)
	}
}

// TestExpansionsChangeNoBit: the kernel computes what an expansion and the fused rest compute, where both expansions
// add products in the same order.
func TestExpansionsChangeNoBit(t *testing.T) {
	for _, c := range []expandCase{
		{h: 9, w: 13, k: 24, c: 72, n: 40, window: [2]int{3, 3}, stride: 1, pad: 1, x: f16, between: f16, residual: false},
		{h: 10, w: 12, k: 32, c: 48, n: 16, window: [2]int{5, 5}, stride: 2, pad: 2, x: bf16, between: bf16, gated: true, images: 2},
		{h: 9, w: 13, k: 12, c: 24, n: 16, window: [2]int{3, 3}, stride: 1, pad: 1, x: f32, between: f32},
		{h: 9, w: 13, k: 24, c: 72, n: 40, window: [2]int{3, 3}, stride: 1, pad: 1, x: e4m3, between: f16, narrow: all8},
		{h: 9, w: 13, k: 40, c: 72, n: 40, window: [2]int{3, 3}, stride: 1, pad: 1, x: e4m3, between: f16, narrow: all8, members: 2},
		{h: 9, w: 13, k: 24, c: 72, n: 24, window: [2]int{3, 3}, stride: 1, pad: 1, x: f16, between: f16, residual: true, narrow: twice},
		{h: 10, w: 12, k: 40, c: 72, n: 40, window: [2]int{5, 5}, stride: 2, pad: 2, x: f16, between: f16, narrow: narrowExpansion{weights: e4m3, projected: e4m3}},
		{h: 10, w: 12, k: 40, c: 72, n: 40, window: [2]int{5, 5}, stride: 2, pad: 2, x: f16, between: f16, narrow: narrowExpansion{weights: e4m3, round: true, projected: e4m3, slid: e4m3}, gated: true},
		{h: 10, w: 12, k: 32, c: 72, n: 16, window: [2]int{3, 3}, stride: 1, pad: 0, x: e4m3, between: f16, narrow: all8, partial: true},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			parts := c.parts(t)
			last := parts[2]
			nodes := []*ir.Node{parts[0].Node, parts[1].Node, parts[2].Node}
			fused, ctx := ir.NewFused(nodes, false), sm121(t)
			if c.partial {
				ctx = keeping(t, 13)
			}
			s := Schedule{BM: 32, BN: 64, BK: 32, WarpsM: 2, WarpsN: 2, WarpsK: 1, SplitK: 1, Stages: 3}
			if c.x == f32 {
				s = Schedule{BM: 32, BN: 64, BK: 16, WarpsM: 4, WarpsN: 1, WarpsK: 1, SplitK: 1, Stages: 3, ThreadM: 4, ThreadN: 4}
			}
			kernelOf := func(n *ir.Node) *kernel.Spec {
				p, err := normaliseFor(n, ctx.Target)
				require.NoError(t, err)
				pl, err := newPlan(p, ctx)
				require.NoError(t, err)
				require.NoError(t, s.valid(p, ctx.Target))
				return write(p, pl.at(p, s), s, ctx.Target)
			}
			data := maps.Clone(last.Data)
			one := kerneltest.Run(t, kernelOf(fused), ctx.Target, data)[last.Node.Outputs[0]]
			for _, n := range []*ir.Node{nodes[0], ir.NewFused(nodes[1:], false)} {
				maps.Copy(data, kerneltest.Run(t, kernelOf(n), ctx.Target, data))
			}
			two := data[last.Node.Outputs[0]]
			require.NotEmpty(t, one.Dense())
			require.Equal(t, two.Dense(), one.Dense())
		})
	}
}

func TestInvertedResidual_RefusesOtherRegions(t *testing.T) {
	good := expandCase{h: 6, w: 6, k: 16, c: 24, n: 8, window: [2]int{3, 3}, stride: 1, pad: 1, x: f16, between: f16}
	for reason, edit := range map[string]func(c *expandCase){
		"pixels of 13 elements of f16 are not whole words": func(c *expandCase) { c.k = 13 },
		"pixels of f16 multiplied as f32":                  func(c *expandCase) { c.narrow.weights = f32 },
		"pixels of 264 elements":                           func(c *expandCase) { c.k = 264 },
		"12 channels of f16 are not whole vectors":         func(c *expandCase) { c.c = 12 },
		"an image of e4m3":                                 func(c *expandCase) { c.between = e4m3 },
	} {
		c := good
		edit(&c)
		_, err := Family.Lower(c.region(t).Node, sm121(t))
		require.ErrorContains(t, err, reason)
	}
}
