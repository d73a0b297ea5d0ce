package passes

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

var _ = register(Pass{
	Name:    "fold-channel-scale",
	Summary: "fold a scale of each channel of a large image into the weights of the convolutions that read it, or apply it after those that the image is the weights of",
	After: map[string]string{
		"decompose-conv-transpose": "it makes the convolutions of gradients",
		"layout":                   "channels are the last dimension after it",
	},
	Run: func(_ *Context, g *ir.Graph) error {
		scales := foldableScales(g)
		_, err := rewrite(g, func(s *sweep, n *ir.Node) { foldChannelScale(s, scales, n) })
		return err
	},
})

// scaleRatio is how many times as large as all that is multiplied in its place an image must be: scaled weights are
// written and read again, and constants among them are needed in f32.
const scaleRatio = 16

// foldableScales finds the products of an image [N,H,W,C] with a factor [C] that nothing but convolutions of one
// group reads. In the gradient of an adapted layer three convolutions read the gradient times the gain, and a sum
// reads the gradient.
func foldableScales(g *ir.Graph) map[*ir.Node]bool {
	scales, uses := map[*ir.Node]bool{}, g.Uses()
	for _, n := range g.Nodes {
		if n.Op.Name != "Mul" || !isChannelScaled(n) {
			continue
		}
		y, instead := n.Outputs[0], 0
		for _, u := range uses[y] {
			switch conv := imageWeights(u, uses); {
			case isConvOf(u, 0):
				instead += u.Node.Inputs[1].Type.Numel()
			case conv != nil:
				instead += conv.Outputs[0].Type.Numel()
			default:
				instead = y.Type.Numel()
			}
		}
		scales[n] = scaleRatio*instead <= y.Type.Numel()
	}
	return scales
}

// isChannelScaled reports whether n is an image times a factor of each channel that is not constant.
func isChannelScaled(n *ir.Node) bool {
	x, gain, y := n.Inputs[0].Type, n.Inputs[1], n.Outputs[0].Type
	return y.Rank() == 4 && x.Equal(y) && y.Numel() > 0 && !gain.IsConst() && gain.Type.Rank() > 0 &&
		gain.Type.Numel() == y.Shape[3] && gain.Type.Shape[gain.Type.Rank()-1] == y.Shape[3]
}

// isConvOf reports whether a convolution of one group, with channels last, reads a value as that input.
func isConvOf(u ir.Use, input int) bool {
	n := u.Node
	return n != nil && n.Op.Name == "Conv" && u.Index == input && n.Attrs.Int("group", 1) == 1 && n.Attrs.String("layout", "NCHW") == "NHWC"
}

// imageWeights is the convolution that reads a value, an image that nodes move for it alone, as weights, and the
// image's channels as its outputs; or nil.
func imageWeights(u ir.Use, uses map[*ir.Value][]ir.Use) *ir.Node {
	axis := 3
	for bijectiveUse(u) {
		if axis = axisAfter(u.Node, axis); axis < 0 || len(uses[u.Node.Outputs[0]]) != 1 {
			return nil
		}
		u = uses[u.Node.Outputs[0]][0]
	}
	if axis != 0 || !isConvOf(u, 1) || u.Node.In(2) != nil {
		return nil
	}
	return u.Node
}

func bijectiveUse(u ir.Use) bool { return u.Node != nil && bijective(u.Node) }

// axisAfter is where a Transpose or Reshape puts a dimension of its operand; -1: nowhere by itself.
func axisAfter(n *ir.Node, axis int) int {
	if n.Op.Name == "Transpose" {
		return slices.Index(n.Attrs.Ints("perm"), axis)
	}
	for _, g := range reshapeGroups(n.Inputs[0].Type.Shape, n.Outputs[0].Type.Shape) {
		if len(g.from) == 1 && len(g.to) == 1 && g.from[0] == axis {
			return g.to[0]
		}
	}
	return -1
}

// foldChannelScale rewrites a convolution that reads such a product.
func foldChannelScale(s *sweep, scales map[*ir.Node]bool, n *ir.Node) {
	if n.Op.Name != "Conv" {
		return
	}
	inputs := slices.Clone(n.Inputs)
	if m := n.Inputs[0].Def; scales[m] {
		w := inputs[1]
		factor := s.add("Reshape", m.Name, ir.Attrs{"shape": shaped1(w.Type.Rank(), 1, w.Type.Shape[1])}, m.Inputs[1])
		inputs[0], inputs[1] = m.Inputs[0], s.add("Mul", m.Name, nil, w, factor)
		s.replace(n.Outputs[0], s.add("Conv", n.Name, n.Attrs, inputs...))
		return
	}
	from, path := inputs[1].Origin()
	m := from.Def
	if !scales[m] {
		return
	}
	inputs[1] = m.Inputs[0]
	for _, t := range path {
		inputs[1] = s.add(t.Op.Name, t.Name, t.Attrs, inputs[1])
	}
	y := s.add("Conv", n.Name, n.Attrs, inputs...)
	factor := s.add("Reshape", m.Name, ir.Attrs{"shape": []int{m.Inputs[1].Type.Numel()}}, m.Inputs[1])
	s.replace(n.Outputs[0], s.add("Mul", m.Name, nil, y, factor))
}
