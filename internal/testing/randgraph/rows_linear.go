package randgraph

import (
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/frontend/onnx"
	"github.com/spark-compile/spark-compile/ir"
)

// matrices draws the operands of a product: x, and what it is multiplied by.
func (b *build) matrices(x *value, d ir.DType) *value {
	k := x.Shape[x.Rank()-1]
	if b.chance(.4) {
		for _, v := range slices.Backward(b.values) {
			if v.DType == d && v.Rank() >= 2 && v.Shape[v.Rank()-2] == k && b.chance(.6) {
				if _, err := ir.Broadcast(v.Shape[:v.Rank()-2], x.Shape[:max(0, x.Rank()-2)]); err == nil {
					return v
				}
			}
		}
	}
	s := []int{k, b.dim()}
	if b.chance(.1) {
		s = s[:1]
	} else if x.Rank() > 2 && b.chance(.4) {
		batch := slices.Clone(x.Shape[b.between(0, x.Rank()-3) : x.Rank()-2])
		for i := range batch {
			if b.chance(.3) {
				batch[i] = 1
			}
		}
		s = append(batch, s...)
	}
	return b.weights(d, k, s...)
}

var linearRows = []row{
	{"MatMul", 6, func(b *build, op string) {
		x := b.tensor(b.types(0), 1, 4)
		if b.chance(.1) && x.Rank() >= 2 && x.Shape[x.Rank()-1] == x.Shape[x.Rank()-2] {
			b.one(op, []*value{x, x})
			return
		}
		b.one(op, []*value{x, b.matrices(x, x.DType)})
	}},
	{"Gemm", 3, func(b *build, op string) {
		x := b.tensor(b.types(0), 2, 2)
		transA, transB := b.chance(.3), b.chance(.5)
		m, k := x.Shape[0], x.Shape[1]
		if transA {
			m, k = k, m
		}
		n := b.dim()
		s := []int{k, n}
		if transB {
			s = []int{n, k}
		}
		in := []*value{x, b.weights(x.DType, k, s...), nil}
		if b.opset < 11 || b.chance(.7) {
			in[2] = b.weights(x.DType, 1, b.unidirectional([]int{m, n})...)
		}
		b.maybe(a("transA", transA), a("transB", transB)) // drawn, so that seeds keep their graphs
		attrs := []onnx.Attr{a("transA", transA), a("transB", transB)}
		if x.DType.IsFloat() {
			attrs = append(attrs, b.maybe(a("alpha", b.number(-1, 1)), a("beta", b.number(-1, 1)))...)
		}
		b.one(op, in, attrs...)
	}},
	{"MatMulInteger", 1, func(b *build, op string) {
		x := b.tensor(b.types(0), 2, 3)
		w := b.given(b.plain(oneOf(b, b.types(1)...), x.Shape[x.Rank()-1], b.dim()))
		in := []*value{x, w, nil, nil}
		if b.chance(.6) {
			in[2] = b.given(b.plain(x.DType))
		}
		if in[2] != nil && b.chance(.5) {
			in[3] = b.given(b.plain(w.DType))
		}
		b.one(op, in)
	}},
	{"QLinearMatMul", 1, func(b *build, op string) {
		d := oneOf(b, ir.Uint8, ir.Int8)
		x := b.tensor([]ir.DType{d}, 2, 3)
		w := b.given(b.plain(d, x.Shape[x.Rank()-1], b.dim()))
		b.one(op, []*value{x, b.scale(ir.Float32, .01, .1), b.zero(d), w, b.scale(ir.Float32, .01, .1), b.zero(d), b.scale(ir.Float32, .05, .5), b.zero(d)})
	}},
	{"Einsum", 1, func(b *build, op string) {
		x := b.tensor(b.types(0), 2, 3)
		s := x.Shape
		n := b.dim()
		var eq string
		in := []*value{x}
		with := func(shape ...int) { in = append(in, b.weights(x.DType, s[len(s)-1], shape...)) }
		if x.Rank() == 2 {
			switch b.r.IntN(7) {
			case 0:
				eq = "ij->ji"
			case 1:
				eq = "ij->i"
			case 2:
				eq = "ij,jk->ik"
				with(s[1], n)
			case 3:
				eq = "ij,kj->ki"
				with(n, s[1])
			case 4:
				eq = "ij,ij->i"
				with(s...)
			case 5:
				eq = "...j,jk"
				with(s[1], n)
			case 6:
				eq = "ij,j,k->ik"
				with(s[1])
				with(n)
			}
		} else {
			switch b.r.IntN(5) {
			case 0:
				eq = "bij,bjk->bik"
				with(s[0], s[2], n)
			case 1:
				eq = "bij,jk->bki"
				with(s[2], n)
			case 2:
				eq = "bij,bij->bj"
				with(s...)
			case 3:
				eq = "...ij->...ji"
			case 4:
				eq = "bij,kj->bik"
				with(n, s[2])
			}
		}
		b.one(op, in, a("equation", eq))
	}},
	{"Det", 1, func(b *build, op string) {
		n := b.between(1, 4)
		x := b.pick(func(v *value) bool {
			r := v.Rank()
			return slices.Contains(b.types(0), v.DType) && r >= 2 && v.Shape[r-1] == v.Shape[r-2] && v.Shape[r-1] <= 5
		}, func() *value { return b.given(b.plain(b.dtype(b.types(0)), append(b.shape(0, 2), n, n)...)) })
		b.one(op, []*value{x})
	}},
}

