package contraction

import (
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/codegen/layout"
	"github.com/spark-compile/spark-compile/ir"
)

// source is where an operand is read from: a value of the graph, and the affine view of it that the operand is.
type source struct {
	value  *ir.Value   // of the graph: an input of the region; or a constant of its body
	data   *ir.Tensor  // of a constant
	dtype  ir.DType    // in memory
	view   layout.View // in the dimensions of the operand
	member int         // elements between members; 0: all members share it

	round  float64   // the value times round is rounded to e4m3 when it is read; 0: it is not
	terms  int       // what is rounded is the sum of so many numbers
	blocks *blocks   // scales of e2m1 weights
	scales *ir.Value // of a variable e2m1: one e4m3 for 16 neighbours
}

// input is input i of a region as a source.
func input(region *ir.Node, i int) *source {
	o, v, shape := region.Region.Operands[i], region.Inputs[i], region.Region.Body.Inputs[i].Type.Shape
	s := &source{value: v, data: v.Const, dtype: o.DType, view: layout.Dense(shape)}
	if o.Batched {
		s.member = ir.Type{Shape: shape}.Numel()
	}
	return s
}

// move composes the view with a node that moves elements.
func (s *source) move(n *ir.Node) error {
	ok := true
	switch n.Op.Name {
	case "Reshape":
		s.view, ok = s.view.Reshape(n.Outputs[0].Type.Shape)
	case "Transpose":
		s.view = s.view.Transpose(n.Attrs.Ints("perm"))
	case "Slice":
		s.view, ok = s.view.Slice(n.Attrs.Ints("starts"), n.Attrs.Ints("sizes"), n.Attrs.Ints("steps"))
	case "Expand":
		s.view, ok = s.view.Broadcast(n.Outputs[0].Type.Shape)
	default:
		ok = false
	}
	if !ok {
		return fmt.Errorf("%s (%s) before the anchor is not an affine view", n.Name, n.Op.Name)
	}
	return nil
}

// matrix is what the anchor of a region reads as v, a value of its body: an operand of the region, which movement may
// have turned into an affine view, or a constant.
func matrix(region *ir.Node, v *ir.Value) (*source, error) {
	if v.IsConst() {
		return &source{value: v, data: v.Const, dtype: v.Type.DType, view: layout.Dense(v.Type.Shape)}, nil
	}
	i, path, ok := region.Region.Source(v)
	if !ok {
		return nil, fmt.Errorf("%s before the anchor is computed", v.Name)
	}
	s, o := input(region, i), region.Region.Operands[i]
	switch {
	case o.Block == 0:
	case o.Block != blockSize || o.DType != ir.Float4E2M1:
		return nil, fmt.Errorf("%s stored as %v: kernels multiply e2m1 in blocks of %d", v.Name, o.Storage, blockSize)
	case s.data == nil && (o.BlockAxis != len(s.view.Dims)-1 || v.Type.Shape[o.BlockAxis]%blockSize != 0):
		return nil, fmt.Errorf("%s %v stored as %v: block-scaled products want whole blocks of the last dimension", v.Name, v.Type, o.Storage)
	case s.data == nil && len(path) > 0:
		return nil, fmt.Errorf("%s (%s) between block scales and the anchor", path[0].Name, path[0].Op.Name)
	case s.data == nil:
		s.scales = region.BlockScales(i)
	default:
		s.blocks = blocksOf(region, i)
	}
	if o.Read.DType != ir.Invalid {
		s.round, s.terms = float64(float32(1/o.Read.Factor())), max(1, o.Read.SplitTerms)
	}
	for _, n := range path {
		if err := s.move(n); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// throughEpilogue turns a view of v into one of the anchor's output, of which v is a function element by element.
// even: the view's map is affine. found: v is such a function.
func throughEpilogue(view layout.View, v, output *ir.Value) (at layout.View, even, found bool) {
	if v == output || v.Def == nil {
		return view, true, v == output
	}
	for _, x := range v.Def.Inputs {
		if x == nil || x.Type.Numel() != v.Type.Numel() {
			continue
		}
		moved, ok := view, true
		if v.Def.Op.Name == "Transpose" {
			moved = view.Untranspose(v.Def.Attrs.Ints("perm"))
		} else if !slices.Equal(x.Type.Shape, v.Type.Shape) {
			if moved, ok = view.Reshape(x.Type.Shape); !ok {
				moved = layout.Dense(x.Type.Shape)
			}
		}
		if at, even, found = throughEpilogue(moved, x, output); found {
			return at, even && ok, true
		}
	}
	return view, true, false
}
