package ir

import (
	"github.com/spark-compile/spark-compile/internal/blas"
	"github.com/spark-compile/spark-compile/internal/parallel"
)

// image is the memory order of a [N, C, spatial…] or [N, spatial…, C] tensor.
type image struct {
	batch, channel int   // strides
	spatial        []int // strides
	size           []int
}

func (n *Node) imageOf(shape []int) image {
	s := strides(shape)
	first, channel := n.spatial()
	r := len(shape) - 2
	return image{batch: s[0], channel: s[channel], spatial: s[first : first+r], size: shape[first : first+r]}
}

// grid enumerates the indices of a kernel: taps[t][i] is the index of tap t in spatial dimension i.
func grid(kernel []int) [][]int {
	taps := make([][]int, T(Bool, kernel...).Numel())
	c := newCursor(kernel, 0)
	for t := range taps {
		taps[t] = append([]int(nil), c.index...)
		c.next()
	}
	return taps
}

// mustWindows returns the geometry of a node that inference has accepted.
func (n *Node) mustWindows(kernel []int) ([]window, error) {
	ws, err := n.windows(kernel)
	if err != nil {
		return nil, err
	}
	return ws, slide(ws, n.Attrs.Bool("ceil"))
}

// tapOffsets returns the input offset of every tap for the output position at, or -1 where it lies outside the input.
func tapOffsets(offsets []int, taps [][]int, ws []window, at, stride []int) {
	for t, tap := range taps {
		o := 0
		for i, w := range ws {
			p := at[i]*w.stride - w.begin + tap[i]*w.dilation
			if p < 0 || p >= w.in {
				o = -1
				break
			}
			o += p * stride[i]
		}
		offsets[t] = o
	}
}

// evalConv packs the receptive fields of a tile of output positions as rows and multiplies them with the rows of
// weights.
func evalConv(n *Node, in []*Array) ([]*Array, error) {
	x, w, out := in[0], in[1], NewArray(n.Outputs[0].Type)
	ws, err := n.mustWindows(w.Shape[2:])
	if err != nil {
		return nil, err
	}
	if out.F == nil {
		return evalConvInt(n, in, ws, out)
	}
	xi, yi := n.imageOf(x.Shape), n.imageOf(out.Shape)
	group := n.Attrs.Int("group", 1)
	outs, channels := w.Shape[0]/group, w.Shape[1]
	taps := grid(w.Shape[2:])
	k := channels * len(taps)
	positions := T(Bool, yi.size...).Numel()
	tile := tileRows(k)
	tiles := (positions + tile - 1) / tile
	var bias []float64
	if len(in) > 2 && in[2] != nil {
		bias = in[2].F
	}
	offsets := allTapOffsets(taps, ws, yi.size, xi.spatial)
	if channels == 1 && outs == 1 && xi.channel == 1 && yi.channel == 1 {
		convDepthwise(x, w, out, bias, xi, yi, offsets)
		return []*Array{out}, nil
	}
	parallel.Ranges(x.Shape[0]*group*tiles, 1, func(lo, hi int) {
		patch, sums := make([]float64, tile*k), make([]float64, outs*tile)
		at := make([]int, tile)
		for job := lo; job < hi; job++ {
			b, g, first := job/tiles/group, job/tiles%group, job%tiles*tile
			count := min(tile, positions-first)
			c := newCursor(yi.size, first, yi.spatial)
			base := b*xi.batch + g*channels*xi.channel
			for p := range count {
				at[p] = c.at[0]
				row := patch[p*k : (p+1)*k]
				if o := int(offsets[first+p]); len(taps) == 1 && o >= 0 {
					for ch, from := 0, base+o; ch < len(row); ch, from = ch+1, from+xi.channel {
						row[ch] = x.F[from]
					}
					c.next()
					continue
				}
				for ch := range channels {
					from, part := base+ch*xi.channel, row[ch*len(taps):][:len(taps)]
					for t, o := range offsets[(first+p)*len(taps):][:len(part)] {
						if o < 0 {
							part[t] = 0
						} else {
							part[t] = x.F[from+int(o)]
						}
					}
				}
				c.next()
			}
			to := b*yi.batch + g*outs*yi.channel
			weights, patches := blas.Rows{F: w.F[g*outs*k:], Stride: k, Count: outs}, blas.Rows{F: patch, Stride: k, Count: count}
			blas.Dots(sums, tile, weights, patches, k)
			for i := range outs {
				for p, s := range sums[i*tile:][:count] {
					if bias != nil {
						s += bias[g*outs+i]
					}
					out.F[to+i*yi.channel+at[p]] = s
				}
			}
		}
	})
	return []*Array{out}, nil
}

