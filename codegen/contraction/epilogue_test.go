package contraction

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/ir"
)

// TestEpilogues runs what may stand behind an anchor.
func TestEpilogues(t *testing.T) {
	conv := func(b *body, d ir.DType, c, out int, bias bool, stackX bool) *ir.Value {
		g := b.region.Attrs.Int("members", 0) > 0
		x := b.cast(b.input(ir.T(d, 1, 6, 6, c), 1, false, stackX), ir.Float32)
		w := b.cast(b.input(ir.T(d, out, c, 3, 3), 0.1, true, g), ir.Float32)
		in := []*ir.Value{x, w}
		if bias {
			in = append(in, b.input(ir.T(ir.Float32, out), 1, true, g))
		}
		return b.add("Conv", ir.Attrs{"strides": []int{1, 1}, "pads": []int{1, 1, 1, 1}, "dilations": []int{1, 1}, "layout": "NHWC"}, in...)
	}
	splat := func(b *body, x float64) *ir.Value {
		return b.region.Body.Constant("c", ir.FromFloats(ir.T(ir.Float32), []float64{x}))
	}
	for _, d := range bothTypes {
		for _, c := range []struct {
			name  string
			build func(b *body) *ir.Value
		}{
			{"bias and gelu", func(b *body) *ir.Value { return b.add("Gelu", nil, conv(b, d, 16, 24, true, false)) }},
			{"bias of odd channels", func(b *body) *ir.Value { return b.add("Relu", nil, conv(b, d, 8, 13, true, false)) }},
			{"residual", func(b *body) *ir.Value {
				y := conv(b, d, 16, 16, true, false)
				return b.add("Add", nil, b.cast(b.input(ir.T(d, 1, 6, 6, 16), 1, false, false), ir.Float32), y)
			}},
			{"residual of odd channels", func(b *body) *ir.Value {
				y := conv(b, d, 8, 5, false, false)
				return b.add("Add", nil, y, b.cast(b.input(ir.T(d, 1, 6, 6, 5), 1, false, false), ir.Float32))
			}},
			{"gate by channel, silu", func(b *body) *ir.Value {
				y := conv(b, d, 16, 16, false, false)
				y = b.add("Mul", nil, y, b.input(ir.T(ir.Float32, 1, 1, 1, 16), 1, false, false))
				return b.add("Mul", nil, y, b.add("Sigmoid", nil, y))
			}},
			{"splat and gate by row", func(b *body) *ir.Value {
				y := b.add("Mul", nil, conv(b, d, 16, 16, false, false), splat(b, 0.37))
				return b.add("Mul", nil, y, b.input(ir.T(ir.Float32, 1, 6, 6, 1), 1, false, false))
			}},
			{"transposed to NCHW", func(b *body) *ir.Value {
				y := b.add("Relu", nil, conv(b, d, 16, 16, true, false))
				return b.add("Transpose", ir.Attrs{"perm": []int{0, 3, 1, 2}}, y)
			}},
			{"reshaped, then a residual", func(b *body) *ir.Value {
				y := b.add("Reshape", ir.Attrs{"shape": []int{1, 36, 24}}, conv(b, d, 16, 24, true, false))
				return b.add("Add", nil, y, b.input(ir.T(ir.Float32, 1, 36, 24), 1, false, false))
			}},
			{"members with stacked inputs, bias and residual", func(b *body) *ir.Value {
				b.members(3)
				y := conv(b, d, 16, 24, true, true)
				return b.add("Add", nil, y, b.cast(b.input(ir.T(d, 1, 6, 6, 24), 1, false, true), ir.Float32))
			}},
			{"members with a shared input", func(b *body) *ir.Value { b.members(2); return conv(b, d, 16, 24, true, false) }},
			{"channel groups with bias", func(b *body) *ir.Value {
				x := b.cast(b.input(ir.T(d, 1, 6, 6, 32), 1, false, false), ir.Float32)
				w := b.cast(b.input(ir.T(d, 48, 16, 3, 3), 0.1, true, false), ir.Float32)
				return b.add("Conv", ir.Attrs{"strides": []int{1, 1}, "pads": []int{1, 1, 1, 1}, "dilations": []int{1, 1}, "group": 2, "layout": "NHWC"},
					x, w, b.input(ir.T(ir.Float32, 48), 1, true, false))
			}},
			{"clipped, masked and divided", func(b *body) *ir.Value {
				y := b.add("Min", nil, b.add("Max", nil, conv(b, d, 8, 16, true, false), splat(b, -1)), splat(b, 1.5))
				y = b.add("Div", nil, y, b.add("Add", nil, b.add("Abs", nil, y), splat(b, 1)))
				mask := b.add("Greater", nil, b.input(ir.T(ir.Float32, 1, 6, 6, 1), 1, false, false), splat(b, 0))
				return b.add("Where", nil, mask, b.add("Tanh", nil, y), splat(b, 0.25))
			}},
			{"hard swish and erf", func(b *body) *ir.Value {
				y := conv(b, d, 8, 16, true, false)
				z := b.add("Mul", nil, y, b.add("Min", nil, b.add("Relu", nil, b.add("Add", nil, y, splat(b, 3))), splat(b, 6)))
				return b.add("Add", nil, z, b.add("Erf", nil, y))
			}},
			{"NCHW", func(b *body) *ir.Value {
				x := b.cast(b.input(ir.T(d, 2, 10, 6, 6), 1, false, false), ir.Float32)
				w := b.cast(b.input(ir.T(d, 12, 10, 3, 3), 0.1, true, false), ir.Float32)
				return b.add("Conv", ir.Attrs{"strides": []int{2, 2}, "pads": []int{1, 0, 1, 0}, "dilations": []int{1, 2}},
					x, w, b.input(ir.T(ir.Float32, 12), 1, true, false))
			}},
			{"one spatial dimension", func(b *body) *ir.Value {
				x := b.cast(b.input(ir.T(d, 1, 30, 16), 1, false, false), ir.Float32)
				w := b.cast(b.input(ir.T(d, 24, 16, 3), 0.1, true, false), ir.Float32)
				return b.add("Conv", ir.Attrs{"strides": []int{2}, "pads": []int{1, 1}, "dilations": []int{1}, "layout": "NHWC"},
					x, w, b.input(ir.T(ir.Float32, 24), 1, true, false))
			}},
			{"constant times variable", func(b *body) *ir.Value {
				w := b.cast(b.input(ir.T(d, 20, 24), 0.1, true, false), ir.Float32)
				return b.add("MatMul", nil, w, b.cast(b.input(ir.T(d, 24, 40), 1, false, false), ir.Float32))
			}},
			{"batched weights", func(b *body) *ir.Value {
				x := b.cast(b.input(ir.T(d, 3, 20, 24), 1, false, false), ir.Float32)
				return b.add("MatMul", nil, x, b.cast(b.input(ir.T(d, 3, 24, 40), 0.1, true, false), ir.Float32))
			}},
			{"f32 rows, f16 weights", func(b *body) *ir.Value {
				x := b.input(ir.T(ir.Float32, 20, 24), 1, false, false)
				return b.add("MatMul", nil, x, b.cast(b.input(ir.T(ir.Float16, 24, 40), 0.1, true, false), ir.Float32))
			}},
			{"f16 rows, f32 weights", func(b *body) *ir.Value {
				x := b.cast(b.input(ir.T(ir.Float16, 20, 24), 1, false, false), ir.Float32)
				return b.add("MatMul", nil, x, b.input(ir.T(ir.Float32, 24, 40), 0.1, true, false))
			}},
		} {
			t.Run(d.String()+" "+c.name, func(t *testing.T) {
				b, ctx := newBody(t), sm121(t)
				b.finish(b.cast(c.build(b), d))
				spec, err := Lower(b.region, ctx)
				require.NoError(t, err)
				check(t, b, spec, ctx.Target)
				assembleAll(t, b.region)
			})
		}
	}
}
