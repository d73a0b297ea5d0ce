package ir

import (
	"fmt"
	"slices"
	"strings"
)

// recurrent is the rule of GRU, LSTM and RNN with the given number of gates and activations a direction.
func recurrent(gates, activations, outputs int) func(n *Node) ([]Type, error) {
	return func(n *Node) ([]Type, error) {
		x, w, r := n.Inputs[0].Type, n.Inputs[1].Type, n.Inputs[2].Type
		if err := firstError(n.want(0, floats), n.alike(0, 1, 2, 3, 5, 6, 7), n.want(4, index)); err != nil {
			return nil, err
		}
		if err := n.oneOf("direction", "forward", "forward", "reverse", "bidirectional"); err != nil {
			return nil, err
		}
		dirs := n.directions()
		if x.Rank() != 3 || w.Rank() != 3 || r.Rank() != 3 {
			return nil, fmt.Errorf("x %v, w %v, r %v: want rank 3", x, w, r)
		}
		t, b, in, h := x.Shape[0], x.Shape[1], x.Shape[2], r.Shape[2]
		err := firstError(
			n.shaped(1, dirs, gates*h, in), n.shaped(2, dirs, gates*h, h), n.shaped(3, dirs, 2*gates*h),
			n.shaped(4, b), n.shaped(5, dirs, b, h), n.shaped(6, dirs, b, h), n.shaped(7, dirs, 3*h),
			n.checkActivations(dirs*activations))
		if err != nil {
			return nil, err
		}
		types := []Type{{x.DType, []int{t, dirs, b, h}}}
		for len(types) < outputs {
			types = append(types, Type{x.DType, []int{dirs, b, h}})
		}
		return types, nil
	}
}

// directions is the number of directions of a recurrent node.
func (n *Node) directions() int {
	if n.Attrs.String("direction", "forward") == "bidirectional" {
		return 2
	}
	return 1
}

func (n *Node) checkActivations(count int) error {
	names, _ := n.Attrs["activations"].([]string)
	if len(names) != 0 && len(names) != count {
		return fmt.Errorf("activations=%v, want %d names", names, count)
	}
	for _, a := range names {
		if !slices.Contains(recurrentActivations, strings.ToLower(a)) {
			return fmt.Errorf("unknown activation %q", a)
		}
	}
	if c := n.Attrs.Float("clip", 0); !(c >= 0) {
		return fmt.Errorf("clip=%v is negative", c)
	}
	return nil
}

// recurrentActivations are the names that ONNX admits, in lower case: it compares them without regard to case.
var recurrentActivations = []string{"relu", "tanh", "sigmoid", "affine", "leakyrelu", "thresholdedrelu", "scaledtanh",
	"hardsigmoid", "elu", "softsign", "softplus"}