// codes are the types of quantised numbers at the graph's opset.
func (b *build) codes(op string, i int) []ir.DType {
	var out []ir.DType
	for _, d := range b.schema(op).inputs[i].types {
		if d != ir.Int32 {
			out = append(out, d)
		}
	}
	return out
}

// quantise adds a QuantizeLinear, and a DequantizeLinear after it if both.
func quantise(b *build, both bool) {
	b.s = b.schema("QuantizeLinear")
	var floats []ir.DType
	for _, d := range b.types(0) {
		if d.IsFloat() {
			floats = append(floats, d)
		}
	}
	x := b.tensor(floats, 0, 4)
	d := oneOf(b, ir.Int8, ir.Uint8, oneOf(b, b.codes("QuantizeLinear", 2)...))
	sd := ir.Float32
	if b.opset >= 19 {
		sd = x.DType
	}
	var shape []int
	var attrs []onnx.Attr
	if b.opset >= 13 && x.Rank() > 0 && b.chance(.3) {
		axis := b.axis(x.Rank())
		shape = []int{x.Shape[(axis+x.Rank())%x.Rank()]}
		attrs = []onnx.Attr{a("axis", axis)}
		if n := x.Shape[(axis+x.Rank())%x.Rank()]; b.opset >= 21 && b.chance(.3) {
			block := b.divisorOf(n)
			shape = slices.Clone(x.Shape)
			shape[(axis+x.Rank())%x.Rank()] = n / block
			attrs = append(attrs, a("block_size", block))
		}
	}
	scale := b.scale(sd, .02, .2, shape...)
	in := []*value{x, scale, nil}
	if d != ir.Uint8 || b.chance(.7) {
		in[2] = b.zero(d, shape...)
	}
	q := b.one("QuantizeLinear", in, attrs...)
	if !both {
		return
	}
	b.s = b.schema("DequantizeLinear")
	y := b.one("DequantizeLinear", []*value{q, scale, in[2]}, attrs...)
	_ = y
}

var quantizationRows = []row{
	{"QuantizeLinear", 6, func(b *build, _ string) { quantise(b, b.chance(.8)) }},
	{"DequantizeLinear", 2, func(b *build, op string) {
		var codes []ir.DType
		for _, d := range b.codes(op, 0) {
			if !d.IsFloat() {
				codes = append(codes, d)
			}
		}
		x := b.tensor(codes, 1, 4)
		sd := ir.Float32
		if b.opset >= 19 {
			sd = b.dtype(b.types(1))
		}
		var shape []int
		var attrs []onnx.Attr
		if b.opset >= 13 && b.chance(.4) {
			axis := b.axis(x.Rank())
			shape = []int{x.Shape[(axis+x.Rank())%x.Rank()]}
			attrs = []onnx.Attr{a("axis", axis)}
		}
		in := []*value{x, b.scale(sd, .02, .2, shape...), nil}
		if b.chance(.6) {
			in[2] = b.zero(x.DType, shape...)
		}
		b.one(op, in, attrs...)
	}},
	{"DynamicQuantizeLinear", 1, func(b *build, op string) { b.node(op, []*value{b.tensor(b.types(0), 1, 3)}, 3) }},
}

