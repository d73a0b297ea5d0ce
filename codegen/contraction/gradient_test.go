package contraction

import (
	"fmt"
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

// weightGradient is the gradient of the weights of a convolution of x [n,h,w,group·c] whose result's is dy
// [n,oh,ow,group·out]: x by dy, over positions in place of taps, images in place of channels and channels in place of
// images (ir, gradConv).
type weightGradient struct {
	n, h, w, c, out, kh, kw, stride, dilation, pad, group int
	dtype                                                 ir.DType
}

func (c weightGradient) size(in, taps int) int {
	return (in+2*c.pad-(taps-1)*c.dilation-1)/c.stride + 1
}

func (c weightGradient) region(b *kerneltest.Region) *ir.Node {
	oh, ow := c.size(c.h, c.kh), c.size(c.w, c.kw)
	x := b.Cast(b.Input(ir.T(c.dtype, c.n, c.h, c.w, c.group*c.c), 1, false, false), f32)
	dy := b.Cast(b.Input(ir.T(c.dtype, c.n, oh, ow, c.group*c.out), 1, false, false), f32)
	if c.group > 1 {
		x = b.Add("Reshape", ir.Attrs{"shape": []int{c.n, c.h, c.w, c.group, c.c}}, x)
		x = b.Add("Transpose", ir.Attrs{"perm": []int{4, 1, 2, 3, 0}}, x)
		x = b.Add("Reshape", ir.Attrs{"shape": []int{c.c, c.h, c.w, c.group * c.n}}, x)
	} else {
		x = b.Add("Transpose", ir.Attrs{"perm": []int{3, 1, 2, 0}}, x)
	}
	dy = b.Add("Transpose", ir.Attrs{"perm": []int{3, 0, 1, 2}}, dy)
	end := func(in, out, taps int) int { return (taps-1)*c.dilation + (out-1)*c.stride + 1 - in - c.pad }
	y := b.Add("Conv", ir.Attrs{"strides": []int{c.dilation, c.dilation}, "dilations": []int{c.stride, c.stride}, "group": c.group, "layout": "NHWC",
		"pads": []int{c.pad, c.pad, end(c.h, oh, c.kh), end(c.w, ow, c.kw)}}, x, dy)
	return b.Finish(b.Add("Transpose", ir.Attrs{"perm": []int{3, 0, 1, 2}}, y))
}

var weightGradients = []weightGradient{
	{n: 1, h: 8, w: 16, c: 64, out: 16, kh: 1, kw: 1, stride: 1, dilation: 1, group: 1},
	{n: 2, h: 7, w: 5, c: 24, out: 16, kh: 3, kw: 3, stride: 1, dilation: 1, pad: 1, group: 1},
	{n: 2, h: 9, w: 12, c: 16, out: 8, kh: 3, kw: 2, stride: 2, dilation: 1, pad: 1, group: 1},
	{n: 3, h: 6, w: 6, c: 12, out: 6, kh: 2, kw: 2, stride: 2, dilation: 1, group: 1},
	{n: 1, h: 7, w: 6, c: 3, out: 5, kh: 3, kw: 3, stride: 1, dilation: 2, pad: 2, group: 1},
	{n: 2, h: 6, w: 5, c: 8, out: 16, kh: 3, kw: 3, stride: 1, dilation: 1, pad: 1, group: 3},
	{n: 1, h: 32, w: 24, c: 40, out: 16, kh: 1, kw: 1, stride: 1, dilation: 1, group: 1},
	{n: 4, h: 64, w: 64, c: 16, out: 2, kh: 1, kw: 1, stride: 1, dilation: 1, group: 1},
}

func TestWeightGradientsEqualTheReference(t *testing.T) {
	for _, d := range []ir.DType{f16, bf16, f32} {
		for _, c := range weightGradients {
			c.dtype = d
			t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
				b := newRegion(t)
				c.region(b)
				b.Check(Family.Lower, sm121(t))
			})
		}
	}
}

// TestWeightGradientsReadNeighbours: channels are read 16 bytes at a time although K runs over positions, transposed by
// ldmatrix, and a long K is split.
func TestWeightGradientsReadNeighbours(t *testing.T) {
	for i, d := range []ir.DType{f16, bf16, f32} {
		b := newRegion(t)
		region := weightGradient{n: 8, h: 16, w: 32, c: 128, out: 16, kh: 3, kw: 3, stride: 1, dilation: 1, pad: 1, group: 1, dtype: d}.region(b)
		spec, err := Family.Lower(region, sm121(t))
		require.NoError(t, err)
		require.Contains(t, spec.Schedule, "splitk")
		require.Greater(t, kerneltest.Inspect(spec).Wide(), 0.9)
		if d != f32 {
			require.Contains(t, spec.Build(target.Default(), "k").String(), ".x4.trans.")
		}
		assemble(t, region, i)
	}
}

