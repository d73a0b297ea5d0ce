package passes

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

var _ = register(Pass{
	Name:    "layout",
	Summary: "switch convolutions and pools to channels-last; sink the transposes between them until they cancel",
	After: map[string]string{
		"decompose-conv-transpose": "it transposes around the convolutions that it makes",
		"merge-branches":           "it merges branches in the file's layout",
		"simplify":                 "it turns global pools into reductions, which need no layout",
	},
	Run: func(_ *Context, g *ir.Graph) error {
		if err := channelsLast(g); err != nil {
			return err
		}
		if err := rewriteToFixpoint(g, sinkTranspose); err != nil {
			return err
		}
		if err := rewriteToFixpoint(g, hoistTranspose); err != nil {
			return err
		}
		flattenIntoWeights(g)
		g.RemoveDead()
		return nil
	},
})

// toLast moves dimension 1 to the end, toFirst moves it back.
func toLast(rank int) []int {
	perm := []int{0}
	for i := 2; i < rank; i++ {
		perm = append(perm, i)
	}
	return append(perm, 1)
}

func toFirst(rank int) []int { return inversePerm(toLast(rank)) }

// channelsLast puts each op on images between two transpositions.
func channelsLast(g *ir.Graph) error {
	last := map[*ir.Value]*ir.Value{} // transposed operands
	_, err := rewrite(g, func(s *sweep, n *ir.Node) {
		// Indices of MaxPool count elements in the file's layout.
		if !n.Op.HasAttr("layout") || n.Attrs.String("layout", "NCHW") != "NCHW" || len(n.Outputs) > 1 {
			return
		}
		x, rank := n.Inputs[0], n.Inputs[0].Type.Rank()
		if last[x] == nil {
			last[x] = s.add("Transpose", n.Name, ir.Attrs{"perm": toLast(rank)}, x)
		}
		attrs := n.Attrs.Clone()
		attrs["layout"] = "NHWC"
		inputs := slices.Clone(n.Inputs)
		inputs[0] = last[x]
		y := s.add(n.Op.Name, n.Name, attrs, inputs...)
		s.replace(n.Outputs[0], s.add("Transpose", n.Name, ir.Attrs{"perm": toFirst(rank)}, y))
	})
	return err
}

// hoistTranspose moves a transposition before a pointwise op that only it reads, towards the graph's input. There it
// moves a smaller type, and once for all readers.
func hoistTranspose(s *sweep, n *ir.Node) {
	if n.Op.Name != "Transpose" || !s.only(n.Inputs[0]) {
		return
	}
	op, perm := n.Inputs[0].Def, n.Attrs.Ints("perm")
	if op.Op.Name == "Transpose" {
		simplifyTranspose(s, n)
		return
	}
	if !op.Op.Pointwise() {
		return
	}
	inputs := slices.Clone(op.Inputs)
	moving := -1
	for i, v := range inputs {
		switch {
		case v.IsConst():
			inputs[i] = permuteConstant(s, v, perm)
		case moving >= 0 || v.Type.Rank() != len(perm) || v.Type.Numel() != n.Outputs[0].Type.Numel():
			return
		default:
			moving = i
		}
	}
	if moving < 0 {
		return
	}
	inputs[moving] = s.add("Transpose", n.Name, n.Attrs, inputs[moving])
	s.replace(n.Outputs[0], s.add(op.Op.Name, op.Name, op.Attrs, inputs...))
}

// permuteConstant transposes a constant that broadcasts to a value of perm's rank; a scalar stays.
func permuteConstant(s *sweep, v *ir.Value, perm []int) *ir.Value {
	if v.Type.Numel() == 1 && v.Type.Rank() <= 1 {
		return v
	}
	t := v.Const.Reshaped(leadingOnes(v.Type.Shape, len(perm))...)
	return s.g.Constant(v.Name, moved(t, func(t *ir.Tensor) *ir.Tensor { return transposeTensor(t, perm) }))
}

// leadingOnes is the shape under a higher rank.
func leadingOnes(shape []int, rank int) []int {
	return slices.Concat(shaped1(rank, 0, 1)[:rank-len(shape)], shape)
}
