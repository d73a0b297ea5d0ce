package passes

import (
	"slices"
	"strings"

	"github.com/spark-compile/spark-compile/ir"
)

// activation is one of a recurrent layer's, by the table of ONNX GRU 14.
type activation struct {
	name        string // in lower case: ONNX compares without regard to case
	alpha, beta float64
}

// activationDefaults are the parameters where a layer gives none.
func activationDefaults(name string) activation {
	a := activation{name: name}
	switch name {
	case "affine", "thresholdedrelu", "elu":
		a.alpha = 1
	case "leakyrelu":
		a.alpha = 0.01
	case "scaledtanh":
		a.alpha, a.beta = 1, 1
	case "hardsigmoid":
		a.alpha, a.beta = 0.2, 0.5
	}
	return a
}

// activations are those of every direction, direction by direction. Given alphas and betas belong to them in order.
func activations(n *ir.Node, dirs int) []activation {
	names, _ := n.Attrs["activations"].([]string)
	if len(names) == 0 {
		def := map[string][]string{"GRU": {"Sigmoid", "Tanh"}, "LSTM": {"Sigmoid", "Tanh", "Tanh"}, "RNN": {"Tanh"}}[n.Op.Name]
		names = slices.Repeat(def, dirs)
	}
	alpha, beta := n.Attrs.Floats("alpha"), n.Attrs.Floats("beta")
	out := make([]activation, len(names))
	for i, name := range names {
		out[i] = activationDefaults(strings.ToLower(name))
		if i < len(alpha) {
			out[i].alpha = alpha[i]
		}
		if i < len(beta) {
			out[i].beta = beta[i]
		}
	}
	return out
}

// apply places the activation of v.
func (a activation) apply(c *cell, v *ir.Value) *ir.Value {
	k := func(x float64) *ir.Value { return c.s.scalar(c.n.Name, v.Type.DType, x) }
	op := func(name string, inputs ...*ir.Value) *ir.Value { return c.add(name, nil, inputs...) }
	positive := func() *ir.Value { return op("Greater", v, k(0)) }
	switch a.name {
	case "relu":
		return op("Relu", v)
	case "tanh":
		return op("Tanh", v)
	case "sigmoid":
		return op("Sigmoid", v)
	case "affine":
		return op("Add", op("Mul", v, k(a.alpha)), k(a.beta))
	case "leakyrelu":
		return op("Where", positive(), v, op("Mul", v, k(a.alpha)))
	case "thresholdedrelu":
		return op("Where", op("Greater", v, k(a.alpha)), v, k(0))
	case "scaledtanh":
		return op("Mul", op("Tanh", op("Mul", v, k(a.beta))), k(a.alpha))
	case "hardsigmoid":
		return op("Max", op("Min", op("Add", op("Mul", v, k(a.alpha)), k(a.beta)), k(1)), k(0))
	case "elu":
		return op("Where", positive(), v, op("Mul", op("Sub", op("Exp", v), k(1)), k(a.alpha)))
	case "softsign":
		return op("Div", v, op("Add", op("Abs", v), k(1)))
	default: // softplus, without overflow
		return op("Add", op("Relu", v), op("Log1p", op("Exp", op("Neg", op("Abs", v)))))
	}
}
