package onnx

import (
	"context"

	"github.com/spark-compile/spark-compile/ir"
)

// maxFold limits the elements of what import evaluates on its own. Copies of larger constants are expensive, and the
// pass that folds constants decides about them.
const maxFold = 1 << 16

// fold evaluates a node of constants and returns its outputs as constants, or nil if the node stays. Reshape shares the
// data, and Expand of one element is a splat.
func (s *site) fold(n *ir.Node) []*ir.Value {
	work := 0
	for _, v := range n.Inputs {
		if v != nil && !v.IsConst() {
			return nil
		}
		if v != nil {
			work += v.Type.Numel()
		}
	}
	if len(n.Inputs) == 0 {
		return nil
	}
	x := n.Inputs[0]
	switch {
	case n.Op.Name == "Reshape":
		return []*ir.Value{s.constant(x.Const.Reshaped(n.Outputs[0].Type.Shape...))}
	case n.Op.Name == "Expand" && x.Type.Numel() == 1:
		t := &ir.Tensor{Type: n.Outputs[0].Type, Data: x.Const.Data, Splat: true}
		return []*ir.Value{s.constant(t)}
	}
	for _, v := range n.Outputs {
		work += v.Type.Numel()
	}
	if work > maxFold && n.Op.Name != "QuantizeLinear" || !foldable(n) { // quantised weights are smaller than the file's
		return nil
	}
	outs, err := evaluate([]*ir.Node{n}, n.Outputs)
	s.check(err)
	if n.Op.Name == "Cast" { // the same weights in another type keep their name: adapters find them by it
		return []*ir.Value{s.im.g.Constant(x.Name, outs[0])}
	}
	return mapped(outs, s.constant)
}

// foldable reports whether evaluating a node of constants now loses nothing. DequantizeLinear marks a quantised
// weight, and a result in f16 or bf16 would be rounded before the precision is chosen. (Rounding to 8 bits is the
// file's own choice.)
func foldable(n *ir.Node) bool {
	if n.Op.Name == "DequantizeLinear" {
		return false
	}
	d := n.Outputs[0].Type.DType
	return n.Op.Kind == ir.KindMovement || d != ir.Float16 && d != ir.BFloat16
}

// valueOf returns the data of a value that depends only on constants, nil for any other value.
func (s *site) valueOf(v *ir.Value) *ir.Tensor {
	if v.IsConst() {
		return v.Const
	}
	need := map[*ir.Node]bool{}
	if !onlyConstants(v, need) {
		return nil
	}
	var nodes []*ir.Node
	for _, n := range s.im.g.Nodes {
		if !need[n] {
			continue
		}
		nodes = append(nodes, n)
		for _, o := range n.Outputs {
			s.bound(o.Type.Shape...)
		}
	}
	outs, err := evaluate(nodes, []*ir.Value{v})
	s.check(err)
	return outs[0]
}

// onlyConstants collects the nodes that v is computed by, and reports false when it meets an input of the graph.
func onlyConstants(v *ir.Value, need map[*ir.Node]bool) bool {
	if v.IsConst() || v.Def != nil && need[v.Def] {
		return true
	}
	if v.Def == nil {
		return false
	}
	need[v.Def] = true
	for _, in := range v.Def.Inputs {
		if in != nil && !onlyConstants(in, need) {
			return false
		}
	}
	return true
}

// evaluate runs nodes that depend on constants only, rounding to the types of their outputs.
func evaluate(nodes []*ir.Node, outputs []*ir.Value) ([]*ir.Tensor, error) {
	g := &ir.Graph{Nodes: nodes, Outputs: outputs}
	arrays, err := ir.EvaluateList(context.Background(), g, nil, ir.EvalOptions{Round: true})
	if err != nil {
		return nil, err
	}
	return mapped(arrays, (*ir.Array).Tensor), nil
}
