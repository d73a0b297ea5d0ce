package passes

import "github.com/spark-compile/spark-compile/ir"

// weights are those of a linear op on one operand: Conv, ConvTranspose, or MatMul with a constant second matrix.
type weights struct {
	node      *ir.Node
	bias      *ir.Value // nil if there is none
	takesBias bool      // the op has a bias operand
	outAxis   int       // channel dimension of the result
	inAxis    int       // channel dimension of the operand, -1 if its factors cannot be taken into the weights
	padded    bool      // zeros beside the operand take part
	w         *ir.Tensor
	out, in   func(i int) int // output and input channel that weight i connects
	outs      int             // output channels
}

// linearOp reads n as a linear op of its first operand, or returns nil.
func linearOp(n *ir.Node) *weights {
	if n == nil || len(n.Inputs) < 2 || n.Inputs[1] == nil || !n.Inputs[1].IsConst() || n.Inputs[0].IsConst() ||
		!n.Inputs[1].Type.DType.IsFloat() {
		return nil
	}
	switch n.Op.Name {
	case "Conv", "ConvTranspose":
		return convWeights(n)
	case "MatMul":
		return matmulWeights(n)
	}
	return nil
}

func convWeights(n *ir.Node) *weights {
	if b := n.In(2); b != nil && !b.IsConst() {
		return nil
	}
	w := n.Inputs[1].Const
	axis := n.ChannelAxis()
	group := n.Attrs.Int("group", 1)
	taps := ir.Type{Shape: w.Shape[2:]}.Numel()
	rows, cols := w.Shape[0], w.Shape[1]
	l := &weights{node: n, bias: n.In(2), takesBias: true, outAxis: axis, inAxis: axis, w: w}
	if n.Op.Name == "Conv" { // [out, in/group, …]
		l.outs = rows
		l.out = func(i int) int { return i / taps / cols }
		l.in = func(i int) int { return i/taps/cols/(rows/group)*cols + i/taps%cols }
	} else { // [in, out/group, …]
		l.outs = cols * group
		l.out = func(i int) int { return i/taps/cols/(rows/group)*cols + i/taps%cols }
		l.in = func(i int) int { return i / taps / cols }
	}
	for _, p := range n.Attrs.Ints("pads") {
		l.padded = l.padded || p != 0
	}
	if n.Op.Name == "ConvTranspose" {
		l.padded = true // border positions have fewer taps
	}
	return l
}

func matmulWeights(n *ir.Node) *weights {
	w, a := n.Inputs[1].Const, n.Inputs[0].Type
	if w.Rank() != 2 || a.Rank() < 2 || n.Attrs.Bool("transA") {
		return nil
	}
	cols := w.Shape[1]
	l := &weights{node: n, outAxis: n.Outputs[0].Type.Rank() - 1, inAxis: a.Rank() - 1, w: w}
	first, second := func(i int) int { return i / cols }, func(i int) int { return i % cols }
	if n.Attrs.Bool("transB") {
		l.out, l.in, l.outs = first, second, w.Shape[0]
	} else {
		l.in, l.out, l.outs = first, second, cols
	}
	return l
}

// scaleOut multiplies the weights of each output channel, scaleIn those of each input channel.
func (l *weights) scaleOut(coef []float64) *ir.Tensor { return l.scale(coef, l.out) }
func (l *weights) scaleIn(coef []float64) *ir.Tensor  { return l.scale(coef, l.in) }

func (l *weights) scale(coef []float64, channel func(i int) int) *ir.Tensor {
	factor := func(i int) float64 { return coef[channel(i)] }
	out := scaledTensor(l.w, factor).Compact()
	out.Codes = scaledCodes(l.w.Codes, factor)
	return out
}

// apply is the result for an operand that is constant but for its channels, without bias or padding.
func (l *weights) apply(x []float64) []float64 {
	y := make([]float64, l.outs)
	for i, w := range l.w.Floats() {
		y[l.out(i)] += float64(w * x[l.in(i)])
	}
	return y
}

// with is the op on x with other weights (nil: the same) and another bias (nil: none).
func (l *weights) with(s *sweep, name string, x *ir.Value, w *ir.Tensor, bias []float64) *ir.Value {
	n := l.node
	inputs := []*ir.Value{x, n.Inputs[1]}
	if w != nil {
		inputs[1] = s.g.Constant(name, w)
	}
	if bias != nil && l.takesBias {
		inputs = append(inputs, s.constant(name, l.w.DType, []int{l.outs}, bias))
	}
	return s.add(n.Op.Name, n.Name, n.Attrs, inputs...)
}
