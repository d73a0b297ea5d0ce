package window

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/internal/toolchain"
	"github.com/spark-compile/spark-compile/ir"
)

// pair is two windows of which the second slides over what the first computes.
type pair struct {
	first, second shape
	alone         bool // nobody else reads the first
}

func (c pair) String() string { return fmt.Sprintf("%v, then %v alone=%v", c.first, c.second, c.alone) }

// then is a pair: the second's image is what the first computes.
func (s shape) then(second shape) pair {
	at := func(n int) int { return (n+2*s.pad-(s.k-1)*s.dil-1)/s.stride + 1 }
	second.d, second.n, second.h, second.w, second.c, second.members = s.d, s.n, at(s.h), at(s.w), s.c*max(1, s.multiplier), s.members
	return pair{first: s, second: second}
}

func (c pair) unseen() pair { c.alone = true; return c }

var (
	mixer = shape{op: "Conv", multiplier: 1, k: 3, stride: 1, pad: 1, dil: 1}
	large = shape{op: "Conv", multiplier: 1, k: 7, stride: 1, pad: 3, dil: 1}
)

// on is a window on images of a size.
func (s shape) on(d ir.DType, n, h, w, c, members int) shape {
	s.d, s.n, s.h, s.w, s.c, s.members = d, n, h, w, c, members
	return s
}

func pairs() []pair {
	with := func(s shape, f func(s *shape)) shape { f(&s); return s }
	strided, gelu, residual := with(large, func(s *shape) { s.stride, s.multiplier = 2, 2 }), with(mixer, func(s *shape) { s.gelu = true }), with(large, func(s *shape) { s.residual = true })
	return []pair{
		mixer.on(ir.Float16, 1, 8, 16, 64, 2).then(large), // a block has the image
		mixer.on(ir.Float16, 1, 32, 64, 32, 2).then(large),
		mixer.on(ir.Float32, 1, 16, 32, 32, 0).then(large),
		mixer.on(ir.BFloat16, 2, 9, 13, 24, 0).then(large),
		mixer.on(ir.Float8E4M3FN, 1, 16, 32, 32, 0).then(large),
		mixer.on(ir.Float16, 1, 16, 32, 32, 0).then(strided),
		mixer.on(ir.Float16, 1, 15, 21, 16, 3).then(strided).unseen(),
		gelu.on(ir.Float16, 1, 10, 12, 16, 0).then(residual),
		with(gelu, func(s *shape) { s.residual, s.stride, s.multiplier = true, 2, 2 }).on(ir.Float16, 1, 17, 19, 8, 2).then(with(residual, func(s *shape) { s.gelu = true })),
		mixer.on(ir.Float32, 1, 7, 6, 5, 0).then(with(mixer, func(s *shape) { s.dil, s.pad, s.multiplier = 2, 2, 3 })),
		mixer.on(ir.Float16, 1, 12, 20, 48, 0).then(with(large, func(s *shape) { s.blocks = true })),
		mixer.on(ir.Float16, 1, 9, 11, 16, 0).then(with(mixer, func(s *shape) { s.pad = 0 })).unseen(),
		shape{op: "AveragePool", k: 3, stride: 1, pad: 1, dil: 1}.on(ir.Float16, 1, 9, 16, 16, 0).then(shape{op: "MaxPool", k: 3, stride: 2, pad: 1, dil: 1}),
		mixer.on(ir.Float16, 1, 1, 2, 8, 0).then(large),
	}
}

// built is a pair in a graph, and what its windows compute, one launch after the other.
type built struct {
	graph *kerneltest.Graph
	parts []*ir.Node
	fused *ir.Node
	want  map[*ir.Value]*ir.Tensor
}

func (c pair) build(t *testing.T) *built {
	t.Helper()
	b := &built{graph: kerneltest.NewGraph(t, "g"), want: map[*ir.Value]*ir.Tensor{}}
	first := c.first.in(b.graph, nil).Node
	second := c.second.in(b.graph, first.Outputs[0]).Node
	b.parts = []*ir.Node{first, second}
	require.NoError(t, ir.CheckFusion(b.parts))
	b.fused = ir.NewFused(b.parts, !c.alone)
	return b
}

// run is build, and the two launches.
func (c pair) run(t *testing.T, ctx *kernel.Context) *built {
	t.Helper()
	return c.runOn(t, ctx, 1)
}

