package passes

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

const (
	// longestScan bounds the rows of CumSum and CumProd of which a kernel computes every element by itself, which
	// takes as many steps as elements.
	longestScan = 256
	scanBlock   = 64
)

// scanByBlocks decomposes a long CumSum or CumProd: an element is the scan within its block, joined with the scan of
// the totals of the preceding blocks. A row of n elements then takes 64·n steps instead of n². It returns nil for a
// short row.
func scanByBlocks(s *sweep, n *ir.Node) *ir.Value {
	x := n.Inputs[0]
	d := x.Type.DType
	if x.Type.Shape[n.Attrs.Int("axis", 0)] <= longestScan {
		return nil
	}
	wide := x
	if isHalf(d) { // the sum is rounded once
		wide = s.add("Cast", n.Name, ir.Attrs{"to": ir.Float32}, x)
	}
	y := blockScan(s, n, wide, n.Attrs.Bool("exclusive"))
	if isHalf(d) {
		y = s.add("Cast", n.Name, ir.Attrs{"to": d}, y)
	}
	return y
}

// blockScan is the scan of x in the direction of n.
func blockScan(s *sweep, n *ir.Node, x *ir.Value, exclusive bool) *ir.Value {
	axis, shape := n.Attrs.Int("axis", 0), x.Type.Shape
	size := shape[axis]
	reduce, join, neutral := "ReduceSum", "Add", 0.0
	if n.Op.Name == "CumProd" {
		reduce, join, neutral = "ReduceProd", "Mul", 1
	}
	scan := func(x *ir.Value, axis int, exclusive bool) *ir.Value {
		return s.add(n.Op.Name, n.Name, ir.Attrs{"axis": axis, "exclusive": exclusive, "reverse": n.Attrs.Bool("reverse")}, x)
	}
	if size <= longestScan || s.err != nil {
		return scan(x, axis, exclusive)
	}
	along := func(sizes ...int) []int { return slices.Replace(slices.Clone(shape), axis, axis+1, sizes...) }
	count := (size + scanBlock - 1) / scanBlock
	if rest := count*scanBlock - size; rest > 0 {
		end := make([]int, len(shape))
		end[axis] = rest
		x = s.add("Pad", n.Name, ir.Attrs{"begin": make([]int, len(shape)), "end": end, "value": neutral}, x)
	}
	blocks := s.add("Reshape", n.Name, ir.Attrs{"shape": along(count, scanBlock)}, x)
	totals := s.add(reduce, n.Name, ir.Attrs{"axes": []int{axis + 1}}, blocks)
	before := s.add("Reshape", n.Name, ir.Attrs{"shape": along(count, 1)}, blockScan(s, n, totals, true))
	y := s.add(join, n.Name, nil, scan(blocks, axis+1, exclusive), before)
	y = s.add("Reshape", n.Name, ir.Attrs{"shape": along(count * scanBlock)}, y)
	if count*scanBlock > size {
		y = s.add("Slice", n.Name, ir.Attrs{"starts": make([]int, len(shape)), "sizes": shape}, y)
	}
	return y
}
