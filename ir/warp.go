package ir

import (
	"fmt"
	"math"
)

// WarpFrame samples camera frames through homographies, as openpilot's modeld does before a model.
//
// A frame is NV12: rows of luma, then at an offset rows of interleaved U and V of half the size. format holds the
// picture's width, height, row pitch in bytes and the offset of the chroma, for all frames. matrices [N, 3, 3] map a
// pixel (x, y, 1) of the model's picture, which is height × width luma pixels, to one of the frame's in homogeneous
// coordinates.
//
// phases lists (row, column) of the luma planes: plane k has the pixels (2r+row, 2c+column) of the model's picture, r
// and c from 0. They are followed by U and V, which have half the picture's size too. The result is [N, planes,
// height/2, width/2]. Without phases it is all luma, [N, 1, height, width].
//
// All of it is exact. Coordinates are f32, each operation rounded: (m0·x + m1·y) + m2 and so on, with the matrix of
// the plane (chroma). Then, with the third coordinate w:
//   - the nearest pixel: the quotients by w, rounded to the nearest integer, ties to even;
//   - linear: the products with 32/w, rounded likewise, are in units of 1/32 of a pixel; four pixels have weights
//     (32-a)·(32-b) … /1024, and the sum is rounded half up (OpenCV's warpPerspective with INTER_LINEAR, in
//     integers).
//
// Outside, a frame repeats its edge, or is fill if that is not -1. A coordinate that is not a number, or whose w is
// 0, is 0.
type warp struct {
	height, width int // of a plane
	phases        []int
	linear        bool
	fill          int
}

func (n *Node) warp() warp {
	return warp{n.Attrs.Int("height", 0), n.Attrs.Int("width", 0), n.Attrs.Ints("phases"), n.Flag("linear"), n.Attrs.Int("fill", -1)}
}

// Planes are the number of planes and their size.
func (w warp) planes() (count, height, width int) {
	if len(w.phases) == 0 {
		return 1, w.height, w.width
	}
	return len(w.phases)/2 + 2, w.height / 2, w.width / 2
}

func inferWarpFrame(n *Node) ([]Type, error) {
	w, frames := n.warp(), len(n.Inputs)-2
	count, height, width := w.planes()
	switch {
	case w.height < 1 || w.width < 1:
		return nil, fmt.Errorf("a picture of %d × %d pixels", w.width, w.height)
	case len(w.phases)%2 != 0 || len(w.phases) > 0 && (w.height%2 != 0 || w.width%2 != 0):
		return nil, fmt.Errorf("planes of a picture of %d × %d pixels with phases %v: want even sizes and pairs of row and column", w.width, w.height, w.phases)
	case w.fill < -1 || w.fill > math.MaxUint8:
		return nil, fmt.Errorf("fill is %d, want a byte, or -1 for none", w.fill)
	}
	for _, v := range n.Inputs[2:] {
		if v.Type.DType != Uint8 || v.Type.Rank() != 1 || v.Type.Shape[0] < 1 || v.Type.Shape[0] > math.MaxInt32 || !v.Type.Equal(n.Inputs[2].Type) {
			return nil, fmt.Errorf("frame %q is %v, want bytes in one dimension, of all frames as many", v.Name, v.Type)
		}
	}
	if m := n.Inputs[0].Type; !m.Equal(T(Float32, frames, 3, 3)) {
		return nil, fmt.Errorf("matrices is %v, want f32[%d,3,3]", m, frames)
	}
	return []Type{T(Uint8, frames, count, height, width)}, n.shaped(1, 4)
}

