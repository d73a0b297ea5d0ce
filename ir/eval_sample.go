package ir

import (
	"math"

	"github.com/spark-compile/spark-compile/internal/parallel"
)

// evalGridSample follows ONNX GridSample 22; the last dimension of the grid names the innermost spatial dimension
// first.
func evalGridSample(n *Node, in []*Array) ([]*Array, error) {
	x, g, out := in[0], in[1], NewArray(n.Outputs[0].Type)
	size := x.Shape[2:]
	r := len(size)
	points := T(Bool, out.Shape[2:]...).Numel()
	plane := T(Bool, size...).Numel()
	s := sampler{size: size, mode: n.Attrs.String("mode", "linear"), padding: n.Attrs.String("padding", "zeros"), align: n.Attrs.Bool("align_corners")}
	parallel.Ranges(x.Shape[0]*points, 1<<8, func(lo, hi int) {
		at := make([]float64, r)
		for p := lo; p < hi; p++ {
			for i := range at {
				at[i] = s.place(g.F[p*r+r-1-i], size[i])
			}
			index, weight := s.taps(at)
			b, q := p/points, p%points
			for ch := range x.Shape[1] {
				base := (b*x.Shape[1] + ch) * plane
				sum := 0.0
				for k, o := range index {
					switch {
					case o < 0:
					case x.F != nil:
						sum += float64(weight[k] * x.F[base+o])
					default:
						sum += float64(weight[k] * intToFloat(x.DType, x.I[base+o]))
					}
				}
				out.set((b*x.Shape[1]+ch)*points+q, sum)
			}
		}
	})
	return []*Array{out}, nil
}

type sampler struct {
	size          []int
	mode, padding string
	align         bool
}

// bounds are the ends of the range that reflection folds into.
func (s *sampler) bounds(d int) (lo, hi float64) {
	if s.align {
		return 0, float64(d - 1)
	}
	return -0.5, float64(d) - 0.5
}

// place maps a normalised coordinate to the input, with padding applied to the coordinate.
func (s *sampler) place(v float64, d int) float64 {
	var x float64
	if s.align {
		x = float64((v + 1) / 2 * float64(d-1))
	} else {
		x = float64((float64((v+1)*float64(d)) - 1) / 2)
	}
	if s.mode == "nearest" {
		x = math.RoundToEven(x)
	}
	if lo, hi := s.bounds(d); x < lo || x > hi {
		switch s.padding {
		case "border":
			x = min(max(x, 0), float64(d-1))
		case "reflection":
			x = reflect(x, lo, hi)
		}
	}
	return x
}

func reflect(x, lo, hi float64) float64 {
	span := hi - lo
	if span == 0 || math.IsNaN(x) || math.IsInf(x, 0) {
		return lo
	}
	d := x - lo
	below := d < 0
	if below {
		d = lo - x
	} else if x > hi {
		d = x - hi
	} else {
		return x
	}
	folds := math.Trunc(d / span)
	rest := d - float64(folds*span)
	if (math.Mod(folds, 2) == 0) == below {
		return lo + rest
	}
	return hi - rest
}

// pixel is the index within a dimension after padding, or -1 for zero.
func (s *sampler) pixel(i, d int) int {
	if i >= 0 && i < d {
		return i
	}
	switch s.padding {
	case "border":
		return min(max(i, 0), d-1)
	case "reflection":
		lo, hi := s.bounds(d)
		return min(max(int(reflect(float64(i), lo, hi)), 0), d-1)
	}
	return -1
}

// taps returns offsets into a plane, or -1, and their weights for a point.
func (s *sampler) taps(at []float64) (index []int, weight []float64) {
	index, weight = []int{0}, []float64{1}
	step := strides(s.size)
	for i, x := range at {
		if math.IsNaN(x) || math.Abs(x) > 1<<40 {
			return nil, nil
		}
		floor := math.Floor(x)
		ratio := x - floor
		var w []float64
		first := int(floor)
		switch s.mode {
		case "nearest":
			w = []float64{1}
		case "linear":
			w = []float64{1 - ratio, ratio}
		default:
			first--
			w = []float64{cubic(1+ratio, -0.75), cubic(ratio, -0.75), cubic(1-ratio, -0.75), cubic(2-ratio, -0.75)}
		}
		var nextIndex []int
		var nextWeight []float64
		for k, o := range index {
			for j, v := range w {
				p := s.pixel(first+j, s.size[i])
				if o < 0 || p < 0 {
					p = -1
				} else {
					p = o + p*step[i]
				}
				nextIndex = append(nextIndex, p)
				nextWeight = append(nextWeight, weight[k]*v)
			}
		}
		index, weight = nextIndex, nextWeight
	}
	return index, weight
}

