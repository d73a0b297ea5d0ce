package passes

import (
	"github.com/spark-compile/spark-compile/ir"
)

// rereads reports whether a heavy node reads elements of its inputs many times. If not, their producers may be
// computed on the fly.
func rereads(n *ir.Node) bool { return n.Op.Kind != ir.KindReduction }

// isRowOp reports whether a node treats each row, the dimensions from axis on, independently.
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

// maxRecompute bounds cost × evaluations per element of a node that is recomputed where it is read.
const maxRecompute = 16

// cheapTotal is how many simple instructions of recomputation a launch may always cost.
const cheapTotal = 1 << 14

// bijective reports whether a movement node only renames or permutes indices.
func bijective(n *ir.Node) bool { return n.Op.Name == "Reshape" || n.Op.Name == "Transpose" }
