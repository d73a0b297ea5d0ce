package contraction

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/codegen/loop"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
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

// region is the fused region; the returned region checks it.
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
	a := passed(first, second, first.Add(c.op, ir.Attrs{"axis": 2}, in...), c.a)
	w := weightsOf(second, c.w, c.k, c.n, 0.1, !c.variable)
	b := second.Input(ir.T(f32, c.n), 1, true, true)
	second.Finish(second.Cast(second.Add("Add", nil, second.Add("MatMul", nil, a, w), b), f16))
	return joined(first, second)
}

// passed ends a region with a value that another one reads, stored as d: e2m1 in blocks.
func passed(first, second *kerneltest.Region, y *ir.Value, d ir.DType) *ir.Value {
	if d != e2m1 {
		return second.Cast(second.Read(first.Finish(first.Cast(y, d)).Outputs[0], true), f32)
	}
	out := first.FinishBlocks(y, 0.013).Outputs
	codes, last := second.Read(out[0], true), y.Type.Rank()-1
	return second.Dequantise(last, blockSize, codes, out[1])
}

// weightsOf are weights [k,n] of type d: e2m1 in blocks along k.
func weightsOf(b *kerneltest.Region, d ir.DType, k, n int, size float64, constant bool) *ir.Value {
	if d != e2m1 {
		return b.Cast(b.Input(ir.T(d, k, n), size, constant, true), f32)
	}
	return b.Dequantise(0, blockSize, b.Input(ir.T(d, k, n), 2, true, true), scales(b, []int{ceilDiv(k, blockSize), n}, true, true))
}

// joined fuses regions of a graph.
func joined(parts ...*kerneltest.Region) *kerneltest.Region {
	var nodes []*ir.Node
	for _, r := range parts {
		nodes = append(nodes, r.Node)
	}
	last := parts[len(parts)-1]
	last.Node = ir.NewFused(nodes, false)
	last.Nodes, last.Outputs = []*ir.Node{last.Node}, last.Node.Outputs
	return last
}

// onTargets checks the fused region of a case, whose A has a type, against the reference and with ptxas on three
// targets. Targets that do not multiply the type reject it.
func onTargets(t *testing.T, c any, a ir.DType, region func(t testing.TB) *kerneltest.Region) {
	for _, target := range []string{"sm_121", "sm_90", "sm_80"} {
		t.Run(fmt.Sprintf("%s %+v", target, c), func(t *testing.T) {
			if a == e4m3 && target == "sm_80" {
				t.Skip("stores no e4m3")
			}
			b, ctx := region(t), kerneltest.Target(t, target)
			if !ctx.Target.Multiplies(a.String()) {
				_, err := Family.Lower(b.Node, ctx)
				require.ErrorContains(t, err, "does not multiply e2m1")
				return
			}
			spec := b.Check(Family.Lower, ctx)
			require.Equal(t, ir.FamilyFused, spec.Family)
			t.Log(spec.Schedule, spec.Grid, spec.Shared)
			kerneltest.Assemble(t, spec, ctx.Target)
		})
	}
}

func TestRowsProducer_EqualsTheReference(t *testing.T) {
	fulltest.Long(t)
	for _, c := range []rowsCase{
		{op: "LayerNorm", m: 25, k: 384, n: 96, x: f32, a: f16, w: f16, gain: true},
		{op: "LayerNorm", m: 1, k: 200, n: 10, x: f16, a: f16, w: f16},
		{op: "RMSNorm", m: 70, k: 136, n: 72, x: f16, a: bf16, w: bf16},
		{op: "Softmax", m: 40, k: 64, n: 64, x: f32, a: f16, w: f16, members: 2},
		{op: "LayerNorm", m: 33, k: 96, n: 40, x: f32, a: e4m3, w: e4m3, gain: true, members: 2},
		{op: "LayerNorm", m: 33, k: 100, n: 40, x: f32, a: f32, w: f32, gain: true},
		{op: "LayerNorm", m: 25, k: 384, n: 96, x: f32, a: e2m1, w: e2m1, gain: true},
		{op: "RMSNorm", m: 1, k: 16, n: 10, x: f16, a: e2m1, w: e2m1},
		{op: "Softmax", m: 70, k: 208, n: 72, x: f32, a: e2m1, w: e2m1, members: 2},
		{op: "LayerNorm", m: 33, k: 130, n: 40, x: f16, a: f16, w: f16, variable: true},
	} {
		onTargets(t, c, c.a, c.region)
	}
}

