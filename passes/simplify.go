package passes

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

var _ = register(Pass{
	Name:    "simplify",
	Summary: "remove no-ops such as x+0, x·1, and casts and moves that cancel; replace movement ops by simpler ones",
	Run: func(_ *Context, g *ir.Graph) error {
		return rewriteToFixpoint(g, func(s *sweep, n *ir.Node) {
			for _, rule := range simplifyRules(n.Op.Name) {
				if rule(s, n) {
					return
				}
			}
			if n.Op.Pointwise() && len(n.Inputs) > 1 {
				trimConstants(s, n)
			}
		})
	},
})

// simplifyRules are tried in order; the first that applies ends the visit.
func simplifyRules(op string) []func(*sweep, *ir.Node) bool {
	type rules = []func(*sweep, *ir.Node) bool
	switch op {
	case "Add":
		return rules{dropNeutral(0, true), dropExpand, joinPads}
	case "Sub":
		return rules{dropNeutral(0, false), dropExpand}
	case "Mul":
		return rules{dropNeutral(1, true), dropExpand}
	case "Div", "Pow":
		return rules{dropNeutral(1, false), dropExpand}
	case "Max":
		return rules{maxToRelu, dropExpand}
	case "Min", "And", "Or", "Xor", "Equal", "Less", "LessEqual", "Greater", "GreaterEqual", "Where", "Mod":
		return rules{dropExpand}
	case "Neg", "Not", "BitNot":
		return rules{dropPair}
	case "Detach":
		return rules{func(s *sweep, n *ir.Node) bool { return become(s, n, n.Inputs[0]) }}
	case "Relu", "Abs", "Ceil", "Floor", "Round", "Sign":
		return rules{dropRepeat}
	case "Cast":
		return rules{simplifyCast}
	case "Reshape":
		return rules{simplifyReshape}
	case "Transpose":
		return rules{simplifyTranspose}
	case "Expand":
		return rules{simplifyExpand}
	case "Slice":
		return rules{simplifySlice, sliceOfPad}
	case "Concat":
		return rules{simplifyConcat, joinParts}
	case "Tile":
		return rules{simplifyTile}
	case "Pad":
		return rules{simplifyPad}
	case "Gather":
		return rules{gatherToSlice}
	case "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd":
		return rules{reduceOfOnes}
	case "AveragePool", "MaxPool":
		return rules{globalPool}
	}
	return nil
}

// become replaces n by v if their types agree, unless n must stay to carry the name of a graph output.
func become(s *sweep, n *ir.Node, v *ir.Value) bool {
	if !n.Outputs[0].Type.Equal(v.Type) || s.keepsName(n.Outputs[0], v) {
		return false
	}
	s.replace(n.Outputs[0], v)
	return true
}

// dropNeutral removes an operation whose second operand (either, if commutative) is the constant that changes nothing.
func dropNeutral(neutral float64, commutative bool) func(*sweep, *ir.Node) bool {
	return func(s *sweep, n *ir.Node) bool {
		if c, ok := scalarOf(n.Inputs[1]); ok && c == neutral && become(s, n, n.Inputs[0]) {
			return true
		}
		if !commutative {
			return false
		}
		c, ok := scalarOf(n.Inputs[0])
		return ok && c == neutral && become(s, n, n.Inputs[1])
	}
}

// trimConstants drops leading dimensions of size 1 from constants that broadcast, all of them from a single number.
func trimConstants(s *sweep, n *ir.Node) {
	for i, c := range n.Inputs {
		shape := c.Type.Shape
		for len(shape) > 0 && shape[0] == 1 {
			shape = shape[1:]
		}
		if !c.IsConst() || len(shape) == c.Type.Rank() {
			continue
		}
		for j, v := range n.Inputs {
			if j != i && v.Type.Rank() == n.Outputs[0].Type.Rank() {
				s.setInput(n, i, s.g.Constant(c.Name, c.Const.Reshaped(shape...)))
				break
			}
		}
	}
}

