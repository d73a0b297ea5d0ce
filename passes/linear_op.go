package passes

import (
	"slices"

	"github.com/spark-compile/spark-compile/ir"
)

// weights are those of a linear op on one operand: a convolution, or a MatMul with a constant second matrix.
type weights struct {
	ir.Weights
	node    *ir.Node
	outAxis int  // channel dimension of the result
	padded  bool // zeros around the operand are multiplied too
	w       *ir.Tensor
}

// linearOp reads n as a linear op of its first operand, or returns nil.
func linearOp(n *ir.Node) *weights {
	if n == nil {
		return nil
	}
	g, ok := n.Weights()
	if !ok || g.InAxis < 0 || n.Inputs[0].IsConst() || !n.Inputs[1].IsConst() || !n.Inputs[1].Type.DType.IsFloat() ||
		n.Bias() != nil && !n.Bias().IsConst() {
		return nil
	}
	pads := n.Attrs.Ints("pads")
	return &weights{Weights: g, node: n, outAxis: n.ChannelAxis(), w: n.Inputs[1].Const,
		// At the border of a transposed convolution fewer taps take part.
		padded: pads != nil && !g.ByOutput || slices.ContainsFunc(pads, func(p int) bool { return p != 0 })}
}

// takesBias reports whether the op has a bias operand.
func (l *weights) takesBias() bool { return l.node.Op.Bias > 0 }

// constantBias is the op's bias, nil for none.
func (l *weights) constantBias() []float64 {
	if b := l.node.Bias(); b != nil {
		return b.Const.Floats()
	}
	return nil
}

// scaleOut multiplies the weights of each output channel, scaleIn those of each input channel.
func (l *weights) scaleOut(coef []float64) *ir.Tensor { return l.scale(coef, l.Output) }
func (l *weights) scaleIn(coef []float64) *ir.Tensor  { return l.scale(coef, l.Input) }

func (l *weights) scale(coef []float64, channel func(i int) int) *ir.Tensor {
	factor := func(i int) float64 { return coef[channel(i)] }
	out := scaledTensor(l.w, factor).Compact()
	out.Codes = scaledCodes(l.w.Codes, factor)
	return out
}

// apply is the result for an operand that is constant but for its channels, without bias or padding.
func (l *weights) apply(x []float64) []float64 {
	y := make([]float64, l.Outputs())
	for i, w := range l.w.Floats() {
		y[l.Output(i)] += float64(w * x[l.Input(i)])
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
	if bias != nil && l.takesBias() {
		inputs = append(inputs, s.constant(name, l.w.DType, []int{l.Outputs()}, bias))
	}
	return s.add(n.Op.Name, n.Name, n.Attrs, inputs...)
}
