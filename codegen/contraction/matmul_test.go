package contraction

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

// gemmCase is a MatMul of [m,k] by constant [k,n].
type gemmCase struct {
	m, k, n int
	dtype   ir.DType
	members int
	transB  bool
}

func (c gemmCase) region(b *kerneltest.Region) *ir.Node {
	if c.members > 0 {
		b.Members(c.members)
	}
	a := b.Cast(b.Input(ir.T(c.dtype, 1, c.m, c.k), 1, false, false), f32)
	shape := []int{c.k, c.n}
	if c.transB {
		shape = []int{c.n, c.k}
	}
	w := b.Cast(b.Input(ir.T(c.dtype, shape...), 0.1, true, c.members > 0), f32)
	y := b.Add("MatMul", ir.Attrs{"transB": c.transB}, a, w)
	return b.Finish(b.Cast(y, c.dtype))
}

func TestMatMulEqualsTheReference(t *testing.T) {
	for _, d := range bothTypes {
		for _, c := range []gemmCase{
			{m: 25, k: 522, n: 48, dtype: d},
			{m: 25, k: 528, n: 40, dtype: d},
			{m: 25, k: 384, n: 96, dtype: d, transB: true},
			{m: 130, k: 64, n: 64, dtype: d},
			{m: 32, k: 64, n: 64, dtype: d, members: 2},
			{m: 5, k: 7, n: 3, dtype: d},
			{m: 1, k: 64, n: 10, dtype: d},
			{m: 128, k: 33, n: 130, dtype: d, members: 3},
		} {
			t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
				b := newRegion(t)
				c.region(b)
				b.Check(Family.Lower, sm121(t))
			})
		}
	}
}

// TestEveryScheduleComputesTheSame runs candidates on one small problem: tiles, warps along K, stages, splits.
// SPARK_FULL runs all of them; without it, as few as show every three settings together. What code a schedule takes
// depends on one setting, or on two (a tile and its warps, a split and its stages): a fault that shows only where
// four meet is lost.
func TestEveryScheduleComputesTheSame(t *testing.T) {
	for _, d := range bothTypes {
		b, ctx := newRegion(t), sm121(t)
		region := gemmCase{m: 40, k: 200, n: 72 - int(d-f16), dtype: d}.region(b) // once whole groups of columns, once not
		p, err := normalise(region)
		require.NoError(t, err)
		pl, err := newPlan(p, ctx)
		require.NoError(t, err)
		valid := slices.DeleteFunc(candidates(p), func(s Schedule) bool { return s.valid(p, ctx.Target) != nil || pl.fits(s) != nil })
		tried := valid
		if !fulltest.Runs(t.Name()) {
			tried = threewise(valid)
		}
		require.Greater(t, len(tried), 15)
		t.Logf("%v: %d of %d schedules", d, len(tried), len(valid))
		for _, s := range tried {
			b.CheckSpec(write(p, pl.at(p, s), s, ctx.Target), ctx.Target)
		}
	}
}

// threewise picks schedules until every three settings that any of them has together have been seen together.
func threewise(all []Schedule) []Schedule {
	type triple struct{ i, j, k, x, y, z int }
	triples := func(s Schedule) []triple {
		x := []int{s.BM, s.BN, s.BK, s.WarpsM, s.WarpsN, s.WarpsK, s.ThreadM, s.Stages, s.SplitK}
		var out []triple
		for k := range x {
			for j := range k {
				for i := range j {
					out = append(out, triple{i, j, k, x[i], x[j], x[k]})
				}
			}
		}
		return out
	}
	seen := map[triple]bool{}
	var picked []Schedule
	for {
		best, most := Schedule{}, 0
		for _, s := range all {
			fresh := 0
			for _, p := range triples(s) {
				if !seen[p] {
					fresh++
				}
			}
			if fresh > most {
				best, most = s, fresh
			}
		}
		if most == 0 {
			return picked
		}
		picked = append(picked, best)
		for _, p := range triples(best) {
			seen[p] = true
		}
	}
}

// batchedCase multiplies two activations, [b,h,m,k] by [b,h,k,n].
type batchedCase struct {
	h, m, k, n     int
	dtype          ir.DType
	transA, transB bool
}

func (c batchedCase) region(b *kerneltest.Region) *ir.Node {
	as, bs := []int{1, c.h, c.m, c.k}, []int{1, c.h, c.k, c.n}
	if c.transA {
		as[2], as[3] = as[3], as[2]
	}
	if c.transB {
		bs[2], bs[3] = bs[3], bs[2]
	}
	x := b.Cast(b.Input(ir.T(c.dtype, as...), 1, false, false), f32)
	y := b.Cast(b.Input(ir.T(c.dtype, bs...), 1, false, false), f32)
	return b.Finish(b.Cast(b.Add("MatMul", ir.Attrs{"transA": c.transA, "transB": c.transB}, x, y), c.dtype))
}

func TestBatchedMatMulEqualsTheReference(t *testing.T) {
	for _, d := range bothTypes {
		for _, c := range []batchedCase{
			{h: 3, m: 25, k: 64, n: 25, dtype: d, transB: true},
			{h: 3, m: 25, k: 25, n: 64, dtype: d},
			{h: 2, m: 40, k: 24, n: 72, dtype: d},
			{h: 2, m: 24, k: 40, n: 33, dtype: d, transA: true},
			{h: 2, m: 17, k: 9, n: 6, dtype: d, transA: true, transB: true},
		} {
			t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
				b := newRegion(t)
				c.region(b)
				b.Check(Family.Lower, sm121(t))
			})
		}
	}
}
