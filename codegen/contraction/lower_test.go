package contraction

import (
	"fmt"
	"testing"

	"github.com/spark-compile/spark-compile/codegen/kerneltest"
	"github.com/spark-compile/spark-compile/ir"
)

type convCase struct {
	h, w, c, out, k, stride, pad, group int
	dtype                               ir.DType
}

func (c convCase) region(b *kerneltest.Region) *ir.Node {
	x := b.Cast(b.Input(ir.T(c.dtype, 1, c.h, c.w, c.c), 1, false, false), f32)
	w := b.Cast(b.Input(ir.T(c.dtype, c.out, c.c/c.group, c.k, c.k), 0.1, true, false), f32)
	y := b.Add("Conv", ir.Attrs{"strides": []int{c.stride, c.stride}, "pads": []int{c.pad, c.pad, c.pad, c.pad}, "dilations": []int{1, 1}, "group": c.group, "layout": "NHWC"}, x, w)
	return b.Finish(b.Cast(y, c.dtype))
}

func TestConvEqualsTheReference(t *testing.T) {
	for _, d := range bothTypes {
		for _, c := range []convCase{
			{8, 16, 16, 64, 3, 2, 1, 1, d},
			{8, 8, 64, 64, 1, 1, 0, 1, d},
			{7, 5, 24, 40, 3, 1, 1, 1, d},
			{6, 6, 12, 20, 3, 1, 1, 1, d},
			{6, 6, 6, 10, 3, 2, 1, 1, d},
			{5, 7, 3, 7, 3, 1, 0, 1, d},
			{6, 6, 32, 48, 3, 1, 1, 2, d},
			{4, 8, 256, 64, 1, 1, 0, 1, d},
		} {
			t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
				b := newRegion(t)
				c.region(b)
				b.Check(Family.Lower, sm121(t))
			})
		}
	}
}