// chroma is the matrix between planes of half the size, m that of luma. openpilot's two generations disagree, and so
// do the samplings. With the nearest pixel, pixels count from their corner: S·M·S⁻¹ with S = diag(½, ½, 1), so m2, m5
// are half and m6, m7 twice. With the linear one they count from their centre: pixel x is at 2x + ½ of luma. That is
// T·(M·U) with U = [2 0 ½; 0 2 ½; 0 0 1] and T = [½ 0 -¼; 0 ½ -¼; 0 0 1], in f32.
func (w warp) chroma(m [9]float32) [9]float32 {
	if !w.linear {
		for k, s := range [9]float32{1, 1, .5, 1, 1, .5, 2, 2, 1} {
			m[k] *= s
		}
		return m
	}
	var half [3]float32 // the last column of M·U
	for r := range half {
		half[r] = float32(float32(.5*m[3*r])+float32(.5*m[3*r+1])) + m[3*r+2]
	}
	for r := range 2 {
		m[3*r], m[3*r+1] = m[3*r]-float32(.5*m[6]), m[3*r+1]-float32(.5*m[7])
		m[3*r+2] = float32(.5*half[r]) - float32(.25*half[2])
	}
	m[6], m[7], m[8] = float32(2*m[6]), float32(2*m[7]), half[2]
	return m
}

// ChromaMatrix is the matrix of the planes of half the size, as WarpFrame takes it, to that of luma.
func ChromaMatrix(luma [9]float32, linear bool) [9]float32 { return warp{linear: linear}.chroma(luma) }

// evalWarpFrame is in float32 and integers, as the row says.
func evalWarpFrame(n *Node, in []*Array) ([]*Array, error) {
	w, out := n.warp(), NewArray(n.Outputs[0].Type)
	count, height, width := w.planes()
	luma := len(w.phases) / 2
	f := in[1].I
	for i, frame := range in[2:] {
		at := func(base, stride, step, x, y int) int64 { // past the end of a short buffer there is its last byte
			return frame.I[max(0, min(base+y*stride+x*step, len(frame.I)-1))]
		}
		for c := range count {
			var m [9]float32
			for k := range m {
				m[k] = float32(in[0].F[9*i+k])
			}
			p := plane{w: int(f[0]), h: int(f[1]), at: func(x, y int) int64 { return at(0, int(f[2]), 1, x, y) }}
			row, column, step := 0, 0, 1
			switch {
			case luma == 0:
			case c < luma:
				row, column, step = w.phases[2*c], w.phases[2*c+1], 2
			default:
				m = w.chroma(m)
				p = plane{w: int(f[0]) / 2, h: int(f[1]) / 2, at: func(x, y int) int64 { return at(int(f[3])+c-luma, int(f[2]), 2, x, y) }}
			}
			for j := range height * width {
				x, y := float32(step*(j%width)+column), float32(step*(j/width)+row)
				var q [3]float32
				for k := range q {
					q[k] = float32(float32(m[3*k]*x)+float32(m[3*k+1]*y)) + m[3*k+2]
				}
				out.I[(i*count+c)*height*width+j] = p.sample(q, w.linear, w.fill)
			}
		}
	}
	return []*Array{out}, nil
}

// plane is a plane of a frame.
type plane struct {
	w, h int
	at   func(x, y int) int64
}

func (p *plane) sample(q [3]float32, linear bool, fill int) int64 {
	if !linear {
		x, y := pixels(q[0]/q[2], q[2]), pixels(q[1]/q[2], q[2])
		u, v := max(0, min(x, p.w-1)), max(0, min(y, p.h-1))
		if fill >= 0 && (u != x || v != y) {
			return int64(fill)
		}
		return p.at(u, v)
	}
	x, y := pixels(q[0]*(32/q[2]), q[2]), pixels(q[1]*(32/q[2]), q[2])
	sum := 0
	for k := range 4 {
		dx, dy := k%2, k/2
		weight := (32 - 32*dx + (2*dx-1)*(x&31)) * (32 - 32*dy + (2*dy-1)*(y&31))
		s, t := x>>5+dx, y>>5+dy
		u, v := max(0, min(s, p.w-1)), max(0, min(t, p.h-1))
		if fill >= 0 && (u != s || v != t) {
			sum += weight * fill
			continue
		}
		sum += weight * int(p.at(u, v))
	}
	return int64((sum + 512) >> 10)
}

// farthest lies outside every frame, and is exact in float32 with 5 fractional bits.
const farthest = 1 << 20

// pixels rounds a coordinate to an integer.
func pixels(x, w float32) int {
	if w == 0 || x != x {
		return 0
	}
	return int(math.RoundToEven(float64(max(-farthest, min(x, farthest)))))
}
