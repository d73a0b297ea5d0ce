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
	blocks *blocks   // scales of e2m1 weights
	scales *ir.Value // of a variable e2m1: one e4m3 for 16 neighbours
}

// trace follows v, a value of a region whose storage is spelled out, to an input of the region or a constant, through
// widening casts and movement. It fails where the map is not affine or a node computes something.
func trace(region *ir.Node, v *ir.Value) (*source, error) {
	if i := slices.Index(region.Region.Body.Inputs, v); i >= 0 {
		return input(region, i), nil
	}
	if v.IsConst() {
		return &source{value: v, data: v.Const, dtype: v.Type.DType, view: layout.Dense(v.Type.Shape)}, nil
	}
	n := v.Def
	if n == nil || len(n.Inputs) == 0 || n.Inputs[0] == nil {
		return nil, fmt.Errorf("value %s has no producer in the region", v.Name)
	}
	s, err := trace(region, n.Inputs[0])
	if err != nil {
		return nil, err
	}
	if n.Op.Name == "Cast" && widens(n.Inputs[0].Type.DType, v.Type.DType) {
		return s, nil
	}
	return s, s.move(n)
}

// input is input i of a region as a source.
func input(region *ir.Node, i int) *source {
	o, v, shape := region.Region.Operands[i], region.Inputs[i], region.Region.Body.Inputs[i].Type.Shape
	s := &source{value: v, data: v.Const, dtype: o.DType, view: layout.Dense(shape)}
	if o.Stacked {
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

// matrix is what the anchor of a region multiplies as v, a value of its body.
func matrix(region *ir.Node, v *ir.Value) (*source, error) {
	if v.IsConst() {
		return trace(region, v)
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
		s.round = float64(float32(1 / o.Read.Factor()))
	}
	for _, n := range path {
		if err := s.move(n); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// widens reports whether every value of a is a value of b.
func widens(a, b ir.DType) bool {
	from, to := a.Format(), b.Format()
	switch {
	case a == b:
		return true
	case b == ir.Float64:
		return a == ir.Float32 || from != nil
	case b == ir.Float32:
		return from != nil
	}
	return from != nil && to != nil && to.Contains(from)
}

// pullBack turns a view of the last value of the chain into one of its first. Elementwise nodes keep coordinates, except
// that broadcasting against a larger operand is refused: one accumulator would serve several outputs.
func pullBack(view layout.View, main []*ir.Value) (layout.View, error) {
	for i := len(main) - 1; i > 0; i-- {
		n, x := main[i].Def, main[i-1]
		ok := true
		switch {
		case n.Op.Name == "Reshape":
			view, ok = view.Reshape(x.Type.Shape)
		case n.Op.Name == "Transpose":
			view = view.Untranspose(n.Attrs.Ints("perm"))
		case n.Op.Kind == ir.KindElementwise:
			if !slices.Equal(x.Type.Shape, main[i].Type.Shape) {
				if x.Type.Numel() != main[i].Type.Numel() {
					return view, fmt.Errorf("%s (%s) broadcasts the anchor's output from %v to %v", n.Name, n.Op.Name, x.Type, main[i].Type)
				}
				view, ok = view.Reshape(x.Type.Shape)
			}
		default:
			return view, fmt.Errorf("%s (%s) cannot follow the anchor", n.Name, n.Op.Name)
		}
		if !ok {
			return view, fmt.Errorf("%s (%s) scatters the anchor's output unevenly", n.Name, n.Op.Name)
		}
	}
	return view, nil
}

// dependents are the values of the body that depend on the anchor's output.
func dependents(region, anchor *ir.Node) map[*ir.Value]bool {
	from := anchor.Outputs[0]
	depends := map[*ir.Value]bool{from: true}
	for _, n := range region.Region.Body.Nodes {
		for _, v := range n.Inputs {
			if v != nil && depends[v] {
				for _, o := range n.Outputs {
					depends[o] = true
				}
			}
		}
	}
	return depends
}

// pathTo is a path from the anchor's output to v. Where several join again (x·sigmoid(x)) it follows the largest operand:
// coordinates are the same along each.
func pathTo(v, from *ir.Value, depends map[*ir.Value]bool) ([]*ir.Value, error) {
	chain := []*ir.Value{v}
	for v != from {
		var next *ir.Value
		for _, x := range v.Def.Inputs {
			if x != nil && depends[x] && (next == nil || x.Type.Numel() > next.Type.Numel()) {
				next = x
			}
		}
		if next == nil {
			return nil, fmt.Errorf("the output does not depend on the anchor")
		}
		v = next
		chain = append(chain, v)
	}
	slices.Reverse(chain)
	return chain, nil
}
