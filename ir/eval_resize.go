package ir

import (
	"math"

	"github.com/spark-compile/spark-compile/internal/parallel"
)

// resample is how one dimension is resized: for every output coordinate a few input indices with weights.
type resample struct {
	index   [][]int
	weight  [][]float64
	outside []bool // the coordinate lies outside the input: extrapolation
}

func evalResize(n *Node, in []*Array) ([]*Array, error) {
	x := in[0]
	t := n.Outputs[0].Type
	if t.Numel() == 0 {
		return []*Array{NewArray(t)}, nil
	}
	dims := make([]*resample, t.Rank())
	for i := range dims {
		dims[i] = n.resampleOf(i, x.Shape[i], t.Shape[i])
	}
	if n.Attrs.String("mode", "nearest") == "nearest" {
		s := strides(x.Shape)
		out := x.indexed(t, func(index []int) int {
			at := 0
			for i, j := range index {
				at += dims[i].index[j][0] * s[i]
			}
			return at
		})
		return []*Array{n.extrapolate(out, dims)}, nil
	}
	y := &Array{Type: T(Float64, x.Shape...), F: x.Floats()}
	for i, r := range dims {
		if r.identity(y.Shape[i]) {
			continue
		}
		y = y.along(i, r)
	}
	out := NewArray(t)
	for i, v := range y.F {
		out.set(i, v)
	}
	return []*Array{n.extrapolate(out, dims)}, nil
}

func (r *resample) identity(size int) bool {
	if len(r.index) != size {
		return false
	}
	for j := range r.index {
		for k, i := range r.index[j] {
			if w := r.weight[j][k]; w != 0 && (i != j || w != 1) {
				return false
			}
		}
	}
	return true
}

// along interpolates one dimension.
func (a *Array) along(axis int, r *resample) *Array {
	t := a.Type.Clone()
	t.Shape[axis] = len(r.index)
	out := NewArray(t)
	inner, d := strides(a.Shape)[axis], a.Shape[axis]
	parallel.Ranges(out.Len(), 1<<12, func(lo, hi int) {
		for p := lo; p < hi; p++ {
			j := p / inner % len(r.index)
			base := p/inner/len(r.index)*d*inner + p%inner
			s := 0.0
			for k, i := range r.index[j] {
				s += float64(r.weight[j][k] * a.F[base+i*inner])
			}
			out.F[p] = s
		}
	})
	return out
}

// extrapolate overwrites the elements whose coordinate lies outside the input.
func (n *Node) extrapolate(out *Array, dims []*resample) *Array {
	if n.Attrs.String("coordinate", "half_pixel") != "tf_crop_and_resize" {
		return out
	}
	c := newCursor(out.Shape, 0)
	for p := range out.Len() {
		for i, j := range c.index {
			if dims[i].outside[j] {
				out.set(p, n.Attrs.Float("extrapolation", 0))
			}
		}
		c.next()
	}
	return out
}

// resampleOf follows the formulas of ONNX Resize 19 for one dimension.
func (n *Node) resampleOf(dim, size, outSize int) *resample {
	r := &resample{}
	scale := n.Attrs.Floats("scales")[dim]
	mode := n.Attrs.String("mode", "nearest")
	for j := range outSize {
		x := n.coordinate(dim, size, outSize, j)
		r.outside = append(r.outside, x < 0 || x > float64(size-1))
		if mode == "nearest" {
			i := n.nearest(x)
			r.index = append(r.index, []int{min(max(i, 0), size-1)})
			r.weight = append(r.weight, []float64{1})
			continue
		}
		first, weights := n.kernel(x, scale)
		index := make([]int, len(weights))
		total := 0.0
		for k := range weights {
			i := first + k
			if n.Attrs.Bool("exclude_outside") && (i < 0 || i >= size) {
				weights[k] = 0
			}
			index[k] = min(max(i, 0), size-1)
			total += weights[k]
		}
		if n.Attrs.Bool("exclude_outside") || n.Attrs.Bool("antialias") {
			for k := range weights {
				weights[k] /= total
			}
		}
		r.index = append(r.index, index)
		r.weight = append(r.weight, weights)
	}
	return r
}