var sequenceRows = []row{
	{"RNN", 1, recurrent(1, 1)},
	{"GRU", 1, recurrent(3, 1)},
	{"LSTM", 1, recurrent(4, 2)},
	{"Attention", 2, attend},
	{"RotaryEmbedding", 1, func(b *build, op string) {
		d := b.dtype(b.types(0))
		n, s, h, w := b.between(1, 2), b.between(1, 5), b.between(1, 3), 2*b.between(1, 4)
		attrs := []onnx.Attr{a("interleaved", b.chance(.5))}
		x := []int{n, h, s, w}
		if b.chance(.4) {
			x = []int{n, s, h * w}
			attrs = append(attrs, a("num_heads", h))
		}
		turn := w / 2
		if b.chance(.3) && turn > 1 {
			turn = b.between(1, turn)
			attrs = append(attrs, a("rotary_embedding_dim", 2*turn), a("num_heads", h))
			if len(x) == 3 {
				attrs = attrs[:len(attrs)-1]
			}
		}
		in := []*value{b.exactly(d, x...), nil, nil}
		if b.chance(.5) {
			long := s + b.between(0, 3)
			in[1], in[2] = b.uniform(d, -1, 1, long, turn), b.uniform(d, -1, 1, long, turn)
			in = append(in, b.indices(ir.Int64, long, false, n, s))
		} else {
			in[1], in[2] = b.uniform(d, -1, 1, n, s, turn), b.uniform(d, -1, 1, n, s, turn)
		}
		b.one(op, in, attrs...)
	}},
	{"LinearAttention", 1, func(b *build, op string) {
		d := b.dtype(b.types(0))
		n, t, h, group, dk, dv := b.between(1, 2), b.between(1, 3), b.between(1, 2), b.between(1, 2), b.between(1, 4), b.between(1, 4)
		rule := oneOf(b, "gated_delta", "linear", "gated", "delta")
		in := []*value{b.exactly(d, n, t, h*group*dk), b.exactly(d, n, t, h*dk), b.exactly(d, n, t, h*dv), nil, nil, nil}
		if b.chance(.5) {
			in[3] = b.given(b.plain(d, n, h, dk, dv))
		}
		if rule == "gated" || rule == "gated_delta" {
			in[4] = b.uniform(d, -1, 0, n, t, h)
		}
		if rule == "delta" || rule == "gated_delta" {
			in[5] = b.uniform(d, 0, 1, n, t, h)
		}
		b.node(op, in, 2, a("update_rule", rule), a("q_num_heads", h*group), a("kv_num_heads", h))
	}},
}

// recurrent draws a layer with a number of gates and states.
func recurrent(gates, states int) func(b *build, op string) {
	return func(b *build, op string) {
		d := b.dtype(b.types(0))
		t, n, in, h := oneOf(b, 1, 1, 2, 3, 4), b.between(1, 3), b.between(1, 6), b.between(1, 5)
		direction := oneOf(b, "forward", "reverse", "bidirectional")
		dirs := 1
		if direction == "bidirectional" {
			dirs = 2
		}
		x := b.pick(func(v *value) bool { return v.DType == d && v.Rank() == 3 && v.Shape[0] <= 6 }, func() *value { return b.given(b.plain(d, t, n, in)) })
		t, n, in = x.Shape[0], x.Shape[1], x.Shape[2]
		attrs := []onnx.Attr{a("hidden_size", h), a("direction", direction)}
		list := []*value{x, b.weights(d, in, dirs, gates*h, in), b.weights(d, h, dirs, gates*h, h)}
		list = append(list, make([]*value, 5)...)
		if b.chance(.6) {
			list[3] = b.weights(d, 1, dirs, 2*gates*h)
		}
		if b.chance(.3) {
			list[4] = b.given(tensorOf(ir.T(ir.Int32, n), func(int) float64 { return float64(b.between(1, t)) }))
		}
		for i := range states {
			if b.chance(.5) || i == 1 && list[5] != nil {
				list[5+i] = b.given(b.plain(d, dirs, n, h))
			}
		}
		if op == "LSTM" && b.chance(.3) {
			list[7] = b.weights(d, 1, dirs, 3*h)
		}
		if op == "GRU" {
			attrs = append(attrs, b.maybe(a("linear_before_reset", b.r.IntN(2)))...)
		}
		if b.chance(.2) {
			attrs = append(attrs, a("clip", b.number(.5, 3)))
		}
		b.node(op, list, b.between(1, 1+states), attrs...)
	}
}