// evalRoiAlign follows ONNX RoiAlign 16.
func evalRoiAlign(n *Node, in []*Array) ([]*Array, error) {
	x, rois, out := in[0], in[1], NewArray(n.Outputs[0].Type)
	batch, err := resolveIndices(in[2], x.Shape[0])
	if err != nil {
		return nil, err
	}
	channels, h, w := x.Shape[1], x.Shape[2], x.Shape[3]
	oh, ow, ratio := out.Shape[2], out.Shape[3], n.Attrs.Int("sampling_ratio", 0)
	scale, offset, least := n.Attrs.Float("scale", 1), 0.5, math.Inf(-1)
	if !n.Flag("half_pixel") {
		offset, least = 0, 1 // regions are at least one pixel wide
	}
	maximum := n.Attrs.String("mode", "avg") == "max"
	for r := range rois.Shape[0] {
		box := rois.F[r*4 : r*4+4]
		x0, y0 := float64(box[0]*scale)-offset, float64(box[1]*scale)-offset
		binW := max(float64(box[2]*scale)-offset-x0, least) / float64(ow)
		binH := max(float64(box[3]*scale)-offset-y0, least) / float64(oh)
		for p := range oh * ow {
			sum, peak := make([]float64, channels), make([]float64, channels)
			for c := range peak {
				peak[c] = math.Inf(-1)
			}
			for q := range ratio * ratio {
				y := y0 + float64(float64(p/ow)*binH) + float64((float64(q/ratio)+0.5)*binH/float64(ratio))
				xx := x0 + float64(float64(p%ow)*binW) + float64((float64(q%ratio)+0.5)*binW/float64(ratio))
				index, weight := bilinear(y, xx, h, w)
				for c := range channels {
					plane := x.F[(batch[r]*channels+c)*h*w:]
					for k, i := range index {
						v := float64(weight[k] * plane[i])
						sum[c] += v
						peak[c] = max(peak[c], v)
					}
				}
			}
			for c := range channels {
				v := sum[c] / float64(ratio*ratio)
				if maximum {
					v = peak[c]
				}
				out.F[(r*channels+c)*oh*ow+p] = v
			}
		}
	}
	return []*Array{out}, nil
}

// AdaptiveSamples bounds the samples of a bin, for sampling_ratio 0, that touch one row or column of the image. ⌈bin⌉
// samples are at least 2/3 of a pixel from each other once there are three, so an interval of two pixels holds 3. Two
// more cover a first sample that was rounded. A bin of one or two samples fits in the five from its first.
const AdaptiveSamples = 5

// evalRoiAlignWeights computes coordinates as ONNX Runtime does, in float32 if rois are no wider: ⌈bin⌉ jumps, and so
// does what a sample at the edge of the image weighs.
func evalRoiAlignWeights(n *Node, in []*Array) ([]*Array, error) {
	rois, out := in[0], NewArray(n.Outputs[0].Type)
	rounded := func(v float64) float64 { return float64(float32(v)) }
	if rois.DType == Float64 {
		rounded = func(v float64) float64 { return v }
	}
	bins, size, ratio := out.Shape[1], out.Shape[2], n.Attrs.Int("sampling_ratio", 0)
	scale, offset, corner := rounded(n.Attrs.Float("scale", 1)), 0.5, 0
	if !n.Flag("half_pixel") {
		offset = 0
	}
	if n.Flag("vertical") {
		corner = 1
	}
	edge := func(r, i int) float64 { return rounded(rounded(float64(rois.F[r*4+i]*scale)) - offset) }
	for k := range out.F {
		r, p, pixel := k/size/bins, k/size%bins, float64(k%size)
		from := edge(r, corner)
		length := rounded(edge(r, corner+2) - from)
		if length < 1 && !n.Flag("half_pixel") {
			length = 1
		}
		bin := rounded(length / float64(bins))
		samples, count, first := float64(ratio), ratio, 0.0
		start := rounded(from + rounded(float64(float64(p)*bin)))
		at := func(i float64) float64 {
			return rounded(start + rounded(rounded(float64(rounded(i+0.5)*bin))/samples))
		}
		if ratio == 0 {
			samples, count = math.Ceil(bin), AdaptiveSamples
			first = math.Floor(rounded(rounded(rounded(pixel-1)-at(0)) / rounded(bin/samples)))
			if first < 0 {
				first = 0
			}
		}
		sum := 0.0
		for j := range count {
			i := rounded(first + float64(j))
			if y := at(i); i < samples && y >= -1 && y <= float64(size) {
				sum += max(0, 1-math.Abs(min(max(y, 0), float64(size-1))-pixel))
			}
		}
		if samples > 1 {
			sum /= samples
		}
		out.F[k] = sum
	}
	return []*Array{out}, nil
}

// bilinear returns four offsets into a plane and their weights; outside the plane by more than a pixel all weights
// are 0.
func bilinear(y, x float64, h, w int) (index [4]int, weight [4]float64) {
	if y < -1 || y > float64(h) || x < -1 || x > float64(w) || math.IsNaN(x) || math.IsNaN(y) {
		return index, weight
	}
	y, x = max(y, 0), max(x, 0)
	y0, x0 := min(int(y), h-1), min(int(x), w-1)
	y1, x1 := min(y0+1, h-1), min(x0+1, w-1)
	if y0 == h-1 {
		y = float64(y0)
	}
	if x0 == w-1 {
		x = float64(x0)
	}
	ly, lx := y-float64(y0), x-float64(x0)
	index = [4]int{y0*w + x0, y0*w + x1, y1*w + x0, y1*w + x1}
	weight = [4]float64{(1 - ly) * (1 - lx), (1 - ly) * lx, ly * (1 - lx), ly * lx}
	return index, weight
}