// maxToRelu turns max(x, 0) into Relu; both propagate NaN.
func maxToRelu(s *sweep, n *ir.Node) bool {
	if !n.Outputs[0].Type.DType.IsFloat() {
		return false
	}
	return mirrored(n, func(x, zero *ir.Value) bool {
		if c, ok := scalarOf(zero); !ok || c != 0 || !x.Type.Equal(n.Outputs[0].Type) {
			return false
		}
		s.replace(n.Outputs[0], s.add("Relu", n.Name, nil, x))
		return true
	})
}

// dropExpand skips an Expand that broadcasting makes redundant.
func dropExpand(s *sweep, n *ir.Node) bool {
	dropped := false
	for i, v := range n.Inputs {
		e := defOp(v, "Expand")
		if e == nil {
			continue
		}
		shapes := [][]int{e.Inputs[0].Type.Shape}
		for j, w := range n.Inputs {
			if j != i {
				shapes = append(shapes, w.Type.Shape)
			}
		}
		if shape, err := ir.Broadcast(shapes...); err == nil && slices.Equal(shape, n.Outputs[0].Type.Shape) {
			s.setInput(n, i, e.Inputs[0])
			dropped = true
		}
	}
	return dropped
}

// dropPair removes two applications of an op that is its own inverse.
func dropPair(s *sweep, n *ir.Node) bool {
	inner := defOp(n.Inputs[0], n.Op.Name)
	return inner != nil && become(s, n, inner.Inputs[0])
}

// dropRepeat removes the second application of an idempotent op.
func dropRepeat(s *sweep, n *ir.Node) bool {
	return defOp(n.Inputs[0], n.Op.Name) != nil && become(s, n, n.Inputs[0])
}

// simplifyCast removes no-op casts and skips lossless ones.
func simplifyCast(s *sweep, n *ir.Node) bool {
	if become(s, n, n.Inputs[0]) {
		return true
	}
	inner := defOp(n.Inputs[0], "Cast")
	if inner == nil {
		return false
	}
	x := inner.Inputs[0]
	if !castExact(x.Type.DType, n.Inputs[0].Type.DType) {
		return false
	}
	if become(s, n, x) {
		return true
	}
	s.setInput(n, 0, x)
	return true
}

// castExact reports whether every value of type from has the same value in type to, so that a further cast sees no
// difference.
func castExact(from, to ir.DType) bool {
	if from == to {
		return true
	}
	mantissa := map[ir.DType]int{ir.Float16: 11, ir.BFloat16: 8, ir.Float32: 24, ir.Float64: 53}
	switch {
	case from == ir.Bool:
		return to.IsInt() || mantissa[to] > 0
	case from.IsInt() && to.IsInt():
		if !from.IsSigned() {
			return to.Bits() > from.Bits()
		}
		return to.IsSigned() && to.Bits() >= from.Bits()
	case from.IsInt() && mantissa[to] > 0:
		return from.Bits() <= mantissa[to]
	case from == ir.Float16 || from == ir.BFloat16:
		return to == ir.Float32 || to == ir.Float64
	case from == ir.Float32:
		return to == ir.Float64
	}
	return false
}

// reduceOfOnes turns a reduction over dimensions of size 1 into a Reshape.
func reduceOfOnes(s *sweep, n *ir.Node) bool {
	x := n.Inputs[0]
	for _, a := range n.Attrs.Ints("axes") {
		if x.Type.Shape[a] != 1 {
			return false
		}
	}
	return reshapeTo(s, n, x)
}

// globalPool turns a pool whose one window is the whole image into a reduction.
func globalPool(s *sweep, n *ir.Node) bool {
	x, y := n.Inputs[0], n.Outputs[0]
	first := 2
	if n.Attrs.String("layout", "NCHW") == "NHWC" {
		first = 1
	}
	kernel := n.Attrs.Ints("kernel")
	for i, k := range kernel {
		if x.Type.Shape[first+i] != k || y.Type.Shape[first+i] != 1 {
			return false
		}
	}
	if len(n.Outputs) > 1 || slices.ContainsFunc(n.Attrs.Ints("pads"), func(p int) bool { return p != 0 }) {
		return false
	}
	op := map[string]string{"AveragePool": "ReduceMean", "MaxPool": "ReduceMax"}[n.Op.Name]
	axes := identityPerm(first + len(kernel))[first:]
	s.replace(y, s.add(op, n.Name, ir.Attrs{"axes": axes, "keepdims": true}, x))
	return true
}
