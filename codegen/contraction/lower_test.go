package contraction

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spark-compile/spark-compile/codegen/kernel"
	"github.com/spark-compile/spark-compile/internal/target"
	"github.com/spark-compile/spark-compile/ir"
)

type convCase struct {
	h, w, c, out, k, stride, pad, group int
	dtype                               ir.DType
}

func (c convCase) region(b *body) *ir.Node {
	x := b.cast(b.input(ir.T(c.dtype, 1, c.h, c.w, c.c), 1, false, false), ir.Float32)
	w := b.cast(b.input(ir.T(c.dtype, c.out, c.c/c.group, c.k, c.k), 0.1, true, false), ir.Float32)
	y := b.add("Conv", ir.Attrs{"strides": []int{c.stride, c.stride}, "pads": []int{c.pad, c.pad, c.pad, c.pad}, "dilations": []int{1, 1}, "group": c.group, "layout": "NHWC"}, x, w)
	return b.finish(b.cast(y, c.dtype))
}

func TestConvAssembles(t *testing.T) {
	for _, d := range []ir.DType{ir.Float16, ir.Float32} {
		c := convCase{h: 16, w: 32, c: 16, out: 64, k: 3, stride: 2, pad: 1, group: 1, dtype: d}
		b := newBody(t)
		r := c.region(b)
		for _, name := range target.Names() {
			tgt, err := target.Lookup(name)
			require.NoError(t, err)
			spec, err := Lower(r, &kernel.Context{Target: tgt})
			require.NoError(t, err)
			assemble(t, spec, tgt)
		}
	}
}
