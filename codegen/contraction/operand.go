package contraction

import (
	"fmt"
	"slices"

	"github.com/spark-compile/spark-compile/codegen/layout"
	"github.com/spark-compile/spark-compile/ir"
)

// source is an operand of the anchor, followed through movement and widening casts to the value it is read from.
type source struct {
	value  *ir.Value   // of the graph: an input of the region; or a constant of its body
	data   *ir.Tensor  // of a constant
	dtype  ir.DType    // in memory
	view   layout.View // dimensions of the anchor's operand
	member int         // elements between members; 0: all members share it
	exact  bool        // the chain of casts keeps every value

	factor float64 // a Mul that a rounding to e4m3 must follow; 0: none
	round  float64 // the value times round is rounded to e4m3; 0: it is not
	blocks *blocks // scales of e2m1 weights
	scales *source // of a variable e2m1: one e4m3 for 16 neighbours
}

// graphValue is the graph's value behind a value of the region's body: an input of the region, or the constant itself.
func graphValue(region *ir.Node, v *ir.Value) (outer *ir.Value, stacked bool, ok bool) {
	for i, in := range region.Body.Inputs {
		if in == v {
			s := region.Attrs.Bools("stacked")
			return region.Inputs[i], i < len(s) && s[i], true
		}
	}
	return v, false, v.IsConst()
}

// trace follows v to a region input or a constant, composing the movement on the way into a view. It fails where the map
// is not affine or a node computes something.
func trace(region *ir.Node, v *ir.Value) (*source, error) { return follow(region, v, false) }

// traceOperand is trace for a matrix operand of the anchor, which may also be rounded to e4m3 (Mul by a constant, Cast down,
// Cast up) and, if constant, have block scales.
func traceOperand(region *ir.Node, v *ir.Value) (*source, error) {
	s, err := follow(region, v, true)
	if err == nil && s.factor != 0 {
		err = fmt.Errorf("%s (Mul) before the anchor is not followed by a Cast to e4m3", v.Name)
	}
	return s, err
}

func follow(region *ir.Node, v *ir.Value, quantised bool) (*source, error) {
	if outer, stacked, ok := graphValue(region, v); ok {
		s := &source{value: outer, data: outer.Const, dtype: v.Type.DType, view: layout.Dense(v.Type.Shape), exact: true}
		if stacked {
			s.member = v.Type.Numel()
		}
		return s, nil
	}
	n := v.Def
	if n == nil || len(n.Inputs) == 0 || n.Inputs[0] == nil {
		return nil, fmt.Errorf("value %s has no producer in the region", v.Name)
	}
	s, err := follow(region, n.Inputs[0], quantised)
	if err != nil {
		return nil, err
	}
	ok := true
	if s.scales != nil {
		return nil, fmt.Errorf("%s (%s) between block scales and the anchor", n.Name, n.Op.Name)
	}
	if quantised {
		if done, err := s.quantisation(region, n); done || err != nil {
			return s, err
		}
	}
	switch n.Op.Name {
	case "Cast":
		s.exact = s.exact && widens(n.Inputs[0].Type.DType, v.Type.DType)
		ok = s.exact
	case "Reshape":
		s.view, ok = s.view.Reshape(v.Type.Shape)
	case "Transpose":
		s.view = s.view.Transpose(n.Attrs.Ints("perm"))
	case "Slice":
		s.view, ok = s.view.Slice(n.Attrs.Ints("starts"), n.Attrs.Ints("sizes"), n.Attrs.Ints("steps"))
	case "Expand":
		s.view, ok = s.view.Broadcast(v.Type.Shape)
	default:
		ok = false
	}
	if !ok {
		return nil, fmt.Errorf("%s (%s) before the anchor is not an affine view", n.Name, n.Op.Name)
	}
	return s, nil
}

// quantisation takes n into the source if it is part of a quantisation.
func (s *source) quantisation(region, n *ir.Node) (bool, error) {
	from, to := n.Inputs[0].Type.DType, n.Outputs[0].Type.DType
	switch n.Op.Name {
	case "Mul":
		c := n.Inputs[1]
		if s.factor != 0 || s.round != 0 || c.Const == nil || c.Const.Numel() != 1 || from != ir.Float32 || s.dtype == ir.Float8E4M3FN {
			return false, nil
		}
		s.factor = c.Const.FloatAt(0)
		return true, nil
	case "Cast":
		saturate, given := n.Attrs["saturate"].(bool)
		if to != ir.Float8E4M3FN || from != ir.Float32 || s.round != 0 || given && !saturate || !s.exact {
			return false, nil
		}
		s.round, s.factor = s.factor, 0
		if s.round == 0 {
			s.round = 1
		}
		return true, nil
	case "DequantizeLinear":
		if s.data == nil {
			var err error
			s.scales, err = blocksOfVariable(region, n, s)
			return true, err
		}
		b, err := blocksOf(region, n, s)
		s.blocks = b
		return true, err
	}
	return false, nil
}

// widens reports whether every value of a is a value of b.
func widens(a, b ir.DType) bool {
	if a == b {
		return true
	}
	switch a {
	case ir.Float16, ir.BFloat16:
		return b == ir.Float32 || b == ir.Float64
	case ir.Float8E4M3FN:
		return b == ir.Float16 || b == ir.BFloat16 || b == ir.Float32 || b == ir.Float64
	case ir.Float4E2M1:
		return b != ir.Float8E8M0 && b.IsFloat()
	case ir.Float32:
		return b == ir.Float64
	}
	return false
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
	for _, n := range region.Body.Nodes {
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
