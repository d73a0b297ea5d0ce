package randgraph

import (
	"slices"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/ir"
)

// geometry draws a kernel with strides, dilations and padding for spatial sizes.
type geometry struct {
	kernel, strides, dilations, pads []int
	auto                             string
}

func (b *build) geometry(in []int, dilated bool) geometry {
	g := geometry{auto: "NOTSET"}
	r := len(in)
	for range in {
		k := b.between(1, 3)
		if b.chance(.15) {
			k = b.between(4, 5)
		}
		g.kernel = append(g.kernel, k)
		g.strides = append(g.strides, oneOf(b, 1, 1, 1, 2, 3))
		d := 1
		if dilated && b.chance(.25) {
			d = 2
		}
		g.dilations = append(g.dilations, d)
	}
	g.pads = make([]int, 2*r)
	switch b.r.IntN(5) {
	case 0:
		g.auto = oneOf(b, "SAME_UPPER", "SAME_LOWER", "VALID")
	case 1, 2:
		for i := range g.pads {
			g.pads[i] = b.between(0, min(2, g.kernel[i%r]-1))
		}
	case 3: // as it is mostly used
		for i := range r {
			g.dilations[i] = 1
			g.pads[i], g.pads[r+i] = g.kernel[i]/2, (g.kernel[i]-1)/2
		}
	}
	if g.auto == "SAME_UPPER" || g.auto == "SAME_LOWER" {
		for i := range g.dilations {
			g.dilations[i] = 1
		}
		return g
	}
	for i, d := range in {
		if d+g.pads[i]+g.pads[r+i] < (g.kernel[i]-1)*g.dilations[i]+1 {
			b.redraw()
		}
	}
	return g
}

// attrs are the attributes of a geometry; what is the default may be left out.
func (b *build) geometryAttrs(g geometry, dilated bool) []onnx.Attr {
	attrs := []onnx.Attr{a("kernel_shape", g.kernel)}
	plain := func(xs []int, def int) bool {
		return !slices.ContainsFunc(xs, func(x int) bool { return x != def }) && b.chance(.5)
	}
	if !plain(g.strides, 1) {
		attrs = append(attrs, a("strides", g.strides))
	}
	if dilated && !plain(g.dilations, 1) {
		attrs = append(attrs, a("dilations", g.dilations))
	}
	if g.auto != "NOTSET" {
		return append(attrs, a("auto_pad", g.auto))
	}
	if !plain(g.pads, 0) {
		attrs = append(attrs, a("pads", g.pads))
	}
	return attrs
}

