package regionrand

import (
	"math"
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// joined decides whether another region reads what the region, a window or rows, computes, and makes a chain of both: a window slides
// over it, or a contraction multiplies it.
func (b *builder) joined() {
	first := b.g.Nodes[0]
	shape := first.Region.Body.Outputs[0].Type.Shape
	rows := first.IsFamily(ir.FamilyLoop) && first.Region.Body.Nodes[0].Op.Kind == ir.KindReduction
	if !rows && (!first.IsFamily(ir.FamilyWindow) || len(shape) != 4) || len(first.Outputs) != 1 || b.below(3) == 0 {
		return
	}
	inputs, second := len(b.g.Inputs), *b
	second.body, second.inputs, second.behind, second.extra = ir.NewGraph("body"), nil, nil, map[int][]*ir.Value{}
	second.r = &ir.Region{Members: b.r.Members, Body: second.body}
	kept := false
	if rows || b.oneIn(2) {
		second.finish([]*ir.Value{second.multiplied(first, shape)})
	} else {
		attrs, window, _ := b.window2D(9)
		pads, dilations := attrs.Ints("pads"), attrs.Ints("dilations")
		if b.below(3) > 0 { // the image keeps its size, as in networks
			attrs["strides"] = []int{1, 1}
			for i := range 2 {
				reach := (window[i] - 1) * dilations[i]
				pads[i], pads[i+2] = reach/2, reach-reach/2
			}
		}
		for i := range 2 {
			if shape[1+i]+pads[i]+pads[i+2] < (window[i]-1)*dilations[i]+1 {
				return
			}
		}
		kept, second.r.Family = !b.oneIn(3), ir.FamilyWindow
		image := func() *ir.Value { return second.reads(first, shape) }
		second.finish([]*ir.Value{second.sliding(attrs, window, image, shape[3])})
	}
	if ir.Chains(first, b.g.Nodes[0], kept) != nil {
		b.g.Inputs, b.g.Nodes, b.g.Outputs = b.g.Inputs[:inputs], []*ir.Node{first}, first.Outputs
		return
	}
	n := ir.NewChain(first, b.g.Nodes[0], kept)
	for i, v := range n.Outputs {
		v.Def, v.Index = n, i
	}
	b.g.Nodes, b.g.Outputs = []*ir.Node{n}, n.Outputs
}

// reads makes the only result of another region, of that shape, an operand.
func (b *builder) reads(n *ir.Node, shape []int) *ir.Value {
	s := n.Region.Results[0]
	b.inputs = append(b.inputs, n.Outputs[0])
	b.r.Operands = append(b.r.Operands, ir.Operand{Stacked: b.r.Members > 0, Storage: s})
	return b.body.AddInput("image", ir.T(n.Region.Body.Outputs[0].Type.DType, slices.Clone(shape)...))
}

// rows are normalised along the last axis.
func (b *builder) rows() *ir.Value {
	b.r.Family = ir.FamilyLoop
	b.members()
	k := pick(b.tape, 16, 8, 24, 33, 64, 96, 130, 200, 256, 384, 520)
	shape := append(slices.Clone(pick(b.tape, nil, []int{1}, []int{2})), pick(b.tape, 1, 3, 16, 25, 33, 70), k)
	x := b.operand(how{storage: b.activation(), stacked: b.stacked()}, shape...)
	op, most := pick(b.tape, "LayerNorm", "LayerNorm", "Softmax"), 0 // no bound is known of RMSNorm's rounding
	if op == "LayerNorm" {
		most = 2
	}
	in := []*ir.Value{x}
	for range b.below(most + 1) {
		in = append(in, b.operand(how{storage: ir.Storage{DType: ir.Float32}, constant: true, stacked: b.r.Members > 0}, k))
	}
	y := b.add(op, ir.Attrs{"axis": len(shape) - 1}, in...)
	for range b.below(3) {
		if b.oneIn(2) {
			y = b.add(pick(b.tape, "Relu", "Silu", "Neg"), nil, y)
		} else {
			y = b.add("Add", nil, y, b.operand(how{storage: ir.Storage{DType: ir.Float32}, constant: true, stacked: b.r.Members > 0}, k))
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
	if first.Region.Members > 0 && b.oneIn(3) || b.oneIn(6) { // variable weights
		w := b.operand(how{storage: ir.Storage{DType: pick(b.tape, a, ir.Float16)}, stacked: b.stacked(), size: 1 / math.Sqrt(float64(k))}, k, n)
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
