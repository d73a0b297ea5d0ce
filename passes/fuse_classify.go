package passes

import (
	"github.com/spark-compile/spark-compile/ir"
)

// rereads says how often a heavy node reads each element of its inputs: few times (its producers may be computed on the
// fly), or many times.
func rereads(n *ir.Node) bool { return n.Op.Kind != ir.KindReduction }

// isRowOp reports whether a node works on each row of the dimensions from its axis on by itself.
func isRowOp(n *ir.Node) (axis int, ok bool) {
	switch n.Op.Name {
	case "LayerNorm", "RMSNorm":
		return n.Attrs.Int("axis", 0), true
	case "Softmax", "LogSoftmax":
		if a := n.Attrs.Int("axis", 0); a == n.Inputs[0].Type.Rank()-1 {
			return a, true
		}
	}
	return 0, false
}

// maxRecompute bounds cost × evaluations an element for a node that is computed where it is read.
const maxRecompute = 16

// cheapTotal is how many simple instructions recomputation may cost a launch in any case.
const cheapTotal = 1 << 14

// bijective reports whether a movement node only renames or permutes indices.
func bijective(n *ir.Node) bool { return n.Op.Name == "Reshape" || n.Op.Name == "Transpose" }

// isView reports whether the node's output has the bytes of a part of its first input in their order.
func isViewNode(n *ir.Node) bool {
	switch n.Op.Name {
	case "Reshape":
		return true
	case "Transpose":
		return keepsOrder(n.Attrs.Ints("perm"), n.Inputs[0].Type.Shape)
	case "Slice":
		_, ok := sliceOffset(n)
		return ok
	}
	return false
}

// sliceOffset returns where a Slice starts, in elements, if its elements lie one after the other in its input.
func sliceOffset(n *ir.Node) (int, bool) {
	in, out := n.Inputs[0].Type.Shape, n.Outputs[0].Type.Shape
	for i, step := range n.Attrs.Ints("steps") {
		if step != 1 && out[i] > 1 {
			return 0, false
		}
	}
	starts := n.Attrs.Ints("starts")
	offset, stride, cut := 0, 1, false
	for d := len(in) - 1; d >= 0; d-- {
		if cut && out[d] != 1 {
			return 0, false
		}
		cut = cut || out[d] != in[d]
		offset += starts[d] * stride
		stride *= in[d]
	}
	return offset, n.Outputs[0].Type.Numel() > 0
}

// isFlatConcat reports whether the inputs of a Concat lie one after the other in its output.
func isFlatConcat(n *ir.Node) bool {
	if n.Op.Name != "Concat" || n.Outputs[0].Type.DType.Bits()%8 != 0 {
		return false
	}
	for _, d := range n.Outputs[0].Type.Shape[:n.Attrs.Int("axis", 0)] {
		if d != 1 {
			return false
		}
	}
	return true
}