var windowRows = []row{
	{"Conv", 8, func(b *build, op string) {
		x := b.image(1, 3, nil, nil)
		g := b.geometry(x.Shape[2:], true)
		c := x.Shape[1]
		group := 1
		if b.chance(.3) {
			group = b.divisorOf(c)
		} else if b.chance(.2) {
			group = c
		}
		oc := group * b.between(1, max(1, 8/group))
		w := b.weights(x.DType, c/group*ir.T(x.DType, g.kernel...).Numel(), append([]int{oc, c / group}, g.kernel...)...)
		in := []*value{x, w, nil}
		if b.chance(.5) {
			in[2] = b.weights(x.DType, 1, oc)
		}
		attrs := b.geometryAttrs(g, true)
		if b.chance(.4) {
			attrs = attrs[1:]
		}
		b.one(op, in, append(attrs, a("group", group))...)
	}},
	{"ConvTranspose", 3, func(b *build, op string) {
		x := b.image(1, 3, nil, nil)
		r := x.Rank() - 2
		g := geometry{auto: "NOTSET", pads: make([]int, 2*r)}
		for range r {
			g.kernel = append(g.kernel, b.between(1, 3))
			g.strides = append(g.strides, b.between(1, 3))
			g.dilations = append(g.dilations, oneOf(b, 1, 1, 1, 2))
		}
		c := x.Shape[1]
		group := 1
		if b.chance(.3) {
			group = b.divisorOf(c)
		}
		each := b.between(1, 4)
		var more []onnx.Attr
		switch b.r.IntN(4) {
		case 0:
			for i := range g.pads {
				g.pads[i] = b.between(0, min(1, g.kernel[i%r]-1))
			}
		case 1:
			extra := make([]int, r)
			for i := range extra {
				extra[i] = b.between(0, g.strides[i]-1)
			}
			more = append(more, a("output_padding", extra))
		case 2:
			g.auto = oneOf(b, "SAME_UPPER", "SAME_LOWER", "VALID")
			for i := range g.kernel { // where ONNX Runtime's shape is the specification's
				g.kernel[i] = max(g.kernel[i], g.strides[i])
				g.dilations[i] = 1
			}
		}
		w := b.weights(x.DType, c/group, append([]int{c, each}, g.kernel...)...)
		in := []*value{x, w, nil}
		if b.chance(.5) {
			in[2] = b.weights(x.DType, 1, each*group)
		}
		b.one(op, in, append(append(b.geometryAttrs(g, true), more...), a("group", group))...)
	}},
	{"ConvInteger", 1, func(b *build, op string) {
		x := b.image(1, 2, nil, nil)
		g := b.geometry(x.Shape[2:], true)
		oc := b.between(1, 5)
		w := b.given(b.plain(oneOf(b, b.types(1)...), append([]int{oc, x.Shape[1]}, g.kernel...)...))
		in := []*value{x, w, nil, nil}
		if b.chance(.6) {
			in[2] = b.given(b.plain(x.DType))
		}
		if in[2] != nil && b.chance(.5) {
			in[3] = b.given(b.plain(w.DType))
		}
		b.one(op, in, b.geometryAttrs(g, true)...)
	}},
	{"QLinearConv", 1, func(b *build, op string) {
		x := b.image(2, 2, nil, nil)
		g := b.geometry(x.Shape[2:], false)
		oc := b.between(1, 5)
		wd := x.DType
		if x.DType == ir.Uint8 && b.chance(.5) {
			wd = ir.Int8
		}
		w := b.constant(b.plain(wd, append([]int{oc, x.Shape[1]}, g.kernel...)...))
		channels := []int{}
		if b.chance(.4) {
			channels = []int{oc}
		}
		zero := b.constant(tensorOf(ir.T(wd, channels...), constantly(0)))
		in := []*value{x, b.scale(ir.Float32, .01, .1), b.zero(x.DType), w, b.scale(ir.Float32, .01, .1, channels...), zero,
			b.scale(ir.Float32, .1, .5), b.zero(x.DType), nil}
		if b.chance(.5) {
			in[8] = b.constant(b.plain(ir.Int32, oc))
		}
		b.one(op, in, b.geometryAttrs(g, true)...)
	}},
	{"DeformConv", 1, func(b *build, op string) {
		x := b.image(2, 2, nil, nil)
		g := b.geometry(x.Shape[2:], true)
		g.auto = "NOTSET"
		c := x.Shape[1]
		group, og := b.divisorOf(c), b.divisorOf(c)
		oc := group * b.between(1, 2)
		out := []int{x.Shape[0], 2 * og * g.kernel[0] * g.kernel[1]}
		for i := range 2 {
			n := x.Shape[2+i] + g.pads[i] + g.pads[2+i] - (g.kernel[i]-1)*g.dilations[i] - 1
			if n < 0 {
				b.redraw()
			}
			out = append(out, n/g.strides[i]+1)
		}
		w := b.weights(x.DType, c/group*g.kernel[0]*g.kernel[1], append([]int{oc, c / group}, g.kernel...)...)
		in := []*value{x, w, b.uniform(x.DType, -1.5, 1.5, out...), nil, nil}
		if b.chance(.5) {
			in[3] = b.weights(x.DType, 1, oc)
		}
		if b.chance(.5) {
			m := slices.Clone(out)
			m[1] /= 2
			in[4] = b.uniform(x.DType, 0, 1, m...)
		}
		b.one(op, in, a("kernel_shape", g.kernel), a("strides", g.strides), a("dilations", g.dilations), a("pads", g.pads), a("group", group), a("offset_group", og))
	}},
	{"CausalConvWithState", 1, func(b *build, op string) {
		x := b.image(1, 1, nil, nil)
		k := b.between(1, 4)
		c := x.Shape[1]
		in := []*value{x, b.weights(x.DType, k, c, 1, k), nil, nil}
		if b.chance(.5) {
			in[2] = b.weights(x.DType, 1, c)
		}
		if k > 1 && b.chance(.5) {
			in[3] = b.given(b.plain(x.DType, x.Shape[0], c, k-1))
		}
		outs := 2
		if k == 1 {
			outs = 1
		}
		b.node(op, in, outs, a("activation", oneOf(b, "none", "silu", "swish")))
	}},
	{"Col2Im", 1, func(b *build, op string) {
		image := []int{b.between(2, 6), b.between(2, 6)}
		g := b.geometry(image, true)
		if g.auto != "NOTSET" {
			b.redraw()
		}
		blocks := 1
		for i := range 2 {
			blocks *= (image[i]+g.pads[i]+g.pads[2+i]-(g.kernel[i]-1)*g.dilations[i]-1)/g.strides[i] + 1
		}
		d := b.dtype(b.types(0))
		if !d.IsFloat() {
			b.redraw()
		}
		x := b.exactly(d, b.between(1, 2), b.between(1, 3)*g.kernel[0]*g.kernel[1], blocks)
		b.one(op, []*value{x, b.ints(image...), b.ints(g.kernel...)}, a("strides", g.strides), a("dilations", g.dilations), a("pads", g.pads))
	}},
	{"MaxPool", 4, func(b *build, op string) { b.pool(op, b.opset >= 10, 10) }},
	{"AveragePool", 3, func(b *build, op string) { b.pool(op, b.opset >= 19, 10) }},
	{"LpPool", 1, func(b *build, op string) { b.pool(op, b.opset >= 18, 18) }},
	{"GlobalMaxPool", 1, global},
	{"GlobalAveragePool", 2, global},
	{"GlobalLpPool", 1, global},
	{"MaxRoiPool", 1, func(b *build, op string) {
		x := b.image(2, 2, nil, nil)
		n := b.between(1, 3)
		h, w := x.Shape[2], x.Shape[3]
		var rois []float64
		for range n {
			x1, y1 := b.r.IntN(w), b.r.IntN(h)
			rois = append(rois, float64(b.r.IntN(x.Shape[0])), float64(x1), float64(y1), float64(b.between(x1, w-1)), float64(b.between(y1, h-1)))
		}
		r := b.given(ir.FromFloats(ir.T(x.DType, n, 5), rois))
		b.one(op, []*value{x, r}, a("pooled_shape", []int{b.between(1, 3), b.between(1, 3)}))
	}},
	{"MaxUnpool", 1, func(b *build, op string) {
		// after a MaxPool that lists positions
		b.s = b.schema("MaxPool")
		x := b.image(2, 2, func(s []int) bool { return s[2]%2+s[3]%2 == 0 }, func(s []int) { s[2], s[3] = 2*b.between(1, 4), 2*b.between(1, 4) })
		pooled := b.node("MaxPool", []*value{x}, 2, a("kernel_shape", []int{2, 2}), a("strides", []int{2, 2}))
		b.s = b.schema(op)
		if !slices.Contains(b.types(0), x.DType) {
			b.redraw()
		}
		in := []*value{pooled[0], pooled[1]}
		if b.chance(.3) {
			in = append(in, b.ints(x.Shape...))
		}
		b.one(op, in, a("kernel_shape", []int{2, 2}), a("strides", []int{2, 2}))
	}},
}

