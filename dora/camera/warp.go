package camera

import (
	"math"

	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime/modeld"
)

// Phases are the rows and columns of luma in the model's first four planes; U and V follow.
var Phases = []int{0, 0, 1, 0, 0, 1, 1, 1}

// PlaneBytes is the size of the planes of a model's picture.
func PlaneBytes(width, height int) int { return width * height * 3 / 2 }

// Warp looks at a camera's picture through a homography, which maps pixels of a model's picture to the camera's (modeld.Calibration.Warps), and writes the
// model's six planes of half its size. It computes what the operator WarpFrame (package ir) computes, bit for bit: the nearest pixel, or
// the mean of four by fractions of 5 bits, with the edge continued. The picture must be whole.
func Warp(planes []byte, p modeld.Picture, matrix [9]float32, width, height int, linear bool) {
	stride, uv := p.Stride, p.UV
	if stride == 0 {
		stride = p.Width
	}
	if uv == 0 {
		uv = stride * p.Height
	}
	w, h := width/2, height/2
	luma := view{data: p.Data, width: p.Width, height: p.Height, stride: stride, step: 1}
	for k := range len(Phases) / 2 {
		luma.warp(planes[k*w*h:(k+1)*w*h], matrix, w, 2, Phases[2*k], Phases[2*k+1], linear)
	}
	half := ir.ChromaMatrix(matrix, linear)
	for k := range 2 {
		chroma := view{data: p.Data[uv+k:], width: p.Width / 2, height: p.Height / 2, stride: stride, step: 2}
		chroma.warp(planes[(4+k)*w*h:(5+k)*w*h], half, w, 1, 0, 0, linear)
	}
}

// view is a plane of a picture.
type view struct {
	data          []byte
	width, height int
	stride, step  int
}

// warp fills a plane, w pixels wide, with the pixels (step·r + row, step·c + column) of the model's picture. Coordinates are f32, each operation rounded.
func (v view) warp(out []byte, m [9]float32, w, step, row, column int, linear bool) {
	for j := range out {
		x, y := float32(step*(j%w)+column), float32(step*(j/w)+row)
		a := float32(float32(m[0]*x)+float32(m[1]*y)) + m[2]
		b := float32(float32(m[3]*x)+float32(m[4]*y)) + m[5]
		d := float32(float32(m[6]*x)+float32(m[7]*y)) + m[8]
		if !linear {
			out[j] = v.at(whole(a/d, d), whole(b/d, d))
			continue
		}
		by := 32 / d
		p, q := whole(a*by, d), whole(b*by, d)
		fx, fy := p&31, q&31
		p, q = p>>5, q>>5
		sum := (32-fx)*(32-fy)*int(v.at(p, q)) + fx*(32-fy)*int(v.at(p+1, q)) + (32-fx)*fy*int(v.at(p, q+1)) + fx*fy*int(v.at(p+1, q+1))
		out[j] = byte((sum + 512) >> 10)
	}
}

// at is a pixel; the edge goes on outside.
func (v view) at(x, y int) byte {
	return v.data[max(0, min(y, v.height-1))*v.stride+max(0, min(x, v.width-1))*v.step]
}

// farthest is beyond every picture, and an integer in f32 with 5 bits behind the point.
const farthest = 1 << 20

// whole rounds a coordinate to the nearest integer, ties to even. What is no number, or behind the camera's plane, is 0.
func whole(x, d float32) int {
	if d == 0 || x != x {
		return 0
	}
	return int(math.RoundToEven(float64(max(-farthest, min(x, farthest)))))
}
