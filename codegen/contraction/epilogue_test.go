package contraction

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/internal/testing/fulltest"
	"github.com/spark-compile/spark-compile/ir"
)

// TestEpilogues runs the nodes that may follow an anchor.
func TestEpilogues(t *testing.T) {
	fulltest.Long(t)
	conv := func(b *kerneltest.Region, d ir.DType, c, out int, bias bool, batchX bool) *ir.Value {
		g := b.HasMembers()
		x := b.Cast(b.Input(ir.T(d, 1, 6, 6, c), 1, false, batchX), f32)
		w := b.Cast(b.Input(ir.T(d, out, c, 3, 3), 0.1, true, g), f32)
		in := []*ir.Value{x, w}
		if bias {
			in = append(in, b.Input(ir.T(f32, out), 1, true, g))
		}
		return b.Add("Conv", ir.Attrs{"strides": []int{1, 1}, "pads": []int{1, 1, 1, 1}, "dilations": []int{1, 1}, "layout": "NHWC"}, in...)
	}
	for _, d := range bothTypes {
		for i, c := range []struct {
			name  string
			build func(b *kerneltest.Region) *ir.Value
		}{
			{"bias and gelu", func(b *kerneltest.Region) *ir.Value { return b.Add("Gelu", nil, conv(b, d, 16, 24, true, false)) }},
			{"bias of odd channels", func(b *kerneltest.Region) *ir.Value { return b.Add("Relu", nil, conv(b, d, 8, 13, true, false)) }},
			{"residual", func(b *kerneltest.Region) *ir.Value {
				y := conv(b, d, 16, 16, true, false)
				return b.Add("Add", nil, b.Cast(b.Input(ir.T(d, 1, 6, 6, 16), 1, false, false), f32), y)
			}},
			{"residual of odd channels", func(b *kerneltest.Region) *ir.Value {
				y := conv(b, d, 8, 5, false, false)
				return b.Add("Add", nil, y, b.Cast(b.Input(ir.T(d, 1, 6, 6, 5), 1, false, false), f32))
			}},
			{"gate by channel, silu", func(b *kerneltest.Region) *ir.Value {
				y := conv(b, d, 16, 16, false, false)
				y = b.Add("Mul", nil, y, b.Input(ir.T(f32, 1, 1, 1, 16), 1, false, false))
				return b.Add("Mul", nil, y, b.Add("Sigmoid", nil, y))
			}},
			{"splat and gate by row", func(b *kerneltest.Region) *ir.Value {
				y := b.Add("Mul", nil, conv(b, d, 16, 16, false, false), b.Splat(0.37))
				return b.Add("Mul", nil, y, b.Input(ir.T(f32, 1, 6, 6, 1), 1, false, false))
			}},
			{"transposed to NCHW", func(b *kerneltest.Region) *ir.Value {
				y := b.Add("Relu", nil, conv(b, d, 16, 16, true, false))
				return b.Add("Transpose", ir.Attrs{"perm": []int{0, 3, 1, 2}}, y)
			}},
			{"reshaped, then a residual", func(b *kerneltest.Region) *ir.Value {
				y := b.Add("Reshape", ir.Attrs{"shape": []int{1, 36, 24}}, conv(b, d, 16, 24, true, false))
				return b.Add("Add", nil, y, b.Input(ir.T(f32, 1, 36, 24), 1, false, false))
			}},
			{"odd channels made one dimension, then a residual", func(b *kerneltest.Region) *ir.Value {
				y := b.Add("Reshape", ir.Attrs{"shape": []int{36 * 13}}, conv(b, d, 16, 13, true, false))
				return b.Add("Add", nil, y, b.Input(ir.T(f32, 36*13), 1, false, false))
			}},
			{"members with stacked inputs, bias and residual", func(b *kerneltest.Region) *ir.Value {
				b.Members(3)
				y := conv(b, d, 16, 24, true, true)
				return b.Add("Add", nil, y, b.Cast(b.Input(ir.T(d, 1, 6, 6, 24), 1, false, true), f32))
			}},
			{"members with a shared input", func(b *kerneltest.Region) *ir.Value { b.Members(2); return conv(b, d, 16, 24, true, false) }},
			{"channel groups with bias", func(b *kerneltest.Region) *ir.Value {
				x := b.Cast(b.Input(ir.T(d, 1, 6, 6, 32), 1, false, false), f32)
				w := b.Cast(b.Input(ir.T(d, 48, 16, 3, 3), 0.1, true, false), f32)
				return b.Add("Conv", ir.Attrs{"strides": []int{1, 1}, "pads": []int{1, 1, 1, 1}, "dilations": []int{1, 1}, "group": 2, "layout": "NHWC"},
					x, w, b.Input(ir.T(f32, 48), 1, true, false))
			}},
			{"clipped, masked and divided", func(b *kerneltest.Region) *ir.Value {
				y := b.Add("Min", nil, b.Add("Max", nil, conv(b, d, 8, 16, true, false), b.Splat(-1)), b.Splat(1.5))
				y = b.Add("Div", nil, y, b.Add("Add", nil, b.Add("Abs", nil, y), b.Splat(1)))
				mask := b.Add("Greater", nil, b.Input(ir.T(f32, 1, 6, 6, 1), 1, false, false), b.Splat(0))
				return b.Add("Where", nil, mask, b.Add("Tanh", nil, y), b.Splat(0.25))
			}},
			{"hard swish and erf", func(b *kerneltest.Region) *ir.Value {
				y := conv(b, d, 8, 16, true, false)
				z := b.Add("Mul", nil, y, b.Add("Min", nil, b.Add("Relu", nil, b.Add("Add", nil, y, b.Splat(3))), b.Splat(6)))
				return b.Add("Add", nil, z, b.Add("Erf", nil, y))
			}},
			{"NCHW", func(b *kerneltest.Region) *ir.Value {
				x := b.Cast(b.Input(ir.T(d, 2, 10, 6, 6), 1, false, false), f32)
				w := b.Cast(b.Input(ir.T(d, 12, 10, 3, 3), 0.1, true, false), f32)
				return b.Add("Conv", ir.Attrs{"strides": []int{2, 2}, "pads": []int{1, 0, 1, 0}, "dilations": []int{1, 2}},
					x, w, b.Input(ir.T(f32, 12), 1, true, false))
			}},
			{"one spatial dimension", func(b *kerneltest.Region) *ir.Value {
				x := b.Cast(b.Input(ir.T(d, 1, 30, 16), 1, false, false), f32)
				w := b.Cast(b.Input(ir.T(d, 24, 16, 3), 0.1, true, false), f32)
				return b.Add("Conv", ir.Attrs{"strides": []int{2}, "pads": []int{1, 1}, "dilations": []int{1}, "layout": "NHWC"},
					x, w, b.Input(ir.T(f32, 24), 1, true, false))
			}},
			{"constant times variable", func(b *kerneltest.Region) *ir.Value {
				w := b.Cast(b.Input(ir.T(d, 20, 24), 0.1, true, false), f32)
				return b.Add("MatMul", nil, w, b.Cast(b.Input(ir.T(d, 24, 40), 1, false, false), f32))
			}},
			{"batched weights", func(b *kerneltest.Region) *ir.Value {
				x := b.Cast(b.Input(ir.T(d, 3, 20, 24), 1, false, false), f32)
				return b.Add("MatMul", nil, x, b.Cast(b.Input(ir.T(d, 3, 24, 40), 0.1, true, false), f32))
			}},
			{"f32 rows, f16 weights", func(b *kerneltest.Region) *ir.Value {
				x := b.Input(ir.T(f32, 20, 24), 1, false, false)
				return b.Add("MatMul", nil, x, b.Cast(b.Input(ir.T(f16, 24, 40), 0.1, true, false), f32))
			}},
			{"f16 rows, f32 weights", func(b *kerneltest.Region) *ir.Value {
				x := b.Cast(b.Input(ir.T(f16, 20, 24), 1, false, false), f32)
				return b.Add("MatMul", nil, x, b.Input(ir.T(f32, 24, 40), 0.1, true, false))
			}},
		} {
			t.Run(d.String()+" "+c.name, func(t *testing.T) {
				b := newRegion(t)
				b.Finish(b.Cast(c.build(b), d))
				b.Check(Family.Lower, sm121(t))
				assemble(t, b.Node, i)
			})
		}
	}
}

