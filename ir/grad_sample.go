package ir

import "slices"

// gradGridSample: a sample is a sum over the pixels around it, weighted along each axis by polynomials of the
// coordinate's fractional part. For x, the products are scattered to these pixels; for the grid, they are summed with
// the polynomials' derivatives. Clamped coordinates have no gradient. At a kink the slope is PyTorch's.
func gradGridSample(g *Gradient, n *Node) []*Value {
	x, grid := n.Inputs[0], n.Inputs[1]
	s := sampler{size: x.Type.Shape[2:], mode: n.Attrs.String("mode", "linear"), padding: n.Attrs.String("padding", "zeros"), align: n.Attrs.Bool("align_corners")}
	batch, channels, r := x.Type.Shape[0], x.Type.Shape[1], len(s.size)
	plane, points := T(Bool, s.size...).Numel(), T(Bool, grid.Type.Shape[1:r+1]...).Numel()
	if batch*channels*points == 0 {
		return nil
	}
	wide := Float32
	if x.Type.DType == Float64 || grid.Type.DType == Float64 {
		wide = Float64
	}
	dy := g.Reshape(g.cast(g.Dy[0], wide), batch, channels, points)
	coordinates := g.Reshape(g.cast(grid, wide), batch, points, r)
	axes := make([]sampledAxis, r)
	taps := []gridTap{{}}
	step := strides(s.size)
	for i, size := range s.size {
		v := g.Add("Slice", Attrs{"starts": []int{0, 0, r - 1 - i}, "sizes": []int{batch, points, 1}}, coordinates)
		axes[i] = g.sampledAxis(&s, g.Reshape(v, batch, points), size)
		var next []gridTap
		for _, t := range taps {
			for k, at := range axes[i].at {
				at = g.op("Mul", at, g.Like(at, float64(step[i])))
				if i > 0 {
					at = g.op("Add", t.at, at)
				}
				next = append(next, gridTap{at, append(slices.Clone(t.of), k)})
			}
		}
		taps = next
	}
	every := func(v *Value) *Value { // channel
		return g.Add("Expand", Attrs{"shape": []int{batch, channels, points}}, g.Reshape(v, batch, 1, points))
	}
	dx := make([]*Value, 2)
	if g.Wants(0) {
		var at, updates []*Value
		for _, t := range taps {
			at = append(at, every(t.at))
			updates = append(updates, g.op("Mul", dy, g.Reshape(g.weightOf(axes, t.of, -1), batch, 1, points)))
		}
		join := Attrs{"axis": 2}
		sum := g.Add("ScatterElements", Attrs{"axis": 2, "reduction": "add"}, g.zeros(dy, batch, channels, plane), g.Add("Concat", join, at...), g.Add("Concat", join, updates...))
		dx[0] = g.Reshape(sum, x.Type.Shape...)
	}
	if g.Wants(1) && s.mode != "nearest" {
		pixels := g.Reshape(g.cast(x, wide), batch, channels, plane)
		along := make([]*Value, r) // ∂/∂grid, innermost axis first
		for _, t := range taps {
			here := g.Add("GatherElements", Attrs{"axis": 2}, pixels, every(t.at))
			here = g.Add("ReduceSum", Attrs{"axes": []int{1}}, g.op("Mul", dy, here))
			for i := range axes {
				d := g.op("Mul", here, g.weightOf(axes, t.of, i))
				if to := &along[r-1-i]; *to != nil {
					d = g.op("Add", *to, d)
				}
				along[r-1-i] = d
			}
		}
		for i := range axes {
			d := &along[r-1-i]
			*d = g.Reshape(g.op("Mul", *d, axes[i].moves), batch, points, 1)
		}
		dx[1] = g.Reshape(g.Add("Concat", Attrs{"axis": 2}, along...), grid.Type.Shape...)
	}
	return dx
}

// gridTap is a pixel of each point: its place in a plane, and which of the taps of each axis it is.
type gridTap struct {
	at *Value
	of []int
}

// sampledAxis is what points read along an axis: of each tap its index, weight and the weight's derivative by the
// pixel's coordinate; and the derivative of that by the grid's coordinate.
type sampledAxis struct {
	at, weight, slope []*Value
	moves             *Value
}

// weightOf is the product of the weights of a tap, with the derivative in place of the weight of one axis; -1: of none.
func (g *Gradient) weightOf(axes []sampledAxis, tap []int, by int) (w *Value) {
	for i, k := range tap {
		f := axes[i].weight[k]
		if i == by {
			f = axes[i].slope[k]
		}
		if w == nil {
			w = f
		} else {
			w = g.op("Mul", w, f)
		}
	}
	return w
}

// tapPolynomials are the weights of the pixels from first on, by powers of the distance from the pixel below: of
// cubic, Keys' kernel with -3/4 ("Cubic Convolution Interpolation for Digital Image Processing", 1981).
func tapPolynomials(mode string) (first int, weights [][]float64) {
	const a = -0.75
	switch mode {
	case "nearest":
		return 0, [][]float64{{1}}
	case "linear":
		return 0, [][]float64{{1, -1}, {0, 1}}
	}
	return -1, [][]float64{{0, a, -2 * a, a}, {1, 0, -a - 3, a + 2}, {0, -a, 2*a + 3, -a - 2}, {0, 0, a, -a}}
}