// TestGradientsOfLowRankSplitFurther: the sums of an adapter's weights over all positions of a batch are so few that
// 16 blocks of a tile leave multiprocessors without one.
func TestGradientsOfLowRankSplitFurther(t *testing.T) {
	b := newRegion(t)
	spec, err := Family.Lower(weightGradient{n: 8, h: 32, w: 64, c: 64, out: 2, kh: 1, kw: 1, stride: 1, dilation: 1, group: 1, dtype: bf16}.region(b), sm121(t))
	require.NoError(t, err)
	var split int
	_, err = fmt.Sscanf(spec.Schedule[strings.Index(spec.Schedule, "splitk"):], "splitk=%d", &split)
	require.NoError(t, err, spec.Schedule)
	require.Greater(t, split, 16, spec.Schedule)
}

// TestEveryScheduleOfRowsOfK is TestEveryScheduleComputesTheSame for an A that lies in rows of K.
func TestEveryScheduleOfRowsOfK(t *testing.T) {
	fulltest.Long(t)
	for _, d := range bothTypes {
		b, ctx := newRegion(t), sm121(t)
		region := batchedCase{h: 1, m: 40, k: 200, n: 72, dtype: d, transA: true}.region(b)
		p, err := normalise(region)
		require.NoError(t, err)
		pl, err := newPlan(p, ctx)
		require.NoError(t, err)
		require.True(t, pl.loadA.kRows)
		tried := slices.DeleteFunc(candidates(p), func(s Schedule) bool { return s.valid(p, ctx.Target) != nil || pl.fits(s) != nil })
		if !fulltest.Runs(t.Name()) {
			tried = threewise(tried)
		}
		require.Greater(t, len(tried), 15)
		for _, s := range tried {
			b.CheckSpec(write(p, pl.at(p, s), s, ctx.Target), ctx.Target)
		}
	}
}

// TestRandomVariableConvolutions draws convolutions whose weights are not constant, as they are and moved: flipped
// and with channels exchanged, as data gradients have them.
func TestRandomVariableConvolutions(t *testing.T) {
	rng := rand.New(rand.NewSource(11))
	for i := range 40 {
		pick := func(xs ...int) int { return xs[rng.Intn(len(xs))] }
		d, group := []ir.DType{f16, f32, bf16}[i%3], pick(1, 1, 2)
		c, out, kh, kw := pick(1, 2, 8, 16, 24), pick(1, 3, 8, 16, 40), pick(1, 1, 3), pick(1, 1, 2, 3)
		if c == 1 {
			group = 1
		}
		n, h, w := pick(1, 2), 4+rng.Intn(6), 4+rng.Intn(6)
		attrs := ir.Attrs{"strides": []int{pick(1, 1, 2), pick(1, 1, 2)}, "pads": []int{pick(0, 1), pick(0, 1), pick(0, 1, -1), pick(0, 1)}, "dilations": []int{1, 1}, "group": group, "layout": "NHWC"}
		flipped := rng.Intn(2) == 0
		t.Run(fmt.Sprintf("%d %v %d×%d×%d×%d by %d×%d×%d flipped=%v %v", i, d, n, h, w, c*group, out*group, kh, kw, flipped, attrs), func(t *testing.T) {
			b := newRegion(t)
			x := b.Cast(b.Input(ir.T(d, n, h, w, c*group), 1, false, false), f32)
			var wt *ir.Value
			if flipped && group == 1 {
				wt = b.Cast(b.Input(ir.T(d, c, out, kh, kw), 0.3, false, false), f32)
				wt = b.Add("Transpose", ir.Attrs{"perm": []int{1, 0, 2, 3}}, wt)
				wt = b.Add("Slice", ir.Attrs{"starts": []int{0, 0, kh - 1, kw - 1}, "sizes": []int{out, c, kh, kw}, "steps": []int{1, 1, -1, -1}}, wt)
			} else {
				wt = b.Cast(b.Input(ir.T(d, out*group, c, kh, kw), 0.3, false, false), f32)
			}
			b.Finish(b.Cast(b.Add("Conv", attrs, x, wt), d))
			b.Check(Family.Lower, kerneltest.Target(t, target.Names()[i%3]))
		})
	}
}
