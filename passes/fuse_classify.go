package passes

import (
	"github.com/spark-compile/spark-compile/ir"
)

// role is what a node may be within a region.
type role uint8

const (
	roleLight       role = iota // elementwise or movement: pulled through freely
	roleHeavy                   // the one node of a loop region that is more than index arithmetic and scalar functions
	roleContraction             // anchor of a contraction
	roleWindow                  // anchor of a window region
	roleRegion                  // a region already
)

// roleOf decides by op, type and layout which family a node can be the anchor of.
func roleOf(n *ir.Node) role {
	switch n.Op.Name {
	case "MatMul":
		if isMatrixProduct(n) {
			return roleContraction
		}
		return roleHeavy
	case "Attention":
		if n.Inputs[0].Type.DType == ir.Float32 {
			return roleContraction
		}
		return roleHeavy
	case "Conv":
		switch {
		case !isImageF32(n):
			return roleHeavy
		case n.Depthwise():
			return roleWindow
		}
		return roleContraction
	case "MaxPool":
		if isImageF32(n) && len(n.Outputs) == 1 {
			return roleWindow
		}
		return roleHeavy
	case "AveragePool", "LpPool":
		if isImageF32(n) {
			return roleWindow
		}
		return roleHeavy
	case "Gather", "Trilu", "OneHot":
		return roleLight
	case "GatherElements", "GatherND", "ReverseSequence":
		return roleHeavy
	case "Resize":
		if n.Attrs.String("mode", "nearest") == "nearest" {
			return roleLight
		}
		return roleHeavy
	}
	switch n.Op.Kind {
	case ir.KindElementwise, ir.KindMovement:
		return roleLight
	case ir.KindRegion:
		return roleRegion
	}
	return roleHeavy
}

// minMatrixRows is the least number of rows for which tensor tiles beat a row-by-row product.
const minMatrixRows = 2

// isMatrixProduct reports whether a MatMul is an f32 product of matrices with more than one row and column.
func isMatrixProduct(n *ir.Node) bool {
	a, b, y := n.Inputs[0].Type, n.Inputs[1].Type, n.Outputs[0].Type
	if y.DType != ir.Float32 || a.Rank() < 2 || b.Rank() < 2 || y.Numel() == 0 || a.Numel() == 0 {
		return false
	}
	r := y.Rank()
	return y.Shape[r-2] >= minMatrixRows && y.Shape[r-1] >= minMatrixRows
}

// isImageF32 reports whether a convolution or pool works on f32 images with channels last.
func isImageF32(n *ir.Node) bool {
	x := n.Inputs[0].Type
	return x.DType == ir.Float32 && x.Rank() == 4 && x.Numel() > 0 && n.Outputs[0].Type.Numel() > 0 &&
		n.Attrs.String("layout", "NCHW") == "NHWC"
}

// matrixInputs lists the inputs of an anchor that its kernel multiplies: they may be narrow, the others may not.
func matrixInputs(n *ir.Node) []int {
	switch n.Op.Name {
	case "MatMul", "Conv":
		return []int{0, 1}
	case "Attention":
		return []int{0, 1, 2}
	}
	return nil
}

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

// weight estimates what one element of an elementwise node costs, in simple instructions.
func weight(n *ir.Node) int {
	switch n.Op.Name {
	case "Cast", "Neg", "Abs", "Relu", "Add", "Sub", "Mul", "Min", "Max", "Where", "Not", "And", "Or", "Xor",
		"Equal", "Less", "LessEqual", "Greater", "GreaterEqual", "BitCast", "BitAnd", "BitOr", "BitXor", "BitNot":
		return 1
	}
	if n.Op.Kind == ir.KindMovement {
		return 1
	}
	return 8
}

// maxRecompute bounds weight × evaluations an element for a node that is computed where it is read.
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