func (g *Gradient) sampledAxis(s *sampler, v *Value, size int) (axis sampledAxis) {
	last := float64(size - 1)
	scale := float64(size) / 2
	if s.align {
		scale = last / 2
	}
	u := g.plus(g.times(v, scale), last/2)
	if s.mode == "nearest" {
		u = g.op("Round", u)
	}
	zero := g.Like(u, 0)
	within := func(u *Value) *Value { return g.op("Min", g.op("Max", u, zero), g.Like(u, last)) }
	axis.moves = g.Add("Expand", Attrs{"shape": v.Type.Shape}, g.Like(u, scale))
	if s.padding == "reflection" {
		folded, sign := g.folded(s, u, size)
		axis.moves, u = g.op("Mul", axis.moves, sign), folded
	}
	if s.padding != "zeros" {
		lo, hi, before := 0.0, last, "Less"
		if s.mode == "cubic" { // padded from the image's edge on, not from the centre of its last pixel
			lo, hi = s.bounds(size)
			before = "LessEqual"
		}
		inside := g.op("And", g.op(before, g.Like(u, lo), u), g.op(before, u, g.Like(u, hi)))
		axis.moves, u = g.op("Where", inside, axis.moves, zero), g.op("Where", inside, u, within(u))
	}
	floor := g.op("Floor", u)
	ratio := g.op("Sub", u, floor)
	first, weights := tapPolynomials(s.mode)
	for k, w := range weights {
		p := g.plus(floor, float64(first+k))
		switch s.padding {
		case "border":
			p = within(p)
		case "reflection":
			p, _ = g.folded(s, p, size)
			p = within(p)
		}
		// A coordinate that is no number reads nothing.
		there := g.op("And", g.op("LessEqual", zero, p), g.op("LessEqual", p, g.Like(p, last)))
		axis.at = append(axis.at, g.cast(g.op("Where", there, p, zero), Int32))
		slope := make([]float64, max(1, len(w)-1))
		for i := 1; i < len(w); i++ {
			slope[i-1] = float64(i) * w[i]
		}
		axis.weight = append(axis.weight, g.op("Where", there, g.polynomial(ratio, w), zero))
		axis.slope = append(axis.slope, g.op("Where", there, g.polynomial(ratio, slope), zero))
	}
	return axis
}

// polynomial is that of some coefficients, the constant one first.
func (g *Gradient) polynomial(v *Value, by []float64) *Value {
	y := g.Like(v, by[len(by)-1])
	for i := len(by) - 2; i >= 0; i-- {
		y = g.plus(g.op("Mul", y, v), by[i])
	}
	return y
}

// folded reflects coordinates at the ends, as often as it takes, with the derivative: 1 or -1.
func (g *Gradient) folded(s *sampler, u *Value, size int) (v, sign *Value) {
	lo, hi := s.bounds(size)
	span := hi - lo
	d := g.plus(u, -lo)
	if span == 0 {
		return g.times(g.op("Sign", d), 0), g.Like(u, 0)
	}
	far := g.op("Sub", g.Like(u, span), g.Add("Mod", Attrs{"fmod": true}, g.op("Abs", d), g.Like(u, 2*span)))
	return g.op("Sub", g.Like(u, hi), g.op("Abs", far)), g.op("Mul", g.op("Sign", d), g.op("Sign", far))
}

// gradRoiAlign is the gradient of averages with respect to x. Their weights are a product of one along each axis, so
// the gradient is two matrix products: of rows with each region's rows, then of all regions' columns with those of
// the regions that lie in an image.
func gradRoiAlign(g *Gradient, n *Node) []*Value {
	x, rois, index := n.Inputs[0], n.Inputs[1], n.Inputs[2]
	if n.Attrs.String("mode", "avg") != "avg" {
		return g.Refuse("mode %q has no gradient, only avg has", n.Attrs.String("mode", "avg"))
	}
	if g.Wants(1) {
		return g.Refuse("the corners of regions have no gradient, only x has")
	}
	if x.Type.Numel()*g.Dy[0].Type.Numel() == 0 {
		return nil
	}
	batch, channels, h, w := x.Type.Shape[0], x.Type.Shape[1], x.Type.Shape[2], x.Type.Shape[3]
	regions, oh, ow := g.Dy[0].Type.Shape[0], g.Dy[0].Type.Shape[2], g.Dy[0].Type.Shape[3]
	wide := Float32
	if x.Type.DType == Float64 {
		wide = Float64
	}
	boxes := g.cast(rois, wide)
	weights := func(vertical bool, bins, size int) *Value {
		a := Attrs{"bins": bins, "size": size, "vertical": vertical, "half_pixel": n.Flag("half_pixel"),
			"sampling_ratio": n.Attrs.Int("sampling_ratio", 0), "scale": n.Attrs.Float("scale", 1)}
		return g.Add("RoiAlignWeights", a, boxes)
	}
	rows, columns := weights(true, oh, h), weights(false, ow, w)
	dy := g.cast(g.Dy[0], wide)
	// [R, 1, oh, h]ᵀ · [R, C, oh, ow] → [C, h, R, ow]
	spread := g.Add("MatMul", Attrs{"transA": true}, g.Reshape(rows, regions, 1, oh, h), dy)
	spread = g.Reshape(g.transposed(spread, 1, 2, 0, 3), channels*h, regions*ow)
	// [N, R]: 1 where a region lies in an image
	of := g.Add("OneHot", Attrs{"depth": batch, "axis": 0}, index, g.Constant(FromFloats(T(wide, 2), []float64{0, 1})))
	columns = g.op("Mul", g.Reshape(of, batch, regions, 1, 1), g.Reshape(columns, 1, regions, ow, w))
	dx := g.op("MatMul", spread, g.Reshape(columns, batch, regions*ow, w))
	return []*Value{g.Reshape(dx, batch, channels, h, w)}
}
