package compile

import (
	"context"
	"math"
	goruntime "runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/spark-compile/spark-compile/internal/calibrate"
	"github.com/spark-compile/spark-compile/internal/linear"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime"
)

// windowOf is a region that is nothing but a depthwise convolution of f32 with constant weights, and the operand that it reads. A
// window's sums are those of the kernel, in its order, to the bit, but the CPU device imitates the kernel's every instruction. It
// is nil for any other region, and where the processor can't fuse.
func windowOf(n *ir.Node) (*linear.Window, int) {
	r := n.Region
	if !n.IsFamily(ir.FamilyWindow) || r.Members > 0 || len(r.Body.Nodes) != 1 {
		return nil, 0
	}
	a := r.Body.Nodes[0]
	if a.Op.Name != "Conv" || !a.Depthwise() || a.Attrs.String("layout", "NCHW") != "NHWC" || a.Inputs[0].Type.Rank() != 4 {
		return nil, 0
	}
	plain := func(s ir.Storage) bool { return s == ir.Storage{DType: ir.Float32} }
	if slices.ContainsFunc(r.Operands, func(o ir.Operand) bool { return o.Stacked || !plain(o.Storage) }) || !slices.ContainsFunc(r.Results, plain) {
		return nil, 0
	}
	constant := func(v *ir.Value) []float32 {
		if at := slices.Index(r.Body.Inputs, v); at >= 0 {
			v = n.Inputs[at]
		}
		if !v.IsConst() || v.Type.DType != ir.Float32 {
			return nil
		}
		return runtime.View[float32](v.Const.Dense())
	}
	x, y, kernel := a.Inputs[0].Type.Shape, a.Outputs[0].Type.Shape, a.Inputs[1].Type.Shape
	from, weights := slices.Index(r.Body.Inputs, a.Inputs[0]), constant(a.Inputs[1])
	strides, dilations, pads := a.Attrs.Ints("strides"), a.Attrs.Ints("dilations"), a.Attrs.Ints("pads")
	w := &linear.Window{Height: x[1], Width: x[2], Channels: x[3], Rows: y[1], Columns: y[2], KernelHeight: kernel[2], KernelWidth: kernel[3],
		Stride: [2]int(strides), Dilation: [2]int(dilations), Pad: [2]int(pads[:2])}
	if from < 0 || weights == nil || y[3] != x[3] || y[0]*y[1]*y[2] == 0 || !w.Fused() {
		return nil, 0
	}
	if max((kernel[2]-1)*dilations[0], (kernel[3]-1)*dilations[1]) > widest || max(a.Inputs[0].Type.Numel(), a.Outputs[0].Type.Numel()) > math.MaxInt32 {
		return nil, 0 // the window kernel may reject it, and another's sums are in another order
	}
	if a.In(2) != nil {
		if w.Bias = constant(a.In(2)); w.Bias == nil {
			return nil, 0
		}
	}
	count := w.KernelHeight * w.KernelWidth
	w.Taps = make([]float32, len(weights))
	for c := range w.Channels {
		for t := range count {
			w.Taps[t*w.Channels+c] = weights[c*count+t]
		}
	}
	return w, from
}

// widest is the distance of a window's outermost taps up to which its kernel surely has room.
const widest = 16

// rowsAtOnce is the number of rows that a core computes before it takes others.
const rowsAtOnce = 8

// windows evaluates a region that is a window.
func (r *nativeRegion) windows(ctx context.Context, n *ir.Node, in [][]*ir.Tensor, room *calibrate.Room) (outs [][]*ir.Tensor, err error) {
	w, y := r.window, n.Outputs[0].Type
	for range in {
		outs = append(outs, []*ir.Tensor{room.Tensor(y)})
	}
	images, blocks := y.Shape[0], (w.Rows+rowsAtOnce-1)/rowsAtOnce
	spread(ctx, len(in)*images*blocks, func(i int) {
		at, image, row := i/blocks/images, i/blocks%images, i%blocks*rowsAtOnce
		to, from := runtime.View[float32](outs[at][0].Data), runtime.View[float32](in[at][r.from].Data)
		w.Of(to[image*w.Rows*w.Columns*w.Channels:], from[image*w.Height*w.Width*w.Channels:], row, min(row+rowsAtOnce, w.Rows))
	})
	return outs, ctx.Err()
}

// spread calls f for every index below n, on all cores, until the context ends.
func spread(ctx context.Context, n int, f func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, goruntime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	wg.Wait()
}
