package onnx

import (
	"math"
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/ir"
)

var samplingOperators = []operator{
	{name: "Upsample", since: 7, until: 8, convert: func(s *site) { s.upsample(s.floats("scales")) }},
	{name: "Upsample", since: 9, until: 9, shapes: []int{1}, convert: func(s *site) { s.upsample(s.knownFloats(1, "scales")) }},
	{name: "Resize", since: 10, until: 10, shapes: []int{1}, convert: func(s *site) { s.upsample(s.knownFloats(1, "scales")) }},
	{name: "Resize", since: 11, shapes: []int{1, 2, 3}, convert: resize},
	{name: "GridSample", since: 16, convert: oneOp("GridSample", func(s *site) ir.Attrs {
		return ir.Attrs{
			"mode":          strings.TrimPrefix(s.choice("mode", "linear", "bilinear", "bicubic", "cubic", "nearest"), "bi"),
			"padding":       s.choice("padding_mode", "zeros", "border", "reflection"),
			"align_corners": s.bool("align_corners", false),
		}
	})},
	{name: "AffineGrid", since: 20, shapes: []int{1}, convert: affineGrid},
	{name: "RoiAlign", since: 10, convert: roiAlign},
}

// knownFloats returns the elements of a constant input, nil if it is absent.
func (s *site) knownFloats(i int, what string) []float64 {
	t := s.known(i, what)
	if t == nil {
		return nil
	}
	s.bound(t.Shape...)
	return t.Floats()
}

// upsample converts Upsample and Resize 10: linear does not align corners, and nearest rounds down, but up where it
// shrinks, and nothing moves where no size changes, as in ONNX Runtime.
func (s *site) upsample(scales []float64) {
	x := s.in(0)
	if len(scales) != x.Type.Rank() {
		s.fail("scales %v do not fit %v", scales, x.Type)
	}
	mode := strings.TrimPrefix(s.choice("mode", "nearest", "linear", "bilinear"), "bi")
	if slices.Equal(s.scaled(x, scales), x.Type.Shape) {
		s.out(0, x)
		return
	}
	resize := func(nearest string, wanted func(scale float64) bool) {
		of := slices.Clone(scales)
		for i, f := range of {
			if !wanted(f) {
				of[i] = 1
			}
		}
		if slices.ContainsFunc(of, func(f float64) bool { return f != 1 }) {
			x = s.add("Resize", ir.Attrs{"sizes": s.scaled(x, of), "scales": of, "mode": mode, "coordinate": "asymmetric", "nearest": nearest}, x)
		}
	}
	if mode == "nearest" {
		resize("ceil", func(f float64) bool { return f < 1 })
		resize("floor", func(f float64) bool { return !(f < 1) })
	} else {
		resize("floor", func(float64) bool { return true })
	}
	s.out(0, x)
}

// scaled is floor(dimension·scale), multiplied in float32 as runtimes do: 10·0.7 is 7.
func (s *site) scaled(x *ir.Value, scales []float64) []int {
	sizes := make([]int, len(scales))
	for i, f := range scales {
		v := math.Floor(float64(float32(x.Type.Shape[i]) * float32(f)))
		if !(f > 0) || v > math.MaxInt32 {
			s.fail("scale %v of dimension %d: want a positive number, and a size below 2^31", f, i)
		}
		sizes[i] = int(v)
	}
	return sizes
}

