package contraction

import (
	"fmt"
	"math/rand"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

// TestRandomConvolutions draws odd sizes, strides, pads, dilations, groups, batches, members and layouts.
func TestRandomConvolutions(t *testing.T) {
	cases := 60
	if testing.Short() {
		cases = 20
	}
	rng := rand.New(rand.NewSource(7))
	for i := 0; i < cases; i++ {
		d := bothTypes[i%2]
		pick := func(xs ...int) int { return xs[rng.Intn(len(xs))] }
		group := pick(1, 1, 1, 2, 3)
		c, out := pick(2, 3, 4, 6, 8, 12, 16, 24)*group, pick(1, 2, 5, 8, 16, 20, 33)*group
		kh, kw := pick(1, 2, 3, 5), pick(1, 2, 3)
		h, w, n := 9+rng.Intn(6), 6+rng.Intn(8), pick(1, 1, 2)
		attrs := ir.Attrs{"strides": []int{pick(1, 2), pick(1, 2, 3)}, "pads": []int{pick(0, 1, 2), pick(0, 1), pick(0, 1), pick(0, 1, 2)}, "dilations": []int{pick(1, 1, 2), pick(1, 2)}, "group": group}
		shape := []int{n, c, h, w}
		if rng.Intn(3) > 0 {
			attrs["layout"] = "NHWC"
			shape = []int{n, h, w, c}
		}
		members := pick(0, 0, 1, 2)
		batched := rng.Intn(2) == 0
		tgtName := target.Names()[i%3]
		t.Run(fmt.Sprintf("%d %v %v %v w=%d,%d,%d,%d members=%d", i, d, shape, attrs, out, c/group, kh, kw, members), func(t *testing.T) {
			b := newRegion(t)
			if members > 0 {
				b.Members(members)
			}
			x := b.Cast(b.Input(ir.T(d, shape...), 1, false, batched), f32)
			wt := b.Cast(b.Input(ir.T(d, out, c/group, kh, kw), 0.1, true, members > 0), f32)
			y := b.Add("Conv", attrs, x, wt, b.Input(ir.T(f32, out), 1, true, members > 0))
			b.Finish(b.Cast(y, d))
			b.Check(Family.Lower, kerneltest.Target(t, tgtName))
		})
	}
}

// TestUnalignedOperands: what is known of an address bounds the width of accesses.
func TestUnalignedOperands(t *testing.T) {
	for _, d := range bothTypes {
		for _, align := range []int{4, 8} {
			b, ctx := newRegion(t), sm121(t)
			region := gemmCase{m: 30, k: 64, n: 40, dtype: d}.region(b)
			ctx.Align = func(v *ir.Value) int {
				if v == region.Inputs[0] {
					return align
				}
				return 256
			}
			spec, err := Family.Lower(region, ctx)
			require.NoError(t, err)
			l := kerneltest.Inspect(spec)
			require.Less(t, l.Wide(), 0.9, "%v aligned to %d", d, align)
			b.CheckSpec(spec, ctx.Target)
		}
	}
}

// TestUnalignedOutput: an output placed inside another value is written narrowly.
func TestUnalignedOutput(t *testing.T) {
	for _, d := range bothTypes {
		b, ctx := newRegion(t), sm121(t)
		region := gemmCase{m: 30, k: 64, n: 40, dtype: d}.region(b)
		count := func() int {
			spec, err := Family.Lower(region, ctx)
			require.NoError(t, err)
			b.CheckSpec(spec, ctx.Target)
			return strings.Count(spec.Build(ctx.Target, "k").String(), "st.global.v4")
		}
		wide := count()
		ctx.Align = func(v *ir.Value) int {
			if v == region.Outputs[0] {
				return 2
			}
			return 256
		}
		require.Greater(t, wide, count())
	}
}

// TestSchedulesThatDoNotFit: each is refused with its reason.
func TestSchedulesThatDoNotFit(t *testing.T) {
	b, ctx := newRegion(t), sm121(t)
	p, err := normalise(gemmCase{m: 64, k: 128, n: 64, dtype: f16}.region(b))
	require.NoError(t, err)
	good := Schedule{BM: 64, BN: 64, BK: 32, WarpsM: 2, WarpsN: 2, WarpsK: 1, Stages: 3, SplitK: 1}
	require.NoError(t, good.valid(p, ctx.Target))
	for _, c := range []struct {
		reason string
		change func(s *Schedule)
	}{
		{"threads", func(s *Schedule) { s.WarpsK = 8 }},
		{"stages", func(s *Schedule) { s.Stages = 1 }},
		{"split-K", func(s *Schedule) { s.SplitK = 5 }},
		{"shared memory", func(s *Schedule) { s.BK, s.Stages = 128, 8 }},
		{"registers", func(s *Schedule) { s.BM, s.BN, s.WarpsM, s.WarpsN = 128, 128, 1, 1 }},
		{"multiple of 16x16", func(s *Schedule) { s.BM = 48 }},
		{"k16 step", func(s *Schedule) { s.BK, s.WarpsK = 16, 2 }},
	} {
		s := good
		c.change(&s)
		require.ErrorContains(t, s.valid(p, ctx.Target), c.reason)
	}
}

// TestSplitsThatPay: a long K is split, a short one is not, and where multiprocessors stay without a block the reason
// says what more blocks would cost.
func TestSplitsThatPay(t *testing.T) {
	for _, c := range []struct {
		k, n   int
		splits bool
	}{{1536, 384, true}, {384, 384, false}} {
		b, ctx := newRegion(t), sm121(t)
		spec, err := Family.Lower(gemmCase{m: 25, k: c.k, n: c.n, dtype: f16}.region(b), ctx)
		require.NoError(t, err)
		require.Equal(t, c.splits, strings.Contains(spec.Schedule, "splitk"), spec.Schedule)
		require.Equal(t, spec.Grid[0] < ctx.Target.SMs, strings.Contains(spec.Reason, "times as long"), "%s: %s", spec.Schedule, spec.Reason)
	}
}

// TestRefusals: each has a reason that names the node.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name, reason string
		build        func(b *kerneltest.Region) *ir.Value
	}{
		{"depthwise", "depthwise", func(b *kerneltest.Region) *ir.Value {
			return b.Add("Conv", ir.Attrs{"strides": []int{1, 1}, "pads": []int{0, 0, 0, 0}, "dilations": []int{1, 1}, "group": 8},
				b.Input(ir.T(f32, 1, 8, 4, 4), 1, false, false), b.Input(ir.T(f32, 8, 1, 3, 3), 1, true, false))
		}},
		{"no anchor", "no anchor", func(b *kerneltest.Region) *ir.Value {
			return b.Add("Relu", nil, b.Input(ir.T(f32, 4), 1, false, false))
		}},
		{"two anchors", "several elements of its output", func(b *kerneltest.Region) *ir.Value {
			x := b.Input(ir.T(f32, 4, 4), 1, false, false)
			return b.Add("MatMul", nil, b.Add("MatMul", nil, x, x), x)
		}},
		{"arithmetic before the anchor", "Relu", func(b *kerneltest.Region) *ir.Value {
			x := b.Input(ir.T(f32, 4, 4), 1, false, false)
			return b.Add("MatMul", nil, b.Add("Relu", nil, x), x)
		}},
		{"the anchor's output repeats", "element by element", func(b *kerneltest.Region) *ir.Value {
			x := b.Input(ir.T(f32, 4, 4), 1, false, false)
			return b.Add("Add", nil, b.Add("MatMul", nil, x, x), b.Input(ir.T(f32, 3, 4, 4), 1, false, false))
		}},
		{"the anchor's output and its transpose", "several elements of its output", func(b *kerneltest.Region) *ir.Value {
			x := b.Input(ir.T(f32, 4, 4), 1, false, false)
			y := b.Add("MatMul", nil, x, x)
			return b.Add("Add", nil, y, b.Add("Transpose", ir.Attrs{"perm": []int{1, 0}}, y))
		}},
		{"three spatial dimensions", "spatial", func(b *kerneltest.Region) *ir.Value {
			return b.Add("Conv", ir.Attrs{"strides": []int{1, 1, 1}, "pads": []int{0, 0, 0, 0, 0, 0}, "dilations": []int{1, 1, 1}},
				b.Input(ir.T(f32, 1, 8, 4, 4, 4), 1, false, false), b.Input(ir.T(f32, 8, 8, 3, 3, 3), 1, true, false))
		}},
		{"softcap", "softcap", func(b *kerneltest.Region) *ir.Value {
			x := b.Input(ir.T(f32, 1, 2, 4, 8), 1, false, false)
			return b.Add("Attention", ir.Attrs{"scale": 1.0, "softcap": 2.0}, x, x, x)
		}},
		{"float64", "f64", func(b *kerneltest.Region) *ir.Value {
			x := b.Input(ir.T(ir.Float64, 4, 4), 1, false, false)
			return b.Add("MatMul", nil, x, x)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newRegion(t)
			region := b.Finish(c.build(b))
			_, err := Family.Lower(region, sm121(t))
			require.ErrorContains(t, err, c.reason)
		})
	}
}
