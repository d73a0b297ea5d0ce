package onnx

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// padding marks a value of which, along an axis, only the first elements are meant: as many as a node found, out of
// size. The others are 0, or what was computed from zeros. Conversions may not mix them with what is meant.
type padding struct {
	axis, size int
	node       string // its label
}

// counts are the values by which nodes with a bound say how many outputs they found, and what follows from them.
type counts struct {
	padded  map[*ir.Value]padding
	counted map[*ir.Value]padding // constants that hold size where the file has the number that was found
	outputs []*ir.Value           // extra outputs of the graph
	seen    []string              // nodes whose number of outputs depends on data
	used    map[string]bool       // names of MaxOutput that were found
}

const unpad = "end the model before it, and use only as many elements as the count says"

// track marks what of n's outputs is padding, or follows from the number of outputs of another node. folded are the
// constants that take the place of the outputs, if n is evaluated.
func (s *site) track(n *ir.Node, folded []*ir.Value) {
	c := &s.im.counts
	if len(c.padded) == 0 {
		return
	}
	var out padding
	ok := false
	for i, v := range n.Inputs {
		if p, marked := c.counted[v]; marked {
			if folded == nil {
				s.refuse(unpad, "it computes with the number of outputs of node %q, which is known only at run time", p.node)
			}
			for _, y := range folded {
				c.counted[y] = p
			}
		}
		p, padded := c.padded[v]
		if !padded {
			continue
		}
		axis := paddedAxis(n, i, p.axis)
		if axis < 0 || ok && (axis != out.axis || p.node != out.node) {
			s.refuse(unpad, "it mixes the outputs of node %q with what pads them to %d, by %s of dimension %d of %v", p.node, p.size, n.Op.Name, p.axis, v.Type)
		}
		out, ok = padding{axis, n.Outputs[0].Type.Shape[axis], p.node}, true
	}
	for i := 0; ok && i < len(n.Outputs); i++ {
		c.padded[n.Outputs[i]] = out
		if folded != nil {
			c.padded[folded[i]] = out
		}
	}
}

// paddedAxis is the dimension of n's outputs whose elements depend on those of dimension axis of input i with the
// same index alone; −1 if there is none.
func paddedAxis(n *ir.Node, i, axis int) int {
	x, y := n.Inputs[i].Type, n.Outputs[0].Type
	fromEnd := axis + y.Rank() - x.Rank()
	if fromEnd < 0 || fromEnd >= y.Rank() || y.Shape[fromEnd] != x.Shape[axis] {
		fromEnd = -1 // broadcast
	}
	same := func(ok bool) int {
		if ok {
			return axis
		}
		return -1
	}
	switch name := n.Op.Name; name {
	case "Reshape":
		before := product(x.Shape[:axis])
		for k, d := range y.Shape {
			if d == x.Shape[axis] && product(y.Shape[:k]) == before {
				return k
			}
		}
		return -1
	case "Transpose":
		return slices.Index(n.Attrs.Ints("perm"), axis)
	case "Expand":
		return fromEnd
	case "Slice":
		whole := y.Shape[axis] == x.Shape[axis]
		steps := n.Attrs.Ints("steps")
		return same(n.Attrs.Ints("starts")[axis] == 0 && (whole || steps == nil || steps[axis] == 1))
	case "Concat", "Softmax", "LogSoftmax", "TopK", "CumProd":
		return same(n.Attrs.Int("axis", 0) != axis)
	case "CumSum": // only backwards does it reach what is meant
		return same(n.Attrs.Int("axis", 0) != axis || !n.Attrs.Bool("reverse"))
	case "LayerNorm", "RMSNorm":
		return same(i == 0 && axis < n.Attrs.Int("axis", 0))
	case "Pad":
		return same(n.Attrs.Ints("begin")[axis] == 0 && n.Attrs.Ints("end")[axis] == 0)
	case "Tile":
		return same(n.Attrs.Ints("repeats")[axis] == 1)
	case "Gather":
		at := n.Attrs.Int("axis", 0)
		switch {
		case i == 1:
			return at + axis
		case axis < at:
			return axis
		case axis > at:
			return axis + n.Inputs[1].Type.Rank() - 1
		}
	case "GatherElements":
		return same(i == 1 || axis != n.Attrs.Int("axis", 0))
	case "GatherND":
		return same(i == 1 && axis < x.Rank()-1)
	case "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ArgMax", "ArgMin":
		axes := n.Attrs.Ints("axes")
		if axes == nil {
			axes = []int{n.Attrs.Int("axis", 0)}
		}
		if slices.Contains(axes, axis) {
			return -1
		}
		if !n.Attrs.Bool("keepdims") {
			return axis - len(slices.DeleteFunc(slices.Clone(axes), func(a int) bool { return a > axis }))
		}
		return axis
	case "MatMul":
		r := x.Rank()
		trans := n.Attrs.Bool("transA")
		free := r - 2 // a's rows
		if i == 1 {
			trans, free = n.Attrs.Bool("transB"), r-1
		}
		if r >= 2 && !trans && (axis < r-2 || axis == free) {
			return fromEnd
		}
	case "Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool", "Resize":
		return same(i == 0 && axis == 0)
	case "GridSample":
		return same(axis == 0)
	case "RoiAlign":
		return same(i > 0 && axis == 0)
	case "RoiAlignWeights":
		return same(axis == 0)
	default:
		if n.Op.Pointwise() || n.Op.ByAxis && i == 0 {
			return fromEnd
		}
	}
	return -1
}

// sizeOf marks a constant that holds dimensions of v from first to last, if one of them is padded.
func (s *site) sizeOf(v, constant *ir.Value, first, last int) {
	if p, ok := s.im.counts.padded[v]; ok && first <= p.axis && p.axis < last {
		s.im.counts.counted[constant] = p
	}
}

// knows refuses to take a number for known that is one only since outputs are padded, but where it makes values as
// long as these, which are padded then as well.
func (s *site) knows(v *ir.Value) {
	p, counted := s.im.counts.counted[v]
	q, padded := s.im.counts.padded[v]
	switch {
	case padded:
		s.refuse(unpad, "it depends on the number of outputs of node %q, which is known only at run time", q.node)
	case !counted:
	case slices.Contains([]string{"Reshape", "Expand", "ConstantOfShape", "Range"}, s.n.GetOpType()):
		s.follows = p
	default:
		s.refuse(unpad, "it depends on the number of outputs of node %q, which is known only at run time", p.node)
	}
}

// markFollowing marks the output of an operator that made it as long as padded values.
func (s *site) markFollowing() {
	if s.follows.node == "" || len(s.n.Output) == 0 {
		return
	}
	v := s.sc.values[s.n.Output[0]]
	if _, ok := s.im.counts.padded[v]; v == nil || ok {
		return
	}
	axis := slices.Index(v.Type.Shape, s.follows.size)
	if axis < 0 || slices.Contains(v.Type.Shape[axis+1:], s.follows.size) {
		s.refuse(unpad, "its shape follows from the number of outputs of node %q, which is known only at run time", s.follows.node)
	}
	s.im.counts.padded[v] = padding{axis, s.follows.size, s.follows.node}
}
