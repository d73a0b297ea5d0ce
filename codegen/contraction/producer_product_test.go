package contraction

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

// productCase is a perceptron: [m,c] by [c,k], and what it makes of that, by [k,n].
type productCase struct {
	m, c, k, n       int
	op               string
	x, w, a, weights ir.DType // of the rows and the first weights, of A and the second weights
	members          int
	residual, gated  bool // the second's result, and the first's, are added to and multiplied with variables
	norm             bool // the rows are normalised
}

func (c productCase) region(t testing.TB) *kerneltest.Region {
	g := kerneltest.NewGraph(t, "g")
	first, second := g.Region(ir.FamilyContraction), g.Region(ir.FamilyContraction)
	if c.members > 0 {
		first.Members(c.members)
		second.Members(c.members)
	}
	parts := []*kerneltest.Region{first, second}
	rows := func() *ir.Value { return first.Cast(first.Input(ir.T(c.x, 1, c.m, c.c), 1, false, true), f32) }
	if c.norm {
		norm := g.Region(ir.FamilyLoop)
		if c.members > 0 {
			norm.Members(c.members)
		}
		in := []*ir.Value{norm.Input(ir.T(f32, 1, c.m, c.c), 3, false, true), norm.Input(ir.T(f32, c.c), 1, true, true), norm.Input(ir.T(f32, c.c), 1, true, true)}
		parts = append([]*kerneltest.Region{norm}, parts...)
		rows = func() *ir.Value { return passed(norm, first, norm.Add("LayerNorm", ir.Attrs{"axis": 2}, in...), c.x) }
	}
	x := rows()
	w := weightsOf(first, c.w, c.c, c.k, 0.2, true)
	sum := first.Add("Add", nil, first.Add("MatMul", nil, x, w), first.Input(ir.T(f32, c.k), 1, true, true))
	up := first.Add(c.op, nil, sum)
	if c.gated {
		up = first.Add("Mul", nil, up, first.Cast(first.Input(ir.T(f16, 1, c.m, c.k), 1, false, true), f32))
	}
	a := passed(first, second, up, c.a)
	v := weightsOf(second, c.weights, c.k, c.n, 0.1, true)
	out := second.Add("MatMul", nil, a, v)
	if c.residual {
		out = second.Add("Add", nil, out, second.Input(ir.T(f32, 1, c.m, c.n), 1, false, true))
	}
	second.Finish(second.Cast(out, f16))
	return joined(parts...)
}

func TestProductProducer_EqualsTheReference(t *testing.T) {
	fulltest.Long(t)
	for _, c := range []productCase{
		{m: 25, c: 384, k: 192, n: 384, op: "Gelu", x: f16, w: f16, a: f16, weights: f16, residual: true},
		{m: 25, c: 384, k: 128, n: 384, op: "Gelu", x: f16, w: f16, a: f16, weights: f16, residual: true, norm: true},
		{m: 33, c: 40, k: 72, n: 24, op: "Relu", x: bf16, w: bf16, a: f16, weights: f16, norm: true, members: 2},
		{m: 70, c: 40, k: 100, n: 24, op: "Relu", x: f16, w: f16, a: bf16, weights: bf16},
		{m: 45, c: 64, k: 80, n: 48, op: "Silu", x: f16, w: f16, a: f16, weights: f16, gated: true},
		{m: 33, c: 96, k: 72, n: 40, op: "Gelu", x: bf16, w: bf16, a: bf16, weights: bf16, members: 2},
		{m: 33, c: 36, k: 50, n: 40, op: "Relu", x: f32, w: f32, a: f32, weights: f32},
		{m: 40, c: 64, k: 96, n: 64, op: "Sigmoid", x: e4m3, w: e4m3, a: e4m3, weights: e4m3},
		{m: 25, c: 128, k: 512, n: 128, op: "Gelu", x: e2m1, w: e2m1, a: e2m1, weights: e2m1, residual: true, norm: true},
		{m: 33, c: 80, k: 208, n: 40, op: "Silu", x: f16, w: e4m3, a: e2m1, weights: e2m1, gated: true, members: 2},
	} {
		onTargets(t, c, c.a, c.region)
	}
}

// TestEveryScheduleMultipliesTwice runs candidates: warps that split K of the first product, hidden units beyond K,
// and blocks with some of the hidden units each.
func TestEveryScheduleMultipliesTwice(t *testing.T) {
	fulltest.Long(t)
	for _, c := range []productCase{
		{m: 40, c: 72, k: 104, n: 72, op: "Gelu", x: f16, w: f16, a: f16, weights: f16, residual: true},
		{m: 40, c: 80, k: 208, n: 72, op: "Gelu", x: e2m1, w: e2m1, a: e2m1, weights: e2m1, norm: true},
	} {
		everySchedule(t, c.region(t), sm121(t))
	}
}

