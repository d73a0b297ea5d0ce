package passes

import (
	"github.com/spark-compile/spark-compile/ir"
)

var _ = register(Pass{
	Name:      "fold",
	Summary:   "evaluate nodes with constant operands, unless the result would be much larger; store equal elements once",
	Tolerance: 1e-3, // each folded result is rounded to its type, which may be f16
	Run: func(_ *Context, g *ir.Graph) error {
		for _, v := range g.Constants() {
			v.Const = v.Const.Compact()
		}
		_, err := rewrite(g, foldNode)
		return err
	},
})

// Limits of folding: a result may have so many bytes, or eight times those of its operands (a cast from i4 to f32); and
// its evaluation may take so many elements or products.
const (
	foldBytes = 1 << 20
	foldWork  = 1 << 26
)

func foldNode(s *sweep, n *ir.Node) {
	if len(n.Inputs) == 0 || n.Region != nil {
		return
	}
	splat, operands := true, 0
	for _, v := range n.Inputs {
		if v == nil {
			continue
		}
		if !v.IsConst() {
			return
		}
		splat = splat && (v.Const.Splat || v.Type.Numel() == 1)
		operands += v.Type.Bytes()
	}
	for _, v := range n.Outputs {
		if s.keepsName(v, &ir.Value{}) {
			return
		}
	}
	if splat && foldSplat(s, n) {
		return
	}
	results := 0
	for _, v := range n.Outputs {
		results += v.Type.Bytes()
	}
	if results > max(foldBytes, 8*operands) || foldCost(n) > foldWork {
		return
	}
	if x := n.Inputs[0]; n.Op.Name == "Reshape" {
		s.replace(n.Outputs[0], s.g.Constant(n.Name, x.Const.Reshaped(n.Outputs[0].Type.Shape...)))
		return
	}
	out, err := evaluate(n)
	if err != nil {
		s.err = err
		return
	}
	codes, err := codesOf(n)
	if err != nil {
		s.err = err
		return
	}
	for i, v := range n.Outputs {
		t := out[i].Tensor().Compact()
		t.Codes = codes
		s.replace(v, s.g.Constant(n.Name, t))
	}
}

// foldCost estimates the elements or products that evaluating n takes.
func foldCost(n *ir.Node) int {
	cost := n.Outputs[0].Type.Numel() + int(n.MACs())
	for _, v := range n.Inputs {
		if v != nil {
			cost += v.Type.Numel()
		}
	}
	return cost
}

// foldSplat folds an op on splats whose result is one, whatever its size.
func foldSplat(s *sweep, n *ir.Node) bool {
	y := n.Outputs[0]
	switch {
	case n.Op.Pointwise():
		small := &ir.Node{Op: n.Op, Attrs: n.Attrs}
		for _, v := range n.Inputs {
			t := &ir.Tensor{Type: ir.T(v.Type.DType), Data: v.Const.Data, Splat: v.Const.Splat}
			small.Inputs = append(small.Inputs, &ir.Value{Type: t.Type, Const: t})
		}
		small.Outputs = []*ir.Value{{Type: ir.T(y.Type.DType), Def: small}}
		out, err := evaluate(small)
		if err != nil {
			return false
		}
		t := out[0].Tensor()
		s.replace(y, s.g.Constant(n.Name, &ir.Tensor{Type: y.Type, Data: t.Data, Splat: true}))
		return true
	case n.Op.Name == "Reshape", n.Op.Name == "Transpose", n.Op.Name == "Expand", n.Op.Name == "Slice", n.Op.Name == "Tile":
		t := n.Inputs[0].Const
		s.replace(y, s.g.Constant(n.Name, &ir.Tensor{Type: y.Type, Data: t.Data, Splat: true}))
		return true
	}
	return false
}

// evaluate computes a node's outputs from its constants.
func evaluate(n *ir.Node) ([]*ir.Array, error) {
	if err := n.Fits(); err != nil {
		return nil, err
	}
	in := make([]*ir.Array, len(n.Inputs))
	for i, v := range n.Inputs {
		if v != nil {
			in[i] = v.Const.Array()
		}
	}
	return ir.EvaluateNode(n, in)
}
