package contraction

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/internal/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

// rowsCase is a product of rows that are normalised, [m,k] by [k,n].
type rowsCase struct {
	op       string
	m, k, n  int
	x, a, w  ir.DType // of what is normalised, of A and of the weights
	members  int
	gain     bool
	variable bool // so are the weights
}

// region is the chain; the returned region checks it.
func (c rowsCase) region(t testing.TB) *kerneltest.Region {
	g := kerneltest.NewGraph(t, "g")
	first, second := g.Region(ir.FamilyLoop), g.Region(ir.FamilyContraction)
	if c.members > 0 {
		first.Members(c.members)
		second.Members(c.members)
	}
	in := []*ir.Value{first.Cast(first.Input(ir.T(c.x, 1, c.m, c.k), 3, false, true), f32)}
	if c.gain {
		in = append(in, first.Input(ir.T(f32, c.k), 1, true, true), first.Input(ir.T(f32, c.k), 1, true, true))
	}
	y := first.Finish(first.Cast(first.Add(c.op, ir.Attrs{"axis": 2}, in...), c.a)).Outputs[0]
	a := second.Cast(second.Read(y, true), f32)
	w := second.Cast(second.Input(ir.T(c.w, c.k, c.n), 0.1, !c.variable, true), f32)
	b := second.Input(ir.T(f32, c.n), 1, true, true)
	second.Finish(second.Cast(second.Add("Add", nil, second.Add("MatMul", nil, a, w), b), f16))
	return joined(first, second)
}

// joined makes two regions of a graph a chain.
func joined(first, second *kerneltest.Region) *kerneltest.Region {
	second.Node = ir.NewChain(first.Node, second.Node, false)
	second.Nodes, second.Outputs = []*ir.Node{second.Node}, second.Node.Outputs
	return second
}

func TestRowsInFrontOfAProductEqualTheReference(t *testing.T) {
	for _, c := range []rowsCase{
		{op: "LayerNorm", m: 25, k: 384, n: 96, x: f32, a: f16, w: f16, gain: true},
		{op: "LayerNorm", m: 1, k: 200, n: 10, x: f16, a: f16, w: f16},
		{op: "RMSNorm", m: 70, k: 136, n: 72, x: f16, a: bf16, w: bf16},
		{op: "Softmax", m: 40, k: 64, n: 64, x: f32, a: f16, w: f16, members: 2},
		{op: "LayerNorm", m: 33, k: 96, n: 40, x: f32, a: e4m3, w: e4m3, gain: true, members: 2},
		{op: "LayerNorm", m: 33, k: 100, n: 40, x: f32, a: f32, w: f32, gain: true},
		{op: "LayerNorm", m: 33, k: 130, n: 40, x: f16, a: f16, w: f16, variable: true},
	} {
		for _, target := range []string{"sm_121", "sm_90", "sm_80"} {
			t.Run(fmt.Sprintf("%s %+v", target, c), func(t *testing.T) {
				if c.a == e4m3 && target == "sm_80" {
					t.Skip("stores no e4m3")
				}
				b := c.region(t)
				ctx := kerneltest.Target(t, target)
				spec := b.Check(Lower, ctx)
				require.Equal(t, ir.FamilyChain, spec.Family)
				kerneltest.Assemble(t, spec, ctx.Target)
			})
		}
	}
}

// slideCase is a 1x1 convolution behind a depthwise one of a window [k,k].
type slideCase struct {
	h, w, c, n      int
	k, stride, pad  int
	x, a, weights   ir.DType
	members, images int
}

