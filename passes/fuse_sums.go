package passes

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// A sum over the positions of an image for each channel has few results, which few blocks compute. One that is long
// is split into parts, of which a second sum is made.
const (
	longSum      = 512     // more rows are long
	manyTerms    = 1 << 17 // fewer are summed in the time of a launch
	shortestPart = 64      // rows of a part
	mostParts    = 1 << 13 // results of all parts: some blocks for every multiprocessor of a large GPU
)

// Parts of the rows of a sum that the kernel of a contraction makes: tiles have as many rows or a multiple of them.
const (
	shortestTile = 32
	longestTile  = 128
)

// growSums adds to c an elementwise node that reads c's results, and the first half of the long sum over rows that
// follows it. The gradient of a gain then reads the values before the gain only inside the kernel. Parts become as
// long as tiles.
func (f *fuser) growSums(c *cluster) {
	y := c.heavy.Outputs[0].Type
	rows, columns := y.Numel()/max(1, y.Shape[y.Rank()-1]), y.Shape[y.Rank()-1]
	part := shortestTile
	for part < longestTile && rows/part > longSum {
		part *= 2
	}
	if rows%part != 0 || !f.isMatrix(c.heavy) {
		return
	}
	for _, d := range f.sorted(c) {
		for _, u := range f.uses[d.Outputs[0]] {
			n := u.Node
			if n == nil || f.of[n] != nil || !n.Op.Pointwise() || n.Outputs[0].Type.Numel() != y.Numel() {
				continue
			}
			split := f.reader(n.Outputs[0])
			if split == nil || f.of[split] != nil || split.Op.Name != "Reshape" || split.Outputs[0].Type.Rank() != 3 || split.Outputs[0].Type.Shape[2] != columns {
				continue
			}
			first := f.reader(split.Outputs[0])
			if first == nil || f.of[first] != nil || first.Op.Name != "ReduceSum" || !slices.Equal(first.Attrs.Ints("axes"), []int{1}) || first.Attrs.Bool("keepdims") {
				continue
			}
			second := f.reader(first.Outputs[0])
			if second == nil || second.Op.Name != "ReduceSum" || !slices.Equal(second.Attrs.Ints("axes"), []int{0}) {
				continue
			}
			if slices.ContainsFunc(n.Inputs, func(x *ir.Value) bool { return x != nil && !c.nodes[x.Def] && f.follows(x, c.heavy) }) {
				continue
			}
			split.Attrs = ir.Attrs{"shape": []int{rows / part, part, columns}}
			split.Outputs[0].Type.Shape = []int{rows / part, part, columns}
			first.Outputs[0].Type.Shape = []int{rows / part, columns}
			anchor := c.heavy
			for _, m := range []*ir.Node{n, split, first} {
				f.join(c, m)
			}
			c.heavy = anchor
			return
		}
	}
}

// isMatrix reports whether a contraction computes one product of matrices with contiguous rows.
func (f *fuser) isMatrix(n *ir.Node) bool {
	switch n.Op.Name {
	case "MatMulSum":
		return true
	case "MatMul":
		b := n.Inputs[1].Type
		return b.Numel() == b.Shape[b.Rank()-1]*b.Shape[b.Rank()-2] && b.Rank() >= 2
	}
	return n.Op.Name == "Conv" && n.Attrs.Int("group", 1) == 1 && n.Attrs.String("layout", "NCHW") == "NHWC"
}

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