// ResizeTaps describes how a Resize node computes dimension dim: for every output coordinate the input coordinates it
// reads, with their weights (one of weight 1 for nearest), and whether it is extrapolated instead.
func (n *Node) ResizeTaps(dim int) (index [][]int, weight [][]float64, outside []bool) {
	r := n.resampleOf(dim, n.Inputs[0].Type.Shape[dim], n.Outputs[0].Type.Shape[dim])
	if n.Attrs.String("coordinate", "half_pixel") != "tf_crop_and_resize" {
		clear(r.outside)
	}
	return r.index, r.weight, r.outside
}

// coordinate maps an output coordinate to the input.
func (n *Node) coordinate(dim, size, outSize, j int) float64 {
	x, scale, in := float64(j), n.Attrs.Floats("scales")[dim], float64(size)
	width := float64(scale * in) // the output size before it was rounded down
	if math.Abs(width-float64(outSize)) < 1e-6 {
		width = float64(outSize)
	}
	center := (x+0.5)/scale - 0.5
	switch n.Attrs.String("coordinate", "half_pixel") {
	case "half_pixel_symmetric":
		adjustment := float64(outSize) / width
		return float64(in/2*(1-adjustment)) + center
	case "pytorch_half_pixel":
		if outSize == 1 {
			return 0
		}
	case "tf_half_pixel_for_nn":
		if scale == 1 { // ONNX Runtime moves only what it resizes, as TensorFlow does
			return x
		}
		return (x + 0.5) / scale
	case "asymmetric":
		return x / scale
	case "align_corners": // by the size that is computed: ONNX Runtime and PyTorch; onnx's reference takes scale·size
		if outSize == 1 {
			return 0
		}
		return x * (in - 1) / float64(outSize-1)
	case "tf_crop_and_resize":
		roi := n.Attrs.Floats("roi")
		start, end := roi[dim], roi[len(roi)/2+dim]
		if width == 1 {
			return float64(0.5 * (start + end) * (in - 1))
		}
		return float64(start*(in-1)) + float64(x*(end-start)*(in-1)/(width-1))
	}
	return center
}

func (n *Node) nearest(x float64) int {
	switch n.Attrs.String("nearest", "round_prefer_floor") {
	case "round_prefer_ceil":
		return int(math.Floor(x + 0.5))
	case "floor":
		return int(math.Floor(x))
	case "ceil":
		return int(math.Ceil(x))
	}
	return int(math.Ceil(x - 0.5))
}

// kernel returns the weights of the input positions first, first+1, … around x.
func (n *Node) kernel(x, scale float64) (first int, weights []float64) {
	floor := math.Floor(x)
	ratio := x - floor
	stretch := 1.0
	if n.Attrs.Bool("antialias") {
		stretch = min(scale, 1)
	}
	radius, weight := 1.0, func(d float64) float64 { return max(1-math.Abs(d), 0) }
	if n.Attrs.String("mode", "nearest") == "cubic" {
		a := n.Attrs.Float("cubic", -0.75)
		radius, weight = 2, func(d float64) float64 { return cubic(math.Abs(d), a) }
	}
	taps := int(math.Ceil(radius / stretch))
	for k := 1 - taps; k <= taps; k++ {
		weights = append(weights, weight((float64(k)-ratio)*stretch))
	}
	return int(floor) + 1 - taps, weights
}

// cubic is Keys' convolution kernel (Cubic Convolution Interpolation, 1981) at distance d ≥ 0.
func cubic(d, a float64) float64 {
	switch {
	case d < 1:
		return float64((float64((a+2)*d)-(a+3))*float64(d*d)) + 1
	case d < 2:
		return float64((float64((float64(a*d)-float64(5*a))*d)+float64(8*a))*d) - float64(4*a)
	}
	return 0
}
