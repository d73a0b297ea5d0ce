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
