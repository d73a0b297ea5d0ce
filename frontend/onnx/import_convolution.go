package onnx

import (
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/ir"
)

var convolutionOperators = []operator{
	{name: "Conv", since: 7, convert: func(s *site) { s.out(0, s.conv(s.in(0), s.in(1), s.opt(2))) }},
	{name: "ConvTranspose", since: 7, convert: convTranspose},
	{name: "ConvInteger", since: 10, convert: convInteger},
	{name: "QLinearConv", since: 10, convert: qLinearConv},
	{name: "DeformConv", since: 19, convert: deformConv},
	{name: "CausalConvWithState", since: 27, convert: causalConvWithState},
	{name: "Col2Im", since: 18, shapes: []int{1, 2}, convert: col2Im},
}

// windowAttrs are the attributes that convolutions and pools share, resolved for spatial sizes in and a kernel.
type windowAttrs struct{ kernel, strides, dilations, pads []int }

// window reads strides, dilations, pads and auto_pad; in and kernel have one length. Where a window is smaller than
// its stride, SAME leaves elements over: the middle of what a window stands for is read if it crops, as pools do in
// ONNX Runtime, the beginning if not, as convolutions do there.
func (s *site) window(in, kernel []int, crops bool) windowAttrs {
	r := len(in)
	w := windowAttrs{kernel, s.listOf("strides", r, 1), s.listOf("dilations", r, 1), s.listOf("pads", 2*r, 0)}
	if k := s.ints("kernel_shape"); k != nil && !slices.Equal(k, kernel) {
		s.fail("kernel_shape %v, but the weights have %v", k, kernel)
	}
	for i := range r {
		if kernel[i] < 1 || w.strides[i] < 1 || w.dilations[i] < 1 {
			s.fail("kernel %v, strides %v, dilations %v must be positive", kernel, w.strides, w.dilations)
		}
	}
	auto := s.choice("auto_pad", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
	if auto != "NOTSET" {
		w.pads = make([]int, 2*r)
	}
	if strings.HasPrefix(auto, "SAME_") {
		for i := range r {
			out := (in[i] + w.strides[i] - 1) / w.strides[i]
			total := (out-1)*w.strides[i] + (kernel[i]-1)*w.dilations[i] + 1 - in[i]
			if !crops {
				total = max(0, total)
			}
			begin, end := halves(total, auto == "SAME_UPPER")
			// No window reaches what a negative padding at the end would crop: it is less than a stride.
			w.pads[i], w.pads[r+i] = begin, max(0, end)
		}
	}
	return w
}

// positions counts the places along dimension i, of the given size, where the window fits, and the elements that
// remain.
func (s *site) positions(w windowAttrs, i, size int) (count, rest int) {
	lastStart := size + w.pads[i] + w.pads[len(w.pads)/2+i] - (w.kernel[i]-1)*w.dilations[i] - 1
	if lastStart < 0 {
		s.fail("the kernel %v is larger than the padded input, %d along dimension %d", w.kernel, size, i)
	}
	return lastStart/w.strides[i] + 1, lastStart % w.strides[i]
}

// halves splits a padding in two; the odd element goes to the end if upper. Where strides are larger than the kernel,
// the padding is negative, and crops.
func halves(total int, upper bool) (begin, end int) {
	begin = total / 2
	if !upper {
		begin = (total + 1) / 2
	}
	return begin, total - begin
}

// cropped applies negative paddings of images by a slice, of which starts are the first elements, and leaves the
// others in w.
func (s *site) cropped(x *ir.Value, w *windowAttrs) (_ *ir.Value, starts []int) {
	pads := slices.Clone(w.pads)
	r := len(pads) / 2
	starts = make([]int, r)
	for i := range r {
		begin, end := max(0, -pads[i]), max(0, -pads[r+i])
		if size := x.Type.Shape[2+i] - begin - end; size >= 0 && begin+end > 0 {
			x = s.part(x, 2+i, begin, size)
			starts[i] = begin
			pads[i], pads[r+i] = max(0, pads[i]), max(0, pads[r+i])
		}
	}
	w.pads = pads
	return x, starts
}

func (w windowAttrs) attrs() ir.Attrs {
	return ir.Attrs{"strides": w.strides, "dilations": w.dilations, "pads": w.pads}
}

// spatial checks that x and w are images and filters of one rank and returns their spatial sizes.
func (s *site) spatial(x, w *ir.Value) (in, kernel []int) {
	if x.Type.Rank() < 3 || w.Type.Rank() != x.Type.Rank() {
		s.fail("x is %v and w %v, want one rank of at least 3", x.Type, w.Type)
	}
	return x.Type.Shape[2:], w.Type.Shape[2:]
}

func (s *site) conv(x, w, b *ir.Value) *ir.Value {
	in, kernel := s.spatial(x, w)
	win := s.window(in, kernel, false)
	x, _ = s.cropped(x, &win)
	attrs := win.attrs()
	attrs["group"] = s.int("group", 1)
	return s.add("Conv", attrs, x, w, b)
}

func convTranspose(s *site) {
	x, w := s.in(0), s.in(1)
	in, kernel := s.spatial(x, w)
	r := len(in)
	extra := slices.Clone(s.listOf("output_padding", r, 0))
	win := s.window(in, kernel, false)
	auto, shape := s.string("auto_pad", "NOTSET"), s.ints("output_shape")
	switch {
	case len(shape) == r+2: // some exporters give batch and channels as well
		shape = shape[2:]
	case shape != nil && len(shape) != r:
		s.fail("output_shape %v does not fit %d spatial dimensions", shape, r)
	case shape == nil && strings.HasPrefix(auto, "SAME_"):
		for i, d := range in {
			shape = append(shape, d*win.strides[i])
		}
	}
	for i, want := range shape {
		full := (in[i]-1)*win.strides[i] + extra[i] + (kernel[i]-1)*win.dilations[i] + 1
		extra[i] += max(0, want-full) // what the filter does not reach is padding at the end
		win.pads[i], win.pads[r+i] = halves(max(0, full-want), auto == "SAME_UPPER")
	}
	attrs := win.attrs()
	attrs["output_padding"], attrs["group"] = extra, s.int("group", 1)
	s.out(0, s.add("ConvTranspose", attrs, x, w, s.opt(2)))
}

// shifted is x-zero as i32. The zero point is one number, or one for each index of axis.
func (s *site) shifted(x, zero *ir.Value, axis int) *ir.Value {
	v := s.cast(x, ir.Int32)
	if zero == nil {
		return v
	}
	return s.op("Sub", v, s.parameter(s.cast(zero, ir.Int32), axis, x.Type.Rank()))
}

// parameter reshapes a scale or zero point, which is one number or one for each index of axis, to broadcast over
// values of the given rank.
func (s *site) parameter(v *ir.Value, axis, rank int) *ir.Value {
	switch {
	case v.Type.Numel() == 1:
		return s.reshape(v)
	case v.Type.Rank() == 1:
		return s.alongAxis(v, axis, rank)
	}
	return v
}

func convInteger(s *site) {
	s.out(0, s.conv(s.shifted(s.in(0), s.opt(2), 1), s.shifted(s.in(1), s.opt(3), 0), nil))
}

// qLinearConv is exact up to the final scaling: integers convolved in i32, scaled in f32, rounded and saturated once.
// That of com.microsoft may have channels last.
func qLinearConv(s *site) {
	w := s.in(3)
	s.out(0, channelsFirst(func(s *site, x *ir.Value) *ir.Value {
		acc := s.conv(s.shifted(x, s.in(2), 1), s.shifted(w, s.in(5), 0), s.opt(8))
		scale := s.op("Mul", s.reshape(s.in(1)), s.parameter(s.in(4), 1, x.Type.Rank()))
		return s.requantize(acc, scale, s.in(6), s.in(7))
	})(s, s.in(0)))
}

// requantize turns i32 sums with the given scale into the type and scale of a quantised result.
func (s *site) requantize(acc, scale, outScale, outZero *ir.Value) *ir.Value {
	v := s.op("Mul", s.cast(acc, ir.Float32), s.cast(scale, ir.Float32))
	return s.add("QuantizeLinear", ir.Attrs{"to": outZero.Type.DType, "axis": 0}, v,
		s.cast(s.reshape(outScale), ir.Float32), s.reshape(outZero))
}

// causalConvWithState is a depthwise convolution over the state followed by the input, without padding.
func causalConvWithState(s *site) {
	x, w := s.in(0), s.in(1)
	in, kernel := s.spatial(x, w)
	if len(in) != 1 {
		s.fail("x is %v, want 3 dimensions", x.Type)
	}
	b, c, k := x.Type.Shape[0], x.Type.Shape[1], kernel[0]
	past := s.opt(3)
	if past == nil {
		past = s.fill(x.Type.DType, 0, b, c, k-1)
	}
	all := x
	if k > 1 {
		all = s.concat(2, past, x)
	}
	attrs := ir.Attrs{"strides": []int{1}, "dilations": []int{1}, "pads": []int{0, 0}, "group": c}
	y := s.add("Conv", attrs, s.wide(all), s.wide(w), s.wideOpt(s.opt(2)))
	if s.choice("activation", "none", "silu", "swish") != "none" {
		y = s.op("Silu", y)
	}
	s.out(0, s.cast(y, x.Type.DType))
	s.out(1, s.part(all, 2, in[0], k-1))
}

// wideOpt is wide for an input that may be absent.
func (s *site) wideOpt(v *ir.Value) *ir.Value {
	if v == nil {
		return nil
	}
	return s.wide(v)
}

// col2Im sums overlapping blocks. With the blocks' elements as channels, it is a transposed convolution by filters
// that each have a single 1.
func col2Im(s *site) {
	x := s.in(0)
	image, block := s.knownInts(1, "image_shape"), s.knownInts(2, "block_shape")
	r := len(image)
	if x.Type.Rank() != 3 || len(block) != r || r < 1 {
		s.fail("x is %v, image_shape %v, block_shape %v: want x [N,C·block,blocks], and two shapes of one length", x.Type, image, block)
	}
	taps := product(block)
	win := s.window(image, block, false)
	if x.Type.Shape[1]%max(taps, 1) != 0 {
		s.fail("%d channels are not a multiple of the block's %d elements", x.Type.Shape[1], taps)
	}
	c := x.Type.Shape[1] / taps
	n := x.Type.Shape[0]
	steps := make([]int, r) // blocks along each dimension
	extra := make([]int, r)
	for i := range r {
		steps[i], extra[i] = s.positions(win, i, image[i])
	}
	if product(steps) != x.Type.Shape[2] {
		s.fail("%d blocks, but image %v and block %v make %d", x.Type.Shape[2], image, block, product(steps))
	}
	d := wideType(x.Type.DType)
	if !d.IsFloat() {
		s.refuse("cast x to a floating-point type", "elements of type %v are not supported", x.Type.DType)
	}
	s.bound(taps, taps)
	filter := make([]float64, taps*taps)
	for i := range taps {
		filter[i*taps+i] = 1
	}
	w := s.floatsConst(d, filter, append([]int{taps, 1}, block...)...)
	v := s.reshape(s.wide(x), append([]int{n * c, taps}, steps...)...)
	attrs := win.attrs()
	attrs["output_padding"], attrs["group"] = extra, 1
	y := s.add("ConvTranspose", attrs, v, w)
	s.out(0, s.cast(s.reshape(y, append([]int{n, c}, image...)...), x.Type.DType))
}

// deformConv samples the input bilinearly where each tap of each output points and multiplies by the weights. It
// supports only images of two dimensions.
func deformConv(s *site) {
	x, w, offset := s.in(0), s.in(1), s.in(2)
	in, kernel := s.spatial(x, w)
	if len(in) != 2 {
		s.refuse("reshape x and the offsets to two spatial dimensions", "only two spatial dimensions are supported, x is %v", x.Type)
	}
	win := s.window(in, kernel, false)
	og, group := s.int("offset_group", 1), s.int("group", 1)
	n, c, oc := x.Type.Shape[0], x.Type.Shape[1], w.Type.Shape[0]
	if og < 1 || group < 1 || c%og != 0 || c%group != 0 || oc%group != 0 {
		s.fail("offset_group=%d and group=%d do not divide %d and %d channels", og, group, c, oc)
	}
	out := make([]int, 2)
	for i := range out {
		out[i], _ = s.positions(win, i, in[i])
	}
	s.bound(append(append([]int{2}, kernel...), out...)...)
	taps, points := product(kernel), product(out)
	d := wideType(x.Type.DType)
	// the position of tap t of output p without its offset, [1,1,2,taps,points] as rows and columns
	grid := make([]float64, 0, 2*taps*points)
	for axis := range 2 {
		for t := range taps {
			tap := []int{t / kernel[1], t % kernel[1]}[axis]
			for p := range points {
				at := []int{p / out[1], p % out[1]}[axis]
				grid = append(grid, float64(at*win.strides[axis]-win.pads[axis]+tap*win.dilations[axis]))
			}
		}
	}
	off := s.transpose(s.reshape(s.wide(offset), n, og, taps, 2, points), 0, 1, 3, 2, 4)
	at := s.op("Add", off, s.floatsConst(d, grid, 1, 1, 2, taps, points)) // [n,og,2,taps,points]
	row, col := s.index(at, 2, 0), s.index(at, 2, 1)
	img := s.reshape(s.wide(x), n, og, c/og, in[0]*in[1])
	v := s.bilinear(img, row, col, in)
	if m := s.opt(4); m != nil {
		v = s.op("Mul", v, s.reshape(s.wide(m), n, og, 1, taps*points))
	}
	// [n,c,taps,points] → [n,group,c/group·taps,points]
	v = s.reshape(v, n, group, c/group*taps, points)
	y := s.op("MatMul", s.reshape(s.wide(w), 1, group, oc/group, c/group*taps), v)
	y = s.reshape(y, append([]int{n, oc}, out...)...)
	if b := s.opt(3); b != nil {
		y = s.op("Add", y, s.alongChannel(s.wide(b), 4))
	}
	s.out(0, s.cast(y, x.Type.DType))
}

// bilinear samples img [n,g,c,h·w] at fractional rows and columns [n,g,taps,points], 0 outside, as [n,g,c,taps·points].
func (s *site) bilinear(img, row, col *ir.Value, in []int) *ir.Value {
	d := img.Type.DType
	n, g, c := img.Type.Shape[0], img.Type.Shape[1], img.Type.Shape[2]
	samples := row.Type.Shape[2] * row.Type.Shape[3]
	flat := func(v *ir.Value) *ir.Value { return s.reshape(v, n, g, 1, samples) }
	var sum *ir.Value
	for corner := range 4 {
		// The corner's row and column; its weight is how near they are, 0 outside.
		r, q := s.eval("floor(x) + y", row, s.scalar(d, float64(corner/2))), s.eval("floor(x) + y", col, s.scalar(d, float64(corner%2)))
		inside := s.op("And", s.within(r, in[0]), s.within(q, in[1]))
		weight := s.eval("where(v, (1 - abs(x-z)) * (1 - abs(y-u)), 0)", row, col, r, q, inside)
		rc, qc := s.cast(s.clamped(r, in[0]), ir.Int64), s.cast(s.clamped(q, in[1]), ir.Int64)
		idx := s.eval("x*y + z", rc, s.scalar(ir.Int64, float64(in[1])), qc)
		v := s.op("Mul", s.add("GatherElements", ir.Attrs{"axis": 3}, img, s.expand(flat(idx), n, g, c, samples)), flat(weight))
		if sum != nil {
			v = s.op("Add", sum, v)
		}
		sum = v
	}
	return sum
}

// within is 0 ≤ v < n.
func (s *site) within(v *ir.Value, n int) *ir.Value {
	return s.eval("x >= 0 && x < y", v, s.like(v, float64(n)))
}

// clamped is the number from 0 to n-1 that is nearest to v.
func (s *site) clamped(v *ir.Value, n int) *ir.Value {
	return s.eval("min(max(x, 0), y)", v, s.like(v, float64(n-1)))
}
