package blas

// Window is a depthwise convolution of NHWC images of f32: every channel of an output pixel is the sum, over the taps of its window
// in ascending order, of input times weight, each fused with its addition, from 0 on; then the bias is added. Taps outside the image
// are zeros.
type Window struct {
	Height, Width, Channels   int // of the input
	Rows, Columns             int // of the output
	KernelHeight, KernelWidth int
	Stride, Dilation, Pad     [2]int    // vertical, horizontal; Pad is the leading padding
	Taps, Bias                []float32 // [tap][channel]; Bias may be nil
}

// windowLanes is the number of channels that are computed together.
const windowLanes = 8

// Fused reports whether Of can compute the window here: the processor fuses, and channels come in eights.
func (w *Window) Fused() bool { return fuses && w.Channels%windowLanes == 0 && w.Channels > 0 }

// Of computes some rows of the output of one image.
func (w *Window) Of(out, in []float32, from, to int) {
	taps, zeros := make([]*float32, w.KernelHeight*w.KernelWidth), make([]float32, w.Channels)
	var bias *float32
	if w.Bias != nil {
		bias = &w.Bias[0]
	}
	// Columns whose windows lie within the image, horizontally, are one run.
	first := min((w.Pad[1]+w.Stride[1]-1)/w.Stride[1], w.Columns)
	last := first
	if travel := w.Width - 1 - (w.KernelWidth-1)*w.Dilation[1] + w.Pad[1]; travel >= 0 {
		last = max(first, min(travel/w.Stride[1]+1, w.Columns))
	}
	for y := from; y < to; y++ {
		run := func(x, count int) {
			for t := range taps {
				iy, ix := y*w.Stride[0]-w.Pad[0]+t/w.KernelWidth*w.Dilation[0], x*w.Stride[1]-w.Pad[1]+t%w.KernelWidth*w.Dilation[1]
				taps[t] = &zeros[0]
				if iy >= 0 && iy < w.Height && ix >= 0 && ix < w.Width {
					taps[t] = &in[(iy*w.Width+ix)*w.Channels]
				}
			}
			windows(&out[(y*w.Columns+x)*w.Channels], &taps[0], len(taps), &w.Taps[0], bias, w.Channels, count, w.Stride[1]*w.Channels)
		}
		inside := y*w.Stride[0] >= w.Pad[0] && y*w.Stride[0]-w.Pad[0]+(w.KernelHeight-1)*w.Dilation[0] < w.Height
		for x := 0; x < w.Columns; x++ {
			if inside && x == first && last > first {
				run(x, last-first)
				x = last - 1
				continue
			}
			run(x, 1)
		}
	}
}