// allTapOffsets are the input offsets of every tap for every output position, or -1.
func allTapOffsets(taps [][]int, ws []window, size, stride []int) []int32 {
	positions := T(Bool, size...).Numel()
	out := make([]int32, positions*len(taps))
	parallel.Ranges(positions, 1<<10, func(lo, hi int) {
		offsets := make([]int, len(taps))
		c := newCursor(size, lo)
		for p := lo; p < hi; p++ {
			tapOffsets(offsets, taps, ws, c.index, stride)
			for t, o := range offsets {
				out[p*len(taps)+t] = int32(o)
			}
			c.next()
		}
	})
	return out
}

// convDepthwise is a depthwise convolution of channels that lie together: it sums over the taps in their order.
func convDepthwise(x, w, out *Array, bias []float64, xi, yi image, offsets []int32) {
	channels := w.Shape[0]
	taps := len(w.F) / channels
	byTap := packRows(w.F, 0, taps, channels, 1, taps)
	positions := len(offsets) / taps
	parallel.Ranges(x.Shape[0]*positions, 1, func(lo, hi int) {
		c := newCursor(append([]int{x.Shape[0]}, yi.size...), lo, append([]int{yi.batch}, yi.spatial...))
		for job := lo; job < hi; job++ {
			b, p := job/positions, job%positions
			sum := out.F[c.at[0]:][:channels]
			for t, o := range offsets[p*taps:][:taps] {
				if o < 0 {
					continue
				}
				weights, from := byTap[t*channels:][:channels], x.F[b*xi.batch+int(o):][:channels]
				for ch, v := range from {
					sum[ch] += float64(v * weights[ch])
				}
			}
			for ch, v := range bias {
				sum[ch] += v
			}
			c.next()
		}
	})
}

func evalConvInt(n *Node, in []*Array, ws []window, out *Array) ([]*Array, error) {
	x, w := in[0], in[1]
	xi, yi := n.imageOf(x.Shape), n.imageOf(out.Shape)
	group := n.Attrs.Int("group", 1)
	outs, channels := w.Shape[0]/group, w.Shape[1]
	taps := grid(w.Shape[2:])
	positions := T(Bool, yi.size...).Numel()
	parallel.Ranges(x.Shape[0]*w.Shape[0], 1, func(lo, hi int) {
		offsets := make([]int, len(taps))
		for job := lo; job < hi; job++ {
			b, o := job/w.Shape[0], job%w.Shape[0]
			c := newCursor(yi.size, 0, yi.spatial)
			for range positions {
				tapOffsets(offsets, taps, ws, c.index, xi.spatial)
				s := int64(0)
				for ch := range channels {
					from := b*xi.batch + (o/outs*channels+ch)*xi.channel
					for t, off := range offsets {
						if off >= 0 {
							s += x.I[from+off] * w.I[(o*channels+ch)*len(taps)+t]
						}
					}
				}
				if len(in) > 2 && in[2] != nil {
					s += in[2].I[o]
				}
				out.I[b*yi.batch+o*yi.channel+c.at[0]] = WrapInt(out.DType, s)
				c.next()
			}
		}
	})
	return []*Array{out}, nil
}

// evalConvTranspose gathers: an output position o reads the input at (o+begin-tap·dilation)/stride where that is whole.
func evalConvTranspose(n *Node, in []*Array) ([]*Array, error) {
	x, w, out := in[0], in[1], NewArray(n.Outputs[0].Type)
	ws, err := n.windows(w.Shape[2:])
	if err != nil {
		return nil, err
	}
	xi, yi := n.imageOf(x.Shape), n.imageOf(out.Shape)
	group := n.Attrs.Int("group", 1)
	outs, channels := w.Shape[1], w.Shape[0]/group
	taps := grid(w.Shape[2:])
	positions := T(Bool, yi.size...).Numel()
	parallel.Ranges(positions, 1, func(lo, hi int) {
		c := newCursor(yi.size, lo, yi.spatial)
		offsets := make([]int, len(taps))
		for p := lo; p < hi; p++ {
			for t, tap := range taps {
				offsets[t] = 0
				for i, wd := range ws {
					q := c.index[i] + wd.begin - tap[i]*wd.dilation
					if q < 0 || q%wd.stride != 0 || q/wd.stride >= wd.in {
						offsets[t] = -1
						break
					}
					offsets[t] += q / wd.stride * xi.spatial[i]
				}
			}
			for bo := range x.Shape[0] * group * outs {
				b, g, o := bo/(group*outs), bo/outs%group, bo%outs
				s := 0.0
				for ch := range channels {
					from := b*xi.batch + (g*channels+ch)*xi.channel
					weights := w.F[((g*channels+ch)*outs+o)*len(taps):]
					for t, off := range offsets {
						if off >= 0 {
							s += float64(x.F[from+off] * weights[t])
						}
					}
				}
				if len(in) > 2 && in[2] != nil {
					s += in[2].F[g*outs+o]
				}
				out.F[b*yi.batch+(g*outs+o)*yi.channel+c.at[0]] = s
			}
			c.next()
		}
	})
	return []*Array{out}, nil
}
