package contraction

import (
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/kerneltest"
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
	x := expansion.Input(ir.T(c.x, shape...), 1, false, true)
	var y *ir.Value
	if c.matmul {
		y = expansion.Add("MatMul", nil, expansion.Cast(x, f32), expansion.Cast(expansion.Input(ir.T(c.x, c.k, c.c), 0.3, true, true), f32))
	} else {
		in := []*ir.Value{expansion.Cast(x, f32), expansion.Cast(expansion.Input(ir.T(c.x, c.c, c.k, 1, 1), 0.3, true, true), f32)}
		if !c.unbiassed {
			in = append(in, expansion.Input(ir.T(f32, c.c), 1, true, true))
		}
		y = expansion.Add("Conv", conv(1, 1, 0), in...)
	}
	if c.gated { // what follows reads every channel's scale, and every pixel
		y = expansion.Add("Mul", nil, y, expansion.Input(ir.T(f32, c.c), 1, true, true))
		y = expansion.Add("Add", nil, y, expansion.Input(ir.T(f32, append(shape[:3:3], 1)...), 1, false, true))
	}
	hidden := expansion.Finish(expansion.Cast(expansion.Add("Relu", nil, y), c.between)).Outputs[0]
	taps, bias := depthwise.Input(ir.T(f32, c.c, 1, c.window[0], c.window[1]), 0.3, true, true), depthwise.Input(ir.T(f32, c.c), 1, true, true)
	image := depthwise.Cast(depthwise.Read(hidden, true), f32)
	slid := depthwise.Finish(depthwise.Cast(depthwise.Add("Relu", nil, depthwise.Add("Conv", conv(c.c, c.stride, c.pad), image, taps, bias)), c.between)).Outputs[0]
	a := projection.Cast(projection.Read(slid, true), f32)
	w := projection.Cast(projection.Input(ir.T(c.between, c.n, c.c, 1, 1), 0.1, true, true), f32)
	z := projection.Add("Conv", conv(1, 1, 0), a, w, projection.Input(ir.T(f32, c.n), 1, true, true))
	if c.residual {
		z = projection.Add("Add", nil, z, projection.Cast(projection.Input(ir.T(c.x, shape...), 1, false, true), f32))
	}
	projection.Finish(projection.Cast(z, c.x))
	return list
}

func (c expandCase) region(t testing.TB) *kerneltest.Region {
	p := c.parts(t)
	return joined(p[0], p[1], p[2])
}

func TestInvertedResidualsEqualTheReference(t *testing.T) {
	for _, c := range []expandCase{
		{h: 10, w: 20, k: 16, c: 48, n: 24, window: [2]int{3, 3}, stride: 1, pad: 1, x: f16, between: f16},
		{h: 9, w: 7, k: 24, c: 40, n: 24, window: [2]int{3, 3}, stride: 1, pad: 1, x: f16, between: f16, residual: true, images: 2},
		{h: 21, w: 13, k: 40, c: 72, n: 40, window: [2]int{5, 5}, stride: 2, pad: 2, x: f16, between: f16, images: 2},
		{h: 11, w: 9, k: 16, c: 24, n: 8, window: [2]int{3, 5}, stride: 2, pad: 1, x: bf16, between: bf16, members: 2, unbiassed: true},
		{h: 9, w: 11, k: 12, c: 24, n: 16, window: [2]int{3, 3}, stride: 1, pad: 0, x: f32, between: f32, gated: true},
		{h: 9, w: 11, k: 8, c: 40, n: 8, window: [2]int{5, 5}, stride: 1, pad: 2, x: f32, between: f32, members: 2, residual: true},
		{h: 8, w: 8, k: 8, c: 24, n: 130, window: [2]int{3, 3}, stride: 1, pad: 1, x: f16, between: f16, gated: true, matmul: true},
		{h: 5, w: 6, k: 16, c: 8, n: 8, window: [2]int{1, 1}, stride: 1, pad: 0, x: f16, between: f16},
	} {
		for _, target := range []string{"sm_121", "sm_90", "sm_80"} {
			t.Run(fmt.Sprintf("%s %+v", target, c), func(t *testing.T) {
				b := c.region(t)
				ctx := kerneltest.Target(t, target)
				spec := b.Check(Family.Lower, ctx)
				require.Equal(t, ir.FamilyChain, spec.Family)
				t.Log(spec.Schedule)
				kerneltest.Assemble(t, spec, ctx.Target)
			})
		}
	}
}