// TestSeveralResults compares kernels that also store intermediate values of the epilogue with the reference: each
// result has its own type and place.
func TestSeveralResults(t *testing.T) {
	for _, c := range []struct {
		m, k, n, members int
		first, second    ir.DType
		perm             []int // of the second result
		split            bool  // blocks share a tile
	}{
		{m: 40, k: 64, n: 48, first: f16, second: f16},
		{m: 33, k: 40, n: 50, first: f32, second: f16},
		{m: 70, k: 32, n: 96, first: f16, second: f32, members: 3},
		{m: 64, k: 64, n: 64, first: e4m3, second: f16},
		{m: 64, k: 64, n: 64, first: e4m3, second: e4m3},
		{m: 48, k: 64, n: 40, first: f16, second: f16, perm: []int{1, 0}},
		{m: 16, k: 2048, n: 32, first: f32, second: f32, split: true},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			b := newRegion(t)
			if c.members > 0 {
				b.Members(c.members)
			}
			batched := c.members > 0
			x := b.Cast(b.Input(ir.T(f16, c.m, c.k), 1, false, batched), f32)
			w := b.Cast(b.Input(ir.T(f16, c.k, c.n), 0.1, true, batched), f32)
			y := b.Add("Add", nil, b.Add("MatMul", nil, x, w), b.Cast(b.Input(ir.T(f16, c.m, c.n), 1, false, batched), f32))
			z := b.Add("Gelu", nil, b.Add("Mul", nil, y, b.Input(ir.T(f32, c.n), 1, false, batched)))
			if c.perm != nil {
				z = b.Add("Transpose", ir.Attrs{"perm": c.perm}, z)
			}
			b.Finish(b.Cast(y, c.first), b.Cast(z, c.second))
			ctx := sm121(t)
			spec := b.Check(Family.Lower, ctx)
			require.Equal(t, c.split, strings.Contains(spec.Schedule, "splitk"), spec.Schedule)
			if !testing.Short() {
				kerneltest.Assemble(t, spec, ctx.Target)
			}
		})
	}
}