// runOn is run with an image whose numbers are so many times as great.
func (c pair) runOn(t *testing.T, ctx *kernel.Context, times float64) *built {
	t.Helper()
	b := c.build(t)
	x := b.parts[0].Inputs[0]
	xs := b.graph.Data[x].Floats()
	for i := range xs {
		xs[i] *= times
	}
	b.graph.Data[x] = ir.FromFloats(x.Type, xs)
	for _, n := range b.parts {
		spec, err := Family.Lower(n, ctx)
		require.NoError(t, err)
		for v, x := range kerneltest.Run(t, spec, ctx.Target, b.graph.Data) {
			b.graph.Data[v], b.want[v] = x, x
		}
	}
	delete(b.graph.Data, b.parts[0].Outputs[0])
	return b
}

// same requires that the fused kernel computes the bits of two launches.
func (b *built) same(t *testing.T, spec *kernel.Spec, ctx *kernel.Context) {
	t.Helper()
	got := kerneltest.Run(t, spec, ctx.Target, b.graph.Data)
	require.Len(t, got, len(b.fused.Outputs))
	for _, v := range b.fused.Outputs {
		require.Equal(t, b.want[v].Data, got[v].Data, "%v of %s", v.Type, spec.Schedule)
	}
}

func TestFusedWindows_HaveTheBitsOfTwoLaunches(t *testing.T) {
	for _, c := range pairs() {
		t.Run(c.String(), func(t *testing.T) {
			ctx := kerneltest.Target(t, "sm_121")
			b := c.run(t, ctx)
			spec, err := Family.Lower(b.fused, ctx)
			require.NoError(t, err)
			t.Log(spec.Schedule, spec.Grid, spec.Block, spec.Shared)
			b.same(t, spec, ctx)
		})
	}
}

// TestFusedWindows_OverflowAsTwoLaunches: what is between saturates, or becomes infinite and then no number.
func TestFusedWindows_OverflowAsTwoLaunches(t *testing.T) {
	ctx := kerneltest.Target(t, "sm_121")
	for _, c := range pairs()[:5] {
		times := 1e4
		if c.first.d == ir.Float8E4M3FN {
			times = 100
		}
		b := c.runOn(t, ctx, times)
		spec, err := Family.Lower(b.fused, ctx)
		require.NoError(t, err)
		b.same(t, spec, ctx)
		if d := c.first.d; d.Bits() <= 16 && d != ir.BFloat16 {
			most := 0.0
			for _, y := range b.want[b.parts[0].Outputs[0]].Floats() {
				most = max(most, math.Abs(y))
			}
			require.GreaterOrEqual(t, most, d.Format().Max(), "%v does not overflow", c)
		}
	}
}

// TestFusedWindows_AgreeWithTheEvaluator, which computes window by window and rounds the value between them.
func TestFusedWindows_AgreeWithTheEvaluator(t *testing.T) {
	ctx := kerneltest.Target(t, "sm_121")
	for _, c := range pairs()[:4] {
		b := c.run(t, ctx)
		want := kerneltest.Reference(t, b.fused, b.graph.Data)
		spec, err := Family.Lower(b.fused, ctx)
		require.NoError(t, err)
		got := kerneltest.Run(t, spec, ctx.Target, b.graph.Data)
		for i, v := range b.fused.Outputs {
			g, w := got[v].Array().Floats(), want[i].Floats()
			far, norm := 0.0, 0.0
			for k := range w {
				far, norm = far+(g[k]-w[k])*(g[k]-w[k]), norm+w[k]*w[k]
			}
			require.Less(t, far, 1e-6*norm, "%v of %v", v.Type, c)
		}
	}
}

// TestFusedWindows_EveryScheduleIsRight runs schedules that no choice made.
func TestFusedWindows_EveryScheduleIsRight(t *testing.T) {
	ctx := kerneltest.Target(t, "sm_121")
	const runs = 8 // of a pair
	for _, c := range pairs() {
		if c.first.h*c.first.w*c.first.c > 1<<13 {
			continue
		}
		b := c.run(t, ctx)
		p, err := analyseFused(b.fused)
		require.NoError(t, err)
		tiles := p.second.candidates()
		for range runs {
			list := p.candidates(tiles[b.graph.Rand.Intn(len(tiles))])
			if len(list) == 0 {
				continue
			}
			s := list[b.graph.Rand.Intn(len(list))]
			s.first, s.second = s.first.placed(p.first), s.second.placed(p.second)
			if p.shared(s) > ctx.Target.SharedBlock {
				continue
			}
			spec, err := p.spec(s, ctx, b.fused)
			require.NoError(t, err)
			b.same(t, spec, ctx)
		}
	}
}