func attend(b *build, op string) {
	d := b.dtype(b.types(0))
	n, h, group, s, t, w, wv := b.between(1, 2), b.between(1, 3), b.between(1, 2), b.between(1, 6), b.between(1, 7), b.between(1, 9), b.between(1, 9)
	var attrs []onnx.Attr
	q, k, v := []int{n, h * group, s, w}, []int{n, h, t, w}, []int{n, h, t, wv}
	if b.chance(.3) {
		q, k, v = []int{n, s, h * group * w}, []int{n, t, h * w}, []int{n, t, h * wv}
		attrs = append(attrs, a("q_num_heads", h*group), a("kv_num_heads", h))
	}
	in := []*value{b.exactly(d, q...), b.exactly(d, k...), b.exactly(d, v...), nil, nil, nil}
	past := 0
	outs := 1
	if b.chance(.25) {
		past = b.between(1, 3)
		in[4], in[5] = b.given(b.plain(d, n, h, past, w)), b.given(b.plain(d, n, h, past, wv))
		outs = 3
	}
	if b.chance(.4) {
		shape := []int{s, t + past}
		if b.chance(.4) {
			shape = []int{n, 1, s, t + past}
		}
		if b.chance(.5) {
			in[3] = b.given(b.plain(d, shape...))
		} else { // every query sees a key
			in[3] = b.given(tensorOf(ir.T(ir.Bool, shape...), func(i int) float64 {
				if i%(t+past) == 0 || b.chance(.6) {
					return 1
				}
				return 0
			}))
		}
	}
	if b.chance(.3) {
		attrs = append(attrs, a("is_causal", true))
	}
	if b.chance(.2) {
		attrs = append(attrs, a("softcap", b.number(1, 4)))
	}
	if b.chance(.3) {
		attrs = append(attrs, a("scale", b.number(.1, 1)))
	}
	b.node(op, in, outs, attrs...)
}

var samplingRows = []row{
	{"Upsample", 2, func(b *build, op string) {
		x := b.image(2, 2, nil, nil)
		mode := oneOf(b, "nearest", "nearest", "linear")
		if !x.DType.IsFloat() { // which would be cut to whole numbers
			mode = "nearest"
		}
		scales := []float64{1, 1, oneOf(b, 1., 2, 3, 1.5), oneOf(b, 1., 2, 3, 2.5)}
		if b.opset < 9 {
			b.one(op, []*value{x}, a("mode", mode), a("scales", scales))
			return
		}
		b.one(op, []*value{x, b.floats(scales...)}, a("mode", mode))
	}},
	{"Resize", 6, resize},
	{"GridSample", 1, func(b *build, op string) {
		x := b.image(2, 2, nil, nil)
		modes := []string{"bilinear", "nearest", "bicubic"}
		if b.opset >= 20 {
			modes = []string{"linear", "nearest", "cubic"}
		}
		if !x.DType.IsFloat() { // what lies between two would be cut to whole numbers
			modes = []string{"nearest"}
		}
		grid := b.uniform(b.dtype(b.types(1)), -1.2, 1.2, x.Shape[0], b.between(1, 5), b.between(1, 5), 2)
		b.one(op, []*value{x, grid}, a("mode", oneOf(b, modes...)), a("padding_mode", oneOf(b, "zeros", "border", "reflection")), a("align_corners", b.chance(.5)))
	}},
	{"AffineGrid", 1, func(b *build, op string) {
		r := b.between(2, 3)
		size := []int{b.between(1, 2), b.between(1, 3)}
		for range r {
			size = append(size, b.between(1, 5))
		}
		theta := b.exactly(b.dtype(b.types(0)), size[0], r, r+1)
		b.one(op, []*value{theta, b.ints(size...)}, b.maybe(a("align_corners", b.chance(.5)))...)
	}},
	{"RoiAlign", 1, func(b *build, op string) {
		x := b.image(2, 2, nil, func(s []int) { s[2], s[3] = b.between(3, 9), b.between(3, 9) })
		n := b.between(1, 3)
		var rois []float64
		for range n {
			x1, y1 := b.r.Float64()*float64(x.Shape[3]-1), b.r.Float64()*float64(x.Shape[2]-1)
			rois = append(rois, x1, y1, x1+b.r.Float64()*4, y1+b.r.Float64()*4)
		}
		in := []*value{x, b.given(ir.FromFloats(ir.T(x.DType, n, 4), rois)), b.indices(ir.Int64, x.Shape[0], false, n)}
		attrs := []onnx.Attr{a("output_height", b.between(1, 3)), a("output_width", b.between(1, 3)), a("sampling_ratio", b.between(0, 3)), a("spatial_scale", b.number(.5, 1))}
		attrs = append(attrs, b.maybe(a("mode", "avg"))...)
		if b.opset >= 16 {
			attrs = append(attrs, b.maybe(a("coordinate_transformation_mode", oneOf(b, "half_pixel", "output_half_pixel")))...)
		}
		b.one(op, in, attrs...)
	}},
}

