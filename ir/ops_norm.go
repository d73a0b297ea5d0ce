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
		Grad:    gradNorm, Batch: alongAxes, Infer: inferNorm, Expand: func(x *Expansion, n *Node) []*Value { return normalised(x, n, n.centred(x)) }},
	Op{Name: "RMSNorm", Kind: KindReduction, Rereads: true, In: "x float, scale? x",
		Attrs:   []Attr{{Name: "axis", Default: 0, Required: true, Axes: true}, {Name: "epsilon", Default: 1e-5}},
		Summary: "x/√(mean(x²)+ε)·scale over dimensions axis… (ONNX RMSNormalization 23)",
		Grad:    gradNorm, Batch: alongAxes, Infer: inferNorm, Expand: func(x *Expansion, n *Node) []*Value { return normalised(x, n, n.Inputs[0]) }},
	Op{Name: "BatchNorm", Kind: KindElementwise, In: "x float, scale float, bias float, mean float, var float",
		Attrs:   []Attr{{Name: "epsilon", Default: 1e-5}, {Name: "axis", Default: 1, Axes: true}},
		Summary: "(x-mean)/√(var+ε)·scale+bias; parameters have one element a channel, channel dimension axis (inference form of ONNX BatchNormalization)",
		Batch:   alongAxes, Infer: inferBatchNorm, ByAxis: true, Expand: expandBatchNorm},

	// Gradients by x, one kernel each. Differentiation makes them, of graphs that have their batch.
	Op{Name: "SoftmaxGrad", Kind: KindReduction, Rereads: true, In: "y float, dy y",
		Attrs:   []Attr{{Name: "axis", Default: 0, Required: true, Axes: true}},
		Summary: "y·(dy-Σ y·dy) along one axis: the gradient of Softmax by x, y its result",
		Infer:   inferGradient, Expand: func(x *Expansion, n *Node) []*Value {
			y, dy := n.Inputs[0], n.Inputs[1]
			row := Attrs{"axes": []int{n.Attrs.Int("axis", 0)}, "keepdims": true}
			return []*Value{x.Add("Mul", nil, y, x.Add("Sub", nil, dy, x.Add("ReduceSum", row, x.Add("Mul", nil, y, dy))))}
		}},
	Op{Name: "LayerNormGrad", Kind: KindReduction, Rereads: true, In: "x float, dy x, scale? x",
		Attrs:   []Attr{{Name: "axis", Default: 0, Required: true, Axes: true}, {Name: "epsilon", Default: 1e-5}},
		Summary: "(g-mean(g)-v·mean(g·v)/(var+ε))/√(var+ε) over dimensions axis…, with g = dy·scale and v = x-mean: the gradient of LayerNorm by x",
		Infer:   inferGradient, Expand: func(x *Expansion, n *Node) []*Value { return normalisedBack(x, n, n.centred(x), true) }},
	Op{Name: "RMSNormGrad", Kind: KindReduction, Rereads: true, In: "x float, dy x, scale? x",
		Attrs:   []Attr{{Name: "axis", Default: 0, Required: true, Axes: true}, {Name: "epsilon", Default: 1e-5}},
		Summary: "(g-x·mean(g·x)/(mean(x²)+ε))/√(mean(x²)+ε) over dimensions axis…, with g = dy·scale: the gradient of RMSNorm by x",
		Infer:   inferGradient, Expand: func(x *Expansion, n *Node) []*Value { return normalisedBack(x, n, n.Inputs[0], false) }},
)

// inferGradient: dy has the shape of the first input, and parameters broadcast to it.
func inferGradient(n *Node) ([]Type, error) {
	if x, dy := n.Inputs[0], n.Inputs[1]; !x.Type.Equal(dy.Type) {
		return nil, fmt.Errorf("dy is %v, want %v", dy.Type, x.Type)
	}
	return inferNorm(n)
}

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

// centred is a norm's x less the mean of its row.
func (n *Node) centred(x *Expansion) *Value {
	return x.Add("Sub", nil, n.Inputs[0], x.Add("ReduceMean", n.rowAxes(), n.Inputs[0]))
}

// overDeviation is 1/√(mean(v²)+ε) of each row.
func (n *Node) overDeviation(x *Expansion, v *Value) *Value {
	variance := x.Add("ReduceMean", n.rowAxes(), x.Add("Mul", nil, v, v))
	deviation := x.Add("Sqrt", nil, x.Add("Add", nil, variance, x.Like(v, n.Attrs.Float("epsilon", 1e-5))))
	return x.Add("Div", nil, x.Like(v, 1), deviation)
}

// normalised divides v by the root of its mean square, then scales and shifts.
func normalised(x *Expansion, n *Node, v *Value) []*Value {
	y := x.Add("Mul", nil, v, n.overDeviation(x, v))
	if s := n.In(1); s != nil {
		y = x.Add("Mul", nil, y, s)
	}
	if b := n.In(2); b != nil {
		y = x.Add("Add", nil, y, b)
	}
	return []*Value{y}
}

// normalisedBack is the gradient of v·s·scale by x, where s is 1/√(mean(v²)+ε) and v is x, or x less its mean: with g
// = dy·scale it is s·(g - v·s²·mean(g·v)), less the mean of that, which is s·mean(g) since v has none.
func normalisedBack(x *Expansion, n *Node, v *Value, centred bool) []*Value {
	g := n.Inputs[1]
	if s := n.In(2); s != nil {
		g = x.Add("Mul", nil, g, s)
	}
	s := n.overDeviation(x, v)
	along := x.Add("ReduceMean", n.rowAxes(), x.Add("Mul", nil, g, v))
	d := x.Add("Sub", nil, g, x.Add("Mul", nil, v, x.Add("Mul", nil, x.Add("Mul", nil, s, s), along)))
	if centred {
		d = x.Add("Sub", nil, d, x.Add("ReduceMean", n.rowAxes(), g))
	}
	return []*Value{x.Add("Mul", nil, d, s)}
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
