package regionrand

import (
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// matrixA is how an anchor's first operand is stored, whose products are summed along an axis.
func (b *builder) matrixA(shape []int, axis int) how {
	h := how{storage: b.activation(), batched: b.batched()}
	if b.oneIn(3) {
		h.storage = ir.Storage{DType: ir.Float16}
	}
	last := len(shape) - 1
	if b.blocks && axis == last && shape[last]%ir.BlockSize == 0 && b.oneIn(3) {
		h.storage = ir.Storage{DType: ir.Float4E2M1, Block: ir.BlockSize, BlockAxis: last, Scale: pick(b.tape, 0, 0.5)}
		return h
	}
	if d := h.storage.DType; b.narrow && (d == ir.Float16 || d == ir.BFloat16) && b.oneIn(3) {
		h.read = ir.Storage{DType: ir.Float8E4M3FN, Scale: pick(b.tape, 0x1p-6, 0.013)}
		if d == ir.Float16 && h.read.Scale == 0x1p-6 && b.oneIn(2) {
			h.read.SplitTerms = 2
		}
	}
	return h
}

// weights is how the weights of an anchor are stored: k products in a sum, along inner; channels along outer.
func (b *builder) weights(a ir.DType, k, inner, outer int) how {
	d := pick(b.tape, a, a, ir.Float8E4M3FN, ir.Float4E2M1, ir.Float6E3M2, ir.Float4E2M1, ir.Float16, ir.Float6E3M2)
	if a == ir.Float4E2M1 {
		d = a
	}
	h := how{storage: ir.Storage{DType: d}, constant: true, batched: b.r.Members > 0, size: 1 / math.Sqrt(float64(k))}
	if split := d == ir.Float16 && b.r.Family == ir.FamilyContraction && b.narrow && b.oneIn(2); split {
		h.read = ir.Storage{DType: ir.Float8E4M3FN, SplitTerms: 2}
	} else if d.Bits() > 8 {
		return h
	}
	h.size = 1
	if h.storage.PerChannel = b.below(4) > 0; h.storage.PerChannel {
		h.storage.ChannelAxis = outer
	} else {
		h.storage.Scale = 1 / math.Sqrt(float64(k))
	}
	if d == ir.Float4E2M1 {
		h.size, h.storage.Block, h.storage.BlockAxis = 2, ir.BlockSize, inner
	}
	return h
}

// viewed is an operand that a Reshape brings to a shape.
func (b *builder) viewed(h how, shape ...int) *ir.Value {
	if h.storage.Block > 0 || !b.oneIn(4) {
		return b.operand(h, shape...)
	}
	flat := []int{ir.Type{Shape: shape}.Numel()}
	if n := len(shape); n > 2 {
		flat = append([]int{shape[0] * shape[1]}, shape[2:]...)
	}
	return b.add("Reshape", ir.Attrs{"shape": shape}, b.operand(h, flat...))
}

func (b *builder) matmul() *ir.Value {
	b.r.Family = ir.FamilyContraction
	b.members()
	m, n := pick(b.tape, 1, 2, 5, 16, 17, 33, 64, 70), pick(b.tape, 1, 3, 8, 16, 20, 33, 48, 64, 96)
	k := pick(b.tape, 1, 7, 16, 24, 32, 40, 64, 80, 96, 130, 256, 640, 1536)
	if m*n*k*max(1, b.r.Members) > 1<<21 {
		m, n = min(m, 16), min(n, 33)
	}
	batch := pick(b.tape, nil, nil, []int{1}, []int{2}, []int{2, 3})
	if b.summed(); b.part > 0 {
		m, n, k, batch = b.part*pick(b.tape, 1, 2, 3), min(n, 48), min(k, 256), pick(b.tape, nil, []int{1}, []int{2})
	}
	attrs := ir.Attrs{}
	left, right := []int{m, k}, []int{k, n}
	inner := 0
	if b.oneIn(5) {
		attrs["transA"], left = true, []int{k, m}
	}
	if b.oneIn(3) {
		attrs["transB"], right, inner = true, []int{n, k}, 1
	}
	shape := append(slices.Clone(batch), left...)
	axis := len(shape) - 1
	if attrs.Bool("transA") {
		axis--
	}
	h := b.matrixA(shape, axis)
	x := b.viewed(h, shape...)
	var w *ir.Value
	switch {
	case b.below(3) > 0:
		w = b.operand(b.weights(h.storage.DType, k, inner, 1-inner), right...)
	default: // both vary; of one batch each, or one for all
		if b.part == 0 && b.oneIn(2) {
			right = append(slices.Clone(batch), right...)
		}
		d := pick(b.tape, h.storage.DType, ir.Float16)
		if d == ir.Float4E2M1 {
			d = ir.Float16
		}
		w = b.viewed(how{storage: ir.Storage{DType: d}, batched: b.batched()}, right...)
	}
	return b.epilogue(b.add("MatMul", attrs, x, w), n, -1)
}

func (b *builder) conv() *ir.Value {
	b.r.Family = ir.FamilyContraction
	b.members()
	group := pick(b.tape, 1, 1, 1, 2, 3)
	c, out := pick(b.tape, 1, 2, 3, 4, 8, 12, 16, 24, 32, 64)*group, pick(b.tape, 1, 2, 5, 8, 16, 20, 33, 48)*group
	if group > 1 && c == group { // depthwise is a window
		c *= 2
	}
	attrs, window, in := b.window2D(7)
	n := pick(b.tape, 1, 1, 2)
	if b.summed(); b.part > 0 { // of an image as large as the first, of a multiple of so many pixels
		before := []int{(window[0] - 1) / 2, (window[1] - 1) / 2}
		attrs = ir.Attrs{"strides": []int{1, 1}, "dilations": []int{1, 1}, "pads": append(before, window[0]-1-before[0], window[1]-1-before[1])}
		c, out, group, in = min(c/group, 16), min(out/group, 33), 1, []int{b.part / pick(b.tape, 8, 4), 8 * pick(b.tape, 1, 2, 3)}
	}
	shape, channels := []int{n, in[0], in[1], c}, 3
	if attrs["layout"] = "NHWC"; b.part == 0 && b.oneIn(5) {
		delete(attrs, "layout")
		shape, channels = []int{n, c, in[0], in[1]}, 1
	}
	attrs["group"] = group
	h := b.matrixA(shape, channels)
	if group > 1 && h.storage.Block > 0 {
		h.storage = ir.Storage{DType: ir.Float16}
	}
	var x, w *ir.Value
	if right := []int{out, c / group, window[0], window[1]}; b.oneIn(4) { // they vary, as in gradients
		d := pick(b.tape, h.storage.DType, ir.Float16)
		if h.storage.Block > 0 {
			h.storage = ir.Storage{DType: ir.Float16}
			d = ir.Float16
		}
		x = b.moved(h, shape...)
		w = b.moved(how{storage: ir.Storage{DType: d}, batched: b.batched()}, right...)
		if b.oneIn(2) {
			w = b.add("Slice", ir.Attrs{"starts": []int{0, 0, window[0] - 1, window[1] - 1}, "sizes": right, "steps": []int{1, 1, -1, -1}}, w)
		}
	} else {
		x = b.viewed(h, shape...)
		w = b.operand(b.weights(h.storage.DType, c/group*window[0]*window[1], 1, 0), right...)
	}
	inputs := []*ir.Value{x, w}
	if b.oneIn(2) {
		inputs = append(inputs, b.operand(how{storage: ir.Storage{DType: ir.Float32}, constant: true, batched: b.r.Members > 0}, out))
	}
	return b.epilogue(b.add("Conv", attrs, inputs...), out, channels)
}

// summed decides whether sums of rows are a result, and of how many rows each.
func (b *builder) summed() {
	if b.oneIn(6) {
		b.part = pick(b.tape, 32, 64, 128)
	}
}

// sumOfRows sums a value computed after an anchor, or its product with an operand, over parts of its rows.
func (b *builder) sumOfRows(y *ir.Value) *ir.Value {
	columns := y.Type.Shape[y.Type.Rank()-1]
	if b.oneIn(2) {
		y = b.add("Mul", nil, y, b.operand(how{storage: b.activation(), batched: b.batched()}, y.Type.Shape...))
	}
	y = b.add("Reshape", ir.Attrs{"shape": []int{y.Type.Numel() / columns / b.part, b.part, columns}}, y)
	return b.add("ReduceSum", ir.Attrs{"axes": []int{1}}, y)
}

// moved is an operand whose dimensions a Transpose brings in their order.
func (b *builder) moved(h how, shape ...int) *ir.Value {
	if !b.oneIn(2) {
		return b.operand(h, shape...)
	}
	perm, stored := make([]int, len(shape)), make([]int, len(shape))
	for i := range perm {
		perm[i] = i
	}
	b.permute(perm)
	for i, p := range perm {
		stored[p] = shape[i]
	}
	return b.add("Transpose", ir.Attrs{"perm": perm}, b.operand(h, stored...))
}

// window2D chooses the geometry of a window and the size of its input image.
func (b *builder) window2D(most int) (attrs ir.Attrs, window, in []int) {
	window = []int{pick(b.tape, 1, 2, 3, 3, 5), pick(b.tape, 1, 2, 3, 3, 4)}
	strides, dilations := []int{pick(b.tape, 1, 2, 3), pick(b.tape, 1, 2)}, []int{pick(b.tape, 1, 1, 2), pick(b.tape, 1, 1, 3)}
	pads := make([]int, 4)
	for i := range pads {
		pads[i] = min(b.below(3), (window[i%2]-1)*dilations[i%2])
	}
	for i := range 2 {
		reach := (window[i]-1)*dilations[i] + 1 - pads[i] - pads[i+2]
		in = append(in, max(1, reach)+b.below(most+3*i))
	}
	return ir.Attrs{"strides": strides, "pads": pads, "dilations": dilations}, window, in
}

func (b *builder) attention() *ir.Value {
	b.r.Family = ir.FamilyContraction
	b.members()
	batch, groups, share := pick(b.tape, 1, 2), pick(b.tape, 1, 2, 3), pick(b.tape, 1, 1, 2)
	s, t := pick(b.tape, 1, 4, 16, 17, 33), pick(b.tape, 1, 5, 16, 24, 40)
	d, dv := pick(b.tape, 4, 8, 16, 20, 32, 64), pick(b.tape, 8, 16, 12, 32, 64)
	heads := b.heads(ir.Storage{DType: pick(b.tape, ir.Float32, ir.Float16, ir.BFloat16)}, batch)
	in := []*ir.Value{heads(groups*share, s, d), heads(groups, t, d), heads(groups, t, dv)}
	in = append(in, b.mask(batch, s, t)...)
	y := b.add("Attention", ir.Attrs{"scale": pick(b.tape, 1, 1/math.Sqrt(float64(d)), 0.3)}, in...)
	if b.oneIn(2) {
		y = b.add("Transpose", ir.Attrs{"perm": []int{0, 2, 1, 3}}, y)
		return b.add("Reshape", ir.Attrs{"shape": []int{batch, s, groups * share * dv}}, y)
	}
	return b.epilogue(y, dv, -1)
}

// heads makes operands of an attention [batch,heads,rows,size], contiguous or in the layout of a linear layer,
// whose output may hold several.
func (b *builder) heads(storage ir.Storage, batch int) func(heads, rows, size int) *ir.Value {
	return func(heads, rows, size int) *ir.Value {
		o := how{storage: storage, batched: b.batched()}
		if !b.oneIn(3) {
			return b.operand(o, batch, heads, rows, size)
		}
		others := pick(b.tape, 0, 0, 8, 5)
		v := b.operand(o, batch, rows, heads*size+others)
		if others > 0 {
			v = b.add("Slice", ir.Attrs{"starts": []int{0, 0, others}, "sizes": []int{batch, rows, heads * size}}, v)
		}
		v = b.add("Reshape", ir.Attrs{"shape": []int{batch, rows, heads, size}}, v)
		return b.add("Transpose", ir.Attrs{"perm": []int{0, 2, 1, 3}}, v)
	}
}

// mask decides whether an attention of s queries and t keys has one.
func (b *builder) mask(batch, s, t int) []*ir.Value {
	if !b.oneIn(4) {
		return nil
	}
	return []*ir.Value{b.operand(how{storage: ir.Storage{DType: ir.Float32}, batched: b.batched()}, pick(b.tape, []int{s, t}, []int{batch, 1, s, t}, []int{t})...)}
}

// attentionGrad is the three gradients of an attention, in heads or packed as a linear layer's gradient reads them.
func (b *builder) attentionGrad() *ir.Value {
	b.r.Family = ir.FamilyContraction
	b.members()
	batch, heads := pick(b.tape, 1, 2), pick(b.tape, 1, 2, 3)
	s, d := pick(b.tape, 1, 4, 16, 25, 33, 64), pick(b.tape, 4, 8, 16, 20, 32, 64)
	t, dv := s, d
	if b.oneIn(2) {
		t, dv = pick(b.tape, 1, 5, 16, 24, 40, 64), pick(b.tape, 8, 16, 12, 32, 64)
	}
	storage := ir.Storage{DType: pick(b.tape, ir.Float16, ir.BFloat16)}
	if b.oneIn(12) {
		storage.DType = ir.Float32
	}
	if b.slow || storage.DType == ir.Float32 { // a loop computes every score again for each element of each gradient
		batch, heads, s, t, d, dv = 1, 1, min(s, 4), min(t, 5), min(d, 8), min(dv, 8)
	}
	operand := b.heads(storage, batch)
	in := []*ir.Value{operand(heads, s, d), operand(heads, t, d), operand(heads, t, dv), operand(heads, s, dv)}
	in = append(in, b.mask(batch, s, t)...)
	attrs := ir.Attrs{"scale": pick(b.tape, 1, 1/math.Sqrt(float64(d)), 0.3), "causal": b.oneIn(3)}
	y := b.add("AttentionGrad", attrs, in...)
	if s == t && d == dv && b.oneIn(2) {
		y = b.add("Transpose", ir.Attrs{"perm": []int{1, 3, 0, 2, 4}}, y)
		return b.add("Reshape", ir.Attrs{"shape": []int{batch, s, 3 * heads * d}}, y)
	}
	return b.epilogue(y, y.Type.Shape[4], -1)
}

func (b *builder) window() *ir.Value {
	b.r.Family = ir.FamilyWindow
	b.members()
	attrs, window, in := b.window2D(9)
	n, c := pick(b.tape, 1, 1, 2), pick(b.tape, 1, 3, 8, 16, 20, 32, 48)
	x := how{storage: b.activation(), batched: b.batched()}
	return b.sliding(attrs, window, func() *ir.Value { return b.viewed(x, n, in[0], in[1], c) }, c)
}

// sliding is a window over an image of so many channels.
func (b *builder) sliding(attrs ir.Attrs, window []int, image func() *ir.Value, c int) *ir.Value {
	attrs["layout"] = "NHWC"
	switch pick(b.tape, "Conv", "Conv", "MaxPool", "AveragePool") {
	case "Conv":
		multiplier := pick(b.tape, 1, 1, 2)
		if c == 1 {
			multiplier = 1
		}
		attrs["group"] = c
		inputs := []*ir.Value{image(), b.operand(how{storage: ir.Storage{DType: ir.Float32}, constant: true, batched: b.r.Members > 0, size: 0.3}, c*multiplier, 1, window[0], window[1])}
		if b.oneIn(2) {
			inputs = append(inputs, b.operand(how{storage: ir.Storage{DType: ir.Float32}, constant: true, batched: b.r.Members > 0}, c*multiplier))
		}
		if c == 1 {
			b.r.Family = ir.FamilyContraction
		}
		return b.epilogue(b.add("Conv", attrs, inputs...), c*multiplier, 3)
	case "MaxPool":
		attrs["kernel"], attrs["ceil"] = window, b.oneIn(3)
		return b.epilogue(b.add("MaxPool", attrs, image()), c, 3)
	}
	attrs["kernel"], attrs["ceil"], attrs["include_pad"] = window, b.oneIn(4), b.oneIn(2)
	return b.epilogue(b.add("AveragePool", attrs, image()), c, 3)
}

// segments are many small products of rows with parts of one vector.
func (b *builder) segments() *ir.Value {
	b.r.Family = ir.FamilyLoop
	b.members()
	n, most, length := pick(b.tape, 1, 5, 16, 40, 100), pick(b.tape, 1, 8, 24, 33, 64), pick(b.tape, 1, 2, 3)
	length *= most
	storage := ir.Storage{DType: pick(b.tape, ir.Float32, ir.Float16, ir.BFloat16)}
	x := b.operand(how{storage: storage, batched: b.batched()}, length)
	return b.segmentsOf(x, storage.DType, n, most)
}

// segmentsOf are n sums of up to so many neighbours of a vector.
func (b *builder) segmentsOf(x *ir.Value, of ir.DType, n, most int) *ir.Value {
	length := x.Type.Numel()
	h := b.weights(of, most, 1, 0)
	h.storage.PerChannel = h.storage.PerChannel || h.storage.Scale != 0 || h.storage.Block > 0 // it reads no other scales alone
	w := b.operand(h, n, most)
	var bias *ir.Value
	if b.oneIn(2) {
		bias = b.operand(how{storage: ir.Storage{DType: ir.Float32}, constant: true, batched: b.r.Members > 0}, n)
	}
	ints := func(draw func() int64) *ir.Value {
		xs := make([]int64, n)
		for i := range xs {
			xs[i] = draw()
		}
		i := len(b.inputs)
		t := ir.T(ir.Int32, n)
		b.inputs = append(b.inputs, b.g.Constant(b.g.Fresh("o"), ir.FromInts(t, xs)))
		b.r.Operands = append(b.r.Operands, ir.Operand{Storage: ir.Storage{DType: ir.Int32}})
		return b.body.AddInput("o"+b.inputs[i].Name, t)
	}
	offset := ints(func() int64 { return int64(b.rng.IntN(length - most + 1)) })
	var count *ir.Value
	if b.oneIn(3) {
		count = ints(func() int64 { return int64(1 + b.rng.IntN(most)) })
	} else {
		count = b.body.Constant("l", ir.Splat(ir.T(ir.Int32, n), float64(most)))
	}
	return b.epilogue(b.add("SegmentedMatVec", nil, x, w, bias, offset, count), n, -1)
}

// epilogue is a sequence of elementwise nodes that follows a value; channels lie along an axis (-1: the last).
func (b *builder) epilogue(y *ir.Value, channels, axis int) *ir.Value {
	anchor := y.Type.Shape
	if axis < 0 {
		axis = len(anchor) - 1
	}
	vector := func(h how) *ir.Value {
		shape := []int{channels}
		for range len(anchor) - 1 - axis {
			shape = append(shape, 1)
		}
		return b.operand(h, shape...)
	}
	constant := how{storage: ir.Storage{DType: ir.Float32}, constant: true, batched: b.r.Members > 0}
	for range b.below(6) {
		b.after = append(b.after, y)
		switch b.below(9) {
		case 0:
			y = b.add("Add", nil, y, vector(constant))
		case 1:
			y = b.add("Mul", nil, vector(constant), y)
		case 2:
			y = b.add(pick(b.tape, "Relu", "Sigmoid", "Tanh", "Gelu", "Silu", "Neg", "Abs"), nil, y)
		case 3, 4:
			y = b.add(pick(b.tape, "Add", "Mul", "Max", "Sub"), nil, y, b.operand(how{storage: b.activation(), batched: b.batched()}, anchor...))
		case 5:
			y = b.add(pick(b.tape, "Min", "Max", "Add", "Div"), nil, y, b.splat(pick(b.tape, 0.5, 3, -1.25)))
		case 6: // a value for each row
			rows := slices.Clone(anchor)
			rows[axis] = 1
			y = b.add("Add", nil, y, b.operand(how{storage: ir.Storage{DType: ir.Float32}, batched: b.batched()}, rows...))
		case 7:
			mask := b.operand(how{storage: ir.Storage{DType: ir.Bool}, constant: true, batched: b.r.Members > 0}, anchor[axis:]...)
			y = b.add("Where", nil, mask, y, b.splat(-2))
		case 8:
			to := pick(b.tape, ir.Float16, ir.BFloat16)
			y = b.add("Cast", ir.Attrs{"to": ir.Float32}, b.add("Cast", ir.Attrs{"to": to}, y))
		}
	}
	if a := b.r.Anchor(); b.part > 0 && a.Role() == ir.RoleContraction {
		b.sum = b.sumOfRows(pick(b.tape, append(b.after, y)...))
	}
	switch b.below(6) {
	case 4:
		n := y.Type.Numel()
		y = b.add("Reshape", ir.Attrs{"shape": []int{n / anchor[len(anchor)-1], anchor[len(anchor)-1]}}, y)
	case 5:
		perm := make([]int, len(anchor))
		for i := range perm {
			perm[i] = i
		}
		b.permute(perm)
		y = b.add("Transpose", ir.Attrs{"perm": perm}, y)
	}
	return y
}

func (b *builder) permute(perm []int) {
	for i := len(perm) - 1; i > 0; i-- {
		j := i - b.below(i+1)
		perm[i], perm[j] = perm[j], perm[i]
	}
}