// slideCase is a 1x1 convolution after a depthwise one with a window [k,k].
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

func TestWindowProducer_EqualsTheReference(t *testing.T) {
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
				kerneltest.Assemble(t, b.Check(Family.Lower, ctx), ctx.Target)
			})
		}
	}
}

func TestEveryScheduleSlidesItsWindows(t *testing.T) {
	b, ctx := slideCase{h: 11, w: 9, c: 72, n: 40, k: 3, stride: 1, pad: 1, x: f16, a: f16, weights: f16}.region(t), sm121(t)
	everySchedule(t, b, ctx)
}

// TestEveryScheduleHasItsRows runs candidates as TestEveryScheduleComputesTheSame does: blocks with some of the
// chunks of K each, rows that several warps take in turn, columns beyond K.
func TestEveryScheduleHasItsRows(t *testing.T) {
	fulltest.Long(t)
	for _, c := range []rowsCase{
		{op: "LayerNorm", m: 40, k: 200, n: 72, x: f32, a: f16, w: f16, gain: true},
		{op: "LayerNorm", m: 40, k: 208, n: 72, x: f32, a: e2m1, w: e2m1, gain: true},
	} {
		everySchedule(t, c.region(t), sm121(t))
	}
}

// TestRowsAreTheSameInEveryTurn: few lanes of many rows or all lanes of one, several rows of a lane at once, in one
// turn or several, warps whose rows are all beyond the matrix.
func TestRowsAreTheSameInEveryTurn(t *testing.T) {
	for _, c := range []rowsCase{
		{op: "LayerNorm", m: 25, k: 384, n: 24, x: f32, a: f16, w: f16, gain: true},
		{op: "Softmax", m: 70, k: 136, n: 24, x: f16, a: f16, w: f16, members: 2},
		{op: "LayerNorm", m: 33, k: 96, n: 24, x: f32, a: e4m3, w: e4m3},
		{op: "RMSNorm", m: 1, k: 40, n: 24, x: f32, a: f32, w: f32},
		{op: "LayerNorm", m: 25, k: 384, n: 24, x: f32, a: e2m1, w: e2m1},
		{op: "RMSNorm", m: 70, k: 144, n: 24, x: f16, a: e2m1, w: e2m1, members: 2},
	} {
		b, ctx := c.region(t), sm121(t)
		p, err := normaliseFor(b.Node, ctx.Target)
		require.NoError(t, err)
		pl, err := newPlan(p, ctx)
		require.NoError(t, err)
		r := p.producer.(*rowsProducer)
		tried := map[turn]bool{}
		for _, s := range candidates(p) {
			if s.valid(p, ctx.Target) != nil || pl.fits(s) != nil {
				continue
			}
			for _, w := range r.turns(s) {
				if !tried[w] {
					tried[w] = true
					r.turn(s)
					for key := range r.chosen {
						r.chosen[key] = w
					}
					b.CheckSpec(write(p, pl.at(p, s), s, ctx.Target), ctx.Target)
					clear(r.chosen)
				}
			}
		}
		require.Greater(t, len(tried), 5, "%+v", c)
	}
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

func TestProducer_RefusesOtherRegions(t *testing.T) {
	_, err := Family.Lower(rowsCase{op: "LayerNorm", m: 5, k: 33, n: 8, x: f32, a: f16, w: f16}.region(t).Node, sm121(t))
	require.ErrorContains(t, err, "not whole words")
	// Dataflow allows these, and no kernel computes them.
	kept := slideCase{h: 4, w: 4, c: 16, n: 8, k: 3, stride: 1, pad: 1, x: f16, a: f16, weights: f16}.region(t).Node.Parts()
	require.NoError(t, ir.CheckFusion(kept))
	_, err = Family.Lower(ir.NewFused(kept, true), sm121(t))
	require.ErrorContains(t, err, "has other readers")
	_, err = Family.Lower(rowsCase{op: "CumSum", m: 5, k: 32, n: 8, x: f32, a: f16, w: f16}.region(t).Node, sm121(t))
	require.ErrorContains(t, err, "does not normalise rows")
	g := kerneltest.NewGraph(t, "g")
	first, second := g.Region(ir.FamilyWindow), g.Region(ir.FamilyContraction)
	attrs := ir.Attrs{"layout": "NHWC", "kernel": []int{3, 3}, "strides": []int{1, 1}, "dilations": []int{1, 1}, "pads": []int{1, 1, 1, 1}}
	image := passed(first, second, first.Add("MaxPool", attrs, first.Cast(first.Input(ir.T(f16, 1, 4, 4, 16), 1, false, true), f32)), e2m1)
	second.Finish(second.Cast(second.Add("MatMul", nil, image, weightsOf(second, e2m1, 16, 8, 0.1, true)), f16))
	_, err = Family.Lower(joined(first, second).Node, sm121(t))
	require.ErrorContains(t, err, "a window makes no blocks with scales")
	for want, c := range map[string]headsCase{
		"heads of e4m3":                {h: 2, s: 5, d: 16, n: 8, x: f16, a: e4m3, w: e4m3},
		"heads of e2m1":                {h: 2, s: 5, d: 32, n: 8, x: f32, a: e2m1, w: e2m1},
		"heads of 16 elements of e2m1": {h: 4, s: 5, d: 16, n: 8, x: f16, a: e2m1, w: e2m1},
		"heads of 12 elements of f16":  {h: 2, s: 5, d: 12, n: 8, x: f16, a: f16, w: f16},
		"a head of 1000 keys":          {h: 2, s: 5, t: 1000, d: 64, n: 8, x: f16, a: f16, w: f16},
	} {
		_, err := Family.Lower(c.region(t).Node, sm121(t))
		require.ErrorContains(t, err, want)
	}
}

// headsCase is a product of an attention's heads, packed as q, k and v of one tensor [b,s,3·h·d].
type headsCase struct {
	b, h, s, d, n int
	t             int      // keys and values of another tensor, if not 0
	x, a, w       ir.DType // of q, k and v, of A and of the weights
	members       int
	mask, causal  bool
	after         bool // a function of each element after the attention
	variable      bool // so are the weights
}

func (c headsCase) region(t testing.TB) *kerneltest.Region {
	g := kerneltest.NewGraph(t, "g")
	first, second := g.Region(ir.FamilyContraction), g.Region(ir.FamilyContraction)
	if c.members > 0 {
		first.Members(c.members)
		second.Members(c.members)
	}
	b, row := max(1, c.b), c.h*c.d
	part := func(x *ir.Value, rows, i, of int) *ir.Value {
		y := first.Add("Slice", ir.Attrs{"starts": []int{0, 0, i * row}, "sizes": []int{b, rows, row}}, first.Cast(x, f32))
		y = first.Add("Reshape", ir.Attrs{"shape": []int{b, rows, c.h, c.d}}, y)
		return first.Add("Transpose", ir.Attrs{"perm": []int{0, 2, 1, 3}}, y)
	}
	qkv, in := first.Input(ir.T(c.x, b, c.s, 3*row), 1, false, c.members > 0), []*ir.Value(nil)
	if c.t == 0 {
		in = []*ir.Value{part(qkv, c.s, 0, 3), part(qkv, c.s, 1, 3), part(qkv, c.s, 2, 3)}
	} else {
		kv := first.Input(ir.T(c.x, b, c.t, 2*row), 1, false, c.members > 0)
		in = []*ir.Value{part(qkv, c.s, 1, 3), part(kv, c.t, 0, 2), part(kv, c.t, 1, 2)}
	}
	if c.mask {
		in = append(in, first.Cast(first.Input(ir.T(f32, b, 1, c.s, max(c.t, (1-min(c.t, 1))*c.s)), 3, false, c.members > 0), f32))
	}
	y := first.Add("Attention", ir.Attrs{"scale": 0.3, "causal": c.causal}, in...)
	y = first.Add("Transpose", ir.Attrs{"perm": []int{0, 2, 1, 3}}, y)
	y = first.Add("Reshape", ir.Attrs{"shape": []int{b, c.s, row}}, y)
	if c.after {
		y = first.Add("Mul", nil, first.Add("Relu", nil, y), first.Input(ir.T(f32, row), 1, true, true))
	}
	a, w := passed(first, second, y, c.a), weightsOf(second, c.w, row, c.n, 0.1, !c.variable)
	z := second.Add("Add", nil, second.Add("MatMul", nil, a, w), second.Input(ir.T(f32, c.n), 1, true, true))
	second.Finish(second.Cast(second.Add("Add", nil, z, second.Input(ir.T(f32, b, c.s, c.n), 1, false, true)), f16))
	return joined(first, second)
}

func TestAttentionProducer_EqualsTheReference(t *testing.T) {
	fulltest.Long(t)
	for _, c := range []headsCase{
		{h: 6, s: 25, d: 64, n: 384, x: f16, a: f16, w: f16},
		{h: 16, s: 32, d: 32, n: 72, x: f16, a: f16, w: f16, members: 2},
		{b: 2, h: 3, s: 40, d: 32, n: 40, x: bf16, a: bf16, w: bf16, mask: true},
		{h: 2, s: 20, t: 70, d: 16, n: 130, x: f16, a: f16, w: f16, after: true},
		{b: 3, h: 4, s: 7, d: 24, n: 24, x: f16, a: f16, w: f16, causal: true, after: true},
		{h: 5, s: 33, d: 48, n: 40, x: f16, a: f16, w: e4m3, members: 2},
		{h: 4, s: 25, d: 32, n: 40, x: f32, a: f32, w: f32, members: 2},
		{b: 2, h: 2, s: 18, t: 35, d: 20, n: 33, x: f32, a: f32, w: f32, mask: true, after: true},
		{h: 2, s: 25, d: 32, n: 40, x: f32, a: f16, w: f16},
		{h: 2, s: 25, d: 32, n: 40, x: f16, a: f32, w: f32},
		{h: 4, s: 25, d: 32, n: 40, x: f16, a: f16, w: f16, variable: true},
	} {
		for _, target := range []string{"sm_121", "sm_90", "sm_80"} {
			t.Run(fmt.Sprintf("%s %+v", target, c), func(t *testing.T) {
				b := c.region(t)
				b.Limits[f16] = 6e-4 // probabilities are rounded to f16
				ctx := kerneltest.Target(t, target)
				spec := b.Check(Family.Lower, ctx)
				require.Equal(t, ir.FamilyFused, spec.Family)
				t.Log(spec.Schedule)
				kerneltest.Assemble(t, spec, ctx.Target)
			})
		}
	}
}

// TestEveryScheduleHasItsHeads runs candidates as TestEveryScheduleComputesTheSame does: blocks with some of the
// heads each, several at a time and one after the other, rows of two images, columns beyond K.
func TestEveryScheduleHasItsHeads(t *testing.T) {
	fulltest.Long(t)
	for _, c := range []headsCase{
		{b: 2, h: 6, s: 25, d: 32, n: 72, x: f16, a: f16, w: f16, after: true},
		{h: 3, s: 18, t: 40, d: 48, n: 40, x: f16, a: f16, w: f16},
		{h: 5, s: 20, d: 32, n: 40, x: f16, a: f16, w: f16}, // the last blocks have fewer
	} {
		b := c.region(t)
		b.Limits[f16] = 6e-4
		everySchedule(t, b, sm121(t))
	}
}

// TestHeadsChangeNoBit: a fused region's results are those of two launches, if the product has the same schedule. The
// reference's codes of blocks differ, since probabilities are rounded to f16.
func TestHeadsChangeNoBit(t *testing.T) {
	for _, c := range []headsCase{
		{h: 6, s: 25, d: 64, n: 384, x: f16, a: f16, w: f16},
		{h: 16, s: 32, d: 32, n: 72, x: f16, a: f16, w: f16, members: 2},
		{b: 2, h: 3, s: 40, t: 70, d: 32, n: 40, x: bf16, a: bf16, w: bf16, mask: true, after: true},
		{h: 4, s: 25, t: 70, d: 32, n: 40, x: f32, a: f32, w: f32},
		{h: 6, s: 25, d: 64, n: 384, x: f16, a: e2m1, w: e2m1},
		{b: 2, h: 4, s: 18, t: 70, d: 32, n: 40, x: bf16, a: e2m1, w: e2m1, after: true, members: 2},
		{h: 2, s: 33, t: 40, d: 96, n: 40, x: f16, a: e2m1, w: e2m1, mask: true},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) { sameBits(t, c.region(t), Family.Lower, c.a != e2m1) })
	}
}

