package camera

import (
	"math"

	"github.com/spark-compile/spark-compile/internal/openpilot/generation"
	"github.com/spark-compile/spark-compile/ir"
	"github.com/spark-compile/spark-compile/runtime/modeld"
)

// Look is how a model sees a picture, as the operator WarpFrame (package ir) has it.
type Look struct {
	Width, Height int   // of the model's picture, in pixels
	Phases        []int // row and column of each plane of luma, half as large; U and V follow. None: all luma in one plane
	Linear        bool  // the mean of four pixels, by fractions of 5 bits; else the nearest one
	Fill          int   // what is outside the picture; -1: the edge goes on
}

// Driving is how driving models see: six planes.
func Driving(width, height int, linear bool) Look {
	return Look{width, height, generation.Phases(), linear, -1}
}

// Bytes is the size of what the model sees.
func (l Look) Bytes() int {
	if len(l.Phases) == 0 {
		return l.Width * l.Height
	}
	return (len(l.Phases)/2 + 2) * (l.Width / 2) * (l.Height / 2)
}

// Warp looks at a camera's picture through a homography, which maps pixels of a model's picture to the camera's (modeld.Calibration.Warps), and writes what
// the model sees. It computes what the operator WarpFrame computes, bit for bit. The picture must be whole.
func (l Look) Warp(planes []byte, p modeld.Picture, matrix [9]float32) {
	l.WarpFrom(planes, p, matrix, 0, 0)
}

// WarpFrom is Warp of a look that begins at another column and row of the model's picture than its first, both even.
func (l Look) WarpFrom(planes []byte, p modeld.Picture, matrix [9]float32, column, row int) {
	stride, uv := p.Stride, p.UV
	if stride == 0 {
		stride = p.Width
	}
	if uv == 0 {
		uv = stride * p.Height
	}
	luma := view{data: p.Data, width: p.Width, height: p.Height, stride: stride, step: 1, fill: l.Fill}
	if len(l.Phases) == 0 {
		luma.warp(planes[:l.Width*l.Height], matrix, l.Width, 1, row, column, l.Linear)
		return
	}
	w, h := l.Width/2, l.Height/2
	count := len(l.Phases) / 2
	for k := range count {
		luma.warp(planes[k*w*h:(k+1)*w*h], matrix, w, 2, l.Phases[2*k]+row, l.Phases[2*k+1]+column, l.Linear)
	}
	half := ir.ChromaMatrix(matrix, l.Linear)
	for k := range 2 {
		chroma := view{data: p.Data[uv+k:], width: p.Width / 2, height: p.Height / 2, stride: stride, step: 2, fill: l.Fill}
		chroma.warp(planes[(count+k)*w*h:(count+k+1)*w*h], half, w, 1, row/2, column/2, l.Linear)
	}
}

// view is a plane of a picture.
type view struct {
	data          []byte
	width, height int
	stride, step  int
	fill          int
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

// at is a pixel, or what is outside.
func (v view) at(x, y int) byte {
	u, w := max(0, min(x, v.width-1)), max(0, min(y, v.height-1))
	if v.fill >= 0 && (u != x || w != y) {
		return byte(v.fill)
	}
	return v.data[w*v.stride+u*v.step]
}

// farthest is beyond every picture, and an integer in f32 with 5 bits for its fraction.
const farthest = 1 << 20

// whole rounds a coordinate to the nearest integer, ties to even. NaN, and points in the camera's plane, give 0.
func whole(x, d float32) int {
	if d == 0 || x != x {
		return 0
	}
	return int(math.RoundToEven(float64(max(-farthest, min(x, farthest)))))
}
