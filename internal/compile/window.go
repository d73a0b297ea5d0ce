package compile

import (
	"context"
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/internal/blas"
	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/parallel"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// windowsOf are a region that is nothing but a depthwise convolution of f32 with constant weights, by member, and the operand that
// they read. A window's sums are those of the kernel, in its order, to the bit, but the CPU device imitates the kernel's every
// instruction. There are none for any other region, and where the processor can't fuse.
func windowsOf(n *ir.Node) (list []*blas.Window, from int) {
	r := n.Region
	if !n.IsFamily(ir.FamilyWindow) || len(r.Body.Nodes) != 1 {
		return nil, 0
	}
	a := r.Body.Nodes[0]
	if a.Op.Name != "Conv" || !a.Depthwise() || a.Attrs.String("layout", "NCHW") != "NHWC" || a.Inputs[0].Type.Rank() != 4 {
		return nil, 0
	}
	plain := func(s ir.Storage) bool { return s == ir.Storage{DType: ir.Float32} }
	if slices.ContainsFunc(r.Operands, func(o ir.Operand) bool { return !plain(o.Storage) }) || !slices.ContainsFunc(r.Results, plain) {
		return nil, 0
	}
	x, y, kernel := a.Inputs[0].Type.Shape, a.Outputs[0].Type.Shape, a.Inputs[1].Type.Shape
	strides, dilations, pads := a.Attrs.Ints("strides"), a.Attrs.Ints("dilations"), a.Attrs.Ints("pads")
	w := blas.Window{Height: x[1], Width: x[2], Channels: x[3], Rows: y[1], Columns: y[2], KernelHeight: kernel[2], KernelWidth: kernel[3],
		Stride: [2]int(strides), Dilation: [2]int(dilations), Pad: [2]int(pads[:2])}
	if from = slices.Index(r.Body.Inputs, a.Inputs[0]); from < 0 || y[3] != x[3] || y[0]*y[1]*y[2] == 0 || !w.Fused() {
		return nil, 0
	}
	if max((kernel[2]-1)*dilations[0], (kernel[3]-1)*dilations[1]) > widest || max(a.Inputs[0].Type.Numel(), a.Outputs[0].Type.Numel()) > math.MaxInt32 {
		return nil, 0 // the window kernel may reject it, and another's sums are in another order
	}
	for m := range max(1, r.Members) {
		weights, bias := memberConstant(n, a.Inputs[1], m), []float32(nil)
		if a.In(2) != nil {
			bias = memberConstant(n, a.In(2), m)
		}
		if weights == nil || a.In(2) != nil && bias == nil {
			return nil, 0
		}
		w := w
		w.Bias, w.Taps = bias, make([]float32, len(weights))
		count := w.KernelHeight * w.KernelWidth
		for c := range w.Channels {
			for t := range count {
				w.Taps[t*w.Channels+c] = weights[c*count+t]
			}
		}
		list = append(list, &w)
	}
	return list, from
}

// memberConstant are the numbers of a value inside a region, of a member; nil if they are no constant of f32.
func memberConstant(n *ir.Node, v *ir.Value, member int) []float32 {
	size, at := v.Type.Numel(), 0
	if i := slices.Index(n.Region.Body.Inputs, v); i >= 0 {
		if v = n.Inputs[i]; n.Region.Operands[i].Batched {
			at = member * size
		}
	}
	if !v.IsConst() || v.Type.DType != ir.Float32 {
		return nil
	}
	return runtime.View[float32](v.Const.Dense())[at:][:size]
}

// widest is the distance of a window's outermost taps up to which its kernel surely has room.
const widest = 16

// rowsAtOnce is the number of rows that a core computes before it takes others.
const rowsAtOnce = 8

// evaluate evaluates a region that is windows.
func (r *nativeRegion) evaluate(ctx context.Context, n *ir.Node, in [][]*ir.Tensor, pool *calibrate.BufferPool) (outs [][]*ir.Tensor, err error) {
	for range in {
		outs = append(outs, []*ir.Tensor{pool.Tensor(n.Outputs[0].Type)})
	}
	members, stride := len(r.windows), 0
	if n.Region.Operands[r.from].Batched {
		stride = n.Inputs[r.from].Type.Numel() / members
	}
	w, size := r.windows[0], n.Outputs[0].Type.Numel()/members
	images, blocks := size/(w.Rows*w.Columns*w.Channels), (w.Rows+rowsAtOnce-1)/rowsAtOnce
	parallel.ForContext(ctx, len(in)*members*images*blocks, func(i int) {
		at, member, image, row := i/blocks/images/members, i/blocks/images%members, i/blocks%images, i%blocks*rowsAtOnce
		to, from := runtime.View[float32](outs[at][0].Data)[member*size:], runtime.View[float32](in[at][r.from].Data)[member*stride:]
		r.windows[member].Of(to[image*w.Rows*w.Columns*w.Channels:], from[image*w.Height*w.Width*w.Channels:], row, min(row+rowsAtOnce, w.Rows))
	})
	return outs, ctx.Err()
}