// TestSumsOfRows compares kernels that sum the rows of a value after an anchor, part by part, with the reference.
func TestSumsOfRows(t *testing.T) {
	for _, c := range []struct {
		m, k, n, part int
		first         ir.DType
		split, conv   bool
		members       int
	}{
		{m: 64, k: 64, n: 48, part: 32, first: f16},
		{m: 800, k: 40, n: 50, part: 32, first: f16},
		{m: 96, k: 32, n: 1536, part: 32, first: f32},
		{m: 192, k: 64, n: 24, part: 64, first: e4m3},
		{m: 384, k: 64, n: 20, part: 128, first: f16},
		{m: 96, k: 32, n: 40, part: 32, first: f16, members: 3},
		{m: 32, k: 2048, n: 32, part: 32, first: f32, split: true},
		{m: 2 * 8 * 12, k: 16, n: 24, part: 32, first: f16, conv: true},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			b := newRegion(t)
			batched := c.members > 0
			if batched {
				b.Members(c.members)
			}
			shape := []int{c.m, c.n}
			var y *ir.Value
			if c.conv {
				shape = []int{2, 8, 12, c.n}
				x := b.Cast(b.Input(ir.T(f16, 2, 8, 12, c.k), 1, false, false), f32)
				w := b.Cast(b.Input(ir.T(f16, c.n, c.k, 3, 3), 0.1, true, false), f32)
				y = b.Add("Conv", ir.Attrs{"strides": []int{1, 1}, "pads": []int{1, 1, 1, 1}, "dilations": []int{1, 1}, "layout": "NHWC"}, x, w)
			} else {
				x := b.Cast(b.Input(ir.T(f16, c.m, c.k), 1, false, batched), f32)
				w := b.Cast(b.Input(ir.T(f16, c.k, c.n), 0.1, true, batched), f32)
				y = b.Add("MatMul", nil, x, w)
			}
			z := b.Add("Mul", nil, y, b.Input(ir.T(f32, c.n), 1, false, false))
			s := b.Add("Mul", nil, y, b.Cast(b.Input(ir.T(f16, shape...), 1, false, batched), f32))
			s = b.Add("Reshape", ir.Attrs{"shape": []int{c.m / c.part, c.part, c.n}}, s)
			b.Finish(b.Cast(z, c.first), b.Add("ReduceSum", ir.Attrs{"axes": []int{1}}, s))
			ctx := sm121(t)
			spec := b.Check(Family.Lower, ctx)
			require.Equal(t, c.split, strings.Contains(spec.Schedule, "splitk"), spec.Schedule)
			if !testing.Short() {
				kerneltest.Assemble(t, spec, ctx.Target)
			}
		})
	}
}