// TestRowsChangeNoBit: where sums are exact in any order, a fused region's results are those of two launches, if the
// product has the same schedule.
func TestRowsChangeNoBit(t *testing.T) {
	for _, c := range []rowsCase{
		{op: "LayerNorm", m: 33, k: 64, n: 40, x: f32, a: e2m1, w: e2m1, gain: true},
		{op: "LayerNorm", m: 25, k: 128, n: 96, x: f16, a: e2m1, w: e2m1, members: 2},
	} {
		b := c.region(t)
		integers(b, c.x)
		sameBits(t, b, loop.Family.Lower, false)
	}
}

// sameBits compares a fused region with its parts: with the schedule that it chooses, or with several.
func sameBits(t *testing.T, b *kerneltest.Region, lower kerneltest.Lowering, one bool) {
	t.Helper()
	ctx, parts := sm121(t), b.Node.Parts()
	first, err := lower(parts[0], ctx)
	require.NoError(t, err)
	data := maps.Clone(b.Data)
	maps.Copy(data, kerneltest.Run(t, first, ctx.Target, data))
	k, err := Family.Analyse(b.Node, ctx)
	require.NoError(t, err)
	own, err := k.Choose()
	require.NoError(t, err)
	q, err := normaliseFor(parts[1], ctx.Target)
	require.NoError(t, err)
	ql, err := newPlan(q, ctx)
	require.NoError(t, err)
	p, pl, tried := k.(*tiled).p, k.(*tiled).plan, []Schedule{own.Schedule.(Schedule)}
	if !one {
		for _, s := range candidates(p) {
			if s.valid(p, ctx.Target) == nil && pl.fits(s) == nil && s.valid(q, ctx.Target) == nil && ql.fits(s) == nil {
				tried = append(tried, s)
			}
		}
		tried = threewise(tried)
	}
	all := fulltest.Runs(t.Name())
	for i, s := range tried {
		if i%4 > 0 && !all {
			continue
		}
		stride := kerneltest.Run(t, write(q, ql.at(q, s), s, ctx.Target), ctx.Target, data)
		fused := kerneltest.Run(t, write(p, pl.at(p, s), s, ctx.Target), ctx.Target, b.Data)
		require.Equal(t, stride[b.Outputs[0]], fused[b.Outputs[0]], s)
	}
}

// integers makes the variables of a type small integers.
func integers(b *kerneltest.Region, d ir.DType) {
	for v, data := range b.Data {
		if v.Type.DType != d || v.IsConst() {
			continue
		}
		xs := data.Floats()
		for i, x := range xs {
			xs[i] = math.Round(x)
		}
		b.Data[v] = ir.FromFloats(v.Type, xs)
	}
}
