package regionrand

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// joined decides whether another window slides over what the region, a window, computes, and makes a chain of both.
func (b *builder) joined() {
	first := b.g.Nodes[0]
	shape := first.Region.Body.Outputs[0].Type.Shape
	if !first.IsFamily(ir.FamilyWindow) || len(first.Outputs) != 1 || len(shape) != 4 || b.below(3) == 0 {
		return
	}
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
	kept, inputs := !b.oneIn(3), len(b.g.Inputs)
	second := *b
	second.body, second.inputs, second.behind, second.extra = ir.NewGraph("body"), nil, nil, map[int][]*ir.Value{}
	second.r = &ir.Region{Family: ir.FamilyWindow, Members: b.r.Members, Body: second.body}
	image := func() *ir.Value { return second.reads(first, shape) }
	second.finish([]*ir.Value{second.sliding(attrs, window, image, shape[3])})
	if ir.Chains(first, b.g.Nodes[0]) != nil {
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