// resize draws scales or sizes of spatial dimensions, mostly of four.
func resize(b *build, op string) {
	x := b.image(1, 3, nil, nil)
	if b.chance(.7) {
		x = b.image(2, 2, nil, nil)
	}
	r := x.Rank()
	mode := oneOf(b, "nearest", "nearest", "nearest", "linear", "linear", "cubic")
	if b.opset < 11 && mode == "cubic" || r != 4 && mode == "cubic" || !x.DType.IsFloat() {
		mode = "nearest"
	}
	scales := make([]float64, r)
	sizes := slices.Clone(x.Shape)
	for i := range scales {
		scales[i] = 1
		if i >= 2 || mode == "nearest" && b.chance(.1) {
			scales[i] = oneOf(b, .5, .75, 1, 1.25, 1.5, 2, 2, 2, 3, 2.5)
			sizes[i] = b.between(max(1, x.Shape[i]/2), 2*x.Shape[i]+1)
			if math.Floor(scales[i]*float64(x.Shape[i])) < 1 {
				scales[i] = 1
			}
		}
	}
	attrs := []onnx.Attr{a("mode", mode)}
	if b.opset < 11 {
		b.one(op, []*value{x, b.floats(scales...)}, attrs...)
		return
	}
	coordinates := []string{"half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "asymmetric"}
	if b.opset < 13 && mode == "nearest" {
		coordinates = append(coordinates, "tf_half_pixel_for_nn")
	}
	if b.opset >= 19 {
		coordinates = append(coordinates, "half_pixel_symmetric")
	}
	coordinate := oneOf(b, coordinates...)
	attrs = append(attrs, a("coordinate_transformation_mode", coordinate))
	bySizes := b.chance(.4)
	if mode == "nearest" {
		nearest := oneOf(b, "round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
		attrs = append(attrs, a("nearest_mode", nearest))
		for i, d := range x.Shape {
			of := scales[i]
			out := int(of * float64(d))
			if bySizes {
				of, out = float64(sizes[i])/float64(d), sizes[i]
			}
			if tied(coordinate, nearest, d, out, of) {
				b.redraw()
			}
		}
	}
	if mode == "cubic" {
		attrs = append(attrs, b.maybe(a("cubic_coeff_a", -.5), a("exclude_outside", b.r.IntN(2)))...)
	}
	if mode != "nearest" && b.opset >= 18 && b.chance(.3) {
		attrs = append(attrs, a("antialias", true))
	}
	var roi *value
	if b.opset < 13 {
		roi = b.constant(tensorOf(ir.T(ir.Float32, 2*r), func(i int) float64 { return float64(i / r) }))
	}
	if !bySizes {
		b.one(op, []*value{x, roi, b.floats(scales...)}, attrs...)
		return
	}
	var given *value
	if b.opset < 13 {
		given = b.constant(ir.FromFloats(ir.T(ir.Float32, 0), nil))
	}
	b.one(op, []*value{x, roi, given, b.ints(sizes...)}, attrs...)
}

// tied reports whether a coordinate lies where nearest changes sides, by a scale that binary fractions do not have: the last bit of
// f32 decides there.
func tied(coordinate, nearest string, in, out int, scale float64) bool {
	if scale*8 == math.Round(scale*8) && coordinate != "half_pixel_symmetric" || coordinate == "align_corners" {
		return false
	}
	for j := range out {
		x := (float64(j)+.5)/scale - .5
		switch coordinate {
		case "asymmetric":
			x += .5 - .5/scale
		case "tf_half_pixel_for_nn":
			x += .5
		case "half_pixel_symmetric":
			x += float64(in) / 2 * (1 - float64(out)/(scale*float64(in)))
		}
		if nearest == "round_prefer_floor" || nearest == "round_prefer_ceil" {
			x += .5
		}
		if math.Abs(x-math.Round(x)) < 1e-4 {
			return true
		}
	}
	return false
}
