package onnx

import (
	"context"

	"github.com/spark-compile/spark-compile/ir"
)

// maxFold bounds the elements of what import evaluates: above it the pass that folds constants decides.
const maxFold = 1 << 22

// fold evaluates a node of constants and returns its outputs as constants, or nil if the node stays. Reshape shares the
// data, and Expand of one element is a splat. DequantizeLinear stays: folding it would lose that a weight is quantised.
func (s *site) fold(n *ir.Node) []*ir.Value {
	for _, v := range n.Inputs {
		if v != nil && !v.IsConst() {
			return nil
		}
	}
	if len(n.Inputs) == 0 || n.Op.Name == "DequantizeLinear" {
		return nil
	}
	x := n.Inputs[0]
	switch {
	case n.Op.Name == "Reshape":
		return []*ir.Value{s.constant(x.Const.Reshaped(n.Outputs[0].Type.Shape...))}
	case n.Op.Name == "Expand" && x.Type.Numel() == 1:
		one := *x.Const.Reshaped()
		t := &ir.Tensor{Type: n.Outputs[0].Type, Data: one.Data, Splat: true}
		return []*ir.Value{s.constant(t)}
	}
	work := 0
	for _, v := range n.Outputs {
		work += v.Type.Numel()
	}
	for _, v := range n.Inputs {
		if v != nil {
			work += v.Type.Numel()
		}
	}
	if work > maxFold {
		return nil
	}
	outs, err := evaluate(n)
	s.check(err)
	values := make([]*ir.Value, len(outs))
	for i, t := range outs {
		values[i] = s.constant(t)
	}
	return values
}

// evaluate runs one node of constants, rounding to the types of its outputs.
func evaluate(n *ir.Node) ([]*ir.Tensor, error) {
	g := &ir.Graph{Nodes: []*ir.Node{n}, Outputs: n.Outputs}
	arrays, err := ir.EvaluateList(context.Background(), g, nil, ir.EvalOptions{Round: true})
	if err != nil {
		return nil, err
	}
	out := make([]*ir.Tensor, len(arrays))
	for i, a := range arrays {
		out[i] = a.Tensor()
	}
	return out, nil
}