func (c slideCase) region(t testing.TB) *kerneltest.Region {
	g := kerneltest.NewGraph(t, "g")
	first, second := g.Region(ir.FamilyWindow), g.Region(ir.FamilyContraction)
	if c.members > 0 {
		first.Members(c.members)
		second.Members(c.members)
	}
	attrs := ir.Attrs{"layout": "NHWC", "group": c.c, "strides": []int{c.stride, c.stride}, "dilations": []int{1, 1}, "pads": []int{c.pad, c.pad, c.pad, c.pad}}
	x := first.Cast(first.Input(ir.T(c.x, max(1, c.images), c.h, c.w, c.c), 1, false, true), f32)
	taps, bias := first.Input(ir.T(f32, c.c, 1, c.k, c.k), 0.3, true, true), first.Input(ir.T(f32, c.c), 1, true, true)
	y := first.Finish(first.Cast(first.Add("Relu", nil, first.Add("Conv", attrs, x, taps, bias)), c.a)).Outputs[0]
	a := second.Cast(second.Read(y, true), f32)
	w := second.Cast(second.Input(ir.T(c.weights, c.n, c.c, 1, 1), 0.1, true, true), f32)
	one := ir.Attrs{"layout": "NHWC", "group": 1, "strides": []int{1, 1}, "dilations": []int{1, 1}, "pads": []int{0, 0, 0, 0}}
	second.Finish(second.Cast(second.Add("Conv", one, a, w, second.Input(ir.T(f32, c.n), 1, true, true)), f16))
	return joined(first, second)
}

func TestWindowsInFrontOfAProductEqualTheReference(t *testing.T) {
	for _, c := range []slideCase{
		{h: 10, w: 20, c: 48, n: 24, k: 3, stride: 1, pad: 1, x: f16, a: f16, weights: f16},
		{h: 21, w: 13, c: 144, n: 40, k: 5, stride: 2, pad: 2, x: f16, a: f16, weights: f16, images: 2},
		{h: 9, w: 9, c: 40, n: 16, k: 7, stride: 1, pad: 3, x: bf16, a: bf16, weights: bf16, members: 2},
		{h: 9, w: 11, c: 24, n: 16, k: 3, stride: 1, pad: 0, x: f32, a: f32, weights: f32},
		{h: 12, w: 12, c: 64, n: 32, k: 3, stride: 2, pad: 1, x: f16, a: e4m3, weights: e4m3},
	} {
		for _, target := range []string{"sm_121", "sm_90", "sm_80"} {
			t.Run(fmt.Sprintf("%s %+v", target, c), func(t *testing.T) {
				if c.a == e4m3 && target == "sm_80" {
					t.Skip("stores no e4m3")
				}
				b := c.region(t)
				ctx := kerneltest.Target(t, target)
				kerneltest.Assemble(t, b.Check(Lower, ctx), ctx.Target)
			})
		}
	}
}

func TestEveryScheduleSlidesItsWindows(t *testing.T) {
	b, ctx := slideCase{h: 11, w: 9, c: 72, n: 40, k: 3, stride: 1, pad: 1, x: f16, a: f16, weights: f16}.region(t), sm121(t)
	everySchedule(t, b, ctx)
}

// TestEveryScheduleHasItsRows runs candidates as TestEveryScheduleComputesTheSame does: blocks with some of the chunks of K each, rows that
// several warps take in turn, columns beyond K.
func TestEveryScheduleHasItsRows(t *testing.T) {
	b, ctx := rowsCase{op: "LayerNorm", m: 40, k: 200, n: 72, x: f32, a: f16, w: f16, gain: true}.region(t), sm121(t)
	everySchedule(t, b, ctx)
}

func everySchedule(t *testing.T, b *kerneltest.Region, ctx *kernel.Context) {
	t.Helper()
	p, err := normaliseFor(b.Node, ctx.Target)
	require.NoError(t, err)
	pl, err := newPlan(p, ctx)
	require.NoError(t, err)
	valid := slices.DeleteFunc(candidates(p), func(s Schedule) bool { return s.valid(p, ctx.Target) != nil || pl.fits(s) != nil })
	tried := valid
	if !fulltest.Runs(t.Name()) {
		tried = threewise(valid)
	}
	require.Greater(t, len(tried), 15)
	t.Logf("%d of %d schedules", len(tried), len(valid))
	for _, s := range tried {
		b.CheckSpec(write(p, pl.at(p, s), s, ctx.Target), ctx.Target)
	}
}

func TestWhatNoPrologueComputesIsRefused(t *testing.T) {
	_, err := Lower(rowsCase{op: "LayerNorm", m: 5, k: 33, n: 8, x: f32, a: f16, w: f16}.region(t).Node, sm121(t))
	require.ErrorContains(t, err, "not whole words")
}
