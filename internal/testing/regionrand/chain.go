package regionrand

import (
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// joined decides whether another region reads what the region, a window, rows, heads or a product, computes, and makes a chain of both: a window slides
// over it, or a contraction multiplies it. A product that multiplies rows may be followed by another, and one of
// pixels by a window and another product.
func (b *builder) joined() {
	first := b.g.Nodes[0]
	shape := first.Region.Body.Outputs[0].Type.Shape
	rows := first.IsFamily(ir.FamilyLoop) && first.Region.Body.Nodes[0].Op.Kind == ir.KindReduction
	product := false
	if a := first.Region.Anchor(); a != nil && first.IsFamily(ir.FamilyContraction) {
		product = (a.Op.Name == "MatMul" || a.Op.Name == "Conv") && len(shape) > 1 || a.Op.Name == "Attention" && len(shape) == 3
	}
	if !rows && !product && (!first.IsFamily(ir.FamilyWindow) || len(shape) != 4) || len(first.Region.Results) != 1 || b.below(3) == 0 {
		return
	}
	blocks := first.Region.Results[0].Block > 0
	if product && len(shape) == 4 && !blocks && b.oneIn(2) {
		b.inverted(first, shape)
		return
	}
	inputs, second, kept := len(b.g.Inputs), b.another(), false
	if rows || product || blocks || b.oneIn(2) {
		second.finish([]*ir.Value{second.multiplied(first, shape)})
	} else {
		attrs, window, fits := b.windowOver(shape, 1)
		if !fits {
			return
		}
		kept, second.r.Family = !b.oneIn(3), ir.FamilyWindow
		image := func() *ir.Value { return second.reads(first, shape) }
		second.finish([]*ir.Value{second.sliding(attrs, window, image, shape[3])})
	}
	parts := []*ir.Node{first, b.g.Nodes[0]}
	if ir.CheckFusion(parts) != nil {
		b.g.Inputs, b.g.Nodes, b.g.Outputs = b.g.Inputs[:inputs], []*ir.Node{first}, first.Outputs
		return
	}
	if rows && b.oneIn(2) {
		inputs, third := len(b.g.Inputs), b.another()
		third.finish([]*ir.Value{third.multiplied(parts[1], parts[1].Region.Body.Outputs[0].Type.Shape)})
		if more := append(parts, b.g.Nodes[0]); ir.CheckFusion(more) == nil {
			parts = more
		} else {
			b.g.Inputs = b.g.Inputs[:inputs]
		}
	}
	b.fuse(parts, kept)
}

// followed decides whether further loops read what the region, a loop, computes, each reading the previous one,
// and fuses them.
func (b *builder) followed() {
	first, inputs := b.g.Nodes[0], len(b.g.Inputs)
	parts := []*ir.Node{first}
	for len(parts) < 4 && b.below(3) > 0 {
		previous, next := parts[len(parts)-1], *b
		out := previous.Region.Body.Outputs[0].Type
		if out.Numel() == 0 || previous.Region.Results[0].Block > 0 || !out.DType.IsFloat() && !out.DType.IsInt() || overflows(previous) {
			break
		}
		next.body, next.inputs, next.after, next.extra = ir.NewGraph("body"), nil, nil, map[int][]*ir.Value{}
		next.part, next.sum = 0, nil
		next.r = &ir.Region{Family: ir.FamilyLoop, Body: next.body}
		shape := previous.Outputs[0].Type.Shape
		if previous.Region.Members > 0 && b.oneIn(2) {
			next.r.Members, shape = previous.Region.Members, out.Shape
		}
		y := next.reads(previous, shape)
		if y.Type.DType != ir.Float32 {
			y = next.add("Cast", ir.Attrs{"to": ir.Float32}, y)
		}
		size := y.Type.Numel()
		if vector := b.oneIn(2); vector && previous.Region.Results[0].Scale == 0 || y.Type.Rank() == 0 { // segments are of what has no scale
			if y.Type.Rank() != 1 {
				y = next.add("Reshape", ir.Attrs{"shape": []int{size}}, y)
			}
			y = next.segmentsOf(y, pick(b.tape, ir.Float32, ir.Float16, ir.BFloat16), pick(b.tape, 1, 5, 16, 40, 100), min(size, pick(b.tape, 1, 8, 24, 33, 64)))
		} else if y = next.onwards(y); len(next.body.Nodes) == 0 {
			y = next.add("Neg", nil, y)
		}
		next.finish([]*ir.Value{y})
		parts = append(parts, b.g.Nodes[0])
	}
	kept := len(first.Outputs) > 1 || b.oneIn(3)
	if len(parts) == 1 || ir.CheckFusion(parts) != nil {
		b.g.Inputs, b.g.Nodes, b.g.Outputs = b.g.Inputs[:inputs], []*ir.Node{first}, first.Outputs
		return
	}
	b.fuse(parts, kept)
}

// overflows reports whether a region may yield infinities: of large integers, in 16 bits. Evaluator and kernels differ in what Resize makes of those.
func overflows(n *ir.Node) bool {
	return n.Region.Results[0].DType == ir.Float16 && slices.ContainsFunc(n.Region.Operands, func(o ir.Operand) bool { return o.DType.IsInt() })
}

// fuse makes a chain of regions, all that the graph has.
func (b *builder) fuse(parts []*ir.Node, kept bool) {
	n := ir.NewFused(parts, kept)
	for i, v := range n.Outputs {
		v.Def, v.Index = n, i
	}
	b.g.Nodes, b.g.Outputs = []*ir.Node{n}, n.Outputs
}

// windowOver is a window that fits into an image of that shape, NHWC. Mostly its result has the image's size, or, as in networks, that divided by a stride.
func (b *builder) windowOver(shape []int, most int) (attrs ir.Attrs, window []int, fits bool) {
	attrs, window, _ = b.window2D(9)
	pads, dilations := attrs.Ints("pads"), attrs.Ints("dilations")
	if b.below(3) > 0 {
		attrs["strides"] = []int{1, 1}
		if most > 1 && b.oneIn(2) {
			attrs["strides"] = []int{most, most}
		}
		for i := range 2 {
			reach := (window[i] - 1) * dilations[i]
			pads[i], pads[i+2] = reach/2, reach-reach/2
		}
	}
	for i := range 2 {
		if shape[1+i]+pads[i]+pads[i+2] < (window[i]-1)*dilations[i]+1 {
			return nil, nil, false
		}
	}
	return attrs, window, true
}

// expansion is a product of the pixels of images.
func (b *builder) expansion() *ir.Value {
	b.r.Family = ir.FamilyContraction
	b.members()
	x := b.activation()
	k, c := pick(b.tape, 8, 16, 24, 40, 12), pick(b.tape, 16, 8, 24, 40, 72)
	in := []*ir.Value{b.operand(how{storage: x, batched: b.batched()}, pick(b.tape, 1, 1, 2), 1+b.below(14), 1+b.below(18), k)}
	weights := how{storage: ir.Storage{DType: x.DType}, constant: true, batched: b.r.Members > 0, size: 1 / math.Sqrt(float64(k))}
	if b.oneIn(4) {
		weights = b.weights(x.DType, k, 1, 0)
	}
	in = append(in, b.operand(weights, c, k, 1, 1))
	if b.below(3) > 0 {
		in = append(in, b.operand(how{storage: ir.Storage{DType: ir.Float32}, constant: true, batched: b.r.Members > 0 && b.oneIn(2)}, c))
	}
	attrs := ir.Attrs{"layout": "NHWC", "group": 1, "strides": []int{1, 1}, "dilations": []int{1, 1}, "pads": []int{0, 0, 0, 0}}
	return b.epilogue(b.add("Conv", attrs, in...), c, 3)
}

// inverted lets a window slide over a product of pixels, and another product multiply what that makes: an inverted residual.
func (b *builder) inverted(first *ir.Node, shape []int) {
	inputs := len(b.g.Inputs)
	attrs, window, fits := b.windowOver(shape, 2)
	if !fits {
		return
	}
	second := b.another()
	second.r.Family = ir.FamilyWindow
	image := func() *ir.Value { return second.reads(first, shape) }
	if b.oneIn(5) {
		second.finish([]*ir.Value{second.sliding(attrs, window, image, shape[3])})
	} else {
		c := shape[3]
		attrs["layout"], attrs["group"] = "NHWC", c
		taps := how{storage: ir.Storage{DType: ir.Float32}, constant: true, batched: b.r.Members > 0, size: 0.3}
		in := []*ir.Value{image(), second.operand(taps, c, 1, window[0], window[1])}
		if b.oneIn(2) {
			in = append(in, second.operand(taps, c))
		}
		second.finish([]*ir.Value{second.epilogue(second.add("Conv", attrs, in...), c, 3)})
	}
	parts, third := []*ir.Node{first, b.g.Nodes[0]}, b.another()
	third.finish([]*ir.Value{third.multiplied(parts[1], parts[1].Region.Body.Outputs[0].Type.Shape)})
	if parts = append(parts, b.g.Nodes[0]); ir.CheckFusion(parts) == nil {
		b.fuse(parts, false)
		return
	}
	b.g.Inputs, b.g.Nodes, b.g.Outputs = b.g.Inputs[:inputs], parts[:1], first.Outputs
}

// another builds a further region of as many members.
func (b *builder) another() *builder {
	c := *b
	c.body, c.inputs, c.after, c.extra, c.part, c.sum = ir.NewGraph("body"), nil, nil, map[int][]*ir.Value{}, 0, nil
	c.r = &ir.Region{Members: b.r.Members, Body: c.body}
	return &c
}

// reads makes the only result of another region, of that shape, an operand, with its scales if it lies in blocks.
func (b *builder) reads(n *ir.Node, shape []int) *ir.Value {
	s := n.Region.Results[0]
	if s.Block > 0 {
		b.extra[len(b.inputs)] = append(b.extra[len(b.inputs)], n.Outputs[1])
	}
	b.inputs = append(b.inputs, n.Outputs[0])
	b.r.Operands = append(b.r.Operands, ir.Operand{Batched: b.r.Members > 0, Storage: s})
	return b.body.AddInput("image", ir.T(n.Region.Body.Outputs[0].Type.DType, slices.Clone(shape)...))
}

// rows are normalised along the last axis.
func (b *builder) rows() *ir.Value {
	b.r.Family = ir.FamilyLoop
	b.members()
	k := pick(b.tape, 16, 8, 24, 33, 64, 96, 130, 200, 256, 384, 520)
	shape := append(slices.Clone(pick(b.tape, nil, []int{1}, []int{2})), pick(b.tape, 1, 3, 16, 25, 33, 70), k)
	x := b.operand(how{storage: b.activation(), batched: b.batched()}, shape...)
	op, most := pick(b.tape, "LayerNorm", "LayerNorm", "Softmax"), 0 // no bound is known of RMSNorm's rounding
	if op == "LayerNorm" {
		most = 2
	}
	in := []*ir.Value{x}
	for range b.below(most + 1) {
		in = append(in, b.operand(how{storage: ir.Storage{DType: ir.Float32}, constant: true, batched: b.r.Members > 0}, k))
	}
	y := b.add(op, ir.Attrs{"axis": len(shape) - 1}, in...)
	for range b.below(3) {
		if b.oneIn(2) {
			y = b.add(pick(b.tape, "Relu", "Silu", "Neg"), nil, y)
		} else {
			y = b.add("Add", nil, y, b.operand(how{storage: ir.Storage{DType: ir.Float32}, constant: true, batched: b.r.Members > 0}, k))
		}
	}
	return y
}

// multiplied is a product of what another region computes.
func (b *builder) multiplied(first *ir.Node, shape []int) *ir.Value {
	b.r.Family = ir.FamilyContraction
	last := len(shape) - 1
	k, n := shape[last], pick(b.tape, 1, 5, 16, 24, 33, 72, 130)
	x := b.reads(first, shape)
	a := first.Region.Results[0].DType
	if b.narrow && (a == ir.Float16 || a == ir.BFloat16) && b.oneIn(4) {
		o := &b.r.Operands[0]
		o.Read = ir.Storage{DType: ir.Float8E4M3FN, Scale: 0x1p-6}
	}
	if a != ir.Float4E2M1 && (first.Region.Members > 0 && b.oneIn(3) || b.oneIn(6)) { // variable weights
		w := b.operand(how{storage: ir.Storage{DType: pick(b.tape, a, ir.Float16)}, batched: b.batched(), size: 1 / math.Sqrt(float64(k))}, k, n)
		return b.epilogue(b.add("MatMul", nil, x, w), n, -1)
	}
	if last == 3 && b.oneIn(2) {
		w := b.operand(b.weights(a, k, 1, 0), n, k, 1, 1)
		attrs := ir.Attrs{"layout": "NHWC", "group": 1, "strides": []int{1, 1}, "dilations": []int{1, 1}, "pads": []int{0, 0, 0, 0}}
		return b.epilogue(b.add("Conv", attrs, x, w), n, 3)
	}
	w := b.operand(b.weights(a, k, 0, 1), k, n)
	return b.epilogue(b.add("MatMul", nil, x, w), n, -1)
}
