package ir

import (
	"fmt"
	"slices"
)

// Families of regions.
const (
	FamilyContraction = "contraction"
	FamilyLoop        = "loop"
	FamilyWindow      = "window"
	FamilyView        = "view"
)

// NewRegion makes a Region node without appending it: body's inputs and outputs are those of the node, in order. With
// members G > 0 the body is applied G times: outputs, and inputs marked in stacked, have a leading dimension G.
func (g *Graph) NewRegion(family, name string, body *Graph, members int, stacked []bool, inputs ...*Value) (*Node, error) {
	attrs := Attrs{"family": family}
	if members != 0 {
		attrs["members"] = members
		attrs["stacked"] = slices.Clone(stacked)
	}
	n := &Node{Op: LookupOp("Region"), Name: name, Attrs: attrs, Inputs: inputs, Body: body}
	if err := g.typeOutputs(n); err != nil {
		return nil, err
	}
	return n, nil
}

func inferRegion(n *Node) ([]Type, error) {
	body := n.Body
	if body == nil {
		return nil, fmt.Errorf("it has no body")
	}
	if err := n.oneOf("family", "", FamilyContraction, FamilyLoop, FamilyWindow, FamilyView); err != nil {
		return nil, err
	}
	members, stacked := n.Attrs.Int("members", 0), n.Attrs.Bools("stacked")
	if members < 0 || members > 0 && len(stacked) != len(n.Inputs) || members == 0 && len(stacked) > 0 {
		return nil, fmt.Errorf("members=%d with stacked=%v for %d inputs", members, stacked, len(n.Inputs))
	}
	if len(body.Inputs) != len(n.Inputs) {
		return nil, fmt.Errorf("%d inputs, but its body has %d", len(n.Inputs), len(body.Inputs))
	}
	if len(body.Outputs) == 0 {
		return nil, fmt.Errorf("its body has no outputs")
	}
	for i, v := range n.Inputs {
		want := body.Inputs[i].Type
		if members > 0 && stacked[i] {
			want = stackedType(want, members)
		}
		if !v.Type.Equal(want) {
			return nil, fmt.Errorf("input %d is %v, its body wants %v", i, v.Type, want)
		}
	}
	types := make([]Type, len(body.Outputs))
	for i, v := range body.Outputs {
		types[i] = v.Type.Clone()
		if members > 0 {
			types[i] = stackedType(v.Type, members)
		}
	}
	return types, nil
}

func stackedType(t Type, members int) Type {
	return Type{t.DType, slices.Concat([]int{members}, t.Shape)}
}