func (b *build) pool(op string, dilated bool, ceilSince int64) {
	x := b.image(1, 3, nil, nil)
	g := b.geometry(x.Shape[2:], dilated)
	if !dilated && slices.Contains(g.dilations, 2) {
		b.redraw()
	}
	attrs := b.geometryAttrs(g, dilated)
	if b.opset >= ceilSince && b.chance(.3) && g.auto == "NOTSET" {
		attrs = append(attrs, a("ceil_mode", true))
	}
	outs := 1
	switch op {
	case "MaxPool":
		if b.opset >= 8 && b.chance(.25) {
			for i, d := range g.dilations {
				if dilated && d > x.Shape[i+2] {
					b.redraw() // a window may hold nothing but padding, and the index of nothing is undefined
				}
			}
			outs = 2
			attrs = append(attrs, b.maybe(a("storage_order", b.r.IntN(2)))...)
		}
	case "AveragePool":
		attrs = append(attrs, b.maybe(a("count_include_pad", b.chance(.5)))...)
	case "LpPool":
		attrs = append(attrs, b.maybe(a("p", b.between(1, 3)))...)
	}
	b.node(op, []*value{x}, outs, attrs...)
}

func global(b *build, op string) {
	x := b.image(1, 3, nil, nil)
	if op == "GlobalLpPool" {
		b.one(op, []*value{x}, b.maybe(a("p", b.between(1, 3)))...)
		return
	}
	b.one(op, []*value{x})
}

// scale is a positive parameter of a quantisation.
func (b *build) scale(d ir.DType, lo, hi float64, shape ...int) *value {
	return b.constant(tensorOf(ir.T(d, append([]int{}, shape...)...), func(int) float64 {
		if b.chance(.5) {
			return hi / float64(int(1)<<b.r.IntN(4))
		}
		return lo + (hi-lo)*b.r.Float64()
	}))
}

// zero is a zero point.
func (b *build) zero(d ir.DType, shape ...int) *value {
	return b.constant(tensorOf(ir.T(d, append([]int{}, shape...)...), func(int) float64 {
		switch {
		case d.IsFloat() || d == ir.Int32 || b.chance(.4):
			return 0
		case d.Bits() < 8:
			return float64(b.between(0, 1))
		case d.IsSigned():
			return float64(b.between(-10, 10))
		}
		return float64(b.between(100, 150))
	}))
}