func resize(s *site) {
	x := s.in(0)
	r := x.Type.Rank()
	axes := iotaInts(r)
	if list := s.ints("axes"); list != nil && s.opset >= 18 {
		axes = axes[:0]
		for _, a := range list {
			axes = append(axes, s.axis(a, r))
		}
	}
	scales := slices.Repeat([]float64{1}, r)
	sizes := append([]int{}, x.Type.Shape...)
	// An empty tensor stands for an absent input in files of opset 11 and 12.
	given, want := s.knownFloats(2, "scales"), s.knownInts(3, "sizes")
	switch {
	case len(want) > 0:
		if len(want) != len(axes) {
			s.fail("sizes %v do not fit axes %v", want, axes)
		}
		s.resizeTo(x, axes, want, sizes, scales)
	case len(given) == len(axes) && len(given) > 0:
		for i, a := range axes {
			scales[a] = given[i]
		}
		sizes = s.scaled(x, scales)
	case r > 0:
		s.fail("scales %v do not fit axes %v, and sizes are absent", given, axes)
	}
	attrs := ir.Attrs{
		"sizes": sizes, "scales": scales,
		"mode": s.choice("mode", "nearest", "linear", "cubic"),
		"coordinate": s.choice("coordinate_transformation_mode", "half_pixel", "half_pixel_symmetric",
			"pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn", "tf_crop_and_resize"),
		"nearest":         s.choice("nearest_mode", "round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
		"cubic":           s.float("cubic_coeff_a", -0.75),
		"exclude_outside": s.bool("exclude_outside", false),
		"extrapolation":   s.float("extrapolation_value", 0),
		"antialias":       s.bool("antialias", false),
	}
	if attrs["coordinate"] == "tf_crop_and_resize" {
		attrs["roi"] = s.roi(axes, r)
	}
	s.out(0, s.add("Resize", attrs, x))
}

// resizeTo sets sizes and scales of the axes for wanted sizes under keep_aspect_ratio_policy.
func (s *site) resizeTo(x *ir.Value, axes, want, sizes []int, scales []float64) {
	policy := s.choice("keep_aspect_ratio_policy", "stretch", "not_larger", "not_smaller")
	common := 0.0
	for i, a := range axes {
		f := float64(want[i]) / float64(x.Type.Shape[a])
		sizes[a], scales[a] = want[i], f
		if i == 0 || policy == "not_larger" && f < common || policy == "not_smaller" && f > common {
			common = f
		}
	}
	if policy == "stretch" {
		return
	}
	for _, a := range axes {
		scales[a] = common
		sizes[a] = int(math.Floor(float64(common*float64(x.Type.Shape[a])) + 0.5))
	}
}

// roi spreads the region of interest over all dimensions: starts, then ends.
func (s *site) roi(axes []int, rank int) []float64 {
	list := s.knownFloats(1, "roi")
	if len(list) != 2*len(axes) {
		s.fail("roi %v does not fit axes %v", list, axes)
	}
	roi := make([]float64, 2*rank)
	for i := range rank {
		roi[rank+i] = 1
	}
	for i, a := range axes {
		roi[a], roi[rank+a] = list[i], list[len(axes)+i]
	}
	return roi
}

// affineGrid applies theta to the homogeneous positions of a grid over [-1,1], of which the last coordinate comes
// first.
func affineGrid(s *site) {
	theta := s.in(0)
	size := s.knownInts(1, "size")
	r := len(size) - 2
	if r != 2 && r != 3 || theta.Type.Rank() != 3 || theta.Type.Shape[1] != r || theta.Type.Shape[2] != r+1 || theta.Type.Shape[0] != size[0] {
		s.fail("theta %v and size %v do not fit: want [N,2,3] and 4 sizes, or [N,3,4] and 5", theta.Type, size)
	}
	s.check(ir.CheckShape(size))
	spatial := size[2:]
	s.bound(append([]int{r + 1}, spatial...)...)
	points := product(spatial)
	align := s.bool("align_corners", false)
	data := make([]float64, 0, points*(r+1))
	for p := range points {
		coords := make([]float64, r+1)
		coords[r] = 1
		rest := p
		for i := r - 1; i >= 0; i-- {
			coords[r-1-i] = gridPosition(rest%spatial[i], spatial[i], align)
			rest /= spatial[i]
		}
		data = append(data, coords...)
	}
	d := wideType(theta.Type.DType)
	grid := s.floatsConst(d, data, 1, points, r+1)
	y := s.add("MatMul", ir.Attrs{"transB": true}, grid, s.wide(theta))
	shape := append(append([]int{size[0]}, spatial...), r)
	s.out(0, s.cast(s.reshape(y, shape...), theta.Type.DType))
}

// gridPosition is where cell i of n lies in [-1,1]: its centre, or its corner if the outer cells are aligned with ±1.
func gridPosition(i, n int, align bool) float64 {
	if align {
		if n == 1 {
			return 0
		}
		return -1 + 2*float64(i)/float64(n-1)
	}
	return (float64(2*i)+1)/float64(n) - 1
}

// roiAlign converts RoiAlign. With sampling_ratio 0 a bin has ⌈bin⌉ samples along each axis, so how many depends on
// data. Their averages are products: out[r,c,p,q] = Σ_h rows[r,p,h] · Σ_nw x[n,c,h,w] · columns[r,q,w] · [n = image
// of r].
func roiAlign(s *site) {
	x, rois, image := s.in(0), s.in(1), s.in(2)
	mode := "half_pixel"
	if s.opset < 16 {
		mode = "output_half_pixel"
	}
	half := s.choice("coordinate_transformation_mode", mode, "half_pixel", "output_half_pixel") == "half_pixel"
	reduce := s.choice("mode", "avg", "max")
	ratio, scale := s.int("sampling_ratio", 0), s.float("spatial_scale", 1)
	oh, ow := s.int("output_height", 1), s.int("output_width", 1)
	if ratio < 0 {
		s.fail("sampling_ratio=%d: want a positive number, or 0 for as many samples as a bin has pixels", ratio)
	}
	if ratio == 0 && reduce == "max" {
		s.refuse(`export it with a positive sampling_ratio, or with mode "avg"`,
			"sampling_ratio=0 with mode \"max\": the number of samples depends on the regions, which are data")
	}
	if ratio > 0 {
		s.out(0, s.add("RoiAlign", ir.Attrs{"mode": reduce, "height": oh, "width": ow, "sampling_ratio": ratio,
			"scale": scale, "half_pixel": half}, x, rois, image))
		return
	}
	regions, d := rois.Type.Shape, wideType(x.Type.DType)
	if x.Type.Rank() != 4 || len(regions) != 2 || regions[1] != 4 || !slices.Equal(image.Type.Shape, regions[:1]) {
		s.fail("x %v, rois %v and batch_indices %v do not fit: want [N,C,H,W], [R,4] and [R]", x.Type, rois.Type, image.Type)
	}
	images, channels, h, w, r := x.Type.Shape[0], x.Type.Shape[1], x.Type.Shape[2], x.Type.Shape[3], regions[0]
	weights := func(vertical bool, bins, size int) *ir.Value {
		a := ir.Attrs{"bins": bins, "size": size, "vertical": vertical, "scale": scale, "half_pixel": half}
		return s.cast(s.add("RoiAlignWeights", a, rois), d)
	}
	of := s.op("Equal", s.reshape(image, r, 1, 1, 1), s.iota(image.Type.DType, images, 2, 4))
	columns := s.where(of, s.reshape(weights(false, ow, w), r, ow, 1, w), s.scalar(d, 0))
	columns = s.transpose(s.reshape(columns, r, ow, images*w), 0, 2, 1)
	lines := s.reshape(s.transpose(s.wide(x), 1, 2, 0, 3), channels*h, images*w)
	across := s.reshape(s.op("MatMul", lines, columns), r, channels, h, ow)
	y := s.op("MatMul", s.reshape(weights(true, oh, h), r, 1, oh, h), across)
	s.out(0, s.cast(y, x.Type.DType))
}