// TestFusedWindow_RefusesOtherRegions: pairs that graphs may join, but no kernel computes.
func TestFusedWindow_RefusesOtherRegions(t *testing.T) {
	ctx := kerneltest.Target(t, "sm_121")
	narrow, jump := large, large
	narrow.pad = 0
	jump.stride, jump.pad = 8, 3
	for why, c := range map[string]pair{
		"does not read all of the first's output": mixer.on(ir.Float16, 1, 12, 12, 16, 0).then(narrow),
		"read all":                mixer.on(ir.Float16, 1, 12, 12, 16, 0).then(jump),
		"fits into shared memory": mixer.on(ir.Float16, 1, 200, 200, 8, 0).then(shape{op: "AveragePool", k: 180, stride: 1, dil: 1}).unseen(),
	} {
		b := c.build(t)
		_, err := Family.Lower(b.fused, ctx)
		require.ErrorContains(t, err, why)
		require.LessOrEqual(t, kernel.NewFamilies(nil, Family).Benefit(b.fused, ctx.Target), 0.0, why)
	}
}

// TestFusedWindows_PayWhereLaunchesCostMore: small images take about as long as a launch costs; of large ones, whose
// tiles compute much of the first window twice, two launches are faster.
func TestFusedWindows_PayWhereLaunchesCostMore(t *testing.T) {
	ctx := kerneltest.Target(t, "sm_121")
	dilated := large
	dilated.dil, dilated.pad = 4, 12
	for _, c := range []struct {
		pair
		pays bool
	}{
		{mixer.on(ir.Float16, 1, 8, 16, 64, 2).then(large), true},
		{mixer.on(ir.Float16, 1, 32, 64, 64, 2).then(large), true},
		{mixer.on(ir.Float32, 1, 128, 128, 64, 0).then(dilated), false},
	} {
		require.Equal(t, c.pays, kernel.NewFamilies(nil, Family).Benefit(c.build(t).fused, ctx.Target) > 0, "%v", c.pair)
	}
}

func TestFusedWindows_PtxasSpillsNothing(t *testing.T) {
	tool, err := toolchain.FindPtxas(t.Context())
	if errors.Is(err, toolchain.ErrNoPtxas) {
		t.Skip(err)
	}
	require.NoError(t, err)
	for _, name := range target.Names() {
		ctx := kerneltest.Target(t, name)
		for _, c := range pairs() {
			if c.second.blocks && !ctx.Target.Multiplies("e2m1") {
				continue
			}
			spec, err := Family.Lower(c.build(t).fused, ctx)
			require.NoError(t, err)
			r, err := tool.Assemble(t.Context(), spec.Build(ctx.Target, "k").String(), name)
			require.NoError(t, err, c.String())
			require.Zero(t, r.Usage[0].Spills, "%s: %s", c, spec.Schedule)
			require.LessOrEqual(t, r.Usage[0].Regs, 128, "%s: %s", c, spec.Schedule)
			t.Logf("%s %s: %d registers", name, spec.Schedule, r.Usage[0].Regs)
		}
	}
}

// TestFusedWindows_ReadTilesWithoutBankConflicts: both windows do, where channels and pixels are powers of two.
func TestFusedWindows_ReadTilesWithoutBankConflicts(t *testing.T) {
	ctx := kerneltest.Target(t, "sm_121")
	for _, c := range pairs()[:3] {
		b := c.build(t)
		p, err := analyseFused(b.fused)
		require.NoError(t, err)
		own, err := (&tiled[fusedSchedule]{p, ctx, b.fused}).Choose()
		require.NoError(t, err)
		s := own.Schedule.(fusedSchedule)
		require.Equal(t, s.first.inputVector(p.first), s.first.wavefronts(p.first), "%v: %v", c, s)
		require.Equal(t, s.second.inputVector(p.second), s.second.wavefronts(p.second), "%v: %v", c, s)
	}
}
