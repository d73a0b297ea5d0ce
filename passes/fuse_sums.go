package passes

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// A sum over the positions of an image for each channel has few results, which few blocks compute. One that is long is split into
// parts, of which a second sum is made.
const (
	longSum      = 512     // more rows are long
	manyTerms    = 1 << 17 // fewer are summed in the time of a launch
	shortestPart = 64      // rows of a part
	mostParts    = 1 << 13 // results of all parts: some blocks for every multiprocessor of a large GPU
)

// splitSum splits a long sum over the leading dimensions.
func splitSum(s *sweep, n *ir.Node) bool {
	if n.Op.Name != "ReduceSum" || n.Inputs[0].IsConst() || n.Inputs[0].Type.DType != ir.Float32 {
		return false
	}
	x, axes := n.Inputs[0], n.Attrs.Ints("axes")
	for i := range axes {
		if !slices.Contains(axes, i) {
			return false
		}
	}
	rows, columns := ir.T(ir.Bool, x.Type.Shape[:len(axes)]...).Numel(), n.Outputs[0].Type.Numel()
	if rows <= longSum || rows*columns < manyTerms || columns < 8 {
		return false
	}
	parts := 1
	for p := 2; p <= rows/shortestPart && p*columns <= mostParts; p++ {
		if rows%p == 0 {
			parts = p
		}
	}
	if parts == 1 {
		return false
	}
	x = s.add("Reshape", n.Name, ir.Attrs{"shape": []int{parts, rows / parts, columns}}, x)
	x = s.add("ReduceSum", n.Name, ir.Attrs{"axes": []int{1}}, x)
	return reshapeTo(s, n, s.add("ReduceSum", n.Name, ir.Attrs{"axes": []int{0}}, x))
}