// TestEveryScheduleExpands runs candidates: part of the image is the tile's, columns beyond the matrix, channels beyond the last one.
func TestEveryScheduleExpands(t *testing.T) {
	c := expandCase{h: 11, w: 19, k: 40, c: 72, n: 40, window: [2]int{3, 3}, stride: 1, pad: 1, x: f16, between: f16, residual: true}
	b, ctx := c.region(t), sm121(t)
	p, err := normaliseFor(b.Node, ctx.Target)
	require.NoError(t, err)
	pl, err := newPlan(p, ctx)
	require.NoError(t, err)
	tried := 0
	for i, s := range candidates(p) {
		if i%11 == 0 && s.valid(p, ctx.Target) == nil && pl.fits(s) == nil {
			b.CheckSpec(write(p, pl.at(p, s), s, ctx.Target), ctx.Target)
			tried++
		}
	}
	t.Log(tried, "schedules")
	require.Greater(t, tried, 30)
}

// TestExpansionsChangeNoBit: the kernel has the results of an expansion and a chain of the rest, where both expansions add products in the same order.
func TestExpansionsChangeNoBit(t *testing.T) {
	for _, c := range []expandCase{
		{h: 9, w: 13, k: 24, c: 72, n: 40, window: [2]int{3, 3}, stride: 1, pad: 1, x: f16, between: f16, residual: false},
		{h: 10, w: 12, k: 32, c: 48, n: 16, window: [2]int{5, 5}, stride: 2, pad: 2, x: bf16, between: bf16, gated: true, images: 2},
		{h: 9, w: 13, k: 12, c: 24, n: 16, window: [2]int{3, 3}, stride: 1, pad: 1, x: f32, between: f32},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			parts := c.parts(t)
			last := parts[2]
			nodes := []*ir.Node{parts[0].Node, parts[1].Node, parts[2].Node}
			chain, ctx := ir.NewChain(nodes, false), sm121(t)
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
			one := kerneltest.Run(t, kernelOf(chain), ctx.Target, data)[last.Node.Outputs[0]]
			for _, n := range []*ir.Node{nodes[0], ir.NewChain(nodes[1:], false)} {
				maps.Copy(data, kerneltest.Run(t, kernelOf(n), ctx.Target, data))
			}
			two := data[last.Node.Outputs[0]]
			require.NotEmpty(t, one.Dense())
			require.Equal(t, two.Dense(), one.Dense())
		})
	}
}

func TestWhatNoExpansionComputesIsRefused(t *testing.T) {
	good := expandCase{h: 6, w: 6, k: 16, c: 24, n: 8, window: [2]int{3, 3}, stride: 1, pad: 1, x: f16, between: f16}
	for reason, edit := range map[string]func(c *expandCase){
		"pixels of 12 elements of f16 are not whole vectors": func(c *expandCase) { c.k = 12 },
		"pixels of 264 elements":                             func(c *expandCase) { c.k = 264 },
		"12 channels of f16 are not whole vectors":           func(c *expandCase) { c.c = 12 },
		"an image of e4m3":                                   func(c *expandCase) { c.between = e4m3 },
	} {
		c := good
		edit(&c)
		_, err := Family.Lower(c.region(t).Node, sm121(t))
		require.ErrorContains(t, err, reason)
	}
}
