package ir

import (
	"fmt"
	"slices"
)

// Normalisations, as composites of reductions and elementwise ops.
var _ = register(
	Op{Name: "Softmax", Kind: KindReduction, Rereads: true, In: "x float",
		Attrs:   []Attr{{Name: "axis", Default: 0, Required: true, Axes: true}},
		Summary: "exp(x-max)/Σ along one axis",
		Grad:    gradSoftmax, Batch: alongAxes, Infer: alongAxis, Expand: func(x *Expansion, n *Node) []*Value {
			_, e, sum := softmaxTerms(x, n)
			return []*Value{x.Add("Div", nil, e, sum)}
		}},
	Op{Name: "LogSoftmax", Kind: KindReduction, Rereads: true, In: "x float",
		Attrs:   []Attr{{Name: "axis", Default: 0, Required: true, Axes: true}},
		Summary: "log of Softmax",
		Grad:    gradLogSoftmax, Batch: alongAxes, Infer: alongAxis, Expand: func(x *Expansion, n *Node) []*Value {
			here, _, sum := softmaxTerms(x, n)
			return []*Value{x.Add("Sub", nil, here, x.Add("Log", nil, sum))}
		}},
	Op{Name: "LayerNorm", Kind: KindReduction, Rereads: true, In: "x float, scale? x, bias? x",
		Attrs:   []Attr{{Name: "axis", Default: 0, Required: true, Axes: true}, {Name: "epsilon", Default: 1e-5}},
		Summary: "(x-mean)/√(var+ε)·scale+bias over dimensions axis…; scale and bias broadcast to x (ONNX LayerNormalization 17)",
		Batch:   alongAxes, Infer: inferNorm, Expand: func(x *Expansion, n *Node) []*Value {
			mean := x.Add("ReduceMean", n.rowAxes(), n.Inputs[0])
			return normalised(x, n, x.Add("Sub", nil, n.Inputs[0], mean))
		}},
	Op{Name: "RMSNorm", Kind: KindReduction, Rereads: true, In: "x float, scale? x",
		Attrs:   []Attr{{Name: "axis", Default: 0, Required: true, Axes: true}, {Name: "epsilon", Default: 1e-5}},
		Summary: "x/√(mean(x²)+ε)·scale over dimensions axis… (ONNX RMSNormalization 23)",
		Batch:   alongAxes, Infer: inferNorm, Expand: func(x *Expansion, n *Node) []*Value { return normalised(x, n, n.Inputs[0]) }},
	Op{Name: "BatchNorm", Kind: KindElementwise, In: "x float, scale float, bias float, mean float, var float",
		Attrs:   []Attr{{Name: "epsilon", Default: 1e-5}, {Name: "axis", Default: 1, Axes: true}},
		Summary: "(x-mean)/√(var+ε)·scale+bias; parameters have one element a channel, channel dimension axis (inference form of ONNX BatchNormalization)",
		Batch:   alongAxes, Infer: inferBatchNorm, ByAxis: true, Expand: expandBatchNorm},
)

func inferNorm(n *Node) ([]Type, error) {
	x := n.Inputs[0].Type
	for i := 1; i < len(n.Inputs); i++ {
		if v := n.Inputs[i]; v != nil && !BroadcastsTo(v.Type.Shape, x.Shape) {
			return nil, fmt.Errorf("%s %v does not broadcast to x %v", n.Op.inputName(i), v.Type, x)
		}
	}
	return alongAxis(n)
}

// softmaxTerms are x - max, its exponential and the sum of that along the axis.
func softmaxTerms(x *Expansion, n *Node) (here, e, sum *Value) {
	row := Attrs{"axes": []int{n.Attrs.Int("axis", 0)}, "keepdims": true}
	here = x.Add("Sub", nil, n.Inputs[0], x.Add("ReduceMax", row, n.Inputs[0]))
	e = x.Add("Exp", nil, here)
	return here, e, x.Add("ReduceSum", row, e)
}

// rowAxes are the attributes of a reduction over dimensions axis….
func (n *Node) rowAxes() Attrs {
	axes := []int{}
	for a := n.Attrs.Int("axis", 0); a < n.Inputs[0].Type.Rank(); a++ {
		axes = append(axes, a)
	}
	return Attrs{"axes": axes, "keepdims": true}
}

// normalised divides v by the root of its mean square, then scales and shifts.
func normalised(x *Expansion, n *Node, v *Value) []*Value {
	variance := x.Add("ReduceMean", n.rowAxes(), x.Add("Mul", nil, v, v))
	deviation := x.Add("Sqrt", nil, x.Add("Add", nil, variance, x.Like(v, n.Attrs.Float("epsilon", 1e-5))))
	y := x.Add("Mul", nil, v, x.Add("Div", nil, x.Like(v, 1), deviation))
	if s := n.In(1); s != nil {
		y = x.Add("Mul", nil, y, s)
	}
	if b := n.In(2); b != nil {
		y = x.Add("Add", nil, y, b)
	}
	return []*Value{y}
}

func inferBatchNorm(n *Node) ([]Type, error) {
	x := n.Inputs[0].Type
	axis, err := n.axisOf("axis", 1, x.Rank())
	if err != nil {
		return nil, err
	}
	for i := 1; i < len(n.Inputs); i++ {
		if err := n.shaped(i, x.Shape[axis]); err != nil {
			return nil, err
		}
	}
	return one(x.DType, x.Shape...)
}

func expandBatchNorm(x *Expansion, n *Node) []*Value {
	v := n.Inputs[0]
	shape := slices.Repeat([]int{1}, v.Type.Rank()-n.Attrs.Int("axis", 1))
	parameter := func(i int) *Value {
		p := n.Inputs[i]
		shape[0] = p.Type.Numel()
		if p.Type.DType != v.Type.DType {
			p = x.Add("Cast", Attrs{"to": v.Type.DType}, p)
		}
		return x.Reshape(p, append([]int{}, shape...)...)
	}
	deviation := x.Add("Sqrt", nil, x.Add("Add", nil, parameter(4), x.Like(v, n.Attrs.Float("epsilon", 1e-5))))
	y := x.Add("Div", nil, x.Add("Sub", nil, v, parameter(3)), deviation)
	return []*Value{x.Add("Add", nil, x.Add("Mul", nil, y, parameter(1)), parameter(2))}
}