// TestAPerceptronIsItsProductsBitForBit: with one warp for all K of a sum, and no shares of it, the kernel adds as
// its parts do in launches of their own.
func TestAPerceptronIsItsProductsBitForBit(t *testing.T) {
	ctx := sm121(t)
	lowered := func(n *ir.Node, s Schedule) *kernel.Spec {
		p, err := normaliseFor(n, ctx.Target)
		require.NoError(t, err)
		pl, err := newPlan(p, ctx)
		require.NoError(t, err)
		require.NoError(t, s.valid(p, ctx.Target))
		if d, ok := p.producer.(*productProducer); ok {
			require.Equal(t, 1, d.own(s).WarpsK)
		}
		return write(p, pl.at(p, s), s, ctx.Target)
	}
	for _, c := range []productCase{
		{m: 70, c: 72, k: 104, n: 40, op: "Gelu", x: f16, w: f16, a: f16, weights: f16, residual: true, members: 2},
		{m: 33, c: 136, k: 96, n: 64, op: "Relu", x: bf16, w: bf16, a: bf16, weights: bf16},
		{m: 33, c: 96, k: 64, n: 64, op: "Gelu", x: e4m3, w: e4m3, a: e4m3, weights: e4m3},
		{m: 33, c: 128, k: 208, n: 64, op: "Gelu", x: f16, w: f16, a: e2m1, weights: e2m1, members: 2},
	} {
		b := c.region(t)
		data, stride := maps.Clone(b.Data), Schedule{BM: 32, BN: 32, BK: min(64, 512/c.a.Bits()), WarpsM: 1, WarpsN: 1, WarpsK: 1, SplitK: 1, Stages: 2}
		for _, part := range b.Node.Parts() {
			maps.Copy(data, kerneltest.Run(t, lowered(part, stride), ctx.Target, data))
		}
		for _, s := range []Schedule{
			{BM: 64, BN: 64, BK: min(64, 512/c.a.Bits()), WarpsM: 2, WarpsN: 2, WarpsK: 1, SplitK: 1, Stages: 2},
			{BM: 32, BN: 32, BK: min(64, 512/c.a.Bits()), WarpsM: 2, WarpsN: 2, WarpsK: 1, SplitK: 1, Stages: 3},
		} {
			got := kerneltest.Run(t, lowered(b.Node, s), ctx.Target, b.Data)
			for _, v := range b.Node.Outputs {
				require.Equal(t, data[v].Data, got[v].Data, "%+v %s", c, s)
			}
		}
	}
}

func TestProductProducer_RefusesOtherRegions(t *testing.T) {
	grouped := func(t *testing.T) *ir.Node {
		g := kerneltest.NewGraph(t, "g")
		first, second := g.Region(ir.FamilyContraction), g.Region(ir.FamilyContraction)
		attrs := ir.Attrs{"layout": "NHWC", "group": 2, "strides": []int{1, 1}, "dilations": []int{1, 1}, "pads": []int{0, 0, 0, 0}}
		x := first.Cast(first.Input(ir.T(f16, 1, 4, 4, 32), 1, false, true), f32)
		y := first.Finish(first.Cast(first.Add("Conv", attrs, x, first.Cast(first.Input(ir.T(f16, 16, 16, 1, 1), 1, true, true), f32)), f16)).Outputs[0]
		w := second.Cast(second.Input(ir.T(f16, 16, 8), 0.1, true, true), f32)
		second.Finish(second.Cast(second.Add("MatMul", nil, second.Cast(second.Read(y, true), f32), w), f16))
		return joined(first, second).Node
	}
	variable := func(t *testing.T) *ir.Node {
		g := kerneltest.NewGraph(t, "g")
		first, second := g.Region(ir.FamilyContraction), g.Region(ir.FamilyContraction)
		y := first.Finish(first.Cast(first.Add("MatMul", nil, first.Cast(first.Input(ir.T(f16, 8, 32), 1, false, true), f32), first.Cast(first.Input(ir.T(f16, 32, 16), 1, false, true), f32)), f16)).Outputs[0]
		w := second.Cast(second.Input(ir.T(f16, 16, 8), 0.1, true, true), f32)
		second.Finish(second.Cast(second.Add("MatMul", nil, second.Cast(second.Read(y, true), f32), w), f16))
		return joined(first, second).Node
	}
	blocks := func(t *testing.T) *ir.Node {
		b := productCase{m: 8, c: 64, k: 64, n: 8, op: "Relu", x: e2m1, w: e2m1, a: e2m1, weights: e2m1, norm: true}.region(t)
		return ir.NewFused(b.Node.Parts()[1:], false)
	}
	for why, n := range map[string]*ir.Node{
		"does not yield one row-major matrix": grouped(t),
		"multiplies variables":                variable(t),
		"multiplies blocks in memory":         blocks(t),
		"makes blocks of sums of f32":         productCase{m: 8, c: 32, k: 32, n: 8, op: "Relu", x: f32, w: f32, a: e2m1, weights: e2m1}.region(t).Node,
		"no schedule fits":                    productCase{m: 32, c: 4096, k: 64, n: 64, op: "Relu", x: f16, w: f16, a: f16, weights: f16}.region(t).Node, // rows that fill shared memory
	} {
		_, err := Family.Lower(n, sm121(t))
		require.ErrorContains(t, err, why)
	}
}
